/* Reads the figures of a node's process and disk for its metrics. */
#pragma once

#include "openmetrics.h"

void metrics_read_process(struct metrics_process *ret);
/* May take long if the file system does not answer. */
void metrics_read_disk(struct metrics_disk *ret, const char *directory);
