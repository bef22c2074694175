/* Plans of shaping: rates, bursts, guarantees, warnings. */
#include "tc_sample.h"

#include "shape/model/tree_status.h"

#include <netinet/in.h>

#include "shape/model/kind.h"
#include "shape/model/tree_status.h"

TEST(plans_follow_the_rules)
{
        struct tc_destination to[2];
        struct tc_request q = sample_request(to, 2, TC_BACKEND_HTB_TBF);
        struct tc_plan p;

        to[0].rate_bps = to[1].rate_bps = 0;
        q.switch_buffer_bytes = 512 << 10;
        p = sample_plan(&q);
        /* (1 Gbit/s - 0.5 %) x 99.95 % / 6 */
        assert_int_equal(p.shares[0].rate_bps, UINT64_C(165750416));
        /* 2 ms of the rate, as the port's buffer holds seven of them */
        assert_int_equal(p.shares[0].burst_bytes, 165750416 / 8 / 500);
        assert_int_equal(p.shares[0].limit_bytes, (2 << 20) / 8 * 9 + p.shares[0].burst_bytes);
        assert_true(p.shares[0].quantum_bytes >= p.frame_bytes);
        assert_int_equal(p.control.guaranteed_bps, 5000000);
        assert_int_equal(p.n_warnings, 0);
        tc_plan_fini(&p);

        /* of an unknown buffer nobody knows how many */
        q.switch_buffer_bytes = 0;
        p = sample_plan(&q);
        assert_int_equal(p.shares[0].burst_bytes, 165750416 / 8 / 1000);
        tc_plan_fini(&p);

        /* three quarters of it for the bursts of six sources and what those to the other destination add */
        q.switch_buffer_bytes = 128 << 10;
        p = sample_plan(&q);
        assert_int_equal(p.shares[0].burst_bytes, (128 << 10) / 4 * 3 / 7);
        tc_plan_fini(&p);
}

/* A port that takes less than planned: only its own rate is smaller, and the class stays. */
TEST(a_share_reduces_one_rate)
{
        struct tc_destination to[3];
        struct tc_request q = sample_request(to, 3, TC_BACKEND_HTB_TBF);
        _cleanup_(tc_plan_fini) struct tc_plan before, after;
        _cleanup_(tc_tree_fini) struct tc_tree one, other;
        struct tc_diff diff = {};
        const struct tc_htb_class *class;
        _cleanup_(tc_status_fini) struct tc_status status;

        q.burst_bytes = 16000;
        before = sample_plan(&q);
        one = sample_tree(&q, NULL);
        to[1].permille = 490;
        after = sample_plan(&q);
        assert_int_equal(after.shares[0].rate_bps, before.shares[0].rate_bps);
        assert_fields(&after.shares[1], planned_bps, before.shares[1].rate_bps, rate_bps,
                      before.shares[1].rate_bps * 49 / 100, permille, 490);
        assert_int_equal(after.sources, 6);
        other = sample_tree(&q, &one);
        assert_int_equal(tc_diff_make(&diff, &one, &other), 0);
        assert_true(diff.n > 0);
        for (size_t i = 0; i < diff.n; i++) {
                assert_int_equal(diff.changes[i].verb, TC_CHANGE);
                /* A change of the TBF would fill its bucket. */
                assert_int_equal(diff.changes[i].object->type, TC_CLASS);
        }
        tc_diff_fini(&diff);
        class = &tc_tree_class(&other, TC_ID(TC_OUR_MAJOR, 0x1002))->params.htb_class;
        assert_fields(class, ceil_bytes, tc_rate_bytes(after.shares[1].rate_bps), cburst_ticks,
                      tc_ticks_of_bytes(after.shares[1].burst_bytes / 4, class->ceil_bytes));
        assert_int_equal(tc_status_make(&status, &other, to, 3), 0);
        assert_int_equal(status.rows[1].rate_bps / 8, tc_rate_bytes(after.shares[1].rate_bps));
        assert_int_equal(status.rows[1].asked_bps, after.shares[1].planned_bps);
        assert_int_equal(status.rows[0].rate_bps, after.shares[0].rate_bps);
}

/* CBQ's classes have no ceilings. */
TEST(a_share_of_cbq_reduces_its_tbf)
{
        struct tc_destination to[2];
        struct tc_request q = sample_request(to, 2, TC_BACKEND_CBQ_TBF);
        _cleanup_(tc_status_fini) struct tc_status status;
        _cleanup_(tc_tree_fini) struct tc_tree t;

        to[1].permille = 490;
        t = sample_tree(&q, NULL);
        assert_int_equal(tc_tree_qdisc(&t, TC_ID(TC_OUR_MAJOR, 0x1002))->params.tbf.rate_bytes,
                         tc_rate_bytes(to[1].rate_bps * 49 / 100));
        assert_int_equal(tc_status_make(&status, &t, to, 2), 0);
        assert_int_equal(status.rows[1].rate_bps / 8, tc_rate_bytes(to[1].rate_bps * 49 / 100));
}

/* The burst is 2 ms of the rate, and so holds a super-packet at high rates, as far as three quarters of the
 * port's buffer hold those of all sources, and what bursts to other destinations add to them. */
TEST(bursts_fit_the_buffer)
{
        static const struct {
                uint64_t rate_bps, buffer, burst;
                uint32_t sources;
                size_t destinations;
        } cases[] = {
                {UINT64_C(50000000000), 256 << 10, 192 << 10, 1, 1},
                {UINT64_C(10000000000), 256 << 10, 192 << 10, 1, 1},
                {UINT64_C(1000000000), 512 << 10, 250000, 1, 1},
                {UINT64_C(1000000000), 256 << 10, 192 << 10, 1, 1},
                {UINT64_C(1000000000), 128 << 10, 96 << 10, 1, 1},
                {UINT64_C(1000000000), 256 << 10, 96 << 10, 2, 1},
                {UINT64_C(1000000000), 256 << 10, 64 << 10, 2, 2},
                {UINT64_C(100000000), 256 << 10, 25000, 1, 1},
                {UINT64_C(166000000), 128 << 10, 16 << 10, 6, 1},
                {UINT64_C(166000000), 128 << 10, 12 << 10, 6, 3},
                {UINT64_C(10000000), 16 << 10, 2 * 1514, 12, 1},
        };
        struct tc_destination to[3];

        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                struct tc_request q = sample_request(to, cases[i].destinations, TC_BACKEND_HTB_TBF);
                _cleanup_(tc_plan_fini) struct tc_plan p;

                to[0].rate_bps = cases[i].rate_bps;
                q.link_rate_bps = UINT64_C(100000000000);
                q.switch_buffer_bytes = cases[i].buffer;
                q.sources = cases[i].sources;
                p = sample_plan(&q);
                if (p.shares[0].burst_bytes != cases[i].burst)
                        fail_msg("case %zu: burst %llu", i, (unsigned long long)p.shares[0].burst_bytes);
        }
}

/* TBF never lets a super-packet pass that is larger than the burst, and the queue may hold some. */
TEST(bursts_do_not_shrink_below_queued_super_packets)
{
        struct tc_destination to[1];
        struct tc_request q = sample_request(to, 1, TC_BACKEND_HTB_TBF);
        struct tc_plan p;
        uint64_t burst;

        to[0].rate_bps = UINT64_C(100000000);
        p = sample_plan(&q);
        burst = p.shares[0].burst_bytes;
        tc_plan_fini(&p);

        to[0].permille = 300;
        p = sample_plan(&q);
        assert_fields(&p.shares[0], rate_bps, 30000000, burst_bytes, burst);
        tc_plan_fini(&p);

        q.burst_least_bytes = 2 * burst;
        p = sample_plan(&q);
        assert_int_equal(p.shares[0].burst_bytes, 2 * burst);
        assert_non_null(strstr(p.reason_burst, "super-packets"));
        tc_plan_fini(&p);
}

/* 7651 of 8000 bytes are payload. The shortest burst counts. */
TEST(super_packets_may_be_as_long_as_a_burst)
{
        struct tc_destination to[2];
        struct tc_request q = sample_request(to, 2, TC_BACKEND_HTB);
        struct tc_plan p;

        q.burst_bytes = 8000;
        q.super_packet_bytes = 7652;
        p = sample_plan(&q);
        assert_int_equal(p.n_warnings, 1);
        assert_string_equal(
                p.warnings[0],
                "segmentation offload passes super-packets of up to 7652 bytes to HTB, which sends "
                "them whole; use htb+tbf, or make them smaller: ip link set DEVICE gso_max_size 7651");
        tc_plan_fini(&p);
        q.super_packet_bytes = 7651;
        p = sample_plan(&q);
        assert_int_equal(p.n_warnings, 0);
        tc_plan_fini(&p);
        q.burst_bytes = 0;
        to[0].rate_bps = UINT64_C(100000000);
        to[1].rate_bps = UINT64_C(10000000);
        p = sample_plan(&q);
        assert_int_equal(p.n_warnings, 1);
        tc_plan_fini(&p);
}

/* There is no queue and no class, so no rate of the link is needed; a super-packet leaves at once. */
TEST(a_plan_for_sockets_has_rates_and_no_tree)
{
        struct tc_destination to[2];
        struct tc_request q = sample_request(to, 2, TC_BACKEND_SOCKET);
        struct tc_plan p;
        struct error e = {};
        struct tc_tree t = sample_tree(&q, NULL);

        assert_int_equal(t.n, 0);
        assert_true(t.objects == NULL);
        q.link_rate_bps = q.switch_buffer_bytes = 0;
        q.data_protocol = IPPROTO_TCP;
        p = sample_plan(&q);
        /* 64 KiB in 46 segments of 1448 bytes, each in a frame of 1514. */
        assert_fields(&p.shares[0], rate_bps, 20000000, burst_bytes, 46 * 1514);
        assert_fields(&p, n_warnings, 0, data_protocol, 0);
        tc_plan_fini(&p);
        q.mtu_bytes = 65536;
        q.super_packet_bytes = 65536;
        p = sample_plan(&q);
        assert_int_equal(p.shares[0].burst_bytes, 2 * 65550);
        tc_plan_fini(&p);
        to[1].rate_bps = UINT64_C(40000000000);
        assert_int_equal(tc_plan_make(&p, &q, &e), -EINVAL);
        assert_non_null(strstr(e.message, "a socket counts rates in 32 bits; expected up to 34 Gbit/s"));
}

/* A class for each destination, and one filter for all; other packets are in no class, so there are no shares
 * of the link. */
TEST(a_plan_of_departure_times_has_only_destinations)
{
        static struct tc_destination to[TC_EDT_DESTINATIONS_MAX + 1];
        struct tc_request q = sample_request(to, ARRAY_SIZE(to), TC_BACKEND_EDT);
        struct error e = {};
        struct tc_tree t;
        struct tc_plan p;

        assert_int_equal(tc_plan_make(&p, &q, &e), -EINVAL);
        assert_non_null(strstr(e.message, "1001 destinations; expected 1 to 1000"));
        q.n_destinations = 2;
        q.data_protocol = IPPROTO_UDP;
        q.super_packet_bytes = 65536;
        p = sample_plan(&q);
        assert_fields(&p, data_protocol, 0, n_warnings, 1);
        assert_non_null(strstr(p.warnings[0], "super-packets of up to 65536 bytes to fq"));
        tc_plan_fini(&p);
        q.n_destinations = TC_EDT_DESTINATIONS_MAX;
        t = sample_tree(&q, NULL);
        assert_int_equal(t.n, TC_EDT_DESTINATIONS_MAX + 2);
        assert_int_equal(tc_layout_backend(&t), TC_BACKEND_EDT);
        tc_tree_fini(&t);
}

static void add_line(const char *text, void *ctx)
{
        strbuf_add(ctx, "%s\n", text);
}

/* HTB on a card has neither quanta, priorities nor overhead, and does not classify: the BPF program of EDT,
 * or flower of tc, gives each packet its class. A card has no bursts, so none are checked. */
TEST(a_plan_for_a_device_that_shapes_is_htb_with_classes_for_packets)
{
        static const char *const lines[] = {
                "tc qdisc add dev eth1 root handle e7b: htb default 0x3 r2q 3707 offload\n",
                "tc class add dev eth1 parent e7b:1 classid e7b:1001 htb rate 20Mbit ceil 20Mbit burst "
                "10014b "
                "cburst 10014b\n",
                "tc qdisc add dev eth1 clsact\ntc filter add dev eth1 egress prio 1 protocol ip flower "
                "dst_ip "
                "10.1.0.1 ip_proto udp dst_port 26800 action skbedit priority e7b:2\n",
                "tc filter add dev eth1 egress prio 2 protocol ipv6 flower dst_ip fd00::3 ip_proto udp "
                "dst_port "
                "26800 action skbedit priority e7b:2\ntc filter add dev eth1 egress prio 3 protocol ip "
                "flower "
                "dst_ip 10.1.0.1 action skbedit priority e7b:1001\n",
                "tc filter add dev eth1 egress prio 4 protocol ipv6 flower dst_ip fd00::3 action skbedit "
                "priority e7b:1003\n",
        };
        static struct tc_destination to[TC_EDT_DESTINATIONS_MAX + 1];
        struct tc_request q = sample_request(to, ARRAY_SIZE(to), TC_BACKEND_HTB);
        char text[8192] = "";
        struct strbuf b = strbuf_init(text, sizeof text);
        struct error e = {};
        struct tc_tree t;
        struct tc_plan p;

        q.offload = TC_OFFLOAD_REQUIRED;
        assert_int_equal(tc_plan_make(&p, &q, &e), -EINVAL);
        assert_non_null(strstr(e.message, "1001 destinations; expected 1 to 1000"));
        q.n_destinations = 3;
        q.data_protocol = IPPROTO_UDP;
        q.super_packet_bytes = 65536;
        q.overhead_bytes = 24;
        q.burst_bytes = 10014;
        q.switch_buffer_bytes = 20000;
        p = sample_plan(&q);
        assert_true(p.is_offloaded);
        assert_fields(&p, n_warnings, 0, data_protocol, 0, overhead_bytes, 0);
        assert_string_equal(p.reason_burst, "none: the device spaces the packets");
        assert_non_null(strstr(p.reason_limit, "auto: 10014 bytes + "));
        tc_plan_fini(&p);
        t = sample_tree(&q, NULL);
        assert_int_equal(tc_layout_backend(&t), TC_BACKEND_HTB);
        assert_true(tc_layout_is_offloaded(&t));
        assert_int_equal(tc_commands(&t, "eth1", add_line, &b), 0);
        for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
                if (!strstr(text, lines[i]))
                        fail_msg("no %s in\n%s", lines[i], text);
        }
        assert_null(strstr(text, "quantum"));
        assert_null(strstr(text, "overhead"));
        assert_null(strstr(text, "#"));
        tc_tree_fini(&t);
        q.backend = TC_BACKEND_HTB_TBF;
        assert_int_equal(tc_plan_make(&p, &q, &e), -EINVAL);
        assert_non_null(
                strstr(e.message, "a device can offload only htb; expected qos.backend = htb or auto"));
        /* A plan does not know whether the device can. */
        q.offload = TC_OFFLOAD_AUTO;
        p = sample_plan(&q);
        assert_false(p.is_offloaded);
        tc_plan_fini(&p);
}

/* Of departure times, a packet of each source may meet in the port's buffer, but no burst. */
TEST(departure_times_have_no_bursts)
{
        struct tc_destination to[1];
        struct tc_request q = sample_request(to, 1, TC_BACKEND_EDT);
        struct tc_plan p;

        q.burst_bytes = 0;
        q.switch_buffer_bytes = 6 * 4000;
        p = sample_plan(&q);
        assert_int_equal(p.n_warnings, 0);
        assert_string_equal(p.reason_burst,
                            "none: each packet leaves at its time; a ROS sends super-packets of "
                            "less than 3000 bytes");
        assert_non_null(strstr(p.reason_limit, "auto: 3000 bytes + "));
        tc_plan_fini(&p);
        q.switch_buffer_bytes = 6 * 1514;
        p = sample_plan(&q);
        assert_int_equal(p.n_warnings, 1);
        assert_non_null(
                strstr(p.warnings[0], "6 packets of 1514 bytes may meet in a switch port's buffer of"));
        tc_plan_fini(&p);
}

TEST(plans_say_when_shaping_is_not_needed)
{
        struct tc_destination to[1];
        struct tc_request q = sample_request(to, 1, TC_BACKEND_HTB_TBF);
        struct tc_plan p;
        struct error e = {};

        q.sources = 6;
        q.switch_buffer_bytes = 131072;
        assert_int_equal(tc_plan_make(&p, &q, &e), 0);
        assert_non_null(strstr(p.reason_need,
                               "if each source sends at most 21845 bytes at once (switch buffer of "
                               "131072 bytes / 6 sources)"));
        tc_plan_fini(&p);
        q.switch_buffer_bytes = 0;
        assert_int_equal(tc_plan_make(&p, &q, &e), 0);
        assert_string_equal(p.reason_need, "");
        tc_plan_fini(&p);
        q.sources = 1;
        assert_int_equal(tc_plan_make(&p, &q, &e), 0);
        assert_non_null(strstr(p.reason_need, "no shaping needed for one source"));
        tc_plan_fini(&p);
}

/* If the rates exceed the link together, the guaranteed rates still fit. */
TEST(guarantees_fit_the_link)
{
        struct tc_destination to[30];
        struct tc_request q = sample_request(to, 30, TC_BACKEND_HTB_TBF);
        uint64_t sum = 0;
        _cleanup_(tc_plan_fini) struct tc_plan p;

        for (int i = 0; i < 30; i++)
                to[i].rate_bps = UINT64_C(100000000);
        p = sample_plan(&q);
        for (int i = 0; i < 30; i++)
                sum += p.shares[i].guaranteed_bps;
        assert_true(sum + p.control.guaranteed_bps + p.other.guaranteed_bps <= q.link_rate_bps);
        assert_int_equal(p.shares[0].rate_bps, 100000000);
}

/* Known traffic to unknown destinations takes a part of the link, but none of a destination's port. */
TEST(other_traffic_has_its_part)
{
        struct tc_destination to[30];
        struct tc_request q = sample_request(to, 30, TC_BACKEND_HTB_TBF);
        _cleanup_(tc_plan_fini) struct tc_plan without, with;
        uint64_t sum = 0;

        for (int i = 0; i < 30; i++)
                to[i].rate_bps = i == 0 ? 0 : UINT64_C(100000000);
        without = sample_plan(&q);
        assert_string_equal(without.reason_other, "a queue of 1250000 bytes, about 10 ms of the link");
        q.other_rate_bps = 50000000;
        q.other_what = "somebody";
        with = sample_plan(&q);
        assert_int_equal(with.other.guaranteed_bps, without.other.guaranteed_bps + 50000000);
        assert_string_equal(
                with.reason_other,
                "5.00 Mbit/s, and 50.0 Mbit/s for somebody; a queue of 1250000 bytes, about 10 ms "
                "of the link");
        for (int i = 0; i < 30; i++) {
                sum += with.shares[i].guaranteed_bps;
                assert_int_equal(with.shares[i].rate_bps, without.shares[i].rate_bps);
        }
        assert_true(sum + with.control.guaranteed_bps + with.other.guaranteed_bps <= q.link_rate_bps);
        assert_true(with.shares[0].burst_bytes < without.shares[0].burst_bytes);
        assert_non_null(strstr(with.reason_burst, "(6 sources + 31 destinations - 1)"));
}

static const struct {
        const char *says;
        uint64_t rate_bps, burst, limit, buffer, send_buffer;
        uint32_t super_packet;
        enum tc_backend backend;
} broken_rules[] = {
        {"below the", 20000000, 8000, 100000, 256 << 10, 2 << 20, 0, TC_BACKEND_HTB_TBF},
        {"may meet in a switch port's buffer", 158000000, 65536, 0, 128 << 10, 2 << 20, 0,
         TC_BACKEND_HTB_TBF},
        {"segmentation offload", 20000000, 8000, 0, 256 << 10, 2 << 20, 65536, TC_BACKEND_HTB},
        {"exceed the port rate", 200000000, 8000, 0, 256 << 10, 2 << 20, 0, TC_BACKEND_HTB_TBF},
        {"shorter than 100 us", 900000000, 1600, 0, 0, 2 << 20, 0, TC_BACKEND_HTB_TBF},
};

TEST_EACH(broken_rules_cause_warnings, i, ARRAY_SIZE(broken_rules))
{
        struct tc_destination to[1];
        struct tc_request q = sample_request(to, 1, broken_rules[i].backend);
        bool found = false;
        _cleanup_(tc_plan_fini) struct tc_plan p;

        to[0].rate_bps = broken_rules[i].rate_bps;
        q.burst_bytes = broken_rules[i].burst;
        q.limit_bytes = broken_rules[i].limit;
        q.switch_buffer_bytes = broken_rules[i].buffer;
        q.send_buffer_bytes = broken_rules[i].send_buffer;
        q.super_packet_bytes = broken_rules[i].super_packet;
        p = sample_plan(&q);
        for (size_t k = 0; k < p.n_warnings; k++)
                found |= strstr(p.warnings[k], broken_rules[i].says) != NULL;
        if (!found)
                fail_msg("no warning says \"%s\"", broken_rules[i].says);
}

/* Destinations behind a valid first one are checked as well. */
/* A veth says 10 Gbit/s and carries what the processors can do. */
TEST(a_virtual_link_carries_what_is_asked)
{
        struct tc_destination to[2];
        struct tc_request q = sample_request(to, 2, TC_BACKEND_HTB_TBF);
        struct tc_plan p;

        q.link_rate_bps = UINT64_C(10000000000);
        q.link_is_virtual = true;
        q.switch_buffer_bytes = 0;
        to[0].rate_bps = UINT64_C(50000000000);
        to[1].rate_bps = UINT64_C(20000000000);
        p = sample_plan(&q);
        assert_int_equal(p.link_rate_bps, UINT64_C(71400000000));
        assert_int_equal(p.shares[0].guaranteed_bps, to[0].rate_bps);
        assert_int_equal(p.shares[1].guaranteed_bps, to[1].rate_bps);
        /* 1 ms, as no port bounds it */
        assert_int_equal(p.shares[0].burst_bytes, 6250000);
        assert_int_equal(p.n_warnings, 0);
        assert_string_equal(p.reason_link,
                            "71.4 Gbit/s, for the rates that are asked; the device is virtual, "
                            "so its 10.0 Gbit/s is nominal");
        tc_plan_fini(&p);

        /* It may also be asked for less than it says, or for more than HTB is planned for. */
        to[0].rate_bps = to[1].rate_bps = UINT64_C(1000000000);
        p = sample_plan(&q);
        assert_int_equal(p.link_rate_bps, UINT64_C(10000000000));
        assert_string_equal(p.reason_link, "");
        tc_plan_fini(&p);
        to[0].rate_bps = to[1].rate_bps = UINT64_C(300000000000);
        p = sample_plan(&q);
        assert_int_equal(p.link_rate_bps, TC_LINK_RATE_MAX_BPS);
        tc_plan_fini(&p);
}

TEST(each_rate_above_the_link_is_named)
{
        struct tc_destination to[12];
        struct tc_request q = sample_request(to, 12, TC_BACKEND_HTB_TBF);
        struct tc_plan p;

        q.sources = 1;
        q.switch_buffer_bytes = 0;
        to[3].rate_bps = UINT64_C(5000000000);
        to[7].rate_bps = UINT64_C(1000000000);
        p = sample_plan(&q);
        assert_int_equal(p.n_warnings, 1);
        assert_string_equal(p.warnings[0], "10.1.0.4: the link of 1.00 Gbit/s caps the rate of 5.00 Gbit/s; "
                                           "set the link rate if the link is faster");
        tc_plan_fini(&p);

        for (size_t i = 0; i < 12; i++)
                to[i].rate_bps = UINT64_C(2000000000);
        p = sample_plan(&q);
        assert_int_equal(p.n_warnings, 9);
        assert_string_equal(p.warnings[8], "the link caps the rates of 4 more destinations");
        tc_plan_fini(&p);
}

TEST(every_destination_is_checked)
{
        struct tc_destination to[3];
        struct tc_request q = sample_request(to, 3, TC_BACKEND_HTB_TBF);
        bool port = false, buffer = false;
        _cleanup_(tc_plan_fini) struct tc_plan p;

        q.link_rate_bps = UINT64_C(25000000000);
        to[1].rate_bps = to[2].rate_bps = UINT64_C(20000000000);
        q.burst_bytes = 200000;
        p = sample_plan(&q);
        assert_int_equal(p.n_warnings, 3); /* one warning per rule */
        for (size_t k = 0; k < p.n_warnings; k++) {
                port |= strstr(p.warnings[k], "exceed the port rate") && strstr(p.warnings[k], "10.1.0.2:");
                buffer |= strstr(p.warnings[k], "may meet") && strstr(p.warnings[k], "10.1.0.1:");
        }
        assert_true(port && buffer);
}

TEST(impossible_requests_are_rejected)
{
        struct tc_destination to[2];
        struct tc_request q = sample_request(to, 2, TC_BACKEND_HTB_TBF);
        struct error e = {};
        struct tc_plan p;

        q.burst_bytes = 1513;
        assert_int_equal(tc_plan_make(&p, &q, &e), -EINVAL);
        assert_non_null(strstr(e.message, "1514"));
        q.burst_bytes = UINT64_C(1) << 30; /* 429 s of 20 Mbit/s, in ticks of 64 ns more than 32 bits */
        assert_int_equal(tc_plan_make(&p, &q, &e), -EINVAL);
        assert_non_null(strstr(e.message, "burst"));
        q.burst_bytes = 0;
        q.control_rate_bps = UINT64_C(2000000000); /* of 1 Gbit/s */
        assert_int_equal(tc_plan_make(&p, &q, &e), -EINVAL);
        assert_non_null(strstr(e.message, "control"));
        q.control_rate_bps = 0;
        q.limit_bytes = 1000;
        assert_int_equal(tc_plan_make(&p, &q, &e), -EINVAL);
        q.limit_bytes = 0;
        q.link_rate_bps = 0;
        to[1].rate_bps = 0;
        assert_int_equal(tc_plan_make(&p, &q, &e), -EINVAL);
        assert_non_null(strstr(e.message, "link"));
        q.link_rate_bps = 7999; /* a class would get less than a byte per second */
        assert_int_equal(tc_plan_make(&p, &q, &e), -EINVAL);
        assert_non_null(strstr(e.message, "too low; expected at least 8 kbit/s"));
        q.link_rate_bps = 0;
        to[1] = to[0];
        assert_int_equal(tc_plan_make(&p, &q, &e), -EINVAL);
        assert_non_null(strstr(e.message, "duplicate"));
        q.n_destinations = 0;
        assert_int_equal(tc_plan_make(&p, &q, &e), -EINVAL);
        q = sample_request(to, 1, TC_BACKEND_CBQ_TBF);
        q.link_rate_bps = 0;
        to[0].rate_bps = UINT64_C(40000000000);
        assert_int_equal(tc_plan_make(&p, &q, &e), -EINVAL);
        assert_non_null(strstr(e.message, "32 bits"));
}
