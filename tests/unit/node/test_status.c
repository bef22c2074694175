/* Tests which figures the state of a node has, by its role. */
#include "../json_assert.h"

#include "metrics_sample.h"

#include "node/metrics/openmetrics.h"

static json_t *o;

/* The value at a path such as "drops.socket_packets"; the test ends if there is none. */
static const json_t *value_at(const char *path)
{
        char copy[128], *rest = copy, *name;
        const json_t *at = o;

        snprintf(copy, sizeof copy, "%s", path);
        while (*path && (name = strsep(&rest, ".")))
                at = json_is_array(at) ? json_array_get(at, strtoul(name, NULL, 10))
                                       : json_object_get(at, name);
        if (!at)
                fail_msg("no %s", path);
        return at;
}

static void look(void)
{
        _cleanup_free_ char *status = metrics_status_text(&v, 5 * NS_PER_S);

        json_decref(o);
        o = json_loads(status, 0, NULL);
        assert_non_null(o);
}

static int end(void **state)
{
        json_decref(take_ptr(o));
        return view_end(state);
}

/* The object at `path` ("": the status) has these members. */
static void assert_has(const char *path, const char *members)
{
        assert_json(value_at(path), members);
}

TEST_WITH(a_dfm_has_its_figures_in_its_status, NULL, end)
{
        view_of("dfm");
        shared.event_latency.count = 1;
        look();
        assert_has("", "{'run': null}");
        /* Earlier runs had events, and this one has none yet. */
        assert_has("latency_us", "{'p50': null}");
        assert_has("", "{'reason': null, 'stalled_seconds': null}");
        assert_has("losses", "{'seconds': null}");
        v.process.start_seconds = 1795545600.25;
        shared.run = 7;
        v.obstacle = (struct obstacle){
                .kind = OBSTACLE_STALL, .since_ns = 2 * NS_PER_S, .text = "no credit from sfi2"};
        shared.rates = (struct metrics_rates){
                .triggers_hz = 3, .events_hz = 2.5, .busy_share = 0.25, .at_ns = 2 * NS_PER_S};
        shared.waiting_triggers = 4;
        shared.latency_p50_ns = 1500;
        shared.latency_p99_ns = 2 * NS_PER_MS;
        v.run_counters[COUNTER_events_complete] = 9;
        v.run_counters[COUNTER_fragments_lost] = 8;
        v.counters[COUNTER_triggers_refused] = 10;
        v.run_counters[COUNTER_triggers_refused] = 6;
        shared.peers[1].live = shared.peers[1].xoff = true;
        shared.peers[3].free_credits = 11;
        shared.peers[3].held = 12;
        look();
        assert_has("", "{'version': '1.2.3', 'start_time': 1795545600.25, 'run': 7, "
                       "'reason': 'no credit from sfi2', 'stalled_seconds': 3.0}");
        assert_has("counts", "{'events_complete': 9, 'fragments_sent': null}");
        assert_has("rates", "{'triggers_hz': 3.0, 'events_hz': 2.5, 'fragments_hz': null, "
                            "'busy_share': 0.25}");
        assert_has("", "{'waiting_triggers': 4, 'credits': null, 'buffer_used': null, "
                       "'buffer_size_bytes': null}");
        assert_has("latency_us", "{'p50': 1.5, 'p99': 2000.0}");
        assert_has("fragments", "{'lost': 8, 'late': null}");
        assert_has("drops", "{'network_packets': null}");
        assert_has("discarded.triggers", "{'queue_full': 6}");
        assert_has("discarded.packets", "{'malformed': 0}");
        assert_has("discarded", "{'fragments': null}");
        /* The event loop hangs. */
        shared.rates.at_ns--;
        look();
        assert_has("rates",
                   "{'triggers_hz': 0.0, 'events_hz': 0.0, 'fragments_hz': null, 'busy_share': 0.0}");
        assert_int_equal(json_array_size(value_at("peers")), 4);
        assert_has("peers.0", "{'node': 'ros1', 'live': true, 'xoff': true, 'held': null}");
        assert_has("peers.2", "{'role': 'sfi', 'live': false, 'xoff': null, 'free_credits': 11, "
                              "'held': 12, 'bytes': null}");
        assert_has("", "{'shaping': null}");
}

TEST_WITH(a_ros_has_its_figures_in_its_status, NULL, end)
{
        view_of("ros1");
        struct scenario *s = (struct scenario *)v.scenario;

        shared.buffer_used_bytes = s->ros.buffer_size_bytes / 4;
        shared.held_fragments = 5;
        shared.front_end = REASON_OUT_OF_STEP;
        shared.peers[3] = (struct metrics_peer){.fragments = 6, .bytes = 7, .queued_bytes = 8};
        v.run_counters[COUNTER_packets_source_dropped] = 9;
        v.run_counters[COUNTER_packets_send_failed] = 10;
        v.run_counters[COUNTER_front_end_late] = 11;
        look();
        assert_has("counts", "{'events_complete': null}");
        assert_has("", "{'buffer_used': 0.25, 'held_fragments': 5}");
        assert_has("",
                   "{'front_end_missing': false, 'front_end_silent': false, 'front_end_out_of_step': true}");
        assert_has("rates", "{'busy_share': null}");
        assert_has("latency_us", "{'p99': null}");
        assert_has("", "{'shaped': null, 'shaping': null}");
        assert_has("drops", "{'source_qdisc_packets': null, 'send_failed_packets': 10, "
                            "'network_packets': null}");
        assert_has("discarded.front_end_frames", "{'late': 11}");
        assert_has("discarded", "{'triggers': null}");
        assert_has("", "{'output_free_bytes': null, 'output_left_seconds': null}");
        assert_int_equal(json_array_size(value_at("peers")), 2);
        assert_has("peers.0", "{'node': 'sfi1', 'fragments': 6, 'bytes': 7, 'queued_bytes': 8, "
                              "'fragments_lost': null, 'live': null}");
        s->qos.backend = QOS_HTB;
        shared.shapings[4] = (struct metrics_shaped){
                .known = true, .rate_bps = 12, .limit_bytes = 13, .backlog_bytes = 14, .drops = 15};
        look();
        assert_has("", "{'shaped': false}");
        assert_has("drops", "{'source_qdisc_packets': 9}");
        assert_int_equal(json_array_size(value_at("shaping")), 1);
        assert_has("shaping.0",
                   "{'node': 'sfi2', 'rate_bps': 12, 'limit_bytes': 13, 'backlog_bytes': 14, 'drops': 15}");
        assert_string_equal(json_string_value(value_at("shaping.0.address")), sample_at(5));
}

TEST_WITH(an_sfi_has_its_figures_in_its_status, NULL, end)
{
        view_of("sfi1");
        shared.credits = 3;
        shared.unwritten_events = 4;
        look();
        assert_has("", "{'rate_permille': null}");
        shared.rate_permille = 500;
        v.now_seconds = 1e9;
        v.digest = (struct member_keys){1, 2, {3, 4}};
        v.disk = (struct disk_space){true, 5, 10};
        v.disk_left_s = 6;
        v.run_counters[COUNTER_packets_lost] = 20;
        v.run_counters[COUNTER_packets_socket_dropped] = 14;
        v.run_counters[COUNTER_fragments_late] = 7;
        v.run_counters[COUNTER_fragments_corrupt] = 8;
        shared.peers[2] = (struct metrics_peer){.fragments = 9,
                                                .bytes = 10,
                                                .fragments_lost = 11,
                                                .fragments_absent = 12,
                                                .packets_lost = 13};
        look();
        assert_has("", "{'credits': 3, 'unwritten_events': 4, 'rate_permille': 500, 'output_free_bytes': 5, "
                       "'output_size_bytes': 10, 'output_left_seconds': 6}");
        assert_has("", "{'time': 1000000000.0, 'digest': [1, 3, 4], 'mtu_failed_paths': null}");
        assert_has("drops", "{'network_packets': 6, 'socket_packets': 14, 'send_failed_packets': null}");
        assert_has("fragments", "{'late': 7, 'corrupt': 8, 'expected': null}");
        assert_has("discarded.fragments", "{'late': 7}");
        assert_has("discarded.packets", "{'socket_full': 14}");
        assert_int_equal(json_array_size(value_at("peers")), 2);
        assert_has("peers.1", "{'node': 'ros2', 'fragments': 9, 'bytes': 10, 'fragments_lost': 11, "
                              "'fragments_absent': 12, 'packets_lost': 13, 'queued_bytes': null}");
        /* TCP has no packets of its own, and late datagrams are not lost. */
        ((struct scenario *)v.scenario)->scenario.transport = TRANSPORT_TCP;
        look();
        assert_has("drops", "{'network_packets': null}");
        ((struct scenario *)v.scenario)->scenario.transport = TRANSPORT_UDP;
        v.run_counters[COUNTER_packets_lost] = 13;
        look();
        assert_has("drops", "{'network_packets': 0}");
}

/* Of the last seconds, and only what the role can know. */
TEST_WITH(recent_losses_have_a_count_for_each_place, NULL, end)
{
        view_of("dfm");
        shared.losses = (struct losses){.older = {.now_ns = NS_PER_S,
                                                  .counts = {[COUNTER_events_lost] = 2,
                                                             [COUNTER_events_partial] = 1,
                                                             [COUNTER_packets_lost] = 1}},
                                        .now = {.now_ns = 2 * NS_PER_S,
                                                .counts = {[COUNTER_events_lost] = 7,
                                                           [COUNTER_events_partial] = 7,
                                                           [COUNTER_packets_lost] = 31,
                                                           [COUNTER_events_not_written] = 4,
                                                           [COUNTER_events_starved] = 3,
                                                           [COUNTER_packets_socket_dropped] = 10}}};
        shared.peers[2].lost_recently = 14;
        v.control_state = "error";
        strcpy(v.control_error, "it stalled");
        look();
        assert_has("", "{'control_error': 'it stalled'}");
        assert_has("losses", "{'seconds': 4.0, 'events_lost': 5, 'events_partial': 6, "
                             "'events_not_written': null, 'events_starved': null, 'missing_fragments': null, "
                             "'network_packets': null, "
                             "'send_failed_packets': null}");
        v.self = scenario_find(v.scenario, "sfi1");
        look();
        assert_has("losses",
                   "{'events_not_written': 4, 'events_starved': 3, 'missing_fragments': {'ros2': 14}, "
                   "'network_packets': 20, 'socket_packets': 10, 'source_qdisc_packets': null}");
}
