/* What a trigger means to a board, and the bytes of its frame. Pure: it depends on configuration, board and
 * trigger alone. */
#pragma once

#include "frontend/frontend_run.h"

/* The frame of a board for trigger `serial`, counted from 0 and never reset. */
struct frontend_frame {
        uint64_t serial;
        uint64_t number; /* what the board counts */
        uint32_t restarts;
        uint32_t bytes; /* without the length */
        bool late;
};

/* False: the board misses this trigger. Otherwise sets size and lateness of *ret. */
bool frontend_plan(const struct frontend_config *c, const struct source *source, unsigned board,
                   uint64_t serial, struct frontend_frame *ret);
/* Writes the frame with its length: f->bytes + 4 bytes. */
void frontend_fill(const struct frontend_config *c, unsigned board, const struct frontend_frame *f,
                   uint8_t *to);
/* The time from a trigger to a board's frames. */
uint64_t frontend_skew_ns(const struct frontend_config *c, unsigned board);
