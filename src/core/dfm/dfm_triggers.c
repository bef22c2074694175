/* The queue of triggers from outside or from the clock, which wait here until their events are assigned. A
 * full queue refuses triggers, and counts them. dfm_events.c removes them.  A trigger or a marker may report
 * a reset of the counters. The reset waits until all earlier events have ended, and their frames have arrived
 * or are overdue. Then the ROSs are informed. The next trigger waits until all ROSs have confirmed, so no
 * frame can match a trigger from the other side of the reset. The DFM is busy during all this time. */
#include <errno.h>

#include "dfm_internal.h"

/* How long triggers may still arrive that the first trigger of a run overtook. */
#define OVERTAKEN_NS NS_PER_S

int dfm_triggers_init(struct dfm *d)
{
        struct dfm_triggers *q = &d->triggers;

        *q = (struct dfm_triggers){
                .size = dfm_triggers_are_outside(d) ? d->config.trigger_queue : 0,
                .last = BUSY_NONE,
                .held_until_ns = NEVER_NS,
        };
        q->ring = calloc(MAX(q->size, 1u), sizeof *q->ring);
        return q->ring ? 0 : -ENOMEM;
}

/* Counts slices of a resumed run that did not become events and are not counted elsewhere. */
static void count_missed_slices(struct dfm *d)
{
        struct dfm_offered *c = &d->counts.offered;
        uint64_t counted = d->table.next_event + c->refused + c->not_taken + c->missed;

        c->missed += d->triggers.next_slice - MIN(d->triggers.next_slice, counted);
}

/* A trigger that waited when the record was written and did not become an event is missed. */
static void count_missed_waiting(struct dfm *d, const struct dfm_processes *f)
{
        d->counts.offered.missed += f->came.waiting - MIN(d->table.next_event - f->next, f->came.waiting);
}

/* If frames make the triggers, numbers that did not become events are announced again. Otherwise, if all
 * triggers that came since the record became events, the next number is the one set here. In a pause, no
 * trigger that came became an event. */
static void resume_numbers(struct dfm *d, const struct dfm_processes *f)
{
        uint64_t since = d->table.next_event - f->next;
        struct dfm_triggers *q = &d->triggers;
        bool again = dfm_frames_trigger(d);

        (void)dfm_numbers_resume(&q->numbers, &f->came, since, again ? &d->counts.offered.missing : NULL);
        if (again)
                return;
        count_missed_waiting(d, f);
        /* Each of these triggers came in a datagram. If none comes to this DFM, the next one must count both
         * from the same place. */
        if (q->next_datagram == f->came.next_datagram)
                q->next_datagram += (uint32_t)(q->numbers.next - f->came.next);
        q->resumed = true;
        q->quiet = f->came.paused && since <= f->came.waiting;
}

/* Triggers that became events since the record came within the spill that was open then, if any. */
static void resume_spills(struct dfm *d, const struct dfm_processes *f)
{
        uint64_t since = d->table.next_event - f->next;
        struct dfm_triggers *q = &d->triggers;
        struct dfm_offered *c = &d->counts.offered;

        if (f->came.in_spill)
                c->in_spills += since - MIN(since, f->came.waiting);
        if (!q->has_datagram) {
                q->has_datagram = f->came.has_datagram;
                q->next_datagram = f->came.next_datagram;
        }
        q->has_empty |= f->came.has_empty;
        if (q->over)
                return;
        c->spills_begun += q->early_begun;
        c->spills_ended += q->early_ended;
        if (q->early_begun + q->early_ended == 0)
                q->in_spill = f->came.in_spill;
}

/* The reports of the SFIs show how many triggers became events since the record was written. How many were
 * offered in that time is unknown until the next trigger arrives; after a reset, it stays unknown. */
void dfm_triggers_resume(struct dfm *d)
{
        const struct dfm_processes *f = d->ledger.previous;
        struct dfm_triggers *q = &d->triggers;
        struct dfm_offered *c = &d->counts.offered;
        struct dfm_announced *a = &d->counts.announced;
        bool reset = c->resets > 0 && !dfm_frames_trigger(d), came = c->triggers > 0;
        uint64_t not_taken = c->not_taken;

        q->over = f && f->came.over;
        if (!dfm_triggers_are_outside(d))
                return;
        *c = f ? f->came.offered : (struct dfm_offered){};
        c->not_taken += q->over ? not_taken : 0;
        q->followed = true;
        c->triggers = d->table.next_event + c->refused + c->repeated + c->implausible + c->not_taken;
        if (f)
                resume_spills(d, f);
        q->datagrams_lost = c->datagrams_lost;
        if (d->config.trigger_source == DFM_TRIGGER_CLOCK) {
                if (q->over)
                        count_missed_waiting(d, f);
                return;
        }
        a->numbers = dfm_frames_trigger(d) ? c->triggers + a->confirmed + a->late : 0;
        if (f && d->resume.is_exact && f->came.numbered && !reset)
                resume_numbers(d, f);
        else if (!dfm_frames_trigger(d) && q->over)
                count_missed_waiting(d, f);
        else
                c->unclear += !dfm_frames_trigger(d);
        q->quiet &= !came;
}

/* The triggers from outside count as missed, or will once the next one shows how many were. */
void dfm_triggers_learn(struct dfm *d, uint64_t n)
{
        const struct dfm_processes *f = d->ledger.previous;
        struct dfm_triggers *q = &d->triggers;
        struct dfm_offered *c = &d->counts.offered;
        uint64_t before = f ? MIN(f->came.offered.missed, c->missed) : 0, missed = MIN(n, c->missed - before);

        d->counts.triggers += n;
        if (!dfm_triggers_are_outside(d))
                return;
        c->triggers += n;
        if (dfm_frames_trigger(d)) {
                d->counts.announced.numbers += n;
                return;
        }
        c->missed -= missed;
        if (q->resumed)
                dfm_numbers_skip(&q->numbers, q->numbers.next + n - missed);
}

void dfm_count_datagrams(struct dfm *d, uint32_t next, bool is_empty, uint64_t lost)
{
        struct dfm_triggers *q = &d->triggers;

        d->counts.offered.datagrams_lost = q->datagrams_lost + lost;
        if (is_empty && !q->has_empty)
                dfm_ledger_changed(d);
        q->has_datagram = true;
        q->has_empty |= is_empty;
        q->next_datagram = next;
}

/* The beginning of a run counts as reset 1, without effect on the counters, even if the first trigger reports
 * a reset; a marker does reset them. A resumed run continues after the resets that its ROSs have received.
 * Frames from the time of the previous DFM may still arrive; which ones is unknown. */
void dfm_triggers_begin(struct dfm *d, uint64_t now_ns)
{
        struct dfm_triggers *q = &d->triggers;

        for (uint32_t i = 0; i < d->config.n_ros; i++)
                q->resets = MAX(q->resets, dfm_node(d, ROLE_ROS, i)->resets);
        q->fresh = q->resets == 0 || (q->resets == 1 && d->table.next_event == 0);
        if (!q->fresh) {
                q->unread_ns = now_ns;
                q->reset_due = q->marked;
        } else if (dfm_triggers_are_outside(d)) {
                q->resets = 1;
                q->reset_due = q->marked;
                q->fresh = !q->marked;
        }
        if (d->config.slice_ns > 0)
                q->next_slice = (now_ns - d->started_ns) / d->config.slice_ns;
        if (d->config.trigger_source == DFM_TRIGGER_CLOCK && !q->over)
                count_missed_slices(d);
}

/* Counts the spills of the run. While it has not begun, the DFM cannot know whether it will resume a run. The
 * next DFM needs each change before the events that follow it. */
static void follow_spill(struct dfm *d, uint32_t flags, bool is_trigger)
{
        struct dfm_offered *c = &d->counts.offered;
        struct dfm_triggers *q = &d->triggers;
        bool begins = flags & TRIGGER_SPILL_BEGINS, ends = flags & TRIGGER_SPILL_ENDS;

        c->spills_begun += dfm_accepts(d) && begins;
        c->spills_ended += dfm_accepts(d) && ends;
        q->early_begun += d->state == RUN_STARTING && begins;
        q->early_ended += d->state == RUN_STARTING && ends;
        q->in_spill |= begins;
        c->in_spills += dfm_accepts(d) && is_trigger && q->in_spill;
        q->in_spill &= !ends;
        if (begins || ends)
                dfm_ledger_changed(d);
}

static enum dfm_offer queue(struct dfm *d, uint64_t came_ns, const struct trigger_entry *t)
{
        struct dfm_triggers *q = &d->triggers;
        struct dfm_waiting *w = &q->ring[q->head % q->size];

        if (dfm_triggers_waiting(q) == q->size) {
                d->counts.offered.refused++;
                return OFFER_REFUSED;
        }
        *w = (struct dfm_waiting){
                .trigger = *t,
                .spill = (uint32_t)d->counts.offered.spills_begun,
                .came_ns = came_ns,
                .reset = q->reset_due,
                .late = t->number + 1 != q->numbers.next,
        };
        /* Otherwise, the next DFM would count the number as missing, although there is no fault. */
        if (w->late && !dfm_frames_trigger(d))
                dfm_ledger_changed(d);
        q->n_resets += q->reset_due;
        q->reset_due = q->fresh = false;
        q->last = t->number;
        q->head++;
        return OFFER_QUEUED;
}

/* Handles the numbers in a resumed run until one shows which numbers were missed. The first number above the
 * expected one shows this: all numbers in between were missed, or were overtaken and will still come. A lower
 * number was sent again or comes late, as without a restart, unless it is so far back that a reset must have
 * been missed. */
static void count_missed(struct dfm *d, uint64_t number)
{
        struct dfm_triggers *q = &d->triggers;
        struct dfm_offered *c = &d->counts.offered;
        uint64_t ahead = number - q->numbers.next, back = q->numbers.next - number;

        if (ahead >= UINT64_C(1) << 63 && back <= DFM_NUMBERS_WINDOW)
                return;
        /* This must be recorded before any event of a later trigger. */
        dfm_ledger_changed(d);
        q->resumed = false;
        if (ahead < UINT64_C(1) << 63) {
                c->missed += ahead;
                q->missed_from = q->numbers.next;
                q->missed_to = number;
                dfm_numbers_miss(&q->numbers, number);
                return;
        }
        c->unclear++;
        dfm_numbers_begin(&q->numbers, number);
}

/* The count of absent numbers that includes this number, if the number is not newer than all others. */
static uint64_t *count_of_absent(struct dfm *d, uint64_t number)
{
        const struct dfm_triggers *q = &d->triggers;
        struct dfm_offered *c = &d->counts.offered;

        if (number < q->missed_from || number >= q->missed_to)
                return &c->missing;
        dfm_ledger_changed(d);
        return &c->missed;
}

static enum dfm_offer accept_number(struct dfm *d, uint64_t came_ns, uint64_t number)
{
        struct dfm_triggers *q = &d->triggers;
        uint64_t *absent;
        bool opens = !q->numbers.started && q->fresh && d->config.trigger_source == DFM_TRIGGER_OFFERED;
        enum dfm_offer verdict;
        bool gap = dfm_frames_trigger(d) && number > q->numbers.next;

        if (!q->numbers.started || gap)
                dfm_ledger_changed(d);
        if (q->resumed)
                count_missed(d, number);
        absent = count_of_absent(d, number);
        if (q->overtaken && dfm_numbers_precede(&q->numbers, number, absent))
                return OFFER_QUEUED;
        verdict = dfm_numbers_accept(&q->numbers, number, absent);
        if (opens) {
                q->numbers.open = true;
                q->opened_ns = came_ns;
        }
        return verdict;
}

/* It is no longer possible to find out which triggers were missed. */
static void give_up_missed(struct dfm *d)
{
        d->counts.offered.unclear += d->triggers.resumed;
        d->triggers.resumed = false;
}

enum dfm_offer dfm_offer_since(struct dfm *d, uint64_t came_ns, const struct trigger_entry *t)
{
        struct dfm_offered *c = &d->counts.offered;
        enum dfm_offer verdict;

        c->triggers++;
        if (!dfm_accepts(d)) {
                c->not_taken++;
                follow_spill(d, t->flags, true);
                return OFFER_NOT_TAKEN;
        }
        verdict = accept_number(d, came_ns, t->number);
        c->repeated += verdict == OFFER_REPEATED;
        c->implausible += verdict == OFFER_IMPLAUSIBLE;
        if (verdict != OFFER_QUEUED)
                return verdict;
        follow_spill(d, t->flags, true);
        if (dfm_pause_refuses(d)) {
                c->not_taken++;
                c->in_pauses++;
                return OFFER_NOT_TAKEN;
        }
        return queue(d, came_ns, t);
}

static void record_reset(struct dfm *d, const struct trigger_entry *t)
{
        struct dfm_triggers *q = &d->triggers;

        d->counts.offered.resets++;
        give_up_missed(d);
        dfm_ledger_changed(d);
        q->numbers.started = false;
        q->missed_from = q->missed_to = 0;
        q->due_number = t->number;
        q->marked |= d->state == RUN_STARTING && (t->flags & TRIGGER_MARKER || d->resume.active);
        if (q->fresh && !(t->flags & TRIGGER_MARKER))
                return;
        /* A ROS that received a reset after which no trigger came may have frames from after that reset, so
         * this is another reset. */
        if (dfm_triggers_waiting(q) == 0)
                q->resetting = false;
        q->reset_due = true;
        q->fresh = false;
}

enum dfm_offer dfm_offer(struct dfm *d, uint64_t now_ns, const struct trigger_entry *t)
{
        enum dfm_offer verdict = OFFER_MARKER;

        if (t->flags & TRIGGER_RESET)
                record_reset(d, t);
        if (t->flags & TRIGGER_MARKER)
                follow_spill(d, t->flags, false);
        else
                verdict = dfm_offer_since(d, now_ns, t);
        if (verdict != OFFER_MARKER)
                d->triggers.followed = verdict != OFFER_QUEUED;
        /* If a reset is in the queue, no earlier frames belong to this trigger. */
        if (verdict > OFFER_MARKER && !dfm_reset_is_pending(&d->triggers))
                d->triggers.unread_ns = now_ns;
        dfm_judge_busy(d, now_ns);
        return verdict;
}

/* If this trigger should have been the first of the run, the counters began with the run, so the reset that
 * it reports does not count. */
enum dfm_offer dfm_offer_overtaken(struct dfm *d, uint64_t now_ns, const struct trigger_entry *t)
{
        struct dfm_triggers *q = &d->triggers;
        struct trigger_entry e = *t;
        enum dfm_offer verdict;

        q->overtaken = q->numbers.open && now_ns - q->opened_ns < OVERTAKEN_NS;
        if (q->overtaken && t->number < q->numbers.first && !(t->flags & TRIGGER_MARKER))
                e.flags &= ~TRIGGER_RESET;
        verdict = dfm_offer(d, now_ns, &e);
        q->overtaken = false;
        return verdict;
}

/* Slices that find the queue full are refused, because time cannot be held back. */
void dfm_triggers_tick(struct dfm *d, uint64_t now_ns)
{
        struct dfm_triggers *q = &d->triggers;
        uint64_t slice_ns = d->config.slice_ns, passed;

        if (d->config.trigger_source != DFM_TRIGGER_CLOCK || d->state != RUN_RUNNING)
                return;
        passed = (now_ns - d->started_ns) / slice_ns;
        if (dfm_pause_refuses(d) && q->next_slice < passed) {
                d->counts.offered.triggers += passed - q->next_slice;
                d->counts.offered.not_taken += passed - q->next_slice;
                dfm_numbers_skip(&q->numbers, passed);
                q->next_slice = passed;
        }
        for (; q->next_slice < passed && dfm_triggers_waiting(q) < q->size; q->next_slice++) {
                uint64_t begin_ns = d->started_ns + q->next_slice * slice_ns;
                struct trigger_entry t = {
                        .number = q->next_slice,
                        .time_ns = begin_ns + d->config.utc_offset_ns,
                };

                dfm_offer(d, now_ns, &t);
        }
        if (q->next_slice < passed) {
                d->counts.offered.triggers += passed - q->next_slice;
                d->counts.offered.refused += passed - q->next_slice;
                dfm_numbers_skip(&q->numbers, passed);
                q->next_slice = passed;
        }
}

static bool ross_know_resets(struct dfm *d)
{
        struct dfm_triggers *q = &d->triggers;

        if (q->known)
                return true;
        for (uint32_t i = 0; i < d->config.n_ros; i++) {
                if (dfm_is_behind(d, i))
                        return false;
        }
        q->known = true;
        return true;
}

/* Whether no further frame from before the reset is expected. Frames of rejected events are not waited for.
 * KeepAlive must have passed all earlier events, so its oldest event is the first one after the reset. */
static bool may_reset(struct dfm *d, uint64_t now_ns)
{
        struct dfm_triggers *q = &d->triggers;
        uint64_t until_ns = q->unread_ns + d->config.frame_wait_ns;

        if (d->table.used > 0 || d->n_clears > 0 || d->announce_tail != d->announce_head)
                return false;
        if (q->unread_ns == 0 || now_ns >= until_ns)
                return true;
        q->held_until_ns = until_ns;
        return false;
}

void dfm_announce_reset(struct dfm *d, uint64_t now_ns, uint64_t number)
{
        struct dfm_triggers *q = &d->triggers;

        q->resetting = true;
        q->known = false;
        q->resets++;
        q->reset_number = number;
        /* No Clear from before the reset may be sent after it. */
        d->n_cleared = d->repeat_at = d->repeat_end = 0;
        d->keep_alive_due_ns = now_ns;
}

/* Whether triggers wait for a reset, or for a ROS that has not received the last one. */
static bool waits_for_reset(struct dfm *d, uint64_t now_ns)
{
        struct dfm_triggers *q = &d->triggers;
        struct dfm_waiting *first = dfm_triggers_waiting(q) > 0 ? &q->ring[q->tail % q->size] : NULL;
        bool reset = first ? first->reset : q->reset_due;

        q->held_until_ns = NEVER_NS;
        if (reset && !q->resetting) {
                if (!may_reset(d, now_ns))
                        return true;
                dfm_announce_reset(d, now_ns, first ? first->trigger.number : q->due_number);
        }
        if (!ross_know_resets(d))
                return true;
        q->resetting = false;
        if (reset && first) {
                first->reset = false;
                q->n_resets--;
        } else if (reset)
                q->reset_due = false;
        return false;
}

bool dfm_trigger_is_due(struct dfm *d, uint64_t now_ns)
{
        const struct dfm_config *c = &d->config;

        d->triggers.blocked = true;
        if (!dfm_makes_events(d) || (c->events > 0 && d->counts.triggers >= c->events))
                return false;
        if (dfm_triggers_are_outside(d))
                return !waits_for_reset(d, now_ns) && dfm_triggers_waiting(&d->triggers) > 0 &&
                       !dfm_pause_holds(d);
        return !dfm_pause_holds(d) && trigger_next_ns(&d->trigger) <= now_ns;
}

void dfm_trigger_assign(struct dfm *d, uint64_t now_ns, uint32_t slot)
{
        struct dfm_event *e = &d->table.slots[slot];
        const struct dfm_waiting *w;

        d->counts.triggers++;
        d->counts.first_trigger_ns = d->counts.first_trigger_ns ?: now_ns;
        if (!dfm_triggers_are_outside(d)) {
                trigger_next_due(&d->trigger, now_ns, 1);
                return;
        }
        w = &d->triggers.ring[d->triggers.tail++ % d->triggers.size];
        e->trigger = w->trigger;
        e->spill = w->spill;
        e->trigger_known = true;
        /* A late number must not count as the next one. */
        if (w->late)
                dfm_ledger_changed(d);
        e->trigger_ns = w->came_ns;
        /* The caller accepts only a limited number of triggers at a time. */
        d->triggers.blocked = false;
}

void dfm_triggers_close(struct dfm *d)
{
        const struct dfm_triggers *q = &d->triggers;

        if (!q->quiet && !q->over && (d->config.events == 0 || d->counts.triggers < d->config.events))
                give_up_missed(d);
}

void dfm_triggers_drop(struct dfm *d)
{
        struct dfm_triggers *q = &d->triggers;

        d->counts.offered.not_taken += dfm_triggers_waiting(q);
        q->followed |= dfm_triggers_waiting(q) > 0;
        q->tail = q->head;
        q->n_resets = 0;
        q->reset_due = false;
}

/* With the clock, another slice always follows the last one. */
bool dfm_triggers_are_followed(const struct dfm *d)
{
        return d->triggers.followed || d->config.trigger_source == DFM_TRIGGER_CLOCK;
}

uint64_t dfm_triggers_deadline_ns(const struct dfm *d)
{
        const struct dfm_triggers *q = &d->triggers;
        uint64_t deadline = NEVER_NS;

        if (!dfm_makes_events(d))
                return NEVER_NS;
        if (!dfm_triggers_are_outside(d))
                return d->busy_since_ns == NEVER_NS && !d->hold.paused ? trigger_next_ns(&d->trigger)
                                                                       : NEVER_NS;
        if (d->config.trigger_source == DFM_TRIGGER_CLOCK && d->state == RUN_RUNNING)
                deadline = d->started_ns + (q->next_slice + 1) * d->config.slice_ns;
        deadline = MIN(deadline, q->held_until_ns);
        return dfm_triggers_waiting(q) > 0 && !q->blocked ? 0 : deadline;
}

bool dfm_has_info(const struct dfm *d)
{
        return d->config.info || dfm_triggers_are_outside(d) || d->config.level2.on;
}

bool dfm_can_describe(const struct dfm *d, uint32_t slot)
{
        return !dfm_triggers_are_outside(d) || d->table.slots[slot].trigger_known;
}

/* Describes the event from its trigger. */
static void describe(const struct dfm *d, const struct dfm_event *e, struct event_info *ret)
{
        const struct trigger_entry *t = &e->trigger;
        uint64_t time_ns = t->time_ns > 0 ? t->time_ns : e->trigger_ns + d->config.utc_offset_ns,
                 number = dfm_triggers_are_outside(d) ? t->number : e->event;

        *ret = (struct event_info){
                .global_id = number,
                .l1_id = (uint32_t)number,
                .run = d->config.run,
                .time_s = (uint32_t)(time_ns / NS_PER_S),
                .time_ns = (uint32_t)(time_ns % NS_PER_S),
                .trigger_type = t->type,
                .spill = e->spill,
                .flags = t->flags,
        };
}

void dfm_describe(const struct dfm *d, const struct dfm_event *e, struct event_info *ret)
{
        if (d->config.info)
                d->config.info(d->config.info_ctx, e->event, ret);
        else
                describe(d, e, ret);
        if (!e->decided)
                return;
        ret->l2_info = e->l2_info;
        ret->ef_info[0] = e->stream;
}
