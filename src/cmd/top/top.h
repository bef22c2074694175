/* The parts of evb top, which call each other in the reverse order: a model of the nodes, columns of its
 * figures, a view of both, and the terminal. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "data/stats.h"
#include "node/metrics/run_summary.h"

/* ---- The data about the nodes: figures from their states, changes since the previous update. Pure. ---- */

/* Figures of one node; NAN: unknown, or not reported by this role. */
enum top_figure {
        TOP_RUN,
        TOP_TRIGGERS, /* per second */
        TOP_RATE,     /* events per second; of a ROS: fragments */
        TOP_DATA,     /* bytes per second */
        TOP_BUFFER,
        TOP_BUSY, /* shares, 0 to 1 */
        TOP_FREE,
        TOP_CREDITS,
        TOP_OPEN,
        TOP_UNWRITTEN,
        TOP_QUEUED,  /* bytes in this ROS, or in all ROSs for this SFI */
        TOP_BACKLOG, /* bytes in the shaping of this ROS, or of all ROSs for this SFI */
        TOP_PARTIAL,
        TOP_LOST,
        TOP_DROPS, /* packets */
        TOP_DISK,
        TOP_DISK_SIZE, /* TOP_DISK: free bytes; TOP_DISK_SIZE: all bytes */
        TOP_FIGURES,
};

/* In ascending order of importance. */
enum top_state { TOP_FINE, TOP_LATE, TOP_PROBLEM, TOP_SILENT };

struct top_node {
        const struct node_status *from;
        enum top_state state;
        char state_text[12];                   /* "running", "losing", "late", "no_answer" */
        char problem[NODE_STATUS_PROBLEM_MAX]; /* its problem, or what it waits for; printable ASCII */
        double figures[TOP_FIGURES];
        double lost[LOSS_PLACES]; /* NAN: unknown */
        bool grew[TOP_FIGURES];   /* since the previous update */
        /* From the previous answer. */
        uint64_t answered_ns;
        double start_time;
};

/* Sums over the nodes; NAN: unknown. */
enum top_total {
        TOP_TOTAL_TRIGGERS_HZ,
        TOP_TOTAL_EVENTS_HZ,
        TOP_TOTAL_DATA,
        TOP_TOTAL_BUSY,
        TOP_TOTAL_WAITING,
        TOP_TOTAL_OPEN,
        TOP_TOTAL_COMPLETE,
        TOP_TOTAL_PARTIAL,
        TOP_TOTAL_LOST,
        TOP_TOTAL_REJECTED,
        TOP_TOTAL_P50_US,
        TOP_TOTAL_P99_US,
        TOP_TOTAL_BACKLOG,
        TOP_TOTAL_LATE,
        TOP_TOTALS,
};

struct top_model {
        const struct statuses *from;
        size_t n, n_silent;
        struct top_node *nodes; /* in the order of the scenario */
        double totals[TOP_TOTALS], lost[LOSS_PLACES];
        char discarded[512]; /* "packets malformed 3, ...": discarded packets that are in no total; "": none
                              */
        struct run_summary run;         /* as of the last answers */
        char run_state[16];             /* state of the run, or "late" if the DFM is late */
        const struct top_node *fullest; /* the SFI with the smallest free share of its disk; NULL: none */
};

int top_model_init(struct top_model *m, const struct statuses *from); /* -ENOMEM */
void top_model_fini(struct top_model *m);
/* Reads the answers. `late_ns`: a node is late if a request to it has been in progress for this long. */
void top_model_update(struct top_model *m, uint64_t now_ns, uint64_t late_ns);
/* Returns the JSON object for one interval. */
json_t *top_model_to_json(const struct top_model *m, uint64_t now_ns, double utc_seconds);

/* ---- The columns: one table for the screen, the plain lines, the sort keys and the help ---- */

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
        unsigned width;    /* on the screen; minimum for TOP_TEXT_NODE and TOP_TEXT_PROBLEM */
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

/* ---- The screen as lines of text, for any size of a terminal. Pure. ---- */

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

/* ---- The terminal. While a screen is open, nothing else may write to it. ---- */

enum top_key {
        TOP_KEY_NONE,
        TOP_KEY_QUIT,
        TOP_KEY_NEXT,
        TOP_KEY_PREVIOUS,
        TOP_KEY_REVERSE,
        TOP_KEY_UP,
        TOP_KEY_DOWN,
        TOP_KEY_PAGE_UP,
        TOP_KEY_PAGE_DOWN,
        TOP_KEY_HOME,
        TOP_KEY_END,
        TOP_KEY_HELP,
        TOP_KEY_PAUSE,
        TOP_KEY_RESIZED,
        TOP_KEY_OTHER,
};

struct top_screen;

/* Whether standard output is a terminal on which lines can be placed. */
bool top_screen_is_possible(void);
/* -ENOTTY, -ENOMEM. top_screen_free() restores the terminal, so a signal must not end the program before
 * that. */
int top_screen_open(struct top_screen **ret);
struct top_screen *top_screen_free(struct top_screen *s);
void top_screen_get_size(struct top_screen *s, size_t *ret_width, size_t *ret_height);
void top_screen_draw(struct top_screen *s, const struct top_line *lines, size_t n);
/* Does not wait; TOP_KEY_NONE: no key was pressed. */
enum top_key top_screen_read_key(struct top_screen *s);
