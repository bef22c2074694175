/* Tests how flows are split into endpoints, converted to JSON and summed up. */
#include "../test.h"

#include <errno.h>
#include <stdio.h>

#include "base/util.h"
#include "traffic/flow_endpoint.h"

static const struct scenario_node a = {.name = "a", .address = "10.0.0.1"},
                                  b = {.name = "b", .address = "10.0.0.2"},
                                  c = {.name = "c", .address = "10.0.0.3"};

static const struct flow unicast = {.kind = FLOW_TCP,
                                    .from = &a,
                                    .to = {&b},
                                    .n_to = 1,
                                    .port = 7000,
                                    .message_bytes = 100,
                                    .watch_wire = true};
static const struct flow multicast = {
        .kind = FLOW_MULTICAST,
        .from = &a,
        .to = {&b, &c},
        .n_to = 2,
        .group = "239.1.1.1",
        .port = 7001,
        .message_bytes = 8,
        .messages_per_s = 1000,
        .receiver_packets_per_s = 55000,
        .buffer_bytes = 1 << 20,
};

TEST(lists_receivers_first)
{
        struct flow_endpoint endpoints[FLOW_RECEIVERS_MAX + 2];

        assert_int_equal(flow_endpoints(&unicast, 3, endpoints), 3);
        assert_int_equal(endpoints[0].role, FLOW_RECEIVER);
        assert_int_equal(endpoints[1].role, FLOW_WATCHER);
        assert_fields(&endpoints[2], role, FLOW_SENDER, flow, 3);
        assert_string_equal(endpoints[2].at, "10.0.0.1");
        assert_string_equal(endpoints[1].at, "10.0.0.2");
        assert_int_equal(flow_endpoints(&multicast, 0, endpoints), 3);
        assert_string_equal(endpoints[1].to, "239.1.1.1");
        assert_string_equal(endpoints[1].at, "10.0.0.3");
        assert_int_equal(endpoints[1].which, 1);
}

TEST(round_trip)
{
        struct flow_endpoint endpoints[FLOW_RECEIVERS_MAX + 2], copy;
        unsigned n = flow_endpoints(&multicast, 5, endpoints);

        for (unsigned i = 0; i < n; i++) {
                json_auto_t *o = flow_endpoint_to_json(&endpoints[i]);

                memset(&copy, 0xee, sizeof copy);
                assert_int_equal(flow_endpoint_from_json(&copy, o), 0);
                assert_fields(&copy, role, endpoints[i].role, which, endpoints[i].which);
                assert_string_equal(copy.at, endpoints[i].at);
                assert_string_equal(copy.to, endpoints[i].to);
                assert_fields(&copy, messages_per_s, 1000, receiver_packets_per_s, 55000, buffer_bytes,
                              1 << 20, port, 7001);
        }
}

/* Each member is missing, has the wrong type, or exceeds its limits. */
TEST(rejects_malformed)
{
        static const char *const numbers[] = {"role",         "kind",           "flow",
                                              "which",        "port",           "message_bytes",
                                              "buffer_bytes", "messages_per_s", "receiver_packets_per_s"};
        static const char *const texts[] = {"from", "to", "at"};
        struct flow_endpoint endpoints[FLOW_RECEIVERS_MAX + 2], copy;
        char longer[80];

        memset(longer, '1', sizeof longer);
        longer[sizeof longer - 1] = '\0';
        flow_endpoints(&multicast, 0, endpoints);
        for (size_t i = 0; i < ARRAY_SIZE(numbers) + ARRAY_SIZE(texts); i++) {
                const char *name = i < ARRAY_SIZE(numbers) ? numbers[i] : texts[i - ARRAY_SIZE(numbers)];
                json_t *bad[] = {NULL, json_true(), json_integer(-1), json_integer(INT64_MAX),
                                 json_string(longer)};

                for (size_t k = 0; k < ARRAY_SIZE(bad); k++) {
                        json_auto_t *o = flow_endpoint_to_json(&endpoints[0]);

                        json_object_del(o, name);
                        if (bad[k])
                                json_object_set_new(o, name, bad[k]);
                        assert_int_equal(flow_endpoint_from_json(&copy, o), -EBADMSG);
                }
        }
}

TEST(adds_up_results)
{
        static struct flow_result r;
        static struct flow_counters counters = {.messages = 5, .bytes = 500, .socket_drops = 2};
        static struct histogram shares;
        struct flow_endpoint endpoints[FLOW_RECEIVERS_MAX + 2];
        unsigned n = flow_endpoints(&multicast, 0, endpoints);

        histogram_init(&shares);
        histogram_add(&shares, 5000, 3);
        for (unsigned i = 0; i < n; i++)
                flow_result_add(&r, &endpoints[i], &counters, 0.25, &shares);
        assert_int_equal(r.sent_messages, 5);
        assert_int_equal(r.received_messages[0], 5);
        assert_int_equal(r.received_bytes[1], 500);
        assert_true(r.sender_cpu_seconds == 0.25 && r.receiver_cpu_seconds == 0.5);
        assert_int_equal(r.socket_drops, 4);
        assert_int_equal(r.sender_shares.count, 3);
        assert_int_equal(r.receiver_shares.count, 6);
        assert_int_equal(r.gaps_ns.count, 0);
        histogram_add(&counters.gaps_ns, 7, 1);
        flow_result_add(&r, &endpoints[0], &counters, 0, &shares);
        assert_int_equal(r.gaps_ns.count, 1);
}
