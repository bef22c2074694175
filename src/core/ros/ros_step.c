/* Decides whether the numbers of frames follow the triggers. A frame that is not newer than all earlier
 * frames waits for a newer one to confirm it, because a board that restarted sends only such frames. */
#include <assert.h>

#include "ros_internal.h"

/* The last frames before a pause may all be late, but their numbers are spread out. The frames of a restarted
 * board follow each other. */
#define STRAYS_APART (4 * ROS_STRAYS_MAX)
/* Number of KeepAlives that may have been on their way when the ROS reported that it is in step again. */
#define DOUBTS 3u

/* Repeated or impossible numbers came since the last frame that was accepted at once: the board may count
 * from the beginning again. */
bool ros_is_broken(const struct ros *r)
{
        return r->out_of_step ? !r->strays_are_late : r->strays > 0 && r->strays_may_begin;
}

void ros_finish(struct ros *r, uint32_t i)
{
        struct ros_entry *e = &r->entries[i];
        uint16_t sfi = e->wanted_by;

        ros_stop_waiting(r, i);
        if (ros_is_numbered(r))
                ros_numbers_record_frame(&r->numbers, e->number);
        e->arrived = e->filled = true;
        r->n_frames++;
        if (e->event == ROS_NO_EVENT) {
                ros_list_append(r, &r->early, i);
                ros_announce_number(r, i);
                e->in_run = r->announced.active;
        }
        if (sfi != UINT16_MAX) {
                struct request_entry wanted = {
                        .event = e->event, .l1_id = e->l1_id, .to_bytes = e->wanted_to};

                ros_enqueue(r, sfi, i, &wanted, FRAGMENT_OK);
        }
        ros_regions_wake(r, e->number);
}

static void suspect(struct ros *r, uint32_t i)
{
        assert(r->n_suspects < ROS_STRAYS_MAX + (r->leaper != UINT32_MAX));
        r->entries[i].suspect = true;
        r->entries[i].copies = 1;
        r->suspects[r->n_suspects++] = i;
}

/* Uses a frame as a late one. If it is the first one of a new count, only the reset will show that. */
static void finish_unproved(struct ros *r, uint32_t i)
{
        uint64_t number = r->entries[i].number;

        if (!ros_numbers_is_overtaken(&r->numbers, number))
                r->unproved = MIN(r->unproved, number);
        ros_forget_suspect(r, i);
        ros_finish(r, i);
}

static void believe_suspects(struct ros *r)
{
        for (uint32_t k = 0; k < r->n_suspects;) {
                uint32_t i = r->suspects[k];

                if (i == r->leaper) {
                        k++;
                        continue;
                }
                ros_forget_suspect(r, i);
                ros_finish(r, i);
        }
}

static void reject_suspect(struct ros *r, uint32_t i, enum ros_frame as)
{
        const struct ros_entry *e = &r->entries[i];

        ros_forget_suspect(r, i);
        ros_count_frame(r, as, e->fragment.frames);
        if (as == FRAME_IMPOSSIBLE)
                r->samples.impossible = (struct ros_sample){true, ros_numbers_counter(&r->numbers, e->number),
                                                            e->fragment.bytes};
        ros_unhold_frame(r, i);
}

static void reject_suspects(struct ros *r)
{
        while (r->n_suspects > 0)
                reject_suspect(r, r->suspects[0], FRAME_IMPOSSIBLE);
}

/* The board did not continue from the leap. If the frame became an event, no trigger had the number of the
 * frame. */
static void end_leap(struct ros *r)
{
        if (r->leaper != UINT32_MAX)
                reject_suspect(r, r->leaper, FRAME_IMPOSSIBLE);
        r->unreliable |= r->leapt > 0;
        r->leapt = 0;
}

/* A restarted board begins with numbers that it sent before, and then sends at most one frame for each
 * trigger. So the frames are only late if the row has no such beginning and contains more frames than there
 * are triggers that wait for one. */
static bool is_only_late(const struct ros *r)
{
        return !r->out_of_step && !r->strays_may_begin && r->strays > ros_numbers_unanswered(&r->numbers);
}

bool ros_trust_suspect(struct ros *r, uint32_t i)
{
        if (i == r->leaper) {
                reject_suspect(r, i, FRAME_IMPOSSIBLE);
                return false;
        }
        if (is_only_late(r)) {
                finish_unproved(r, i);
                return true;
        }
        reject_suspect(r, i, ros_is_broken(r) ? FRAME_IMPOSSIBLE : FRAME_LATE);
        return false;
}

void ros_end_wait_of_suspects(struct ros *r)
{
        uint64_t newest = ros_numbers_newest(&r->numbers);

        if (!is_only_late(r))
                return;
        for (uint32_t k = 0; k < r->n_suspects; k++) {
                if (newest - MIN(newest, r->entries[r->suspects[k]].number) > STRAYS_APART)
                        return;
        }
        believe_suspects(r);
}

bool ros_comes_too_late(const struct ros *r, uint64_t number)
{
        return r->config.leads &&
               (ros_numbers_is_within(&r->numbers, number) || ros_numbers_is_below_run(&r->numbers, number));
}

void ros_end_suspects(struct ros *r)
{
        end_leap(r);
        for (uint32_t k = r->n_suspects; k-- > 0;) {
                uint32_t i = r->suspects[k];
                const struct ros_entry *e = &r->entries[i];

                if (e->event != ROS_NO_EVENT || !ros_comes_too_late(r, e->number))
                        continue;
                ros_forget_suspect(r, i);
                ros_count_no_event(r, e->fragment.frames);
                ros_unhold_frame(r, i);
        }
}

void ros_end_frames(struct ros *r)
{
        ros_end_suspects(r);
        for (uint32_t i = r->early.first, next; r->config.leads && i != NO_ITEM; i = next) {
                next = r->entries[i].next;
                if (ros_makes_no_event(r, &r->entries[i]))
                        ros_drop(r, i);
        }
}

static void drop_early(struct ros *r)
{
        while (r->early.first != NO_ITEM)
                ros_drop(r, r->early.first);
}

/* Before the first trigger, there is nothing to be out of step with, so the count starts again. */
static void begin_again(struct ros *r)
{
        drop_early(r);
        ros_numbers_forget_discarded(&r->numbers);
        r->numbers.has_frame = false;
        /* If frames make the triggers, the dropped frames should have become events, so the duplicates and
         * impossible numbers among them are still reported. */
        if (r->config.leads)
                return;
        r->counts.early_duplicate = r->counts.duplicate;
        r->counts.early_impossible = r->counts.impossible;
}

/* If frames make the triggers, the DFM decides whether all boards restarted. */
static void set_out_of_step(struct ros *r, bool out)
{
        if (r->config.announces && r->out_of_step != out)
                r->keep_alive_due_ns = 0;
        if (r->out_of_step && !out)
                r->doubts = DOUBTS;
        r->out_of_step = out;
}

/* Whether a frame repeats a number close to the triggers although the board continues its count: the board
 * sends several frames for a trigger, or the network repeats a frame. A board that restarted after its first
 * frame repeats that number only once. */
static bool is_repeat(const struct ros *r, uint64_t number, enum ros_frame as)
{
        const struct ros_numbers *n = &r->numbers;

        if (as != FRAME_DUPLICATE ||
            (n->has_trigger && !ros_numbers_agree(n, number, r->out_of_step && ros_is_broken(r))))
                return false;
        return r->out_of_step ||
               (number == r->last_number && (r->strays > 0 || !ros_numbers_is_first(n, number)));
}

/* Whether the row of strays up to this number may be the beginning of a new count. */
static bool begins(const struct ros *r, uint64_t number)
{
        return ros_numbers_is_beginning(&r->numbers, number) ||
               ros_numbers_is_beginning(&r->numbers, r->first_stray);
}

static void back_in_step(struct ros *r)
{
        set_out_of_step(r, false);
        r->strays = r->agreeing = 0;
        believe_suspects(r);
}

/* Either four frames show where the board continued, or one frame that leaps to the same place does. */
static void judge_leaper(struct ros *r, uint64_t number)
{
        uint32_t i = r->leaper;
        uint64_t leap = i == UINT32_MAX ? r->leapt : r->entries[i].number;

        if (leap == 0)
                return;
        if (number <= ros_numbers_newest(&r->numbers) + ROS_NUMBERS_GAP ||
            MAX(number, leap) - MIN(number, leap) > ROS_NUMBERS_GAP) {
                if (++r->after_leap >= ROS_AGREEING_MIN)
                        end_leap(r);
                return;
        }
        r->leapt = 0;
        if (i == UINT32_MAX)
                return;
        ros_forget_suspect(r, i);
        ros_finish(r, i);
}

/* Data of the isolated frame that was already sent cannot be recalled. */
static void set_leaper(struct ros *r, uint64_t number)
{
        uint32_t i = idmap_get(&r->by_number, number);
        const struct ros_entry *e = &r->entries[i];

        end_leap(r);
        r->after_leap = 0;
        if (i == IDMAP_NONE || !e->arrived || e->cleared || e->event != ROS_NO_EVENT) {
                r->leapt = r->config.leads && ros_numbers_is_within(&r->numbers, number) ? number : 0;
                return;
        }
        ros_unfinish(r, i);
        suspect(r, i);
        r->leaper = i;
}

/* Before the first trigger, four consecutive frames outweigh a single first frame. If the first frame is not
 * far ahead, it may have overtaken them. */
static bool outweigh_first(const struct ros *r, uint64_t number)
{
        return !r->numbers.has_trigger && r->numbers.before == UINT64_MAX && r->n_suspects == r->strays &&
               r->strays + 1 == ROS_AGREEING_MIN && number > r->first_stray &&
               number - r->first_stray <= ROS_NUMBERS_GAP && number < ros_numbers_newest(&r->numbers);
}

static void forget_first(struct ros *r, uint64_t number)
{
        uint64_t first = ros_numbers_newest(&r->numbers);

        if (first - number > ROS_NUMBERS_GAP && r->config.leads)
                set_leaper(r, first);
        else if (first - number > ROS_NUMBERS_GAP)
                drop_early(r);
        ros_numbers_believe(&r->numbers, number);
}

bool ros_step_back(struct ros *r, uint64_t number)
{
        if (r->out_of_step || !ros_numbers_step_back(&r->numbers, number, ros_is_broken(r)))
                return false;
        set_leaper(r, ros_numbers_newest(&r->numbers));
        ros_numbers_believe(&r->numbers, number);
        return true;
}

static void believe(struct ros *r, uint64_t number)
{
        judge_leaper(r, number);
        ros_numbers_believe(&r->numbers, number);
        r->unproved = UINT64_MAX;
        if (ros_numbers_is_first(&r->numbers, number))
                r->first_copies = 1;
}

/* Whether the first frames of the row come from a board that was restarted together with this ROS. */
static bool is_beginning(const struct ros *r)
{
        return r->strays <= ROS_STRAYS_MAX && ros_numbers_is_beginning(&r->numbers, r->first_stray);
}

/* Whether the row consists of frames of ended events, after this ROS has joined a run. Such frames were on
 * their way to the previous ROS process, or waited for the connection. They are close to the triggers or
 * catch up with them, unlike frames of a board that was restarted as well. */
static bool precedes(const struct ros *r, uint64_t number)
{
        const struct ros_numbers *n = &r->numbers;

        if (!r->strays_are_late || is_beginning(r) || !ros_numbers_precede(n, number, r->oldest))
                return false;
        return r->strays % STRAYS_APART != 0 || ros_numbers_agree(n, number, false) ||
               ros_numbers_behind(n, number) + STRAYS_APART / 2 <= r->behind;
}

/* Rejects the frames from before the ROS joined, and keeps the frames of open events. */
static void reject_preceding(struct ros *r)
{
        for (uint32_t k = r->n_suspects; k-- > 0;) {
                const struct ros_entry *e = &r->entries[r->suspects[k]];

                if (e->event == ROS_NO_EVENT && ros_numbers_precede(&r->numbers, e->number, r->oldest))
                        reject_suspect(r, r->suspects[k], FRAME_LATE);
        }
}

/* Whether this may be the first frame of an open event since this ROS joined: earlier frames belonged to
 * ended events, and this frame follows them. */
static bool may_begin(const struct ros *r, uint32_t i)
{
        const struct ros_entry *e = &r->entries[i];
        uint64_t apart = MAX(e->number, r->last_number) - MIN(e->number, r->last_number);

        if (r->strays > 0 && (!r->strays_are_late || apart > ROS_NUMBERS_GAP || is_beginning(r)))
                return false;
        return ros_numbers_may_begin(&r->numbers, e->number, r->oldest) ||
               (e->event != ROS_NO_EVENT && ros_numbers_have_joined(&r->numbers, r->oldest));
}

/* Frames of the run may be left over wrongly: level 2 or missing credits may delay the first triggers until
 * the board has begun its count again. The next reset shows that. */
static void record_left(struct ros *r)
{
        for (uint32_t i = r->early.first; !r->config.leads && i != NO_ITEM; i = r->entries[i].next) {
                uint64_t number = r->entries[i].number;

                if (!r->entries[i].in_run)
                        continue;
                r->left.from = r->left.end > 0 ? MIN(r->left.from, number) : number;
                r->left.end = MAX(r->left.end, number + 1);
        }
}

/* Before the first trigger, the row of strays is the beginning of a new count, up to the last stray. */
static void believe_beginning(struct ros *r)
{
        uint64_t last = r->n_suspects > 0 ? r->entries[r->suspects[r->n_suspects - 1]].number : 0;

        for (uint32_t k = r->n_suspects; k-- > 0;)
                if (r->suspects[k] == r->leaper || r->entries[r->suspects[k]].number > last)
                        reject_suspect(r, r->suspects[k], FRAME_IMPOSSIBLE);
        record_left(r);
        begin_again(r);
        if (r->n_suspects == 0)
                return;
        believe_suspects(r);
        ros_numbers_believe(&r->numbers, last);
        r->first_copies = 1;
}

/* Counts how often the first number and the number of an unconfirmed frame are repeated. If the board had
 * restarted, it would have sent its first number twice as often as the other number. True: it has not
 * restarted. */
static bool is_copied_alike(struct ros *r, uint64_t number)
{
        uint32_t i = idmap_get(&r->by_number, number);

        if (ros_numbers_is_first(&r->numbers, number))
                r->first_copies++;
        if (i == IDMAP_NONE || !r->entries[i].suspect || i == r->leaper || r->out_of_step ||
            !ros_numbers_advances(&r->numbers, number))
                return false;
        return ++r->entries[i].copies >= MAX(r->first_copies, 2u);
}

/* Drops an early frame that is not that of the trigger which will have its number. */
static void forget_early(struct ros *r, uint32_t i)
{
        uint64_t number = r->entries[i].number;

        ros_drop(r, i);
        event_set_remove(&r->numbers.discarded, number);
}

/* The board follows the triggers again, far below frames that wait for their triggers: it sent those in
 * another count, as in the previous run. */
static void forget_ahead(struct ros *r, uint64_t number)
{
        for (uint32_t i = r->early.first, next; !r->config.leads && i != NO_ITEM; i = next) {
                next = r->entries[i].next;
                if (r->entries[i].number > number + ROS_NUMBERS_GAP)
                        forget_early(r, i);
        }
}

/* The board was still sending its frames from before a reset when this ROS joined. Those that wait for their
 * triggers would be taken for later frames with the same numbers. */
static void forget_before_reset(struct ros *r)
{
        r->unreliable |= r->counts.used > 0 || r->n_triggered > r->n_expected;
        while (r->early.first != NO_ITEM)
                forget_early(r, r->early.first);
}

void ros_record_stray(struct ros *r, uint64_t number, enum ros_frame as)
{
        r->unreliable |= as == FRAME_DUPLICATE && r->missed_reset;
        if (as == FRAME_DUPLICATE && is_copied_alike(r, number)) {
                ros_numbers_believe(&r->numbers, number);
                back_in_step(r);
                return;
        }
        if (is_repeat(r, number, as) || (as == FRAME_LATE && ros_step_back(r, number)))
                return;
        r->agreeing = 0;
        if (r->out_of_step) {
                r->strays_are_late &= as != FRAME_DUPLICATE;
                reject_suspects(r);
                return;
        }
        if (r->strays == 0) {
                r->strays_are_late = true;
                r->strays_may_begin = false;
        }
        if (r->strays % STRAYS_APART == 0)
                r->behind = ros_numbers_behind(&r->numbers, number);
        if (r->strays++ % ROS_STRAYS_MAX == 0)
                r->first_stray = number;
        r->strays_are_late &= as == FRAME_GOOD || as == FRAME_LATE;
        r->strays_may_begin |= as == FRAME_IMPOSSIBLE || (as == FRAME_DUPLICATE && begins(r, number));
        if (r->strays % ROS_STRAYS_MAX != 0)
                return;
        if (precedes(r, number)) {
                reject_preceding(r);
                if (r->n_suspects > 0) {
                        believe(r, r->entries[r->suspects[0]].number);
                        back_in_step(r);
                }
                return;
        }
        if (r->strays_are_late && (r->numbers.has_trigger || number > r->first_stray) &&
            MAX(number, r->first_stray) - MIN(number, r->first_stray) >= STRAYS_APART) {
                believe_suspects(r);
                return;
        }
        r->strays = 0;
        if (!r->numbers.has_trigger) {
                believe_beginning(r);
                return;
        }
        reject_suspects(r);
        if (r->missed_reset)
                forget_before_reset(r);
        set_out_of_step(r, true);
        r->out_of_step_ns = 0;
        r->counts.restarts++;
        r->samples.stray = r->arriving_sample;
}

/* The frame may belong to a newer trigger, and have this number only because the board restarted its
 * count. */
bool ros_is_doubtful(const struct ros *r, uint64_t number)
{
        return ros_is_broken(r) && ros_numbers_lag(&r->numbers, number, true);
}

bool ros_follow(struct ros *r, uint64_t number)
{
        if (r->out_of_step || !ros_numbers_advances(&r->numbers, number) || ros_is_doubtful(r, number))
                return false;
        reject_preceding(r);
        believe(r, number);
        back_in_step(r);
        return true;
}

void ros_accept_numbered(struct ros *r, uint32_t i)
{
        uint64_t number = r->entries[i].number;

        if (r->out_of_step) {
                suspect(r, i);
                if (++r->agreeing < ROS_AGREEING_MIN)
                        return;
                believe(r, number);
                forget_ahead(r, number);
                back_in_step(r);
        } else if (outweigh_first(r, number)) {
                forget_first(r, number);
                back_in_step(r);
                ros_finish(r, i);
        } else if (ros_step_back(r, number)) {
                ros_finish(r, i);
                back_in_step(r);
        } else if ((ros_numbers_advances(&r->numbers, number) && !ros_is_doubtful(r, number)) ||
                   may_begin(r, i)) {
                reject_preceding(r);
                believe(r, number);
                ros_finish(r, i);
                back_in_step(r);
        } else {
                suspect(r, i);
                ros_record_stray(r, number, FRAME_GOOD);
        }
}

void ros_resynchronise(struct ros *r, uint64_t event, uint64_t number)
{
        bool broken = ros_is_broken(r);

        if (!ros_is_numbered(r))
                return;
        if (r->out_of_step || !r->numbers.has_trigger)
                reject_suspects(r);
        if (!r->numbers.has_trigger)
                begin_again(r);
        end_leap(r);
        back_in_step(r);
        ros_numbers_reset(&r->numbers, event, number, broken);
}

uint32_t ros_breaks(const struct ros *r)
{
        return r->breaks;
}

const struct ros_samples *ros_samples(const struct ros *r)
{
        return &r->samples;
}

bool ros_is_out_of_step(const struct ros *r)
{
        return r->out_of_step;
}

/* After the last event, only these frames can fill the ROS. */
bool ros_has_surplus(const struct ros *r)
{
        return r->is_last && r->refused && r->n_held == r->refused_held && r->n_triggered == 0;
}

int64_t ros_offset(const struct ros *r, bool at_end)
{
        const struct ros_numbers *n = &r->numbers;
        int64_t offset = 0;

        /* If frames make the triggers, there is no other number that could be the right one. */
        if (ros_is_numbered(r) && !r->config.announces && r->counts.restarts == 0)
                offset = ros_numbers_offset(n);
        /* Before the end, a board that began late looks the same. */
        if (!at_end)
                return r->oldest > n->first_event && offset <= ROS_NUMBERS_GAP ? MAX(offset, 0) : 0;
        /* If triggers were not accepted, their frames would hide whether the last accepted trigger has its
         * own frame. */
        return r->is_last && ros_numbers_end_offset(n, offset, ros_has_surplus(r)) ? offset : 0;
}

uint64_t ros_leap(const struct ros *r)
{
        uint64_t leap = ros_numbers_end_gap(&r->numbers, ros_has_surplus(r));
        bool knows = ros_is_numbered(r) && !r->config.announces && r->counts.restarts == 0 && r->is_last;

        return knows && r->counts.absent >= leap ? leap : 0;
}

uint64_t ros_periods(const struct ros *r)
{
        bool knows = ros_is_numbered(r) && !r->config.announces && r->is_last;

        return knows ? ros_numbers_end_periods(&r->numbers, ros_has_surplus(r)) : 0;
}

uint64_t ros_expected_counter(const struct ros *r)
{
        return ros_numbers_expected(&r->numbers);
}

/* All numbers that were announced earlier have become events, or never will. If frames were refused for a
 * while, the board may have restarted. It may then continue from any number, even if its last frames before
 * the reset agreed with the triggers. */
static void begin_epoch(struct ros *r, const struct message *keep_alive)
{
        drop_early(r);
        if (r->out_of_step || r->doubts > 0) {
                reject_suspects(r);
                ros_numbers_restart(&r->numbers);
                set_out_of_step(r, false);
                r->strays = r->agreeing = 0;
        } else
                ros_resynchronise(r, keep_alive->keep_alive.oldest, keep_alive->keep_alive.reset_number);
        r->doubts = 0;
        ros_announced_restart(r);
}

/* The frames that were not read before belong to triggers from before the reset, or to later ones that came
 * while this ROS was away. They are all read first, because nothing tells them apart. */
static void begin_reset(struct ros *r, const struct message *keep_alive)
{
        if (r->reset.resets == keep_alive->keep_alive.resets)
                return;
        r->reset.resets = keep_alive->keep_alive.resets;
        r->reset.event = keep_alive->keep_alive.oldest;
        r->reset.number = keep_alive->keep_alive.reset_number;
        r->announced.reading = true;
        if (!ros_is_numbered(r))
                ros_end_reset(r);
}

/* Whether frames that came after the reset, but before its announcement, may have been used for triggers from
 * before it; or all frames seem to be those of an earlier count. A few frames may have come before the
 * announcement. */
static bool may_have_mixed(const struct ros *r)
{
        const struct ros_numbers *n = &r->numbers;
        uint64_t from = ros_numbers_counter(n, r->reset.number);

        if (ros_numbers_are_a_count_behind(n, r->last_number, ROS_STRAYS_MAX))
                return true;
        return r->unproved != UINT64_MAX &&
               (ros_numbers_counter(n, r->unproved) + n->period - from) % n->period < ROS_STRAYS_MAX;
}

bool ros_began_early(const struct ros *r)
{
        return r->left.in_doubt && ros_numbers_began_late(&r->numbers);
}

void ros_end_reset(struct ros *r)
{
        const struct ros_numbers *n = &r->numbers;

        r->unreliable |= ros_is_numbered(r) && (may_have_mixed(r) || ros_began_early(r));
        r->unproved = UINT64_MAX;
        /* If no trigger came since the last reset, nothing was decided. */
        r->left.in_doubt = (r->left.in_doubt && n->top == n->first_number) ||
                           (n->has_trigger && r->left.from < n->top && r->left.end > n->bottom);
        r->left.end = 0;
        ros_resynchronise(r, r->reset.event, r->reset.number);
        r->breaks++;
        r->missed_reset = r->member.resets == 0;
        r->member.resets = r->reset.resets;
        r->reset.resets = 0;
        r->keep_alive_due_ns = 0;
        ros_regions_record_resets(r);
}

/* All events from before the reset have ended. The DFM waits for this answer before it accepts a trigger from
 * after the reset, unless this ROS is away. */
void ros_record_reset(struct ros *r, uint64_t now_ns, const struct message *m)
{
        uint32_t resets = m->keep_alive.resets;

        if (!member_learns_resets(m))
                return;
        if (resets == r->member.resets) {
                r->doubts -= r->doubts > 0;
                r->reset.resets = 0;
                return;
        }
        /* The start of a run counts as a reset after which the boards' counters continue. A ROS that missed
         * the start first receives a later reset. But a ROS that joins a run in progress finds its counters
         * well past the reset. */
        if (r->config.announces && r->member.resets > 0)
                begin_epoch(r, m);
        else if (r->member.resets > 0 ||
                 (!r->config.announces && resets > 1 &&
                  (!r->numbers.has_trigger || m->keep_alive.triggers == m->keep_alive.oldest))) {
                begin_reset(r, m);
                return;
        }
        if (!r->config.announces)
                r->missed_reset = resets > 1;
        r->member.resets = resets;
        r->keep_alive_due_ns = now_ns;
        ros_regions_record_resets(r);
}
