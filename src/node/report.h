/* Writes the report of a node at its end. */
#pragma once

#include <stdio.h>

#include "node_internal.h"

/* Writes one JSON object: all counters, granted buffers, memory and processor time, files, reasons. */
void report_write_json(const struct node *n, FILE *to);
/* Writes the report beside the event files of an SFI; a failure is a reason. */
void report_write_run_file(const struct node *n, struct reasons *to);
