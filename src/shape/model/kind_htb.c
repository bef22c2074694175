/* HTB (net/sched/sch_htb.c): the root and its classes. */
#include <errno.h>

#include "shape/model/kind.h"

static void encode(struct nlmsghdr *m, const struct tc_object *o)
{
        if (o->type == TC_QDISC) {
                struct tc_htb_glob glob = {
                        .version = TC_HTB_PROTOVER,
                        .rate2quantum = o->params.htb_qdisc.rate2quantum,
                        .defcls = o->params.htb_qdisc.default_class,
                };

                mnl_attr_put(m, TCA_HTB_INIT, sizeof glob, &glob);
                if (o->params.htb_qdisc.direct_packets > 0)
                        mnl_attr_put_u32(m, TCA_HTB_DIRECT_QLEN, o->params.htb_qdisc.direct_packets);
                if (o->params.htb_qdisc.offload)
                        mnl_attr_put(m, TCA_HTB_OFFLOAD, 0, NULL);
                return;
        }
        const struct tc_htb_class *c = &o->params.htb_class;
        struct tc_htb_opt opt = {
                .rate = kind_ratespec(c->rate_bytes, c->overhead_bytes),
                .ceil = kind_ratespec(c->ceil_bytes, c->overhead_bytes),
                .buffer = c->burst_ticks,
                .cbuffer = c->cburst_ticks,
                .quantum = c->quantum_bytes,
                .prio = c->priority,
        };

        mnl_attr_put(m, TCA_HTB_PARMS, sizeof opt, &opt);
        kind_put_rate64(m, TCA_HTB_RATE64, c->rate_bytes);
        kind_put_rate64(m, TCA_HTB_CEIL64, c->ceil_bytes);
}

static int decode_qdisc(struct tc_object *o, const struct nlattr *const *a)
{
        const struct nlattr *init = a[TCA_HTB_INIT], *direct = a[TCA_HTB_DIRECT_QLEN];
        struct tc_htb_glob glob;

        if (!kind_get(init, &glob, sizeof glob))
                return -EBADMSG;
        o->params.htb_qdisc = (struct tc_htb_qdisc){
                .default_class = glob.defcls,
                .rate2quantum = glob.rate2quantum,
                .direct_packets = kind_get_u32(direct, 0),
                .offload = a[TCA_HTB_OFFLOAD] != NULL,
        };
        return 0;
}

static int decode(struct tc_object *o, const struct nlattr *options)
{
        const struct nlattr *a[TCA_HTB_MAX + 1];
        struct tc_htb_opt opt;

        kind_read(options, a, TCA_HTB_MAX);
        if (o->type == TC_QDISC)
                return decode_qdisc(o, a);
        if (!kind_get(a[TCA_HTB_PARMS], &opt, sizeof opt))
                return -EBADMSG;
        if (opt.rate.overhead != opt.ceil.overhead || opt.rate.mpu || opt.ceil.mpu ||
            kind_counts_cells(&opt.rate) || kind_counts_cells(&opt.ceil))
                return -EBADMSG;
        o->params.htb_class = (struct tc_htb_class){
                .rate_bytes = kind_get_u64(a[TCA_HTB_RATE64], opt.rate.rate),
                .ceil_bytes = kind_get_u64(a[TCA_HTB_CEIL64], opt.ceil.rate),
                .burst_ticks = opt.buffer,
                .cburst_ticks = opt.cbuffer,
                /* The kernel's own choice, which a driver would refuse in a repair. */
                .quantum_bytes = a[TCA_HTB_OFFLOAD] ? 0 : opt.quantum,
                .priority = opt.prio,
                .overhead_bytes = opt.rate.overhead,
        };
        return 0;
}

static bool equal(const struct tc_object *x, const struct tc_object *y)
{
        const struct tc_htb_class *a = &x->params.htb_class, *b = &y->params.htb_class;

        if (x->type == TC_QDISC)
                return x->params.htb_qdisc.default_class == y->params.htb_qdisc.default_class &&
                       x->params.htb_qdisc.rate2quantum == y->params.htb_qdisc.rate2quantum &&
                       x->params.htb_qdisc.offload == y->params.htb_qdisc.offload;
        return a->rate_bytes == b->rate_bytes && a->ceil_bytes == b->ceil_bytes &&
               tc_ticks_equal(a->burst_ticks, b->burst_ticks) &&
               tc_ticks_equal(a->cburst_ticks, b->cburst_ticks) &&
               (a->quantum_bytes == b->quantum_bytes || a->quantum_bytes == 0 || b->quantum_bytes == 0) &&
               a->priority == b->priority && a->overhead_bytes == b->overhead_bytes;
}

static void words(const struct tc_object *o, struct strbuf *b)
{
        const struct tc_htb_class *c = &o->params.htb_class;

        if (o->type == TC_QDISC) {
                strbuf_add(b, " default 0x%x r2q %u%s", o->params.htb_qdisc.default_class,
                           o->params.htb_qdisc.rate2quantum, o->params.htb_qdisc.offload ? " offload" : "");
                return;
        }
        kind_add_rate_words(b, "rate", c->rate_bytes);
        kind_add_rate_words(b, "ceil", c->ceil_bytes);
        strbuf_add(b, " burst %llub cburst %llub",
                   (unsigned long long)tc_bytes_of_ticks(c->burst_ticks, c->rate_bytes),
                   (unsigned long long)tc_bytes_of_ticks(c->cburst_ticks, c->ceil_bytes));
        if (c->quantum_bytes > 0)
                strbuf_add(b, " quantum %u prio %u", c->quantum_bytes, c->priority);
        if (c->overhead_bytes)
                strbuf_add(b, " overhead %u", c->overhead_bytes);
}

const struct tc_kind tc_kind_htb = {
        .name = "htb", .encode = encode, .decode = decode, .equal = equal, .words = words};
