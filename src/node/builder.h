/* What becomes of built events: pattern bytes are checked, and the event is written to a file or dropped.
 * Files are written and sealed by a thread of their own, so that the disk never holds up the receiver;
 * without files all happens at once. A slot is done with when its event is stored as sfi.durability asks, or
 * lost. */
#pragma once

#include "evb/core/sfi.h"
#include "node_internal.h"

struct builder;

/* A slot that is done with. */
struct builder_done {
        uint32_t slot;
        bool failed;
};

/* The core's slots and the buffer are read, between builder_take() and builder_collect(). An error is logged;
 * -EINVAL: sfi.directory is wrong. */
int builder_new(struct builder **ret, struct node *n, const struct sfi *core, const uint8_t *buffer, uint32_t slots);
/* Files of this run: after builder_new() and before the first builder_take(), when the run's number is known.
 * An error is logged. */
int builder_open_files(struct builder *b, uint32_t run);
/* Without builder_seal() first the newest file is left as it is. */
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
/* No builder_take() comes any more: writes what is left and seals the last file. Returns at once. */
void builder_seal(struct builder *b);
/* After builder_seal(): all of it has happened, and no slot is left to be collected. *ret_error is a negative
 * errno where output failed, now or before; it was logged. */
bool builder_is_sealed(struct builder *b, int *ret_error);
/* After it is sealed, or where it never will be: why what was built is not as it should be. */
void builder_reasons(struct builder *b, struct reasons *to);
