/* CBQ (net/sched/sch_cbq.c of Linux up to 6.2), as in the publications. The qdisc has the parameters of its
 * topmost class. For the idle times see S. Floyd, "Notes on Class-Based Queueing: Setting Parameters" (1995).
 */
#include <errno.h>
#include <linux/rtnetlink.h>

#include "evb/base/util.h"
#include "kind_internal.h"

#define ALL_OF_LSS                                                                                           \
        (TCF_CBQ_LSS_FLAGS | TCF_CBQ_LSS_EWMA | TCF_CBQ_LSS_MAXIDLE | TCF_CBQ_LSS_MINIDLE |                  \
         TCF_CBQ_LSS_OFFTIME | TCF_CBQ_LSS_AVPKT)

static void encode(struct nlmsghdr *m, const struct tc_object *o)
{
        const struct tc_cbq *c = &o->params.cbq;
        uint32_t table[TC_RATE_TABLE_SIZE];
        struct tc_cbq_lssopt lss = {
                .change = ALL_OF_LSS,
                .flags = (uint8_t)((c->bounded ? TCF_CBQ_LSS_BOUNDED : 0) |
                                   (c->isolated ? TCF_CBQ_LSS_ISOLATED : 0)),
                .ewma_log = c->ewma_log,
                .maxidle = c->max_idle,
                .minidle = c->min_idle,
                .offtime = c->off_time,
                .avpkt = c->average_packet_bytes,
        };
        struct tc_cbq_wrropt wrr = {.priority = c->priority,
                                    .cpriority = c->priority,
                                    .allot = c->allot_bytes,
                                    .weight = c->weight};
        struct tc_ratespec rate = {.cell_align = -1, .mpu = c->min_packet_bytes, .rate = c->rate_bytes};

        rate.cell_log =
                tc_rate_table(table, c->rate_bytes, (UINT32_C(256) << c->cell_log) - 1, c->min_packet_bytes);
        mnl_attr_put(m, TCA_CBQ_RATE, sizeof rate, &rate);
        mnl_attr_put(m, TCA_CBQ_LSSOPT, sizeof lss, &lss);
        mnl_attr_put(m, TCA_CBQ_WRROPT, sizeof wrr, &wrr);
        if (c->split || c->default_map) {
                struct tc_cbq_fopt fopt = {
                        .split = c->split, .defmap = c->default_map, .defchange = UINT32_MAX};

                mnl_attr_put(m, TCA_CBQ_FOPT, sizeof fopt, &fopt);
        }
        mnl_attr_put(m, TCA_CBQ_RTAB, sizeof table, table);
}

static int decode(struct tc_object *o, const struct nlattr *options)
{
        const struct nlattr *a[TCA_CBQ_MAX + 1];
        struct tc_cbq_lssopt lss;
        struct tc_cbq_wrropt wrr;
        struct tc_ratespec rate;
        struct tc_cbq_fopt fopt = {};

        kind_read(options, a, TCA_CBQ_MAX);
        if (!kind_get(a[TCA_CBQ_RATE], &rate, sizeof rate) ||
            !kind_get(a[TCA_CBQ_LSSOPT], &lss, sizeof lss) ||
            !kind_get(a[TCA_CBQ_WRROPT], &wrr, sizeof wrr) || rate.rate == 0 || rate.overhead != 0 ||
            rate.cell_log > 16)
                return -EBADMSG;
        kind_get(a[TCA_CBQ_FOPT], &fopt, sizeof fopt);
        o->params.cbq = (struct tc_cbq){
                .rate_bytes = rate.rate,
                .max_idle = lss.maxidle,
                .min_idle = lss.minidle,
                .off_time = lss.offtime,
                .average_packet_bytes = lss.avpkt,
                .allot_bytes = wrr.allot,
                .weight = wrr.weight,
                .split = fopt.split,
                .default_map = fopt.defmap,
                .min_packet_bytes = rate.mpu,
                .cell_log = rate.cell_log,
                .priority = wrr.priority,
                .ewma_log = lss.ewma_log,
                .bounded = lss.flags & TCF_CBQ_LSS_BOUNDED,
                .isolated = lss.flags & TCF_CBQ_LSS_ISOLATED,
        };
        return 0;
}

/* For a qdisc the kernel takes only the rate and the idle times; cbq_init() sets the rest. */
static bool equal_turns(const struct tc_object *x, const struct tc_cbq *a, const struct tc_cbq *b)
{
        return x->type == TC_QDISC ||
               (a->allot_bytes == b->allot_bytes && a->weight == b->weight && a->priority == b->priority);
}

static bool equal(const struct tc_object *x, const struct tc_object *y)
{
        const struct tc_cbq *a = &x->params.cbq, *b = &y->params.cbq;

        return a->rate_bytes == b->rate_bytes && tc_ticks_equal(a->max_idle, b->max_idle) &&
               tc_ticks_equal(a->min_idle, b->min_idle) && tc_ticks_equal(a->off_time, b->off_time) &&
               a->average_packet_bytes == b->average_packet_bytes && equal_turns(x, a, b) &&
               a->split == b->split && a->default_map == b->default_map &&
               a->min_packet_bytes == b->min_packet_bytes && a->cell_log == b->cell_log &&
               a->ewma_log == b->ewma_log && a->bounded == b->bounded && a->isolated == b->isolated;
}

static void words(const struct tc_object *o, struct strbuf *b)
{
        const struct tc_cbq *c = &o->params.cbq;

        /* tc computes the idle times from these values. */
        kind_add_rate_words(b, "bandwidth", c->bandwidth_bytes ?: c->rate_bytes);
        if (o->type == TC_CLASS) {
                kind_add_rate_words(b, "rate", c->rate_bytes);
                strbuf_add(b, " prio %u", c->priority);
        }
        strbuf_add(b, " allot %u avpkt %u cell %u mpu %u ewma %u", c->allot_bytes, c->average_packet_bytes,
                   1u << MIN(c->cell_log, 16), c->min_packet_bytes, c->ewma_log);
        if (o->type == TC_CLASS)
                strbuf_add(b, " weight %u%s%s", c->weight, c->bounded ? " bounded" : "",
                           c->isolated ? " isolated" : "");
        if (c->split || c->default_map) {
                char split[TC_HANDLE_TEXT_MAX];

                strbuf_add(b, " split %s defmap 0x%x", tc_handle_format(c->split, split), c->default_map);
        }
}

const struct tc_kind tc_kind_cbq = {
        .name = "cbq", .encode = encode, .decode = decode, .equal = equal, .words = words};
