/* TBF (net/sched/sch_tbf.c), without peak rate. */
#include <errno.h>

#include "shape/model/kind.h"

static void encode(struct nlmsghdr *m, const struct tc_object *o)
{
        const struct tc_tbf *t = &o->params.tbf;
        struct tc_tbf_qopt opt = {
                .rate = kind_ratespec(t->rate_bytes, t->overhead_bytes),
                .limit = t->limit_bytes,
                .buffer = t->burst_ticks,
        };

        mnl_attr_put(m, TCA_TBF_PARMS, sizeof opt, &opt);
        kind_put_rate64(m, TCA_TBF_RATE64, t->rate_bytes);
        /* The exact burst. Without it, the kernel derives the largest packet from rounded ticks. */
        if (t->burst_bytes > 0)
                mnl_attr_put_u32(m, TCA_TBF_BURST, t->burst_bytes);
}

static int decode(struct tc_object *o, const struct nlattr *options)
{
        const struct nlattr *a[TCA_TBF_MAX + 1];
        struct tc_tbf_qopt opt;

        kind_read(options, a, TCA_TBF_MAX);
        if (!kind_get(a[TCA_TBF_PARMS], &opt, sizeof opt) || opt.peakrate.rate > 0 || a[TCA_TBF_PRATE64] ||
            opt.rate.mpu || kind_counts_cells(&opt.rate))
                return -EBADMSG;
        o->params.tbf = (struct tc_tbf){
                .rate_bytes = kind_get_u64(a[TCA_TBF_RATE64], opt.rate.rate),
                .burst_ticks = opt.buffer,
                .limit_bytes = opt.limit,
                .burst_bytes = kind_get_u32(a[TCA_TBF_BURST], 0),
                .overhead_bytes = opt.rate.overhead,
        };
        return 0;
}

static bool equal(const struct tc_object *x, const struct tc_object *y)
{
        const struct tc_tbf *a = &x->params.tbf, *b = &y->params.tbf;

        return a->rate_bytes == b->rate_bytes && tc_ticks_equal(a->burst_ticks, b->burst_ticks) &&
               a->limit_bytes == b->limit_bytes && a->overhead_bytes == b->overhead_bytes;
}

static void words(const struct tc_object *o, struct strbuf *b)
{
        const struct tc_tbf *t = &o->params.tbf;

        kind_add_rate_words(b, "rate", t->rate_bytes);
        strbuf_add(b, " burst %llub limit %ub",
                   (unsigned long long)(t->burst_bytes ?: tc_bytes_of_ticks(t->burst_ticks, t->rate_bytes)),
                   t->limit_bytes);
        if (t->overhead_bytes)
                strbuf_add(b, " overhead %u", t->overhead_bytes);
}

const struct tc_kind tc_kind_tbf = {
        .name = "tbf", .encode = encode, .decode = decode, .equal = equal, .words = words};
