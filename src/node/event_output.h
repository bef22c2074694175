/* From built events to event files: encodes and writes events, and reports when each is stored as
 * sfi.durability requires. It has no thread of its own: builder.c's thread calls it and may block in write
 * and fsync. */
#pragma once

#include <stdbool.h>
#include <time.h>

#include "evb/core/sfi.h"
#include "builder.h"

struct event_output;

/* Events stay in `buffer` during event_output_write(); at most `slots` of them wait to be stored. Before the
 * thread waits long for the disk it calls `stored` with `ctx`: event_output_collect() may have something.
 * -EINVAL: sfi.directory is wrong. Errors are logged. */
int event_output_new(struct event_output **ret, struct node *n, const uint8_t *buffer, uint32_t slots,
                     void (*stored)(void *ctx), void *ctx);
/* A file that is not closed stays NAME.writing. Returns NULL. */
struct event_output *event_output_free(struct event_output *o);
/* Opens the first file of a run. Errors are logged. */
int event_output_open(struct event_output *o, uint32_t run);

/* Writes the event of a slot; `status` are bits of its header. False: the event is lost and the slot is free.
 * True: event_output_collect() returns the slot later. */
bool event_output_write(struct event_output *o, uint64_t now_ns, uint32_t slot, const struct sfi_built *built,
                        uint32_t status);
/* Call after each batch; `idle`: no further event waits. Writes and syncs what is due. */
void event_output_turn(struct event_output *o, uint64_t now_ns, bool idle);
/* When event_output_turn() is due even without new events; NEVER_NS: never. */
uint64_t event_output_deadline_ns(const struct event_output *o);
/* Returns up to n slots whose events are stored, or lost for good. */
size_t event_output_collect(struct event_output *o, struct builder_done *done, size_t n);
/* Writes what is left without closing the file. */
void event_output_flush(struct event_output *o);
/* Seals the last file. Afterwards event_output_collect() returns all remaining slots. Negative errno: output
 * failed, now or earlier; the failure is already logged. */
int event_output_close(struct event_output *o);
