/* Builds the report of a whole run from the nodes' reports and counters, which outlive a killed node. A run
 * in virtual time has additional figures, but none for processors and memory. */
#include "run/summary.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "base/json.h"
#include "base/log.h"
#include "base/quantity.h"
#include "base/util.h"
#include "conf/scenario.h"
#include "data/network.h"
#include "node/metrics/counters.h"
#include "node/metrics/losses.h"
#include "run/launched_run.h"
#include "shape/model/layout.h"
#include "sys/thread.h"

#define SUM(l, role, name) launch_sum(l, role, COUNTER_##name)

/* ---- Triggers from outside ---- */

static bool is_outside(const struct launch *l)
{
        return l->scenario->trigger.source_kind != TRIGGER_INTERNAL;
}

/* Adds the counters of these triggers, which are null if the DFM made the triggers, and the times in which no
 * trigger was accepted. `sums`: from launch_sums(). */
static void trigger_summary_add(json_t *report, const struct launch *l, const uint64_t *sums)
{
        const struct node_stats *s = launch_dfm(l)->stats;
        unsigned known = is_outside(l) ? COUNTER_ROLE(ROLE_DFM) : 0;
        json_t *spills = known ? json_object() : json_null();

        counters_set(report, OBJECT_OUTSIDE, known, sums);
        if (known)
                counters_set(spills, OBJECT_SPILLS, known, sums);
        json_object_set_new(report, "spills", spills);
        json_object_set_new(report, "busy_seconds", json_real((double)stats_get(&s->busy_ns) / 1e9));
        json_object_set_new(report, "paused_seconds", json_real((double)stats_get(&s->paused_ns) / 1e9));
        json_object_set_new(report, "busy_datagrams",
                            json_count_if(strcmp(l->scenario->trigger.busy_to, "none") != 0,
                                          stats_get(&s->busy_datagrams)));
}

static void trigger_summary_write(const struct launch *l)
{
        const struct node_stats *s = launch_dfm(l)->stats;

        if (!is_outside(l))
                return;
        printf("  triggers   %" PRIu64 " offered: %" PRIu64 " refused, %" PRIu64 " repeated, %" PRIu64
               " implausible, %" PRIu64 " not taken; %" PRIu64 " datagrams lost\n",
               stats_get(&s->triggers_offered), stats_get(&s->triggers_refused),
               stats_get(&s->triggers_repeated), stats_get(&s->triggers_implausible),
               stats_get(&s->triggers_not_taken), stats_get(&s->trigger_datagrams_lost));
        if (stats_get(&s->spills_begun) > 0)
                printf("  spills     %" PRIu64 " begun, %" PRIu64 " ended, %" PRIu64 " triggers within\n",
                       stats_get(&s->spills_begun), stats_get(&s->spills_ended),
                       stats_get(&s->triggers_in_spills));
}

static void trigger_summary_write_times(const struct launch *l)
{
        const struct node_stats *s = launch_dfm(l)->stats;

        printf("  busy       triggers held back for %.2f s\n", (double)stats_get(&s->busy_ns) / 1e9);
        if (stats_get(&s->paused_ns) > 0)
                printf("  paused     triggers paused for %.2f s\n", (double)stats_get(&s->paused_ns) / 1e9);
}

/* Checks that each offered trigger was either accepted or refused, once. */
static bool trigger_summary_balances(const struct launch *l, struct accounts *a)
{
        const struct node_stats *s = launch_dfm(l)->stats;
        uint64_t not_taken = stats_get(&s->triggers_refused) + stats_get(&s->triggers_repeated) +
                             stats_get(&s->triggers_implausible) + stats_get(&s->triggers_not_taken);
        uint64_t offered = stats_get(&s->triggers_offered), announced = stats_get(&s->numbers_announced),
                 others = stats_get(&s->numbers_confirmed) + stats_get(&s->numbers_late);

        if (!is_outside(l) || child_state(launch_dfm(l)) != NODE_ENDED)
                return true;
        if ((l->scenario->trigger.source_kind == TRIGGER_FRAMES || scenario_has_slices(l->scenario)) &&
            announced != offered + others) {
                snprintf(a->difference, sizeof a->difference,
                         "%" PRIu64 " numbers were announced, but %" PRIu64
                         " offered as triggers, and %" PRIu64 " confirmed or late",
                         announced, offered, others);
                return false;
        }
        if (offered == a->triggers + not_taken)
                return true;
        snprintf(a->difference, sizeof a->difference,
                 "%" PRIu64 " triggers were offered, but %" PRIu64 " taken and %" PRIu64 " not taken",
                 offered, a->triggers, not_taken);
        return false;
}

/* Checks that the ROSs account for each fragment that level 2 requested. */
static bool summary_level2_balances(const struct launch *l, struct accounts *a)
{
        uint64_t ends = SUM(l, ROLE_ROS, regions_sent) + SUM(l, ROLE_ROS, regions_gone) +
                        SUM(l, ROLE_ROS, regions_absent) + SUM(l, ROLE_ROS, regions_refused) +
                        SUM(l, ROLE_ROS, regions_dropped);

        if (!a->all_lived || SUM(l, ROLE_ROS, regions_requested) == ends)
                return true;
        snprintf(a->difference, sizeof a->difference,
                 "level 2 requested %" PRIu64 " fragments, but the ROSs account for %" PRIu64,
                 SUM(l, ROLE_ROS, regions_requested), ends);
        return false;
}

static json_t *describe(const struct launch *l, const uint64_t *sums, json_t *latency)
{
        json_t *o = json_object(), *regions = json_object();

        counters_set(o, OBJECT_LEVEL2, COUNTER_ROLE(ROLE_DFM), sums);
        counters_set(regions, OBJECT_REGIONS, COUNTER_ROLE(ROLE_ROS), sums);
        json_object_set_new(o, "latency_us", latency);
        json_object_set(o, "regions", l->scenario->level2.regions_port > 0 ? regions : json_null());
        json_decref(regions);
        return o;
}

/* Adds `events_rejected`, and `level2` (null without level 2). `sums`: from launch_sums(). Takes ownership of
 * `latency`. */
static void summary_level2_add(json_t *report, const struct launch *l, const uint64_t *sums, json_t *latency)
{
        json_int_t rejected = (json_int_t)sums[COUNTER_events_rejected];
        json_t *o = describe(l, sums, latency);

        json_object_set_new(report, "events_rejected", json_integer(rejected));
        json_object_set(report, "level2", l->scenario->level2.port > 0 ? o : json_null());
        json_decref(o);
}

/* Prints the summary of level 2, if it is configured. */
static void summary_write_level2(const struct launch *l)
{
        const struct node_stats *s = launch_dfm(l)->stats;
        const struct histogram *h = &s->level2_latency_ns;
        char p50[QUANTITY_TEXT_MAX], p99[QUANTITY_TEXT_MAX];
        uint64_t useless =
                stats_get(&s->level2_late) + stats_get(&s->level2_repeated) + stats_get(&s->level2_unknown);

        if (l->scenario->level2.port == 0)
                return;
        printf("  level 2    %" PRIu64 " accepted, %" PRIu64 " rejected, %" PRIu64 " timed out; %" PRIu64
               " decisions without effect",
               stats_get(&s->level2_accepted), stats_get(&s->level2_rejected),
               stats_get(&s->level2_timed_out), useless);
        if (h->count > 0)
                printf("; median %s, 99th percentile %s",
                       quantity_format_time(histogram_quantile(h, 0.5), p50),
                       quantity_format_time(histogram_quantile(h, 0.99), p99));
        putchar('\n');
        if (l->scenario->level2.regions_port > 0)
                printf("  regions    %" PRIu64 " fragments requested by level 2, %" PRIu64
                       " sent (%s), %" PRIu64 " of events decided before, %" PRIu64 " absent, %" PRIu64
                       " refused, %" PRIu64 " dropped\n",
                       SUM(l, ROLE_ROS, regions_requested), SUM(l, ROLE_ROS, regions_sent),
                       quantity_format_bytes(SUM(l, ROLE_ROS, regions_bytes), p50),
                       SUM(l, ROLE_ROS, regions_gone), SUM(l, ROLE_ROS, regions_absent),
                       SUM(l, ROLE_ROS, regions_refused), SUM(l, ROLE_ROS, regions_dropped));
}

/* Adds stalled_seconds, stall_reason and ended_by_stall to the report of a node that was killed, from its
 * counters. */
static void summary_stall_of_killed(json_t *node, const struct child *c)
{
        struct obstacle last;

        (void)obstacle_read(&c->stats->last_stall, &last);
        json_object_set_new(node, "stalled_seconds",
                            json_real((double)stats_get(&c->stats->stalled_ns) / NS_PER_S));
        json_object_set_new(node, "stall_reason", json_text(last.text));
        json_object_set_new(node, "ended_by_stall", json_false());
}

/* An older DFM does not report these members. */
static void summary_stall_add(json_t *report, const json_t *dfm)
{
        static const char *const names[] = {"stalls", "stalled_seconds", "stall_reason"};

        for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
                json_t *value = json_object_get(dfm, names[i]);

                json_object_set_new(report, names[i], value ? json_incref(value) : json_null());
        }
}

/* Prints a line if the run was stalled. */
static void summary_stall_print(const json_t *report)
{
        json_int_t stalls = json_integer_value(json_object_get(report, "stalls"));
        const char *why = json_string_value(json_object_get(report, "stall_reason"));

        if (stalls > 0)
                printf("  stalled    %" JSON_INTEGER_FORMAT " time%s, %.1f s without progress; %s%s\n",
                       stalls, stalls == 1 ? "" : "s",
                       json_real_value(json_object_get(report, "stalled_seconds")),
                       stalls == 1 ? "" : "last: ", why ? why : "unknown reason");
}

/* Sets all values of an object to null; the names remain. */
static void forget_values(json_t *o)
{
        const char *name;
        json_t *value;

        json_object_foreach(o, name, value)
        {
                json_object_set_new(o, name, json_null());
        }
}

/* Adds the members of a node's own report other than counters. Virtual nodes have no processors and
 * memory. */
static void complete_node(json_t *node, const struct launch *l, const struct child *c)
{
        uint64_t backend = stats_get(&c->stats->qos_backend), rate_bps = stats_get(&c->stats->qos_rate_bps);

        json_object_set_new(node, "cpu_seconds", json_null());
        json_object_set_new(node, "peak_rss_bytes", json_null());
        json_object_set_new(node, "reasons", json_array());
        json_object_set_new(node, "metadata",
                            scenario_metadata_to_json(l->scenario->metadata, l->scenario->n_metadata));
        json_put_count(node, "run", l->virtual_run->run);
        json_put_count(node, "granted_receive_buffer_bytes",
                       stats_get(&c->stats->granted_receive_buffer_bytes));
        json_put_count(node, "granted_send_buffer_bytes", stats_get(&c->stats->granted_send_buffer_bytes));
        if (c->node->role == ROLE_DFM)
                event_rates_add(node, c->stats);
        if (c->node->role == ROLE_SFI) {
                json_object_set_new(node, "missing_fragments", json_null());
                json_object_set_new(node, "file_records", json_array());
        }
        if (c->node->role != ROLE_ROS)
                return;
        json_object_set_new(node, "interface", json_object());
        json_object_set_new(node, "qos_backend", json_string(tc_backend_name((enum tc_backend)backend)));
        json_object_set_new(node, "qos_rate_bps", json_count_if(backend != TC_BACKEND_NONE, rate_bps));
}

/* Adds "seed" and "digest", and sets figures of processors and memory to null, because virtual nodes have
 * none. Has no effect on a real run. */
static void summary_virtual_add(json_t *report, const struct launch *l)
{
        static const char *const of_roles[] = {"cpu_seconds", "cpu_percent", "peak_rss_bytes"};
        const json_t *nodes = json_object_get(report, "nodes");
        char digest[17];
        json_t *node;
        size_t i;

        if (!l->virtual_run)
                return;
        snprintf(digest, sizeof digest, "%016" PRIx64, l->virtual_run->digest);
        json_put_count(report, "seed", l->virtual_run->seed);
        json_object_set_new(report, "digest", json_string(digest));
        json_object_set_new(report, "violation", json_text(l->virtual_run->violation ?: ""));
        json_put_count(report, "plan_fits", l->virtual_run->plan_fits);
        json_put_count(report, "port_most_bytes", l->virtual_run->port_most_bytes);
        for (i = 0; i < ARRAY_SIZE(of_roles); i++)
                forget_values(json_object_get(report, of_roles[i]));
        json_array_foreach(nodes, i, node)
        {
                complete_node(node, l, &l->children[i]);
        }
}

#define ROLES (~0u)
#define CONTROL_LEAST_S 0.1

/* Checks that the files contain all events that the SFIs count as built: each SFI that was not killed has
 * closed its last file. */
static bool files_balance(const struct launch *l, struct accounts *a)
{
        bool balanced = true;

        if (l->scenario->sfi.output != OUTPUT_FILE)
                return true;
        for (size_t i = 0; i < l->n_children; i++) {
                const struct child *c = &l->children[i];
                uint64_t built = stats_get(&c->stats->events_complete) + stats_get(&c->stats->events_partial);
                uint64_t stored = stats_get(&c->stats->events_stored);

                if (c->node->role != ROLE_SFI || !child_lived(c) || built == stored)
                        continue;
                snprintf(a->difference, sizeof a->difference,
                         "%s counts %" PRIu64 " complete or partial events, but %" PRIu64
                         " in its closed files",
                         c->node->name, built, stored);
                balanced = false;
        }
        return balanced;
}

/* Checks that the DFM counts every event that an SFI built. The SFIs may also have built events that the DFM
 * reassigned or counts as lost. */
static bool builders_balance(const struct launch *l, struct accounts *a)
{
        uint64_t built = SUM(l, ROLE_SFI, events_complete) + SUM(l, ROLE_SFI, events_partial);
        uint64_t again = stats_get(&launch_dfm(l)->stats->events_reassigned) + a->lost;

        if (!a->all_lived || (built >= a->complete + a->partial && built <= a->complete + a->partial + again))
                return true;
        snprintf(a->difference, sizeof a->difference,
                 "the DFM counts %" PRIu64 " complete or partial events, the SFIs %" PRIu64,
                 a->complete + a->partial, built);
        return false;
}

/* Returns the number of events that SFIs built, minus the number of events that the DFM counts as complete,
 * partial, lost or ended again. The DFM learned of each event that it counts from one SFI only. */
static uint64_t unexplained(const struct launch *l, const struct accounts *a)
{
        uint64_t built = SUM(l, ROLE_SFI, events_complete) + SUM(l, ROLE_SFI, events_partial);
        uint64_t counted =
                a->complete + a->partial + a->lost + stats_get(&launch_dfm(l)->stats->events_ended_again);

        return a->all_lived && built > counted ? built - counted : 0;
}

/* If the DFM died during the run, its counters do not include the last events. */
static bool dfm_counts_are_final(const struct launch *l, struct accounts *a)
{
        const struct child *dfm = launch_dfm(l);
        uint64_t built = SUM(l, ROLE_SFI, events_complete) + SUM(l, ROLE_SFI, events_partial);

        if (child_lived(dfm) || child_state(dfm) == NODE_ENDED || (a->triggers == 0 && built == 0))
                return true;
        snprintf(a->difference, sizeof a->difference,
                 "%s died, and had last counted %" PRIu64 " triggers and %" PRIu64
                 " complete or partial events: the rest counts as lost, but the SFIs built %" PRIu64,
                 dfm->node->name, a->triggers, a->complete + a->partial, built);
        return false;
}

static struct accounts account(const struct launch *l)
{
        const struct child *dfm = launch_dfm(l);
        const struct node_stats *s = dfm->stats;
        struct accounts a = {
                .triggers = stats_get(&s->triggers),
                .assigned = stats_get(&s->events_assigned),
                .complete = stats_get(&s->events_complete),
                .partial = stats_get(&s->events_partial),
                .lost = stats_get(&s->events_lost),
                .rejected = stats_get(&s->events_rejected),
                .expected = stats_get(&s->fragments_expected),
                .received = stats_get(&s->fragments_received),
                .fragments_lost = stats_get(&s->fragments_lost),
                .fragments_absent = stats_get(&s->fragments_optional),
                .payload_bytes = stats_get(&s->payload_bytes),
        };
        uint64_t n_ros = l->scenario->ros.count, ends = a.complete + a.partial + a.lost + a.rejected;

        a.stored = SUM(l, ROLE_SFI, events_stored);
        a.all_lived = true;
        for (size_t i = 0; i < l->n_children; i++)
                a.all_lived &= child_lived(&l->children[i]);
        /* If the DFM was killed or stopped waiting, its open events and their fragments are lost. */
        if (child_state(dfm) != NODE_ENDED && a.triggers > ends) {
                a.lost += a.triggers - ends;
                ends = a.triggers;
                a.expected = (a.triggers - a.rejected) * n_ros;
                a.fragments_lost = a.expected - a.received - a.fragments_absent;
        }
        a.balanced = a.triggers == ends && a.expected == (a.triggers - a.rejected) * n_ros &&
                     a.expected == a.received + a.fragments_lost + a.fragments_absent;
        a.balanced &= builders_balance(l, &a);
        a.balanced &= files_balance(l, &a);
        a.balanced &= trigger_summary_balances(l, &a) && summary_level2_balances(l, &a);
        a.balanced &= front_ends_balance(l, a.difference, sizeof a.difference);
        a.balanced &= dfm_counts_are_final(l, &a);
        a.unexplained = unexplained(l, &a);
        return a;
}

/* Processor time is summed over a role's nodes. Shares and peak memory are per node. */
static void add_usage(json_t *o, const struct launch *l)
{
        json_t *cpu = json_object(), *shares = json_object(), *rss = json_object();

        for (enum node_role role = ROLE_DFM; role <= ROLE_SFI; role++) {
                double seconds = 0;
                long peak = 0;

                for (size_t i = 0; i < l->n_children; i++) {
                        if (l->children[i].node->role != role)
                                continue;
                        seconds += child_cpu_seconds(&l->children[i]);
                        peak = MAX(peak, l->children[i].usage.ru_maxrss);
                }
                json_object_set_new(cpu, scenario_role_name(role), json_real(seconds));
                json_object_set_new(shares, scenario_role_name(role),
                                    cpu_meter_describe(&l->cpu_shares[role]));
                json_put_count(rss, scenario_role_name(role), (uint64_t)peak * 1024);
        }
        json_object_set_new(o, "cpu_seconds", cpu);
        json_object_set_new(o, "cpu_percent", shares);
        json_object_set_new(o, "peak_rss_bytes", rss);
}

/* Uses the counts of the DFM, completed if the DFM was killed. */
static json_t *fragments(const struct accounts *a, const uint64_t *sums)
{
        json_t *o = json_object();

        counters_set(o, OBJECT_FRAGMENTS, ROLES, sums);
        json_put_count(o, "expected", a->expected);
        json_put_count(o, "received", a->received);
        json_put_count(o, "lost", a->fragments_lost);
        json_put_count(o, "absent", a->fragments_absent);
        json_put_count(o, "foreign", sums[COUNTER_packets_foreign]);
        json_put_count(o, "malformed", sums[COUNTER_packets_malformed]);
        return o;
}

static const struct node_stats *shaped_ros(const struct launch *l)
{
        for (size_t i = 0; i < l->n_children; i++) {
                if (l->children[i].node->role == ROLE_ROS &&
                    stats_get(&l->children[i].stats->qos_backend) != TC_BACKEND_NONE)
                        return l->children[i].stats;
        }
        return NULL;
}

static json_t *known(double value)
{
        return isnan(value) ? json_null() : json_count((uint64_t)value);
}

static json_t *drops(const struct launch *l)
{
        double lost[LOSS_PLACES], node[LOSS_PLACES];
        uint64_t counts[COUNTERS];
        json_t *o = json_object();

        losses_begin(lost);
        for (size_t i = 0; i < l->n_children; i++) {
                stats_read(l->children[i].stats, counts);
                losses_of_node(l->scenario, l->children[i].node->role, counts, node);
                losses_add(lost, node);
        }
        losses_end(lost);
        json_object_set_new(o, loss_places[LOSS_SOURCE_QDISC].key,
                            shaped_ros(l) ? known(lost[LOSS_SOURCE_QDISC]) : json_null());
        json_object_set_new(o, loss_places[LOSS_NETWORK].key, known(lost[LOSS_NETWORK]));
        json_object_set_new(o, "switch_packets", json_count_if(l->has_switch, l->at_switch.dropped_packets));
        json_object_set_new(o, loss_places[LOSS_SOCKET].key, known(lost[LOSS_SOCKET]));
        return o;
}

/* Control messages that arrived at the port of each node, and the bound on their rate. */
static json_t *control_ports(const struct launch *l)
{
        json_t *all = json_array();

        for (size_t i = 0; i < l->n_children; i++) {
                const struct child *c = &l->children[i];
                uint64_t bound_bps = network_control_bound_bps(l->scenario, c->node->role);
                json_t *port = json_object();

                json_object_set_new(port, "node", json_string(c->node->name));
                json_put_count(port, "packets", stats_get(&c->stats->control_received));
                json_put_count(port, "bytes", stats_get(&c->stats->control_received_bytes));
                json_object_set_new(port, "bound_bps", json_count_if(bound_bps > 0, bound_bps));
                json_array_append_new(all, port);
        }
        return all;
}

/* Returns the node's own report. If the node left none, makes a report from its counters. */
static json_t *node_report(const struct child *c)
{
        json_t *o = c->report_bytes > 0 ? json_loadb(c->report, c->report_bytes, JSON_DISABLE_EOF_CHECK, NULL)
                                        : NULL;

        if (!json_is_object(o)) {
                json_decref(o);
                o = json_object();
                json_object_set_new(o, "name", json_string(c->node->name));
                json_object_set_new(o, "role", json_string(scenario_role_name(c->node->role)));
                counters_set_all(o, c->stats);
                json_object_set_new(o, "files", json_array());
                summary_stall_of_killed(o, c);
        }
        json_object_set_new(o, "exit",
                            WIFEXITED(c->status) ? json_integer(WEXITSTATUS(c->status)) : json_null());
        json_object_set_new(o, "signal",
                            WIFSIGNALED(c->status) ? json_integer(WTERMSIG(c->status)) : json_null());
        json_object_set_new(o, "cpu_seconds", json_real(child_cpu_seconds(c)));
        json_put_count(o, "peak_rss_bytes", (uint64_t)c->usage.ru_maxrss * 1024);
        return o;
}

/* Reports the shaping of one ROS as read from the kernel, because the scenario is the same for all ROSs. */
static void add_shaping(json_t *o, const struct launch *l)
{
        const struct node_stats *s = shaped_ros(l);

        json_object_set_new(
                o, "qos_backend",
                json_string(s ? tc_backend_name((enum tc_backend)stats_get(&s->qos_backend)) : "none"));
        json_object_set_new(o, "qos_rate_bps", json_count_if(s, s ? stats_get(&s->qos_rate_bps) : 0));
}

static void add_switch(json_t *o, const struct launch *l)
{
        const struct testbed_counts *c = l->has_switch ? &l->at_switch : NULL;

        json_object_set_new(o, "port", json_text(c ? testbed_port_name(c) : ""));
        json_object_set_new(o, "testbed_lost_packets", json_count_if(c, c ? c->lost_packets : 0));
}

static json_t *whole_report(const struct launch *l, const struct accounts *a)
{
        const struct scenario *s = l->scenario;
        json_t *o = json_object(), *nodes = json_array(), *files = json_array();
        uint64_t sums[COUNTERS];

        launch_sums(l, sums);
        json_object_set_new(o, "scenario", json_string(s->scenario.name));
        json_object_set_new(o, "mode", json_string(s->scenario.mode == MODE_PUSH ? "push" : "pull"));
        json_object_set_new(o, "transport",
                            json_string(s->scenario.transport == TRANSPORT_UDP ? "udp" : "tcp"));
        add_shaping(o, l);
        json_put_count(o, "sources", s->ros.count);
        json_put_count(o, "builders", s->sfi.count);
        json_object_set_new(o, "seconds", json_real((double)(l->end_ns - l->start_ns) / 1e9));
        json_put_count(o, "triggers", a->triggers);
        json_put_count(o, "events_assigned", a->assigned);
        json_put_count(o, "events_complete", a->complete);
        json_put_count(o, "events_partial", a->partial);
        json_put_count(o, "events_lost", a->lost);
        json_put_count(o, "triggers_not_taken", stats_get(&launch_dfm(l)->stats->triggers_not_taken));
        json_object_set_new(o, "events_stored", json_count_if(s->sfi.output == OUTPUT_FILE, a->stored));
        json_put_count(o, "payload_bytes", a->payload_bytes);
        event_rates_add(o, launch_dfm(l)->stats);
        trigger_summary_add(o, l, sums);
        summary_level2_add(o, l, sums, event_rates_latency(&launch_dfm(l)->stats->level2_latency_ns));
        json_object_set_new(o, "fragments", fragments(a, sums));
        json_object_set_new(o, "front_ends", front_ends_report(l, sums));
        json_object_set_new(o, "drops", drops(l));
        json_object_set_new(o, "control_ports", control_ports(l));
        add_switch(o, l);
        json_object_set_new(o, "balanced", json_boolean(a->balanced));
        add_usage(o, l);
        if (l->options->watch)
                json_object_set_new(o, "machine", machine_report(l->options->watch, priority_may_raise()));
        for (size_t i = 0; i < l->n_children; i++) {
                json_t *node = node_report(&l->children[i]);

                json_array_extend(files, json_object_get(node, "files"));
                json_array_append_new(nodes, node);
                if (l->children[i].node->role == ROLE_DFM)
                        summary_stall_add(o, node);
        }
        json_object_set_new(o, "files", files);
        json_object_set_new(o, "nodes", nodes);
        summary_virtual_add(o, l);
        return o;
}

static const char *packets_text(const json_t *n, char text[static QUANTITY_TEXT_MAX])
{
        if (json_is_integer(n))
                snprintf(text, QUANTITY_TEXT_MAX, "%" JSON_INTEGER_FORMAT, json_integer_value(n));
        else
                snprintf(text, QUANTITY_TEXT_MAX, "unknown");
        return text;
}

/* Prints the drop locations, and the fragments that arrived too late. */
static void write_losses(const json_t *report)
{
        const json_t *drops = json_object_get(report, "drops");
        char source[QUANTITY_TEXT_MAX], port[QUANTITY_TEXT_MAX], socket[QUANTITY_TEXT_MAX],
                late[QUANTITY_TEXT_MAX];

        printf("  drops at   source queue %s, switch port %s, socket %s; late %s\n",
               packets_text(json_object_get(drops, "source_qdisc_packets"), source),
               packets_text(json_object_get(drops, "switch_packets"), port),
               packets_text(json_object_get(drops, "socket_packets"), socket),
               packets_text(json_object_get(json_object_get(report, "fragments"), "late"), late));
}

static void write_shaping(const struct launch *l)
{
        const struct node_stats *s = shaped_ros(l);
        uint64_t unshaped_ns = SUM(l, ROLE_ROS, unshaped_ns);
        char rate[QUANTITY_TEXT_MAX];

        if (unshaped_ns > 0)
                printf("  unshaped   %s, sum of all ROSs; %" PRIu64 " repairs\n",
                       quantity_format_time(unshaped_ns, rate), SUM(l, ROLE_ROS, shaping_repairs));
        if (s)
                printf("  shaping    %s, %s per destination\n",
                       tc_backend_name((enum tc_backend)stats_get(&s->qos_backend)),
                       quantity_format_rate(stats_get(&s->qos_rate_bps), rate));
}

/* Names the SFI whose port received most control messages, because they compete with data there. Messages
 * also arrive before the first complete event and after the last one, so the rate would be too high if the
 * run was short. */
static void write_control(const struct launch *l, double span)
{
        uint64_t bound_bps = network_control_bound_bps(l->scenario, ROLE_SFI), most = 0;
        char rate[QUANTITY_TEXT_MAX], bound[QUANTITY_TEXT_MAX];
        const char *name = NULL;

        if (span < CONTROL_LEAST_S)
                return;
        for (size_t i = 0; i < l->n_children; i++) {
                const struct child *c = &l->children[i];
                uint64_t bytes = stats_get(&c->stats->control_received_bytes);

                if (c->node->role == ROLE_SFI && bytes > most) {
                        most = bytes;
                        name = c->node->name;
                }
        }
        if (name)
                printf("  control    up to %s into the port of an SFI (%s), bound %s\n",
                       quantity_format_rate((uint64_t)((double)most * 8 / span), rate), name,
                       bound_bps > 0 ? quantity_format_rate(bound_bps, bound) : "unknown");
}

static void write_text(const struct launch *l, const struct accounts *a, const json_t *report,
                       const json_t *records)
{
        const struct node_stats *dfm = launch_dfm(l)->stats;
        const struct histogram *h = &dfm->latency_ns;
        double span = event_rates_span_seconds(dfm);
        char p50[QUANTITY_TEXT_MAX], p99[QUANTITY_TEXT_MAX], rate[QUANTITY_TEXT_MAX],
                bytes[QUANTITY_TEXT_MAX];

        printf("%s: %" PRIu64 " triggers in %.1f s, %" PRIu64 " ROS, %" PRIu64 " SFI, %s over %s\n",
               l->scenario->scenario.name, a->triggers, (double)(l->end_ns - l->start_ns) / 1e9,
               l->scenario->ros.count, l->scenario->sfi.count,
               l->scenario->scenario.mode == MODE_PUSH ? "push" : "pull",
               l->scenario->scenario.transport == TRANSPORT_UDP ? "UDP" : "TCP");
        printf("  events     %" PRIu64 " complete, %" PRIu64 " partial, %" PRIu64 " lost%s\n", a->complete,
               a->partial, a->lost, a->balanced ? "" : " (the accounts do not balance)");
        trigger_summary_write(l);
        if (span > 0)
                printf("  rate       %s events/s, %s/s of payload\n",
                       quantity_format_count((uint64_t)event_rates_hz(dfm), rate),
                       quantity_format_bytes((uint64_t)event_rates_bytes_per_second(dfm), bytes));
        printf("  fragments  %" PRIu64 " expected, %" PRIu64 " received, %" PRIu64 " lost", a->expected,
               a->received, a->fragments_lost);
        if (a->fragments_absent > 0)
                printf(", %" PRIu64 " absent", a->fragments_absent);
        printf("; %" PRIu64 " recovered by %" PRIu64 " retries\n", SUM(l, ROLE_SFI, fragments_recovered),
               SUM(l, ROLE_SFI, fragments_re_asked));
        summary_write_level2(l);
        write_losses(report);
        front_ends_print(l);
        write_shaping(l);
        write_control(l, span);
        if (h->count > 0)
                printf("  latency    median %s, 99th percentile %s\n",
                       quantity_format_time(histogram_quantile(h, 0.5), p50),
                       quantity_format_time(histogram_quantile(h, 0.99), p99));
        trigger_summary_write_times(l);
        summary_stall_print(report);
        run_files_print(report, records);
}

int summary_write(const struct launch *l)
{
        struct accounts a = account(l);
        json_t *report = whole_report(l, &a), *records = json_array();
        struct reasons reasons = {};

        run_reasons(l, &a, json_object_get(report, "nodes"), &reasons);
        json_object_set_new(report, "reasons", reasons_to_json(&reasons));
        run_files_write(l, report, records, &reasons);
        json_object_set_new(report, "reasons", reasons_to_json(&reasons));
        if (l->options->json) {
                json_dumpf(report, l->options->json, JSON_COMPACT | JSON_REAL_PRECISION(12));
                fputc('\n', l->options->json);
        } else
                write_text(l, &a, report, records);
        json_decref(report);
        json_decref(records);
        fflush(stdout);
        if (!l->options->quiet)
                reasons_log(&reasons);
        return reasons.n > 0 ? 1 : 0;
}

json_t *machine_report(struct machine_watch *watch, bool raised)
{
        struct machine_view v;

        if (!watch)
                return json_null();
        machine_watch_view(watch, &v);
        return json_pack("{s:f, s:o, s:o, s:o, s:o, s:o, s:o, s:b}", "seconds", v.seconds, "stolen_share",
                         json_figure(v.stolen_share), "others_share", json_figure(v.others_share),
                         "waiting_share", json_figure(v.waiting_share), "wait_mean_us",
                         json_figure(v.wait_mean_us), "timer_late_p99_us", json_figure(v.late_p99_us),
                         "timer_late_max_us", json_figure(v.late_max_us), "raised", raised);
}
