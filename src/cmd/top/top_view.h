/* The screen of evb top as lines of text, for any size of a terminal. Pure. */
#pragma once

#include "top_columns.h"

#define TOP_LINE_MAX 512 /* wider terminals stay empty on the right */

enum top_style { TOP_PLAIN, TOP_TITLE, TOP_HEAD, TOP_WARNING, TOP_ERROR, TOP_DIM };

struct top_line {
        char text[TOP_LINE_MAX + 1]; /* printable ASCII and the characters of bars; no wider than the view */
        enum top_style style;
};

struct top_view {
        size_t width, height; /* of the terminal */
        const struct top_column *sort;
        bool reverse, paused, help;
        size_t first;      /* node at the top of the list; top_view_make() limits it */
        size_t page;       /* result: number of nodes that fit into the list */
        const char *clock; /* the time of day */
        size_t *order;     /* scratch, one for each node */
};

/* Makes at most v->height lines; returns their number. */
size_t top_view_make(struct top_view *v, const struct top_model *m, struct top_line *lines);
