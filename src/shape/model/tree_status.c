/* Makes a status with one row per destination from a dump, and makes tc command lines from a tree. */
#include "shape/model/tree_status.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "shape/model/netlink_message.h"
#include "shape/model/kind.h"

static void add_class(struct tc_row *r, const struct tc_object *c)
{
        r->present = true;
        r->classid = c->handle;
        r->counters = c->counters;
        if (c->kind == &tc_kind_htb) {
                r->rate_bps = c->params.htb_class.ceil_bytes * 8;
                r->burst_bytes =
                        tc_bytes_of_ticks(c->params.htb_class.cburst_ticks, c->params.htb_class.ceil_bytes);
        } else if (c->kind == &tc_kind_cbq)
                r->rate_bps = (uint64_t)c->params.cbq.rate_bytes * 8;
        else if (c->kind == &tc_kind_edt) {
                r->rate_bps = c->params.edt.rate_bps;
                r->limit_bytes = c->params.edt.limit_bytes;
        }
}

/* A class counts the packets that left it; its queue counts waits and drops. HTB also reports the drops of
 * its queue as its own. */
static void add_queue(struct tc_row *r, const struct tc_object *c, const struct tc_object *q)
{
        if (q->kind == &tc_kind_tbf) {
                uint64_t rate_bps = q->params.tbf.rate_bytes * 8;

                /* A reduced rate is the ceiling of the class. The rate of a CBQ class does not limit it. */
                r->rate_bps = c->kind == &tc_kind_htb ? MIN(r->rate_bps, rate_bps) : rate_bps;
                r->burst_bytes = tc_bytes_of_ticks(q->params.tbf.burst_ticks, q->params.tbf.rate_bytes) -
                                 q->params.tbf.overhead_bytes;
                r->limit_bytes = q->params.tbf.limit_bytes;
        } else if (q->kind == &tc_kind_bfifo)
                r->limit_bytes = q->params.fifo.limit;
        else if (q->kind == &tc_kind_fq_codel)
                r->limit_bytes = q->params.fq_codel.memory_bytes;
        r->counters.drops = MAX(r->counters.drops, q->counters.drops);
        r->counters.overlimits = MAX(r->counters.overlimits, q->counters.overlimits);
        r->counters.requeues = MAX(r->counters.requeues, q->counters.requeues);
        r->counters.backlog_bytes = q->counters.backlog_bytes;
        r->counters.backlog_packets = q->counters.backlog_packets;
}

static void fill_row(struct tc_row *r, const struct tc_tree *have, uint32_t classid)
{
        const struct tc_object *c = tc_tree_class(have, classid), *q = tc_tree_qdisc(have, classid);

        if (c)
                add_class(r, c);
        if (c && q)
                add_queue(r, c, q);
}

/* For control and other traffic, reports the guaranteed rate; they may borrow more. */
static void fill_kept(struct tc_row *r, const struct tc_tree *have, uint32_t classid)
{
        const struct tc_object *c = tc_tree_class(have, classid);

        fill_row(r, have, classid);
        if (c && c->kind == &tc_kind_htb) {
                r->rate_bps = c->params.htb_class.rate_bytes * 8;
                r->burst_bytes =
                        tc_bytes_of_ticks(c->params.htb_class.burst_ticks, c->params.htb_class.rate_bytes);
        }
}

/* Adds a class of packets that are not data. */
static void add_apart(struct tc_row *sum, const struct tc_tree *have, const struct tc_object *c)
{
        struct tc_row one = {};

        if (c->type != TC_CLASS || !tc_layout_is_apart(c->handle))
                return;
        fill_row(&one, have, c->handle);
        sum->present = true;
        sum->counters.known = one.counters.known;
        sum->counters.bytes += one.counters.bytes;
        sum->counters.packets += one.counters.packets;
        sum->counters.drops += one.counters.drops;
        sum->counters.overlimits += one.counters.overlimits;
        sum->counters.requeues += one.counters.requeues;
        sum->counters.backlog_bytes += one.counters.backlog_bytes;
        sum->counters.backlog_packets += one.counters.backlog_packets;
}

static int compare_rows(const void *a, const void *b)
{
        const struct tc_row *x = a, *y = b;

        return (x->classid > y->classid) - (x->classid < y->classid);
}

int tc_status_make(struct tc_status *ret, const struct tc_tree *have, const struct tc_destination *asked,
                   size_t n_asked)
{
        struct tc_status s = {.backend = tc_layout_backend(have),
                              .owner = tc_layout_owner(have),
                              .is_offloaded = tc_layout_is_offloaded(have)};

        if (s.backend == TC_BACKEND_NONE) {
                *ret = s;
                return 0;
        }
        s.rows = calloc(have->n + 1, sizeof *s.rows);
        if (!s.rows)
                return -ENOMEM;
        for (size_t i = 0; i < have->n; i++) {
                struct tc_row *r = &s.rows[s.n];

                add_apart(&s.apart, have, &have->objects[i]);
                if (!tc_layout_address(&have->objects[i], &r->address, &r->classid))
                        continue;
                fill_row(r, have, r->classid);
                for (size_t k = 0; k < n_asked; k++) {
                        if (tc_address_equal(&asked[k].address, &r->address))
                                r->asked_bps = asked[k].rate_bps, r->permille = asked[k].permille;
                }
                s.drops += r->counters.drops;
                s.n++;
        }
        qsort(s.rows, s.n, sizeof *s.rows, compare_rows);
        fill_kept(&s.control, have, TC_CONTROL_CLASS);
        fill_kept(&s.other, have, TC_OTHER_CLASS);
        s.drops += s.control.counters.drops;
        /* fq must not drop; the classes count what the program drops. */
        if (s.backend == TC_BACKEND_EDT)
                s.drops += tc_tree_qdisc(have, TC_ROOT)->counters.drops;
        *ret = s;
        return 0;
}

void tc_status_fini(struct tc_status *s)
{
        if (!s)
                return;
        free(s->rows);
        *s = (struct tc_status){};
}

static void add_place(const struct tc_object *o, struct strbuf *b)
{
        char handle[TC_HANDLE_TEXT_MAX], parent[TC_HANDLE_TEXT_MAX];

        tc_handle_format(o->handle, handle);
        tc_handle_format(o->parent, parent);
        if (o->type == TC_FILTER) {
                strbuf_add(b, " parent %s protocol all prio %u handle ", parent, o->priority);
                if (o->kind == &tc_kind_bpf)
                        strbuf_add(b, "%x", o->handle);
                else if (o->params.u32.divisor > 0)
                        strbuf_add(b, "%x:", o->handle >> 20);
                else if (o->handle >> 12 > 0)
                        strbuf_add(b, "%x:%x:%x", o->handle >> 20, o->handle >> 12 & 0xff, o->handle & 0xfff);
                else
                        strbuf_add(b, "::%x", o->handle & 0xfff);
        } else if (o->parent == TC_ROOT)
                strbuf_add(b, " root handle %s", handle);
        else
                strbuf_add(b, " parent %s %s %s", parent, o->type == TC_CLASS ? "classid" : "handle", handle);
}

/* What the program does, as filters of tc. Control messages come first. */
static void add_class_filters(const struct tc_tree *want, const char *device,
                              void (*line)(const char *text, void *ctx), void *ctx)
{
        for (size_t i = 0; i < 2 * want->n; i++) {
                bool control = i < want->n;
                const struct tc_object *o = &want->objects[control ? i : i - want->n];
                char text[256], handle[TC_HANDLE_TEXT_MAX], address[TC_ADDRESS_TEXT_MAX], port[32] = "";
                struct tc_address to;
                uint32_t classid;

                if (o->kind != &tc_kind_edt || o->params.edt.classid == 0 ||
                    (control && o->params.edt.control_port == 0) || !tc_layout_address(o, &to, &classid))
                        continue;
                if (control)
                        snprintf(port, sizeof port, " ip_proto udp dst_port %u", o->params.edt.control_port);
                snprintf(text, sizeof text,
                         "tc filter add dev %s egress prio %d protocol %s flower dst_ip %s%s action skbedit "
                         "priority %s",
                         device, (control ? 1 : 3) + (to.n_bytes == 16), to.n_bytes == 16 ? "ipv6" : "ip",
                         tc_address_format(&to, address), port,
                         tc_handle_format(control ? TC_CONTROL_CLASS : classid, handle));
                line(text, ctx);
        }
}

int tc_commands(const struct tc_tree *want, const char *device, void (*line)(const char *text, void *ctx),
                void *ctx)
{
        static const char *const types[] = {
                [TC_QDISC] = "qdisc", [TC_CLASS] = "class", [TC_FILTER] = "filter"};
        struct tc_tree nothing = {};
        const bool offloaded = tc_layout_is_offloaded(want);
        struct tc_diff all;
        int r = tc_diff_make(&all, &nothing, want);

        if (r < 0)
                return r;
        for (size_t i = 0; i < all.n; i++) {
                const struct tc_object *o = all.changes[i].object;
                char text[512];
                struct strbuf b = strbuf_init(text, sizeof text);

                if (o->kind == &tc_kind_bpf) {
                        strbuf_add(&b, "tc qdisc add dev %s clsact", device);
                        line(text, ctx);
                        b = strbuf_init(text, sizeof text);
                }
                if (offloaded && o->kind == &tc_kind_bpf)
                        add_class_filters(want, device, line, ctx);
                if (offloaded && (o->kind == &tc_kind_bpf || o->kind == &tc_kind_edt))
                        continue;
                /* tc cannot load the program or fill its map. */
                strbuf_add(&b, "%stc %s add dev %s",
                           o->kind == &tc_kind_bpf || o->kind == &tc_kind_edt ? "# " : "", types[o->type],
                           device);
                add_place(o, &b);
                strbuf_add(&b, " %s", o->kind_name);
                if (o->kind)
                        o->kind->words(o, &b);
                line(text, ctx);
        }
        tc_diff_fini(&all);
        return 0;
}
