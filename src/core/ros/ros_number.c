/* Compares the numbers of frames with the numbers of triggers. */
#include "ros_number.h"

#include "base/util.h"
#include "protocol/event.h"

/* Limits how far a frame may be ahead of all known triggers and frames: by this share of its counter's range
 * (more if the counter is narrow), and by AHEAD_MAX. This detects a board whose counter restarted somewhere
 * else in the range. */
#define AHEAD_SHARE_BITS 8u
#define AHEAD_MAX (EVB_EVENT_WINDOW / 4)
/* A frame that is further behind is impossible rather than late. */
#define BEHIND_MAX (EVB_EVENT_WINDOW / 2)
/* Until this many events have ended, the frames of a board that restarted together with the run may carry the
 * numbers of events that are still open. */
#define ENDED_MIN 16u
/* Both ends of the numbers after a gap of this size do not agree by chance. */
#define SURE_GAP 4u

int ros_numbers_init(struct ros_numbers *n, uint64_t period, int64_t from)
{
        uint64_t unit = period > 0 ? (NUMBER_PERIOD_MAX + period - 1) / period * period : NUMBER_PERIOD_MAX;
        int64_t rest = period > 0 ? from % (int64_t)period : 0;
        int r;

        *n = (struct ros_numbers){
                .period = period,
                .unit = unit,
                .from = (uint64_t)(rest < 0 ? rest + (int64_t)period : rest),
                .start = unit,
                .first_trigger = UINT64_MAX,
                .bottom = UINT64_MAX,
                .joined = UINT64_MAX,
        };
        r = event_set_init(&n->ended);
        if (r >= 0)
                r = event_set_init(&n->used);
        if (r >= 0)
                r = event_set_init(&n->discarded);
        return r < 0 ? r : event_set_init(&n->rejected);
}

void ros_numbers_fini(struct ros_numbers *n)
{
        event_set_fini(&n->ended);
        event_set_fini(&n->used);
        event_set_fini(&n->discarded);
        event_set_fini(&n->rejected);
}

static const struct ros_epoch *epoch_of_frames(const struct ros_numbers *n)
{
        return n->seen.behind ? &n->previous : &n->now;
}

static const struct ros_epoch *epoch_of(const struct ros_numbers *n, uint64_t event)
{
        return event < n->first_event ? &n->previous : &n->now;
}

/* Half of the window of each set stays below `number`, for late frames. */
static void remember_from(struct ros_numbers *n, uint64_t number)
{
        event_set_advance(&n->ended, number - MIN(number, BEHIND_MAX));
        event_set_advance(&n->used, number - MIN(number, BEHIND_MAX));
        event_set_advance(&n->discarded, number - MIN(number, BEHIND_MAX));
        event_set_advance(&n->rejected, number - MIN(number, BEHIND_MAX));
}

void ros_numbers_discard(struct ros_numbers *n, uint64_t number)
{
        if (!n->has_trigger) {
                event_set_advance(&n->discarded, number - MIN(number, BEHIND_MAX));
                n->pushed_out_end = MAX(n->pushed_out_end, number + 1);
        }
        event_set_add(&n->discarded, number);
}

void ros_numbers_forget_discarded(struct ros_numbers *n)
{
        event_set_clear(&n->discarded, 0);
        n->pushed_out_end = 0;
}

static uint64_t first_number(const struct ros_numbers *n, uint32_t l1_id, uint64_t near)
{
        return number_nearest(l1_id, n->period, near ? near : n->has_frame ? n->now.frame : n->start);
}

bool ros_numbers_are_narrow(const struct ros_numbers *n)
{
        return n->period < NUMBER_NARROW;
}

void ros_numbers_join(struct ros_numbers *n, uint64_t triggers)
{
        if (n->joined != UINT64_MAX)
                return;
        n->joined = triggers;
        n->may_be_off = n->period > 0 && ros_numbers_are_narrow(n) && triggers > n->period / 4;
}

static void begin(struct ros_numbers *n, uint64_t event, uint32_t l1_id, uint64_t near)
{
        uint64_t number = first_number(n, l1_id, near);

        n->now.event = event;
        n->now.number = number;
        n->now.l1_id = l1_id;
        if (!n->has_frame)
                n->now.frame = number - 1;
        n->mark_event = event;
        n->mark_number = number;
        n->has_trigger = true;
        n->top = number;
        remember_from(n, number);
}

static uint64_t number_in(const struct ros_epoch *e, uint32_t l1_id)
{
        return e->number + (uint64_t)(int64_t)(int32_t)(l1_id - e->l1_id);
}

uint64_t ros_numbers_find_trigger(const struct ros_numbers *n, uint64_t event, uint32_t l1_id, uint64_t near)
{
        return n->has_trigger ? number_in(epoch_of(n, event), l1_id) : first_number(n, l1_id, near);
}

uint64_t ros_numbers_of_trigger(struct ros_numbers *n, uint64_t event, uint32_t l1_id, uint64_t near)
{
        struct ros_epoch *e = event < n->first_event ? &n->previous : &n->now;
        uint64_t number;

        if (!n->has_trigger)
                begin(n, event, l1_id, near);
        number = number_in(e, l1_id);
        if (event > e->event || (e == &n->now && event == n->first_event)) {
                e->continues |= n->has_frame && e->first != UINT64_MAX;
                e->event = event;
                e->number = number;
                e->l1_id = l1_id;
        }
        if (e == &n->now)
                n->top = MAX(n->top, number + 1);
        if (event == n->first_event)
                n->first_trigger = number;
        n->bottom = MIN(n->bottom, number);
        return number;
}

int64_t ros_numbers_offset(const struct ros_numbers *n)
{
        int64_t offset = (int64_t)(n->now.first - n->first_trigger);

        if (!n->has_trigger || !n->has_frame || n->first_trigger == UINT64_MAX || n->now.first == UINT64_MAX)
                return 0;
        return offset >= -(int64_t)ROS_NUMBERS_GAP ? offset : 0;
}

bool ros_numbers_end_offset(const struct ros_numbers *n, int64_t offset, bool more)
{
        int64_t ahead = (int64_t)(n->now.frame - (n->top - 1));

        return more ? ahead > 0 && ahead <= offset : offset != 0 && ahead == offset;
}

void ros_numbers_record_order(struct ros_numbers *n, uint64_t number, uint64_t last, bool repeated)
{
        uint64_t skipped = number - last - 1;
        struct ros_gap *g = &n->gap;

        if (number <= last)
                n->again = (struct ros_again){number < last && number <= n->now.first ? last : 0, 0};
        n->again.frames += n->again.until > 0 && repeated;
        if (!n->has_trigger) {
                *g = (struct ros_gap){.lead = INT64_MAX};
                return;
        }
        if (skipped > 0)
                *g = (struct ros_gap){skipped <= ROS_NUMBERS_AGREE ? skipped : 0, number, INT64_MAX, g->lead};
        g->lead = MIN(g->lead, (int64_t)(number - n->top));
}

uint64_t ros_numbers_end_gap(const struct ros_numbers *n, bool more)
{
        const struct ros_gap *g = &n->gap;
        int64_t lead = g->lead - (int64_t)(g->size / 2);

        return g->number < n->top && (g->size >= SURE_GAP || lead > g->lead_before) &&
                               ros_numbers_end_offset(n, (int64_t)g->size, more)
                       ? g->size
                       : 0;
}

bool ros_numbers_are_a_count_behind(const struct ros_numbers *n, uint64_t last, uint64_t least)
{
        uint64_t end = MIN(n->again.until, last);

        return n->was_silent && last + 1 == n->top && n->again.frames >= least &&
               2 * n->again.frames > end - n->now.first;
}

bool ros_numbers_began_late(const struct ros_numbers *n)
{
        return n->top > n->first_number && n->now.first >= n->first_number + ROS_NUMBERS_GAP;
}

uint64_t ros_numbers_end_periods(const struct ros_numbers *n, bool more)
{
        uint64_t ahead = n->now.frame - (n->top - 1);
        bool follows = n->has_trigger && n->has_frame && n->now.frame >= n->top;

        return follows && ros_numbers_are_narrow(n) && (more || ahead % n->period == 0) ? ahead : 0;
}

uint32_t ros_numbers_l1_id(const struct ros_numbers *n, uint64_t event, uint64_t number)
{
        const struct ros_epoch *e = epoch_of(n, event);

        return e->l1_id + (uint32_t)(number - e->number);
}

uint32_t ros_numbers_announced(const struct ros_numbers *n, uint64_t number)
{
        return n->has_trigger ? n->now.l1_id + (uint32_t)(number - n->now.number)
                              : (uint32_t)(number % n->period);
}

uint32_t ros_numbers_next_l1_id(const struct ros_numbers *n)
{
        return n->has_trigger ? ros_numbers_announced(n, n->top) : 0;
}

static bool is_near(uint64_t a, uint64_t b, uint64_t max)
{
        return (a > b ? a - b : b - a) <= max;
}

static uint64_t previous_number(const struct ros_numbers *n, uint64_t c)
{
        return number_nearest(c, n->period, MAX(n->previous.number, n->seen.previous_frame));
}

/* Whether the frame belongs to the epoch before the reset. If it is far behind the newest trigger, either a
 * connection delayed it, or it was sent before the reset; in the second case, it follows the last frame of
 * that epoch. A board that begins a new count with a number far from its first one has lost many frames, so a
 * frame that is exactly the next one of the old count belongs to that, as does one whose trigger in that
 * count has no frame. A narrow counter may be the next one of both counts. */
static bool is_previous(struct ros_numbers *n, uint64_t c)
{
        const struct ros_epoch *e = &n->previous;
        uint64_t previous = previous_number(n, c);
        bool is_next = previous == n->seen.previous_frame + 1 && !e->is_broken;
        uint64_t number = number_nearest(c, n->period, is_next ? n->first_number : n->now.number);
        bool is_answer = is_next && previous <= e->number && number != n->first_number;

        if (!is_answer &&
            is_near(number, n->first_number, is_next && e->continues ? ROS_NUMBERS_GAP : ROS_NUMBERS_AGREE))
                return false;
        n->seen.is_mixed |= is_answer && !e->continues;
        if (previous > n->seen.previous_frame && previous - n->seen.previous_frame <= ROS_NUMBERS_GAP) {
                n->seen.previous_frame = previous;
                return true;
        }
        return number < n->first_number || number > n->now.number + ROS_NUMBERS_AGREE;
}

/* A counter is extended to the value nearest to this number. A narrow counter continues after the last frame,
 * because boards send frames in order. */
static uint64_t near_frame(const struct ros_numbers *n, const struct ros_epoch *e)
{
        if (ros_numbers_are_narrow(n) && n->has_frame)
                return e->frame + n->period / 4;
        if (ros_numbers_are_narrow(n) && n->bottom != UINT64_MAX && n->bottom + n->unit / 2 > n->start &&
            n->base == 0)
                return n->bottom + n->period / 4;
        return n->has_trigger ? MAX(e->number, e->frame) : e->frame;
}

uint64_t ros_numbers_of_frame(struct ros_numbers *n, uint64_t counter)
{
        uint64_t c = counter % n->period + n->period - n->from;
        const struct ros_epoch *e;

        n->seen = n->accepted;
        if (!n->has_trigger && !n->has_frame)
                return number_nearest(c, n->period, n->start);
        /* When the new epoch is announced, frames of the previous epoch may still be on their way. */
        n->seen.behind = n->seen.behind && is_previous(n, c);
        e = epoch_of_frames(n);
        return number_nearest(c, n->period, near_frame(n, e));
}

void ros_numbers_accept(struct ros_numbers *n)
{
        n->accepted = n->seen;
        n->may_be_off |= n->seen.is_mixed;
}

static uint64_t ahead_max(const struct ros_numbers *n)
{
        return MIN(MAX(n->period >> AHEAD_SHARE_BITS, MIN((uint64_t)ROS_NUMBERS_AGREE, n->period / 4)),
                   AHEAD_MAX);
}

enum number_place ros_numbers_place(const struct ros_numbers *n, uint64_t number)
{
        const struct ros_epoch *e = epoch_of_frames(n);
        uint64_t newest = n->has_trigger ? MAX(e->number, e->frame) : e->frame;

        if (!n->has_trigger && !n->has_frame)
                return NUMBER_OPEN;
        if (number > newest + ahead_max(n) || (number < newest && newest - number > BEHIND_MAX))
                return NUMBER_FAR;
        return number <= n->passed ? NUMBER_PASSED : NUMBER_OPEN;
}

/* After a break, only a small lag is allowed, however late frames usually are. If frames lag by many
 * triggers, the numbers of a new count may be within that lag. */
static bool is_behind(const struct ros_numbers *n, uint64_t number, bool broken)
{
        uint64_t newest = epoch_of_frames(n)->number, usual = n->lag / 4;

        return number < newest &&
               newest - number > (broken ? MIN(usual, ROS_NUMBERS_AGREE) : ROS_NUMBERS_AGREE + usual);
}

bool ros_numbers_agree(const struct ros_numbers *n, uint64_t number, bool broken)
{
        return n->has_trigger && !is_behind(n, number, broken) &&
               number <= epoch_of_frames(n)->number + ROS_NUMBERS_AGREE;
}

bool ros_numbers_lag(const struct ros_numbers *n, uint64_t number, bool broken)
{
        return n->has_trigger && n->has_frame && is_behind(n, number, broken) &&
               number > epoch_of_frames(n)->frame + (broken ? 0 : ROS_NUMBERS_GAP);
}

uint64_t ros_numbers_behind(const struct ros_numbers *n, uint64_t number)
{
        uint64_t newest = epoch_of_frames(n)->number;

        return newest - MIN(newest, number);
}

uint64_t ros_numbers_unanswered(const struct ros_numbers *n)
{
        const struct ros_epoch *e = epoch_of_frames(n);

        return n->has_trigger && e->number > e->frame ? e->number - e->frame : 0;
}

bool ros_numbers_advances(const struct ros_numbers *n, uint64_t number)
{
        return (!n->has_trigger && !n->has_frame) || number > epoch_of_frames(n)->frame;
}

/* Whether the difference is small, in the counter of the frames. */
static bool is_small(const struct ros_numbers *n, uint64_t difference)
{
        uint64_t gap = MIN(ROS_NUMBERS_GAP, n->period / 8);

        return (difference % n->period + gap) % n->period <= 2 * gap;
}

bool ros_numbers_is_beginning(const struct ros_numbers *n, uint64_t number)
{
        return is_small(n, number % n->period + n->period - epoch_of_frames(n)->first % n->period) ||
               is_small(n, number + n->from);
}

bool ros_numbers_is_first(const struct ros_numbers *n, uint64_t number)
{
        return n->has_frame && number == epoch_of_frames(n)->first;
}

bool ros_numbers_is_overtaken(const struct ros_numbers *n, uint64_t number)
{
        const struct ros_epoch *e = epoch_of_frames(n);

        return number + 1 == e->frame && number > e->first;
}

bool ros_numbers_have_joined(const struct ros_numbers *n, uint64_t oldest)
{
        return n->has_trigger && !n->has_frame && !n->seen.behind && oldest >= ENDED_MIN;
}

bool ros_numbers_may_begin(const struct ros_numbers *n, uint64_t number, uint64_t oldest)
{
        const struct ros_epoch *e = &n->now;

        if (!ros_numbers_have_joined(n, oldest) || number > e->number || e->event < oldest)
                return false;
        /* L1 IDs have gaps where triggers became no event, so at least these events are open. */
        return e->number - number <= e->event - oldest;
}

bool ros_numbers_precede(const struct ros_numbers *n, uint64_t number, uint64_t oldest)
{
        return ros_numbers_have_joined(n, oldest) && number <= n->now.number &&
               !ros_numbers_may_begin(n, number, oldest);
}

void ros_numbers_record_frame(struct ros_numbers *n, uint64_t number)
{
        struct ros_epoch *e = number < n->base ? &n->previous : &n->now;

        e->first = n->has_frame ? MIN(e->first, number) : number;
}

void ros_numbers_believe(struct ros_numbers *n, uint64_t number)
{
        uint64_t newest = epoch_of_frames(n)->number, lag = newest > number ? newest - number : 0;

        uint64_t *frame = n->seen.behind ? &n->previous.frame : &n->now.frame;

        n->before = !n->has_frame ? UINT64_MAX : number > *frame + ROS_NUMBERS_GAP ? *frame : 0;
        if (n->has_trigger)
                n->lag = n->has_frame ? n->lag + lag - n->lag / 16 : 16 * lag;
        ros_numbers_record_frame(n, number);
        n->has_frame = true;
        *frame = number;
}

uint64_t ros_numbers_newest(const struct ros_numbers *n)
{
        return epoch_of_frames(n)->frame;
}

bool ros_numbers_step_back(const struct ros_numbers *n, uint64_t number, bool broken)
{
        uint64_t newest = ros_numbers_newest(n);
        bool ahead = n->has_trigger && newest > epoch_of_frames(n)->number + ROS_NUMBERS_AGREE;

        if (n->before == 0 || number >= newest || (broken && !ahead))
                return false;
        if (n->before == UINT64_MAX)
                return ahead && ros_numbers_agree(n, number, true);
        return number > n->before && number <= n->before + ROS_NUMBERS_GAP;
}

uint64_t ros_numbers_counter(const struct ros_numbers *n, uint64_t number)
{
        return (number + n->from) % n->period;
}

bool ros_numbers_is_within(const struct ros_numbers *n, uint64_t number)
{
        return number >= n->bottom && number < n->top;
}

bool ros_numbers_is_below_run(const struct ros_numbers *n, uint64_t number)
{
        uint64_t lowest = n->seen.behind || n->base == 0 ? n->bottom : n->first_number;

        return n->has_trigger && n->has_frame && epoch_of_frames(n)->frame >= lowest && number < lowest;
}

bool ros_numbers_is_far_below_run(const struct ros_numbers *n, uint64_t number)
{
        return ros_numbers_is_below_run(n, number + ROS_NUMBERS_AGREE + n->lag / 4);
}

uint64_t ros_numbers_expected(const struct ros_numbers *n)
{
        return ros_numbers_counter(n, n->now.l1_id);
}

bool ros_numbers_record_oldest(struct ros_numbers *n, uint64_t oldest)
{
        if (n->period == 0) {
                event_set_advance(&n->ended, oldest);
                return false;
        }
        if (!n->has_trigger || oldest <= n->mark_event)
                return false;
        n->passed = n->mark_number;
        n->mark_event = n->now.event;
        n->mark_number = n->now.number;
        remember_from(n, n->passed);
        return true;
}

/* Returns a base that is far from all numbers so far. */
static uint64_t next_base(const struct ros_numbers *n)
{
        return (MAX(n->now.number, n->now.frame) / n->unit + 2) * n->unit;
}

void ros_numbers_restart(struct ros_numbers *n)
{
        n->start = next_base(n);
        n->has_trigger = n->has_frame = false;
        n->accepted = n->seen = (struct ros_progress){};
        n->now = n->previous = (struct ros_epoch){};
        n->before = 0;
        n->again = (struct ros_again){};
        n->first_event = n->base = n->top = 0;
        n->first_trigger = UINT64_MAX;
        remember_from(n, n->start);
}

void ros_numbers_reset(struct ros_numbers *n, uint64_t event, uint64_t number, bool broken)
{
        uint32_t l1_id = (uint32_t)number;

        if (!n->has_trigger || event < n->first_event)
                return;
        n->was_silent |= n->top > n->first_number && (!n->has_frame || n->now.first == UINT64_MAX);
        n->again = (struct ros_again){};
        n->base = next_base(n);
        number = n->base + l1_id;
        n->previous = n->now;
        n->previous.is_broken = broken;
        n->now = (struct ros_epoch){event, number, l1_id, number - 1, UINT64_MAX, false, false};
        n->before = 0;
        n->first_event = event;
        n->top = number;
        n->first_number = number;
        n->first_trigger = UINT64_MAX;
        n->accepted = n->seen = (struct ros_progress){.behind = true, .previous_frame = n->previous.frame};
        remember_from(n, number);
}
