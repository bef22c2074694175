/* Decides which frames a board misses and which are late, and fills them: the pattern of evb's own sources,
 * with the board's counter in it and the truth at its end. */
#include "frontend_plan.h"

#include <endian.h>
#include <string.h>

#include "base/pattern.h"
#include "base/random.h"
#include "base/util.h"

#define LENGTH_BYTES 4u

enum draw { DRAW_MISSED = 1, DRAW_LATE };

/* A fraction from 0 to below 1 that differs from draw to draw. */
static double draw(const struct frontend_config *c, unsigned board, uint64_t serial, enum draw what)
{
        uint64_t key = pattern_key(c->seed, board, serial);

        return (double)(random_mix(key + what) >> 11) * 0x1p-53;
}

uint32_t frontend_least_bytes(const struct frontend_counter *counter)
{
        return counter->offset_bytes + counter->bits / 8 + FRONTEND_TRAILER_BYTES;
}

bool frontend_plan(const struct frontend_config *c, const struct source *source, unsigned board,
                   uint64_t serial, struct frontend_frame *ret)
{
        uint32_t most = c->boards[board].tcp ? EVB_FRAGMENT_MAX_BYTES : FRONTEND_UDP_MAX_BYTES;
        struct ros_fragment fragment;

        if (draw(c, board, serial, DRAW_MISSED) < c->missed)
                return false;
        source_describe((void *)source, serial, (uint32_t)serial, &fragment);
        /* Few sizes of a distribution are outside. */
        ret->bytes = MIN(MAX(fragment.bytes, frontend_least_bytes(&c->counter)), most);
        ret->late = draw(c, board, serial, DRAW_LATE) < c->late;
        return true;
}

static void put_counter(const struct frontend_counter *c, uint64_t number, uint8_t *frame)
{
        unsigned n = c->bits / 8;

        for (unsigned i = 0; i < n; i++)
                frame[c->offset_bytes + (c->big_endian ? n - 1 - i : i)] = (uint8_t)(number >> (8 * i));
}

void frontend_fill(const struct frontend_config *c, unsigned board, const struct frontend_frame *f,
                   uint8_t *to)
{
        uint32_t length = htole32(f->bytes), numbers[2] = {htole32(board + 1), htole32(f->restarts)};
        uint64_t serial = htole64(c->first + f->serial);
        uint8_t *frame = to + LENGTH_BYTES, *trailer = frame + f->bytes - FRONTEND_TRAILER_BYTES;

        memcpy(to, &length, sizeof length);
        pattern_fill(pattern_key(c->seed, board, f->serial), frame, 0, f->bytes);
        put_counter(&c->counter, f->number, frame);
        memcpy(trailer, &serial, sizeof serial);
        memcpy(trailer + sizeof serial, numbers, sizeof numbers);
}

uint64_t frontend_skew_ns(const struct frontend_config *c, unsigned board)
{
        return c->n_boards < 2 ? c->skew_ns
                               : (uint64_t)((unsigned __int128)c->skew_ns * board / (c->n_boards - 1));
}
