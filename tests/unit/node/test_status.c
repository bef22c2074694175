/* Tests which figures the state of a node has, by its role. */
#include "../test.h"

#include "metrics_sample.h"

#include <jansson.h>

#include "metrics/status.h"

/* The value at a path such as "drops.socket_packets"; the test ends if there is none. */
static const json_t *value_at(const json_t *o, const char *path)
{
        char copy[128], *rest = copy, *name;

        snprintf(copy, sizeof copy, "%s", path);
        while ((name = strsep(&rest, ".")))
                o = json_is_array(o) ? json_array_get(o, strtoul(name, NULL, 10)) : json_object_get(o, name);
        if (!o)
                fail_msg("no %s", path);
        return o;
}

static json_t *status_of(const struct metrics_view *v)
{
        char *status = metrics_status_text(v, 5 * NS_PER_S);
        json_t *o = json_loads(status, 0, NULL);

        assert_non_null(o);
        free(status);
        return o;
}

static void assert_value(const json_t *o, const char *path, const char *expected)
{
        char *found = json_dumps(value_at(o, path), JSON_ENCODE_ANY | JSON_REAL_PRECISION(12));

        if (strcmp(found, expected) != 0)
                fail_msg("%s is %s; expected %s", path, found, expected);
        free(found);
}

TEST(a_dfm_has_its_figures_in_its_status)
{
        struct metrics_state shared;
        struct metrics_view v = sample_view("dfm", &shared);
        json_t *o;

        shared.event_latency.count = 1;
        o = status_of(&v);
        assert_value(o, "run", "null");
        /* Earlier runs had events, and this one has none yet. */
        assert_value(o, "latency_us.p50", "null");
        assert_value(o, "reason", "null");
        assert_value(o, "stalled_seconds", "null");
        assert_value(o, "losses.seconds", "null");
        json_decref(o);
        v.process.start_seconds = 1795545600.25;
        shared.run = 7;
        v.obstacle = (struct obstacle){
                .kind = OBSTACLE_STALL, .since_ns = 2 * NS_PER_S, .text = "no credit from sfi2"};
        shared.rates = (struct metrics_rates){.triggers_hz = 3, .events_hz = 2.5, .busy_share = 0.25};
        shared.waiting_triggers = 4;
        shared.latency_p50_ns = 1500;
        shared.latency_p99_ns = 2 * NS_PER_MS;
        v.counters[METRICS_COUNTER_events_complete] = 9;
        v.counters[METRICS_COUNTER_fragments_lost] = 8;
        v.counters[METRICS_COUNTER_triggers_refused] = 10;
        v.counters_before[METRICS_COUNTER_triggers_refused] = 4;
        shared.peers[1].live = shared.peers[1].xoff = true;
        shared.peers[3].free_credits = 11;
        shared.peers[3].held = 12;
        o = status_of(&v);
        assert_value(o, "version", "\"1.2.3\"");
        assert_value(o, "start_time", "1795545600.25");
        assert_value(o, "run", "7");
        assert_value(o, "reason", "\"no credit from sfi2\"");
        assert_value(o, "stalled_seconds", "3.0");
        assert_value(o, "counts.events_complete", "9");
        assert_value(o, "counts.fragments_sent", "null");
        assert_value(o, "rates.triggers_hz", "3.0");
        assert_value(o, "rates.events_hz", "2.5");
        assert_value(o, "rates.fragments_hz", "null");
        assert_value(o, "rates.busy_share", "0.25");
        assert_value(o, "waiting_triggers", "4");
        assert_value(o, "credits", "null");
        assert_value(o, "buffer_used", "null");
        assert_value(o, "buffer_size_bytes", "null");
        assert_value(o, "latency_us.p50", "1.5");
        assert_value(o, "latency_us.p99", "2000.0");
        assert_value(o, "fragments.lost", "8");
        assert_value(o, "fragments.late", "null");
        assert_value(o, "drops.network_packets", "null");
        assert_value(o, "discarded.triggers.queue_full", "6");
        assert_value(o, "discarded.packets.malformed", "0");
        assert_value(o, "discarded.fragments", "null");
        assert_int_equal(json_array_size(value_at(o, "peers")), 4);
        assert_value(o, "peers.0.node", "\"ros1\"");
        assert_value(o, "peers.0.live", "true");
        assert_value(o, "peers.0.xoff", "true");
        assert_value(o, "peers.0.held", "null");
        assert_value(o, "peers.2.role", "\"sfi\"");
        assert_value(o, "peers.2.live", "false");
        assert_value(o, "peers.2.xoff", "null");
        assert_value(o, "peers.2.free_credits", "11");
        assert_value(o, "peers.2.held", "12");
        assert_value(o, "peers.2.bytes", "null");
        assert_value(o, "shaping", "null");
        json_decref(o);
        sample_view_free(&v, &shared);
}

TEST(a_ros_has_its_figures_in_its_status)
{
        struct metrics_state shared;
        struct metrics_view v = sample_view("ros1", &shared);
        struct scenario *s = (struct scenario *)v.scenario;
        json_t *o;

        shared.buffer_used_bytes = s->ros.buffer_size_bytes / 4;
        shared.held_fragments = 5;
        shared.peers[3] = (struct metrics_peer){.fragments = 6, .bytes = 7, .queued_bytes = 8};
        v.counters[METRICS_COUNTER_packets_source_dropped] = 9;
        v.counters[METRICS_COUNTER_packets_send_failed] = 10;
        v.counters[METRICS_COUNTER_front_end_late] = 11;
        o = status_of(&v);
        assert_value(o, "counts.events_complete", "null");
        assert_value(o, "buffer_used", "0.25");
        assert_value(o, "held_fragments", "5");
        assert_value(o, "rates.busy_share", "null");
        assert_value(o, "latency_us.p99", "null");
        assert_value(o, "shaped", "null");
        assert_value(o, "shaping", "null");
        assert_value(o, "drops.source_qdisc_packets", "null");
        assert_value(o, "drops.send_failed_packets", "10");
        assert_value(o, "drops.network_packets", "null");
        assert_value(o, "discarded.front_end_frames.late", "11");
        assert_value(o, "discarded.triggers", "null");
        assert_value(o, "output_free_bytes", "null");
        assert_int_equal(json_array_size(value_at(o, "peers")), 2);
        assert_value(o, "peers.0.node", "\"sfi1\"");
        assert_value(o, "peers.0.fragments", "6");
        assert_value(o, "peers.0.bytes", "7");
        assert_value(o, "peers.0.queued_bytes", "8");
        assert_value(o, "peers.0.fragments_lost", "null");
        assert_value(o, "peers.0.live", "null");
        json_decref(o);
        s->qos.backend = QOS_HTB;
        shared.shapings[4] = (struct metrics_shaped){
                .known = true, .rate_bps = 12, .limit_bytes = 13, .backlog_bytes = 14, .drops = 15};
        o = status_of(&v);
        assert_value(o, "shaped", "false");
        assert_value(o, "drops.source_qdisc_packets", "9");
        assert_int_equal(json_array_size(value_at(o, "shaping")), 1);
        assert_value(o, "shaping.0.node", "\"sfi2\"");
        assert_value(o, "shaping.0.address", "\"" SAMPLE_NET ".5\"");
        assert_value(o, "shaping.0.rate_bps", "12");
        assert_value(o, "shaping.0.limit_bytes", "13");
        assert_value(o, "shaping.0.backlog_bytes", "14");
        assert_value(o, "shaping.0.drops", "15");
        json_decref(o);
        sample_view_free(&v, &shared);
}

TEST(an_sfi_has_its_figures_in_its_status)
{
        struct metrics_state shared;
        struct metrics_view v = sample_view("sfi1", &shared);
        json_t *o;

        shared.credits = 3;
        shared.unwritten_events = 4;
        v.disk = (struct metrics_disk){true, 5, 10};
        v.counters[METRICS_COUNTER_packets_lost] = 20;
        v.counters[METRICS_COUNTER_packets_socket_dropped] = 14;
        v.counters[METRICS_COUNTER_fragments_late] = 7;
        v.counters[METRICS_COUNTER_fragments_corrupt] = 8;
        shared.peers[2] = (struct metrics_peer){.fragments = 9,
                                                .bytes = 10,
                                                .fragments_lost = 11,
                                                .fragments_absent = 12,
                                                .packets_lost = 13};
        o = status_of(&v);
        assert_value(o, "credits", "3");
        assert_value(o, "unwritten_events", "4");
        assert_value(o, "output_free_bytes", "5");
        assert_value(o, "output_size_bytes", "10");
        assert_value(o, "drops.network_packets", "6");
        assert_value(o, "drops.socket_packets", "14");
        assert_value(o, "drops.send_failed_packets", "null");
        assert_value(o, "fragments.late", "7");
        assert_value(o, "fragments.corrupt", "8");
        assert_value(o, "fragments.expected", "null");
        assert_value(o, "discarded.fragments.late", "7");
        assert_value(o, "discarded.packets.socket_full", "14");
        assert_int_equal(json_array_size(value_at(o, "peers")), 2);
        assert_value(o, "peers.1.node", "\"ros2\"");
        assert_value(o, "peers.1.fragments", "9");
        assert_value(o, "peers.1.bytes", "10");
        assert_value(o, "peers.1.fragments_lost", "11");
        assert_value(o, "peers.1.fragments_absent", "12");
        assert_value(o, "peers.1.packets_lost", "13");
        assert_value(o, "peers.1.queued_bytes", "null");
        json_decref(o);
        /* TCP has no packets of its own, and late datagrams are not lost. */
        ((struct scenario *)v.scenario)->scenario.transport = TRANSPORT_TCP;
        o = status_of(&v);
        assert_value(o, "drops.network_packets", "null");
        json_decref(o);
        ((struct scenario *)v.scenario)->scenario.transport = TRANSPORT_UDP;
        v.counters[METRICS_COUNTER_packets_lost] = 13;
        o = status_of(&v);
        assert_value(o, "drops.network_packets", "0");
        json_decref(o);
        sample_view_free(&v, &shared);
}

/* Of the last seconds, and only what the role can know. */
TEST(recent_losses_have_a_count_for_each_place)
{
        struct metrics_state shared;
        struct metrics_view v = sample_view("dfm", &shared);
        json_t *o;

        shared.losses =
                (struct losses){.older = {.now_ns = NS_PER_S, .lost = 2, .partial = 1, .packets_lost = 1},
                                .now = {.now_ns = 2 * NS_PER_S,
                                        .lost = 7,
                                        .partial = 7,
                                        .packets_lost = 31,
                                        .not_written = 4}};
        shared.losses.now.packets_socket_dropped = 10;
        shared.peers[2].lost_recently = 14;
        v.control_state = "error";
        strcpy(v.control_error, "it stalled");
        o = status_of(&v);
        assert_value(o, "control_error", "\"it stalled\"");
        assert_value(o, "losses.seconds", "4.0");
        assert_value(o, "losses.events_lost", "5");
        assert_value(o, "losses.events_partial", "6");
        assert_value(o, "losses.events_not_written", "null");
        assert_value(o, "losses.missing_fragments", "null");
        assert_value(o, "losses.network_packets", "null");
        assert_value(o, "losses.send_failed_packets", "null");
        json_decref(o);
        v.self = scenario_find(v.scenario, "sfi1");
        o = status_of(&v);
        assert_value(o, "losses.events_not_written", "4");
        assert_value(o, "losses.missing_fragments", "{\"ros2\": 14}");
        assert_value(o, "losses.network_packets", "20");
        assert_value(o, "losses.socket_packets", "10");
        assert_value(o, "losses.source_qdisc_packets", "null");
        json_decref(o);
        sample_view_free(&v, &shared);
}
