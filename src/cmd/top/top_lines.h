/* What evb top prints if standard output is not a terminal. */
#pragma once

#include <stdio.h>

#include "top_model.h"

void top_lines_print_head(FILE *to);
/* A line for each node; `time` is the first column. Figures have no prefixes; "-": unknown. */
void top_lines_print(FILE *to, const struct top_model *m, const char *time);
