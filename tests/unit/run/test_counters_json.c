/* Tests counters on their way through JSON, valid and malformed. */
#include "../test.h"

#include <errno.h>

#include "base/util.h"
#include "conf/scenario.h"
#include "run/counters_json.h"

static struct node_stats counters, copy;

static void fill(void)
{
        uint64_t n = 1;

        memset(&counters, 0, sizeof counters);
        histogram_init(&counters.latency_ns);
        for (size_t i = 0; i < COUNTERS; i++)
                stats_set(stats_counter(&counters, i), n++ << 20);
        stats_set(&counters.first_complete_ns, 5);
        stats_set(&counters.last_complete_ns, INT64_MAX);
        stats_set(&counters.qos_backend, QOS_HTB);
        atomic_store(&counters.state, NODE_DRAINING);
        for (uint64_t v = 1; v < UINT64_C(1) << 40; v *= 3)
                histogram_add(&counters.latency_ns, v, v % 7 + 1);
}

TEST(round_trip)
{
        json_auto_t *o;

        fill();
        o = counters_to_json(&counters);
        assert_int_equal(counters_from_json(&copy, o), 0);
        for (size_t i = 0; i < COUNTERS; i++)
                assert_int_equal(stats_value(&copy, i), stats_value(&counters, i));
        assert_int_equal(stats_get(&copy.last_complete_ns), INT64_MAX);
        assert_int_equal(stats_get(&copy.qos_backend), QOS_HTB);
        assert_int_equal(atomic_load(&copy.state), NODE_DRAINING);
        assert_memory_equal(&copy.latency_ns, &counters.latency_ns, sizeof counters.latency_ns);
}

TEST(empty_histogram)
{
        struct histogram h, again;
        json_auto_t *o;

        histogram_init(&h);
        o = histogram_to_json(&h);
        assert_int_equal(histogram_from_json(&again, o), 0);
        assert_memory_equal(&h, &again, sizeof h);
}

/* Malformed input is rejected, never read as 0. */
TEST(rejects_malformed)
{
        static const char *const texts[] = {
                "7",
                "[]",
                "{}",
                "{\"state\": -1}",
                "{\"state\": 99, \"latency_ns\": {}}",
                "{\"state\": 1}",
                "{\"state\": 1, \"latency_ns\": []}",
                "{\"state\": 1, \"qos_backend\": 77, \"latency_ns\": {\"sum\": 0, \"max\": 0, \"buckets\": "
                "[]}}",
                "{\"state\": 1, \"latency_ns\": {\"sum\": 0, \"max\": 0, \"buckets\": [[-1, 1]]}}",
                "{\"state\": 1, \"latency_ns\": {\"sum\": 0, \"max\": 0, \"buckets\": [[1920, 1]]}}",
                "{\"state\": 1, \"latency_ns\": {\"sum\": 0, \"max\": 0, \"buckets\": [[5, 0]]}}",
                "{\"state\": 1, \"latency_ns\": {\"sum\": 0, \"max\": 0, \"buckets\": [7]}}",
                "{\"state\": 1, \"latency_ns\": {\"sum\": 1, \"max\": 1, \"buckets\": [[1, 1]]}}",
        };
        json_t *o;

        for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
                o = json_loads(texts[i], JSON_DECODE_ANY, NULL);
                assert_non_null(o);
                assert_int_equal(counters_from_json(&copy, o), -EBADMSG);
                json_decref(o);
        }
        assert_int_equal(counters_from_json(&copy, NULL), -EBADMSG);
}

/* A counter that is missing, negative or not an integer makes all of them invalid. */
TEST(rejects_bad_counters)
{
        static const char *const names[] = {"triggers", "busy_ns", "events_lost", "packets_socket_dropped",
                                            "qos_rate_bps"};

        fill();
        for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
                json_t *bad[] = {NULL, json_null(), json_string("many"), json_integer(-5), json_real(1.5)};

                for (size_t k = 0; k < ARRAY_SIZE(bad); k++) {
                        json_auto_t *o = counters_to_json(&counters);

                        assert_int_equal(json_object_del(o, names[i]), 0);
                        if (bad[k])
                                json_object_set_new(o, names[i], bad[k]);
                        assert_int_equal(counters_from_json(&copy, o), -EBADMSG);
                }
        }
}
