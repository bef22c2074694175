/* Reports of `evb qos`: JSON, text, errors and exit status. */
#include <errno.h>
#include <string.h>

#include "base/json.h"
#include "base/quantity.h"
#include "qos.h"

static void set_counters(json_t *j, const struct tc_row *row)
{
        const struct tc_counters *c = &row->counters;
        bool known = row->present && c->known;

        json_object_set_new(j, "bytes", json_count_if(known, c->bytes));
        json_object_set_new(j, "packets", json_count_if(known, c->packets));
        json_object_set_new(j, "drops", json_count_if(known, c->drops));
        json_object_set_new(j, "overlimits", json_count_if(known, c->overlimits));
        json_object_set_new(j, "backlog_bytes", json_count_if(known, c->backlog_bytes));
        json_object_set_new(j, "requeues", json_count_if(known, c->requeues));
}

static void set_classid(json_t *j, uint32_t classid)
{
        char text[TC_HANDLE_TEXT_MAX];

        json_object_set_new(j, "classid",
                            classid ? json_string(tc_handle_format(classid, text)) : json_null());
}

static json_t *row_json(const struct tc_row *row)
{
        json_t *j = json_object();

        set_classid(j, row->classid);
        json_object_set_new(j, "rate_bps", json_count_if(row->present, row->rate_bps));
        json_object_set_new(j, "burst_bytes", json_count_if(row->present, row->burst_bytes));
        json_object_set_new(j, "limit_bytes", json_count_if(row->present, row->limit_bytes));
        set_counters(j, row);
        return j;
}

/* A planned destination has no counters yet. */
static json_t *share_json(const struct tc_share *s, uint32_t classid, uint64_t rate_bps)
{
        json_t *j = json_object();

        set_classid(j, classid);
        json_object_set_new(j, "rate_bps", json_count(rate_bps));
        json_object_set_new(j, "burst_bytes", json_count(s->burst_bytes));
        json_object_set_new(j, "limit_bytes", json_count(s->limit_bytes));
        json_object_set_new(j, "guaranteed_bps", json_count(s->guaranteed_bps));
        json_object_set_new(j, "quantum_bytes", json_count(s->quantum_bytes));
        set_counters(j, &(struct tc_row){});
        return j;
}

static void add_address(json_t *j, const struct tc_address *a)
{
        char text[TC_ADDRESS_TEXT_MAX];

        json_object_set_new(j, "address", json_string(tc_address_format(a, text)));
}

static uint32_t classid_of(const struct tc_tree *want, const struct tc_address *a)
{
        struct tc_address other = {};
        uint32_t classid;

        for (size_t i = 0; want && i < want->n; i++) {
                if (tc_layout_address(&want->objects[i], &other, &classid) && tc_address_equal(a, &other))
                        return classid;
        }
        return 0;
}

static void set_plan(json_t *j, const struct qos_result *r)
{
        const struct tc_plan *p = r->plan;
        json_t *all = json_array();

        for (size_t i = 0; i < p->n; i++) {
                json_t *d = share_json(&p->shares[i], classid_of(r->want, &p->addresses[i]),
                                       p->shares[i].rate_bps);

                add_address(d, &p->addresses[i]);
                json_array_append_new(all, d);
        }
        json_object_set_new(j, "destinations", all);
        json_object_set_new(j, "control",
                            tc_tree_class(r->want, TC_CONTROL_CLASS)
                                    ? share_json(&p->control, TC_CONTROL_CLASS, p->control.guaranteed_bps)
                                    : json_null());
        json_object_set_new(j, "default",
                            tc_tree_class(r->want, TC_OTHER_CLASS)
                                    ? share_json(&p->other, TC_OTHER_CLASS, p->other.guaranteed_bps)
                                    : json_null());
}

static void set_status(json_t *j, const struct tc_status *s)
{
        json_t *all = json_array();

        for (size_t i = 0; i < s->n; i++) {
                json_t *d = row_json(&s->rows[i]);

                add_address(d, &s->rows[i].address);
                json_object_set_new(d, "asked_bps",
                                    json_count_if(s->rows[i].asked_bps > 0, s->rows[i].asked_bps));
                json_object_set_new(d, "permille",
                                    json_count_if(s->rows[i].permille > 0, s->rows[i].permille));
                json_array_append_new(all, d);
        }
        json_object_set_new(j, "destinations", all);
        json_object_set_new(j, "control", s->control.present ? row_json(&s->control) : json_null());
        json_object_set_new(j, "default", s->other.present ? row_json(&s->other) : json_null());
        if (s->apart.present) {
                json_t *apart = json_object();

                set_counters(apart, &s->apart);
                json_object_set_new(j, "apart", apart);
        }
}

static void set_warnings(json_t *j, const struct qos_result *r)
{
        json_t *all = json_array();

        for (size_t i = 0; r->plan && i < r->plan->n_warnings; i++)
                json_array_append_new(all, json_string(r->plan->warnings[i]));
        for (size_t i = 0; r->outcome && i < r->outcome->n_warnings; i++)
                json_array_append_new(all, json_string(r->outcome->warnings[i]));
        if (r->status && r->status->drops > 0)
                json_array_append_new(all, json_sprintf("%llu packet%s dropped at the source",
                                                        (unsigned long long)r->status->drops,
                                                        r->status->drops == 1 ? " was" : "s were"));
        json_object_set_new(j, "warnings", all);
}

static void add_line(const char *text, void *ctx)
{
        json_array_append_new(ctx, json_string(text));
}

static void set_reasons(json_t *j, const struct tc_plan *p, const struct qos_job *job)
{
        json_object_set_new(j, "reasons",
                            json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s}", "backend",
                                      job->backend_reason, "link", p->reason_link, "rate", p->reason_rate,
                                      "burst", p->reason_burst, "limit", p->reason_limit, "quantum",
                                      p->reason_quantum, "control", p->reason_control, "other",
                                      p->reason_other, "need", p->reason_need, "apart", p->reason_apart));
}

static json_t *count(uint64_t v)
{
        return json_count_if(v != TC_COUNT_UNKNOWN, v);
}

static json_t *device_json(const struct tc_device *d)
{
        struct tc_port p;

        tc_port_read(&p, d);
        return json_pack("{s:i, s:o, s:o, s:o, s:o, s:o}", "mtu_bytes", (int)d->mtu_bytes, "pause_received",
                         count(p.pause_received), "pause_sent", count(p.pause_sent), "pfc_received",
                         count(p.pfc_received), "pfc_sent", count(p.pfc_sent), "missed_packets",
                         count(p.missed));
}

json_t *qos_result_json(const struct qos_result *r)
{
        json_t *j = json_object(), *commands = json_array();
        enum tc_backend backend = r->status ? r->status->backend
                                  : r->plan ? r->plan->backend
                                            : TC_BACKEND_NONE;
        enum tc_owner owner = r->outcome ? r->outcome->owner : r->status ? r->status->owner : TC_OWNER_KERNEL;

        json_object_set_new(j, "device", json_string(r->device));
        json_object_set_new(j, "backend", json_string(tc_backend_name(backend)));
        json_object_set_new(
                j, "offload",
                json_boolean(r->status ? r->status->is_offloaded : r->plan && r->plan->is_offloaded));
        json_object_set_new(j, "operations", json_integer(r->outcome ? r->outcome->operations : 0));
        json_object_set_new(j, "foreign_root", json_boolean(owner == TC_OWNER_FOREIGN));
        if (r->status)
                set_status(j, r->status);
        else if (r->plan)
                set_plan(j, r);
        else
                set_status(j, &(struct tc_status){});
        if (r->plan)
                set_reasons(j, r->plan, r->job);
        set_warnings(j, r);
        if (r->want)
                tc_commands(r->want, r->device, add_line, commands);
        json_object_set_new(j, "tc_commands", commands);
        if (r->now)
                json_object_set_new(j, "interface", device_json(r->now));
        return j;
}

static void print_line(const char *text, void *ctx)
{
        fprintf(ctx, "  %s\n", text);
}

static void print_warnings(const struct qos_result *r, FILE *to)
{
        for (size_t i = 0; r->plan && i < r->plan->n_warnings; i++)
                fprintf(to, "warning: %s\n", r->plan->warnings[i]);
        for (size_t i = 0; r->outcome && i < r->outcome->n_warnings; i++)
                fprintf(to, "warning: %s\n", r->outcome->warnings[i]);
}

/* A plan without a tree. */
static void print_pacing(const struct qos_result *r, FILE *to)
{
        const struct tc_plan *p = r->plan;
        char address[TC_ADDRESS_TEXT_MAX], rate[QUANTITY_TEXT_MAX];

        fprintf(to, "%-24s %14s %10s\n", "destination", "rate", "burst");
        for (size_t i = 0; i < p->n; i++)
                fprintf(to, "%-24s %14s %10llu\n", tc_address_format(&p->addresses[i], address),
                        quantity_format_rate(p->shares[i].rate_bps, rate),
                        (unsigned long long)p->shares[i].burst_bytes);
        fprintf(to, "\nreasons\n  rate:    %s\n  burst:   %s\n  limit:   %s\n", p->reason_rate,
                p->reason_burst, p->reason_limit);
        if (p->reason_need[0])
                fprintf(to, "  need:    %s\n", p->reason_need);
        fprintf(to, "\nno tc commands: the kernel paces each TCP connection of the ROS%s",
                p->n_warnings > 0 ? "\n\n" : "\n");
        print_warnings(r, to);
}

void qos_print_plan(const struct qos_result *r, FILE *to)
{
        const struct tc_plan *p = r->plan;
        char address[TC_ADDRESS_TEXT_MAX], handle[TC_HANDLE_TEXT_MAX], a[QUANTITY_TEXT_MAX],
                b[QUANTITY_TEXT_MAX];

        fprintf(to, "%s: backend %s\n\n", r->device, r->job->backend_reason);
        if (r->want->n == 0) {
                print_pacing(r, to);
                return;
        }
        fprintf(to, "%-24s %-10s %14s %14s %10s %10s %8s\n", "destination", "class", "rate", "guaranteed",
                "burst", "limit", "quantum");
        for (size_t i = 0; i < p->n; i++) {
                const struct tc_share *s = &p->shares[i];
                char burst[24] = "-", quantum[24] = "-";

                if (p->backend != TC_BACKEND_EDT && !p->is_offloaded) {
                        snprintf(burst, sizeof burst, "%llu", (unsigned long long)s->burst_bytes);
                        snprintf(quantum, sizeof quantum, "%u", s->quantum_bytes);
                }
                fprintf(to, "%-24s %-10s %14s %14s %10s %10llu %8s\n",
                        tc_address_format(&p->addresses[i], address),
                        tc_handle_format(classid_of(r->want, &p->addresses[i]), handle),
                        quantity_format_rate(s->rate_bps, a), quantity_format_rate(s->guaranteed_bps, b),
                        burst, (unsigned long long)s->limit_bytes, quantum);
        }
        if (tc_tree_class(r->want, TC_CONTROL_CLASS))
                fprintf(to, "%-24s %-10s %14s %14s\n", "control", tc_handle_format(TC_CONTROL_CLASS, handle),
                        quantity_format_rate(p->control.rate_bps, a),
                        quantity_format_rate(p->control.guaranteed_bps, b));
        if (tc_tree_class(r->want, TC_OTHER_CLASS))
                fprintf(to, "%-24s %-10s %14s %14s\n", "all other", tc_handle_format(TC_OTHER_CLASS, handle),
                        quantity_format_rate(p->other.rate_bps, a),
                        quantity_format_rate(p->other.guaranteed_bps, b));
        fprintf(to, "\nreasons\n");
        if (p->reason_link[0])
                fprintf(to, "  link:    %s\n", p->reason_link);
        fprintf(to, "  rate:    %s\n  burst:   %s\n  limit:   %s\n  quantum: %s\n", p->reason_rate,
                p->reason_burst, p->reason_limit, p->reason_quantum);
        if (p->control_port)
                fprintf(to, "  control: %s\n", p->reason_control);
        fprintf(to, "  other:   %s\n", p->reason_other);
        if (p->reason_apart[0])
                fprintf(to, "  apart:   %s\n", p->reason_apart);
        if (p->reason_need[0])
                fprintf(to, "  need:    %s\n", p->reason_need);
        fprintf(to, "\nequivalent tc commands\n");
        tc_commands(r->want, r->device, print_line, to);
        if (p->n_warnings > 0)
                fputc('\n', to);
        print_warnings(r, to);
}

/* `sign` is printed before a rate that is guaranteed rather than a limit. */
static void print_row(const char *name, const char *sign, const struct tc_row *row, FILE *to)
{
        char handle[TC_HANDLE_TEXT_MAX], asked[QUANTITY_TEXT_MAX] = "-", rate[QUANTITY_TEXT_MAX],
                                         installed[QUANTITY_TEXT_MAX + 4], bytes[QUANTITY_TEXT_MAX];
        const struct tc_counters *c = &row->counters;

        if (!row->present)
                return;
        if (row->asked_bps > 0)
                quantity_format_rate(row->asked_bps, asked);
        snprintf(installed, sizeof installed, "%s%s", sign,
                 row->rate_bps > 0 ? quantity_format_rate(row->rate_bps, rate) : "-");
        fprintf(to, "%-24s %-10s %14s %14s %10s %10llu %8llu %10llu %9llu %8llu\n", name,
                row->classid > 0 ? tc_handle_format(row->classid, handle) : "-", asked, installed,
                quantity_format_bytes(c->bytes, bytes), (unsigned long long)c->packets,
                (unsigned long long)c->drops, (unsigned long long)c->overlimits,
                (unsigned long long)c->backlog_bytes, (unsigned long long)c->requeues);
}

static void print_status(const struct qos_result *r, FILE *to)
{
        const struct tc_status *s = r->status;
        char address[TC_ADDRESS_TEXT_MAX];

        if (s->backend == TC_BACKEND_NONE) {
                fprintf(to, "%s: not shaped by evb%s\n", r->device,
                        s->owner == TC_OWNER_FOREIGN     ? "; another program has set its root qdisc, which "
                                                           "apply replaces only with --force"
                        : s->owner == TC_OWNER_CLASSLESS ? "; another program has set its root qdisc"
                                                         : "");
                print_warnings(r, to);
                return;
        }
        fprintf(to, "%s: %s%s\n", r->device, tc_backend_name(s->backend),
                s->is_offloaded ? ", offloaded to the device" : "");
        fprintf(to, "%-24s %-10s %14s %14s %10s %10s %8s %10s %9s %8s\n", "destination", "class",
                "configured", "installed", "sent", "packets", "drops", "overlimits", "backlog", "requeues");
        for (size_t i = 0; i < s->n; i++)
                print_row(tc_address_format(&s->rows[i].address, address), "", &s->rows[i], to);
        print_row("control", ">= ", &s->control, to);
        print_row("all other", ">= ", &s->other, to);
        print_row("to them, not data", "", &s->apart, to);
        print_warnings(r, to);
        if (s->drops > 0)
                fprintf(to, "ALARM: %llu packet%s dropped at the source\n", (unsigned long long)s->drops,
                        s->drops == 1 ? " was" : "s were");
}

void qos_print_status(const struct qos_result *r, FILE *to)
{
        char text[TC_PORT_TEXT_MAX] = "";
        struct strbuf what = strbuf_init(text, sizeof text);
        struct tc_port p;

        print_status(r, to);
        if (!r->now)
                return;
        tc_port_read(&p, r->now);
        tc_port_explain(&p, r->device, &what);
        if (text[0])
                fprintf(to, "%s\n", text);
}

int qos_exit_status(int r)
{
        switch (-r) {
        case EINVAL:
        case ENODEV:
                return QOS_EXIT_WRONG;
        case EPERM:
        case EACCES:
        case EOPNOTSUPP:
                return QOS_EXIT_MISSING;
        }
        return 1;
}

int qos_fail(const struct error *e)
{
        char text[ERROR_TEXT_MAX];

        fprintf(stderr, "%sqos: %s\n", command_prefix, error_format(e, text));
        return qos_exit_status(e->code);
}
