/* Trees in the real kernel, read back by evb, libnl-route and tc. Each test leaves the device unchanged. */
#include "tc_network.h"

#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <netlink/cache.h>
#include <netlink/route/class.h>
#include <netlink/route/classifier.h>
#include <netlink/route/cls/u32.h>
#include <netlink/route/qdisc.h>
#include <netlink/route/qdisc/fifo.h>
#include <netlink/route/qdisc/htb.h>
#include <netlink/route/qdisc/tbf.h>

#include "shape/model/kind.h"
#include "shape/model/tree_status.h"
#include "shape/kernel/watch.h"

DEFINE_FREEP(nl_cache)

static struct tc_destination destinations[SAMPLE_MAX];

static void *cache(struct nl_sock *s, int ifindex, const char *what)
{
        struct nl_cache *c = NULL;
        int r = strcmp(what, "class") == 0   ? rtnl_class_alloc_cache(s, ifindex, &c)
                : strcmp(what, "qdisc") == 0 ? rtnl_qdisc_alloc_cache(s, &c)
                                             : rtnl_cls_alloc_cache(s, ifindex, TC_OUR_ROOT, &c);

        assert_true(r >= 0);
        return c;
}

/* libnl-route is independent of evb's code. Its TBF rates end at 32 bits. */
static void check_by_libnl(const struct tc_tree *have, int ifindex)
{
        struct nl_sock *s = nl_socket_alloc();
        _cleanup_(nl_cache_freep) struct nl_cache *qdiscs, *classes, *filters;
        unsigned seen = 0;

        assert_true(nl_connect(s, NETLINK_ROUTE) >= 0);
        qdiscs = cache(s, ifindex, "qdisc"), classes = cache(s, ifindex, "class"),
        filters = cache(s, ifindex, "filter");
        for (size_t i = 0; i < have->n; i++) {
                const struct tc_object *o = &have->objects[i];

                if (o->type == TC_CLASS && o->kind == &tc_kind_htb) {
                        struct rtnl_class *c = rtnl_class_get(classes, ifindex, o->handle);
                        uint64_t rate, ceil;

                        assert_non_null(c);
                        assert_int_equal(rtnl_htb_get_rate64(c, &rate), 0);
                        assert_int_equal(rtnl_htb_get_ceil64(c, &ceil), 0);
                        assert_int_equal(rate, o->params.htb_class.rate_bytes);
                        assert_int_equal(ceil, o->params.htb_class.ceil_bytes);
                        assert_int_equal(rtnl_htb_get_quantum(c), o->params.htb_class.quantum_bytes);
                        assert_int_equal(rtnl_htb_get_prio(c), o->params.htb_class.priority);
                        rtnl_class_put(c);
                        seen++;
                } else if (o->type == TC_QDISC && o->kind == &tc_kind_tbf) {
                        struct rtnl_qdisc *q = rtnl_qdisc_get_by_parent(qdiscs, ifindex, o->parent);

                        assert_non_null(q);
                        assert_int_equal(rtnl_tc_get_handle(TC_CAST(q)), o->handle);
                        assert_int_equal(rtnl_qdisc_tbf_get_limit(q), (int)o->params.tbf.limit_bytes);
                        if (o->params.tbf.rate_bytes < UINT32_C(1) << 31)
                                assert_int_equal(rtnl_qdisc_tbf_get_rate(q), (int)o->params.tbf.rate_bytes);
                        rtnl_qdisc_put(q);
                        seen++;
                } else if (o->type == TC_QDISC && o->kind == &tc_kind_bfifo) {
                        struct rtnl_qdisc *q = rtnl_qdisc_get_by_parent(qdiscs, ifindex, o->parent);

                        assert_non_null(q);
                        assert_int_equal(rtnl_qdisc_fifo_get_limit(q), (int)o->params.fifo.limit);
                        rtnl_qdisc_put(q);
                        seen++;
                }
        }
        assert_true(seen > 4);
        for (struct nl_object *f = nl_cache_get_first(filters); f; f = nl_cache_get_next(f)) {
                struct rtnl_cls *c = (struct rtnl_cls *)f;
                uint32_t classid, value, mask;
                int offset, offmask;

                if (rtnl_cls_get_prio(c) != 22 || rtnl_u32_get_classid(c, &classid) < 0 || classid == 0)
                        continue;
                assert_int_equal(rtnl_u32_get_key(c, 0, &value, &mask, &offset, &offmask), 0);
                assert_int_equal(offset, 16);
                assert_int_equal(mask, UINT32_MAX);
                for (size_t i = 0; i < have->n; i++) {
                        if (have->objects[i].priority == 22 && have->objects[i].params.u32.classid == classid)
                                assert_memory_equal(&value, have->objects[i].params.u32.matches[0].value, 4);
                }
                seen += 1000;
        }
        assert_true(seen > 1000);
        nl_socket_free(s);
}

TEST(each_layout_reads_back)
{
        static const enum tc_backend backends[] = {TC_BACKEND_HTB_TBF, TC_BACKEND_HTB};
        struct tc_device d = network_device();

        for (size_t i = 0; i < 3 * ARRAY_SIZE(backends); i++) {
                struct tc_request q = sample_request(destinations, 7, backends[i % 2]);
                _cleanup_(network_removep) struct tc_shaper *s = network_shaper();
                _cleanup_(tc_tree_fini) struct tc_tree have, want;

                q.overhead_bytes = 24;
                q.data_protocol = i < 2 ? 0 : i < 4 ? IPPROTO_UDP : IPPROTO_TCP;
                q.data_port = 26801;
                want = sample_tree(&q, NULL);
                assert_true(apply(s, &q) == want.n);
                assert_int_equal(apply(s, &q), 0); /* no change is necessary */
                have = network_dump();
                assert_true(trees_equal(&have, &want));
                check_by_libnl(&have, d.ifindex);
        }
}

TEST(rates_are_exact_to_400_gbit)
{
        static const uint64_t rates[] = {8000,
                                         12345678,
                                         UINT64_C(34359738360),
                                         UINT64_C(34359738368),
                                         UINT64_C(40000000000),
                                         UINT64_C(400000000000)};
        struct tc_request q = sample_request(destinations, ARRAY_SIZE(rates), TC_BACKEND_HTB_TBF);
        _cleanup_(network_removep) struct tc_shaper *s = network_shaper();
        struct tc_status status;
        struct tc_tree have;

        q.link_rate_bps = UINT64_C(400000000000);
        q.switch_buffer_bytes = 0;
        for (size_t i = 0; i < ARRAY_SIZE(rates); i++)
                destinations[i].rate_bps = rates[i];
        apply(s, &q);
        have = network_dump();
        assert_int_equal(tc_status_make(&status, &have, NULL, 0), 0);
        for (size_t i = 0; i < ARRAY_SIZE(rates); i++)
                assert_int_equal(status.rows[i].rate_bps / 8, tc_rate_bytes(rates[i]));
        tc_status_fini(&status);
        tc_tree_fini(&have);
}

/* A burst is never smaller than requested, and no frame is larger than a burst. */
TEST(bursts_are_not_reduced)
{
        struct tc_request q = sample_request(destinations, 3, TC_BACKEND_HTB_TBF);
        _cleanup_(network_removep) struct tc_shaper *s = network_shaper();
        struct tc_plan p = sample_plan(&q);
        struct tc_status status;
        struct tc_tree have;

        apply(s, &q);
        have = network_dump();
        assert_int_equal(tc_status_make(&status, &have, NULL, 0), 0);
        for (size_t i = 0; i < 3; i++) {
                assert_true(status.rows[i].burst_bytes + 1 >= p.shares[i].burst_bytes);
                assert_int_equal(status.rows[i].limit_bytes, p.shares[i].limit_bytes);
        }
        tc_status_fini(&status);
        tc_plan_fini(&p);
        tc_tree_fini(&have);
}

TEST(a_thousand_destinations_read_back)
{
        struct tc_request q = sample_request(destinations, 1000, TC_BACKEND_HTB_TBF);
        _cleanup_(network_removep) struct tc_shaper *s = network_shaper();
        struct tc_tree have, want = sample_tree(&q, NULL);

        assert_int_equal(apply(s, &q), want.n);
        have = network_dump();
        assert_true(trees_equal(&have, &want));
        assert_int_equal(apply(s, &q), 0);
        for (size_t i = 0; i < 1000; i++)
                destinations[i].rate_bps += 1000000;
        apply(s, &q);
        q.n_destinations = 30; /* from hash table to list */
        apply(s, &q);
        assert_int_equal(apply(s, &q), 0);
        tc_tree_fini(&have);
        tc_tree_fini(&want);
}

/* The printed tc commands have the same effect as evb; tc's whole microseconds apart. */
static void run_line(const char *text, void *ctx)
{
        fprintf(ctx, "%s\n", text + strlen("tc "));
}

static const size_t counts[] = {5, 150, 40};

TEST_EACH(the_printed_commands_build_the_same_tree, k, ARRAY_SIZE(counts))
{
        struct tc_request q = sample_request(destinations, counts[k], TC_BACKEND_HTB_TBF);
        _cleanup_(tc_tree_fini) struct tc_tree have, want;
        FILE *tc = popen("timeout 20 tc -batch -", "w");

        assert_non_null(tc);
        q.data_protocol = k < 2 ? 0 : IPPROTO_TCP;
        q.data_port = 26801;
        want = sample_tree(&q, NULL);
        assert_int_equal(tc_commands(&want, NETWORK_DEVICE, run_line, tc), 0);
        /* It stops at the first line that fails. */
        assert_int_equal(pclose(tc), 0);
        have = network_dump();
        assert_int_equal(have.n, want.n);
        for (size_t i = 0; i < have.n; i++) {
                struct tc_object *o = &have.objects[i];
                const struct tc_object *w = &want.objects[i];

                if (o->type == TC_CLASS) {
                        assert_in_range(w->params.htb_class.burst_ticks - o->params.htb_class.burst_ticks +
                                                16,
                                        0, 32);
                        o->params.htb_class.burst_ticks = w->params.htb_class.burst_ticks;
                        assert_in_range(w->params.htb_class.cburst_ticks - o->params.htb_class.cburst_ticks +
                                                16,
                                        0, 32);
                        o->params.htb_class.cburst_ticks = w->params.htb_class.cburst_ticks;
                }
                /* tc truncates rates in bit/s to whole bytes. */
                if (o->type == TC_CLASS &&
                    w->params.htb_class.rate_bytes - o->params.htb_class.rate_bytes <= 1)
                        o->params.htb_class.rate_bytes = w->params.htb_class.rate_bytes;
                if (!tc_object_equal(o, w)) {
                        char a[200];
                        struct strbuf b = strbuf_init(a, sizeof a);

                        tc_object_name(w, &b);
                        fail_msg("tc created a different %s", a);
                }
        }
        network_tc("qdisc del dev " NETWORK_DEVICE " root");
}

/* Sends a frame of UDP, as a program would. */
static void send_frame(int ifindex, uint8_t last, uint16_t port)
{
        _cleanup_close_ int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
        const struct sockaddr_ll to = {
                .sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_IP), .sll_ifindex = ifindex};
        uint8_t frame[100] = {[12] = 0x08, [14] = 0x45, [23] = IPPROTO_UDP, [30] = 10, 1, 0, last};

        frame[36] = (uint8_t)(port >> 8), frame[37] = (uint8_t)port;
        assert_int_equal(sendto(fd, frame, sizeof frame, 0, (const void *)&to, sizeof to), sizeof frame);
}

static uint64_t packets_of(uint32_t classid)
{
        _cleanup_(tc_tree_fini) struct tc_tree t = network_dump();
        const struct tc_object *c = tc_tree_class(&t, classid);

        assert_non_null(c);
        return c->counters.packets;
}

static void wait_for_packets(uint32_t classid, uint64_t n)
{
        for (int i = 0; i < 1000 && packets_of(classid) < n; i++)
                usleep(10000);
        assert_true(packets_of(classid) >= n);
}

static void stop_offload(struct tc_tree *t)
{
        for (size_t i = 0; i < t->n; i++) {
                if (t->objects[i].parent == TC_ROOT)
                        t->objects[i].params.htb_qdisc.offload = false;
        }
}

/* The tree for a device that shapes, without the flag that would have it do so: the kernel's HTB accepts it,
 * and finds the class that the program has given to each packet. */
TEST(the_program_chooses_the_class_of_htb)
{
        struct tc_request q = sample_request(destinations, 3, TC_BACKEND_HTB), fewer;
        struct tc_device d = network_device();
        _cleanup_(tc_tree_fini) struct tc_tree none = {}, want, less, have = {}, gone = {};
        struct tc_outcome o = {};
        struct error e = {};
        struct tc_socket *s;

        q.offload = TC_OFFLOAD_REQUIRED;
        want = sample_tree(&q, NULL);
        fewer = q;
        fewer.n_destinations = 2;
        less = sample_tree(&fewer, &want);
        stop_offload(&want);
        stop_offload(&less);
        assert_int_equal(tc_socket_new(&s), 0);
        if (tc_socket_probe_bpf(s) < 0) {
                tc_socket_free(s);
                print_message("SKIPPED: loading a BPF program needs root\n");
                skip();
        }
        if (tc_apply(s, d.ifindex, &none, &want, 0, true, &o, &e) < 0)
                fail_msg("%s", e.message);
        assert_int_equal(tc_socket_dump(s, d.ifindex, false, &have), 0);
        assert_true(trees_equal(&have, &want));
        /* The device gets a carrier, and the kernel its queues ready, some time after its peer is up. */
        assert_int_equal(system("timeout 20 ip link set evb1 up"), 0);
        for (int i = 0; i < 500 && packets_of(TC_ID(TC_OUR_MAJOR, 0x1001)) == 0; i++) {
                send_frame(d.ifindex, 1, 5000);
                usleep(10000);
        }
        send_frame(d.ifindex, 2, 5000);
        send_frame(d.ifindex, 2, 5000);
        send_frame(d.ifindex, 1, 26800);
        send_frame(d.ifindex, 9, 26800);
        wait_for_packets(TC_ID(TC_OUR_MAJOR, 0x1001), 1);
        wait_for_packets(TC_ID(TC_OUR_MAJOR, 0x1002), 2);
        wait_for_packets(TC_CONTROL_CLASS, 1);
        wait_for_packets(TC_OTHER_CLASS, 1);
        assert_int_equal(packets_of(TC_ID(TC_OUR_MAJOR, 0x1002)), 2);
        assert_int_equal(packets_of(TC_CONTROL_CLASS), 1);
        if (tc_apply(s, d.ifindex, &have, &less, 0, true, &o, &e) < 0 ||
            tc_restore(s, d.ifindex, &none, &o, &e) < 0)
                fail_msg("%s", e.message);
        assert_int_equal(tc_socket_dump(s, d.ifindex, false, &gone), 0);
        assert_int_equal(tc_layout_owner(&gone), TC_OWNER_KERNEL);
        for (size_t i = 0; i < gone.n; i++)
                assert_true(gone.objects[i].type != TC_FILTER);
        tc_socket_free(s);
        assert_int_equal(system("timeout 20 ip link set evb1 down"), 0);
}

#define OFFLOAD_REFUSAL                                                                                      \
        "the kernel refuses to offload htb: Operation not supported: hw-tc-offload ethtool feature flag "    \
        "must be "                                                                                           \
        "on"

TEST(probing_changes_nothing)
{
        struct tc_outcome o = {};
        _cleanup_(tc_shaper_freep) struct tc_shaper *s = network_shaper();
        _cleanup_(tc_tree_fini) struct tc_tree before = network_dump(), after;
        char reason[TC_REASON_MAX] = "";
        struct error e = {};
        enum tc_backend backend;
        enum tc_fair fair;
        int r;

        assert_int_equal(tc_shaper_probe(s, TC_BACKEND_AUTO, &backend, &fair, reason, &e), 0);
        assert_int_equal(backend, TC_BACKEND_HTB_TBF);
        assert_non_null(strstr(reason, "htb+tbf"));
        assert_int_equal(tc_shaper_probe_offload(s, TC_BACKEND_AUTO, TC_OFFLOAD_NO, &o, &e), 0);
        assert_int_equal(tc_shaper_probe_offload(s, TC_BACKEND_HTB_TBF, TC_OFFLOAD_AUTO, &o, &e), 0);
        assert_int_equal(o.n_warnings, 0);
        assert_int_equal(tc_shaper_probe_offload(s, TC_BACKEND_HTB, TC_OFFLOAD_REQUIRED, &o, &e),
                         -EOPNOTSUPP);
        assert_string_equal(e.message, OFFLOAD_REFUSAL);
        assert_int_equal(tc_shaper_probe_offload(s, TC_BACKEND_AUTO, TC_OFFLOAD_AUTO, &o, &e), 0);
        assert_int_equal(o.n_warnings, 1);
        assert_string_equal(o.warnings[0], NETWORK_DEVICE ": " OFFLOAD_REFUSAL
                                                          "; shaping without offload (qos.offload = auto)");
        /* Kernels from 6.3 have no CBQ; an older one may have it. */
        if (tc_shaper_probe(s, TC_BACKEND_CBQ_TBF, &backend, &fair, reason, &e) < 0)
                assert_non_null(strstr(e.message, "no qdisc cbq"));
        r = tc_shaper_probe(s, TC_BACKEND_EDT, &backend, &fair, reason, &e);
        if (r == -EPERM) /* as in a user namespace */
                assert_non_null(strstr(e.message, "edt needs CAP_BPF and CAP_NET_ADMIN"));
        else if (r < 0)
                assert_non_null(strstr(e.message,
                                       "no qdisc fq (module sch_fq); install the module, or choose htb+tbf"));
        after = network_dump();
        assert_true(trees_equal(&before, &after));
}

TEST(events_name_their_author)
{
        struct tc_request q = sample_request(destinations, 2, TC_BACKEND_HTB_TBF);
        _cleanup_(tc_shaper_freep) struct tc_shaper *s = network_shaper();
        struct tc_device d = network_device();
        unsigned ours = 0, others = 0, deleted = 0;
        struct tc_watch *w;
        struct tc_event e;

        assert_int_equal(tc_watch_new(&w, d.ifindex, tc_socket_port(tc_shaper_socket(s))), 0);
        apply(s, &q);
        while (tc_watch_next(w, &e) > 0) {
                ours += e.by_us;
                /* The kernel reports some time later that the device is up. */
                others += !e.by_us && e.what != TC_EVENT_LINK;
                free(e.object.options);
        }
        assert_true(ours >= 10);
        assert_int_equal(others, 0);
        network_tc("qdisc change dev " NETWORK_DEVICE
                   " parent e7b:1001 handle 1001: tbf rate 3mbit burst 5k limit 1m");
        network_tc("qdisc del dev " NETWORK_DEVICE " root");
        while (tc_watch_next(w, &e) > 0) {
                assert_false(e.by_us);
                deleted += e.what == TC_EVENT_DELETED && e.object.type == TC_QDISC;
                others += e.what == TC_EVENT_CHANGED && e.object.type == TC_QDISC &&
                          e.object.handle == TC_ID(0x1001, 0);
                free(e.object.options);
        }
        assert_int_equal(others, 1);
        assert_int_equal(deleted, 1); /* one for the root, none for the objects below it */
        tc_watch_free(w);
}

/* Another program changes a class, a rate and a filter, deletes a leaf and adds a class: the next apply
 * reverts exactly these changes. */
TEST(drift_is_repaired)
{
        struct tc_request q = sample_request(destinations, 4, TC_BACKEND_HTB_TBF);
        _cleanup_(network_removep) struct tc_shaper *s = network_shaper();
        struct tc_tree want, have;

        apply(s, &q);
        want = network_dump();
        network_tc("class change dev " NETWORK_DEVICE
                   " parent e7b:1 classid e7b:1001 htb rate 1mbit burst 15k quantum 3000");
        network_tc("qdisc change dev " NETWORK_DEVICE
                   " parent e7b:1002 handle 1002: tbf rate 3mbit burst 5k limit 1m");
        network_tc("qdisc del dev " NETWORK_DEVICE " parent e7b:1003 handle 1003:");
        network_tc("filter del dev " NETWORK_DEVICE " parent e7b: prio 22");
        network_tc("class add dev " NETWORK_DEVICE
                   " parent e7b:1 classid e7b:77 htb rate 1mbit burst 15k quantum 3000");
        assert_int_equal(apply(s, &q), 1 + 1 + 1 + 3 + 1);
        have = network_dump();
        assert_true(trees_equal(&want, &have));
        tc_tree_fini(&want);
        tc_tree_fini(&have);
}

/* Larger frames in a live tree: HTB accepts a quantum for the link's class only as long as it has no child.
 */
TEST(frames_may_grow)
{
        static const uint32_t mtus[] = {1500, 9000, 65535, 1500};
        struct tc_request q = sample_request(destinations, 3, TC_BACKEND_HTB_TBF);
        _cleanup_(network_removep) struct tc_shaper *s = network_shaper();

        for (size_t i = 0; i < ARRAY_SIZE(mtus); i++) {
                q.mtu_bytes = mtus[i];
                assert_true(apply(s, &q) > 0);
                assert_int_equal(apply(s, &q), 0);
        }
}
