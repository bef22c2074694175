/* The table of columns, its texts, and the order of nodes by one of them. */
#include "top.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/quantity.h"
#include "base/util.h"

#define BAR_CELLS 6

const struct top_column top_columns[TOP_COLUMNS] = {
        {"node", "NODE", "NODE", TOP_TEXT_NODE, TOP_RUN, 5, 0, "the order of the scenario"},
        {"role", "ROLE", "ROLE", TOP_TEXT_ROLE, TOP_RUN, 4, 7, "dfm, ros or sfi"},
        {"state", "STATE", "STATE", TOP_TEXT_STATE, TOP_RUN, 9, 1,
         "its own state, or no_answer, late, paused, error, stalled or losing"},
        {"run", "RUN", "RUN", TOP_INTEGER, TOP_RUN, 10, 16, "number of the run"},
        {"rate", "RATE", "RATE_HZ", TOP_HZ, TOP_RATE, 8, 2, "events per second; of a ROS: fragments"},
        {"data", "DATA", "BYTES_PER_SECOND", TOP_BYTES_PER_SECOND, TOP_DATA, 9, 3,
         "payload of complete events per second; of a ROS: bytes sent"},
        {"buffer", "BUFFER", "BUFFER_PERCENT", TOP_BAR, TOP_BUFFER, BAR_CELLS + 5, 4,
         "used share of the memory for fragments"},
        {"busy", "BUSY", "BUSY_PERCENT", TOP_SHARE, TOP_BUSY, 5, 14,
         "share of the last second for which triggers were held back"},
        {"credits", "CREDITS", "FREE_CREDITS", TOP_OF, TOP_FREE, 9, 5,
         "credits that the DFM can use now, of all credits of the SFI"},
        {"open", "OPEN", "OPEN_EVENTS", TOP_INTEGER, TOP_OPEN, 5, 10, "events that have begun and not ended"},
        {"drops", "DROPS", "DROPS", TOP_COUNT, TOP_DROPS, 7, 6,
         "packets lost in a ROS; of an SFI: in the network and its socket"},
        {"backlog", "BACKLOG", "BACKLOG_BYTES", TOP_BYTES, TOP_BACKLOG, 7, 8,
         "bytes that wait in the shaping of a ROS, or of all ROSs for an SFI"},
        {"queued", "QUEUED", "QUEUED_BYTES", TOP_BYTES, TOP_QUEUED, 7, 11,
         "payload that waits in a ROS, or in all ROSs for an SFI"},
        {"partial", "PARTIAL", "PARTIAL_EVENTS", TOP_COUNT, TOP_PARTIAL, 7, 9,
         "events built with fragments missing"},
        {"lost", "LOST", "LOST", TOP_COUNT, TOP_LOST, 7, 12,
         "lost events at the DFM; missing fragments at an SFI"},
        {"disk", "DISK", "FREE_BYTES", TOP_BYTES, TOP_DISK, 7, 13, "free bytes on the disk of sfi.directory"},
        {"note", "NOTE", "NOTE", TOP_TEXT_PROBLEM, TOP_RUN, 24, 15, "a problem, or what the node waits for"},
};

const struct top_column *top_column_find(const char *key)
{
        for (size_t i = 0; i < TOP_COLUMNS; i++) {
                if (strcmp(top_columns[i].key, key) == 0)
                        return &top_columns[i];
        }
        return NULL;
}

struct sorting {
        const struct top_model *model;
        const struct top_column *by;
        bool reverse;
};

/* Positive: `a` comes first. */
static int compare_values(const struct top_node *a, const struct top_node *b, const struct top_column *by)
{
        double x = a->figures[by->figure], y = b->figures[by->figure];

        switch (by->format) {
        case TOP_TEXT_NODE:
                return 0;
        case TOP_TEXT_ROLE:
                return (int)b->from->node->role - (int)a->from->node->role;
        case TOP_TEXT_STATE:
                return (int)a->state - (int)b->state ?: -strcmp(a->state_text, b->state_text);
        case TOP_TEXT_PROBLEM:
                return (a->problem[0] != '\0') - (b->problem[0] != '\0') ?: -strcmp(a->problem, b->problem);
        case TOP_HZ:
        case TOP_BYTES_PER_SECOND:
        case TOP_BYTES:
        case TOP_COUNT:
        case TOP_INTEGER:
        case TOP_OF:
        case TOP_SHARE:
        case TOP_BAR:
                break;
        }
        return (x > y) - (x < y);
}

static bool is_unknown(const struct top_node *n, const struct top_column *by)
{
        return by->format >= TOP_HZ && isnan(n->figures[by->figure]);
}

static int compare_nodes(const void *p, const void *q, void *ctx)
{
        const struct sorting *s = ctx;
        size_t i = *(const size_t *)p, k = *(const size_t *)q;
        const struct top_node *a = &s->model->nodes[i], *b = &s->model->nodes[k];
        int unknown = is_unknown(a, s->by) - is_unknown(b, s->by), r = compare_values(a, b, s->by);

        if (unknown)
                return unknown;
        if (s->by->format == TOP_TEXT_NODE)
                r = (k > i) - (k < i);
        else if (r == 0)
                return (i > k) - (i < k);
        return s->reverse ? r : -r;
}

void top_sort(const struct top_model *m, const struct top_column *by, bool reverse, size_t *order)
{
        struct sorting s = {m, by, reverse};

        for (size_t i = 0; i < m->n; i++)
                order[i] = i;
        qsort_r(order, m->n, sizeof *order, compare_nodes, &s);
}

static void format_bar(double share, char text[static TOP_CELL_MAX])
{
        /* If a buffer is not empty, its bar has at least one cell. */
        int full = isnan(share) || share <= 0 ? 0 : (int)fmin(BAR_CELLS, fmax(1, share * BAR_CELLS + 0.5));

        if (isnan(share)) {
                strcpy(text, "-");
                return;
        }
        memset(text, TOP_BAR_EMPTY, BAR_CELLS);
        memset(text, TOP_BAR_FULL, (size_t)full);
        snprintf(text + BAR_CELLS, TOP_CELL_MAX - BAR_CELLS, " %3.0f%%", fmin(100 * fmax(share, 0), 999));
}

/* Uses a prefix if the number has too many digits. */
static const char *format_integer(double value, size_t width, char text[static TOP_CELL_MAX])
{
        int n = snprintf(text, TOP_CELL_MAX, isnan(value) ? "-" : "%.0f", value);

        return (size_t)n > width ? quantity_format_real(value, "", text) : text;
}

static void format_percent(double share, char text[static TOP_CELL_MAX])
{
        snprintf(text, TOP_CELL_MAX, isnan(share) ? "-" : "%.0f%%", fmin(100 * share, 999));
}

/* Writes only `part` if both numbers together are too long. */
static const char *format_of(double part, double whole, size_t width, char text[static TOP_CELL_MAX])
{
        int n;

        if (isnan(whole))
                return format_integer(part, width, text);
        n = isnan(part) ? snprintf(text, TOP_CELL_MAX, "-/%.0f", whole)
                        : snprintf(text, TOP_CELL_MAX, "%.0f/%.0f", part, whole);
        return (size_t)n > width ? format_integer(part, width, text) : text;
}

const char *top_cell_format(const struct top_node *n, const struct top_column *c,
                            char text[static TOP_CELL_MAX])
{
        double value = n->figures[c->figure];

        switch (c->format) {
        case TOP_TEXT_NODE:
                return n->from->node->name;
        case TOP_TEXT_ROLE:
                return scenario_role_name(n->from->node->role);
        case TOP_TEXT_STATE:
                return n->state_text;
        case TOP_TEXT_PROBLEM:
                return n->problem;
        case TOP_HZ:
                return quantity_format_real(value, "Hz", text);
        case TOP_BYTES_PER_SECOND:
                return quantity_format_real(value, "B/s", text);
        case TOP_BYTES:
                return quantity_format_real(value, "B", text);
        case TOP_COUNT:
                return quantity_format_real(value, "", text);
        case TOP_INTEGER:
                return format_integer(value, c->width, text);
        case TOP_OF:
                return format_of(value, n->figures[c->figure + 1], c->width, text);
        case TOP_SHARE:
                format_percent(value, text);
                break;
        case TOP_BAR:
                format_bar(value, text);
                break;
        }
        return text;
}

#define TIME_WIDTH 19
#define NAME_WIDTH 16

static int width_of(const struct top_column *c)
{
        int head = (int)strlen(c->plain);

        return c->format == TOP_TEXT_NODE ? NAME_WIDTH : MAX(head, (int)c->width);
}

void top_lines_print_head(FILE *to)
{
        fprintf(to, "%-*s", TIME_WIDTH, "TIME");
        for (size_t i = 0; i < TOP_COLUMNS; i++) {
                const struct top_column *c = &top_columns[i];

                if (c->format == TOP_TEXT_PROBLEM)
                        fprintf(to, " %s", c->plain);
                else
                        fprintf(to, " %*s", c->format < TOP_HZ ? -width_of(c) : width_of(c), c->plain);
        }
        fputc('\n', to);
}

/* Frequencies and percentages have fractions; all others are whole numbers. */
static void print_figure(FILE *to, const struct top_column *c, double value)
{
        bool is_share = c->format == TOP_BAR || c->format == TOP_SHARE;

        if (isnan(value))
                fprintf(to, " %*s", width_of(c), "-");
        else
                fprintf(to, " %*.*f", width_of(c), c->format == TOP_HZ || is_share ? 1 : 0,
                        is_share ? 100 * value : value);
}

static void print_node(FILE *to, const struct top_node *n, const char *time)
{
        char text[TOP_CELL_MAX];

        fprintf(to, "%-*s", TIME_WIDTH, time);
        for (size_t i = 0; i < TOP_COLUMNS; i++) {
                const struct top_column *c = &top_columns[i];

                if (c->format == TOP_TEXT_PROBLEM)
                        fprintf(to, " %s", n->problem[0] ? n->problem : "-");
                else if (c->format < TOP_HZ)
                        fprintf(to, " %-*s", width_of(c), top_cell_format(n, c, text));
                else
                        print_figure(to, c, n->figures[c->figure]);
        }
        fputc('\n', to);
}

void top_lines_print(FILE *to, const struct top_model *m, const char *time)
{
        for (size_t i = 0; i < m->n; i++)
                print_node(to, &m->nodes[i], time);
}
