/* Joins the frames of a front-end that have the number of the same trigger into one fragment: each frame is
 * preceded by its length, in the order of arrival or of their index, and of their boards if a stream contains
 * the frames of several (struct join_rule). A fragment ends with
 * its last frame, as far as a count or flag shows it, otherwise with a frame of a newer number; and in any
 * case after a time without a frame of it. A later frame with its number begins another fragment, which the
 * core counts as duplicate or late. One thread; joiner_new() makes all allocations. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/ros.h"
#include "data/reasons.h"
#include "data/stats.h"
#include "protocol/frame.h"

struct joiner_config {
        struct join_rule rule;       /* within_ns is not 0 */
        struct number_field number;  /* of the trigger */
        uint32_t frames_max;         /* of fragments that wait for frames, or for room in the core */
        uint32_t fragment_max_bytes; /* with the lengths; 0: EVB_FRAGMENT_MAX_BYTES, the maximum */
        /* How long a fragment that has ended waits for those that began before it; 0: not at all. If
         * fragments make the triggers, one that the core announces after newer ones may be in no event. */
        uint64_t order_ns;
        uint64_t buffer_bytes; /* for these frames; at least 2 * EVB_FRAGMENT_MAX_BYTES */
        uint64_t stop_ns; /* how long a fragment that began before the run drained may go on; 0: no limit */
        /* The board may have sent frames of the first trigger before: its fragment is discarded, unless the
         * frames show that it is whole. */
        bool begins_within;
        bool leads;            /* the fragments make the triggers */
        bool datagrams;        /* a frame that finds no room is lost; otherwise the board waits */
        uint64_t first_number; /* the counter of the board's first trigger */
};

struct joiner_counts {
        /* Each frame is passed or dropped, or waits in its fragment. */
        uint64_t frames;
        uint64_t passed;   /* to the core in a fragment, and included in ros_counts() */
        uint64_t repeated; /* dropped: their fragment has a frame with this index */
        uint64_t beyond;   /* dropped: their index is not below the count of their fragment */
        uint64_t large;    /* dropped: their fragment would become too large */
        uint64_t no_room;  /* dropped: broken off, or the buffer was full */
        /* No room for them after the triggers of the run, not passed before a reset, or in the first fragment
         * (`begins_within`). */
        uint64_t left_over;
        uint64_t waiting;
        /* Comparisons that find the places of frames that are not in order: at most four for each frame and
         * bit of the board and the index, and four more. */
        uint64_t compared;
};

struct joiner;

int joiner_new(struct joiner **ret, const struct joiner_config *config); /* -EINVAL, -ENOMEM */
struct joiner *joiner_free(struct joiner *j);

/* Follows resets of the counters: no trigger comes for the frames that arrived before. Call this before
 * frames are read. */
void joiner_follow(struct joiner *j, const struct ros *core);
/* A frame of `bytes` begins, the first `n` of which are at `payload`, with its number (NULL: none). The
 * results are those of slicer_arrive(); call joiner_commit() or joiner_skip() likewise. */
enum ros_verdict joiner_arrive(struct joiner *j, const uint64_t *counter, const uint8_t *payload, size_t n,
                               uint32_t bytes, uint8_t **ret_to);
void joiner_commit(struct joiner *j, uint64_t now_ns);
/* The frame that arrives next comes soon after the connection with the board began. If it is the first one,
 * its trigger may have had frames before, as with `begins_within`, unless it is the board's first trigger. If
 * the fragments do not make the triggers, this does not apply once the core has seen the run begin, because a
 * trigger box waits for that. */
void joiner_begin_early(struct joiner *j, const struct ros *core);
/* The frame broke off, or found no room in the joiner or the core. */
void joiner_skip(struct joiner *j, const struct ros *core);

/* Ends fragments, and passes them to the core as far as it has room. `idle`: all frames that the board has
 * sent were read. `full`: the oldest fragment ends although further frames of it may arrive; those of
 * datagrams with a narrow counter are dropped if the core has no room, until there is some for the frame that
 * was refused. Returns the number of fragments passed or dropped. */
uint64_t joiner_deliver(struct joiner *j, uint64_t now_ns, bool idle, bool full, struct ros *core,
                        uint8_t *buffer);
/* Whether frames wait in fragments; once the core's run drains, in those that had begun before. */
bool joiner_is_collecting(const struct joiner *j);
/* Returns when the next fragment ends if no frame arrives; UINT64_MAX: never. */
uint64_t joiner_deadline_ns(const struct joiner *j);

/* Publishes the classes of all frames, including those in fragments that were passed to the core. */
void joiner_account(const struct joiner *j, const struct ros *core, struct node_stats *stats);
/* At the end: adds incomplete fragments, and frames that are in no event. */
void joiner_reasons(const struct joiner *j, const struct ros *core, struct reasons *to);
const struct joiner_counts *joiner_counts(const struct joiner *j);
