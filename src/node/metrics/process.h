/* Reads the figures of a node's process for its metrics. */
#pragma once

#include "openmetrics.h"

void metrics_read_process(struct metrics_process *ret);
