/* Tests what the DFM's page is told: messages have a bound, whatever nodes answer, and the history is that of
 * the last ten minutes. */
#include "../json_assert.h"

#include "base/strbuf.h"
#include "conf/scenario.h"
#include "data/stats.h"
#include "node/page/history.h"
#include "node/page/page.h"

static struct {
        const char *control;
        struct scenario *scenario;
        struct statuses statuses;
} t;

static int tear_down(void **state)
{
        for (size_t i = 0; i < t.statuses.n; i++)
                json_decref(t.statuses.nodes[i].status);
        free(t.statuses.nodes);
        free(t.scenario);
        memset(&t, 0, sizeof t);
        return 0;
}

static void add(enum node_role role, unsigned index, const char *format)
{
        struct scenario *s = t.scenario;
        struct scenario_node *n = &s->nodes[s->n_nodes];
        struct node_status *status = &t.statuses.nodes[s->n_nodes++];

        n->role = role;
        n->index = index;
        snprintf(n->name, sizeof n->name, "%s%u", scenario_role_name(role), index + 1);
        snprintf(n->address, sizeof n->address, "10.0.0.%u", index + 1);
        *status = (struct node_status){.node = n};
        status->status = json_loads(format, 0, NULL);
        t.statuses.n = s->n_nodes;
}

/* All nodes of a role answer the same. */
static void make(unsigned n_ros, unsigned n_sfi, const char *ros, const char *sfi)
{
        t.scenario = calloc(1, sizeof *t.scenario);
        t.statuses.scenario = t.scenario;
        t.statuses.nodes = calloc(1 + n_ros + n_sfi, sizeof *t.statuses.nodes);
        t.scenario->ros.count = n_ros;
        t.scenario->sfi.count = n_sfi;
        add(ROLE_DFM, 0,
            "{\"node\": \"dfm1\", \"state\": \"running\", \"peers\": [{\"node\": \"ros1\"}], \"run\": null}");
        for (unsigned i = 0; i < n_ros; i++)
                add(ROLE_ROS, i, ros);
        for (unsigned i = 0; i < n_sfi; i++)
                add(ROLE_SFI, i, sfi);
}

static json_t *message(size_t *ret_bytes)
{
        const struct page_moment moment = {.dfm = "dfm1",
                                           .takes_commands = true,
                                           .control = t.control,
                                           .elapsed_ns = 3 * NS_PER_S / 2,
                                           .utc_ns = 7 * NS_PER_S};
        char *text = page_make_message(&t.statuses, &moment);
        json_t *o;

        assert_non_null(text);
        /* An event ends at a line end. */
        assert_null(strchr(text, '\n'));
        o = json_loads(text, 0, NULL);
        assert_non_null(o);
        if (ret_bytes)
                *ret_bytes = strlen(text);
        free(text);
        return o;
}

static double real(const json_t *o, const char *name)
{
        return json_number_value(json_object_get(o, name));
}

#define SHAPED                                                                                               \
        "{\"state\": \"running\", \"x\": null, \"peers\": [{\"node\": \"sfi1\", \"bytes\": 5, \"live\": "    \
        "null}],"                                                                                            \
        " \"shaping\": [{\"node\": \"sfi1\", \"address\": \"elsewhere\", \"rate_bps\": 100, \"drops\": 2,"   \
        " \"backlog_bytes\": 30}, {\"node\": \"sfi2\", \"rate_bps\": 7}]}"

TEST_WITH(shaping_is_summed_by_destination, NULL, tear_down)
{
        const json_t *row;
        json_t *o, *nodes;

        make(3, 2, SHAPED, "{\"state\": \"running\", \"shaping\": \"no array\"}");
        o = message(NULL);
        assert_true(real(o, "elapsed") == 1.5 && real(o, "time") == 7);
        assert_json(json_object_get(o, "run"), "{'state': 'running', 'ok': true, 'blames': false}");
        assert_int_equal(json_array_size(json_object_get(o, "shaping")), 2);
        row = json_array_get(json_object_get(o, "shaping"), 0);
        assert_json(row, "{'node': 'sfi1', 'address': '10.0.0.1'}");
        assert_true(real(row, "sources") == 3 && real(row, "rate_bps") == 300 && real(row, "drops") == 6);
        assert_true(real(row, "backlog_bytes") == 90);
        row = json_array_get(json_object_get(o, "shaping"), 1);
        assert_true(real(row, "sources") == 3 && real(row, "rate_bps") == 21);
        /* What is not known is left out, in all depths. */
        nodes = json_object_get(o, "nodes");
        row = json_array_get(nodes, 1);
        assert_null(json_object_get(row, "x"));
        row = json_array_get(json_object_get(row, "peers"), 0);
        assert_true(real(row, "bytes") == 5);
        assert_null(json_object_get(row, "live"));
        json_decref(o);
}

/* The text of a disk is that of evb status. */
TEST_WITH(run_control_and_disks_are_shown, NULL, tear_down)
{
        json_auto_t *before = NULL, *o = NULL;
        const json_t *nodes;

        make(1, 2, "{\"state\": \"running\"}",
             "{\"state\": \"running\", \"output_free_bytes\": 1000000000, \"output_size_bytes\": "
             "100000000000,"
             " \"output_left_seconds\": 7200}");
        before = message(NULL);
        assert_true(json_is_null(json_object_get(before, "control")));
        t.control = "{\"seconds\": 5.5, \"last_run\": {\"run\": 6}}";
        o = message(NULL);
        assert_json(json_object_get(o, "control"), "{'seconds': 5.5, 'last_run': {'run': 6}}");
        nodes = json_object_get(o, "nodes");
        assert_null(json_object_get(json_array_get(nodes, 1), "disk"));
        assert_json(json_object_get(json_array_get(nodes, 2), "disk"),
                    "{'text': '1 GB of 100 GB free, full in 2.0 h', 'low': true}");
}

/* A refused packet is missing at an SFI, but the network did not lose it. */
TEST_WITH(losses_are_summed_by_place, NULL, tear_down)
{
        json_auto_t *o;
        const json_t *places;

        make(2, 2,
             "{\"state\": \"running\", \"drops\": {\"send_failed_packets\": 2, \"socket_packets\": 9},"
             " \"discarded\": {\"packets\": {\"socket_full\": 9, \"malformed\": 1}}}",
             "{\"state\": \"running\", \"drops\": {\"network_packets\": 5, \"socket_packets\": 3},"
             " \"counts\": {\"events_partial\": 7}, \"fragments\": {\"lost\": 8, \"corrupt\": null}}");
        o = message(NULL);
        places = json_object_get(o, "places");
        assert_int_equal(json_array_size(places), LOSS_PLACES - 1);
#define PLACE(name) json_array_get(places, LOSS_##name - 1)
        assert_json(PLACE(SEND_FAILED),
                    "{'total': 4.0, 'unit': 'packet', 'nodes': {'ros1': 2.0, 'ros2': 2.0}}");
        assert_json(PLACE(NETWORK),
                    "{'place': 'Network and switch', 'total': 6.0, 'nodes': {'sfi1': 5.0, 'sfi2': 5.0}}");
        assert_json(PLACE(SOCKET), "{'total': 6.0, 'nodes': {'sfi1': 3.0, 'sfi2': 3.0}}");
        assert_json(PLACE(FRAME_SOCKET), "{'total': 18.0}");
        assert_json(PLACE(FOREIGN), "{'total': 2.0}");
        assert_json(PLACE(MISSING), "{'total': 16.0}");
        assert_null(json_object_get(PLACE(CORRUPT), "total"));
        /* Only the DFM counts each event once, and it has not said. */
        assert_null(json_object_get(PLACE(PARTIAL), "total"));
}

TEST_WITH(pairs_of_very_many_nodes_are_left_out, NULL, tear_down)
{
        json_t *o, *node;

        make(33, 32, SHAPED, SHAPED);
        o = message(NULL);
        node = json_array_get(json_object_get(o, "nodes"), 1);
        assert_true(json_is_true(json_object_get(node, "reachable")));
        assert_null(json_object_get(node, "peers"));
        assert_null(json_object_get(node, "shaping"));
        /* The sums remain, and the DFM's view of each node. */
        assert_true(real(json_array_get(json_object_get(o, "shaping"), 0), "sources") == 33);
        node = json_array_get(json_object_get(o, "nodes"), 0);
        assert_int_equal(json_array_size(json_object_get(node, "peers")), 1);
        json_decref(o);
}

/* A ROS may name any destinations, as many as it likes. */
TEST_WITH(shaping_is_that_of_the_scenario, NULL, tear_down)
{
        static char text[200000];
        struct strbuf b = strbuf_init(text, sizeof text);
        const json_t *rows;
        json_auto_t *o;

        strbuf_add(&b, "{\"state\": \"running\", \"shaping\": [{\"node\": \"sfi1\", \"rate_bps\": 1}, {}");
        for (unsigned i = 0; i < 5000; i++)
                strbuf_add(&b, ", {\"node\": \"x%u\", \"rate_bps\": 1}", i);
        strbuf_add(&b, ", {\"node\": \"sfi2\", \"rate_bps\": 1}]}");
        assert_false(b.cut);
        make(2, 3, text, text);
        o = message(NULL);
        rows = json_object_get(o, "shaping");
        assert_int_equal(json_array_size(rows), 1);
        assert_true(real(json_array_get(rows, 0), "sources") == 2);
}

/* Each state is short enough, and all together are not. */
TEST_WITH(messages_have_a_bound, NULL, tear_down)
{
        static char text[250000];
        json_t *o, *node;
        size_t bytes, shown = 0;

        memset(text, 'x', sizeof text - 1);
        memcpy(text, "{\"state\": \"running\", \"reason\": \"", 32);
        memcpy(text + sizeof text - 3, "\"}", 3);
        make(60, 1, text, text);
        o = message(&bytes);
        assert_true(bytes < (9u << 20) && bytes > (7u << 20));
        for (size_t i = 0; i < json_array_size(json_object_get(o, "nodes")); i++) {
                node = json_array_get(json_object_get(o, "nodes"), i);
                shown += json_is_true(json_object_get(node, "reachable"));
                if (json_is_true(json_object_get(node, "reachable")))
                        continue;
                assert_non_null(strstr(json_string_value(json_object_get(node, "problem")), "too many"));
                assert_string_equal(json_string_value(json_object_get(node, "condition")), "no answer");
        }
        assert_int_equal(shown, 1 + (8u << 20) / strlen(text));
        json_decref(o);
}

TEST_WITH(the_history_is_of_ten_minutes, NULL, tear_down)
{
        static struct node_stats stats;
        _cleanup_(history_fini) struct history h;
        json_t *o, *rows;
        _cleanup_free_ char *text;

        history_init(&h);
        for (unsigned i = 0; i <= HISTORY_MAX + 50; i++) {
                atomic_store(&stats.events_complete, 100u * i);
                atomic_store(&stats.payload_bytes, 2000u * i);
                atomic_store(&stats.busy_ns, (uint64_t)i * NS_PER_S / 2);
                history_add(&h, &stats, (2u * i + 1) * NS_PER_S, (1000u + 2u * i) * NS_PER_S);
        }
        text = history_text(&h);
        o = json_loads(text, 0, NULL);
        rows = json_object_get(o, "samples");
        assert_int_equal(json_array_size(rows), HISTORY_MAX);
        for (size_t i = 0; i < HISTORY_MAX; i++) {
                const json_t *row = json_array_get(rows, i);

                /* Two seconds lie between samples; the first has no rates. */
                assert_true(json_number_value(json_array_get(row, 0)) == 1000 + 2 * (51 + (double)i));
                assert_true(json_number_value(json_array_get(row, 2)) == 50);
                assert_true(json_number_value(json_array_get(row, 3)) == 1000);
                assert_true(json_number_value(json_array_get(row, 4)) == 0.25);
        }
        json_decref(o);
}

/* With the next run of the process, the counters begin again. */
TEST_WITH(the_next_run_has_rates_of_its_own, NULL, tear_down)
{
        static struct node_stats stats;
        _cleanup_(history_fini) struct history h;
        const json_t *row;
        json_auto_t *o;
        _cleanup_free_ char *text;

        history_init(&h);
        atomic_store(&stats.events_complete, 1000);
        atomic_store(&stats.payload_bytes, 5000);
        history_add(&h, &stats, NS_PER_S, 1000 * NS_PER_S);
        atomic_store(&stats.events_complete, 30);
        atomic_store(&stats.payload_bytes, 0);
        history_add(&h, &stats, 2 * NS_PER_S, 1001 * NS_PER_S);
        text = history_text(&h);
        o = json_loads(text, 0, NULL);
        row = json_array_get(json_object_get(o, "samples"), 0);
        assert_true(json_number_value(json_array_get(row, 2)) == 30);
        assert_true(json_number_value(json_array_get(row, 3)) == 0);
}
