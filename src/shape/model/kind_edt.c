/* The kinds of the backend edt: fq (net/sched/sch_fq.c), which keeps departure times; the filter that runs
 * evb's BPF program (net/sched/cls_bpf.c); and "edt", a destination of this program, which the kernel does
 * not know as a class. Parameters of other fq's and of other programs' filters are not decoded. */
#include <errno.h>
#include <linux/pkt_cls.h>
#include <string.h>

#include "shape/model/kind.h"
#include "shape/model/layout.h"

/* The program's name also says whether evb added the clsact below the filter, and so must delete it. */
#define NAME "evb-edt"
#define NAME_WITH_CLSACT "evb-edt clsact"

static void encode_fq(struct nlmsghdr *m, const struct tc_object *o)
{
        const struct tc_fq *q = &o->params.fq;

        mnl_attr_put_u32(m, TCA_FQ_PLIMIT, q->limit_packets);
        mnl_attr_put_u32(m, TCA_FQ_FLOW_PLIMIT, q->flow_limit_packets);
        mnl_attr_put_u32(m, TCA_FQ_HORIZON, q->horizon_us);
        mnl_attr_put_u32(m, TCA_FQ_LOW_RATE_THRESHOLD, TC_OUR_MAJOR);
}

/* The threshold is the mark. It has no effect on packets with a departure time. */
static int decode_fq(struct tc_object *o, const struct nlattr *options)
{
        const struct nlattr *a[TCA_FQ_HORIZON + 1];

        kind_read(options, a, TCA_FQ_HORIZON);
        if (kind_get_u32(a[TCA_FQ_LOW_RATE_THRESHOLD], 0) != TC_OUR_MAJOR ||
            kind_get_u32(a[TCA_FQ_FLOW_MAX_RATE], UINT32_MAX) != UINT32_MAX)
                return -EBADMSG;
        o->params.fq = (struct tc_fq){
                .limit_packets = kind_get_u32(a[TCA_FQ_PLIMIT], 0),
                .flow_limit_packets = kind_get_u32(a[TCA_FQ_FLOW_PLIMIT], 0),
                .horizon_us = kind_get_u32(a[TCA_FQ_HORIZON], 0),
        };
        return 0;
}

/* Linux before 5.8 has no horizon. */
static bool equal_fq(const struct tc_object *x, const struct tc_object *y)
{
        const struct tc_fq *a = &x->params.fq, *b = &y->params.fq;

        return a->limit_packets == b->limit_packets && a->flow_limit_packets == b->flow_limit_packets &&
               (a->horizon_us == b->horizon_us || a->horizon_us == 0 || b->horizon_us == 0);
}

static void words_fq(const struct tc_object *o, struct strbuf *b)
{
        strbuf_add(b, " limit %u flow_limit %u low_rate_threshold %ubit", o->params.fq.limit_packets,
                   o->params.fq.flow_limit_packets, TC_OUR_MAJOR * 8);
        if (o->params.fq.horizon_us > 0)
                strbuf_add(b, " horizon %uus", o->params.fq.horizon_us);
}

static void encode_bpf(struct nlmsghdr *m, const struct tc_object *o)
{
        mnl_attr_put_u32(m, TCA_BPF_FD, (uint32_t)o->params.bpf.fd);
        mnl_attr_put_strz(m, TCA_BPF_NAME, o->params.bpf.owns_clsact ? NAME_WITH_CLSACT : NAME);
        mnl_attr_put_u32(m, TCA_BPF_FLAGS, TCA_BPF_FLAG_ACT_DIRECT);
}

static bool is_named(const struct nlattr *a, const char *name)
{
        return a && mnl_attr_get_payload_len(a) == strlen(name) + 1 &&
               memcmp(mnl_attr_get_payload(a), name, strlen(name) + 1) == 0;
}

static int decode_bpf(struct tc_object *o, const struct nlattr *options)
{
        const struct nlattr *a[TCA_BPF_MAX + 1];

        kind_read(options, a, TCA_BPF_MAX);
        o->params.bpf = (struct tc_bpf){.program_id = kind_get_u32(a[TCA_BPF_ID], 0),
                                        .owns_clsact = is_named(a[TCA_BPF_NAME], NAME_WITH_CLSACT)};
        return o->type == TC_FILTER && o->parent == TC_EGRESS &&
                               (o->params.bpf.owns_clsact || is_named(a[TCA_BPF_NAME], NAME)) &&
                               kind_get_u32(a[TCA_BPF_FLAGS], 0) == TCA_BPF_FLAG_ACT_DIRECT
                       ? 0
                       : -EBADMSG;
}

static bool equal_bpf(const struct tc_object *a, const struct tc_object *b)
{
        return a->params.bpf.is_unreadable == b->params.bpf.is_unreadable;
}

static void words_bpf(const struct tc_object *o, struct strbuf *b)
{
        (void)o;
        strbuf_add(b, " direct-action");
}

static void encode_edt(struct nlmsghdr *m, const struct tc_object *o)
{
        (void)m;
        (void)o;
}

static int decode_edt(struct tc_object *o, const struct nlattr *options)
{
        (void)o;
        (void)options;
        return -EBADMSG;
}

static bool equal_edt(const struct tc_object *x, const struct tc_object *y)
{
        const struct tc_edt *a = &x->params.edt, *b = &y->params.edt;

        return a->classid == b->classid && a->rate_bps == b->rate_bps && a->limit_bytes == b->limit_bytes &&
               a->control_port == b->control_port && a->overhead_bytes == b->overhead_bytes &&
               memcmp(a->address, b->address, sizeof a->address) == 0 && a->is_v6 == b->is_v6;
}

static void words_edt(const struct tc_object *o, struct strbuf *b)
{
        const struct tc_edt *d = &o->params.edt;
        char text[TC_ADDRESS_TEXT_MAX];
        struct tc_address a = {.n_bytes = d->is_v6 ? 16 : 4};

        memcpy(a.bytes, d->address, a.n_bytes);
        strbuf_add(b, " to %s rate %llubit limit %llub", tc_address_format(&a, text),
                   (unsigned long long)d->rate_bps, (unsigned long long)d->limit_bytes);
        if (d->overhead_bytes > 0)
                strbuf_add(b, " overhead %u", d->overhead_bytes);
        if (d->control_port > 0)
                strbuf_add(b, " except port %u", d->control_port);
}

const struct tc_kind tc_kind_fq = {
        .name = "fq", .encode = encode_fq, .decode = decode_fq, .equal = equal_fq, .words = words_fq};
const struct tc_kind tc_kind_bpf = {
        .name = "bpf", .encode = encode_bpf, .decode = decode_bpf, .equal = equal_bpf, .words = words_bpf};
const struct tc_kind tc_kind_edt = {
        .name = "edt", .encode = encode_edt, .decode = decode_edt, .equal = equal_edt, .words = words_edt};
