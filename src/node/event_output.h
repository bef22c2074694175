/* From built events to event files: encodes and writes them, and says when each is stored as sfi.durability
 * asks. It keeps no thread: builder.c's calls it, and that one may block in write and fsync. */
#pragma once

#include <stdbool.h>
#include <time.h>

#include "builder.h"
#include "evb/core/sfi.h"

struct event_output;

/* Events are borrowed from `buffer` for the time of event_output_write(); no more than `slots` of them wait
 * at a time to be stored. -EINVAL: sfi.directory is wrong; an error is logged. `stored` is called with `ctx` before the thread
 * waits long for the disk: event_output_collect() may have something. */
int event_output_new(struct event_output **ret, struct node *n, const uint8_t *buffer, uint32_t slots,
                     void (*stored)(void *ctx), void *ctx);
/* What is not closed stays as NAME.writing. Returns NULL. */
struct event_output *event_output_free(struct event_output *o);
/* Opens the first file of a run. An error is logged. */
int event_output_open(struct event_output *o, uint32_t run);

/* An event of a slot; `status` are bits of its header. False: it is lost, its slot is done with. Else the
 * slot comes back by event_output_collect(). */
bool event_output_write(struct event_output *o, uint64_t now_ns, uint32_t slot, const struct sfi_built *built,
                        uint32_t status);
/* After each batch; `idle`: no further event is there now. Writes and syncs what is due. */
void event_output_turn(struct event_output *o, uint64_t now_ns, bool idle);
/* When event_output_turn() is due though nothing comes; NEVER_NS: not. */
uint64_t event_output_deadline_ns(const struct event_output *o);
/* Up to n slots whose events are stored, or lost for good. */
size_t event_output_collect(struct event_output *o, struct builder_done *done, size_t n);
/* Writes what is left without closing the file. */
void event_output_flush(struct event_output *o);
/* Seals the last file. Then event_output_collect() returns all that is left. Negative errno: output failed,
 * now or before; it was logged. */
int event_output_close(struct event_output *o);
