/* Writes encoded events to event files, and reports when each event is stored as sfi.durability
 * requires. The thread of builder.c calls it and may block in write and fsync. */
#pragma once

#include <stdbool.h>
#include <time.h>

#include "data/builder.h"
#include "format/eformat.h"

struct event_output;

/* Detects an unusable sfi.directory at the node's start rather than at the start of the run: -EINVAL. Errors
 * are logged. */
int event_output_check(const struct scenario *s);
/* At most `slots` events wait to be stored. `stored` is called before a long wait for the disk, so that the
 * caller can collect slots first. Errors are logged. */
int event_output_new(struct event_output **ret, const struct data_context *context, struct file_list *files,
                     uint32_t slots, void (*stored)(void *ctx), void *ctx);
/* A file that is not closed keeps the name NAME.writing. */
struct event_output *event_output_free(struct event_output *o);
/* Opens the first file of a run. Errors are logged. */
int event_output_open(struct event_output *o, uint32_t run, const struct scenario_metadata *metadata,
                      size_t n);

/* Writes the event of a slot. `error`: error of its encoding, which ends the output; 0: none. False: the
 * event is lost and the slot is free. True: event_output_collect() returns the slot later. */
bool event_output_write(struct event_output *o, uint64_t now_ns, uint32_t slot,
                        const struct eformat_encoding *e, int error);
/* Writes and syncs if this is due. Call this after each batch; `idle`: no further event is waiting. */
void event_output_turn(struct event_output *o, uint64_t now_ns, bool idle);
/* When event_output_turn() is due without new events. */
uint64_t event_output_deadline_ns(const struct event_output *o);
/* Returns up to n slots whose events are stored or lost. */
size_t event_output_collect(struct event_output *o, struct builder_done *done, size_t n);
/* Writes the remaining events without closing the file. */
void event_output_flush(struct event_output *o);
/* Seals the last file. Afterwards event_output_collect() returns all remaining slots. Negative errno: output
 * failed, now or earlier; the failure is already logged. */
int event_output_close(struct event_output *o);
/* Returns the error that ended the output; 0: none. */
int event_output_error(const struct event_output *o);
/* Adds the number of events that were reported as stored, because sfi.durability is none, but were not
 * written. */
void event_output_reasons(const struct event_output *o, struct reasons *to);
