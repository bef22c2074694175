/* Makes the qdiscs and classes of a layout, for HTB or CBQ. */
#include <arpa/inet.h>
#include <math.h>
#include <string.h>

#include "base/util.h"
#include "layout_internal.h"
#include "shape/model/kind.h"
#include "shape/model/units.h"

/* HTB schedules by the quanta of leaves only. An inner class keeps the quantum from before its first child,
 * so this value is fixed. */
#define LINK_QUANTUM_BYTES 60000
#define CBQ_EWMA_LOG 5
#define CBQ_MIN_PACKET_BYTES 64
/* The kernel rejects rate tables with cells of a single byte. */
#define CBQ_CELLS_FROM_BYTES 256u
#define CBQ_MAX_BURST_PACKETS 20.0
#define CBQ_MAX_WEIGHT_RATIO 16u
/* The kernel's value for no lower limit. */
#define CBQ_NO_MIN_IDLE 0x7fffffffu
/* All of TC_PRIO_*. */
#define CBQ_ALL_PRIORITIES 0xffffu

enum { PRIORITY_CONTROL, PRIORITY_DATA, PRIORITY_OTHER };

static struct tc_object object(enum tc_type type, const struct tc_kind *kind, uint32_t handle,
                               uint32_t parent)
{
        struct tc_object o = {.type = type, .handle = handle, .parent = parent, .kind = kind};

        strcpy(o.kind_name, kind->name);
        return o;
}

static int add_htb_root(struct tc_tree *t)
{
        struct tc_object o = object(TC_QDISC, &tc_kind_htb, TC_OUR_ROOT, TC_ROOT);

        o.params.htb_qdisc = (struct tc_htb_qdisc){.default_class = TC_MINOR(TC_OTHER_CLASS),
                                                   .rate2quantum = TC_OUR_MAJOR};
        return tc_tree_add(t, &o);
}

/* A burst at the ceiling must hold a packet, or HTB's turns become too short for the rate. HTB lets a packet
 * pass for which it has not all tokens yet. A ROS's super-packets take up to three quarters of the TBF's
 * burst, so a reduced rate, too, lets no more than that burst pass at once. */
static uint64_t ceiling_burst(const struct tc_plan *p, const struct tc_share *s, uint64_t ceil_bps)
{
        if (ceil_bps > s->rate_bps)
                return p->link_burst_bytes;
        if (p->backend == TC_BACKEND_HTB_TBF && s->rate_bps < s->planned_bps)
                return MAX(s->burst_bytes / 4, (uint64_t)p->frame_bytes + p->overhead_bytes);
        return s->burst_bytes;
}

/* A class may borrow up to ceil_bps; a shaping qdisc below it may limit it further. */
static int add_htb(struct tc_tree *t, const struct tc_plan *p, uint32_t classid, const struct tc_share *s,
                   uint64_t ceil_bps, int priority)
{
        struct tc_object o = object(TC_CLASS, &tc_kind_htb, classid,
                                    classid == TC_LINK_CLASS ? TC_OUR_ROOT : TC_LINK_CLASS);
        uint64_t rate_bytes = tc_rate_bytes(s->guaranteed_bps), ceil_bytes = tc_rate_bytes(ceil_bps);
        uint64_t cburst_bytes = ceiling_burst(p, s, ceil_bps);

        o.params.htb_class = (struct tc_htb_class){
                .rate_bytes = rate_bytes,
                .ceil_bytes = ceil_bytes,
                .burst_ticks = tc_ticks_of_bytes(s->burst_bytes, rate_bytes),
                .cburst_ticks = tc_ticks_of_bytes(cburst_bytes, ceil_bytes),
                .quantum_bytes = s->quantum_bytes,
                .priority = (uint32_t)priority,
                .overhead_bytes = p->overhead_bytes,
        };
        return tc_tree_add(t, &o);
}

static int add_fifo(struct tc_tree *t, uint32_t classid, uint32_t major, uint64_t limit_bytes)
{
        struct tc_object o = object(TC_QDISC, &tc_kind_bfifo, TC_ID(major, 0), classid);

        o.params.fifo.limit = (uint32_t)limit_bytes;
        return tc_tree_add(t, &o);
}

static int add_tbf(struct tc_tree *t, const struct tc_plan *p, uint32_t classid, const struct tc_share *s,
                   uint64_t rate_bps)
{
        struct tc_object o = object(TC_QDISC, &tc_kind_tbf, TC_ID(TC_MINOR(classid), 0), classid);
        uint64_t rate_bytes = tc_rate_bytes(rate_bps);

        o.params.tbf = (struct tc_tbf){
                .rate_bytes = rate_bytes,
                /* Size of the packet as the kernel counts it. */
                .burst_ticks = tc_ticks_of_bytes(s->burst_bytes + p->overhead_bytes, rate_bytes),
                .burst_bytes = (uint32_t)s->burst_bytes,
                .limit_bytes = (uint32_t)s->limit_bytes,
                .packet_most_bytes = p->packet_most_bytes,
                .overhead_bytes = p->overhead_bytes,
        };
        return tc_tree_add(t, &o);
}

static struct tc_share link_share(const struct tc_plan *p)
{
        return (struct tc_share){
                .rate_bps = p->link_rate_bps,
                .guaranteed_bps = p->link_rate_bps,
                .burst_bytes = p->link_burst_bytes,
                .quantum_bytes = LINK_QUANTUM_BYTES,
        };
}

/* Each change of a TBF fills its bucket, and so lets another burst pass. A reduced rate changes several times
 * a second: it is the ceiling of the class, whose tokens stay as they are. */
static uint64_t ceiling(const struct tc_plan *p, const struct tc_share *s)
{
        if (p->backend == TC_BACKEND_HTB || s->rate_bps < s->planned_bps)
                return s->rate_bps;
        return MAX(s->rate_bps, p->link_rate_bps);
}

static int add_htb_classes(struct tc_tree *t, const struct tc_plan *p, const uint32_t *minors)
{
        struct tc_share link = link_share(p);
        int r = add_htb_root(t);

        if (r >= 0)
                r = add_htb(t, p, TC_LINK_CLASS, &link, p->link_rate_bps, 0);
        if (r >= 0 && p->control_port > 0) {
                r = add_htb(t, p, TC_CONTROL_CLASS, &p->control, p->link_rate_bps, PRIORITY_CONTROL);
                if (r >= 0)
                        r = add_fifo(t, TC_CONTROL_CLASS, TC_MINOR(TC_CONTROL_CLASS), p->control.limit_bytes);
        }
        if (r >= 0)
                r = add_htb(t, p, TC_OTHER_CLASS, &p->other, p->link_rate_bps, PRIORITY_OTHER);
        if (r >= 0)
                r = add_fifo(t, TC_OTHER_CLASS, TC_MINOR(TC_OTHER_CLASS), p->other.limit_bytes);
        for (size_t i = 0; r >= 0 && i < p->n; i++) {
                uint32_t classid = TC_ID(TC_OUR_MAJOR, minors[i]);
                const struct tc_share *s = &p->shares[i];

                r = add_htb(t, p, classid, s, ceiling(p, s), PRIORITY_DATA);
                if (r < 0)
                        break;
                r = p->backend == TC_BACKEND_HTB ? add_fifo(t, classid, minors[i], s->limit_bytes)
                                                 : add_tbf(t, p, classid, s, s->planned_bps);
        }
        return r;
}

static uint32_t ticks_of_seconds(double seconds)
{
        double ticks = ceil(seconds * 1e9 / TC_TICK_NS);

        return ticks >= (double)UINT32_MAX ? UINT32_MAX : (uint32_t)ticks;
}

/* The maximum idle time that still allows a class to send a burst. The average idle time is a weighted mean
 * with gain 2^-ewma, which the kernel stores scaled by 2^ewma (Floyd 1995, section 3). */
static uint32_t max_idle(double bandwidth, double rate, double packet)
{
        double g = 1 - 1 / (double)(1 << CBQ_EWMA_LOG), idle = packet / bandwidth * (1 - g);

        if (rate < bandwidth)
                idle = MAX(idle, (packet / rate - packet / bandwidth) * (pow(g, -CBQ_MAX_BURST_PACKETS) - 1));
        return ticks_of_seconds(idle * (1 << CBQ_EWMA_LOG));
}

/* A class may send its weight relative to the mean of its priority, times a packet, per turn. The kernel
 * reduces turns above 32 packets to half a packet. */
static uint32_t weight(const struct tc_plan *p, uint64_t rate)
{
        uint64_t least = rate;

        for (size_t i = 0; i < p->n; i++)
                least = MIN(least, tc_rate_bytes(p->shares[i].guaranteed_bps));
        return (uint32_t)MAX(MIN(MIN(rate, CBQ_MAX_WEIGHT_RATIO * least) / 10, (uint64_t)UINT32_MAX),
                             UINT64_C(1));
}

static struct tc_cbq cbq(const struct tc_plan *p, uint64_t guaranteed_bps, int priority)
{
        uint64_t bandwidth = tc_rate_bytes(p->link_rate_bps), rate = tc_rate_bytes(guaranteed_bps);
        uint32_t table[TC_RATE_TABLE_SIZE];
        struct tc_cbq c = {
                .rate_bytes = (uint32_t)MIN(rate, (uint64_t)UINT32_MAX),
                .bandwidth_bytes = bandwidth,
                .max_idle = max_idle((double)bandwidth, (double)rate, (double)p->frame_bytes),
                .min_idle = CBQ_NO_MIN_IDLE,
                .average_packet_bytes = p->frame_bytes,
                .allot_bytes = p->frame_bytes,
                .weight = weight(p, rate),
                .min_packet_bytes = CBQ_MIN_PACKET_BYTES,
                .priority = (uint8_t)(priority + 1), /* the kernel counts from 1 */
                .ewma_log = CBQ_EWMA_LOG,
        };

        c.cell_log = tc_rate_table(table, c.rate_bytes, MAX(p->frame_bytes, CBQ_CELLS_FROM_BYTES),
                                   CBQ_MIN_PACKET_BYTES);
        return c;
}

static int add_cbq(struct tc_tree *t, const struct tc_plan *p, uint32_t classid, uint64_t guaranteed_bps,
                   int priority)
{
        struct tc_object o = object(TC_CLASS, &tc_kind_cbq, classid,
                                    classid == TC_LINK_CLASS ? TC_OUR_ROOT : TC_LINK_CLASS);

        o.params.cbq = cbq(p, guaranteed_bps, priority);
        o.params.cbq.bounded = classid == TC_LINK_CLASS;
        /* It shares its priority with the class of other traffic, so its weight must be moderate. */
        if (classid == TC_LINK_CLASS)
                o.params.cbq.weight =
                        MIN(o.params.cbq.weight,
                            CBQ_MAX_WEIGHT_RATIO * weight(p, tc_rate_bytes(p->other.guaranteed_bps)));
        if (classid == TC_OTHER_CLASS) {
                o.params.cbq.split = TC_OUR_ROOT;
                o.params.cbq.default_map = CBQ_ALL_PRIORITIES;
        }
        return tc_tree_add(t, &o);
}

static int add_cbq_classes(struct tc_tree *t, const struct tc_plan *p, const uint32_t *minors)
{
        struct tc_object root = object(TC_QDISC, &tc_kind_cbq, TC_OUR_ROOT, TC_ROOT);
        int r;

        root.params.cbq = cbq(p, p->link_rate_bps, PRIORITY_OTHER);
        root.params.cbq.bounded = root.params.cbq.isolated = true;
        root.params.cbq.off_time = TC_OUR_MAJOR; /* the mark; no effect at the top class, which never waits */
        r = tc_tree_add(t, &root);
        if (r >= 0)
                r = add_cbq(t, p, TC_LINK_CLASS, p->link_rate_bps, PRIORITY_OTHER);
        if (r >= 0 && p->control_port > 0) {
                r = add_cbq(t, p, TC_CONTROL_CLASS, p->control.guaranteed_bps, PRIORITY_CONTROL);
                if (r >= 0)
                        r = add_fifo(t, TC_CONTROL_CLASS, TC_MINOR(TC_CONTROL_CLASS), p->control.limit_bytes);
        }
        if (r >= 0)
                r = add_cbq(t, p, TC_OTHER_CLASS, p->other.guaranteed_bps, PRIORITY_OTHER);
        if (r >= 0)
                r = add_fifo(t, TC_OTHER_CLASS, TC_MINOR(TC_OTHER_CLASS), p->other.limit_bytes);
        for (size_t i = 0; r >= 0 && i < p->n; i++) {
                uint32_t classid = TC_ID(TC_OUR_MAJOR, minors[i]);

                r = add_cbq(t, p, classid, p->shares[i].guaranteed_bps, PRIORITY_DATA);
                if (r >= 0)
                        r = add_tbf(t, p, classid, &p->shares[i], p->shares[i].rate_bps);
        }
        return r;
}

int layout_add_classes(struct tc_tree *t, const struct tc_plan *p, const uint32_t *minors)
{
        return p->backend == TC_BACKEND_CBQ_TBF ? add_cbq_classes(t, p, minors)
                                                : add_htb_classes(t, p, minors);
}

/* Chooses the address bits that select the bucket of a u32 table: those that spread the destinations best. */

#define BUCKETS 256
#define SHIFTS 25 /* positions of eight bits in a word of 32 */

uint32_t layout_hash_bucket(const struct layout_hash *h, const struct tc_address *a)
{
        uint32_t word;

        memcpy(&word, a->bytes + 4 * h->word, sizeof word);
        return ntohl(word) >> h->shift & (BUCKETS - 1);
}

/* Number of filters passed when each destination is looked up once. */
static uint64_t cost(const struct layout_hash *h, const struct tc_plan *p, bool v6)
{
        uint32_t n[BUCKETS] = {};
        uint64_t sum = 0;

        for (size_t i = 0; i < p->n; i++) {
                if ((p->addresses[i].n_bytes == 16) == v6)
                        sum += ++n[layout_hash_bucket(h, &p->addresses[i])];
        }
        return sum;
}

void layout_hash_choose(struct layout_hash *ret, const struct tc_plan *p, bool v6,
                        const struct layout_hash *old)
{
        uint64_t least = UINT64_MAX;

        /* Tries the last bits first, so that they win a tie. */
        for (unsigned word = v6 ? 4 : 1; word-- > 0;) {
                for (unsigned shift = 0; shift < SHIFTS; shift++) {
                        struct layout_hash h = {word, shift};
                        uint64_t c = cost(&h, p, v6);

                        if (c >= least)
                                continue;
                        least = c;
                        *ret = h;
                }
        }
        if (old && cost(old, p, v6) <= 2 * least)
                *ret = *old;
}
