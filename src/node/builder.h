/* What becomes of built events: pattern bytes are checked, and the event is written to a file or dropped. Files are
 * written by a thread of their own, so that the disk never holds up the receiver; without files it happens at once. */
#pragma once

#include "evb/core/sfi.h"
#include "node_internal.h"

struct builder;

/* A slot that is done with. */
struct builder_done {
        uint32_t slot;
        bool failed;
};

/* The core's slots and the buffer are read, between builder_take() and builder_collect(). An error is logged. */
int builder_new(struct builder **ret, struct node *n, const struct sfi *core, const uint8_t *buffer, uint32_t slots);
struct builder *builder_free(struct builder *b);
/* Hands a built slot over. There is always room: slots are fewer. */
void builder_take(struct builder *b, uint32_t slot);
/* After the last builder_take() of a batch. */
void builder_kick(struct builder *b);
/* Up to n slots that are done with. */
size_t builder_collect(struct builder *b, struct builder_done *done, size_t n);
/* Readable when slots are done with; -1: they always are at once. */
int builder_fd(const struct builder *b);
void builder_prepare_wait(struct builder *b); /* before waiting on the descriptor; see struct waker */
bool builder_has_done(const struct builder *b);
void builder_woken(struct builder *b);
/* All that was handed over has been written; closes the file. Negative errno: it failed, and was logged. */
int builder_close(struct builder *b);
/* After builder_close(): why what was built is not as it should be. */
void builder_reasons(struct builder *b, struct reasons *to);
