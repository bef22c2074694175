/* Reads what a node's metrics say about its process and its disk. */
#pragma once

#include "openmetrics.h"

void metrics_read_process(struct metrics_process *ret);
/* May take long if the file system does not answer. */
void metrics_read_disk(struct metrics_disk *ret, const char *directory);
