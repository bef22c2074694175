/* Completes the report of evb sim. */
#include "summary_virtual.h"

#include <inttypes.h>

#include "conf/scenario.h"
#include "node/event_rates.h"
#include "shape/model/layout.h"

/* Sets all values of an object to null; the names stay. */
static void forget_values(json_t *o)
{
        const char *name;
        json_t *value;

        json_object_foreach(o, name, value)
        {
                json_object_set_new(o, name, json_null());
        }
}

static void set(json_t *o, const char *name, uint64_t value)
{
        json_object_set_new(o, name, json_integer((json_int_t)value));
}

/* What a node's own report has beside its counters. Its processors and memory do not exist. */
static void complete_node(json_t *node, const struct launch *l, const struct child *c)
{
        uint64_t backend = stats_get(&c->stats->qos_backend), rate_bps = stats_get(&c->stats->qos_rate_bps);

        json_object_set_new(node, "cpu_seconds", json_null());
        json_object_set_new(node, "peak_rss_bytes", json_null());
        json_object_set_new(node, "reasons", json_array());
        json_object_set_new(node, "metadata",
                            scenario_metadata_to_json(l->scenario->metadata, l->scenario->n_metadata));
        set(node, "run", l->virtual_run->run);
        set(node, "granted_receive_buffer_bytes", stats_get(&c->stats->granted_receive_buffer_bytes));
        set(node, "granted_send_buffer_bytes", stats_get(&c->stats->granted_send_buffer_bytes));
        if (c->node->role == ROLE_DFM)
                event_rates_add(node, c->stats);
        if (c->node->role == ROLE_SFI)
                json_object_set_new(node, "missing_fragments", json_null());
        if (c->node->role != ROLE_ROS)
                return;
        json_object_set_new(node, "interface", json_object());
        json_object_set_new(node, "qos_backend", json_string(tc_backend_name((enum tc_backend)backend)));
        json_object_set_new(node, "qos_rate_bps",
                            backend != TC_BACKEND_NONE ? json_integer((json_int_t)rate_bps) : json_null());
}

void summary_virtual_add(json_t *report, const struct launch *l)
{
        static const char *const of_roles[] = {"cpu_seconds", "cpu_percent", "peak_rss_bytes"};
        const json_t *nodes = json_object_get(report, "nodes");
        char digest[17];
        json_t *node;
        size_t i;

        if (!l->virtual_run)
                return;
        snprintf(digest, sizeof digest, "%016" PRIx64, l->virtual_run->digest);
        json_object_set_new(report, "seed", json_integer((json_int_t)l->virtual_run->seed));
        json_object_set_new(report, "digest", json_string(digest));
        json_object_set_new(report, "violation",
                            l->virtual_run->violation ? json_string(l->virtual_run->violation) : json_null());
        set(report, "plan_fits", l->virtual_run->plan_fits);
        set(report, "port_most_bytes", l->virtual_run->port_most_bytes);
        for (i = 0; i < ARRAY_SIZE(of_roles); i++)
                forget_values(json_object_get(report, of_roles[i]));
        json_array_foreach(nodes, i, node)
        {
                complete_node(node, l, &l->children[i]);
        }
}
