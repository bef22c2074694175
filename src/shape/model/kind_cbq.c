/* CBQ (net/sched/sch_cbq.c of Linux up to 6.2), as published. The qdisc has the parameters of its topmost
 * class. For the idle times, see S. Floyd, "Notes on Class-Based Queueing: Setting Parameters" (1995). */
#include <errno.h>
#include <linux/rtnetlink.h>

#include "base/util.h"
#include "shape/model/kind.h"

/* Linux removed CBQ from its headers together with the qdisc, but older kernels still have CBQ. The layout
 * follows include/uapi/linux/pkt_sched.h up to Linux 6.2. */
enum attribute {
        ATTRIBUTE_LINK_SHARING = 1,
        ATTRIBUTE_ROUND_ROBIN = 2,
        ATTRIBUTE_FILTER = 3,
        ATTRIBUTE_RATE = 5,
        ATTRIBUTE_RATE_TABLE = 6,
        ATTRIBUTE_MAX = 7,
};

struct link_sharing {
        uint8_t change, flags, ewma_log, level;
        uint32_t max_idle, min_idle, off_time, average_packet_bytes;
};

struct round_robin {
        uint8_t flags, priority, class_priority, reserved;
        uint32_t allot_bytes, weight;
};

struct filter_defaults {
        uint32_t split, map, map_changes;
};

/* Bits of link_sharing.flags, and of link_sharing.change: flags, EWMA, the three idle times, and packet
 * size. */
#define BOUNDED 0x01u
#define ISOLATED 0x02u
#define CHANGE_ALL 0x3fu

static void encode(struct nlmsghdr *m, const struct tc_object *o)
{
        const struct tc_cbq *c = &o->params.cbq;
        uint32_t table[TC_RATE_TABLE_SIZE];
        struct link_sharing sharing = {
                .change = CHANGE_ALL,
                .flags = (uint8_t)((c->bounded ? BOUNDED : 0) | (c->isolated ? ISOLATED : 0)),
                .ewma_log = c->ewma_log,
                .max_idle = c->max_idle,
                .min_idle = c->min_idle,
                .off_time = c->off_time,
                .average_packet_bytes = c->average_packet_bytes,
        };
        struct round_robin turns = {.priority = c->priority,
                                    .class_priority = c->priority,
                                    .allot_bytes = c->allot_bytes,
                                    .weight = c->weight};
        struct tc_ratespec rate = {.cell_align = -1, .mpu = c->min_packet_bytes, .rate = c->rate_bytes};

        rate.cell_log =
                tc_rate_table(table, c->rate_bytes, (UINT32_C(256) << c->cell_log) - 1, c->min_packet_bytes);
        mnl_attr_put(m, ATTRIBUTE_RATE, sizeof rate, &rate);
        mnl_attr_put(m, ATTRIBUTE_LINK_SHARING, sizeof sharing, &sharing);
        mnl_attr_put(m, ATTRIBUTE_ROUND_ROBIN, sizeof turns, &turns);
        if (c->split || c->default_map) {
                struct filter_defaults filter = {
                        .split = c->split, .map = c->default_map, .map_changes = UINT32_MAX};

                mnl_attr_put(m, ATTRIBUTE_FILTER, sizeof filter, &filter);
        }
        mnl_attr_put(m, ATTRIBUTE_RATE_TABLE, sizeof table, table);
}

static int decode(struct tc_object *o, const struct nlattr *options)
{
        const struct nlattr *a[ATTRIBUTE_MAX + 1];
        struct link_sharing sharing;
        struct round_robin turns;
        struct tc_ratespec rate;
        struct filter_defaults filter = {};

        kind_read(options, a, ATTRIBUTE_MAX);
        if (!kind_get(a[ATTRIBUTE_RATE], &rate, sizeof rate) ||
            !kind_get(a[ATTRIBUTE_LINK_SHARING], &sharing, sizeof sharing) ||
            !kind_get(a[ATTRIBUTE_ROUND_ROBIN], &turns, sizeof turns) || rate.rate == 0 ||
            rate.overhead != 0 || rate.cell_log > 16)
                return -EBADMSG;
        kind_get(a[ATTRIBUTE_FILTER], &filter, sizeof filter);
        o->params.cbq = (struct tc_cbq){
                .rate_bytes = rate.rate,
                .max_idle = sharing.max_idle,
                .min_idle = sharing.min_idle,
                .off_time = sharing.off_time,
                .average_packet_bytes = sharing.average_packet_bytes,
                .allot_bytes = turns.allot_bytes,
                .weight = turns.weight,
                .split = filter.split,
                .default_map = filter.map,
                .min_packet_bytes = rate.mpu,
                .cell_log = rate.cell_log,
                .priority = turns.priority,
                .ewma_log = sharing.ewma_log,
                .bounded = sharing.flags & BOUNDED,
                .isolated = sharing.flags & ISOLATED,
        };
        return 0;
}

/* For a qdisc, the kernel uses only the rate and the idle times; cbq_init() sets the rest. */
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
