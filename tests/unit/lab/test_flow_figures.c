/* Tests the figures of plain flows, and when they are null. */
#include "../test.h"

#include "base/util.h"
#include "lab/flow_figures.h"

static struct flow flow;
static struct flow_result result;

static int set_up(void **state)
{
        flow = (struct flow){.kind = FLOW_UDP, .n_to = 1};
        result = (struct flow_result){.seconds = 2, .sending_seconds = 2};
        histogram_init(&result.sender_shares);
        histogram_init(&result.receiver_shares);
        histogram_init(&result.gaps_ns);
        return 0;
}

static void assert_null_in(const json_t *o, const char *name)
{
        if (!json_is_null(json_object_get(o, name)))
                fail_msg("%s is not null", name);
}

static double number(const json_t *o, const char *name)
{
        assert_true(json_is_number(json_object_get(o, name)));
        return json_number_value(json_object_get(o, name));
}

TEST_WITH(loss_is_null_without_messages, set_up, NULL)
{
        json_auto_t *o = flow_figures(&flow, &result, 1);

        assert_null_in(o, "loss_percent");
        assert_null_in(o, "lost_messages");
        assert_true(number(o, "received_mbps") == 0);
}

TEST_WITH(loss_counts_missing_messages, set_up, NULL)
{
        json_t *o;

        result.sent_messages = result.received_messages[0] = 10;
        result.sent_bytes = result.received_bytes[0] = 1000000;
        o = flow_figures(&flow, &result, 1);
        assert_true(number(o, "loss_percent") == 0 && number(o, "lost_messages") == 0 &&
                    number(o, "received_mbps") == 4);
        json_decref(o);
        result.received_messages[0] = 5;
        o = flow_figures(&flow, &result, 1);
        assert_true(number(o, "loss_percent") == 50);
        json_decref(o);
}

TEST_WITH(gaps_are_null_without_packets, set_up, NULL)
{
        json_t *o;

        flow.watch_wire = true;
        o = flow_figures(&flow, &result, 1);
        assert_null_in(o, "gap_p50_us");
        assert_null_in(o, "gap_max_us");
        assert_null(json_object_get(o, "gap_below"));
        json_decref(o);
        o = flow_figures_echo(&result);
        assert_null_in(o, "echo_p99_us");
        assert_true(number(o, "echoes") == 0);
        json_decref(o);
        histogram_add(&result.gaps_ns, 5000, 1);
        o = flow_figures(&flow, &result, 1);
        assert_true(number(o, "gap_p50_us") > 4 && json_array_size(json_object_get(o, "gap_below")) == 71);
        json_decref(o);
}

TEST_WITH(drops_are_null_where_unknown, set_up, NULL)
{
        json_auto_t *o = json_object();

        result.source_drops = 3;
        result.socket_drops = 4;
        flow_figures_add_losses(o, &result, 1, FLOW_UDP, true);
        assert_true(number(o, "source_packets") == 3 && number(o, "socket_packets") == 4);
        assert_null_in(o, "switch_packets");
        flow_figures_add_losses(o, &result, 1, FLOW_TCP, false);
        assert_null_in(o, "source_packets");
        assert_null_in(o, "socket_packets");
        result.source_drops_unknown = true;
        flow_figures_add_losses(o, &result, 1, FLOW_UDP, true);
        assert_null_in(o, "source_packets");
}
