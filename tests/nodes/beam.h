/* Three ROSs with the boards, and perhaps the trigger box, of `evb frontend`: starts them, and checks each
 * frame in each event. */
#pragma once

#include <signal.h>

#include "bed.h"
#include "base/arena.h"
#include "base/pattern.h"

#define BEAM "trigger.rate=max", "ros.count=3", "sfi.count=1", "sfi.timeout=30s", "dfm.node-timeout=30s"
#define BEAM_UDP "ros.source=udp:27000"
#define BEAM_TCP "ros.source=tcp:127.0.1.1:27000"
#define BEAM_BOARDS_UDP "udp:127.0.0.10:27000,udp:127.0.0.11:27000,udp:127.0.0.12:27000"
#define BEAM_BOARDS_TCP "tcp:127.0.1.1:27000,tcp:127.0.1.1:27000,tcp:127.0.1.1:27000"
#define BEAM_BOARDS 3
#define BEAM_EVENTS_MAX 40000

/* A frame ends with its own number among all frames, its board from 1 on, and the restarts of that. */
struct beam_frame {
        uint64_t number, serial;
        uint32_t board, restarts;
};

/* Observations about the written events. A thread of a node fills it, so the test checks it later. */
struct beam {
        size_t offset, bits; /* of the number in a frame */
        uint64_t events, fragments;
        uint64_t mixed;       /* events with frames of different triggers, or with two of a board */
        uint64_t wrong_bytes; /* frames */
        uint16_t frames[BEAM_EVENTS_MAX]; /* by serial */
};

static inline bool beam_read_frame(const struct beam *b, const uint8_t *bytes, size_t size,
                                   struct beam_frame *ret)
{
        size_t n = size - 16, end = b->offset + b->bits / 8;
        uint8_t expected[4096];

        memcpy(&ret->serial, bytes + n, 8);
        memcpy(&ret->board, bytes + n + 8, 4);
        memcpy(&ret->restarts, bytes + n + 12, 4);
        ret->number = 0;
        memcpy(&ret->number, bytes + b->offset, b->bits / 8);
        if (size < 16 || n > sizeof expected)
                return false;
        pattern_fill(pattern_key(1, ret->board - 1, ret->serial), expected, 0, n);
        return memcmp(expected, bytes, b->offset) == 0 && memcmp(expected + end, bytes + end, n - end) == 0;
}

static inline void beam_look(void *ctx, const struct sfi_built *built, const uint8_t *buffer)
{
        struct beam *b = ctx;
        struct beam_frame first = {}, f;
        uint32_t boards = 0;
        bool mixed = false;

        b->events++;
        for (int i = 0; i < BEAM_BOARDS; i++) {
                const struct sfi_fragment *g = &built->fragments[i];

                if (!g->whole || g->bytes == 0 || g->at == ARENA_NONE)
                        continue;
                b->wrong_bytes += !beam_read_frame(b, buffer + g->at, g->bytes, &f);
                b->fragments++;
                if (f.serial < BEAM_EVENTS_MAX)
                        b->frames[f.serial]++;
                if (boards == 0)
                        first = f;
                mixed |= f.serial != first.serial || boards & 1u << f.board;
                boards |= 1u << f.board;
        }
        b->mixed += mixed;
}

/* No event mixes triggers. */
static inline void beam_check(const struct beam *b)
{
        assert_fields(b, mixed, 0, wrong_bytes, 0);
}

/* A counter of a board, as the frontend reports it; board 0: the sum over all. */
static inline uint64_t beam_sent(unsigned board, const char *name)
{
        json_t *o = bed_report("frontend"), *b;
        uint64_t n = 0;
        size_t i;

        json_array_foreach(json_object_get(o, "boards"), i, b) n +=
                board == 0 || board == i + 1 ? (uint64_t)json_integer_value(json_object_get(b, name)) : 0;
        json_decref(o);
        return n;
}

/* Each frame that a ROS read is accounted for. */
static inline void beam_check_frames(void)
{
        for (size_t i = 0; bed_name(ROLE_ROS, i); i++) {
                const char *ros = bed_name(ROLE_ROS, i);

                assert_int_equal(
                        count_of(ros, front_end_frames),
                        count_of(ros, front_end_used) + count_of(ros, front_end_late) +
                                count_of(ros, front_end_duplicate) + count_of(ros, front_end_impossible) +
                                count_of(ros, front_end_dropped) + count_of(ros, front_end_left_over));
        }
        assert_int_equal(count_sum(ROLE_ROS, front_end_frames), beam_sent(0, "frames"));
}

static inline uint64_t beam_ended(void)
{
        return count_of("dfm", events_complete) + count_of("dfm", events_partial) +
               count_of("dfm", events_lost);
}

/* Starts the nodes; their sockets are open then. */
static inline void beam_begin(struct beam *b, size_t offset, size_t bits)
{
        *b = (struct beam){.offset = offset, .bits = bits};
        bed_each_event(beam_look, b);
        bed_start_all();
        bed_pass(10 * NS_PER_MS);
}

static inline void beam_stop(void)
{
        bed_signal("dfm", SIGTERM);
        bed_until(bed_has_ended("dfm"));
        for (size_t i = 0; bed_name(ROLE_ROS, i); i++)
                bed_until(bed_has_ended(bed_name(ROLE_ROS, i)));
        bed_until(bed_has_ended("sfi1"));
        bed_check_accounts();
}
