/* Takes built events: checks pattern bytes, then writes the event to a file or drops it. A separate thread
 * writes and seals files, so that the disk never delays the receiver; without files everything happens at
 * once. A slot comes back once its event is stored as sfi.durability requires, or lost. */
#pragma once

#include "evb/core/sfi.h"
#include "node_internal.h"

struct builder;

/* A slot that is done with. */
struct builder_done {
        uint32_t slot;
        bool failed;
};

/* Between builder_take() and builder_collect() the builder reads the core's slots and the buffer. Errors are
 * logged; -EINVAL: sfi.directory is wrong. */
int builder_new(struct builder **ret, struct node *n, const struct sfi *core, const uint8_t *buffer,
                uint32_t slots);
/* Opens the files of this run: after builder_new(), before the first builder_take(), once the run number is
 * known. Errors are logged. */
int builder_open_files(struct builder *b, uint32_t run);
/* Without builder_seal() first, the newest file stays NAME.writing. */
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
/* After the last builder_take(): writes what is left and seals the last file. Returns at once. */
void builder_seal(struct builder *b);
/* After builder_seal(): whether all is written and sealed, and no slot is left to collect. *ret_error is a
 * negative errno if output failed, now or earlier; the failure is already logged. */
bool builder_is_sealed(struct builder *b, int *ret_error);
/* At the end: adds what is wrong with the built events. */
void builder_reasons(struct builder *b, struct reasons *to);
