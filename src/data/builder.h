/* Receives built events from the SFI's core, checks pattern bytes, and then writes the event to a file or
 * drops it. A thread writes and seals the files, so that the disk never delays reception. The thread also
 * waits for consumers of live events, if live.all = yes and there are any. Otherwise, without files, the
 * caller's thread does all. A slot is returned when its event is stored as sfi.durability requires, or lost.
 */
#pragma once

#include "core/sfi.h"
#include "data/context.h"
#include "data/reasons.h"
#include "store/event_writer.h"

struct builder;

/* The closed event files. The builder's thread fills the list, so read it only after builder_reasons(). A
 * zeroed list is empty. */
struct file_list {
        size_t n, room;
        struct event_writer_file *files; /* owned, with their paths */
};

/* Frees the paths, and empties the list. */
void file_list_clear(struct file_list *l);

/* A slot that the core may reuse. */
struct builder_done {
        uint32_t slot;
        bool failed;  /* the output failed */
        bool is_lost; /* no consumer has acknowledged the event (sfi.output = live) */
};

/* -EINVAL: sfi.directory is unusable, so builder_open_files() would fail. Errors are logged. */
int builder_check(const struct data_context *context);
/* Between builder_accept() and builder_collect() the builder reads the core's slots and the buffer. Errors
 * are logged; -EINVAL: live.listen is not usable. */
int builder_new(struct builder **ret, const struct data_context *context, struct file_list *files,
                const struct sfi *core, const uint8_t *buffer, uint32_t slots);
/* Opens the files of a run, with these names and values (at most SCENARIO_METADATA_MAX). Call this before the
 * first builder_accept(). An error is logged, and builder_reasons() reports it; do not call this function
 * again after an error. */
int builder_open_files(struct builder *b, uint32_t run, const struct scenario_metadata *metadata, size_t n);
/* A file that was not sealed keeps the name NAME.writing. */
struct builder *builder_free(struct builder *b);
/* Passes on a built slot; the queue has room for all slots. */
void builder_accept(struct builder *b, uint32_t slot);
/* Call this after the last builder_accept() of a batch. */
void builder_kick(struct builder *b);
/* Returns up to n slots that the core may reuse. */
size_t builder_collect(struct builder *b, struct builder_done *done, size_t n);
/* Becomes readable when builder_has_done() becomes true; -1: there is no thread, so slots are finished at
 * once. */
int builder_fd(const struct builder *b);
/* Call these before and after waiting on the descriptor; see struct waker. */
void builder_prepare_wait(struct builder *b);
void builder_woken(struct builder *b);
/* Whether slots can be collected, or all files are sealed. */
bool builder_has_done(const struct builder *b);
/* Whether the run is about to end: from then on, consumers of live events may delay it for 10 s, or
 * dfm.node-timeout if that is longer, in all. A stop may be cancelled. */
void builder_limit_waits(struct builder *b, bool is_ending);
/* Makes the thread write the remaining events and seal the last file; returns at once. Call it after the last
 * builder_accept(). */
void builder_seal(struct builder *b);
/* After builder_seal(): whether all events are written, files sealed and slots collected. *ret_error:
 * negative errno if output failed at any time; the failure is already logged. */
bool builder_is_sealed(struct builder *b, int *ret_error);
/* Returns the error that ended the output, as soon as builder_collect() returns a failed slot; 0: none. */
int builder_error(const struct builder *b);
/* Call this at the end: stops the thread, then adds output errors and corrupt fragments as reasons. */
void builder_reasons(struct builder *b, struct reasons *to);
