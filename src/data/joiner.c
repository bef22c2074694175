/* Collects the frames of each trigger, and decides when its fragment ends. front_end.c reads the frames, and
 * the ROS's core assigns the fragments to events. */
#include "data/joiner.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "data/frame_store.h"
#include "protocol/event.h"

/* Maximum number of fragments that wait for frames, or for room in the core. */
#define GROUPS_MAX 64u
/* A time between two frames counts as this fraction of `within` at most while the board's data never ends. */
#define STEPS 8u

/* The frames of a trigger. */
struct group {
        uint64_t counter;
        struct frame_list frames;
        uint32_t root;      /* of the tree of its frames; FRAME_NONE: all came in order */
        uint64_t newest_ns; /* when its newest frame arrived */
        uint64_t read_ns;   /* read_ns of the joiner then */
        uint64_t expected;  /* number of frames; 0: unknown */
        uint32_t dropped;   /* frames that it lost */
        bool numbered;      /* its frames have a number */
        bool before_stop;   /* it began before the run drained */
        bool contradicts;   /* its frames differ in their number */
        bool is_before_reset;
        bool is_first; /* its first frames may have come before the run */
        bool ended;
};

/* A frame in the tree of its group. Each level is for a bit of the key, the root for the highest one, and the
 * frames below are those with this bit clear and set. So a tree has no more levels than the key has bits, and
 * one for the lowest frames, in whatever order the frames arrive. */
struct branch {
        uint32_t below[2]; /* FRAME_NONE: none */
};

struct joiner {
        struct joiner_config config;
        uint64_t span;            /* number of values of the counter; 0: 2^64 */
        bool stopping;            /* the core's run drains */
        uint64_t stopped_ns;      /* when it began to */
        uint64_t stopped_read_ns; /* read_ns then */
        uint32_t breaks;          /* ros_breaks() when the newest group began */
        bool ordered;             /* the core matches fragments by their order (NUMBER_NARROW) */
        struct frame_store store; /* frames have keys as below */
        struct branch *branches;  /* of the frame at the same index in the store */
        unsigned index_bits;      /* of a key; the ID of the board is above the index */
        uint64_t highest_bit;     /* of a key */
        struct group groups[GROUPS_MAX];
        uint32_t order[GROUPS_MAX]; /* the used groups, the oldest first, then the free ones */
        uint32_t n_used;
        struct group *arriving; /* of the frame that arrives; NULL: none */
        uint32_t frame;         /* its place; FRAME_NONE: it is discarded */
        uint32_t after;         /* the frame before it in the group */
        uint64_t count, index;  /* its fields; 0: it has none */
        uint64_t key;           /* of the board and the index; orders the frames of a group */
        bool has_refused;       /* the last frame found no room, and had a number */
        uint64_t refused;       /* its number */
        uint32_t refused_bytes; /* its size */
        /* Numbers of frames that were lost for lack of room before their groups began, the newest last. */
        uint64_t lost[GROUPS_MAX];
        uint32_t n_lost;
        bool is_last, is_repeated;
        bool is_beyond;       /* its index is damaged, or is not where the rule says */
        uint64_t last_beyond; /* the last such index */
        bool has_begun;       /* a frame with a number was read */
        bool is_early;        /* see joiner_begin_early() */
        bool reads;           /* a frame was read, and none has found no room since */
        uint64_t arrived_ns;  /* when the newest frame arrived */
        uint64_t read_ns;     /* time in which frames were read one after the other */
        struct joiner_counts counts;
};

int joiner_new(struct joiner **ret, const struct joiner_config *config)
{
        const struct number_field *number = &config->number;
        struct joiner *j;
        int r;

        if (!config->rule.joins || config->rule.within_ns == 0 || number->bits == 0 ||
            config->frames_max == 0 || config->buffer_bytes < 2 * (uint64_t)EVB_FRAGMENT_MAX_BYTES ||
            config->fragment_max_bytes > EVB_FRAGMENT_MAX_BYTES)
                return -EINVAL;
        j = calloc(1, sizeof *j);
        if (!j)
                return -ENOMEM;
        j->config = *config;
        j->config.fragment_max_bytes = config->fragment_max_bytes ?: EVB_FRAGMENT_MAX_BYTES;
        j->config.stop_ns = config->stop_ns ?: UINT64_MAX / 2;
        j->span = number->modulus > 0  ? number->modulus
                  : number->bits >= 64 ? 0
                                       : UINT64_C(1) << number->bits;
        j->index_bits = MIN(config->rule.index.bits, 64u - config->rule.board.bits);
        j->highest_bit = UINT64_C(1) << (MAX(j->index_bits + config->rule.board.bits, 1u) - 1);
        j->ordered = j->span > 0 && j->span < NUMBER_NARROW;
        for (uint32_t i = 0; i < GROUPS_MAX; i++)
                j->order[i] = i;
        r = frame_store_init(&j->store, config->frames_max, config->buffer_bytes);
        j->branches = malloc(config->frames_max * sizeof *j->branches);
        if (r >= 0 && !j->branches)
                r = -ENOMEM;
        if (r < 0) {
                joiner_free(j);
                return r;
        }
        *ret = j;
        return 0;
}

struct joiner *joiner_free(struct joiner *j)
{
        if (!j)
                return NULL;
        frame_store_fini(&j->store);
        free(j->branches);
        free(j);
        return NULL;
}

static struct group *used_group(struct joiner *j, uint32_t k)
{
        return &j->groups[j->order[k]];
}

/* The newest group of this number that has not ended; NULL: none. */
static struct group *find_group(struct joiner *j, uint64_t counter)
{
        for (uint32_t k = j->n_used; k > 0; k--) {
                struct group *g = used_group(j, k - 1);

                if (g->numbered && g->counter == counter && !g->ended)
                        return g;
        }
        return NULL;
}

/* Whether a counter is newer than another one by at least `least`. A number that is less than a quarter of
 * the counter's span before the other one is older. */
static bool is_newer(const struct joiner *j, uint64_t counter, uint64_t than, uint64_t least)
{
        uint64_t ahead = counter - than;

        if (j->span > 0)
                ahead = (counter % j->span + j->span - than % j->span) % j->span;
        return ahead >= least && ahead < (j->span > 0 ? j->span - j->span / 4 : UINT64_MAX / 2);
}

/* If a count or a flag shows the end of a fragment, it may wait for its frames while those of later triggers
 * arrive, but not until its number comes again. */
static void end_older(struct joiner *j, uint64_t counter)
{
        uint64_t least = join_rule_has_end(&j->config.rule) ? MAX(j->span / 4, 1u) : 1;

        if (join_rule_has_end(&j->config.rule) && j->span == 0)
                return;
        for (uint32_t k = 0; k < j->n_used; k++) {
                struct group *g = used_group(j, k);

                g->ended |= g->numbered && is_newer(j, counter, g->counter, least);
        }
}

static bool has_lost(const struct joiner *j, uint64_t counter)
{
        for (uint32_t k = 0; k < j->n_lost; k++) {
                if (j->lost[k] == counter)
                        return true;
        }
        return false;
}

/* Forgets this number, and those of earlier periods of the counter. */
static void forget_lost(struct joiner *j, uint64_t counter)
{
        uint32_t n = 0;

        for (uint32_t k = 0; k < j->n_lost; k++) {
                bool is_old = j->span > 0 && is_newer(j, counter, j->lost[k], MAX(j->span / 4, 1u));

                if (j->lost[k] != counter && !is_old)
                        j->lost[n++] = j->lost[k];
        }
        j->n_lost = n;
}

/* The group of this number lacks the frame if it begins later. */
static void record_lost(struct joiner *j, uint64_t counter)
{
        forget_lost(j, counter);
        if (j->n_lost == GROUPS_MAX)
                memmove(j->lost, j->lost + 1, --j->n_lost * sizeof *j->lost);
        j->lost[j->n_lost++] = counter;
}

static struct group *open_group(struct joiner *j, const uint64_t *counter)
{
        struct group *g;

        if (counter)
                end_older(j, *counter);
        if (j->n_used == GROUPS_MAX)
                return NULL;
        g = used_group(j, j->n_used++);
        *g = (struct group){
                .counter = counter ? *counter : 0,
                .frames = FRAME_LIST_EMPTY,
                .root = FRAME_NONE,
                .dropped = counter && has_lost(j, *counter),
                .numbered = counter,
                .ended = !counter,
        };
        return g;
}

static uint64_t read_field(const struct number_field *f, const uint8_t *payload, size_t n)
{
        uint64_t value = 0;

        if (f->bits > 0)
                (void)number_read(f, payload, n, &value);
        return value;
}

static void read_fields(struct joiner *j, const uint8_t *payload, size_t n)
{
        const struct join_rule *rule = &j->config.rule;

        j->count = rule->count > 0 ? rule->count : read_field(&rule->count_at, payload, n);
        j->index = read_field(&rule->index, payload, n);
        j->key = j->index;
        if (rule->board.bits > 0)
                j->key = read_field(&rule->board, payload, n) << j->index_bits |
                         (j->index & ((UINT64_C(1) << j->index_bits) - 1));
        j->is_beyond = rule->index.bits > 0 && j->count > 0 && j->index >= j->count;
        j->is_last = read_field(&rule->last, payload, n) > 0;
        j->is_repeated = false;
}

/* Adds a frame of the list to the tree, in place of an earlier one with its key. */
static void add_to_tree(struct joiner *j, struct group *g, uint32_t frame)
{
        const struct stored_frame *frames = j->store.frames;
        uint64_t key = frames[frame].key;
        uint32_t *link = &g->root;

        j->branches[frame] = (struct branch){{FRAME_NONE, FRAME_NONE}};
        for (uint64_t bit = j->highest_bit; *link != FRAME_NONE; bit >>= 1) {
                j->counts.compared++;
                if (frames[*link].key == key) {
                        j->branches[frame] = j->branches[*link];
                        break;
                }
                link = &j->branches[*link].below[(key & bit) > 0];
        }
        *link = frame;
}

/* Returns the frame of the tree with the highest key up to this one; FRAME_NONE: none. */
static uint32_t find_up_to(struct joiner *j, uint32_t root, uint64_t key)
{
        const struct stored_frame *frames = j->store.frames;
        uint32_t found = FRAME_NONE, lower = FRAME_NONE, i = root;

        for (uint64_t bit = j->highest_bit; i != FRAME_NONE; bit >>= 1) {
                const uint32_t *below = j->branches[i].below;

                j->counts.compared++;
                if (frames[i].key <= key && (found == FRAME_NONE || frames[i].key > frames[found].key))
                        found = i;
                /* All keys on this side are lower, and higher than those of such a side above. */
                if ((key & bit) > 0 && below[0] != FRAME_NONE)
                        lower = below[0];
                i = below[(key & bit) > 0];
        }
        for (i = lower; i != FRAME_NONE;) {
                const uint32_t *below = j->branches[i].below;

                j->counts.compared++;
                if (found == FRAME_NONE || frames[i].key > frames[found].key)
                        found = i;
                i = below[below[1] != FRAME_NONE];
        }
        return found;
}

/* Finds the place of the frame in its group. False: the group has a frame with its index. Most boards send
 * frames in order, so a tree is made only for the first frame that is not. */
static bool find_place(struct joiner *j, struct group *g)
{
        const struct stored_frame *frames = j->store.frames;

        j->after = g->frames.last;
        if (g->frames.n > 0 && frames[j->after].key > j->key) {
                if (g->root == FRAME_NONE) {
                        for (uint32_t i = g->frames.first; i != FRAME_NONE; i = frames[i].next)
                                add_to_tree(j, g, i);
                }
                j->after = find_up_to(j, g->root, j->key);
        }
        return j->config.rule.index.bits == 0 || j->after == FRAME_NONE || frames[j->after].key != j->key;
}

/* Keeps the number of a frame without room, in case it is lost. */
static enum ros_verdict refuse(struct joiner *j, const uint64_t *counter, uint32_t bytes)
{
        j->reads = false;
        j->has_refused = counter;
        j->refused = counter ? *counter : 0;
        j->refused_bytes = bytes;
        return ROS_FULL;
}

enum ros_verdict joiner_arrive(struct joiner *j, const uint64_t *counter, const uint8_t *payload, size_t n,
                               uint32_t bytes, uint8_t **ret_to)
{
        struct group *g;
        bool is_new;

        assert(!j->arriving);
        /* A frame that is too short for the ID of its board belongs to no trigger. */
        if (MIN(n, (size_t)bytes) < number_field_end(&j->config.rule.board))
                counter = NULL;
        g = counter ? find_group(j, *counter) : NULL;
        is_new = !g;
        read_fields(j, payload, MIN(n, (size_t)bytes));
        if (is_new && !(g = open_group(j, counter)))
                return refuse(j, counter, bytes);
        j->frame = FRAME_NONE;
        j->is_repeated = !j->is_beyond && !find_place(j, g);
        if (!j->is_repeated && !j->is_beyond &&
            g->frames.bytes + FRAME_LENGTH_BYTES + bytes <= j->config.fragment_max_bytes) {
                j->frame = frame_store_add(&j->store, bytes, j->key);
                if (j->frame == FRAME_NONE) {
                        j->n_used -= is_new;
                        return refuse(j, counter, bytes);
                }
                *ret_to = frame_store_bytes(&j->store, j->frame);
        }
        j->arriving = g;
        if (is_new && counter)
                forget_lost(j, *counter);
        return j->frame == FRAME_NONE ? ROS_DISCARD : ROS_STORE;
}

/* The number of frames of the group becomes known with the last one, or with any that contains the count. */
static void record_end(struct joiner *j, struct group *g)
{
        uint64_t n = g->frames.n + g->dropped, expected = j->count;

        if (expected == 0 && j->is_last)
                expected = j->config.rule.index.bits > 0 ? j->index + 1 : n;
        g->contradicts |= g->expected > 0 && expected > 0 && expected != g->expected;
        g->expected = MAX(g->expected, expected);
        g->ended |= g->expected > 0 && n >= g->expected;
}

/* While the board's data never ends, frames that have come may be read late, because evb was held up or had
 * no room. Such times are not for lack of frames. */
static void record_time(struct joiner *j, uint64_t now_ns)
{
        if (j->reads)
                j->read_ns += MIN(now_ns - j->arrived_ns, j->config.rule.within_ns / STEPS);
        j->reads = true;
        j->arrived_ns = now_ns;
}

static void record_beyond(struct joiner *j)
{
        j->counts.beyond++;
        j->last_beyond = j->index;
        log_limited(LOG_LEVEL_WARNING, NULL,
                    "front-end: a frame has the index %" PRIu64 ", but its fragment has %" PRIu64
                    " frames, counted from 0; it is discarded",
                    j->index, j->count);
}

void joiner_begin_early(struct joiner *j, const struct ros *core)
{
        j->is_early = j->config.leads || !ros_saw_begin(core);
}

/* Whether frames of this number, the first one, may have come before. */
static bool begins_within(const struct joiner *j, uint64_t counter)
{
        uint64_t first = j->config.first_number;
        bool is_board_first = j->span > 0 ? counter % j->span == first % j->span : counter == first;

        return j->config.begins_within || (j->is_early && !is_board_first);
}

void joiner_commit(struct joiner *j, uint64_t now_ns)
{
        struct group *g = j->arriving;

        assert(g);
        j->arriving = NULL;
        j->counts.frames++;
        record_time(j, now_ns);
        if (j->is_repeated) {
                j->counts.repeated++;
                return;
        }
        g->is_first |= g->numbered && !j->has_begun && begins_within(j, g->counter);
        j->is_early = false;
        j->has_begun |= g->numbered;
        g->newest_ns = now_ns;
        g->read_ns = j->read_ns;
        if (j->frame != FRAME_NONE) {
                frame_store_insert(&j->store, &g->frames, j->after, j->frame);
                if (g->root != FRAME_NONE)
                        add_to_tree(j, g, j->frame);
                j->counts.waiting++;
        } else if (j->is_beyond)
                record_beyond(j);
        else {
                j->counts.large++;
                g->dropped++;
        }
        record_end(j, g);
}

/* Once the run drains, a board may send on for triggers that are in no event. */
static bool is_after_run(const struct joiner *j, const struct ros *core)
{
        return ros_run_state(core) >= RUN_DRAINING && j->has_refused && !ros_is_within_run(core, j->refused);
}

void joiner_skip(struct joiner *j, const struct ros *core)
{
        struct group *g = j->arriving;

        j->arriving = NULL;
        j->counts.frames++;
        ++*(!g && is_after_run(j, core) ? &j->counts.left_over : &j->counts.no_room);
        if (g && j->frame != FRAME_NONE)
                frame_store_release(&j->store, j->frame);
        else if (!g && j->has_refused && !(g = find_group(j, j->refused)))
                record_lost(j, j->refused);
        if (g && !j->is_repeated)
                g->dropped++;
}

bool joiner_is_collecting(const struct joiner *j)
{
        for (uint32_t k = 0; k < j->n_used; k++) {
                const struct group *g = &j->groups[j->order[k]];

                if (g->frames.n > 0 && (g->before_stop || !j->stopping))
                        return true;
        }
        return false;
}

/* Records which fragments began before the run drains. */
static void follow_stop(struct joiner *j, uint64_t now_ns, const struct ros *core)
{
        bool stopping = ros_is_stopping(core);

        if (stopping && !j->stopping) {
                for (uint32_t k = 0; k < j->n_used; k++)
                        used_group(j, k)->before_stop = true;
                j->stopped_ns = now_ns;
                j->stopped_read_ns = j->read_ns;
        }
        j->stopping = stopping;
}

void joiner_follow(struct joiner *j, const struct ros *core)
{
        bool is_reset = ros_breaks(core) != j->breaks;

        j->breaks = ros_breaks(core);
        for (uint32_t k = 0; is_reset && k < j->n_used; k++) {
                struct group *g = used_group(j, k);

                g->ended = g->is_before_reset = true;
        }
        j->n_lost = is_reset ? 0 : j->n_lost;
}

/* Number of groups that may be passed next, the oldest ones. */
static uint32_t passable(const struct joiner *j)
{
        return j->ordered ? MIN(j->n_used, 1u) : j->n_used;
}

/* Whether a stop waits for the fragment, even if frames of it arrive without end. */
static bool delays_stop(const struct joiner *j, const struct group *g)
{
        return j->stopping && g->before_stop;
}

static uint64_t ends_ns(const struct joiner *j, const struct group *g)
{
        uint64_t end_ns = g->ended ? 0 : g->newest_ns + j->config.rule.within_ns;

        return delays_stop(j, g) ? MIN(end_ns, j->stopped_ns + j->config.stop_ns) : end_ns;
}

/* Until when the group at this place waits for older ones. */
static uint64_t waits_until_ns(const struct joiner *j, uint32_t k)
{
        const struct group *g = &j->groups[j->order[k]];

        return k > 0 && g->numbered && !g->is_before_reset ? g->newest_ns + j->config.order_ns : 0;
}

/* Whether a stop has waited long enough for the fragment. */
static bool delayed_stop(const struct joiner *j, const struct group *g, uint64_t now_ns, bool idle)
{
        uint64_t waited_ns = idle ? now_ns - j->stopped_ns : j->read_ns - j->stopped_read_ns;

        return delays_stop(j, g) && waited_ns >= j->config.stop_ns;
}

static bool is_over(const struct joiner *j, const struct group *g, uint64_t now_ns, bool idle)
{
        if (idle)
                return now_ns >= ends_ns(j, g);
        return j->read_ns - g->read_ns >= j->config.rule.within_ns || delayed_stop(j, g, now_ns, idle);
}

uint64_t joiner_deadline_ns(const struct joiner *j)
{
        uint64_t next_ns = UINT64_MAX;

        for (uint32_t k = 0; k < passable(j); k++) {
                const struct group *g = &j->groups[j->order[k]];

                if (g != j->arriving)
                        next_ns = MIN(next_ns, MAX(ends_ns(j, g), waits_until_ns(j, k)));
        }
        return next_ns;
}

/* Whether the indices of each board are not all values from 0 to the highest one. */
static bool has_gaps(const struct joiner *j, const struct group *g)
{
        const struct stored_frame *frames = j->store.frames;
        uint64_t next = 0;

        for (uint32_t i = g->frames.first; i != FRAME_NONE; i = frames[i].next) {
                bool begins = (frames[i].key & (UINT64_MAX >> (64 - j->index_bits))) == 0;

                if (!begins && (i == g->frames.first || frames[i].key != next))
                        return true;
                next = frames[i].key + 1;
        }
        return false;
}

static bool is_complete(const struct joiner *j, const struct group *g)
{
        const struct join_rule *rule = &j->config.rule;
        bool is_counted = rule->count > 0 || rule->count_at.bits > 0;

        if (g->dropped > 0 || g->contradicts ||
            (join_rule_has_end(rule) && (g->expected == 0 || g->frames.n != g->expected)))
                return false;
        return is_counted || rule->index.bits == 0 || !has_gaps(j, g);
}

/* Whether its frames show that none of them is missing before the first one. */
static bool is_certain(const struct joiner *j, const struct group *g)
{
        const struct join_rule *rule = &j->config.rule;

        return (rule->count > 0 || rule->count_at.bits > 0 || rule->index.bits > 0) && is_complete(j, g);
}

/* False: the core has no room. */
static bool pass(struct joiner *j, struct group *g, struct ros *core, uint8_t *buffer)
{
        struct ros_fragment fragment = {
                .bytes = (uint32_t)g->frames.bytes,
                .form = FORM_RAW,
                .status = is_complete(j, g) ? FRAGMENT_OK : FRAGMENT_TRUNCATED,
                .frames = g->frames.n,
                .joined = true,
                .after_stop = j->stopping && !g->before_stop,
        };
        uint64_t at;

        switch (ros_arrive(core, g->numbered ? &g->counter : NULL, &fragment, &at)) {
        case ROS_FULL:
                return false;
        case ROS_STORE:
                if (fragment.bytes > 0)
                        frame_store_copy(&j->store, &g->frames, buffer + at);
                break;
        case ROS_DISCARD:
                break;
        }
        ros_commit(core);
        j->counts.passed += g->frames.n;
        j->counts.waiting -= g->frames.n;
        frame_store_empty(&j->store, &g->frames);
        return true;
}

/* Its frames are in no event, and are added to this count. */
static void discard(struct joiner *j, struct group *g, uint64_t *count)
{
        *count += g->frames.n;
        j->counts.waiting -= g->frames.n;
        frame_store_empty(&j->store, &g->frames);
}

/* Whether the last frame without room would find some now. */
static bool has_room(struct joiner *j)
{
        uint32_t i;

        if (j->n_used == GROUPS_MAX && !(j->has_refused && find_group(j, j->refused)))
                return false;
        i = frame_store_add(&j->store, j->refused_bytes, 0);
        if (i != FRAME_NONE)
                frame_store_release(&j->store, i);
        return i != FRAME_NONE;
}

/* A datagram cannot wait until the core has room. The core extends a narrow counter from the number before,
 * so it must see each one: the oldest fragment, which the core has just refused, is dropped there. */
static void drop_refused(struct joiner *j, struct group *g, struct ros *core)
{
        uint64_t dropped = ros_counts(core)->dropped;

        ros_skip(core, 1);
        log_limited(LOG_LEVEL_WARNING, NULL,
                    "front-end: a fragment finds no room in ros.buffer-size or test.buffer-events, and is "
                    "lost");
        discard(j, g, ros_counts(core)->dropped > dropped ? &j->counts.no_room : &j->counts.left_over);
}

static void free_group(struct joiner *j, uint32_t k)
{
        uint32_t i = j->order[k];

        memmove(j->order + k, j->order + k + 1, (j->n_used - k - 1) * sizeof *j->order);
        j->order[--j->n_used] = i;
}

/* Without an ended group that could be passed, there is room only if the oldest one ends. */
static void make_room(struct joiner *j)
{
        struct group *oldest = NULL;

        for (uint32_t k = passable(j); k > 0; k--) {
                struct group *g = used_group(j, k - 1);

                if (g->ended)
                        return;
                if (g != j->arriving)
                        oldest = g;
        }
        if (oldest)
                oldest->ended = true;
}

/* Whether its event has a fragment without these frames. The process may end before their fragment does, so
 * after the run they count at once. Other fragments end as before: a board may send on, and its next frame
 * must begin no second fragment. */
static bool is_duplicate(const struct group *g, const struct ros *core)
{
        return g->numbered && ros_has_frame(core, g->counter);
}

uint64_t joiner_deliver(struct joiner *j, uint64_t now_ns, bool idle, bool full, struct ros *core,
                        uint8_t *buffer)
{
        bool over = ros_run_state(core) == RUN_ENDED;
        uint64_t n = 0;

        follow_stop(j, now_ns, core);
        joiner_follow(j, core);
        if (full)
                make_room(j);
        for (uint32_t k = 0; k < j->n_used;) {
                struct group *g = used_group(j, k);

                /* At each call, a frame of it may be half read. */
                if (g == j->arriving && delayed_stop(j, g, now_ns, idle))
                        g->ended = true;
                g->ended |= over && g != j->arriving && is_duplicate(g, core);
                if (g == j->arriving || !(g->ended || is_over(j, g, now_ns, idle)) ||
                    (!full && !over && now_ns < waits_until_ns(j, k))) {
                        if (j->ordered && !over)
                                break;
                        k++;
                        continue;
                }
                g->ended = true;
                if (g->is_before_reset || (g->is_first && !is_certain(j, g)))
                        discard(j, g, &j->counts.left_over);
                else {
                        if (!pass(j, g, core, buffer)) {
                                if (!full || !j->config.datagrams || !j->ordered || has_room(j))
                                        break;
                                drop_refused(j, g, core);
                        }
                        n++;
                }
                free_group(j, k);
        }
        return n;
}

void joiner_account(const struct joiner *j, const struct ros *core, struct node_stats *stats)
{
        const struct joiner_counts *c = &j->counts;
        const struct ros_slice_counts *passed = &ros_counts(core)->slices;

        stats_set(&stats->slice_frames, c->frames);
        stats_set(&stats->slice_frames_used, passed->used);
        stats_set(&stats->slice_frames_late, passed->late);
        stats_set(&stats->slice_frames_dropped,
                  c->repeated + c->beyond + c->large + c->no_room + passed->dropped);
        stats_set(&stats->slice_frames_left_over, c->waiting + c->left_over + passed->left_over);
}

void joiner_reasons(const struct joiner *j, const struct ros *core, struct reasons *to)
{
        const struct joiner_counts *c = &j->counts;
        uint64_t incomplete = ros_counts(core)->incomplete;

        if (incomplete > 0)
                reasons_add(to,
                            "fragments in events lack some of their frames: %" PRIu64
                            ", the last one with number %" PRIu64,
                            incomplete, ros_samples(core)->incomplete.counter);
        if (c->repeated > 0)
                reasons_add(to,
                            "frames of its front-end that have the number and the index of an earlier one, "
                            "and are in no event: %" PRIu64,
                            c->repeated);
        if (c->beyond > 0)
                reasons_add(to,
                            "frames of its front-end whose index is not below the count of frames, and are "
                            "in no event: %" PRIu64 ", the last one with index %" PRIu64,
                            c->beyond, j->last_beyond);
        if (c->large > 0)
                reasons_add(to,
                            "frames of its front-end that would make their fragment larger than %u bytes, "
                            "and are in no event: %" PRIu64,
                            j->config.fragment_max_bytes, c->large);
        if (c->no_room > 0)
                reasons_add(to,
                            "frames of its front-end that broke off, or did not fit into ros.buffer-size, "
                            "and are in no event: %" PRIu64,
                            c->no_room);
}

const struct joiner_counts *joiner_counts(const struct joiner *j)
{
        return &j->counts;
}
