/* Whom the SFI asks for what, and when it gives up. In push it only asks again for what is missing. */
#include "sfi_internal.h"

/* Bounds of the time after which is asked again, where it is taken from what is usual. */
#define RE_ASK_FIRST_NS (100 * NS_PER_MS)
#define RE_ASK_LEAST_NS (10 * NS_PER_MS)
/* Weights of the running mean and deviation: as RFC 6298, but for samples that come by the thousand. */
#define SRTT_SHIFT 6
#define BACKOFF_MAX 64u
#define BACKOFF_HOLD_NS NS_PER_S
#define BUDGET_LEAST_BYTES 65536u
/* The budget if no bound is known, and the minimum share of an answer. */
#define BUDGET_BYTES (64u << 20)
#define ANSWER_LEAST_BYTES 1024u
/* Upper limit of the pause between retries if their number is unbounded. */
#define BACKOFF_LONGEST_NS (500 * NS_PER_MS)
/* Parts of one fragment that are asked for by themselves; what lies behind them is asked for as a whole. */
#define RANGES_MAX 16
/* Asks of which the last one is kept for late: with fewer, too many events would come to need it. */
#define LATE_ASK_LEAST 4u

/* All retries of a bounded number fit into the event's time. */
static uint64_t retry_longest_ns(const struct sfi *s)
{
        uint32_t max = s->config.retries_max;

        return s->config.timeout_ns / (max == UINT32_MAX ? 8 : max + UINT64_C(1));
}

uint64_t sfi_retry_after_ns(const struct sfi *s)
{
        uint64_t after = s->config.retry_after_ns;

        if (after > 0)
                return after;
        if (s->config.reliable)
                return retry_longest_ns(s);
        after = s->srtt_ns == 0 ? RE_ASK_FIRST_NS
                                : s->stretch * (s->srtt_ns + 4 * s->rttvar_ns + RE_ASK_LEAST_NS);
        return MIN(after, retry_longest_ns(s));
}

void sfi_sample_latency(struct sfi *s, uint64_t sample_ns)
{
        if (s->srtt_ns == 0) {
                s->srtt_ns = sample_ns + 1;
                s->rttvar_ns = sample_ns / 2;
                return;
        }
        uint64_t apart = sample_ns > s->srtt_ns ? sample_ns - s->srtt_ns : s->srtt_ns - sample_ns;

        s->rttvar_ns += (uint64_t)((int64_t)(apart - s->rttvar_ns) >> SRTT_SHIFT);
        s->srtt_ns += (uint64_t)((int64_t)(sample_ns - s->srtt_ns) >> SRTT_SHIFT);
}

void sfi_note_too_early(struct sfi *s, uint64_t now_ns)
{
        if (now_ns - s->backoff_ns < sfi_retry_after_ns(s))
                return;
        s->stretch = MIN(2 * s->stretch, BACKOFF_MAX);
        s->backoff_ns = now_ns;
}

/* Each round waits twice as long as the one before, and all happen before the event expires. Losses often
 * come in bursts that outlast the first rounds, so the last of a bounded number of retries happens half-way
 * to the end. This call makes the one after that. */
static uint64_t distance_ns(const struct sfi *s, uint64_t now_ns, const struct sfi_slot *e)
{
        uint64_t after = MAX(sfi_retry_after_ns(s), UINT64_C(1));
        uint64_t distance = MIN(after << MIN(e->rounds, 16), retry_longest_ns(s));

        if (s->config.retries_max == UINT32_MAX)
                return MIN(distance, MAX(after, BACKOFF_LONGEST_NS));
        if (s->config.retries_max < LATE_ASK_LEAST || e->rounds + 2u != s->config.retries_max ||
            now_ns >= e->expire_ns)
                return distance;
        return MAX(distance, (e->expire_ns - now_ns) / 2);
}

void sfi_plan_retry(struct sfi *s, uint64_t now_ns, uint32_t slot)
{
        struct sfi_slot *e = &s->slots[slot];

        e->retry_ns = e->rounds >= s->config.retries_max ? NEVER_NS : now_ns + distance_ns(s, now_ns, e);
        heap_put(&s->due, slot, MIN(e->retry_ns, e->expire_ns), e->event);
}

void sfi_start_waiting(struct sfi *s, uint32_t slot)
{
        if (!s->slots[slot].queued)
                s->waiting[s->waiting_head++ & s->waiting_mask] = slot;
        s->slots[slot].queued = true;
}

void sfi_set_asked(struct sfi *s, uint64_t now_ns, uint32_t slot)
{
        struct sfi_slot *e = &s->slots[slot];

        if (s->config.pull) {
                e->asked = true;
                s->n_asked++;
                e->first_ns = now_ns;
                e->expire_ns = now_ns + s->config.timeout_ns;
        }
        sfi_plan_retry(s, now_ns, slot);
}

/* Events that may be asked for at a time: what the receive buffer takes, as far as is known. */
static uint32_t outstanding_max(const struct sfi *s)
{
        uint64_t fit;

        if (s->config.outstanding > 0)
                return s->config.outstanding;
        if (s->config.room_bytes == 0)
                return s->config.slots;
        if (s->event_bytes == 0)
                return 1;
        fit = s->config.room_bytes / s->event_bytes;
        return (uint32_t)MIN(MAX(fit, UINT64_C(1)), (uint64_t)s->config.slots);
}

static bool make_first_request(struct sfi *s, uint64_t now_ns, struct message *m)
{
        size_t max = message_entries_fit(MESSAGE_REQUEST, false, s->config.message_bytes);

        member_address(&s->member, m, MESSAGE_REQUEST);
        while (s->waiting_tail != s->waiting_head && m->n < max && s->n_asked < outstanding_max(s)) {
                uint32_t slot = s->waiting[s->waiting_tail++ & s->waiting_mask];
                struct sfi_slot *e = &s->slots[slot];

                e->queued = false;
                if (e->state != SLOT_COLLECTING || e->asked)
                        continue;
                sfi_set_asked(s, now_ns, slot);
                m->request.entries[m->n++] = (struct request_entry){
                        .event = e->event,
                        .l1_id = e->l1_id,
                        .to_bytes = UINT32_MAX,
                };
        }
        return m->n > 0;
}

static void add_request(struct sfi *s, struct message *m, const struct sfi_slot *e, uint32_t from,
                        uint32_t to, uint32_t bytes)
{
        s->budget_bytes -= MIN(s->budget_bytes, (uint64_t)MAX(bytes, ANSWER_LEAST_BYTES));
        m->request.entries[m->n++] = (struct request_entry){
                .event = e->event,
                .l1_id = e->l1_id,
                .from_bytes = from,
                .to_bytes = to,
                .again = e->rounds + 1u,
        };
}

/* As much of [from, to) as may be asked for now, at least a little; where it ends. */
static uint32_t affordable(const struct sfi *s, uint32_t from, uint32_t to)
{
        uint64_t bytes = MAX(s->budget_bytes, (uint64_t)BUDGET_LEAST_BYTES);

        return bytes >= to - from ? to : from + (uint32_t)(bytes - bytes % EVB_BLOCK_BYTES);
}

/* What is missing of one fragment, as far as the budget goes; at most RANGES_MAX entries. */
static void add_missing(struct sfi *s, struct message *m, uint32_t slot, struct sfi_fragment *f)
{
        struct sfi_slot *e = &s->slots[slot];
        uint32_t from = 0, to = 0;

        e->re_asked = true;
        f->asked_again = true;
        s->counts.re_asked++;
        if (!f->in_parts) {
                add_request(s, m, e, 0, UINT32_MAX, (uint32_t)(s->event_bytes / s->config.n_ros));
                return;
        }
        for (int k = 1; k <= RANGES_MAX && s->budget_bytes > 0 && sfi_missing_range(s, f, to, &from, &to);
             k++) {
                uint32_t end = affordable(s, from, k == RANGES_MAX ? f->bytes : to);

                add_request(s, m, e, from, end, end - from);
                to = ALIGN_UP(end, EVB_BLOCK_BYTES);
        }
}

/* What has not come may still be in a queue on its way, however long that is: where the sender is shaped,
 * that is where packets are meant to wait. It is lost where something younger has overtaken it, or nothing
 * comes from there any more. */
static bool may_be_lost(const struct sfi *s, uint64_t now_ns, const struct sfi_slot *e, uint32_t ros)
{
        const struct sfi_stream *stream = &s->streams[ros];

        return stream->newest_event > e->event ||
               now_ns - MAX(stream->heard_ns, e->first_ns) >= sfi_retry_after_ns(s);
}

/* Adds what is missing from one ROS, within the message and the budget. */
static void add_overdue(struct sfi *s, uint64_t now_ns, struct message *m, uint32_t ros)
{
        size_t max = message_entries_fit(MESSAGE_REQUEST, false, s->config.message_bytes);

        for (; s->overdue_at < s->n_overdue && m->n + RANGES_MAX <= max; s->overdue_at++) {
                if (s->budget_bytes == 0)
                        return;
                uint32_t slot = s->overdue[s->overdue_at];
                const struct sfi_slot *e = &s->slots[slot];
                struct sfi_fragment *f = sfi_fragment(s, slot, ros);

                if (e->state == SLOT_COLLECTING && !f->whole && may_be_lost(s, now_ns, e, ros))
                        add_missing(s, m, slot, f);
        }
}

/* Makes one message to one ROS with what is missing from it; the next call continues with the next ROS. If
 * the budget ends a pass, the next one begins with the following ROS, so a silent ROS leaves the others their
 * share. */
static bool make_next_request(struct sfi *s, uint64_t now_ns, struct message_to *to, struct message *m)
{
        member_address(&s->member, m, MESSAGE_REQUEST);
        for (; s->overdue_ros < s->config.n_ros; s->overdue_ros++, s->overdue_at = 0) {
                uint32_t ros = (s->overdue_first + s->overdue_ros) % s->config.n_ros;

                if (s->budget_bytes == 0) {
                        s->overdue_first = (ros + (s->overdue_at > 0)) % s->config.n_ros;
                        break;
                }
                if (sfi_ros_is_live(s, ros))
                        add_overdue(s, now_ns, m, ros);
                if (m->n == 0)
                        continue;
                *to = (struct message_to){ROLE_ROS, (uint16_t)ros};
                return true;
        }
        s->n_overdue = 0;
        return false;
}

/* The bound on retries is a rate: requested data must fit where they go, or they are lost again. They arrive
 * and are taken out in about the time of one retry interval. */
static void refill_budget(struct sfi *s, uint64_t now_ns)
{
        uint64_t full = s->config.room_bytes ?: BUDGET_BYTES, after = sfi_retry_after_ns(s);
        uint64_t passed = now_ns - s->budget_ns;

        s->budget_ns = now_ns;
        if (s->budget_filled && passed < after)
                full = MIN(full, s->budget_bytes + (uint64_t)((double)full * (double)passed / (double)after));
        s->budget_bytes = full;
        s->budget_filled = true;
}

bool sfi_make_request(struct sfi *s, uint64_t now_ns, struct message_to *to, struct message *m)
{
        if (s->n_overdue > 0 && make_next_request(s, now_ns, to, m))
                return true;
        if (!s->config.pull || s->waiting_tail == s->waiting_head)
                return false;
        *to = (struct message_to){ROLE_ROS, MESSAGE_TO_ALL};
        return make_first_request(s, now_ns, m);
}

static void expire(struct sfi *s, uint64_t now_ns, uint32_t slot)
{
        if (s->slots[slot].assigned) {
                sfi_finish_slot(s, now_ns, slot, false);
                return;
        }
        /* Fragments came, but the event was never assigned to us: it is another SFI's by now. */
        sfi_give_up_unassigned(s, slot);
}

/* The bound is on asking in vain: what was not asked for yet (the budget), or helped, does not count. */
static void count_round(struct sfi_slot *e)
{
        if (e->progress)
                e->rounds = 0;
        else if (e->re_asked && e->rounds < UINT8_MAX)
                e->rounds++;
        e->progress = e->re_asked = false;
}

static void look_at_due(struct sfi *s, uint64_t now_ns, uint32_t slot)
{
        struct sfi_slot *e = &s->slots[slot];

        if (now_ns >= e->expire_ns) {
                expire(s, now_ns, slot);
                return;
        }
        count_round(e);
        sfi_plan_retry(s, now_ns, slot);
        if (e->retry_ns != NEVER_NS)
                s->overdue[s->n_overdue++] = slot;
}

void sfi_scan(struct sfi *s, uint64_t now_ns)
{
        if (now_ns < s->scan_from_ns || now_ns < heap_first_key(&s->due) || s->n_overdue > 0)
                return;
        if (now_ns - s->backoff_ns > BACKOFF_HOLD_NS && s->stretch > 1) {
                s->stretch /= 2;
                s->backoff_ns = now_ns;
        }
        s->overdue_at = s->overdue_ros = 0;
        refill_budget(s, now_ns);
        while (heap_first_key(&s->due) <= now_ns)
                look_at_due(s, now_ns, heap_first(&s->due));
        /* Combines what becomes due a little later. */
        s->scan_from_ns = now_ns + NS_PER_MS / 2;
}
