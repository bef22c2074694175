/* Handles announcements and Requests: finds the requested fragment, or waits for its frame for a limited
 * time. */
#include "ros_internal.h"

/* Returns the oldest frame that waits for its trigger, to which the first trigger is compared. */
static uint64_t oldest_early(const struct ros *r)
{
        return r->early.first == NO_ITEM ? 0 : r->entries[r->early.first].number;
}

/* Like want(), if frames carry numbers. */
static uint32_t want_numbered(struct ros *r, uint64_t event, uint32_t l1_id, uint8_t *ret_status)
{
        uint64_t number = ros_numbers_of_trigger(&r->numbers, event, l1_id, oldest_early(r));
        uint32_t i = idmap_get(&r->by_number, number);

        if (i == IDMAP_NONE && ros_was_discarded(r, number, false)) {
                *ret_status = FRAGMENT_LOST;
                return UINT32_MAX;
        }
        if (i == IDMAP_NONE && !event_set_has(&r->numbers.ended, number))
                return ros_expect(r, event, number, l1_id);
        if (i != IDMAP_NONE && r->entries[i].event == ROS_NO_EVENT) {
                ros_bind(r, i, event, l1_id);
                return i;
        }
        /* Another event has, or had, the same number. */
        r->counts.unknown++;
        *ret_status = FRAGMENT_LOST;
        return UINT32_MAX;
}

/* Returns the entry of a requested event, and creates it if it is absent. UINT32_MAX: nothing is held, and
 * *ret_status is the answer (FRAGMENT_OK: none). */
static uint32_t want(struct ros *r, uint64_t event, uint32_t l1_id, uint8_t *ret_status)
{
        uint32_t i = idmap_get(&r->by_event, event);
        struct ros_fragment f;

        *ret_status = FRAGMENT_OK;
        if (i != IDMAP_NONE)
                return i;
        if (event < r->oldest) {
                r->counts.unknown++;
                return UINT32_MAX;
        }
        if (event >= MAX(r->oldest, r->newest) + EVB_EVENT_WINDOW) {
                r->counts.implausible++;
                return UINT32_MAX;
        }
        r->newest = MAX(r->newest, event + 1);
        if (r->config.describe) {
                r->config.describe(r->config.describe_ctx, event, l1_id, &f);
                return ros_hold(r, event, l1_id, &f);
        }
        if (ros_is_numbered(r))
                return want_numbered(r, event, l1_id, ret_status);
        if (event >= r->arrived)
                return ros_expect(r, event, event, l1_id);
        r->counts.unknown++;
        *ret_status = FRAGMENT_LOST;
        return UINT32_MAX;
}

static void begin_waiting(struct ros *r, uint64_t now_ns, uint32_t i, uint16_t sfi, uint32_t to_bytes)
{
        struct ros_entry *e = &r->entries[i];

        if (e->wanted_by == UINT16_MAX) {
                e->wanted_ns = now_ns;
                r->n_waiting++;
                ros_list_append(r, &r->waiting, i);
        }
        e->wanted_by = sfi;
        e->wanted_to = to_bytes;
}

/* If a board has been out of step for as long as a frame may take, it will not deliver this frame. */
static bool is_hopeless(const struct ros *r, uint64_t now_ns)
{
        return r->out_of_step && r->out_of_step_ns > 0 && r->config.wait_ns > 0 &&
               now_ns - r->out_of_step_ns >= r->config.wait_ns;
}

static void give_up(struct ros *r, uint32_t i, uint16_t sfi)
{
        struct ros_entry *e = &r->entries[i];
        struct request_entry all = {.event = e->event, .l1_id = e->l1_id, .to_bytes = UINT32_MAX};

        if (e->suspect && ros_trust_suspect(r, i))
                return;
        ros_stop_waiting(r, i);
        e->given_up = true;
        ros_enqueue(r, sfi, i, &all, FRAGMENT_PENDING);
}

/* Answers a request for which nothing is held. */
static void answer_at_once(struct ros *r, uint16_t sfi, const struct request_entry *q, uint8_t status)
{
        struct request_entry all = {.event = q->event, .l1_id = q->l1_id, .to_bytes = UINT32_MAX};

        if (status != FRAGMENT_OK)
                ros_enqueue(r, sfi, IDMAP_NONE, &all, status);
}

void ros_send_to(struct ros *r, uint64_t now_ns, uint16_t sfi, const struct request_entry *q)
{
        uint8_t status;
        uint32_t i = want(r, q->event, q->l1_id, &status);

        if (i == UINT32_MAX) {
                answer_at_once(r, sfi, q, status);
                return;
        }
        struct ros_entry *e = &r->entries[i];
        ros_record_triggered(r, i);
        if (!e->arrived && !e->given_up && !is_hopeless(r, now_ns)) {
                begin_waiting(r, now_ns, i, sfi, q->to_bytes);
                return;
        }
        /* Data that are still queued here are not lost, but only late. A second copy would delay them
         * further. */
        if (q->again > 0 && ros_is_queued(e, sfi, q->from_bytes, q->to_bytes))
                return;
        r->queues[sfi].unanswered += q->again > 1;
        if (e->arrived)
                ros_enqueue(r, sfi, i, q, FRAGMENT_OK);
        else
                give_up(r, i, sfi);
}

/* A full buffer holds back frames that the front-end may have sent. */
static bool awaits_frame(const struct ros *r)
{
        bool wanted = ros_counts_frames(r) ? r->arrived < r->wanted : r->config.leads && r->wanted > 0;

        return !r->refused && (r->n_waiting > 0 || wanted);
}

/* Counts only time during which a frame is expected: when triggers stop, a board has nothing to send, even if
 * it missed the last trigger. */
static void watch_hunger(struct ros *r, uint64_t now_ns)
{
        bool wanted = awaits_frame(r);

        if (r->arrived != r->hungry_frames)
                r->hungry_ns = 0;
        else if (r->hungry_ns == 0)
                r->hungry_ns = wanted ? now_ns : 0;
        else if (!wanted)
                r->hungry_ns += now_ns - r->hungry_looked_ns;
        r->hungry_frames = r->arrived;
        r->hungry_looked_ns = now_ns;
        r->hungry = wanted || r->left_out;
}

uint64_t ros_hungry_since_ns(const struct ros *r)
{
        return r->hungry ? r->hungry_ns : 0;
}

void ros_expire(struct ros *r, uint64_t now_ns)
{
        if (r->out_of_step && r->out_of_step_ns == 0)
                r->out_of_step_ns = now_ns;
        if (r->reset.resets > 0 && !r->announced.reading)
                ros_end_reset(r);
        ros_regions_expire(r, now_ns);
        if (now_ns >= ros_wait_deadline_ns(r)) {
                while (now_ns >= ros_wait_deadline_ns(r))
                        give_up(r, r->waiting.first, r->entries[r->waiting.first].wanted_by);
                ros_check_room(r);
        }
        watch_hunger(r, now_ns);
}

void ros_was_paused(struct ros *r, uint64_t now_ns, uint64_t away_ns)
{
        for (uint32_t i = r->waiting.first; i != NO_ITEM; i = r->entries[i].next)
                r->entries[i].wanted_ns = MIN(r->entries[i].wanted_ns + away_ns, now_ns);
        if (r->hungry_ns > 0)
                r->hungry_ns = MIN(r->hungry_ns + away_ns, now_ns);
        if (r->out_of_step_ns > 0)
                r->out_of_step_ns = MIN(r->out_of_step_ns + away_ns, now_ns);
        ros_regions_postpone(r, now_ns, away_ns);
        member_was_paused(&r->member, now_ns, away_ns);
}

uint64_t ros_wait_deadline_ns(const struct ros *r)
{
        if (r->waiting.first == NO_ITEM || r->config.wait_ns == 0)
                return NEVER_NS;
        return r->entries[r->waiting.first].wanted_ns + r->config.wait_ns;
}

void ros_stop_waiting_for(struct ros *r, uint32_t sfi)
{
        for (uint32_t i = r->waiting.first, next; i != NO_ITEM; i = next) {
                next = r->entries[i].next;
                if (r->entries[i].wanted_by == sfi)
                        ros_stop_waiting(r, i);
        }
}

/* Nothing is held for the event. A repeated Clear may name an event that the ROS has already cleared. */
static void record_ended_number(struct ros *r, uint64_t number)
{
        if (event_set_has(&r->numbers.ended, number) || ros_was_discarded(r, number, r->config.level2))
                return;
        event_set_add(&r->numbers.ended, number);
        if (r->config.level2)
                event_set_add(&r->numbers.rejected, number);
        ros_regions_wake(r, number);
}

void ros_record_ended(struct ros *r, uint64_t event, uint32_t l1_id)
{
        uint32_t i = idmap_get(&r->by_event, event);
        uint64_t number;

        if (r->config.describe || event + EVB_EVENT_WINDOW / 2 < r->oldest ||
            event >= MAX(r->oldest, r->newest) + EVB_EVENT_WINDOW)
                return;
        r->newest = MAX(r->newest, event + 1);
        if (i == IDMAP_NONE && ros_is_numbered(r)) {
                number = ros_numbers_of_trigger(&r->numbers, event, l1_id, oldest_early(r));
                i = idmap_get(&r->by_number, number);
                if (i == IDMAP_NONE)
                        record_ended_number(r, number);
                else if (r->entries[i].event == ROS_NO_EVENT)
                        ros_bind(r, i, event, l1_id);
                else
                        i = IDMAP_NONE; /* another event has the same number */
        }
        if (i == IDMAP_NONE)
                return;
        r->entries[i].unrequested |= !r->entries[i].triggered && !r->config.level2;
        ros_record_triggered(r, i);
}
