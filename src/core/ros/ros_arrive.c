/* Frames that arrive without a request: finds the trigger of each frame, by count or by number, and the class
 * in which the frame ends. ros_step.c decides whether a number is accepted. */
#include <assert.h>

#include "ros_internal.h"

/* Decides whether a frame with this number may be stored, and finds the entry that expects the frame
 * (UINT32_MAX: none). */
static enum ros_frame judge_number(const struct ros *r, uint64_t number, uint32_t *ret_entry)
{
        const struct ros_numbers *n = &r->numbers;
        enum number_place place = ros_numbers_place(n, number);
        uint32_t i = idmap_get(&r->by_number, number);

        *ret_entry = i == IDMAP_NONE ? UINT32_MAX : i;
        if (place == NUMBER_FAR)
                return FRAME_IMPOSSIBLE;
        if (i != IDMAP_NONE) {
                const struct ros_entry *e = &r->entries[i];

                if (e->arrived || e->suspect)
                        return FRAME_DUPLICATE;
                if (e->given_up)
                        return FRAME_LATE;
        } else if (event_set_has(&n->used, number))
                return FRAME_DUPLICATE;
        else if (place == NUMBER_PASSED || event_set_has(&n->ended, number))
                return FRAME_LATE;
        if (r->out_of_step ? !ros_numbers_agree(n, number, ros_is_broken(r))
                           : ros_numbers_lag(n, number, false))
                return FRAME_IMPOSSIBLE;
        return FRAME_GOOD;
}

/* Frame k belongs to event k. */
static enum ros_frame judge_counted(const struct ros *r, uint32_t *ret_entry)
{
        uint32_t i = idmap_get(&r->by_event, r->arrived);

        *ret_entry = i == IDMAP_NONE ? UINT32_MAX : i;
        if (i != IDMAP_NONE)
                return r->entries[i].given_up ? FRAME_LATE : FRAME_GOOD;
        return r->arrived < r->oldest || event_set_has(&r->numbers.ended, r->arrived) ? FRAME_LATE
                                                                                      : FRAME_GOOD;
}

/* A frame whose trigger never came, if the new frame is of a later trigger, or newer events have ended.
 * Before the first trigger, only the newest frames of a front-end that cannot wait are kept. But a narrow
 * counter cannot tell how many frames of the run are missing before the oldest one. */
static bool is_dispensable(const struct ros *r, const struct ros_entry *e, uint64_t number)
{
        const struct ros_numbers *n = &r->numbers;

        if (n->has_trigger)
                return (number <= n->now.number && e->number < number) || e->number <= n->passed;
        return r->config.datagrams && (r->config.announces || !e->in_run || !ros_numbers_are_narrow(n));
}

/* Discards an early frame to make room. */
static bool make_way(struct ros *r, uint64_t number)
{
        uint32_t i = r->early.first;

        if (!ros_is_numbered(r) || i == NO_ITEM)
                return false;
        /* No trigger comes for frames from before a reset. */
        if (r->reset.resets > 0) {
                ros_drop(r, i);
                return true;
        }
        if (!is_dispensable(r, &r->entries[i], number))
                return false;
        if (!r->numbers.has_trigger)
                ros_push_out(r, i);
        else
                ros_drop(r, i);
        return true;
}

uint32_t ros_room(const struct ros *r)
{
        uint64_t events;

        if (!r->config.level2 || r->frame_bytes == 0)
                return 0;
        events = MIN(arena_size_bytes(r->arena) / 2 / r->frame_bytes, (uint64_t)r->config.entries / 2);
        return (uint32_t)MAX(events, UINT64_C(1));
}

/* Adapts quickly to large frames, and slowly to small ones. If the room became much smaller, reports it to
 * the DFM at once. */
static void follow_size(struct ros *r, uint32_t bytes)
{
        uint64_t room = arena_block_bytes(r->arena, bytes);

        if (r->frame_bytes == 0)
                r->frame_bytes = room;
        else if (room > r->frame_bytes)
                r->frame_bytes += (room - r->frame_bytes) / 8;
        else
                r->frame_bytes -= (r->frame_bytes - room) / 64;
        if (r->config.level2 && (r->room_sent == 0 || ros_room(r) < r->room_sent - r->room_sent / 8))
                r->keep_alive_due_ns = 0;
}

enum ros_verdict ros_arrive(struct ros *r, const uint64_t *counter, const struct ros_fragment *f,
                            uint64_t *ret_at)
{
        uint64_t number = r->arrived;
        uint32_t expected = UINT32_MAX, i;

        assert(r->arriving == UINT32_MAX);
        r->arriving_sample = (struct ros_sample){counter, counter ? *counter : 0, f->bytes};
        if (!r->refused)
                follow_size(r, f->bytes);
        if (!ros_is_numbered(r))
                r->arriving_as = judge_counted(r, &expected);
        else if (!counter) {
                number = UINT64_MAX;
                r->arriving_as = FRAME_IMPOSSIBLE;
        } else {
                number = ros_numbers_of_frame(&r->numbers, *counter);
                r->arriving_as = judge_number(r, number, &expected);
                /* The frames of a late slice are late too, and are always reported. */
                if ((f->frames == 0 || f->joined) && r->arriving_as != FRAME_DUPLICATE &&
                    ros_numbers_is_far_below_run(&r->numbers, number))
                        r->arriving_as = FRAME_IMPOSSIBLE;
        }
        r->arriving_number = number;
        r->arriving_frames = f->frames;
        if (r->arriving_as != FRAME_GOOD) {
                r->refused = false;
                return ROS_DISCARD;
        }
        do
                i = ros_hold_frame(r, expected, number, f);
        while (i == UINT32_MAX && make_way(r, number));
        if (i == UINT32_MAX) {
                /* On a byte stream, the same frame is tried again, but counts once. */
                r->counts.full += !r->refused;
                r->refused = true;
                r->refused_expected = expected != UINT32_MAX;
                r->refused_held = r->n_held;
                return ROS_FULL;
        }
        r->refused = false;
        r->arriving = i;
        *ret_at = r->entries[i].at;
        return ROS_STORE;
}

/* Level 2 rejected the event before its frame came, so nothing waited for the frame. */
static bool is_rejected(const struct ros *r, uint64_t number)
{
        return event_set_has(&r->numbers.rejected, number);
}

bool ros_pass_late(struct ros *r, uint64_t counter)
{
        uint32_t expected;
        uint64_t number;

        /* Until frames have reached the present epoch, the number depends on the previous frame. */
        if (r->numbers.accepted.behind)
                return false;
        number = ros_numbers_of_frame(&r->numbers, counter);
        if (judge_number(r, number, &expected) != FRAME_LATE || is_rejected(r, number))
                return false;
        /* The frames after this one leave no gap. */
        if (!ros_step_back(r, number) && !r->out_of_step && ros_numbers_advances(&r->numbers, number))
                ros_numbers_believe(&r->numbers, number);
        return true;
}

bool ros_is_within_run(const struct ros *r, uint64_t counter)
{
        /* Works on a copy, because the number is only examined and not recorded. */
        struct ros_numbers n = r->numbers;

        return n.has_trigger && ros_numbers_is_within(&n, ros_numbers_of_frame(&n, counter));
}

bool ros_has_frame(const struct ros *r, uint64_t counter)
{
        struct ros_numbers n = r->numbers;
        uint32_t entry;

        return judge_number(r, ros_numbers_of_frame(&n, counter), &entry) == FRAME_DUPLICATE;
}

/* Whether events of newer numbers have ended, and no event with this number is known. */
static bool has_no_event(const struct ros *r, uint64_t number)
{
        return ros_comes_too_late(r, number) && idmap_get(&r->by_number, number) == IDMAP_NONE &&
               !event_set_has(&r->numbers.ended, number);
}

/* The frame is not part of an event, but shows that the board follows the triggers. */
static void use_rejected(struct ros *r, uint64_t number)
{
        event_set_remove(&r->numbers.rejected, number);
        event_set_add(&r->numbers.used, number);
        ros_count_frame(r, FRAME_GOOD, r->arriving_frames);
        if (!ros_follow(r, number) && !r->out_of_step)
                ros_record_stray(r, number, FRAME_LATE);
}

static void refuse(struct ros *r, uint64_t number, enum ros_frame as)
{
        if (as == FRAME_LATE && is_rejected(r, number)) {
                use_rejected(r, number);
                return;
        }
        if (as == FRAME_LATE && has_no_event(r, number))
                ros_count_no_event(r, r->arriving_frames);
        else
                ros_count_frame(r, as, r->arriving_frames);
        if (as == FRAME_DUPLICATE)
                r->samples.duplicate = r->arriving_sample;
        else if (as == FRAME_IMPOSSIBLE)
                r->samples.impossible = r->arriving_sample;
        /* An empty frame is no evidence of the board's count. */
        if (ros_is_numbered(r) && r->arriving_sample.bytes > 0)
                ros_record_stray(r, number, as);
}

void ros_commit(struct ros *r)
{
        uint32_t i = r->arriving;

        r->arriving = UINT32_MAX;
        r->arrived++;
        r->counts.slices.left_over += r->arriving_frames;
        ros_numbers_accept(&r->numbers);
        if (r->arriving_as != FRAME_GOOD)
                refuse(r, r->arriving_number, r->arriving_as);
        else if (r->entries[i].cleared) {
                if (r->entries[i].pins == 0)
                        ros_release(r, i);
                refuse(r, r->arriving_number, FRAME_LATE);
        } else if (r->entries[i].given_up) {
                ros_unhold_frame(r, i);
                refuse(r, r->arriving_number, FRAME_LATE);
        } else if (ros_is_numbered(r))
                ros_accept_numbered(r, i);
        else
                ros_finish(r, i);
        if (r->run_state == RUN_ENDED)
                ros_end_suspects(r);
        ros_numbers_record_order(&r->numbers, r->arriving_number, r->last_number,
                                 r->arriving_as == FRAME_DUPLICATE);
        r->last_number = r->arriving_number;
        ros_check_room(r);
}

/* Counts a frame without room as lost data, unless no trigger can come for it. */
static void count_dropped(struct ros *r)
{
        bool over = r->run_state >= RUN_DRAINING;
        bool early = ros_is_numbered(r) && !r->numbers.has_trigger && !r->announced.active;

        ros_numbers_accept(&r->numbers);
        /* Record the number of a dropped frame, too: otherwise, later frames would seem too far ahead. */
        if (ros_is_numbered(r) && !r->out_of_step && ros_numbers_advances(&r->numbers, r->arriving_number) &&
            !ros_is_doubtful(r, r->arriving_number))
                ros_numbers_believe(&r->numbers, r->arriving_number);
        if (r->refused_expected || (!over && !early))
                r->counts.dropped++;
        else
                r->left_behind++;
        r->refused = false;
}

/* Answers the SFIs that wait for a frame that will never arrive. */
static void skip_counted(struct ros *r)
{
        uint32_t i = idmap_get(&r->by_event, r->arrived);

        r->arrived++;
        ros_regions_wake(r, r->arrived - 1);
        if (i == IDMAP_NONE)
                return;
        struct ros_entry *e = &r->entries[i];
        uint16_t sfi = e->wanted_by;
        struct request_entry all = {.event = e->event, .l1_id = e->l1_id, .to_bytes = UINT32_MAX};

        ros_drop(r, i);
        if (sfi != UINT16_MAX)
                ros_enqueue(r, sfi, IDMAP_NONE, &all, FRAGMENT_LOST);
}

void ros_skip(struct ros *r, uint64_t n)
{
        uint32_t arriving = r->arriving;

        /* The frame that was arriving broke off. */
        r->arriving = UINT32_MAX;
        if (arriving != UINT32_MAX && r->entries[arriving].cleared)
                ros_release(r, arriving);
        else if (arriving != UINT32_MAX && ros_is_numbered(r))
                ros_unhold_frame(r, arriving);
        if (r->refused && n > 0)
                count_dropped(r);
        r->counts.source_lost += n;
        if (ros_is_numbered(r))
                r->arrived += n;
        else
                for (; n > 0; n--)
                        skip_counted(r);
}
