/* The BPF programs that stamp packets as they leave a link, and that decide for a switch port which packets
 * it drops. scripts/bpf-programs.py compiles them to port_program.inc. Times in ps wrap after 213 days;
 * signed differences make them comparable. */
#include "run/port_program.h"

#include <linux/pkt_cls.h>
#include <stdbool.h>

#define INLINED inline __attribute__((always_inline))
#define PROGRAM(name) static int __attribute__((used, section("port_" #name))) name(struct __sk_buff *packet)
/* Maximum number of compare-and-exchange attempts. One fails only if another processor has just succeeded. */
#define ATTEMPTS 8
/* Maximum number of slots that the loop for a late packet or a super-packet visits, and maximum number for
 * the backlog loop. The kernel checks each pass of these loops when it loads a program. */
#define STEPS 72
#define BACKLOG_STEPS (SLOTS_PER_BUFFER + 4)

static void (*const lock)(struct bpf_spin_lock *l) = (void *)BPF_FUNC_spin_lock;
static void (*const unlock)(struct bpf_spin_lock *l) = (void *)BPF_FUNC_spin_unlock;
static uint64_t (*const now_ns)(void) = (void *)BPF_FUNC_ktime_get_ns;
static uint64_t (*const now_tai_ns)(void) = (void *)BPF_FUNC_ktime_get_tai_ns;

struct port {
        struct port_state *state;
        struct port_slot *slots;
        uint64_t slot_bits, buffer_ps;
};

struct arrival {
        uint64_t cost_ps;          /* time that the port needs for the packet */
        uint64_t start_ps, end_ps; /* when its first and its last segment arrived */
};

static INLINED struct port_state *get_state(void)
{
        struct port_state *s;

        __asm__("%0 = %1 ll" : "=r"(s) : "i"(PORT_STATE_MARK));
        return s;
}

static INLINED struct port_slot *get_slots(void)
{
        struct port_slot *s;

        __asm__("%0 = %1 ll" : "=r"(s) : "i"(PORT_SLOTS_MARK));
        return s;
}

/* MIN(a, b) by the sign of their difference. A jump would double the states that the kernel checks, and the
 * compiler would make one if it could see the shift. */
static INLINED uint64_t least(uint64_t a, uint64_t b)
{
        uint64_t difference = b - a, sign = difference;

        __asm__("%0 s>>= 63" : "+r"(sign));
        return a + (difference & sign);
}

static INLINED bool is_later(uint64_t a_ps, uint64_t b_ps)
{
        return (int64_t)(a_ps - b_ps) > 0;
}

static INLINED uint64_t wire_ps(uint64_t bytes, const struct port_state *s)
{
        return bytes * (8 * BIT_PS) / s->rule.rate_bps;
}

/* Returns the beginning of the next slot. */
static INLINED uint64_t next(const struct port *p, uint64_t time_ps)
{
        return ((time_ps >> p->slot_bits) + 1) << p->slot_bits;
}

static INLINED struct port_slot *slot(const struct port *p, uint64_t number)
{
        return &p->slots[number & (PORT_SLOTS - 1)];
}

/* Marks the slots after the front's slot as busy, up to the end, but not beyond `time_ps`. While a packet
 * arrives at the port's rate until then, the backlog does not change, so in these slots it equals the backlog
 * at that time. */
static INLINED void mark_busy(const struct port *p, uint64_t time_ps, bool arriving)
{
        uint64_t end_ps = p->state->end_ps, until_ps = least(end_ps, time_ps), at_ps = p->state->front_ps;

#pragma clang loop unroll(disable)
        for (unsigned i = 0; i < (arriving ? STEPS : BACKLOG_STEPS); i++) {
                struct port_slot *s;

                at_ps = next(p, at_ps);
                if (is_later(at_ps, until_ps))
                        return;
                s = slot(p, at_ps >> p->slot_bits);
                s->number = at_ps >> p->slot_bits;
                s->idle_ps = 0;
                s->peak_ps = end_ps - (arriving ? time_ps : at_ps);
        }
}

/* Records the idle time from the end to a later time. The slots in between remain unused. */
static INLINED void record_gap(const struct port *p, uint64_t time_ps)
{
        uint64_t end_ps = p->state->end_ps, number = time_ps >> p->slot_bits;
        struct port_slot *last = slot(p, end_ps >> p->slot_bits), *s = slot(p, number);

        last->idle_ps += least(time_ps - end_ps, next(p, end_ps) - end_ps);
        if (number != end_ps >> p->slot_bits) {
                s->number = number;
                s->peak_ps = 0;
                s->idle_ps = time_ps - (number << p->slot_bits);
        }
        p->state->end_ps = time_ps;
}

/* Moves the front to a later time. `arriving`: a packet that is already included in the end arrives until
 * then. */
static INLINED void advance(const struct port *p, uint64_t time_ps, bool arriving)
{
        mark_busy(p, time_ps, arriving);
        if (is_later(time_ps, p->state->end_ps))
                record_gap(p, time_ps);
        p->state->front_ps = time_ps;
}

/* Adds a cost to the end. False: the buffer is full, because `backlog_ps` does not fit. */
static INLINED bool add(const struct port *p, uint64_t cost_ps, uint64_t backlog_ps)
{
        if ((int64_t)backlog_ps > (int64_t)p->buffer_ps)
                return false;
        p->state->end_ps += cost_ps;
        return true;
}

/* Handles a packet that is not older than the front. False: the buffer is full. */
static INLINED bool carry_on_time(const struct port *p, const struct arrival *a)
{
        if (is_later(a->start_ps, p->state->front_ps))
                advance(p, a->start_ps, false);
        if (!add(p, a->cost_ps, p->state->end_ps - a->end_ps + a->cost_ps))
                return false;
        /* Only the segments of a super-packet arrive after its start. */
        if (is_later(a->end_ps, p->state->front_ps))
                advance(p, a->end_ps, true);
        return true;
}

enum walked { PLACED, FULL, BEYOND };

/* Walks the slots from the packet's start to the front, or until all of *rest_ps, the cost without a place,
 * fits into their idle time. `changes`: updates the slots; otherwise only looks whether there is room (FULL:
 * there is none; BEYOND: too many slots are in use), and initializes slots that were never used.
 *
 * The backlog in a slot must fit the buffer; in the first slot, the packet itself counts too. If the packet's
 * last segment arrives after the slot's start, the peak may be earlier: by then, the port has sent as much as
 * the time since the slot's start allows. */
static INLINED enum walked walk(const struct port *p, const struct arrival *a, uint64_t *rest_ps,
                                bool changes)
{
        uint64_t time_ps = a->start_ps, front_ps = p->state->front_ps;

#pragma clang loop unroll(disable)
        for (unsigned i = 0; i < STEPS; i++) {
                uint64_t number = time_ps >> p->slot_bits, begin_ps = number << p->slot_bits, used_ps,
                         backlog_ps;
                struct port_slot *s = slot(p, number);

                if (!changes && s->number != number)
                        *s = (struct port_slot){number, UINT64_C(1) << p->slot_bits, 0};
                used_ps = least(least(least(next(p, time_ps), front_ps) - time_ps, s->idle_ps), *rest_ps);
                *rest_ps -= used_ps;
                backlog_ps = least(0, begin_ps - a->end_ps) + s->peak_ps;
                if (changes || i == 0)
                        backlog_ps += *rest_ps;
                if (changes) {
                        s->idle_ps -= used_ps;
                        if ((int64_t)backlog_ps > (int64_t)s->peak_ps)
                                s->peak_ps = backlog_ps;
                } else if ((int64_t)backlog_ps > (int64_t)p->buffer_ps)
                        return FULL;
                time_ps = next(p, time_ps);
                if (*rest_ps == 0 || is_later(time_ps, front_ps))
                        return PLACED;
        }
        return BEYOND;
}

/* Handles a packet that is older than the front: it counts at its arrival, or at the front if the history
 * does not reach back to its arrival. False: there is no room. */
static INLINED bool carry_late(const struct port *p, const struct arrival *a)
{
        uint64_t rest_ps = a->cost_ps, backlog_ps = p->state->end_ps - p->state->front_ps;
        enum walked walked = (p->state->front_ps - a->start_ps) >> p->slot_bits < PORT_SLOTS - 1
                                     ? walk(p, a, &rest_ps, false)
                                     : BEYOND;

        if (walked == BEYOND)
                return add(p, a->cost_ps, backlog_ps + a->cost_ps);
        if (walked == FULL || (rest_ps != 0 && !add(p, rest_ps, backlog_ps)))
                return false;
        rest_ps = a->cost_ps;
        (void)walk(p, a, &rest_ps, true);
        return true;
}

/* Raises the peak of the front's slot to the backlog at the front. */
static INLINED void raise_peak(const struct port *p)
{
        struct port_slot *s = slot(p, p->state->front_ps >> p->slot_bits);
        uint64_t backlog_ps = p->state->end_ps - p->state->front_ps;

        if (backlog_ps > s->peak_ps)
                s->peak_ps = backlog_ps;
}

/* Returns the time of the packet's mark, or now. Only frames from another port have a mark of this program.
 */
static INLINED uint64_t arrival_ns(const struct __sk_buff *packet, const struct port_state *s)
{
        uint64_t now = now_ns();
        /* The signed difference of the lower halves. */
        int64_t ahead_ns = (int32_t)(packet->mark - (uint32_t)now);

        if (packet->ingress_ifindex == 0 || packet->mark == 0 || ahead_ns < -LATE_MOST_NS)
                return now;
        return now + (uint64_t)(ahead_ns > (int64_t)s->rule.ahead_ns ? (int64_t)s->rule.ahead_ns : ahead_ns);
}

PROGRAM(decision)
{
        struct port_state *s = get_state();
        const struct port p = {s, get_slots(), s->rule.slot_bits, s->rule.buffer_ps};
        /* wire_len includes the headers of all segments: the kernel maintains it for size-based qdiscs. */
        uint64_t bytes = packet->wire_len, segments = packet->gso_segs ?: 1;
        struct arrival a = {.cost_ps = wire_ps(bytes, s)};
        bool carried;

        a.end_ps = (s->rule.by_timestamps ? packet->tstamp : arrival_ns(packet, s)) * PS_PER_NS;
        a.start_ps = a.end_ps - a.cost_ps + a.cost_ps / segments;
        lock(&s->lock);
        carried = is_later(s->front_ps, a.end_ps) ? carry_late(&p, &a) : carry_on_time(&p, &a);
        if (carried)
                raise_peak(&p);
        unlock(&s->lock);
        __sync_fetch_and_add(carried ? &s->counts.packets : &s->counts.dropped_packets, segments);
        __sync_fetch_and_add(carried ? &s->counts.bytes : &s->counts.dropped_bytes, bytes);
        return carried ? TC_ACT_UNSPEC : TC_ACT_SHOT;
}

/* Returns the time at which the packet left the node, in ns of CLOCK_MONOTONIC. The kernel's timestamps are
 * from CLOCK_REALTIME, which BPF can only read as CLOCK_TAI. */
static INLINED uint64_t departure_ns(const struct __sk_buff *packet, const struct port_state *s)
{
        uint64_t stamp_ns = packet->tstamp, now, late_ns;

        if (s->rule.by_timestamps)
                return stamp_ns;
        now = now_ns();
        if (stamp_ns == 0)
                return now;
        late_ns = now_tai_ns() - stamp_ns - s->rule.tai_ns;
        return late_ns > LATE_MOST_NS ? now : now - late_ns;
}

PROGRAM(stamp)
{
        struct port_state *s = get_state();
        uint64_t left_ns = departure_ns(packet, s), left_ps = left_ns * PS_PER_NS,
                 cost_ps = wire_ps(packet->len, s), sent_ps = 0;

        for (unsigned i = 0; i < ATTEMPTS; i++) {
                uint64_t link_ps = *(volatile uint64_t *)&s->link_ps;

                sent_ps = (is_later(left_ps, link_ps) ? left_ps : link_ps) + cost_ps;
                if (__sync_val_compare_and_swap(&s->link_ps, link_ps, sent_ps) == link_ps)
                        break;
        }
        /* A time in ps that has wrapped cannot be divided; the time since the departure can. */
        packet->mark = (uint32_t)(left_ns + (sent_ps - left_ps) / PS_PER_NS);
        return TC_ACT_UNSPEC;
}
