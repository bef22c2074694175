/* Frames that arrive by themselves: finds the trigger of each, by count or by number, and the class in which
 * it ends. A frame that is not newer than all before waits for a newer one before it is believed: a board
 * that restarted sends only such frames. */
#include <assert.h>

#include "ros_regions.h"

/* The last frames before a pause may be late ones only, but some numbers apart; those of a board that
 * restarted follow each other. */
#define STRAYS_APART (4 * ROS_STRAYS_MAX)
/* KeepAlives that may have been on their way when the ROS reported that it is in step again. */
#define DOUBTS 3u

/* Repeated or impossible numbers came since the last frame that was believed at once: perhaps the board
 * counts from the beginning again. */
static bool is_broken(const struct ros *r)
{
        return (r->out_of_step || r->strays > 0) && !r->strays_are_late;
}

/* Whether a frame with this number may be stored, and the entry that expects it (UINT32_MAX: none). */
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
        if (r->out_of_step ? !ros_numbers_agree(n, number, is_broken(r))
                           : ros_numbers_lag(n, number, is_broken(r)))
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

/* An early frame gives way to one of a later trigger: its own never came. Before the first trigger, only the
 * newest frames of a front-end that cannot wait may have one. */
static bool make_way(struct ros *r, uint64_t number)
{
        uint32_t i = r->early.first;

        if (!ros_is_numbered(r) || i == NO_ITEM)
                return false;
        if (r->numbers.has_trigger ? number > r->numbers.now.number || r->entries[i].number >= number
                                   : !r->config.datagrams)
                return false;
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

/* Follows large frames fast, and small ones slowly. The DFM learns at once if there is much less room. */
static void note_size(struct ros *r, uint32_t bytes)
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
        if (!r->refused)
                note_size(r, f->bytes);
        if (!ros_is_numbered(r))
                r->arriving_as = judge_counted(r, &expected);
        else if (!counter)
                r->arriving_as = FRAME_IMPOSSIBLE;
        else {
                number = ros_numbers_of_frame(&r->numbers, *counter);
                r->arriving_as = judge_number(r, number, &expected);
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
                /* A byte stream retries the same frame, so it counts once. */
                r->counts.full += !r->refused;
                r->refused = true;
                r->refused_expected = expected != UINT32_MAX;
                return ROS_FULL;
        }
        r->refused = false;
        r->arriving = i;
        *ret_at = r->entries[i].at;
        return ROS_STORE;
}

bool ros_pass_late(struct ros *r, uint64_t counter)
{
        uint32_t expected;
        uint64_t number;

        /* Until frames have reached the present epoch, the number depends on the frame before. */
        if (r->numbers.accepted.behind)
                return false;
        number = ros_numbers_of_frame(&r->numbers, counter);
        if (judge_number(r, number, &expected) != FRAME_LATE)
                return false;
        /* The frames after it leave no gap. */
        if (!r->out_of_step && ros_numbers_advances(&r->numbers, number))
                ros_numbers_believe(&r->numbers, number);
        return true;
}

/* The entry's frame is complete and believed. */
static void finish(struct ros *r, uint32_t i)
{
        struct ros_entry *e = &r->entries[i];
        uint16_t sfi = e->wanted_by;

        ros_stop_waiting(r, i);
        e->arrived = e->filled = true;
        r->n_frames++;
        if (e->event == ROS_NO_EVENT) {
                ros_list_append(r, &r->early, i);
                ros_have_note(r, i);
        }
        if (sfi != UINT16_MAX)
                ros_enqueue(r, sfi, e->event, e->l1_id, 0, e->wanted_to, FRAGMENT_OK);
        ros_regions_wake(r, e->number);
}

static void suspect(struct ros *r, uint32_t i)
{
        assert(r->n_suspects < ROS_STRAYS_MAX);
        r->entries[i].suspect = true;
        r->suspects[r->n_suspects++] = i;
}

static void believe_suspects(struct ros *r)
{
        while (r->n_suspects > 0) {
                uint32_t i = r->suspects[0];

                ros_forget_suspect(r, i);
                finish(r, i);
        }
}

static void reject_suspects(struct ros *r)
{
        while (r->n_suspects > 0) {
                uint32_t i = r->suspects[0];

                ros_forget_suspect(r, i);
                ros_count_frame(r, FRAME_IMPOSSIBLE, r->entries[i].fragment.frames);
                ros_unhold_frame(r, i);
        }
}

/* A board that restarted repeats numbers, and sends at most one frame for each trigger since then. So if
 * there are more frames in the row than such triggers, and no repeated one, they are only late. */
static bool is_only_late(const struct ros *r)
{
        return !r->out_of_step && r->strays_are_late && r->strays > ros_numbers_unanswered(&r->numbers);
}

bool ros_trust_suspect(struct ros *r, uint32_t i)
{
        ros_forget_suspect(r, i);
        if (is_only_late(r)) {
                finish(r, i);
                return true;
        }
        ros_count_frame(r, is_broken(r) ? FRAME_IMPOSSIBLE : FRAME_LATE, r->entries[i].fragment.frames);
        ros_unhold_frame(r, i);
        return false;
}

static void drop_early(struct ros *r)
{
        while (r->early.first != NO_ITEM)
                ros_drop(r, r->early.first);
}

/* Before the first trigger there is nothing to be out of step with: the board begins again. */
static void begin_again(struct ros *r)
{
        drop_early(r);
        r->numbers.has_frame = false;
}

/* If frames make the triggers, the DFM decides whether all boards began again. */
static void set_out_of_step(struct ros *r, bool out)
{
        if (r->config.announces && r->out_of_step != out)
                r->keep_alive_due_ns = 0;
        if (r->out_of_step && !out)
                r->doubts = DOUBTS;
        r->out_of_step = out;
}

static void note_stray(struct ros *r, uint64_t number, enum ros_frame as)
{
        r->agreeing = 0;
        if (r->out_of_step) {
                r->strays_are_late &= as != FRAME_DUPLICATE;
                reject_suspects(r);
                return;
        }
        if (r->strays == 0)
                r->strays_are_late = true;
        if (r->strays++ % ROS_STRAYS_MAX == 0)
                r->first_stray = number;
        r->strays_are_late &= as == FRAME_GOOD || as == FRAME_LATE;
        if (r->strays % ROS_STRAYS_MAX != 0)
                return;
        if (r->strays_are_late && MAX(number, r->first_stray) - MIN(number, r->first_stray) >= STRAYS_APART) {
                believe_suspects(r);
                return;
        }
        r->strays = 0;
        reject_suspects(r);
        if (!r->numbers.has_trigger) {
                begin_again(r);
                return;
        }
        set_out_of_step(r, true);
        r->out_of_step_ns = 0;
        r->counts.restarts++;
}

static void back_in_step(struct ros *r)
{
        set_out_of_step(r, false);
        r->strays = r->agreeing = 0;
        believe_suspects(r);
}

/* A complete frame that may be stored. */
static void take_numbered(struct ros *r, uint32_t i)
{
        uint64_t number = r->entries[i].number;

        if (r->out_of_step) {
                suspect(r, i);
                if (++r->agreeing < ROS_AGREEING_MIN)
                        return;
                ros_numbers_believe(&r->numbers, number);
                back_in_step(r);
        } else if (ros_numbers_advances(&r->numbers, number) ||
                   (r->strays == 0 && ros_numbers_may_begin(&r->numbers, number, r->oldest))) {
                ros_numbers_believe(&r->numbers, number);
                finish(r, i);
                back_in_step(r);
        } else {
                suspect(r, i);
                note_stray(r, number, FRAME_GOOD);
        }
}

static void refuse(struct ros *r, uint64_t number, enum ros_frame as)
{
        ros_count_frame(r, as, r->arriving_frames);
        if (ros_is_numbered(r))
                note_stray(r, number, as);
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
                take_numbered(r, i);
        else
                finish(r, i);
        ros_check_room(r);
}

/* A frame without room is lost data, unless no trigger can come for it. */
static void count_dropped(struct ros *r)
{
        bool over = r->run_state >= RUN_DRAINING;
        bool early = ros_is_numbered(r) && !r->numbers.has_trigger;

        ros_numbers_accept(&r->numbers);
        /* The frames after it are no further ahead than before. */
        if (ros_is_numbered(r) && !r->out_of_step && ros_numbers_advances(&r->numbers, r->arriving_number))
                ros_numbers_believe(&r->numbers, r->arriving_number);
        if (r->refused_expected || (!over && !early))
                r->counts.dropped++;
        else
                r->left_behind++;
        r->refused = false;
}

/* Answers the SFIs that wait for a frame that never comes. */
static void skip_counted(struct ros *r)
{
        uint32_t i = idmap_get(&r->by_event, r->arrived);

        r->arrived++;
        ros_regions_wake(r, r->arrived - 1);
        if (i == IDMAP_NONE)
                return;
        struct ros_entry *e = &r->entries[i];
        uint16_t sfi = e->wanted_by;
        uint64_t event = e->event;
        uint32_t l1_id = e->l1_id;

        ros_drop(r, i);
        if (sfi != UINT16_MAX)
                ros_enqueue(r, sfi, event, l1_id, 0, UINT32_MAX, FRAGMENT_LOST);
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

void ros_resynchronise(struct ros *r, uint64_t event, uint64_t number)
{
        if (!ros_is_numbered(r))
                return;
        if (r->out_of_step || !r->numbers.has_trigger)
                reject_suspects(r);
        if (!r->numbers.has_trigger)
                begin_again(r);
        back_in_step(r);
        ros_numbers_reset(&r->numbers, event, number);
}

bool ros_is_out_of_step(const struct ros *r)
{
        return r->out_of_step;
}

uint64_t ros_expected_counter(const struct ros *r)
{
        return ros_numbers_expected(&r->numbers);
}

/* What was announced before has become an event, or never will. A board that began again may count on from
 * anywhere, as its frames were refused for a while, even if they agreed with the triggers just before the
 * reset. */
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
        ros_have_restart(r);
}

/* All events of before the reset have ended. The DFM waits for the answer before it takes a trigger of after
 * it. */
void ros_note_reset(struct ros *r, uint64_t now_ns, const struct message *keep_alive)
{
        if (keep_alive->keep_alive.state < RUN_RUNNING)
                return;
        if (keep_alive->keep_alive.resets == r->resets) {
                r->doubts -= r->doubts > 0;
                return;
        }
        /* The beginning of a run counts as a reset: the boards' counters go on. Who missed it hears first of
         * a later one; but a ROS that joins a run in progress finds its counters well past the reset. */
        if (r->config.announces && r->resets > 0)
                begin_epoch(r, keep_alive);
        else if (r->resets > 0 || (!r->config.announces && keep_alive->keep_alive.resets > 1 &&
                                   (!r->numbers.has_trigger ||
                                    keep_alive->keep_alive.triggers == keep_alive->keep_alive.oldest)))
                ros_resynchronise(r, keep_alive->keep_alive.oldest, keep_alive->keep_alive.reset_number);
        r->resets = keep_alive->keep_alive.resets;
        r->keep_alive_due_ns = now_ns;
}
