/* Writes the metrics of a node: what it is, its counters, and what its role has besides. */
#include "openmetrics.h"

#include <string.h>

#include "base/util.h"
#include "node/run_states.h"
#include "shape/model/layout.h"
#include "counters.h"

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

/* Without run control, all are 0, so that queries find the metric. */
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

static void write_dfm(struct metrics_writer *w, const struct metrics_view *v)
{
        const struct metrics_state *s = v->shared;

        write_control_state(w, v);
        write_gauge(w, "evb_open_events", NULL, "events that have begun and not ended", s->open_events);
        write_gauge(w, "evb_busy", NULL, "1 while triggers are held back, otherwise 0", s->busy);
        write_gauge(w, "evb_waiting_triggers", NULL, "triggers that wait for a free credit",
                    s->waiting_triggers);
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

static void write_sfi(struct metrics_writer *w, const struct metrics_view *v)
{
        const struct metrics_state *s = v->shared;

        write_gauge(w, "evb_open_events", NULL, "events that have begun and not ended", s->open_events);
        write_gauge(w, "evb_credits", NULL, "events that the SFI can take at a time", s->credits);
        write_gauge(w, "evb_unwritten_events", NULL, "built events that wait until they are written",
                    s->unwritten_events);
        write_gauge(w, "evb_buffer_size_bytes", "bytes", "memory for fragments",
                    v->scenario->sfi.buffer_size_bytes);
        write_gauge(w, "evb_buffer_used_bytes", "bytes", "memory that fragments use", s->buffer_used_bytes);
        if (!v->disk.known)
                return;
        write_gauge(w, "evb_output_free_bytes", "bytes",
                    "free bytes of the file system of sfi.directory, for this user", v->disk.free_bytes);
        write_gauge(w, "evb_output_size_bytes", "bytes", "size of the file system of sfi.directory",
                    v->disk.size_bytes);
}

static void write_ros(struct metrics_writer *w, const struct metrics_view *v)
{
        const struct metrics_state *s = v->shared;

        write_gauge(w, "evb_held_fragments", NULL, "fragments in the buffer that are not cleared",
                    s->held_fragments);
        write_gauge(w, "evb_buffer_size_bytes", "bytes", "memory for fragments",
                    v->scenario->ros.buffer_size_bytes);
        write_gauge(w, "evb_buffer_used_bytes", "bytes", "memory that fragments use", s->buffer_used_bytes);
        write_gauge(w, "evb_shaping_expected", NULL, "1 if the scenario asks for shaping, otherwise 0",
                    v->scenario->qos.backend != QOS_NONE);
        write_gauge(w, "evb_shaping_installed", NULL,
                    "1 if the shaping is in the kernel as planned, otherwise 0", s->shaped);
}

/* One metric of a node's connections to others. */
struct peer_metric {
        enum node_role self, peer;
        enum metrics_type type;
        const char *name, *unit, *help;
        size_t offset; /* in struct metrics_peer, or in struct metrics_shaped */
        bool shaped;
};

#define PEER(self, peer, type, name, unit, help, member)                                                     \
        {                                                                                                    \
                self, peer, type, name, unit, help, offsetof(struct metrics_peer, member), false             \
        }
#define SHAPED(type, name, unit, help, member)                                                               \
        {                                                                                                    \
                ROLE_ROS, ROLE_SFI, type, "evb_shaping_" name, unit, help,                                   \
                        offsetof(struct metrics_shaped, member), true                                        \
        }

static const struct peer_metric peer_metrics[] = {
        PEER(ROLE_DFM, ROLE_SFI, METRICS_GAUGE, "evb_free_credits", NULL,
             "events that the DFM can assign to an SFI now", free_credits),
        PEER(ROLE_ROS, ROLE_SFI, METRICS_COUNTER, "evb_pair_fragments_sent", NULL,
             "fragments, and answers without one, that a ROS sent to an SFI", fragments),
        PEER(ROLE_ROS, ROLE_SFI, METRICS_COUNTER, "evb_pair_sent_bytes", "bytes",
             "payload that a ROS sent to an SFI", bytes),
        PEER(ROLE_ROS, ROLE_SFI, METRICS_GAUGE, "evb_pair_queued_bytes", "bytes",
             "payload that waits in a ROS for an SFI", queued_bytes),
        PEER(ROLE_SFI, ROLE_ROS, METRICS_COUNTER, "evb_pair_fragments_received", NULL,
             "fragments of a ROS that an SFI received for the ended events", fragments),
        PEER(ROLE_SFI, ROLE_ROS, METRICS_COUNTER, "evb_pair_received_bytes", "bytes",
             "payload of the fragments of a ROS that an SFI received for the ended events", bytes),
        PEER(ROLE_SFI, ROLE_ROS, METRICS_COUNTER, "evb_pair_fragments_lost", NULL,
             "fragments of a ROS missing from the ended events", fragments_lost),
        PEER(ROLE_SFI, ROLE_ROS, METRICS_COUNTER, "evb_pair_fragments_optional", NULL,
             "fragments of an optional ROS that the ended events do without", fragments_absent),
        PEER(ROLE_SFI, ROLE_ROS, METRICS_COUNTER, "evb_pair_packets_received", NULL,
             "data datagrams of a ROS that an SFI received", packets),
        PEER(ROLE_SFI, ROLE_ROS, METRICS_COUNTER, "evb_pair_packets_lost", NULL,
             "data datagrams of a ROS missing by their sequence numbers", packets_lost),
        SHAPED(METRICS_COUNTER, "sent_bytes", "bytes", "bytes to an SFI that the shaping let pass", bytes),
        SHAPED(METRICS_COUNTER, "packets_sent", NULL, "packets to an SFI that the shaping let pass", packets),
        SHAPED(METRICS_COUNTER, "packets_dropped", NULL, "packets to an SFI that the shaping dropped", drops),
        SHAPED(METRICS_COUNTER, "overlimits", NULL,
               "times that packets to an SFI had to wait for the shaping", overlimits),
        SHAPED(METRICS_GAUGE, "backlog_bytes", "bytes", "bytes in the shaping's queue to an SFI",
               backlog_bytes),
        SHAPED(METRICS_GAUGE, "limit_bytes", "bytes", "largest size of the shaping's queue to an SFI",
               limit_bytes),
};

static void write_peer_metric(struct metrics_writer *w, const struct metrics_view *v,
                              const struct peer_metric *m)
{
        bool begun = false;

        for (size_t i = 0; i < v->shared->n_peers; i++) {
                const struct scenario_node *n = &v->scenario->nodes[i];
                const struct metrics_label label = {scenario_role_name(n->role), n->name};
                const void *from = m->shaped ? (const void *)&v->shared->shapings[i] : &v->shared->peers[i];
                uint64_t value;

                if (n->role != m->peer || (m->shaped && !v->shared->shapings[i].known))
                        continue;
                if (!begun)
                        metrics_family(w, m->type, m->name, m->unit, m->help);
                begun = true;
                memcpy(&value, (const char *)from + m->offset, sizeof value);
                metrics_count(w, &label, value);
        }
}

/* Rates are in bytes, the base unit. */
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
        for (size_t i = 0; i < ARRAY_SIZE(peer_metrics); i++) {
                if (peer_metrics[i].self == v->self->role)
                        write_peer_metric(w, v, &peer_metrics[i]);
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

/* The names that all programs use. */
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
        if (v->self->role == ROLE_DFM)
                write_dfm(&w, v);
        else if (v->self->role == ROLE_SFI)
                write_sfi(&w, v);
        else
                write_ros(&w, v);
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
