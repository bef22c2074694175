/* The earlier state is restored: after a failure of any message, after a forced replacement, after the death
 * of the process. */
#include "tc_network.h"

#include <linux/pkt_sched.h>
#include <linux/rtnetlink.h>
#include <signal.h>
#include <sys/wait.h>

static struct tc_destination destinations[SAMPLE_MAX];

/* Makes one message name a device that does not exist, so that the kernel refuses it. */
struct spoiler {
        unsigned at, seen;
};

static void spoil(struct nlmsghdr *m, void *ctx)
{
        struct spoiler *s = ctx;

        if (s->seen++ == s->at)
                ((struct tcmsg *)mnl_nlmsg_get_payload(m))->tcm_ifindex = 0x7ffffff0;
}

/* Applies repeatedly and fails at the first, second, ... message until none is left; each failure must leave
 * the device unchanged. Returns the number of failures. */
static unsigned fail_everywhere(const struct tc_request *q, bool force)
{
        struct tc_plan p = sample_plan(q);
        struct tc_tree before = network_dump();
        _cleanup_free_ char *text = network_text();

        for (unsigned n = 0; n < 3000; n++) {
                struct tc_shaper *s = network_shaper();
                struct spoiler spoiler = {.at = n};
                struct tc_outcome o = {};
                struct error e = {};
                int r;

                tc_socket_set_hook(tc_shaper_socket(s), spoil, &spoiler);
                r = tc_shaper_apply(s, &p, force, NS_PER_S, true, &o, &e);
                tc_socket_set_hook(tc_shaper_socket(s), NULL, NULL);
                if (r < 0) {
                        struct tc_tree after = network_dump();
                        _cleanup_free_ char *then = network_text();

                        assert_non_null(strstr(e.message, "refused"));
                        assert_null(strstr(e.message, "rolling back"));
                        assert_true(trees_equal(&before, &after));
                        assert_string_equal(text, then);
                        tc_tree_fini(&after);
                }
                tc_shaper_free(s);
                if (r >= 0) {
                        assert_true(spoiler.seen <= n);
                        tc_plan_fini(&p);
                        tc_tree_fini(&before);
                        return n;
                }
        }
        fail_msg("apply still fails after 3000 messages");
        return 0;
}

TEST(failure_at_any_message_leaves_the_device_unchanged)
{
        struct tc_request q = sample_request(destinations, 6, TC_BACKEND_HTB_TBF);
        _cleanup_(network_removep) struct tc_shaper *s;

        /* A new device; then changed rates, a removed and several new destinations; then another layout. */
        assert_int_equal(fail_everywhere(&q, false), 1 + 3 + 6 + 2 + 6 + 6 + 2 + 3);
        q = sample_request(destinations, 9, TC_BACKEND_HTB_TBF);
        q.destinations = destinations + 2;
        q.n_destinations = 7;
        q.rate_bps = 1;
        for (size_t i = 0; i < 9; i++)
                destinations[i].rate_bps = 7000000;
        assert_true(fail_everywhere(&q, false) > 20);
        q.backend = TC_BACKEND_HTB;
        assert_true(fail_everywhere(&q, false) > 10);
        s = network_shaper();
}

/* Spoils all messages from a certain one on. */
static void spoil_rest(struct nlmsghdr *m, void *ctx)
{
        struct spoiler *s = ctx;

        if (s->seen++ >= s->at)
                ((struct tcmsg *)mnl_nlmsg_get_payload(m))->tcm_ifindex = 0x7ffffff0;
}

TEST(a_failed_rollback_is_reported)
{
        struct tc_request q = sample_request(destinations, 6, TC_BACKEND_HTB_TBF);
        struct tc_plan p = sample_plan(&q);
        struct spoiler spoiler = {.at = 4};
        struct tc_outcome o = {};
        struct error e = {};
        struct tc_shaper *s;
        int r;

        s = network_shaper();
        tc_socket_set_hook(tc_shaper_socket(s), spoil_rest, &spoiler);
        r = tc_shaper_apply(s, &p, false, NS_PER_S, true, &o, &e);
        tc_socket_set_hook(tc_shaper_socket(s), NULL, NULL);
        network_remove(s);
        tc_plan_fini(&p);
        assert_true(r < 0);
        assert_non_null(strstr(e.message, "; rolling back also failed: "));
}

TEST(failure_leaves_a_foreign_root_unchanged)
{
        struct tc_request q = sample_request(destinations, 3, TC_BACKEND_HTB_TBF);

        network_tc("qdisc add dev " NETWORK_DEVICE " root handle 5: tbf rate 10mbit burst 10k limit 100k");
        assert_true(fail_everywhere(&q, false) > 10);
        network_remove(network_shaper());
        network_tc("qdisc del dev " NETWORK_DEVICE " root");
}

/* Another program sets a root qdisc while changes are on their way. */
static void interfere(struct nlmsghdr *m, void *ctx)
{
        struct spoiler *s = ctx;

        if (s->seen++ == s->at) {
                network_tc("qdisc replace dev " NETWORK_DEVICE " root handle 5: htb default 1");
                network_tc("class add dev " NETWORK_DEVICE " parent 5: classid 5:1 htb rate 1mbit");
        }
}

TEST(rolling_back_spares_the_root_of_another_program)
{
        struct tc_request q = sample_request(destinations, 3, TC_BACKEND_HTB_TBF);
        struct spoiler spoiler = {};
        _cleanup_(network_removep) struct tc_shaper *s;
        struct tc_outcome o = {};
        struct error e = {};
        _cleanup_(tc_plan_fini) struct tc_plan p;
        char *text;

        s = network_shaper();
        apply(s, &q);
        destinations[0].rate_bps = 3000000;
        p = sample_plan(&q);
        tc_socket_set_hook(tc_shaper_socket(s), interfere, &spoiler);
        assert_true(tc_shaper_apply(s, &p, false, NS_PER_S, true, &o, &e) < 0);
        tc_socket_set_hook(tc_shaper_socket(s), NULL, NULL);
        assert_non_null(strstr(e.message, "; another program has set the root qdisc meanwhile"));
        text = network_text();
        assert_non_null(strstr(text, "5:1"));
        free(text);
        network_tc("qdisc del dev " NETWORK_DEVICE " root");
}

/* The text of the kernel is reported, even if it accepts the change. */
static void want_quantum(struct nlmsghdr *m, void *ctx)
{
        struct nlattr *a = mnl_nlmsg_get_payload_offset(m, sizeof(struct tcmsg));

        if (m->nlmsg_type != RTM_NEWTCLASS)
                return;
        a = mnl_attr_next(
                a); /* the options follow the kind; they contain the parameters, which contain the quantum */
        a = mnl_attr_get_payload(a);
        ((struct tc_htb_opt *)mnl_attr_get_payload(a))->quantum = 0;
}

TEST(warnings_of_the_kernel_are_reported)
{
        struct tc_request q = sample_request(destinations, 1, TC_BACKEND_HTB_TBF);
        _cleanup_(tc_shaper_freep) struct tc_shaper *s = network_shaper();
        _cleanup_(tc_plan_fini) struct tc_plan p = sample_plan(&q);
        struct tc_outcome o = {};
        struct error e = {};
        bool reported = false;

        tc_socket_set_hook(tc_shaper_socket(s), want_quantum, NULL);
        /* A different quantum fails the verification, and is rolled back. */
        assert_int_equal(tc_shaper_apply(s, &p, false, NS_PER_S, true, &o, &e), -EBADE);
        tc_socket_set_hook(tc_shaper_socket(s), NULL, NULL);
        for (size_t i = 0; i < o.n_warnings; i++)
                reported |= strstr(o.warnings[i], "quantum of class") != NULL;
        assert_true(reported);
        assert_non_null(strstr(e.message, "differs"));
}

TEST(foreign_classes_need_force)
{
        struct tc_request q = sample_request(destinations, 3, TC_BACKEND_HTB_TBF);
        _cleanup_(tc_plan_fini) struct tc_plan p = sample_plan(&q);
        struct tc_outcome o = {};
        struct error e = {};
        struct tc_shaper *s;
        struct tc_tree before, after;
        char *text, *then;

        network_tc("qdisc add dev " NETWORK_DEVICE " root handle 1: htb default 30 r2q 50");
        network_tc("class add dev " NETWORK_DEVICE " parent 1: classid 1:1 htb rate 500mbit burst 15k");
        network_tc("class add dev " NETWORK_DEVICE
                   " parent 1:1 classid 1:30 htb rate 100mbit ceil 200mbit burst 15k quantum 3000");
        network_tc("class add dev " NETWORK_DEVICE
                   " parent 1:1 classid 1:5 htb rate 10mbit burst 15k quantum 3000");
        network_tc("qdisc add dev " NETWORK_DEVICE
                   " parent 1:5 handle 50: tbf rate 10mbit burst 10k limit 100k");
        network_tc("qdisc add dev " NETWORK_DEVICE " parent 1:30 handle 30: pfifo limit 77");
        network_tc("filter add dev " NETWORK_DEVICE " parent 1: protocol ip prio 5 u32 match ip dst "
                   "10.0.0.9/32 match ip dport 53 0xffff flowid 1:5");
        network_tc("filter add dev " NETWORK_DEVICE
                   " parent 1: protocol ipv6 prio 6 u32 match ip6 dst fd00::1/128 flowid 1:5");
        before = network_dump(), text = network_text();
        s = network_shaper();
        assert_int_equal(tc_shaper_apply(s, &p, false, NS_PER_S, true, &o, &e), -EEXIST);
        assert_non_null(strstr(e.message, "htb 1:"));
        assert_int_equal(o.owner, TC_OWNER_FOREIGN);
        after = network_dump();
        assert_true(trees_equal(&before, &after));
        tc_tree_fini(&after);
        /* Forced in one process, restored by another from the state file. */
        o = (struct tc_outcome){};
        assert_int_equal(tc_shaper_apply(s, &p, true, NS_PER_S, true, &o, &e), 0);
        tc_shaper_free(s);
        network_remove(network_shaper());
        after = network_dump(), then = network_text();
        assert_true(trees_equal(&before, &after));
        assert_string_equal(text, then);
        /* A failure in a forced apply also leaves it unchanged. */
        assert_true(fail_everywhere(&q, true) > 10);
        network_remove(network_shaper());
        free(then);
        then = network_text();
        assert_string_equal(text, then);
        network_tc("qdisc del dev " NETWORK_DEVICE " root");
        tc_tree_fini(&before);
        tc_tree_fini(&after);
        free(text);
        free(then);
}

TEST(a_classless_root_is_restored)
{
        static const char *const roots[] = {"tbf rate 10mbit burst 10k limit 100k", "pfifo limit 77",
                                            "bfifo limit 77777", "pfifo_fast"};
        struct tc_request q = sample_request(destinations, 3, TC_BACKEND_HTB_TBF);

        for (size_t i = 0; i < ARRAY_SIZE(roots); i++) {
                _cleanup_(tc_shaper_freep) struct tc_shaper *s = network_shaper();
                char command[128], *text, *then;

                snprintf(command, sizeof command, "qdisc add dev " NETWORK_DEVICE " root handle 5: %s",
                         roots[i]);
                network_tc(command);
                text = network_text();
                apply(s, &q);
                apply(s, &q); /* the second apply keeps the saved root */
                remove_all(s);
                then = network_text();
                assert_string_equal(text, then);
                network_tc("qdisc del dev " NETWORK_DEVICE " root");
                free(text);
                free(then);
        }
}

/* Another process shapes the device; after its death by a signal the next process takes over its tree. */
TEST(one_process_shapes_a_device)
{
        struct tc_request q = sample_request(destinations, 3, TC_BACKEND_HTB_TBF);
        struct tc_device d = network_device();
        struct tc_outcome o = {};
        struct error e = {};
        struct tc_shaper *s;
        int ready[2], status;
        char byte;
        pid_t child;

        assert_int_equal(pipe(ready), 0);
        child = fork();
        if (child == 0) {
                s = network_shaper();
                apply(s, &q);
                (void)!write(ready[1], "x", 1);
                pause();
                _exit(0);
        }
        assert_int_equal(read(ready[0], &byte, 1), 1);
        assert_int_equal(tc_shaper_new(&s, &d, &o, &e), -EBUSY);
        assert_non_null(strstr(e.message, "process"));
        kill(child, SIGKILL);
        assert_int_equal(waitpid(child, &status, 0), child);
        s = network_shaper();
        assert_int_equal(apply(s, &q), 0); /* no change is necessary */
        remove_all(s);
        o = (struct tc_outcome){};
        assert_int_equal(tc_shaper_remove(s, &o, &e), 0);
        assert_int_equal(o.operations, 0);
        tc_shaper_free(s);
        close(ready[0]);
        close(ready[1]);
}
