/* Writes the report of a node when the node ends. */
#pragma once

#include <stdio.h>

#include "node_internal.h"

/* Writes all counters, granted buffers, memory and processor time, files, and reasons as one JSON object. */
void report_write_json(const struct node *n, FILE *to);
/* Writes the current report next to the event files of an SFI, once per run, in a thread, because the disk
 * may be slow. Returns -EAGAIN until the thread is done, unless `wait` is set. Any other negative errno is a
 * failure, which becomes a reason. */
int report_write_run_file(struct node *n, bool wait);
/* Waits for the thread of report_write_run_file(). */
void report_free_run_file(struct node *n);
