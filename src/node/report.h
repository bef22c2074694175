/* What a node reports at its end. */
#pragma once

#include <stdio.h>

#include "node_internal.h"

/* One JSON object: every counter, what the kernel granted, memory and processor time, files. */
void report_write_json(const struct node *n, FILE *to);
/* A line in plain words. */
void report_write_text(const struct node *n, FILE *to);
