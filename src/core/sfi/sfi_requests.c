/* Requests fragments from the ROSs and ends events that have timed out. In push, it requests only missing
 * fragments. */
#include "sfi_requests.h"

#include <errno.h>

/* Maximum number of ranges of one fragment that are requested separately. The last one extends to the
 * fragment's end, except in pull by bytes, where the limit has no room for data that has already arrived. */
#define RANGES_MAX 16
/* Allowance for reordered packets: half of the latency, but at least this time, which grows if it was too
 * short (RACK, RFC 8985). */
#define REORDERING_NS (200 * NS_PER_US)
#define REORDERING_MOST_NS (10 * NS_PER_MS)

int sfi_requests_init(struct sfi_requests *q)
{
        uint32_t ring = power_of_two_at_least(q->config->slots);

        q->waiting = calloc(ring, sizeof *q->waiting);
        q->overdue = calloc(q->config->slots, sizeof *q->overdue);
        q->streams = calloc(q->config->n_ros, sizeof *q->streams);
        if (!q->waiting || !q->overdue || !q->streams)
                return -ENOMEM;
        q->waiting_mask = ring - 1;
        q->turn = q->config->index % q->config->n_ros;
        q->ready_ns = q->hurry_ns = NEVER_NS;
        q->reordering_ns = REORDERING_NS;
        return 0;
}

void sfi_requests_fini(struct sfi_requests *q)
{
        free(q->waiting);
        free(q->overdue);
        free(q->streams);
}

void sfi_requests_queue(struct sfi_requests *q, uint32_t slot)
{
        struct sfi_slot *e = &q->slots->items[slot];

        if (q->slots->sources)
                return; /* the assigned slots are the queue */
        if (!e->queued)
                q->waiting[q->waiting_head++ & q->waiting_mask] = slot;
        e->queued = true;
}

/* After a loss of datagrams, the first retry waits only as long as reordered packets may take, not as long as
 * a process may be late. The next retries start with this wait, but soon wait longer, because retries can be
 * lost, too. */
static uint64_t hurried_ns(const struct sfi_requests *q, const struct sfi_slot *e)
{
        if (!q->has_losses || (e->rounds > 0 && q->config->retries_max != UINT32_MAX))
                return sfi_retry_interval_ns(q->retry);
        return sfi_retry_hurried_ns(q->retry, q->reordering_ns) << MIN(2u * e->rounds, 16u);
}

/* Time without data from the ROS after which fragments are requested again. */
static uint64_t silence_ns(const struct sfi_requests *q, const struct sfi_slot *e)
{
        return MIN(hurried_ns(q, e), sfi_retry_interval_ns(q->retry));
}

void sfi_requests_plan(struct sfi_requests *q, uint64_t now_ns, uint32_t slot)
{
        const struct sfi_slot *e = &q->slots->items[slot];
        uint64_t next_ns = sfi_retry_next_ns(q->retry, now_ns, e->rounds, e->expire_ns);

        if (q->has_losses && (e->rounds <= 1 || q->config->retries_max == UINT32_MAX) && next_ns != NEVER_NS)
                next_ns = MIN(next_ns, now_ns + hurried_ns(q, e));
        sfi_slots_set_retry(q->slots, slot, next_ns);
}

/* Maximum number of events requested at a time: as many as the receive buffer holds, if that is known. */
static uint32_t outstanding_max(const struct sfi_requests *q)
{
        const struct sfi_config *c = q->config;
        uint64_t fit;

        if (c->outstanding > 0)
                return c->outstanding;
        if (c->room_bytes == 0)
                return c->slots;
        if (q->slots->event_bytes == 0)
                return 1;
        fit = c->room_bytes / q->slots->event_bytes;
        return (uint32_t)MIN(MAX(fit, UINT64_C(1)), (uint64_t)c->slots);
}

static bool make_first_request(struct sfi_requests *q, uint64_t now_ns, struct message *m)
{
        size_t max = message_entries_fit(MESSAGE_REQUEST, q->config->message_bytes);

        member_address(q->member, m, MESSAGE_REQUEST);
        while (q->waiting_tail != q->waiting_head && m->n < max &&
               q->slots->n_requested - q->slots->n_waits < outstanding_max(q)) {
                uint32_t slot = q->waiting[q->waiting_tail++ & q->waiting_mask];
                struct sfi_slot *e = &q->slots->items[slot];

                e->queued = false;
                if (e->state != SLOT_COLLECTING || e->requested)
                        continue;
                sfi_slots_set_requested(q->slots, now_ns, slot);
                sfi_requests_plan(q, now_ns, slot);
                m->request.entries[m->n++] = (struct request_entry){
                        .event = e->event,
                        .l1_id = e->l1_id,
                        .to_bytes = UINT32_MAX,
                };
        }
        return m->n > 0;
}

static void add_request(struct sfi_requests *q, struct message *m, const struct sfi_slot *e,
                        struct sfi_fragment *f, uint32_t from, uint32_t to, uint32_t bytes)
{
        sfi_retry_spend(q->retry, bytes);
        f->again_bytes += bytes;
        m->request.entries[m->n++] = (struct request_entry){
                .event = e->event,
                .l1_id = e->l1_id,
                .from_bytes = from,
                .to_bytes = to,
                .again = e->rounds + 1u,
        };
}

/* In pull by bytes, missing bytes count as in flight. So a retry adds only bytes that were refused, and these
 * must fit into the limit. */
static uint32_t permitted_bytes(const struct sfi_requests *q, const struct sfi_fragment *f)
{
        uint64_t room = q->limit->bytes - MIN(q->limit->bytes, sfi_requests_in_flight(q));

        if (!q->slots->sources || f->blocks_refused == 0)
                return UINT32_MAX;
        return sfi_fragment_in_flight(f) / EVB_BLOCK_BYTES * EVB_BLOCK_BYTES +
               sfi_limit_payload_bytes(q->limit, room);
}

/* Whether the fragment has memory, or could get it. Otherwise, its requested bytes count as refused: when a
 * retry is due, none of them is in flight any more, and older events may need the room in the limit. */
static bool finds_room(struct sfi_requests *q, uint32_t slot, uint32_t ros)
{
        struct sfi_fragment *f = sfi_fragment(q->slots, slot, ros);

        if (f->known || (q->slots->sources && f->blocks_refused == 0) ||
            sfi_slots_have_room(q->slots, slot, sfi_size_expected(&q->streams[ros].size, q->config)))
                return true;
        sfi_slots_refuse(q->slots, ros, f, sfi_blocks(f->asked));
        return false;
}

static void add_retry(struct sfi_requests *q, uint64_t now_ns, struct message *m, uint32_t slot, uint32_t ros,
                      uint32_t from, uint32_t to)
{
        struct sfi_fragment *f = sfi_fragment(q->slots, slot, ros);

        add_request(q, m, &q->slots->items[slot], f, from, to, to - from);
        sfi_limit_spend(q->limit, now_ns, to - from);
        f->blocks_refused -= MIN(f->blocks_refused, sfi_blocks(to - from));
        sfi_slots_count(q->slots, ros, f);
}

/* A ROS sends in the order of the requests. */
static bool is_overtaken(const struct sfi_requests *q, const struct sfi_slot *e, const struct sfi_fragment *f,
                         uint32_t ros)
{
        return q->slots->sources ? (int32_t)(q->streams[ros].newest_number - f->asked_number) > 0
                                 : q->streams[ros].newest_event > e->event;
}

/* Returns the end of the part of a fragment that counts as lost because later data overtook it (UINT32_MAX:
 * all of it). 0: nothing is lost, or too much is in flight at the port to tell. */
static uint32_t overtaken_to(const struct sfi_requests *q, const struct sfi_slot *e,
                             const struct sfi_fragment *f, uint32_t ros)
{
        if (q->slots->sources && sfi_requests_in_flight(q) > q->limit->bytes)
                return 0;
        if (is_overtaken(q, e, f, ros))
                return UINT32_MAX;
        return f->blocks_received < sfi_blocks(f->edge) ? f->edge : 0;
}

/* After this retry, only an answer to a later request proves a loss. In push, the order of two retries is not
 * known. */
static void record_retry(struct sfi_requests *q, uint64_t now_ns, const struct sfi_slot *e,
                         struct sfi_fragment *f, uint32_t ros)
{
        uint64_t since_ns = MAX(f->retried_ns, q->slots->sources ? f->asked_ns : e->first_ns);
        bool is_lost = (q->slots->sources || !f->retried) && is_overtaken(q, e, f, ros);

        /* Before the first latency sample, fragments are requested from a ROS again after a long silence. If
         * a ROS pauses for so long within a fragment, it has already sent the rest of the fragment. */
        is_lost |= f->known && q->retry->srtt_ns == 0;
        if (overtaken_to(q, e, f, ros) == 0)
                since_ns = MAX(since_ns, q->streams[ros].received_ns);
        f->hurried |= now_ns - since_ns < sfi_retry_interval_ns(q->retry);
        f->retried = true;
        f->refused = false;
        f->retried_ns = now_ns;
        f->again_bytes = 0;
        f->lost_to = is_lost ? UINT32_MAX : f->edge;
        f->edge = 0;
        f->mark = UINT32_MAX;
        q->counts->retried++;
        if (!q->slots->sources)
                return;
        f->mark = f->asked_from = f->asked;
        f->asked_number = ++q->streams[ros].number;
}

static uint64_t block_bytes(const struct sfi_requests *q, uint32_t ros)
{
        return arena_block_bytes(q->slots->arena, sfi_size_expected(&q->streams[ros].size, q->config));
}

/* Until half of an event has arrived, the size of all its fragments is estimated from the ROSs that sent
 * something. */
static uint64_t expected_event_bytes(const struct sfi_requests *q)
{
        uint32_t n_ros = q->config->n_ros, known = 0;
        uint64_t bytes = 0;

        for (uint32_t i = 0; q->slots->event_bytes == 0 && i < n_ros; i++) {
                if (!q->streams[i].size.is_known)
                        continue;
                bytes += block_bytes(q, i);
                known++;
        }
        return known > 0 ? bytes * n_ros / known : q->slots->event_bytes;
}

/* Expected bytes of a fragment of unknown size. */
static uint32_t unknown_bytes(const struct sfi_requests *q, uint32_t ros)
{
        if (q->streams[ros].size.is_known)
                return sfi_size_expected(&q->streams[ros].size, q->config);
        return (uint32_t)MIN(q->event_bytes / q->config->n_ros, (uint64_t)EVB_FRAGMENT_MAX_BYTES);
}

/* Requests the missing ranges of one fragment below `most`, as far as budget and limit allow, in at most
 * RANGES_MAX entries. In pull by bytes, it omits ranges that were never requested. If `begin` > 0, it
 * continues the last retry from there. */
static void add_missing(struct sfi_requests *q, uint64_t now_ns, struct message *m, uint32_t slot,
                        uint32_t ros, uint32_t begin, uint32_t most)
{
        struct sfi_slot *e = &q->slots->items[slot];
        struct sfi_fragment *f = sfi_fragment(q->slots, slot, ros);
        uint32_t from = 0, to = begin;
        uint32_t permitted = finds_room(q, slot, ros) ? permitted_bytes(q, f) : 0;

        if (permitted == 0)
                return;
        if (q->slots->sources)
                most = MIN(most, f->asked);
        e->retried = true;
        if (begin == 0)
                record_retry(q, now_ns, e, f, ros);
        if (!f->split && q->slots->sources) {
                add_retry(q, now_ns, m, slot, ros, 0,
                          sfi_retry_affordable(q->retry, 0, MIN(most, permitted)));
                return;
        }
        if (!f->split) { /* of unknown size */
                add_request(q, m, e, f, 0, most, unknown_bytes(q, ros));
                return;
        }
        for (int k = 1; k <= RANGES_MAX && permitted > 0 && !sfi_retry_budget_is_spent(q->retry) &&
                        sfi_slots_missing_range(q->slots, f, to, &from, &to) && from < most;
             k++) {
                uint32_t last = MIN(k == RANGES_MAX && !q->slots->sources ? f->bytes : to, most);
                uint32_t end =
                        sfi_retry_affordable(q->retry, from, MIN(last, from + MIN(permitted, last - from)));

                add_retry(q, now_ns, m, slot, ros, from, end);
                permitted -= MIN(permitted, (uint32_t)ALIGN_UP(end - from, EVB_BLOCK_BYTES));
                to = ALIGN_UP(end, EVB_BLOCK_BYTES);
        }
        f->rest_from =
                !q->slots->sources && most == UINT32_MAX && sfi_retry_budget_is_spent(q->retry) ? to : 0;
}

/* A missing fragment may still wait in a queue, for any length of time if the sender is shaped. It is lost
 * once a younger fragment has overtaken it, or once the ROS falls silent. Returns the end of the part that
 * may be lost. */
static uint32_t may_be_lost_to(const struct sfi_requests *q, uint64_t now_ns, const struct sfi_slot *e,
                               const struct sfi_fragment *f, uint32_t ros)
{
        uint64_t since_ns = MAX(q->streams[ros].received_ns, q->slots->sources ? f->asked_ns : e->first_ns);

        if (q->continues && f->again_bytes > 0)
                return 0;
        if (now_ns - since_ns >= silence_ns(q, e) || (f->refused && !q->slots->sources))
                return UINT32_MAX;
        return overtaken_to(q, e, f, ros);
}

/* In pull by bytes, the rest of a fragment may not have been requested yet. */
static bool is_missing_requested(const struct sfi_requests *q, const struct sfi_fragment *f)
{
        uint32_t to = f->known ? MIN(f->asked, f->bytes) : f->asked;

        return !f->whole && (!q->slots->sources || f->blocks_received < sfi_blocks(to));
}

/* A slot that was overdue may have ended in the meantime. */
static bool may_retry(const struct sfi_requests *q, const struct sfi_slot *e)
{
        return e->state == SLOT_COLLECTING && e->assigned && e->retry_ns != NEVER_NS &&
               e->order <= q->last_turn;
}

/* Adds the missing fragments of one ROS, within the message and the budget. */
static void add_overdue(struct sfi_requests *q, uint64_t now_ns, struct message *m, uint32_t ros)
{
        size_t max = message_entries_fit(MESSAGE_REQUEST, q->config->message_bytes);

        for (; q->overdue_at < q->n_overdue && m->n + RANGES_MAX <= max; q->overdue_at++) {
                if (sfi_retry_budget_is_spent(q->retry))
                        return;
                uint32_t slot = q->overdue[q->overdue_at];
                const struct sfi_slot *e = &q->slots->items[slot];
                const struct sfi_fragment *f = sfi_fragment(q->slots, slot, ros);
                uint32_t from = 0, to;

                if (!may_retry(q, e) || !is_missing_requested(q, f))
                        continue;
                to = may_be_lost_to(q, now_ns, e, f, ros);
                if (to == 0 && f->rest_from > 0) {
                        from = f->rest_from;
                        to = UINT32_MAX;
                }
                if (to == 0)
                        continue;
                add_missing(q, now_ns, m, slot, ros, from, to);
                if (q->continues)
                        sfi_requests_plan(q, now_ns, slot); /* allows time for the answers to arrive */
        }
}

/* Ends the pass, because the budget is used up. */
static void leave_pass(struct sfi_requests *q)
{
        q->n_left = q->n_overdue;
        for (uint32_t k = 0; k < q->n_overdue; k++)
                q->slots->items[q->overdue[k]].awaits_budget = true;
}

/* Makes one message to one ROS; the next call continues with the next ROS. If the budget ends a pass, the
 * next pass begins with the following ROS, so that a silent ROS does not use up the share of the others. */
static bool make_retry(struct sfi_requests *q, uint64_t now_ns, struct message_to *to, struct message *m)
{
        uint32_t n_ros = q->config->n_ros;

        member_address(q->member, m, MESSAGE_REQUEST);
        for (; q->overdue_ros < n_ros; q->overdue_ros++, q->overdue_at = 0) {
                uint32_t ros = (q->overdue_first + q->overdue_ros) % n_ros;

                if (sfi_retry_budget_is_spent(q->retry)) {
                        q->overdue_first = (ros + (q->overdue_at > 0)) % n_ros;
                        leave_pass(q);
                        break;
                }
                if (sfi_slots_ros_is_live(q->slots, ros))
                        add_overdue(q, now_ns, m, ros);
                if (m->n == 0)
                        continue;
                *to = (struct message_to){ROLE_ROS, (uint16_t)ros};
                return true;
        }
        q->n_overdue = 0;
        return false;
}

static void begin_pass(struct sfi_requests *q, uint32_t n_overdue, bool continues)
{
        q->n_overdue = n_overdue;
        q->n_left = q->overdue_at = q->overdue_ros = 0;
        q->continues = continues;
}

bool sfi_requests_make(struct sfi_requests *q, uint64_t now_ns, struct message_to *to, struct message *m)
{
        if (q->n_unsent > 0 && sfi_requests_make_unsent(q, to, m))
                return true;
        if (q->n_left > 0 && sfi_retry_may_continue(q->retry))
                begin_pass(q, q->n_left, true);
        if (q->n_overdue > 0 && make_retry(q, now_ns, to, m))
                return true;
        if (!q->config->pull || q->waiting_tail == q->waiting_head)
                return false;
        *to = (struct message_to){ROLE_ROS, MESSAGE_TO_ALL};
        return make_first_request(q, now_ns, m);
}

static void expire(struct sfi_requests *q, uint64_t now_ns, uint32_t slot)
{
        if (q->slots->items[slot].assigned) {
                sfi_slots_finish(q->slots, now_ns, slot, false);
                return;
        }
        /* The event was never assigned here, so by now it is assigned to another SFI. */
        sfi_slots_give_up(q->slots, slot);
}

/* Counts only unanswered retries: neither a retry that brought progress nor one that the budget prevented. */
static void count_round(struct sfi_slot *e)
{
        if (e->progress)
                e->rounds = 0;
        else if (e->retried && e->rounds < UINT8_MAX)
                e->rounds++;
        e->progress = e->retried = false;
}

/* Events receive memory in order: the oldest one always, and as many others as the buffer holds. In pull by
 * bytes, no further events are started instead. */
static void find_last_turn(struct sfi_requests *q)
{
        const struct sfi_slots *t = q->slots;
        uint64_t fit = q->event_bytes > 0 ? q->config->buffer_bytes / q->event_bytes : UINT64_MAX;
        uint32_t slot = t->collecting[true].first;

        q->last_turn = UINT64_MAX;
        if (t->sources || slot == SLOT_NONE || t->collecting[true].n + UINT64_C(1) * t->n_building <= fit)
                return;
        for (uint64_t n = t->n_building + UINT64_C(2); n <= fit && t->items[slot].next != SLOT_NONE; n++)
                slot = t->items[slot].next;
        q->last_turn = t->items[slot].order;
}

/* Whether a fragment needs memory that is held by older events, or by events that are being written. The
 * oldest event can obtain all other memory, so if it finds no memory, there is none. */
static bool awaits_memory(struct sfi_requests *q, uint32_t slot)
{
        const struct sfi_slots *t = q->slots;

        if (t->items[slot].assigned && t->items[slot].order > q->last_turn)
                return true;
        if (!t->items[slot].assigned || (t->collecting[true].first == slot && t->n_building == 0) ||
            sfi_slots_have_room(t, slot, EVB_FRAGMENT_MAX_BYTES))
                return false;
        for (uint32_t i = 0; i < t->n_ros; i++) {
                if (!finds_room(q, slot, i))
                        return true;
        }
        return false;
}

/* The time-out of an event starts once its memory is available, and is extended while the event advances as
 * fast as the budget allows. */
static void extend_time(struct sfi_requests *q, uint64_t now_ns, uint32_t slot)
{
        struct sfi_slot *e = &q->slots->items[slot];
        bool advances = e->awaits_budget && e->progress;

        e->awaits_budget = false;
        e->awaits_memory = awaits_memory(q, slot);
        q->slots->has_starved |= e->awaits_memory;
        if (!e->awaits_memory && !advances)
                return;
        e->expire_ns = MAX(e->expire_ns, now_ns + q->config->timeout_ns);
        if (!e->awaits_memory)
                sfi_slots_limit_wait(q->slots, slot);
}

static void handle_due(struct sfi_requests *q, uint64_t now_ns, uint32_t slot)
{
        struct sfi_slot *e = &q->slots->items[slot];

        extend_time(q, now_ns, slot);
        if (now_ns >= e->expire_ns) {
                expire(q, now_ns, slot);
                return;
        }
        count_round(e);
        sfi_requests_plan(q, now_ns, slot);
        if (e->retry_ns != NEVER_NS)
                q->overdue[q->n_overdue++] = slot;
}

void sfi_requests_retry_refused(struct sfi_requests *q, uint64_t now_ns)
{
        struct sfi_slots *t = q->slots;

        for (uint32_t slot = t->collecting[true].first; slot != SLOT_NONE; slot = t->items[slot].next) {
                struct sfi_slot *e = &t->items[slot];

                if ((e->starved || e->awaits_memory) && e->retry_ns != NEVER_NS)
                        sfi_slots_set_retry(t, slot, now_ns);
        }
}

void sfi_requests_hurry(struct sfi_requests *q, uint64_t now_ns)
{
        q->hurry_ns = now_ns + MAX(q->reordering_ns, q->retry->srtt_ns / 2);
}

void sfi_requests_record_answer(struct sfi_requests *q, struct sfi_fragment *f, uint32_t bytes)
{
        bytes = MIN(bytes, f->again_bytes);
        f->again_bytes -= bytes;
        sfi_retry_refund(q->retry, bytes);
}

void sfi_requests_record_size(struct sfi_requests *q, struct sfi_fragment *f)
{
        if (q->slots->sources || f->again_bytes == 0)
                return;
        if (f->bytes < f->again_bytes)
                sfi_retry_refund(q->retry, f->again_bytes - f->bytes);
        else if (f->bytes > f->again_bytes)
                sfi_retry_spend(q->retry, f->bytes - f->again_bytes);
        f->again_bytes = f->bytes;
}

void sfi_requests_record_spurious(struct sfi_requests *q, uint64_t now_ns, bool hurried)
{
        if (!hurried)
                sfi_retry_record_spurious(q->retry, now_ns);
        else
                q->reordering_ns = MIN(2 * q->reordering_ns, REORDERING_MOST_NS);
}

void sfi_requests_retry_overtaken(struct sfi_requests *q, uint64_t now_ns)
{
        struct sfi_slots *t = q->slots;

        for (uint32_t slot = t->collecting[true].first; slot != SLOT_NONE; slot = t->items[slot].next) {
                bool is_due = false;

                for (uint32_t i = 0; t->items[slot].requested && i < t->n_ros; i++) {
                        struct sfi_fragment *f = sfi_fragment(t, slot, i);

                        is_due |= is_missing_requested(q, f) && overtaken_to(q, &t->items[slot], f, i) > 0;
                }
                if (is_due && t->items[slot].retry_ns > now_ns && t->items[slot].retry_ns != NEVER_NS)
                        sfi_slots_set_retry(t, slot, now_ns);
        }
}

void sfi_requests_scan(struct sfi_requests *q, uint64_t now_ns)
{
        struct heap *due = &q->slots->due;

        if (now_ns < q->scan_from_ns || now_ns < heap_first_key(due) || q->n_overdue > 0)
                return;
        sfi_retry_begin_round(q->retry, now_ns);
        begin_pass(q, 0, false);
        q->event_bytes = expected_event_bytes(q);
        find_last_turn(q);
        while (heap_first_key(due) <= now_ns)
                handle_due(q, now_ns, heap_first(due));
        q->scan_from_ns = now_ns + SFI_SCAN_PAUSE_NS;
}

uint64_t sfi_requests_deadline_ns(const struct sfi_requests *q)
{
        uint64_t scan_ns = MAX(heap_first_key(&q->slots->due), q->scan_from_ns);

        return q->n_unsent > 0 ? 0 : MIN(MIN(scan_ns, q->hurry_ns), q->ready_ns);
}
