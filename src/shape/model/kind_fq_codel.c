/* fq_codel (net/sched/sch_fq_codel.c): a queue for each flow, kept short (RFC 8290). */
#include <errno.h>

#include "shape/model/kind.h"

/* The kernel's defaults for parameters that are not sent; the number of flows cannot be changed later. */
#define FLOWS 1024u
#define DROP_BATCH_PACKETS 64u
/* The kernel keeps times in units of 1.024 us. */
#define TIME_UNIT_US 2

static void encode(struct nlmsghdr *m, const struct tc_object *o)
{
        const struct tc_fq_codel *q = &o->params.fq_codel;

        mnl_attr_put_u32(m, TCA_FQ_CODEL_TARGET, q->target_us);
        mnl_attr_put_u32(m, TCA_FQ_CODEL_LIMIT, q->limit_packets);
        mnl_attr_put_u32(m, TCA_FQ_CODEL_INTERVAL, q->interval_us);
        mnl_attr_put_u32(m, TCA_FQ_CODEL_ECN, q->ecn);
        mnl_attr_put_u32(m, TCA_FQ_CODEL_QUANTUM, q->quantum_bytes);
        mnl_attr_put_u32(m, TCA_FQ_CODEL_MEMORY_LIMIT, q->memory_bytes);
}

static int decode(struct tc_object *o, const struct nlattr *options)
{
        const struct nlattr *a[TCA_FQ_CODEL_MAX + 1];

        kind_read(options, a, TCA_FQ_CODEL_MAX);
        if (!a[TCA_FQ_CODEL_LIMIT] || a[TCA_FQ_CODEL_CE_THRESHOLD] ||
            kind_get_u32(a[TCA_FQ_CODEL_FLOWS], FLOWS) != FLOWS ||
            kind_get_u32(a[TCA_FQ_CODEL_DROP_BATCH_SIZE], DROP_BATCH_PACKETS) != DROP_BATCH_PACKETS)
                return -EBADMSG;
        o->params.fq_codel = (struct tc_fq_codel){
                .limit_packets = kind_get_u32(a[TCA_FQ_CODEL_LIMIT], 0),
                .target_us = kind_get_u32(a[TCA_FQ_CODEL_TARGET], 0),
                .interval_us = kind_get_u32(a[TCA_FQ_CODEL_INTERVAL], 0),
                .quantum_bytes = kind_get_u32(a[TCA_FQ_CODEL_QUANTUM], 0),
                .memory_bytes = kind_get_u32(a[TCA_FQ_CODEL_MEMORY_LIMIT], 0),
                .ecn = kind_get_u32(a[TCA_FQ_CODEL_ECN], 0) > 0,
        };
        return 0;
}

static bool times_equal(uint32_t a, uint32_t b)
{
        return (a > b ? a - b : b - a) <= TIME_UNIT_US;
}

/* Linux before 4.7 does not limit the memory, and reports no limit. */
static bool equal(const struct tc_object *x, const struct tc_object *y)
{
        const struct tc_fq_codel *a = &x->params.fq_codel, *b = &y->params.fq_codel;

        return a->limit_packets == b->limit_packets && times_equal(a->target_us, b->target_us) &&
               times_equal(a->interval_us, b->interval_us) && a->quantum_bytes == b->quantum_bytes &&
               (a->memory_bytes == b->memory_bytes || a->memory_bytes == 0 || b->memory_bytes == 0) &&
               a->ecn == b->ecn;
}

static void words(const struct tc_object *o, struct strbuf *b)
{
        const struct tc_fq_codel *q = &o->params.fq_codel;

        strbuf_add(b, " limit %u target %uus interval %uus quantum %u", q->limit_packets, q->target_us,
                   q->interval_us, q->quantum_bytes);
        if (q->memory_bytes > 0)
                strbuf_add(b, " memory_limit %ub", q->memory_bytes);
        strbuf_add(b, q->ecn ? " ecn" : " noecn");
}

const struct tc_kind tc_kind_fq_codel = {
        .name = "fq_codel", .encode = encode, .decode = decode, .equal = equal, .words = words};
