/* Assigns frames to time slices, and decides when a slice closes. front_end.c reads the frames, and passes
 * closed slices to the ROS's core as its fragments. */
#include "data/slicer.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "data/frame_store.h"
#include "protocol/event.h"
#include "protocol/number.h"

/* Maximum number of open slices, unless configured. */
#define SLICES_MAX 65536u
/* This many consecutive frames whose slices are closed or too far ahead are needed as proof that the board's
 * time has restarted. */
#define STRAYS_MIN 64u
/* Late frames catch up with the clock at least at this speed. */
#define CATCH_UP 2u
/* If a board's time is further ahead of the clock than this, it is accepted only once another frame confirms
 * it. */
#define LEAP_NS NS_PER_S
/* Maximum number of slices that close in one turn. */
#define CLOSE_MAX 4096
/* Followed times run faster or slower than the board's clock by this fraction at most. */
#define SLEW_DIVISOR 1000
/* Maximum time of a board; later times and slices would overflow. */
#define TIME_MAX_NS (UINT64_C(1) << 63)

struct slicer {
        struct slicer_config config;
        struct frame_store store; /* the key of a frame is its time in ns */
        uint32_t arriving;        /* FRAME_NONE: none */
        bool discards;
        uint64_t arriving_ns; /* time of the frame that arrives, or waits for room; UINT64_MAX: there is none,
                                 or its slice is not open */
        struct frame_list *open; /* slice k is at index k % slices_max */
        /* At the same index, the newest time of the frames that the slice lacks. UINT64_MAX, or a time in
         * another slice: it lacks none. */
        uint64_t *lost_ns;
        struct frame_list kept; /* frames of the slice before the oldest one, for its overlap */
        bool kept_incomplete;   /* some of these frames were lost */
        bool started;
        uint64_t oldest; /* first slice that is not closed */
        /* Newest frame time, and the clock when that frame arrived; 0: no frame yet. */
        uint64_t newest_ns, now_ns;
        uint64_t leap_ns; /* time of the last frame, if that frame leapt ahead; 0: no leap */
        /* Consecutive frames whose slice is not open; the time of one, and the clock when it arrived. */
        uint32_t strays;
        uint64_t stray_ns, stray_now_ns;
        bool went_back; /* the time went back, and the core has accepted no slice since */
        /* The run drains; the first slice that was not due then. */
        bool stopping;
        uint64_t stop_end;
        bool collecting; /* see slicer_is_collecting() */
        struct board_clock clock;
        /* What is added to the times of the board to follow its drift, since the time `followed_ns` of its
         * clock; the sum of this and how far the clock is ahead, which shall stay. */
        int64_t shift_ns, base_ns;
        uint64_t followed_ns;
        bool has_base;
        struct slicer_counts counts;
};

static void forget_lost(struct slicer *s)
{
        memset(s->lost_ns, 0xff, s->config.slices_max * sizeof *s->lost_ns);
        s->kept_incomplete = false;
}

int slicer_new(struct slicer **ret, const struct slicer_config *config)
{
        struct slicer *s;
        int r;

        if (config->slice_ns == 0 || config->overlap_ns >= config->slice_ns || config->tick_ns == 0 ||
            config->bits == 0 || config->frames_max == 0 ||
            (config->slices_max & (config->slices_max - 1)) != 0 ||
            config->fragment_max_bytes > EVB_FRAGMENT_MAX_BYTES)
                return -EINVAL;
        s = calloc(1, sizeof *s);
        if (!s)
                return -ENOMEM;
        s->config = *config;
        s->config.slices_max = config->slices_max ?: SLICES_MAX;
        s->config.fragment_max_bytes = config->fragment_max_bytes ?: EVB_FRAGMENT_MAX_BYTES;
        s->arriving = FRAME_NONE;
        s->kept = FRAME_LIST_EMPTY;
        s->open = calloc(s->config.slices_max, sizeof *s->open);
        s->lost_ns = malloc(s->config.slices_max * sizeof *s->lost_ns);
        r = frame_store_init(&s->store, config->frames_max, config->buffer_bytes);
        if (r < 0 || !s->open || !s->lost_ns) {
                slicer_free(s);
                return r < 0 ? r : -ENOMEM;
        }
        forget_lost(s);
        *ret = s;
        return 0;
}

struct slicer *slicer_free(struct slicer *s)
{
        if (!s)
                return NULL;
        frame_store_fini(&s->store);
        free(s->open);
        free(s->lost_ns);
        free(s);
        return NULL;
}

static struct frame_list *open_slice(const struct slicer *s, uint64_t slice)
{
        struct frame_list *list = &s->open[slice & (s->config.slices_max - 1)];

        /* Memory from calloc() is no empty list yet. */
        if (list->n == 0)
                *list = FRAME_LIST_EMPTY;
        return list;
}

/* Empties the list; frames from `from_ns` on move to `kept`, if it is given. */
static void empty(struct slicer *s, struct frame_list *list, struct frame_list *kept, uint64_t from_ns)
{
        for (uint32_t i = list->first, next; i != FRAME_NONE; i = next) {
                const struct stored_frame *f = &s->store.frames[i];

                next = f->next;
                if (kept && f->key >= from_ns)
                        frame_store_append(&s->store, kept, i);
                else
                        frame_store_release(&s->store, i);
        }
        *list = FRAME_LIST_EMPTY;
}

/* The board's time begins, or was restarted, so slices that wait cannot be completed. */
static void restart(struct slicer *s, uint64_t slice)
{
        for (uint64_t k = s->oldest, left = s->counts.waiting; left > 0; k++) {
                left -= open_slice(s, k)->n;
                frame_store_empty(&s->store, open_slice(s, k));
        }
        frame_store_empty(&s->store, &s->kept);
        forget_lost(s);
        s->counts.dropped += s->counts.waiting;
        s->counts.waiting = 0;
        s->counts.restarts += s->started;
        if (s->started)
                log_limited(LOG_LEVEL_WARNING, NULL,
                            "front-end: the time of the board began again, at slice of time %" PRIu64
                            " instead of %" PRIu64,
                            slice, s->oldest);
        s->went_back = s->started && slice < s->oldest;
        s->started = true;
        s->oldest = slice;
        s->newest_ns = s->now_ns = s->leap_ns = 0;
        s->stop_end = 0;
        s->strays = 0;
        s->clock = (struct board_clock){};
        s->shift_ns = 0;
        s->followed_ns = 0;
        s->has_base = false;
}

static bool is_open(const struct slicer *s, uint64_t slice)
{
        return slice - s->oldest < s->config.slices_max;
}

static uint64_t *lost_of(const struct slicer *s, uint64_t slice)
{
        return &s->lost_ns[slice & (s->config.slices_max - 1)];
}

/* The slice of the frame that arrives, or waits for room, lacks it, unless the slice is not open any more. */
static void mark_incomplete(struct slicer *s)
{
        uint64_t slice = s->arriving_ns / s->config.slice_ns, *lost_ns = lost_of(s, slice);

        if (s->arriving_ns == UINT64_MAX || !is_open(s, slice))
                return;
        *lost_ns = *lost_ns / s->config.slice_ns == slice ? MAX(*lost_ns, s->arriving_ns) : s->arriving_ns;
}

static void record_lost(struct slicer *s)
{
        s->counts.dropped++;
        mark_incomplete(s);
}

static uint64_t shifted(uint64_t time_ns, int64_t by_ns)
{
        uint64_t back_ns = by_ns < 0 ? -(uint64_t)by_ns : 0;

        return by_ns < 0 ? time_ns - MIN(time_ns, back_ns) : time_ns + (uint64_t)by_ns;
}

/* False: the time is impossible. */
static bool time_of(const struct slicer *s, uint64_t counter, uint64_t *ret_ns)
{
        /* After a restart, there may be no stored frame with the new time yet. */
        uint64_t near_ns = shifted(MAX(s->newest_ns, s->oldest * s->config.slice_ns), -s->shift_ns);
        uint64_t count =
                s->started ? number_extend(counter, s->config.bits, near_ns / s->config.tick_ns) : counter;

        if (count > TIME_MAX_NS / s->config.tick_ns)
                return false;
        *ret_ns = shifted(count * s->config.tick_ns, s->shift_ns);
        return true;
}

/* The board was silent for longer than slices can be open: the slices in between are skipped. */
static bool was_silent(const struct slicer *s, uint64_t now_ns, uint64_t slice, uint64_t time_ns)
{
        return slice > s->oldest && s->counts.waiting == 0 &&
               time_ns <= s->newest_ns + LEAP_NS + (now_ns - s->now_ns);
}

/* Whether consecutive frames outside the open slices show that the board's time was restarted. If frames are
 * only late, they are few, or their times advance faster than the clock until they reach the present. */
static bool has_begun_again(struct slicer *s, uint64_t now_ns, uint64_t time_ns)
{
        bool first = s->strays == 0;
        uint64_t passed_ns = now_ns - s->stray_now_ns;

        s->strays += s->strays < STRAYS_MIN;
        if (!first && (s->strays < STRAYS_MIN || passed_ns < s->config.idle_max_ns))
                return false;
        if (!first && time_ns <= s->stray_ns + CATCH_UP * passed_ns)
                return true;
        s->stray_ns = time_ns;
        s->stray_now_ns = now_ns;
        return false;
}

/* Whether the frame's slice is open. Enough consecutive frames outside the open slices open their own
 * slices. */
static bool accept(struct slicer *s, uint64_t now_ns, uint64_t slice, uint64_t time_ns)
{
        if (s->started && !is_open(s, slice) && was_silent(s, now_ns, slice, time_ns)) {
                frame_store_empty(&s->store, &s->kept);
                s->kept_incomplete = false;
                s->oldest = slice;
        }
        if (s->started && is_open(s, slice)) {
                s->strays = 0;
                return true;
        }
        if (s->started && !has_begun_again(s, now_ns, time_ns))
                return false;
        restart(s, slice);
        return true;
}

/* Counts a frame whose slice is not open. */
static void refuse(struct slicer *s, uint64_t slice, uint64_t time_ns)
{
        if (slice >= s->oldest) {
                s->counts.dropped++;
                return;
        }
        s->counts.late++;
        log_limited(LOG_LEVEL_WARNING, NULL,
                    "front-end: a frame came after its slice of time %" PRIu64
                    " was closed, and is lost: its time is %.3f ms before the newest one; a longer time "
                    "after within in trigger.source, or ros.wait if the board paused, waits for such frames",
                    slice, (double)(s->newest_ns - MIN(time_ns, s->newest_ns)) / 1e6);
}

/* A frame came with the newest time of the board, which shows how much its clock has gained. Each second, the
 * shift changes by at most a second divided by SLEW_DIVISOR. */
static void follow_clock(struct slicer *s, uint64_t now_ns, uint64_t time_ns, uint64_t limit_ns)
{
        const struct board_clock *c = &s->clock;
        uint64_t passed_ns = time_ns - MIN(time_ns, s->followed_ns);
        int64_t most_ns = (int64_t)MIN(passed_ns / SLEW_DIVISOR, limit_ns), missing_ns;

        s->followed_ns = MAX(time_ns, s->followed_ns);
        if (c->known && !s->has_base)
                s->base_ns = s->shift_ns + board_clock_ahead_ns(c, c->points[c->first].now_ns);
        s->has_base = c->known;
        if (!c->known)
                return;
        missing_ns = s->base_ns - board_clock_ahead_ns(c, now_ns) - s->shift_ns;
        s->shift_ns += MAX(MIN(missing_ns, most_ns), -most_ns);
}

/* Before the first frame after a pause has a slice, follows what the clock gained in the pause. Returns the
 * time of the frame. */
static uint64_t follow_pause(struct slicer *s, uint64_t now_ns, uint64_t time_ns)
{
        uint64_t board_ns = shifted(time_ns, -s->shift_ns);

        if (!s->config.follows || !s->has_base || now_ns - s->now_ns < NS_PER_S ||
            time_ns < s->newest_ns + NS_PER_S || time_ns > s->newest_ns + LEAP_NS + (now_ns - s->now_ns))
                return time_ns;
        follow_clock(s, now_ns, board_ns, UINT64_MAX);
        return shifted(board_ns, s->shift_ns);
}

enum ros_verdict slicer_arrive(struct slicer *s, uint64_t now_ns, const uint64_t *counter, uint32_t bytes,
                               uint8_t **ret_to)
{
        struct frame_list *list;
        uint64_t time_ns, slice;
        int64_t shift_ns;

        assert(s->arriving == FRAME_NONE && !s->discards);
        s->discards = true;
        s->arriving_ns = UINT64_MAX;
        if (!counter || !time_of(s, *counter, &time_ns)) {
                s->counts.dropped++;
                return ROS_DISCARD;
        }
        time_ns = follow_pause(s, now_ns, time_ns);
        slice = time_ns / s->config.slice_ns;
        shift_ns = s->shift_ns;
        if (!accept(s, now_ns, slice, time_ns)) {
                refuse(s, slice, time_ns);
                return ROS_DISCARD;
        }
        /* The board's time began again, and its drift is not known any more. */
        if (s->shift_ns != shift_ns) {
                time_ns = shifted(time_ns, -shift_ns);
                s->oldest = slice = time_ns / s->config.slice_ns;
        }
        list = open_slice(s, slice);
        s->arriving_ns = time_ns;
        /* Leaves room for an overlap of the same size. */
        if (list->bytes + FRAME_LENGTH_BYTES + bytes > s->config.fragment_max_bytes / 2) {
                record_lost(s);
                return ROS_DISCARD;
        }
        s->discards = false;
        s->arriving = frame_store_add(&s->store, bytes, time_ns);
        if (s->arriving == FRAME_NONE)
                return ROS_FULL;
        *ret_to = frame_store_bytes(&s->store, s->arriving);
        return ROS_STORE;
}

/* Whether the time leaps. A single damaged time must not close the present slices. It is accepted if the next
 * frame continues from it, or if the clock has advanced as much. */
static bool is_leap(struct slicer *s, uint64_t time_ns, uint64_t now_ns)
{
        uint64_t previous_ns = s->leap_ns, allowed_ns = LEAP_NS + (now_ns - s->now_ns);

        s->leap_ns = 0;
        if (s->newest_ns == 0 || time_ns <= s->newest_ns + allowed_ns ||
            (previous_ns > 0 && time_ns + LEAP_NS >= previous_ns))
                return false;
        s->leap_ns = time_ns;
        log_limited(LOG_LEVEL_WARNING, NULL,
                    "front-end: the time of a frame is %.3f s ahead of the one before; its slice waits until "
                    "other frames come to it",
                    (double)(time_ns - s->newest_ns) / 1e9);
        return true;
}

void slicer_commit(struct slicer *s, uint64_t now_ns)
{
        uint32_t i = s->arriving;
        uint64_t time_ns;

        s->counts.frames++;
        s->arriving = FRAME_NONE;
        s->arriving_ns = UINT64_MAX;
        if (s->discards) {
                s->discards = false;
                return;
        }
        s->counts.waiting++;
        time_ns = s->store.frames[i].key;
        frame_store_append(&s->store, open_slice(s, time_ns / s->config.slice_ns), i);
        if (is_leap(s, time_ns, now_ns) || time_ns < s->newest_ns)
                return;
        s->newest_ns = time_ns;
        s->now_ns = now_ns;
        time_ns = shifted(time_ns, -s->shift_ns);
        board_clock_record(&s->clock, now_ns, time_ns);
        /* In steps so small that no later frame is in a closed slice. */
        if (s->config.follows)
                follow_clock(s, now_ns, time_ns, MIN(NS_PER_S / SLEW_DIVISOR, s->config.window_ns / 2));
}

void slicer_skip(struct slicer *s)
{
        s->counts.frames++;
        if (!s->discards)
                record_lost(s);
        if (s->arriving != FRAME_NONE)
                frame_store_release(&s->store, s->arriving);
        s->arriving = FRAME_NONE;
        s->arriving_ns = UINT64_MAX;
        s->discards = false;
}

/* Counts a frame whose slice is open at the end of the run. If the frame leapt ahead, nothing proves that the
 * board ever reached its time. */
static void end_frame(struct slicer *s, const struct stored_frame *f, bool in_run)
{
        struct slicer_counts *c = &s->counts;

        if (f->key > s->newest_ns) {
                c->dropped++;
                c->ahead++;
                c->ahead_ns = f->key - s->newest_ns;
        } else
                ++*(in_run ? &c->late : &c->left_over);
}

/* The run has ended, so no slice after its last event becomes an event. */
static void end_open(struct slicer *s, const struct ros *core)
{
        for (uint64_t k = s->oldest; s->counts.waiting > 0; k++) {
                struct frame_list *list = open_slice(s, k);
                bool in_run = list->n > 0 && ros_is_within_run(core, k);

                for (uint32_t i = list->first; i != FRAME_NONE; i = s->store.frames[i].next)
                        end_frame(s, &s->store.frames[i], in_run);
                s->counts.waiting -= list->n;
                frame_store_empty(&s->store, list);
        }
}

/* Returns the board's time at which the oldest slice closes. */
static uint64_t closes_ns(const struct slicer *s)
{
        return (s->oldest + 1) * s->config.slice_ns + s->config.window_ns;
}

uint64_t slicer_deadline_ns(const struct slicer *s)
{
        uint64_t closes = closes_ns(s), left_ns = closes - MIN(closes, s->newest_ns);

        /* The board itself has not reached that slice. */
        if (s->now_ns == 0 || s->newest_ns / s->config.slice_ns < s->oldest)
                return UINT64_MAX;
        return s->now_ns + MAX(left_ns, s->config.idle_max_ns);
}

static bool may_close(const struct slicer *s, uint64_t now_ns, bool idle, bool full)
{
        /* A frame of that slice is still arriving. */
        if (!s->started ||
            (s->arriving != FRAME_NONE && s->store.frames[s->arriving].key / s->config.slice_ns == s->oldest))
                return false;
        return (full && s->counts.waiting > 0) || s->newest_ns >= closes_ns(s) ||
               (idle && now_ns >= slicer_deadline_ns(s));
}

/* The first slice that does not close, although the core may have room for it. */
static uint64_t due_end(const struct slicer *s, uint64_t now_ns, bool idle)
{
        uint64_t silent_ns = now_ns - s->now_ns,
                 ns = s->newest_ns + (idle && silent_ns >= s->config.idle_max_ns ? silent_ns : 0);

        return MIN((ns - MIN(ns, s->config.window_ns)) / s->config.slice_ns,
                   s->newest_ns / s->config.slice_ns + 1);
}

/* Whether the oldest slice lacks a frame of this time or a later one. */
static bool is_missing_from(const struct slicer *s, uint64_t time_ns)
{
        uint64_t lost_ns = *lost_of(s, s->oldest);

        return lost_ns / s->config.slice_ns == s->oldest && lost_ns >= time_ns;
}

/* Closes the oldest slice, and counts its frames in this class. */
static void close_oldest(struct slicer *s, uint64_t *class)
{
        struct frame_list *list = open_slice(s, s->oldest);
        uint64_t end_ns = (s->oldest + 1) * s->config.slice_ns;

        s->kept_incomplete = is_missing_from(s, end_ns - s->config.overlap_ns);
        *class += list->n;
        s->counts.waiting -= list->n;
        frame_store_empty(&s->store, &s->kept);
        empty(s, list, s->config.overlap_ns > 0 ? &s->kept : NULL, end_ns - s->config.overlap_ns);
        s->oldest++;
}

/* Whether the event of the oldest slice no longer waits for the slice. If the board's time went back, the
 * core classifies its slices. */
static bool leave_out_late(struct slicer *s, struct ros *core)
{
        uint32_t n = open_slice(s, s->oldest)->n;

        if (s->went_back || !ros_pass_late(core, s->oldest))
                return false;
        if (n > 0)
                log_limited(LOG_LEVEL_WARNING, NULL,
                            "front-end: %u frames are lost: the event of their slice of time %" PRIu64
                            " ended, or did not wait for them for longer than ros.wait",
                            n, s->oldest);
        close_oldest(s, &s->counts.late);
        return true;
}

/* False: the core has no room for the slice. `full`: the arriving frame waits for room, so it will be late if
 * it belongs to this slice. */
static bool deliver_oldest(struct slicer *s, bool full, struct ros *core, uint8_t *buffer)
{
        const struct frame_list *list = open_slice(s, s->oldest);
        bool arriving_is_late = full && s->arriving_ns / s->config.slice_ns == s->oldest;
        struct ros_fragment fragment = {
                .bytes = (uint32_t)(s->kept.bytes + list->bytes),
                .form = FORM_RAW,
                .status = s->kept_incomplete || arriving_is_late || is_missing_from(s, 0) ? FRAGMENT_TRUNCATED
                                                                                          : FRAGMENT_OK,
                .frames = list->n,
                .copies = s->kept.n,
                .after_stop = s->stopping && s->oldest >= s->stop_end,
        };
        uint64_t at;

        switch (ros_arrive(core, &s->oldest, &fragment, &at)) {
        case ROS_FULL:
                return false;
        case ROS_STORE:
                if (fragment.bytes > 0)
                        frame_store_copy(&s->store, list, frame_store_copy(&s->store, &s->kept, buffer + at));
                s->went_back = false;
                break;
        case ROS_DISCARD:
                break;
        }
        ros_commit(core);
        if (arriving_is_late)
                mark_incomplete(s);
        close_oldest(s, &s->counts.passed);
        return true;
}

uint64_t slicer_deliver(struct slicer *s, uint64_t now_ns, bool idle, bool full, struct ros *core,
                        uint8_t *buffer)
{
        uint64_t n = 0, end = due_end(s, now_ns, idle);

        if (ros_run_state(core) == RUN_ENDED) {
                end_open(s, core);
                s->collecting = false;
                return 0;
        }
        if (!s->stopping)
                s->stop_end = end;
        s->stopping = ros_is_stopping(core);
        for (int k = 0; k < CLOSE_MAX && may_close(s, now_ns, idle, full && k == 0); k++) {
                if (leave_out_late(s, core))
                        continue;
                if (!deliver_oldest(s, full, core, buffer))
                        break;
                n++;
        }
        s->collecting = s->started && s->oldest < (s->stopping ? s->stop_end : end);
        return n;
}

bool slicer_is_collecting(const struct slicer *s)
{
        return s->collecting;
}

void slicer_account(const struct slicer *s, const struct ros *core, struct node_stats *stats)
{
        const struct slicer_counts *c = &s->counts;
        const struct ros_slice_counts *passed = &ros_counts(core)->slices;

        stats_set(&stats->slice_frames, c->frames);
        stats_set(&stats->slice_frames_used, passed->used);
        stats_set(&stats->slice_frames_copied, passed->copied);
        stats_set(&stats->slice_frames_late, c->late + passed->late);
        stats_set(&stats->slice_frames_dropped, c->dropped + passed->dropped);
        stats_set(&stats->slice_frames_left_over, c->waiting + c->left_over + passed->left_over);
        stats_set(&stats->slice_restarts, c->restarts);
}

const struct slicer_counts *slicer_counts(const struct slicer *s)
{
        return &s->counts;
}

const struct board_clock *slicer_clock(const struct slicer *s)
{
        return &s->clock;
}
