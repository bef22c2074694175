/* Writes the metrics of a node: its identity, its counters, and the other metrics of its role. */
#include "openmetrics.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/util.h"
#include "counters.h"
#include "node/run_states.h"

const char *metrics_state_name(enum node_state state)
{
        static const char *const names[] = {
                [NODE_STARTING] = "starting", [NODE_READY] = "ready",     [NODE_RUNNING] = "running",
                [NODE_DRAINING] = "draining", [NODE_SEALING] = "sealing", [NODE_ENDED] = "ended",
        };

        return (size_t)state < ARRAY_SIZE(names) ? names[state] : "unknown";
}

static void write_identity(struct metrics_writer *w, const struct metrics_view *v)
{
        const struct metrics_label version = {"version", v->version};
        char run[16] = "";
        const struct metrics_label node[] = {
                {"run", run},
                {"mode", v->scenario->scenario.mode == MODE_PUSH ? "push" : "pull"},
                {"transport", v->scenario->scenario.transport == TRANSPORT_UDP ? "udp" : "tcp"},
        };

        if (v->shared->run > 0)
                snprintf(run, sizeof run, "%u", v->shared->run);
        metrics_family(w, METRICS_INFO, "evb_build", NULL, "version of the program");
        metrics_info(w, &version, 1);
        metrics_family(w, METRICS_INFO, "evb_node", NULL, "the run of this node (empty: not known yet)");
        metrics_info(w, node, ARRAY_SIZE(node));
        metrics_family(w, METRICS_GAUGE, "evb_node_state", NULL,
                       "state of this node: 1 for the present one, 0 for the others");
        for (enum node_state state = NODE_STARTING; state <= NODE_ENDED; state++) {
                const struct metrics_label label = {"state", metrics_state_name(state)};

                metrics_count(w, &label, v->state == state);
        }
}

static void write_gauge(struct metrics_writer *w, const char *name, const char *unit, const char *help,
                        uint64_t value)
{
        metrics_family(w, METRICS_GAUGE, name, unit, help);
        metrics_count(w, NULL, value);
}

/* Without run control, all states are 0, so that queries still find the metric. */
static void write_control_state(struct metrics_writer *w, const struct metrics_view *v)
{
        metrics_family(
                w, METRICS_GAUGE, "evb_run_control_state", NULL,
                "state of run control: 1 for the present one, 0 for the others, and for all without it");
        for (enum run_control_state state = 0; state < RUN_CONTROL_STATES; state++) {
                const struct metrics_label label = {"state", run_state_name(state)};

                metrics_count(w, &label, v->control_state && strcmp(v->control_state, label.value) == 0);
        }
}

/* Without a fault, the sample has no further labels, so that queries still find the metric. */
static void write_fault(struct metrics_writer *w, const struct run_fault *f)
{
        const struct metrics_label labels[] = {{"peer", f->node}, {"state", f->state}, {"cause", f->cause}};

        metrics_family(
                w, METRICS_GAUGE, "evb_fault", NULL,
                "1 with the node at fault and the cause, as in the first line of evb status, otherwise 0");
        if (f->node[0])
                metrics_labeled(w, labels, ARRAY_SIZE(labels), 1);
        else
                metrics_count(w, NULL, 0);
}

static void write_times(struct metrics_writer *w, const struct metrics_view *v)
{
        const struct metrics_state *s = v->shared;

        metrics_family(w, METRICS_HISTOGRAM, "evb_event_latency_seconds", "seconds",
                       "time from the trigger to the end of the event");
        metrics_buckets(w, &s->event_latency);
        if (v->scenario->level2.port > 0) {
                metrics_family(w, METRICS_HISTOGRAM, "evb_level2_latency_seconds", "seconds",
                               "time from the trigger to the decision of level 2");
                metrics_buckets(w, &s->level2_latency);
        }
        if (v->last_complete_seconds > 0) {
                metrics_family(w, METRICS_GAUGE, "evb_last_complete_timestamp_seconds", "seconds",
                               "time of the last complete event since 1970");
                metrics_real(w, NULL, v->last_complete_seconds);
        }
}

static void write_gauges(struct metrics_writer *w, const struct metrics_view *v)
{
        char name[64];

        for (size_t i = 0; i < GAUGES; i++) {
                const struct gauge *g = &gauges[i];

                /* A flag that is null in /status is 0 as a metric. */
                if (!(g->roles & COUNTER_ROLE(v->self->role)) ||
                    (g->is_known && !g->is_flag && !g->is_known(v)))
                        continue;
                snprintf(name, sizeof name, "evb_%s", g->metric ?: g->key);
                if (g->is_signed) {
                        metrics_family(w, METRICS_GAUGE, name, g->unit, g->help);
                        metrics_real(w, NULL, (double)(int64_t)g->read(v) * 1e-9);
                } else
                        write_gauge(w, name, g->unit, g->help, g->read(v));
        }
}

static void write_peer_figure(struct metrics_writer *w, const struct metrics_view *v,
                              const struct peer_figure *f)
{
        bool begun = false;

        for (size_t i = 0; i < v->shared->n_peers; i++) {
                const struct scenario_node *n = &v->scenario->nodes[i];
                const struct metrics_label label = {scenario_role_name(n->role), n->name};

                if (n->role != f->peer || (f->is_shaped && !v->shared->shapings[i].known))
                        continue;
                if (!begun)
                        metrics_family(w, f->type, f->metric, f->unit, f->help);
                begun = true;
                metrics_count(w, &label, peer_figure_read(f, v, i));
        }
}

/* The rates are written in bytes, the base unit. */
static void write_shaped_rates(struct metrics_writer *w, const struct metrics_view *v)
{
        bool begun = false;

        for (size_t i = 0; i < v->shared->n_peers; i++) {
                const struct metrics_label label = {"sfi", v->scenario->nodes[i].name};

                if (!v->shared->shapings[i].known)
                        continue;
                if (!begun)
                        metrics_family(w, METRICS_GAUGE, "evb_shaping_rate_bytes_per_second", NULL,
                                       "rate of the shaping's queue to an SFI");
                begun = true;
                metrics_real(w, &label, (double)v->shared->shapings[i].rate_bps / 8);
        }
}

static void write_peers(struct metrics_writer *w, const struct metrics_view *v)
{
        if (v->self->role == ROLE_DFM) {
                metrics_family(w, METRICS_GAUGE, "evb_node_present", NULL,
                               "1 if the DFM hears from a node, otherwise 0");
                for (size_t i = 0; i < v->shared->n_peers; i++) {
                        const struct scenario_node *n = &v->scenario->nodes[i];
                        const struct metrics_label label = {"peer", n->name};

                        if (n != v->self)
                                metrics_count(w, &label, v->shared->peers[i].live);
                }
        }
        for (size_t i = 0; i < PEER_FIGURES; i++) {
                if (peer_figures[i].self == v->self->role && peer_figures[i].metric)
                        write_peer_figure(w, v, &peer_figures[i]);
        }
        if (v->self->role == ROLE_ROS)
                write_shaped_rates(w, v);
}

static void write_known(struct metrics_writer *w, const char *name, const char *unit, const char *help,
                        int64_t value)
{
        if (value >= 0)
                write_gauge(w, name, unit, help, (uint64_t)value);
}

/* Writes the process metrics under their conventional names. */
static void write_process(struct metrics_writer *w, const struct metrics_process *p)
{
        if (p->cpu_seconds >= 0) {
                metrics_family(w, METRICS_COUNTER, "process_cpu_seconds", "seconds",
                               "user and system time of the process");
                metrics_real(w, NULL, p->cpu_seconds);
        }
        if (p->start_seconds >= 0) {
                metrics_family(w, METRICS_GAUGE, "process_start_time_seconds", "seconds",
                               "start of the process since 1970");
                metrics_real(w, NULL, p->start_seconds);
        }
        write_known(w, "process_resident_memory_bytes", "bytes", "resident memory", p->resident_bytes);
        write_known(w, "process_virtual_memory_bytes", "bytes", "virtual memory", p->virtual_bytes);
        write_known(w, "process_open_fds", NULL, "open descriptors", p->open_fds);
        write_known(w, "process_max_fds", NULL, "largest number of open descriptors", p->max_fds);
}

void metrics_page_write(const struct metrics_view *v, FILE *to, bool open_metrics)
{
        struct metrics_writer w = {
                .to = to,
                .open_metrics = open_metrics,
                .common = {{"node", v->self->name}, {"role", scenario_role_name(v->self->role)}},
        };

        write_identity(&w, v);
        write_gauge(
                &w, "evb_stalled", NULL,
                "1 while the node makes no progress though work waits, otherwise 0; /status has the reason",
                v->obstacle.kind == OBSTACLE_STALL);
        counters_write_metrics(&w, v->counters);
        if (v->self->role == ROLE_DFM) {
                write_control_state(&w, v);
                write_fault(&w, &v->fault);
        }
        write_gauges(&w, v);
        if (v->self->role == ROLE_DFM)
                write_times(&w, v);
        write_gauge(&w, "evb_granted_receive_buffer_bytes", "bytes",
                    "receive buffer of the data socket as granted by the kernel (0: none)",
                    v->receive_buffer_bytes);
        write_gauge(&w, "evb_granted_send_buffer_bytes", "bytes",
                    "send buffer of the data socket as granted by the kernel (0: none)",
                    v->send_buffer_bytes);
        write_peers(&w, v);
        write_process(&w, &v->process);
        metrics_end(&w);
}

/* Returns the length of the text up to one of `ends`, without trailing blanks. */
static size_t part(const char *text, const char *ends)
{
        size_t n = strcspn(text, ends);

        while (n > 0 && (text[n - 1] == ' ' || text[n - 1] == '\t'))
                n--;
        return n;
}

static const char *skip_blanks(const char *text)
{
        return text + strspn(text, " \t");
}

static bool equals(const char *text, size_t n, const char *word)
{
        return n == strlen(word) && strncasecmp(text, word, n) == 0;
}

struct media_range {
        bool is_open_metrics, is_text;
        double quality;
};

/* Reads one element of the list, and returns its end. An element with an unknown version parameter counts as
 * another type. */
static const char *read_range(const char *text, struct media_range *ret)
{
        size_t n = part(text, ",;");

        *ret = (struct media_range){
                .is_open_metrics = equals(text, n, "application/openmetrics-text"),
                .is_text =
                        equals(text, n, "text/plain") || equals(text, n, "text/*") || equals(text, n, "*/*"),
                .quality = 1,
        };
        text += strcspn(text, ",;");
        while (*text == ';') {
                text = skip_blanks(text + 1);
                n = part(text, ",;");
                if (n > 2 && strncasecmp(text, "q=", 2) == 0)
                        ret->quality = strtod(text + 2, NULL);
                else if (n > 8 && strncasecmp(text, "version=", 8) == 0)
                        ret->is_open_metrics &= equals(text + 8, n - 8, "1.0.0");
                text += strcspn(text, ",;");
        }
        return text;
}

bool metrics_wants_open_metrics(const char *accept)
{
        double open_metrics = 0, plain = 0;
        struct media_range range;

        while (*(accept = skip_blanks(accept))) {
                accept = read_range(accept, &range);
                if (range.is_open_metrics && range.quality > open_metrics)
                        open_metrics = range.quality;
                if (range.is_text && range.quality > plain)
                        plain = range.quality;
                accept += *accept == ',';
        }
        return open_metrics > 0 && open_metrics >= plain;
}
