/* Builds the message for the DFM's page. Other nodes may send arbitrary answers, so the size of their answers
 * is limited. Omits data that the page does not need, because a large run has many pairs of nodes. */
#include "page.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "node/run_states.h"
#include "node/metrics/losses.h"
#include "node/metrics/statuses.h"
#include "node/metrics/run_summary.h"

/* Maximum size of the state of one node, and of all states together. The message omits states that are
 * longer. */
#define NODE_MAX_BYTES (256u << 10)
#define ALL_MAX_BYTES (8u << 20)
/* If there are more pairs than this, the page does not draw individual pairs. */
#define PAIRS_MAX 1024u

static void prune(json_t *value)
{
        const char *key;
        json_t *member;
        void *next;
        size_t i;

        json_object_foreach_safe(value, next, key, member)
        {
                if (json_is_null(member))
                        json_object_del(value, key);
                else
                        prune(member);
        }
        json_array_foreach(value, i, member) prune(member);
}

static double number_of(const json_t *o, const char *name)
{
        return json_number_value(json_object_get(o, name));
}

/* Adds the figures of one ROS's shaping to the sums for a destination. */
static void add_shaped(json_t *to, const json_t *one)
{
        static const char *const sums[] = {"rate_bps", "backlog_bytes", "limit_bytes",
                                           "bytes",    "packets",       "drops"};

        json_object_set_new(to, "sources", json_integer((json_int_t)number_of(to, "sources") + 1));
        for (size_t i = 0; i < ARRAY_SIZE(sums); i++)
                json_object_set_new(to, sums[i], json_real(number_of(to, sums[i]) + number_of(one, sums[i])));
}

/* Makes one empty sum for each SFI of the scenario, under its name. Other names have no sum. */
static json_t *make_sums(const struct scenario *s)
{
        json_t *sums = json_object();

        for (size_t i = 0; i < s->n_nodes; i++) {
                const struct scenario_node *n = &s->nodes[i];

                if (n->role == ROLE_SFI)
                        json_object_set_new(sums, n->name,
                                            json_pack("{s:s, s:s}", "node", n->name, "address", n->address));
        }
        return sums;
}

/* Sums the shaping of all ROSs, by destination. A ROS has at most one row for each SFI. */
static json_t *sum_shaping(const struct statuses *s)
{
        json_t *all = json_array(), *sums = make_sums(s->scenario), *sum;
        size_t rows_max = json_object_size(sums);
        const char *name;

        for (size_t i = 0; i < s->n; i++) {
                const json_t *rows = json_object_get(s->nodes[i].status, "shaping");
                size_t n = s->nodes[i].node->role == ROLE_ROS ? MIN(json_array_size(rows), rows_max) : 0;

                for (size_t k = 0; k < n; k++) {
                        const json_t *row = json_array_get(rows, k);

                        name = json_string_value(json_object_get(row, "node"));
                        sum = name ? json_object_get(sums, name) : NULL;
                        if (sum)
                                add_shaped(sum, row);
                }
        }
        json_object_foreach(sums, name, sum)
        {
                if (json_object_get(sum, "sources"))
                        json_array_append(all, sum);
        }
        json_decref(sums);
        return all;
}

static json_t *make_node(const struct statuses *s, const struct node_status *n, bool pairs, size_t *room)
{
        json_t *o = json_deep_copy(n->status), *made;
        struct node_status copy = *n;
        struct node_view view;
        char disk[DISK_TEXT_MAX];
        size_t bytes;
        bool is_low;

        if (o && !pairs && n->node->role != ROLE_DFM) {
                json_object_del(o, "peers");
                json_object_del(o, "shaping");
        }
        if (o) {
                json_object_del(o, "digest");
                json_object_del(o, "settings");
        }
        prune(o);
        bytes = o ? json_dumpb(o, NULL, 0, JSON_COMPACT) : 0;
        copy.status = o;
        if (bytes > MIN(NODE_MAX_BYTES, *room)) {
                copy.status = NULL;
                copy.condition = CONDITION_SILENT;
                snprintf(copy.problem, sizeof copy.problem, "the state at %s has %zu bytes, too many to show",
                         n->place, bytes);
                bytes = 0;
        }
        *room -= bytes;
        made = node_status_to_json(&copy);
        /* The original status is used, because the copy has no digests. */
        if (node_status_disk(&copy, disk, &is_low))
                json_object_set_new(made, "disk", json_pack("{s:s, s:b}", "text", disk, "low", is_low));
        node_view_make(s, copy.status ? n : &copy, 0, NEVER_NS, &view);
        json_object_set_new(made, "view", node_view_to_json(&view));
        json_decref(o);
        return made;
}

static json_t *make_nodes(const struct statuses *s)
{
        size_t room = ALL_MAX_BYTES,
               pairs = (size_t)scenario_count(s->scenario, ROLE_ROS) * scenario_count(s->scenario, ROLE_SFI);
        json_t *all = json_array();

        for (size_t i = 0; i < s->n; i++)
                json_array_append_new(all, make_node(s, &s->nodes[i], pairs <= PAIRS_MAX, &room));
        return all;
}

/* Describes the losses at one place: the total, and the losses of each node that has any. */
static json_t *make_place(const struct statuses *s, enum loss_place place, double total,
                          double (*lost)[LOSS_PLACES])
{
        json_t *nodes = json_object(), *o = json_pack("{s:s, s:s, s:o}", "place", loss_places[place].name,
                                                      "unit", loss_places[place].unit, "nodes", nodes);

        if (!isnan(total))
                json_object_set_new(o, "total", json_real(total));
        for (size_t i = 0; i < s->n; i++) {
                if (lost[i][place] > 0)
                        json_object_set_new(nodes, s->nodes[i].node->name, json_real(lost[i][place]));
        }
        return o;
}

static json_t *make_places(const struct statuses *s)
{
        _cleanup_free_ double(*lost)[LOSS_PLACES] = calloc(s->n + 1, sizeof *lost);
        double total[LOSS_PLACES];
        json_t *all = json_array();

        losses_begin(total);
        for (size_t i = 0; lost && i < s->n; i++) {
                losses_read(&s->nodes[i], lost[i]);
                losses_add(total, lost[i]);
        }
        losses_end(total);
        for (enum loss_place i = LOSS_NOWHERE + 1; lost && i < LOSS_PLACES; i++)
                json_array_append_new(all, make_place(s, i, total[i], lost));
        return all;
}

/* Lists the states of run control that allow each command; null: the page may not control runs. */
static json_t *make_commands(bool takes_commands)
{
        json_t *all = takes_commands ? json_object() : json_null();

        for (enum run_command c = 0; takes_commands && c < RUN_COMMANDS; c++) {
                json_t *states = json_array();

                for (enum run_control_state s = 0; s < RUN_CONTROL_STATES; s++) {
                        if (run_state_permits(s, c))
                                json_array_append_new(states, json_string(run_state_name(s)));
                }
                json_object_set_new(all, run_command_name(c), states);
        }
        return all;
}

char *page_make_message(const struct statuses *s, const struct page_moment *moment)
{
        const struct scenario *scenario = s->scenario;
        json_t *o = json_object();
        struct run_summary run;
        char *text;

        run_summary_make(s, &run);
        json_object_set_new(o, "run", run_summary_to_json(&run));
        json_object_set_new(json_object_get(o, "run"), "blames", json_boolean(run.blames));
        json_object_set_new(o, "time", json_real((double)moment->utc_ns / NS_PER_S));
        json_object_set_new(o, "elapsed", json_real((double)moment->elapsed_ns / NS_PER_S));
        json_object_set_new(o, "dfm", json_string(moment->dfm));
        json_object_set_new(o, "commands", make_commands(moment->takes_commands));
        json_object_set_new(o, "control",
                            (moment->control ? json_loads(moment->control, 0, NULL) : NULL) ?: json_null());
        json_object_set_new(o, "scenario", json_string(scenario->scenario.name));
        json_object_set_new(o, "mode", json_string(scenario->scenario.mode == MODE_PULL ? "pull" : "push"));
        json_object_set_new(o, "transport",
                            json_string(scenario->scenario.transport == TRANSPORT_TCP ? "tcp" : "udp"));
        json_object_set_new(o, "nodes", make_nodes(s));
        json_object_set_new(o, "places", make_places(s));
        json_object_set_new(o, "shaping", sum_shaping(s));
        text = json_dumps(o, JSON_COMPACT | JSON_REAL_PRECISION(12));
        json_decref(o);
        return text;
}
