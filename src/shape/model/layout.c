/* Makes the tree for a plan: qdiscs and classes for HTB or CBQ, then filters. */
#include "shape/model/layout.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_ether.h>
#include <math.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "shape/model/kind.h"

/* Destinations use the classes from FIRST_MINOR + 1 on. The major number of the qdisc below each class is the
 * minor number of the class. */
#define FIRST_MINOR UINT32_C(0x1000)
#define MINOR_MASK UINT32_C(0xfff)
/* If the plan distinguishes data, the class of a destination has these two below it, with the same last
 * digits. */
#define FIRST_DATA_MINOR UINT32_C(0x2000)
#define FIRST_APART_MINOR UINT32_C(0x3000)
/* The major number of fq_codel below the TBF of a class from FIRST_APART_MINOR on. */
#define FIRST_FAIR_MAJOR UINT32_C(0x4000)
/* The destinations of the program that sets classes. */
#define FIRST_SET_MINOR UINT32_C(0x5000)
/* TBF has one class, with this minor number. */
#define TBF_CLASS_MINOR 1

/* The eight bits of one address word, counted from its lowest bit, that select the bucket. */
struct layout_hash {
        unsigned word, shift;
};

/* HTB schedules only by the quanta of leaves. An inner class keeps the quantum that it had before its first
 * child, so this value is fixed. */
#define LINK_QUANTUM_BYTES 60000
#define CBQ_EWMA_LOG 5
#define CBQ_MIN_PACKET_BYTES 64
/* The kernel rejects rate tables with one-byte cells. */
#define CBQ_CELLS_FROM_BYTES 256u
#define CBQ_MAX_BURST_PACKETS 20.0
#define CBQ_MAX_WEIGHT_RATIO 16u
/* The kernel's value for "no lower limit". */
#define CBQ_NO_MIN_IDLE 0x7fffffffu
/* The defaults of the kernel. */
#define FQ_CODEL_LIMIT_PACKETS 10240
#define FQ_CODEL_TARGET_US UINT64_C(5000)
/* fq_codel counts the kernel's structures, too, which for short packets are larger than the packet. */
#define FAIR_MEMORY_TIMES 4
/* fq must never drop: the program drops what exceeds a destination's limit, and other senders wait for their
 * sockets. With the smallest packets, 4 MiB of send buffer hold some 5,500. */
#define FQ_LIMIT_PACKETS 1000000u
#define FQ_FLOW_LIMIT_PACKETS 100000u
#define FQ_HORIZON_US UINT32_C(3600000000)
/* The kernel raises a smaller quantum. */
#define FQ_CODEL_QUANTUM_LEAST_BYTES 256u
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

static int add_htb_root(struct tc_tree *t, bool offload)
{
        struct tc_object o = object(TC_QDISC, &tc_kind_htb, TC_OUR_ROOT, TC_ROOT);

        o.params.htb_qdisc = (struct tc_htb_qdisc){
                .default_class = TC_MINOR(TC_OTHER_CLASS), .rate2quantum = TC_OUR_MAJOR, .offload = offload};
        return tc_tree_add(t, &o);
}

/* The burst at the ceiling must be at least one full packet, or HTB does not reach the rate. HTB sends a
 * packet even if the class has too few tokens for it, and a ROS's super-packets are up to three quarters of
 * the TBF's burst. So with a quarter of the TBF's burst at the ceiling, at most one TBF burst leaves at once,
 * even at a reduced rate. */
static uint64_t ceiling_burst(const struct tc_plan *p, const struct tc_share *s, uint64_t ceil_bps)
{
        if (ceil_bps > s->rate_bps)
                return p->link_burst_bytes;
        if (p->backend == TC_BACKEND_HTB_TBF && s->rate_bps < s->planned_bps)
                return MAX(s->burst_bytes / 4, (uint64_t)p->frame_bytes + p->overhead_bytes);
        return s->burst_bytes;
}

/* A class may borrow up to ceil_bps. A qdisc below it that shapes may limit it further. */
static int add_htb(struct tc_tree *t, const struct tc_plan *p, uint32_t classid, uint32_t parent,
                   const struct tc_share *s, uint64_t ceil_bps, int priority)
{
        struct tc_object o = object(TC_CLASS, &tc_kind_htb, classid, parent);
        uint64_t rate_bytes = tc_rate_bytes(s->guaranteed_bps), ceil_bytes = tc_rate_bytes(ceil_bps);
        uint64_t cburst_bytes = ceiling_burst(p, s, ceil_bps);

        o.params.htb_class = (struct tc_htb_class){
                .rate_bytes = rate_bytes,
                .ceil_bytes = ceil_bytes,
                .burst_ticks = tc_ticks_of_bytes(s->guaranteed_burst_bytes ?: s->burst_bytes, rate_bytes),
                .cburst_ticks = tc_ticks_of_bytes(cburst_bytes, ceil_bytes),
                .quantum_bytes = s->quantum_bytes,
                .priority = (uint32_t)priority,
                .overhead_bytes = p->overhead_bytes,
        };
        /* Devices that offload HTB refuse these. */
        if (p->is_offloaded)
                o.params.htb_class.quantum_bytes = o.params.htb_class.priority = 0;
        return tc_tree_add(t, &o);
}

static int add_fifo(struct tc_tree *t, uint32_t classid, uint32_t major, uint64_t limit_bytes)
{
        struct tc_object o = object(TC_QDISC, &tc_kind_bfifo, TC_ID(major, 0), classid);

        o.params.fifo.limit = (uint32_t)limit_bytes;
        return tc_tree_add(t, &o);
}

/* The target must be longer than a frame takes (RFC 8290, 5.2.2), here at the guaranteed rate. */
static int add_fq_codel(struct tc_tree *t, const struct tc_plan *p, uint32_t parent, uint32_t major,
                        uint64_t guaranteed_bps, uint64_t memory_bytes)
{
        struct tc_object o = object(TC_QDISC, &tc_kind_fq_codel, TC_ID(major, 0), parent);
        uint64_t frames_us = UINT64_C(16000000) * p->frame_bytes / guaranteed_bps;

        o.params.fq_codel = (struct tc_fq_codel){
                .limit_packets = FQ_CODEL_LIMIT_PACKETS,
                .memory_bytes = (uint32_t)MIN(memory_bytes, (uint64_t)UINT32_MAX),
                .target_us = (uint32_t)MIN(MAX(FQ_CODEL_TARGET_US, frames_us), UINT64_C(1000000)),
                .quantum_bytes = MAX(p->frame_bytes, FQ_CODEL_QUANTUM_LEAST_BYTES),
                .ecn = true,
        };
        o.params.fq_codel.interval_us = 20 * o.params.fq_codel.target_us;
        return tc_tree_add(t, &o);
}

static int add_other_queue(struct tc_tree *t, const struct tc_plan *p)
{
        uint32_t major = TC_MINOR(TC_OTHER_CLASS);

        return p->is_fair ? add_fq_codel(t, p, TC_OTHER_CLASS, major, p->other.guaranteed_bps,
                                         p->other.limit_bytes)
                          : add_fifo(t, TC_OTHER_CLASS, major, p->other.limit_bytes);
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

/* Each change of a TBF fills its bucket, and so lets another burst pass. A reduced rate may change several
 * times a second. So it is set as the ceiling of the class, which keeps its tokens. */
static uint64_t ceiling(const struct tc_plan *p, const struct tc_share *s)
{
        if (p->backend == TC_BACKEND_HTB || s->rate_bps < s->planned_bps)
                return s->rate_bps;
        return MAX(s->rate_bps, p->link_rate_bps);
}

/* A class with its queue. */
static int add_htb_leaf(struct tc_tree *t, const struct tc_plan *p, uint32_t minor, uint32_t parent,
                        const struct tc_share *s, uint64_t ceil_bps, int priority)
{
        uint32_t classid = TC_ID(TC_OUR_MAJOR, minor);
        int r = add_htb(t, p, classid, parent, s, ceil_bps, priority);

        if (r < 0)
                return r;
        return p->backend == TC_BACKEND_HTB ? add_fifo(t, classid, minor, s->limit_bytes)
                                            : add_tbf(t, p, classid, s, s->planned_bps);
}

/* The class of a destination's packets that are not data. If they have fq_codel, it is below the TBF. */
static int add_htb_apart(struct tc_tree *t, const struct tc_plan *p, uint32_t low, uint32_t parent,
                         const struct tc_share *s)
{
        uint32_t minor = FIRST_APART_MINOR | low, major = FIRST_FAIR_MAJOR | low;
        uint64_t memory_bytes = FAIR_MEMORY_TIMES * s->limit_bytes;
        int r = add_htb_leaf(t, p, minor, parent, s, s->rate_bps, PRIORITY_CONTROL);

        if (r < 0 || !p->is_fair || p->backend != TC_BACKEND_HTB_TBF)
                return r;
        return add_fq_codel(t, p, TC_ID(minor, TBF_CLASS_MINOR), major, s->guaranteed_bps, memory_bytes);
}

/* The class of destination i, which has its whole rate, with one class for data and one for all else. The
 * other packets go first, up to what they are guaranteed. */
static int add_htb_pair(struct tc_tree *t, const struct tc_plan *p, uint32_t minor, size_t i)
{
        uint32_t classid = TC_ID(TC_OUR_MAJOR, minor), low = minor & MINOR_MASK;
        struct tc_share whole = p->shares[i], data = whole, apart = tc_plan_apart(p, i);
        int r;

        whole.quantum_bytes = LINK_QUANTUM_BYTES;
        data.guaranteed_bps -= apart.guaranteed_bps;
        data.guaranteed_burst_bytes = apart.burst_bytes;
        r = add_htb(t, p, classid, TC_LINK_CLASS, &whole, whole.rate_bps, 0);
        if (r >= 0)
                r = add_htb_leaf(t, p, FIRST_DATA_MINOR | low, classid, &data, ceiling(p, &data),
                                 PRIORITY_DATA);
        return r < 0 ? r : add_htb_apart(t, p, low, classid, &apart);
}

static int add_htb_classes(struct tc_tree *t, const struct tc_plan *p, const uint32_t *minors)
{
        struct tc_share link = link_share(p);
        int r = add_htb_root(t, p->is_offloaded);

        if (r >= 0)
                r = add_htb(t, p, TC_LINK_CLASS, TC_OUR_ROOT, &link, p->link_rate_bps, 0);
        if (r >= 0 && p->control_port > 0) {
                r = add_htb(t, p, TC_CONTROL_CLASS, TC_LINK_CLASS, &p->control, p->link_rate_bps,
                            PRIORITY_CONTROL);
                if (r >= 0)
                        r = add_fifo(t, TC_CONTROL_CLASS, TC_MINOR(TC_CONTROL_CLASS), p->control.limit_bytes);
        }
        if (r >= 0)
                r = add_htb(t, p, TC_OTHER_CLASS, TC_LINK_CLASS, &p->other, p->link_rate_bps, PRIORITY_OTHER);
        if (r >= 0)
                r = add_other_queue(t, p);
        for (size_t i = 0; r >= 0 && i < p->n; i++)
                r = p->data_protocol > 0 ? add_htb_pair(t, p, minors[i], i)
                                         : add_htb_leaf(t, p, minors[i], TC_LINK_CLASS, &p->shares[i],
                                                        ceiling(p, &p->shares[i]), PRIORITY_DATA);
        return r;
}

static uint32_t ticks_of_seconds(double seconds)
{
        double ticks = ceil(seconds * 1e9 / TC_TICK_NS);

        return ticks >= (double)UINT32_MAX ? UINT32_MAX : (uint32_t)ticks;
}

/* Returns the maximum idle time with which a class can just send a burst. The average idle time is a weighted
 * mean with gain 2^-ewma, which the kernel stores scaled by 2^ewma (Floyd 1995, section 3). */
static uint32_t max_idle(double bandwidth, double rate, double packet)
{
        double g = 1 - 1 / (double)(1 << CBQ_EWMA_LOG), idle = packet / bandwidth * (1 - g);

        if (rate < bandwidth)
                idle = MAX(idle, (packet / rate - packet / bandwidth) * (pow(g, -CBQ_MAX_BURST_PACKETS) - 1));
        return ticks_of_seconds(idle * (1 << CBQ_EWMA_LOG));
}

/* In each turn, a class may send one packet multiplied by its weight, relative to the mean weight of its
 * priority. The kernel reduces turns above 32 packets to half a packet. */
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
        /* The class shares its priority with the class of other traffic, so its weight must be moderate. */
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
        root.params.cbq.off_time = TC_OUR_MAJOR; /* the mark; no effect, as the top class never waits */
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
                r = add_other_queue(t, p);
        for (size_t i = 0; r >= 0 && i < p->n; i++) {
                uint32_t classid = TC_ID(TC_OUR_MAJOR, minors[i]);

                r = add_cbq(t, p, classid, p->shares[i].guaranteed_bps, PRIORITY_DATA);
                if (r >= 0)
                        r = add_tbf(t, p, classid, &p->shares[i], p->shares[i].rate_bps);
        }
        return r;
}

/* Adds the program and its destinations, which get a departure time or a class. */
static int add_program(struct tc_tree *t, const struct tc_plan *p, const uint32_t *minors)
{
        struct tc_object program = object(TC_FILTER, &tc_kind_bpf, TC_OUR_MAJOR, TC_EGRESS);
        int r = 0;

        program.priority = 1;
        program.protocol = ETH_P_ALL;
        for (size_t i = 0; r >= 0 && i < p->n; i++) {
                uint32_t set = p->is_offloaded ? FIRST_SET_MINOR | (minors[i] & MINOR_MASK) : minors[i];
                struct tc_object o = object(TC_CLASS, &tc_kind_edt, TC_ID(TC_OUR_MAJOR, set), TC_OUR_ROOT);
                const struct tc_address *a = &p->addresses[i];
                struct tc_edt *to = &o.params.edt;

                *to = (struct tc_edt){.is_v6 = a->n_bytes == 16, .control_port = p->control_port};
                if (p->is_offloaded)
                        to->classid = TC_ID(TC_OUR_MAJOR, minors[i]);
                else
                        to->rate_bps = p->shares[i].rate_bps, to->limit_bytes = p->shares[i].limit_bytes,
                        to->overhead_bytes = p->overhead_bytes;
                memcpy(o.params.edt.address, a->bytes, a->n_bytes);
                r = tc_tree_add(t, &o);
        }
        return r < 0 ? r : tc_tree_add(t, &program);
}

static int add_edt(struct tc_tree *t, const struct tc_plan *p, const uint32_t *minors)
{
        struct tc_object root = object(TC_QDISC, &tc_kind_fq, TC_OUR_ROOT, TC_ROOT);

        root.params.fq = (struct tc_fq){FQ_LIMIT_PACKETS, FQ_FLOW_LIMIT_PACKETS, FQ_HORIZON_US};
        return tc_tree_add(t, &root) < 0 ? -ENOMEM : add_program(t, p, minors);
}

/* Adds root, link, control, other, and a class with its queue for each destination. */
static int layout_add_classes(struct tc_tree *t, const struct tc_plan *p, const uint32_t *minors)
{
        return p->backend == TC_BACKEND_CBQ_TBF ? add_cbq_classes(t, p, minors)
                                                : add_htb_classes(t, p, minors);
}

/* Chooses the address bits that select the bucket of a u32 table: those that spread the destinations best. */

#define BUCKETS 256
#define SHIFTS 25 /* positions of eight bits in a word of 32 */

static uint32_t layout_hash_bucket(const struct layout_hash *h, const struct tc_address *a)
{
        uint32_t word;

        memcpy(&word, a->bytes + 4 * h->word, sizeof word);
        return ntohl(word) >> h->shift & (BUCKETS - 1);
}

/* Returns the number of filters that packets pass if each destination is looked up once. */
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

/* Keeps `old` (may be NULL) if it is almost as good as the best hash, because changing the hash moves every
 * filter. */
static void layout_hash_choose(struct layout_hash *ret, const struct tc_plan *p, bool v6,
                               const struct layout_hash *old)
{
        uint64_t least = UINT64_MAX;

        /* Tries the last bits first, so that they are preferred among equally good bits. */
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

#define TABLE_V4 UINT32_C(0x100)
#define TABLE_V6 UINT32_C(0x101)
#define TCP_TABLES UINT32_C(2) /* the tables for TCP have numbers that are higher by this */
#define BUCKET_BITS 8
#define OFFSET_V4 16 /* offset of the destination in the IPv4 header, and in the IPv6 header */
#define OFFSET_V6 24

/* These priorities differ from the priorities of earlier versions, whose filters match by protocol: a
 * priority has only one protocol. */
enum priority {
        CONTROL_V4 = 12,
        CONTROL_V6,
        TCP_LINEAR_V4 = 16,
        TCP_LINEAR_V6,
        TCP_HASHED_V4,
        TCP_HASHED_V6,
        NEIGHBOURS_V6 = 21,
        LINEAR_V4,
        LINEAR_V6,
        HASHED_V4 = 32,
        HASHED_V6,
        ARP
};

bool tc_layout_is_apart(uint32_t classid)
{
        return TC_MAJOR(classid) == TC_OUR_MAJOR && TC_MINOR(classid) > FIRST_APART_MINOR &&
               TC_MINOR(classid) <= (FIRST_APART_MINOR | MINOR_MASK);
}

bool tc_layout_address(const struct tc_object *f, struct tc_address *ret, uint32_t *ret_classid)
{
        unsigned words = f->priority % 2 ? 4 : 1, offset = f->priority % 2 ? OFFSET_V6 : OFFSET_V4;
        const struct tc_u32 *u = &f->params.u32;

        if (f->type == TC_CLASS && f->kind == &tc_kind_edt) {
                *ret = (struct tc_address){.n_bytes = f->params.edt.is_v6 ? 16 : 4};
                memcpy(ret->bytes, f->params.edt.address, ret->n_bytes);
                if (ret_classid)
                        *ret_classid = f->params.edt.classid ?: f->handle;
                return true;
        }
        if (f->type != TC_FILTER || f->kind != &tc_kind_u32 || f->parent != TC_OUR_ROOT ||
            f->priority < LINEAR_V4 || f->priority > HASHED_V6 || f->chain > 0 || u->divisor > 0 ||
            u->link > 0 || u->n_matches != words + 1)
                return false;
        for (unsigned i = 0; i < words; i++) {
                const struct tc_u32_match *m = &u->matches[i];

                if (m->offset != (int32_t)(offset + 4 * i) || memcmp(m->mask, "\xff\xff\xff\xff", 4) != 0)
                        return false;
                memcpy(ret->bytes + 4 * i, m->value, 4);
        }
        ret->n_bytes = (uint8_t)(4 * words);
        if (ret_classid)
                *ret_classid = tc_layout_is_apart(u->classid)
                                       ? u->classid - FIRST_APART_MINOR + FIRST_DATA_MINOR
                                       : u->classid;
        return true;
}

static struct tc_object filter(enum priority priority)
{
        return (struct tc_object){
                .type = TC_FILTER,
                .parent = TC_OUR_ROOT,
                .priority = priority,
                .protocol = ETH_P_ALL,
                .kind_name = "u32",
                .kind = &tc_kind_u32,
        };
}

static void match(struct tc_object *f, uint32_t mask, uint32_t value, int offset)
{
        struct tc_u32_match *m = &f->params.u32.matches[f->params.u32.n_matches++];

        mask = htonl(mask);
        value = htonl(value);
        memcpy(m->mask, &mask, 4);
        memcpy(m->value, &value, 4);
        m->offset = offset;
}

/* The filter does not match by protocol: a packet from a VLAN device above carries its tag, and the tag's
 * protocol, in metadata. */
static void match_version(struct tc_object *f)
{
        match(f, 0xf0000000, f->priority % 2 ? 0x60000000 : 0x40000000, 0);
}

static int add_control_filter(struct tc_tree *t, struct tc_object *f, uint32_t number)
{
        f->handle = number;
        f->params.u32.classid = TC_CONTROL_CLASS;
        return tc_tree_add(t, f);
}

/* Matches UDP to the control port. Later fragments of an IPv4 packet contain no port, and their offset
 * excludes them. */
static int add_control(struct tc_tree *t, uint16_t port)
{
        struct tc_object v4 = filter(CONTROL_V4), v6 = filter(CONTROL_V6);
        int r;

        match(&v4, 0x00001fff, 0, 4);
        match(&v4, 0x00ff0000, IPPROTO_UDP << 16, 8);
        match(&v4, 0x0000ffff, port, 20);
        match(&v6, 0x0000ff00, IPPROTO_UDP << 8, 4);
        match(&v6, 0x0000ffff, port, 40);
        match_version(&v4);
        match_version(&v6);
        r = add_control_filter(t, &v4, 1);
        return r < 0 ? r : add_control_filter(t, &v6, 1);
}

/* Matches what finds the link addresses of neighbours, without which nothing else is sent: ARP for IPv4 over
 * Ethernet (RFC 826), and types 133 to 137 of ICMPv6, which always have the hop limit 255 and no extension
 * header (RFC 4861, 6.1 and 7.1). The latter must come before the IPv6 destinations. */
static int add_neighbours(struct tc_tree *t)
{
        struct tc_object arp = filter(ARP), to_135 = filter(NEIGHBOURS_V6), from_136 = to_135;
        int r;

        match(&arp, 0xffffffff, 0x00010800, 0);
        match(&arp, 0xffff0000, 0x06040000, 4);
        match(&to_135, 0x0000ffff, IPPROTO_ICMPV6 << 8 | 255, 4);
        from_136 = to_135;
        match(&to_135, 0xfc000000, UINT32_C(132) << 24, 40);
        match(&from_136, 0xfe000000, UINT32_C(136) << 24, 40);
        match_version(&to_135);
        match_version(&from_136);
        r = add_control_filter(t, &to_135, 1);
        if (r >= 0)
                r = add_control_filter(t, &from_136, 2);
        return r < 0 ? r : add_control_filter(t, &arp, 1);
}

/* TCP packets, to `port` if that is not 0. A later fragment of an IPv4 packet has no port. */
static void match_tcp(struct tc_object *f, bool v6, uint16_t port)
{
        match(f, v6 ? 0x0000ff00 : 0x00ff0000, (uint32_t)IPPROTO_TCP << (v6 ? 8 : 16), v6 ? 4 : 8);
        if (port > 0 && !v6)
                match(f, 0x00001fff, 0, 4);
        if (port > 0)
                match(f, 0x0000ffff, port, v6 ? 40 : 20);
}

/* With `tcp`, a filter that matches only TCP, to `port` if that is not 0. */
static int add_destination(struct tc_tree *t, const struct tc_address *a, uint32_t minor,
                           const struct layout_hash *hash, bool tcp, uint16_t port)
{
        bool v6 = a->n_bytes == 16;
        struct tc_object f = filter((tcp    ? hash ? TCP_HASHED_V4 : TCP_LINEAR_V4
                                     : hash ? HASHED_V4
                                            : LINEAR_V4) +
                                    v6);
        uint32_t word;

        f.handle = minor & MINOR_MASK;
        if (hash)
                f.handle |= ((v6 ? TABLE_V6 : TABLE_V4) + (tcp ? TCP_TABLES : 0)) << 20 |
                            layout_hash_bucket(hash, a) << 12;
        f.params.u32.classid = TC_ID(TC_OUR_MAJOR, minor);
        for (int i = 0; i < a->n_bytes; i += 4) {
                memcpy(&word, a->bytes + i, 4);
                match(&f, UINT32_MAX, ntohl(word), (v6 ? OFFSET_V6 : OFFSET_V4) + i);
        }
        match_version(&f);
        if (tcp)
                match_tcp(&f, v6, port);
        return tc_tree_add(t, &f);
}

/* Adds a table with a bucket for each value of the hashed address bits, and the filter that leads to it. */
static int add_table(struct tc_tree *t, bool v6, const struct layout_hash *hash, bool tcp)
{
        enum priority priority = (tcp ? TCP_HASHED_V4 : HASHED_V4) + v6;
        struct tc_object table = filter(priority), way = filter(priority);
        uint32_t mask = htonl((uint32_t)(BUCKETS - 1) << hash->shift);
        int r;

        table.handle = way.params.u32.link = ((v6 ? TABLE_V6 : TABLE_V4) + (tcp ? TCP_TABLES : 0)) << 20;
        table.params.u32.divisor = BUCKETS;
        way.handle = 1;
        memcpy(way.params.u32.hash_mask, &mask, sizeof mask);
        way.params.u32.hash_offset = (int16_t)((v6 ? OFFSET_V6 : OFFSET_V4) + 4 * hash->word);
        match_version(&way);
        r = tc_tree_add(t, &table);
        return r < 0 ? r : tc_tree_add(t, &way);
}

/* Reads the hash of the installed table. */
static bool read_hash(const struct tc_tree *have, bool v6, struct layout_hash *ret)
{
        struct tc_object place = filter(HASHED_V4 + v6);
        const struct tc_object *way;
        uint32_t mask;

        place.handle = 1;
        way = tc_tree_find(have, &place);
        if (!way || way->kind != &tc_kind_u32 || way->params.u32.link == 0)
                return false;
        memcpy(&mask, way->params.u32.hash_mask, sizeof mask);
        mask = ntohl(mask);
        ret->word = (unsigned)(way->params.u32.hash_offset - (v6 ? OFFSET_V6 : OFFSET_V4)) / 4;
        ret->shift = mask ? (unsigned)__builtin_ctz(mask) : 0;
        return ret->word < (v6 ? 4 : 1) && ret->shift <= 32 - BUCKET_BITS &&
               mask == (uint32_t)(BUCKETS - 1) << ret->shift;
}

/* The filters of a destination. If data are UDP, TCP is apart, and fragments of UDP stay with it; if data are
 * TCP, all but their port is apart. */
static int add_filters_of(struct tc_tree *t, const struct tc_plan *p, size_t i, uint32_t minor,
                          const struct layout_hash *hash)
{
        uint32_t low = minor & MINOR_MASK, data = FIRST_DATA_MINOR | low, apart = FIRST_APART_MINOR | low;
        bool tcp = p->data_protocol == IPPROTO_TCP;
        int r;

        if (p->data_protocol == 0)
                return add_destination(t, &p->addresses[i], minor, hash, false, 0);
        r = add_destination(t, &p->addresses[i], tcp ? data : apart, hash, true, tcp ? p->data_port : 0);
        return r < 0 ? r : add_destination(t, &p->addresses[i], tcp ? apart : data, hash, false, 0);
}

static int add_filters(struct tc_tree *t, const struct tc_plan *p, const uint32_t *minors,
                       const struct tc_tree *have)
{
        const size_t linear_max = p->data_protocol > 0 ? TC_LINEAR_MAX / 2 : TC_LINEAR_MAX;
        struct layout_hash hashes[2];
        size_t n_of[2] = {};
        int r = 0;

        for (size_t i = 0; i < p->n; i++)
                n_of[p->addresses[i].n_bytes == 16]++;
        for (int v6 = 0; r >= 0 && v6 < 2; v6++) {
                struct layout_hash old;

                if (n_of[v6] <= linear_max)
                        continue;
                layout_hash_choose(&hashes[v6], p, v6, read_hash(have, v6, &old) ? &old : NULL);
                r = add_table(t, v6, &hashes[v6], false);
                if (r >= 0 && p->data_protocol > 0)
                        r = add_table(t, v6, &hashes[v6], true);
        }
        for (size_t i = 0; r >= 0 && i < p->n; i++) {
                bool v6 = p->addresses[i].n_bytes == 16;

                r = add_filters_of(t, p, i, minors[i], n_of[v6] > linear_max ? &hashes[v6] : NULL);
        }
        if (r >= 0 && p->control_port > 0)
                r = add_control(t, p->control_port);
        if (r >= 0 && p->control_port > 0)
                r = add_neighbours(t);
        return r;
}

/* Assigns class numbers: a destination keeps its number, or gets the lowest free one. */
struct numbers {
        bool taken[FIRST_MINOR]; /* by minor - FIRST_MINOR */
        uint32_t *minors;
};

static int compare_addresses(const void *a, const void *b)
{
        const struct tc_address *x = a, *y = b;

        return memcmp(x->bytes, y->bytes, sizeof x->bytes) ?: x->n_bytes - y->n_bytes;
}

struct known {
        struct tc_address address; /* first member: the sort key */
        uint32_t minor;
};

static int choose_numbers(struct numbers *n, const struct tc_plan *p, const struct tc_tree *have)
{
        _cleanup_free_ struct known *known = calloc(have->n + 1, sizeof *known);
        size_t n_known = 0;
        uint32_t next = 1;

        if (!known)
                return -ENOMEM;
        for (size_t i = 0; i < have->n; i++) {
                struct known k = {};
                uint32_t classid;

                if (!tc_layout_address(&have->objects[i], &k.address, &classid))
                        continue;
                k.minor = FIRST_MINOR | (classid & MINOR_MASK);
                if (k.minor > FIRST_MINOR && TC_MINOR(classid) >= FIRST_MINOR &&
                    TC_MINOR(classid) <= (FIRST_DATA_MINOR | MINOR_MASK))
                        known[n_known++] = k;
        }
        qsort(known, n_known, sizeof *known, compare_addresses);
        for (size_t i = 0; i < p->n; i++) {
                const struct known *k =
                        bsearch(&p->addresses[i], known, n_known, sizeof *known, compare_addresses);

                if (!k || n->taken[k->minor - FIRST_MINOR])
                        continue;
                n->minors[i] = k->minor;
                n->taken[k->minor - FIRST_MINOR] = true;
        }
        /* Avoids the numbers of classes that may still be draining, if possible. */
        for (size_t i = 0; i < n_known && p->n + n_known < TC_DESTINATIONS_MAX; i++)
                n->taken[known[i].minor - FIRST_MINOR] = true;
        for (size_t i = 0; i < p->n; i++) {
                if (n->minors[i] != 0)
                        continue;
                while (n->taken[next])
                        next++;
                n->taken[next] = true;
                n->minors[i] = FIRST_MINOR + next;
        }
        return 0;
}

int tc_layout_make(struct tc_tree *ret, const struct tc_plan *p, const struct tc_tree *have)
{
        static const struct tc_tree nothing;
        _cleanup_free_ uint32_t *minors = calloc(p->n, sizeof *minors);
        _cleanup_free_ struct numbers *numbers = calloc(1, sizeof *numbers);
        struct tc_tree t = {};
        int r = minors && numbers ? 0 : -ENOMEM;

        *ret = t;
        if (r >= 0 && p->backend == TC_BACKEND_SOCKET)
                return 0;
        if (r >= 0) {
                numbers->minors = minors;
                if (tc_layout_owner(have) != TC_OWNER_OURS)
                        have = &nothing;
                r = choose_numbers(numbers, p, have);
        }
        if (r >= 0 && p->backend == TC_BACKEND_EDT)
                r = add_edt(&t, p, minors);
        else if (r >= 0) {
                r = layout_add_classes(&t, p, minors);
                if (r >= 0)
                        r = p->is_offloaded ? add_program(&t, p, minors) : add_filters(&t, p, minors, have);
        }
        if (r < 0) {
                tc_tree_fini(&t);
                return r;
        }
        tc_tree_sort(&t);
        *ret = t;
        return 0;
}
