/* One line for each node, in columns of numbers that programs can read. */
#include "top_lines.h"

#include <math.h>
#include <string.h>

#include "base/util.h"
#include "top_columns.h"

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
