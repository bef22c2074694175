/* The columns of evb top: one table for the screen, the plain lines, the sort keys and the help. */
#pragma once

#include <stddef.h>
#include <stdio.h>

#include "base/quantity.h"
#include "top_model.h"

enum top_format {
        TOP_TEXT_NODE,
        TOP_TEXT_ROLE,
        TOP_TEXT_STATE,
        TOP_TEXT_PROBLEM, /* uses the rest of the line */
        TOP_HZ,
        TOP_BYTES_PER_SECOND,
        TOP_BYTES,
        TOP_COUNT,   /* with a prefix */
        TOP_INTEGER, /* with all digits */
        TOP_OF,      /* "3/32": the figure and the next one */
        TOP_SHARE,
        TOP_BAR,
};

struct top_column {
        const char *key;   /* of --sort */
        const char *head;  /* on the screen */
        const char *plain; /* in plain lines */
        enum top_format format;
        enum top_figure figure;
        unsigned width;    /* on the screen; minimum for TOP_TEXT_NODE and TOP_TEXT_NOTE */
        unsigned priority; /* columns with larger numbers are omitted first */
        const char *help;
};

#define TOP_COLUMNS 17
extern const struct top_column top_columns[TOP_COLUMNS];

/* The column with this key; NULL: none. */
const struct top_column *top_column_find(const char *key);
/* Fills `order` with all nodes: in the order of the scenario, or with the largest figures first. Unknown
 * figures come last, and equal nodes stay in the order of the scenario. */
void top_sort(const struct top_model *m, const struct top_column *by, bool reverse, size_t *order);
#define TOP_BAR_FULL '\x01'
#define TOP_BAR_EMPTY '\x02'
#define TOP_CELL_MAX 32
/* The text of a cell on the screen, in printable ASCII and the two characters of bars. */
const char *top_cell_format(const struct top_node *n, const struct top_column *c,
                            char text[static TOP_CELL_MAX]);

/* These functions print the lines if standard output is not a terminal. */
void top_lines_print_head(FILE *to);
/* A line for each node; `time` is the first column. Figures have no prefixes; "-": unknown. */
void top_lines_print(FILE *to, const struct top_model *m, const char *time);
