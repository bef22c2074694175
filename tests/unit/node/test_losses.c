/* Tests what counts as lost a short while ago: the last 5 to 10 s, or of rarer events those that ended last.
 */
#include "../test.h"

#include <math.h>

#include "node/metrics/metrics_state.h"

static struct losses_sample at(uint64_t seconds, uint64_t complete, uint64_t partial, uint64_t lost)
{
        return (struct losses_sample){.now_ns = (100 + seconds) * NS_PER_S,
                                      .counts = {[COUNTER_events_complete] = complete,
                                                 [COUNTER_events_partial] = partial,
                                                 [COUNTER_events_lost] = lost}};
}

static struct losses_sample record(struct losses *l, struct losses_sample now)
{
        (void)losses_record(l, &now);
        return losses_recent(l);
}

TEST(losses_of_a_run_begin_with_it)
{
        struct losses l = {};
        struct losses_sample r = record(&l, at(0, 5, 2, 3));

        assert_true(r.counts[COUNTER_events_complete] == 5 && r.counts[COUNTER_events_partial] == 2 &&
                    r.counts[COUNTER_events_lost] == 3);
}

TEST(losses_are_over_after_ten_seconds)
{
        struct losses l = {};
        struct losses_sample r = {};

        for (unsigned i = 0; i <= 4; i++)
                r = record(&l, at(i, 10 * i, i, 2 * i));
        assert_true(r.counts[COUNTER_events_complete] == 40 && r.counts[COUNTER_events_partial] == 4 &&
                    r.counts[COUNTER_events_lost] == 8);
        /* From now on, all is well. */
        for (unsigned i = 5; i <= 8; i++)
                r = record(&l, at(i, 10 * i, 4, 8));
        assert_true(r.counts[COUNTER_events_partial] == 4 && r.counts[COUNTER_events_lost] == 8);
        for (unsigned i = 9; i <= 15; i++)
                r = record(&l, at(i, 10 * i, 4, 8));
        assert_true(r.counts[COUNTER_events_partial] == 0 && r.counts[COUNTER_events_lost] == 0 &&
                    r.counts[COUNTER_events_complete] > 0);
        assert_true(r.now_ns >= 105 * NS_PER_S);
}

/* A node that is looked at rarely is asked about the time since then. */
TEST(a_late_look_coverage_more)
{
        struct losses l = {};
        struct losses_sample r;

        record(&l, at(0, 0, 0, 0));
        r = record(&l, at(60, 100, 0, 1));
        assert_true(r.counts[COUNTER_events_lost] == 1 && r.now_ns == 100 * NS_PER_S);
}

/* One event in a minute, and all are lost. */
TEST(rare_losses_last_until_an_event_is_complete)
{
        struct losses l = {};
        struct losses_sample r = {};

        record(&l, at(0, 0, 0, 0));
        for (unsigned i = 1; i < 300; i++) {
                r = record(&l, at(i, 0, 0, i / 60));
                assert_true((r.counts[COUNTER_events_lost] > 0) == (i >= 60));
        }
        for (unsigned i = 300; i < 320; i++)
                r = record(&l, at(i, 1, 0, 4));
        assert_true(r.counts[COUNTER_events_lost] == 0);
}

TEST(packets_that_were_only_late_are_not_lost)
{
        struct losses l = {};
        struct losses_sample now = at(0, 0, 0, 0);

        now.counts[COUNTER_packets_lost] = 10;
        record(&l, now);
        for (unsigned i = 1; i < 12; i++)
                record(&l, (now.now_ns += NS_PER_S, now));
        now.counts[COUNTER_packets_lost] = 4;
        assert_true(record(&l, now).counts[COUNTER_packets_lost] == 0);
}

/* One formula for a node and for a run. */
TEST(losses_have_a_place_for_each_role)
{
        static struct scenario s;
        const uint64_t counts[COUNTERS] = {
                [COUNTER_packets_lost] = 20,       [COUNTER_packets_socket_dropped] = 5,
                [COUNTER_packets_send_failed] = 4, [COUNTER_packets_source_dropped] = 3,
                [COUNTER_events_partial] = 2,      [COUNTER_trigger_datagrams_late] = 1,
                [COUNTER_triggers_refused] = 1,
        };
        double node[LOSS_PLACES], run[LOSS_PLACES];

        losses_begin(run);
        for (enum node_role role = ROLE_DFM; role <= ROLE_SFI; role++) {
                losses_of_node(&s, role, counts, node);
                losses_add(run, node);
                assert_true(role != ROLE_DFM || (node[LOSS_TRIGGER_INPUT] == 2 && node[LOSS_PARTIAL] == 2));
                assert_true(role != ROLE_DFM || (isnan(node[LOSS_NETWORK]) && isnan(node[LOSS_SOCKET])));
                assert_true(role != ROLE_ROS || (node[LOSS_SEND_FAILED] == 4 && isnan(node[LOSS_SOCKET])));
                assert_true(role != ROLE_SFI || (node[LOSS_NETWORK] == 15 && node[LOSS_SOCKET] == 5));
        }
        losses_end(run);
        assert_true(run[LOSS_NETWORK] == 11 && run[LOSS_SOCKET] == 5 && run[LOSS_FRAME_SOCKET] == 5);
        assert_true(run[LOSS_PARTIAL] == 2 && isnan(run[LOSS_SOURCE_QDISC]));
        s.scenario.transport = TRANSPORT_TCP;
        s.qos.backend = QOS_HTB;
        losses_of_node(&s, ROLE_SFI, counts, node);
        assert_true(isnan(node[LOSS_NETWORK]) && node[LOSS_SOCKET] == 5);
        losses_of_node(&s, ROLE_ROS, counts, node);
        assert_true(node[LOSS_SOURCE_QDISC] == 3);
}

/* Each peer has the same windows. */
TEST(fragments_are_recent_for_as_long_as_events)
{
        struct metrics_peer p = {};
        struct losses l = {};

        for (unsigned i = 0; i < 30; i++) {
                struct losses_sample now = at(i, i, i < 3 ? i : 2, 0);
                bool moved = losses_record(&l, &now);

                metrics_record_lost(&p, 10 * now.counts[COUNTER_events_partial], moved);
                assert_int_equal(p.lost_recently, 10 * losses_recent(&l).counts[COUNTER_events_partial]);
                assert_int_equal(p.fragments_lost, 10 * now.counts[COUNTER_events_partial]);
        }
        assert_int_equal(p.lost_recently, 0);
}
