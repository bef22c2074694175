/* Qdiscs of other programs: restored exactly if evb replaced them, untouched if they are independent of the
 * root. */
#include "tc_network.h"

#include "shape/kernel/watch.h"
#include "shape/model/kind.h"

#include <linux/rtnetlink.h>
#include <signal.h>
#include <sys/wait.h>

#define HTB "qdisc add dev " NETWORK_DEVICE " root handle 1: htb default 1"
#define CLASS(id, text) "class add dev " NETWORK_DEVICE " parent 1: classid 1:" id " htb " text
#define FILTER(text) "filter add dev " NETWORK_DEVICE " parent 1: protocol ip " text

static struct tc_destination destinations[SAMPLE_MAX];

static const struct {
        const char *name, *commands[8];
} set_ups[] = {
        {"ingress and a classless root",
         {"qdisc add dev " NETWORK_DEVICE " root handle 5: tbf rate 10mbit burst 10k limit 100k",
          "qdisc add dev " NETWORK_DEVICE " ingress",
          "filter add dev " NETWORK_DEVICE
          " parent ffff: protocol ip prio 3 u32 match ip dst 10.0.0.9/32 flowid 1:1"}},
        {"clsact and a root with classes",
         {HTB, CLASS("1", "rate 1mbit quantum 2000"), "qdisc add dev " NETWORK_DEVICE " clsact",
          "filter add dev " NETWORK_DEVICE
          " egress protocol ip prio 3 u32 match ip dst 10.0.0.9/32 flowid 1:1"}},
        {"actions after a deleted priority",
         {HTB, CLASS("1", "rate 1mbit quantum 2000"),
          FILTER("prio 3 u32 match ip dst 10.0.0.9/32 flowid 1:1"),
          FILTER("prio 4 u32 match ip dst 10.0.0.8/32 flowid 1:1"),
          FILTER("prio 7 u32 match ip dst 10.0.0.7/32 flowid 1:1 action mirred egress redirect dev evb1 "
                 "index 7"),
          FILTER("prio 9 u32 match ip dst 10.0.0.6/32 flowid 1:1 action mirred egress redirect dev evb1 "
                 "index 9"),
          "filter del dev " NETWORK_DEVICE " parent 1: prio 4"}},
        {"rates with ATM cells, minimum packet sizes, peak rates",
         {HTB, CLASS("1", "rate 1mbit linklayer atm quantum 2000"),
          CLASS("2", "rate 1mbit mpu 64 overhead 20 quantum 2000"),
          "qdisc add dev " NETWORK_DEVICE
          " parent 1:1 handle 11: tbf rate 1mbit burst 5k limit 10k linklayer atm",
          "qdisc add dev " NETWORK_DEVICE
          " parent 1:2 handle 12: tbf rate 1mbit burst 5k limit 10k peakrate 2mbit mtu 2000"}},
        {"tables",
         {HTB, CLASS("1", "rate 1mbit quantum 2000"), FILTER("prio 5 handle 2: u32 divisor 256"),
          FILTER("prio 5 u32 ht 2:7b: match ip src 1.2.0.123 flowid 1:1"),
          FILTER("prio 5 u32 ht 800:: match ip src 1.2.0.0/16 hashkey mask 0x000000ff at 12 link 2:")}},
        {"another chain, and a filter at a class",
         {HTB, CLASS("1", "rate 1mbit quantum 2000"),
          "class add dev " NETWORK_DEVICE " parent 1:1 classid 1:2 htb rate 1mbit quantum 2000",
          FILTER("chain 5 prio 2 u32 match ip dst 10.0.0.9/32 flowid 1:1"),
          "filter add dev " NETWORK_DEVICE
          " parent 1:1 protocol ip prio 3 u32 match ip dst 10.0.0.9/32 flowid 1:2"}},
};

/* network_text(), and the filters of other hooks. */
static char *whole_text(void)
{
        static const char *const where[] = {"ingress", "egress", "parent 1:1"};
        char *root = network_text(), *all = NULL;
        size_t size = 0;
        FILE *to = open_memstream(&all, &size);

        fputs(root, to);
        for (size_t i = 0; i < ARRAY_SIZE(where); i++) {
                char command[160], line[256];
                FILE *from;

                snprintf(command, sizeof command,
                         "tc filter show dev " NETWORK_DEVICE
                         " %s 2>/dev/null | sed -E 's/ht 8[0-9a-f]{2}/ht/; s/fh 8[0-9a-f]{2}/fh/'",
                         where[i]);
                from = popen(command, "r");
                while (fgets(line, sizeof line, from))
                        fputs(line, to);
                pclose(from);
        }
        fclose(to);
        free(root);
        return all;
}

/* The plan replaces what is there, and its removal, by another process, restores that. */
static void assert_restored(const struct tc_plan *p, char *(*text_of)(void))
{
        _cleanup_free_ char *text = text_of(), *then;
        struct tc_shaper *s = network_shaper();
        struct tc_outcome o = {};
        struct error e = {};

        if (tc_shaper_apply(s, p, true, NS_PER_S, true, &o, &e) < 0)
                fail_msg("%s", e.message);
        tc_shaper_free(s);
        s = network_shaper(); /* reads the state file */
        network_remove(s);
        then = text_of();
        assert_string_equal(text, then);
}

TEST(foreign_trees_are_restored_exactly)
{
        struct tc_request q = sample_request(destinations, 3, TC_BACKEND_HTB_TBF);

        for (size_t i = 0; i < ARRAY_SIZE(set_ups); i++) {
                _cleanup_(tc_plan_fini) struct tc_plan p = sample_plan(&q);

                print_message("%s\n", set_ups[i].name);
                for (size_t k = 0; k < ARRAY_SIZE(set_ups[i].commands) && set_ups[i].commands[k]; k++)
                        network_tc(set_ups[i].commands[k]);
                assert_restored(&p, whole_text);
                network_tc("qdisc del dev " NETWORK_DEVICE " root");
                if (i < 2)
                        network_tc("qdisc del dev " NETWORK_DEVICE " parent ffff:fff1");
        }
}

/* In a user namespace, no BPF program can be loaded. */
static void skip_without_bpf(int r)
{
        if (r == -EPERM || r == -ENOSYS) {
                print_message("SKIPPED: %s\n",
                              r == -EPERM ? "loading a BPF program needs root" : "no bpf system call");
                skip();
        }
        assert_true(r == 0 || r == -EEXIST);
}

/* Adds the filter of EDT, or deletes it. Its destinations, and the root, have no part in this. */
static struct tc_ack send_program(struct tc_socket *s, enum tc_verb verb)
{
        struct tc_request q = sample_request(destinations, 1, TC_BACKEND_EDT);
        struct tc_device d = network_device();
        struct tc_tree t = sample_tree(&q, NULL);
        struct tc_ack ack = {.error = -ENOENT};

        if (verb == TC_DELETE) {
                tc_tree_fini(&t);
                assert_int_equal(tc_socket_dump(s, d.ifindex, false, &t), 0);
        }
        for (size_t i = 0; i < t.n; i++) {
                struct tc_object *o = &t.objects[i];

                if (o->kind != &tc_kind_bpf)
                        continue;
                assert_in_range(
                        tc_socket_change(s, d.ifindex, &(struct tc_change){verb, o, o->handle}, 1, &ack), 0,
                        1);
        }
        tc_tree_fini(&t);
        return ack;
}

/* BPF programs of other programs are often at the first priority, with the first handle. */
TEST(the_program_of_edt_leaves_other_filters_alone)
{
        struct tc_socket *s;
        char *text, *then;
        int r;

        network_tc("qdisc add dev " NETWORK_DEVICE " clsact");
        network_tc("filter add dev " NETWORK_DEVICE
                   " egress prio 1 handle 1 bpf bytecode '1,6 0 0 4294967295'");
        text = whole_text();
        assert_non_null(strstr(text, "bytecode"));
        assert_int_equal(tc_socket_new(&s), 0);
        r = send_program(s, TC_ADD).error;
        if (r == 0) {
                then = whole_text();
                assert_non_null(strstr(then, "evb-edt"));
                free(then);
                assert_int_equal(send_program(s, TC_DELETE).error, 0);
        }
        then = whole_text();
        assert_string_equal(text, then);
        free(text);
        free(then);
        network_tc("qdisc del dev " NETWORK_DEVICE " clsact");
        tc_socket_free(s);
        skip_without_bpf(r);
}

/* It would get the incoming packets there. */
TEST(the_program_of_edt_is_not_attached_to_an_ingress_qdisc)
{
        struct tc_socket *s;
        struct tc_ack ack;
        char *text, *then;

        network_tc("qdisc add dev " NETWORK_DEVICE " ingress");
        text = whole_text();
        assert_int_equal(tc_socket_new(&s), 0);
        ack = send_program(s, TC_ADD);
        then = whole_text();
        assert_string_equal(text, then);
        free(text);
        free(then);
        network_tc("qdisc del dev " NETWORK_DEVICE " ingress");
        tc_socket_free(s);
        skip_without_bpf(ack.error);
        assert_int_equal(ack.error, -EEXIST);
        assert_string_equal(ack.text, "there is a qdisc ingress, which excludes clsact");
}

static const struct {
        const char *name, *commands[5];
} intrusions[] = {
        {"a leaf with classes",
         {"qdisc replace dev " NETWORK_DEVICE " parent e7b:1001 handle 9: htb default 1",
          "class add dev " NETWORK_DEVICE " parent 9: classid 9:1 htb rate 1mbit quantum 2000",
          "class add dev " NETWORK_DEVICE " parent 9:1 classid 9:2 htb rate 1mbit quantum 2000"}},
        {"a class whose leaf has classes",
         {"class add dev " NETWORK_DEVICE " parent e7b:1 classid e7b:99 htb rate 1mbit quantum 2000",
          "qdisc add dev " NETWORK_DEVICE " parent e7b:99 handle 99: htb",
          "class add dev " NETWORK_DEVICE " parent 99: classid 99:1 htb rate 1mbit quantum 2000"}},
        {"classes below classes",
         {"class add dev " NETWORK_DEVICE " parent e7b:1 classid e7b:88 htb rate 1mbit quantum 2000",
          "class add dev " NETWORK_DEVICE " parent e7b:88 classid e7b:77 htb rate 1mbit quantum 2000"}},
        {"a class below a destination's class",
         {"class add dev " NETWORK_DEVICE " parent e7b:1002 classid e7b:9a htb rate 1mbit quantum 2000"}},
        {"a leaf of another kind with the same handle",
         {"qdisc del dev " NETWORK_DEVICE " parent e7b:1001",
          "qdisc add dev " NETWORK_DEVICE " parent e7b:1001 handle 1001: pfifo limit 3"}},
        {"a queue without byte limit below a TBF",
         {"qdisc add dev " NETWORK_DEVICE " parent 1001:1 handle 55: pfifo limit 2"}},
        {"evb's priority with another protocol",
         {"filter del dev " NETWORK_DEVICE " parent e7b: prio 22",
          "filter add dev " NETWORK_DEVICE
          " parent e7b: protocol ip prio 22 u32 match u32 0 0 flowid e7b:3"}},
        {"evb's priority in another chain",
         {"filter add dev " NETWORK_DEVICE
          " parent e7b: chain 5 prio 22 protocol all u32 match ip dst 10.0.0.9/32 flowid e7b:3"}},
        {"evb's filter with another match",
         {"filter del dev " NETWORK_DEVICE " parent e7b: prio 22",
          "filter add dev " NETWORK_DEVICE
          " parent e7b: protocol all prio 22 handle ::1 u32 match ip dst 10.0.0.9/32 flowid e7b:1001"}},
        {"a table with evb's number",
         {"filter add dev " NETWORK_DEVICE " parent e7b: protocol ip prio 5 handle 100: u32 divisor 256",
          "filter add dev " NETWORK_DEVICE
          " parent e7b: protocol ip prio 5 u32 ht 100:5: match ip dst 10.0.0.9/32 flowid e7b:3"}},
};

/* After any change by another program, the next apply restores evb's tree. */
TEST_EACH(any_change_of_our_tree_is_repaired, i, ARRAY_SIZE(intrusions))
{
        struct tc_request q = sample_request(destinations, 6, TC_BACKEND_HTB_TBF);
        _cleanup_(network_removep) struct tc_shaper *s = network_shaper();
        struct tc_tree want, have;

        print_message("%s\n", intrusions[i].name);
        apply(s, &q);
        for (size_t k = 0; k < ARRAY_SIZE(intrusions[i].commands) && intrusions[i].commands[k]; k++)
                network_tc(intrusions[i].commands[k]);
        if (i == ARRAY_SIZE(intrusions) - 1)
                q = sample_request(destinations, 150, TC_BACKEND_HTB_TBF);
        assert_true(apply(s, &q) > 0);
        assert_int_equal(apply(s, &q), 0);
        have = network_dump();
        want = sample_tree(&q, &have);
        assert_true(trees_equal(&want, &have));
        tc_tree_fini(&want);
        tc_tree_fini(&have);
}

/* Probing works whatever handle the root has, even the handle of the probe. */
static const char *const probed_roots[] = {"handle e7a: tbf rate 10mbit burst 10k limit 100k",
                                           "handle e7a: htb", "handle e79: htb", "handle e7b: htb"};

TEST_EACH(probing_does_not_depend_on_the_root, i, ARRAY_SIZE(probed_roots))
{
        char command[128], reason[TC_REASON_MAX], *text, *then;
        _cleanup_(tc_shaper_freep) struct tc_shaper *s = network_shaper();
        struct error e = {};
        enum tc_backend backend;
        enum tc_fair fair;

        snprintf(command, sizeof command, "qdisc add dev " NETWORK_DEVICE " root %s", probed_roots[i]);
        network_tc(command);
        text = network_text();
        assert_int_equal(tc_shaper_probe(s, TC_BACKEND_AUTO, &backend, &fair, reason, &e), 0);
        assert_int_equal(backend, TC_BACKEND_HTB_TBF);
        then = network_text();
        assert_string_equal(text, then);
        network_tc("qdisc del dev " NETWORK_DEVICE " root");
        free(text);
        free(then);
}

/* Dies after the old root is deleted, before anything is restored. */
static void die_at_the_second_batch(struct nlmsghdr *m, void *ctx)
{
        bool *deleted = ctx;

        if (*deleted)
                raise(SIGKILL);
        *deleted = m->nlmsg_type == RTM_DELQDISC;
}

TEST(the_next_process_finishes_a_killed_removal)
{
        struct tc_request q = sample_request(destinations, 3, TC_BACKEND_HTB_TBF);
        _cleanup_(tc_plan_fini) struct tc_plan p = sample_plan(&q);
        char *text, *then;

        for (size_t k = 0; k < ARRAY_SIZE(set_ups[4].commands) && set_ups[4].commands[k]; k++)
                network_tc(set_ups[4].commands[k]);
        text = whole_text();
        for (int again = 0; again < 2; again++) {
                struct tc_shaper *s;
                struct tc_outcome o = {};
                struct error e = {};
                int status;
                pid_t child = fork();

                if (child == 0) {
                        bool deleted = false;

                        s = network_shaper();
                        (void)tc_shaper_apply(s, &p, true, NS_PER_S, true, &o, &e);
                        tc_socket_set_hook(tc_shaper_socket(s), die_at_the_second_batch, &deleted);
                        (void)tc_shaper_remove(s, &o, &e);
                        _exit(0);
                }
                assert_int_equal(waitpid(child, &status, 0), child);
                assert_true(WIFSIGNALED(status));
                then = whole_text();
                assert_string_not_equal(text, then);
                free(then);
                s = network_shaper();
                if (again && tc_shaper_apply(s, &p, true, NS_PER_S, true, &o, &e) < 0)
                        fail_msg("%s", e.message);
                network_remove(s);
                then = whole_text();
                assert_string_equal(text, then);
                free(then);
        }
        network_tc("qdisc del dev " NETWORK_DEVICE " root");
        free(text);
}

static char *detailed_text(void)
{
        char *text = calloc(1, 4096);
        FILE *from = popen("tc -d qdisc show dev " NETWORK_DEVICE, "r");

        (void)!fread(text, 1, 4095, from);
        pclose(from);
        return text;
}

/* `stab overhead 24` is restored; of a table for ATM the kernel reports only the size. */
TEST(a_size_table_is_restored_or_refused)
{
        static const char *const roots[] = {"tbf rate 10mbit burst 10k limit 100k", "htb default 1"};
        struct tc_request q = sample_request(destinations, 3, TC_BACKEND_HTB_TBF);
        _cleanup_(tc_plan_fini) struct tc_plan p = sample_plan(&q);
        struct tc_outcome o = {}, forced = {};
        struct error e = {};
        struct tc_shaper *s;
        char *text, *then;

        for (size_t i = 0; i < ARRAY_SIZE(roots); i++) {
                char command[160];

                snprintf(command, sizeof command,
                         "qdisc add dev " NETWORK_DEVICE
                         " root handle 5: stab overhead 24 linklayer ethernet %s",
                         roots[i]);
                network_tc(command);
                text = detailed_text();
                assert_non_null(strstr(text, "overhead 24"));
                free(text);
                assert_restored(&p, detailed_text);
                network_tc("qdisc del dev " NETWORK_DEVICE " root");
        }
        network_tc("qdisc add dev " NETWORK_DEVICE
                   " root handle 5: stab overhead 24 linklayer atm pfifo limit 77");
        text = detailed_text();
        s = network_shaper();
        assert_int_equal(tc_shaper_apply(s, &p, false, NS_PER_S, true, &o, &e), -EEXIST);
        assert_non_null(strstr(e.message, "pfifo 5: (its stab)"));
        then = detailed_text();
        assert_string_equal(text, then);
        assert_int_equal(tc_shaper_apply(s, &p, true, NS_PER_S, true, &forced, &e), 0);
        assert_int_equal(forced.n_warnings, 1);
        assert_non_null(strstr(forced.warnings[0], "cannot restore pfifo 5: exactly"));
        forced = (struct tc_outcome){};
        assert_int_equal(tc_shaper_remove(s, &forced, &e), 0);
        assert_int_equal(forced.n_warnings, 1);
        tc_shaper_free(s);
        network_tc("qdisc del dev " NETWORK_DEVICE " root");
        free(text);
        free(then);
}

/* Another program deletes or replaces evb's root: in the end the earlier root is still restored. */
TEST(the_earlier_root_is_known_after_a_repair)
{
        static const char *const intrusions_at_root[] = {
                "qdisc del dev " NETWORK_DEVICE " root",
                "qdisc replace dev " NETWORK_DEVICE " root handle 77: pfifo limit 10",
        };
        struct tc_request q = sample_request(destinations, 3, TC_BACKEND_HTB_TBF);
        char *text, *then;

        network_tc("qdisc add dev " NETWORK_DEVICE " root handle 5: tbf rate 10mbit burst 10k limit 100k");
        text = whole_text();
        for (size_t i = 0; i < ARRAY_SIZE(intrusions_at_root); i++) {
                struct tc_shaper *s = network_shaper();
                char what[TC_OUTCOME_TEXT_MAX];
                struct tc_tree have;

                apply(s, &q);
                network_tc(intrusions_at_root[i]);
                have = network_dump();
                assert_int_equal(tc_drift(&have, tc_shaper_installed(s), what), 1);
                tc_tree_fini(&have);
                /* The file system of the state file is full. */
                assert_int_equal(system("mkdir $EVB_STATE_DIRECTORY/$(ls $EVB_STATE_DIRECTORY).new"), 0);
                assert_true(apply(s, &q) > 0);
                assert_int_equal(system("rmdir $EVB_STATE_DIRECTORY/*.new"), 0);
                have = network_dump();
                assert_int_equal(tc_drift(&have, tc_shaper_installed(s), what), 0);
                tc_tree_fini(&have);
                network_remove(s);
                then = whole_text();
                assert_string_equal(text, then);
                free(then);
        }
        /* Another program removes evb's root, and nobody repairs it: a warning says so. */
        struct tc_shaper *s = network_shaper();
        struct tc_outcome o = {};
        struct error e = {};

        apply(s, &q);
        network_tc(intrusions_at_root[0]);
        assert_int_equal(tc_shaper_remove(s, &o, &e), 0);
        assert_int_equal(o.n_warnings, 1);
        assert_non_null(strstr(o.warnings[0], "earlier root qdisc tbf 5: is not restored"));
        tc_shaper_free(s);
        free(text);
}
