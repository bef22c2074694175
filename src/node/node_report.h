/* Writes the report of a node at its end. */
#pragma once

#include <stdio.h>

#include "node_internal.h"

/* Writes one JSON object: all counters, granted buffers, memory and processor time, files, reasons. */
void report_write_json(const struct node *n, FILE *to);
/* Writes the report so far next to the event files of an SFI, once per run. A thread does that, since the
 * disk may be slow. Returns -EAGAIN until it has, unless `wait` is set. Another negative errno is the
 * failure, which is a reason then. */
int report_write_run_file(struct node *n, bool wait);
/* Waits for that thread. */
void report_free_run_file(struct node *n);
