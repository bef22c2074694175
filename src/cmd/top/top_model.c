/* Extracts the figures of all nodes from their states. A node may send arbitrary values, so a figure that is
 * not a number is unknown. */
#include "top.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/quantity.h"
#include "base/util.h"
#include "node/metrics/losses.h"
#include "node/metrics/statuses.h"

int top_model_init(struct top_model *m, const struct statuses *from)
{
        *m = (struct top_model){.from = from, .n = from->n};
        m->nodes = calloc(m->n, sizeof *m->nodes);
        if (!m->nodes)
                return -ENOMEM;
        for (size_t i = 0; i < m->n; i++)
                m->nodes[i].from = &from->nodes[i];
        return 0;
}

void top_model_fini(struct top_model *m)
{
        free(m->nodes);
        *m = (struct top_model){};
}

static double number(const json_t *o, const char *name)
{
        const json_t *value = json_object_get(o, name);

        return json_is_number(value) ? json_number_value(value) : NAN;
}

static double number_in(const json_t *o, const char *object, const char *name)
{
        return number(json_object_get(o, object), name);
}

/* An unknown value counts as 0, unless both are unknown. */
static double sum(double a, double b)
{
        return isnan(a) ? b : isnan(b) ? a : a + b;
}

/* The sum of a figure over the objects of an array, or only over the objects of `node`. */
static double sum_of(const json_t *array, const char *node, const char *name)
{
        double all = NAN;
        size_t i;
        json_t *o;

        json_array_foreach((json_t *)array, i, o)
        {
                const char *text = json_string_value(json_object_get(o, "node"));

                if (!node || (text && strcmp(text, node) == 0))
                        all = sum(all, number(o, name));
        }
        return all;
}

/* The sum of a figure that the nodes of a role report about this SFI. */
static double ask_others(const struct top_model *m, const struct top_node *n, enum node_role role,
                         const char *array, const char *name)
{
        double all = NAN;

        for (size_t i = 0; i < m->n; i++) {
                const struct node_status *other = m->nodes[i].from;

                if (other->node->role == role && other->status)
                        all = sum(all,
                                  sum_of(json_object_get(other->status, array), n->from->node->name, name));
        }
        return all;
}

/* Total packet drops, including those at a ROS's socket for frames of boards. */
static double drops_of(const double *lost)
{
        double all = lost[LOSS_FRAME_SOCKET];

        for (size_t i = 0; i < LOSS_PLACES; i++)
                all = loss_places[i].key ? sum(all, lost[i]) : all;
        return all;
}

static void add_common(double *f, const json_t *s, enum node_role role)
{
        f[TOP_RUN] = number(s, "run");
        f[TOP_TRIGGERS] = number_in(s, "rates", "triggers_hz");
        f[TOP_RATE] = number_in(s, "rates", role == ROLE_ROS ? "fragments_hz" : "events_hz");
        f[TOP_DATA] = number_in(s, "rates", "bytes_per_second");
        f[TOP_BUFFER] = number(s, "buffer_used");
        f[TOP_BUSY] = number_in(s, "rates", "busy_share");
        f[TOP_OPEN] = number(s, "open_events");
        f[TOP_UNWRITTEN] = number(s, "unwritten_events");
        f[TOP_CREDITS] = number(s, "credits");
        f[TOP_PARTIAL] = number_in(s, "counts", "events_partial");
        f[TOP_LOST] =
                role == ROLE_DFM ? number_in(s, "counts", "events_lost") : number_in(s, "fragments", "lost");
        f[TOP_DISK] = number(s, "output_free_bytes");
        f[TOP_DISK_SIZE] = number(s, "output_size_bytes");
}

static void add_figures(const struct top_model *m, struct top_node *n)
{
        const json_t *s = n->from->status;
        enum node_role role = n->from->node->role;
        double *f = n->figures;

        for (size_t i = 0; i < TOP_FIGURES; i++)
                f[i] = NAN;
        add_common(f, s, role);
        losses_read(n->from, n->lost);
        f[TOP_DROPS] = drops_of(n->lost);
        if (role == ROLE_DFM)
                f[TOP_FREE] = sum_of(json_object_get(s, "peers"), NULL, "free_credits");
        if (role == ROLE_ROS) {
                f[TOP_QUEUED] = sum_of(json_object_get(s, "peers"), NULL, "queued_bytes");
                f[TOP_BACKLOG] = sum_of(json_object_get(s, "shaping"), NULL, "backlog_bytes");
        }
        if (role == ROLE_SFI) {
                f[TOP_FREE] = ask_others(m, n, ROLE_DFM, "peers", "free_credits");
                f[TOP_QUEUED] = ask_others(m, n, ROLE_ROS, "peers", "queued_bytes");
                f[TOP_BACKLOG] = ask_others(m, n, ROLE_ROS, "shaping", "backlog_bytes");
        }
}

/* A restarted node counts from zero. */
static void compare(struct top_node *n, const double before[static TOP_FIGURES])
{
        double start = number(n->from->status, "start_time");
        bool first = n->answered_ns == 0, restarted = first || (!isnan(start) && start != n->start_time);

        for (size_t i = 0; i < TOP_FIGURES; i++)
                n->grew[i] = !first && n->figures[i] > (restarted ? 0 : before[i]);
        n->start_time = start;
        n->answered_ns = n->from->answered_ns;
}

static void set_problem(struct top_node *n, const char *text)
{
        snprintf(n->problem, sizeof n->problem, "%s", text);
        /* A terminal must not interpret text that a node sends. */
        for (char *c = n->problem; *c; c++)
                *c = *c >= ' ' && *c <= '~' ? *c : '?';
}

static void set_state(struct top_node *n, enum top_state state, const char *text)
{
        n->state = state;
        snprintf(n->state_text, sizeof n->state_text, "%.9s", text);
        for (char *c = n->state_text; *c; c++)
                *c = *c > ' ' && *c <= '~' ? *c : '_';
}

static void judge_version(struct top_node *n)
{
        if (!json_is_string(json_object_get(n->from->status, "version")))
                set_problem(n, "it runs an older version of evb");
}

static void judge(const struct top_model *m, struct top_node *n, uint64_t now_ns, uint64_t late_ns)
{
        const struct node_status *from = n->from;
        struct node_view view;

        node_view_make(m->from, from, now_ns, late_ns, &view);
        set_problem(n, view.why);
        if (view.is_late)
                set_state(n, TOP_LATE, view.word);
        else if (!from->status)
                set_state(n, TOP_SILENT, node_status_word(from));
        else
                set_state(n, from->problem[0] ? TOP_PROBLEM : TOP_FINE, node_status_word(from));
        if (from->status && !n->problem[0])
                judge_version(n);
}

static void update_node(const struct top_model *m, struct top_node *n, uint64_t now_ns, uint64_t late_ns)
{
        double before[TOP_FIGURES];

        memcpy(before, n->figures, sizeof before);
        judge(m, n, now_ns, late_ns);
        add_figures(m, n);
        if (n->from->status && n->from->answered_ns != n->answered_ns)
                compare(n, before);
}

static double total_of(const struct top_model *m, enum node_role role, const char *object, const char *name)
{
        double all = NAN;

        for (size_t i = 0; i < m->n; i++) {
                if (m->nodes[i].from->node->role == role)
                        all = sum(all, number_in(m->nodes[i].from->status, object, name));
        }
        return all;
}

static void add_dfm(struct top_model *m, const struct top_node *n)
{
        const json_t *s = n->from->status;
        double *t = m->totals;

        if (n->state == TOP_LATE)
                strcpy(m->run_state, n->state_text);
        t[TOP_TOTAL_TRIGGERS_HZ] = n->figures[TOP_TRIGGERS];
        t[TOP_TOTAL_EVENTS_HZ] = n->figures[TOP_RATE];
        t[TOP_TOTAL_DATA] = n->figures[TOP_DATA];
        t[TOP_TOTAL_BUSY] = n->figures[TOP_BUSY];
        t[TOP_TOTAL_WAITING] = number(s, "waiting_triggers");
        t[TOP_TOTAL_OPEN] = n->figures[TOP_OPEN];
        t[TOP_TOTAL_COMPLETE] = number_in(s, "counts", "events_complete");
        t[TOP_TOTAL_PARTIAL] = n->figures[TOP_PARTIAL];
        t[TOP_TOTAL_LOST] = n->figures[TOP_LOST];
        t[TOP_TOTAL_REJECTED] = number_in(s, "counts", "events_rejected");
        t[TOP_TOTAL_P50_US] = number_in(s, "latency_us", "p50");
        t[TOP_TOTAL_P99_US] = number_in(s, "latency_us", "p99");
}

static void take_sums(struct top_model *m)
{
        double *t = m->totals;

        t[TOP_TOTAL_LATE] = total_of(m, ROLE_SFI, "fragments", "late");
        losses_begin(m->lost);
        for (size_t i = 0; i < m->n; i++) {
                losses_add(m->lost, m->nodes[i].lost);
                if (m->nodes[i].from->node->role == ROLE_ROS)
                        t[TOP_TOTAL_BACKLOG] = sum(t[TOP_TOTAL_BACKLOG], m->nodes[i].figures[TOP_BACKLOG]);
        }
        losses_end(m->lost);
}

/* Adds the counts of one node to {"packets malformed": 3, ...}, except those that the totals include. */
static void add_discarded(json_t *to, const json_t *discarded)
{
        const char *kind, *reason;
        json_t *reasons, *count;
        char name[64];

        json_object_foreach((json_t *)discarded, kind, reasons)
        {
                json_object_foreach(reasons, reason, count)
                {
                        bool known = strcmp(reason, "socket_full") == 0 ||
                                     (strcmp(kind, "fragments") == 0 && strcmp(reason, "late") == 0);

                        if (known || !json_is_integer(count) || json_integer_value(count) <= 0)
                                continue;
                        snprintf(name, sizeof name, "%.30s %.30s", kind, reason);
                        json_object_set_new(to, name,
                                            json_integer(json_integer_value(json_object_get(to, name)) +
                                                         json_integer_value(count)));
                }
        }
}

static void sum_discarded(struct top_model *m)
{
        json_t *all = json_object(), *count;
        char text[QUANTITY_TEXT_MAX];
        const char *name;
        size_t length = 0;

        for (size_t i = 0; i < m->n; i++)
                add_discarded(all, json_object_get(m->nodes[i].from->status, "discarded"));
        m->discarded[0] = '\0';
        json_object_foreach(all, name, count)
        {
                int n = snprintf(m->discarded + length, sizeof m->discarded - length, "%s%s %s",
                                 length > 0 ? ", " : "", name,
                                 quantity_format_real((double)json_integer_value(count), "", text));

                length = MIN(length + (size_t)n, sizeof m->discarded - 1);
        }
        for (char *c = m->discarded; *c; c++)
                *c = *c == '_' ? ' ' : *c >= ' ' && *c <= '~' ? *c : '?';
        json_decref(all);
}

static double free_share(const struct top_node *n)
{
        return n ? n->figures[TOP_DISK] / n->figures[TOP_DISK_SIZE] : INFINITY;
}

void top_model_update(struct top_model *m, uint64_t now_ns, uint64_t late_ns)
{
        m->n_silent = 0;
        m->fullest = NULL;
        run_summary_make(m->from, &m->run);
        strcpy(m->run_state, m->run.state);
        for (size_t i = 0; i < TOP_TOTALS; i++)
                m->totals[i] = NAN;
        for (size_t i = 0; i < m->n; i++) {
                struct top_node *n = &m->nodes[i];

                update_node(m, n, now_ns, late_ns);
                m->n_silent += n->state == TOP_SILENT;
                if (free_share(n) < free_share(m->fullest))
                        m->fullest = n;
                if (n->from->node->role == ROLE_DFM)
                        add_dfm(m, n);
        }
        take_sums(m);
        sum_discarded(m);
}

json_t *top_model_to_json(const struct top_model *m, uint64_t now_ns, double utc_seconds)
{
        json_t *all = json_array(), *o = run_summary_to_json(&m->run);
        bool ok = true;

        for (size_t i = 0; i < m->n; i++) {
                const struct node_status *n = m->nodes[i].from;
                json_t *one = node_status_to_json(n);

                ok &= m->nodes[i].state == TOP_FINE;
                json_object_set_new(one, "age_seconds",
                                    n->status ? json_real((double)(now_ns - n->answered_ns) / NS_PER_S)
                                              : json_null());
                json_array_append_new(all, one);
        }
        json_object_set_new(o, "ok", json_boolean(ok));
        json_object_set_new(o, "time", json_real(utc_seconds));
        json_object_set_new(o, "scenario", json_string(m->from->scenario->scenario.name));
        json_object_set_new(o, "nodes", all);
        return o;
}
