/* Lays out the screen: a summary of the run, problems, the list of nodes, and the keys. On small terminals,
 * the less important parts are left out; no line is wider than the terminal. */
#include "top.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "base/quantity.h"
#include "base/util.h"

#define GAP 2         /* blanks between items of the summary */
#define LIST_LEAST 3u /* number of lines for nodes that the summary must leave free */
#define PROBLEM_LINES 3
#define KEYS_LEAST 7 /* terminals with fewer lines do not show the keys */
#define NAME_MAX 24u

struct page {
        size_t width, n, n_max;
        struct top_line *lines;
        struct top_line *last; /* the last line added */
        struct top_line sink;  /* receives lines beyond n_max */
};

static struct top_line *add_line(struct page *p, enum top_style style)
{
        p->last = p->n < p->n_max ? &p->lines[p->n++] : &p->sink;
        p->last->text[0] = '\0';
        p->last->style = style;
        return p->last;
}

/* Truncates the text at the width of the terminal. */
static void __attribute__((format(printf, 3, 4)))
add_text(struct page *p, struct top_line *line, const char *format, ...)
{
        size_t length = strlen(line->text);
        va_list args;

        va_start(args, format);
        vsnprintf(line->text + length, sizeof line->text - length, format, args);
        va_end(args);
        line->text[p->width] = '\0';
}

/* Adds an item of the summary, on a new line if it does not fit. */
static void __attribute__((format(printf, 2, 3))) add_item(struct page *p, const char *format, ...)
{
        struct top_line *line = p->last;
        char item[TOP_LINE_MAX];
        size_t length = strlen(line->text);
        va_list args;

        va_start(args, format);
        vsnprintf(item, sizeof item, format, args);
        va_end(args);
        if (length > 0 && length + GAP + strlen(item) > p->width) {
                line = add_line(p, TOP_PLAIN);
                length = 0;
        }
        add_text(p, line, "%*s%s", length > 0 ? GAP : 0, "", item);
}

/* Adds a text on several lines, which is divided at blanks. */
static void add_wrapped(struct page *p, enum top_style style, const char *text, size_t n_max)
{
        for (size_t i = 0; *text && i < n_max; i++) {
                size_t length = strlen(text), take = MIN(length, p->width);

                if (take < length && i + 1 < n_max) {
                        for (take = p->width; take > p->width / 2 && text[take] != ' '; take--)
                                ;
                        if (text[take] != ' ')
                                take = p->width;
                }
                add_text(p, add_line(p, style), "%.*s", (int)take, text);
                text += take;
                text += strspn(text, " ");
        }
}

static const char *si(double value, const char *unit, char text[static QUANTITY_TEXT_MAX])
{
        return quantity_format_real(value, unit, text);
}

static const char *percent(double share, char text[static QUANTITY_TEXT_MAX])
{
        snprintf(text, QUANTITY_TEXT_MAX, isnan(share) ? "-" : "%.0f %%", 100 * share);
        return text;
}

static const char *time_of(double us, char text[static QUANTITY_TEXT_MAX])
{
        return isnan(us) ? strcpy(text, "-")
                         : quantity_format_time((uint64_t)fmin(fmax(us, 0) * 1e3, 1e18), text);
}

static void add_title(struct page *p, const struct top_view *v, const struct top_model *m, size_t hidden)
{
        struct top_line *line = add_line(p, TOP_TITLE);
        char left[TOP_LINE_MAX], run[24] = "";
        size_t room;

        if (m->run.run > 0)
                snprintf(run, sizeof run, ", run %u", m->run.run);
        snprintf(left, sizeof left, "evb top: %s%s, %s", m->from->scenario->scenario.name, run, m->run_state);
        for (char *c = left; *c; c++)
                *c = *c >= ' ' && *c <= '~' ? *c : '?';
        add_text(p, line, "%s; %zu node%s", left, m->n, m->n == 1 ? "" : "s");
        if (m->n_silent > 0)
                add_text(p, line, ", %zu without answer", m->n_silent);
        if (hidden > 0)
                add_text(p, line, ", %zu hidden", hidden);
        if (v->paused)
                add_text(p, line, "; display paused");
        room = p->width - strlen(line->text);
        if (room > strlen(v->clock))
                add_text(p, line, "%*s", (int)room, v->clock);
}

static void add_summary(struct page *p, const struct top_model *m)
{
        const double *t = m->totals;
        char a[QUANTITY_TEXT_MAX], b[QUANTITY_TEXT_MAX];

        add_line(p, TOP_PLAIN);
        add_item(p, "Triggers %s", si(t[TOP_TOTAL_TRIGGERS_HZ], "Hz", a));
        add_item(p, "Events %s", si(t[TOP_TOTAL_EVENTS_HZ], "Hz", a));
        add_item(p, "Data %s", si(t[TOP_TOTAL_DATA], "B/s", a));
        add_item(p, "Busy %s", percent(t[TOP_TOTAL_BUSY], a));
        add_item(p, "Waiting %s", si(t[TOP_TOTAL_WAITING], "", a));
        add_item(p, "Open %s", si(t[TOP_TOTAL_OPEN], "", a));
        add_line(p, TOP_PLAIN);
        add_item(p, "Complete %s", si(t[TOP_TOTAL_COMPLETE], "", a));
        add_item(p, "Partial %s", si(t[TOP_TOTAL_PARTIAL], "", a));
        add_item(p, "Lost %s", si(t[TOP_TOTAL_LOST], "", a));
        add_item(p, "Rejected %s", si(t[TOP_TOTAL_REJECTED], "", a));
        add_item(p, "Latency p50 %s, p99 %s", time_of(t[TOP_TOTAL_P50_US], a),
                 time_of(t[TOP_TOTAL_P99_US], b));
        add_line(p, TOP_PLAIN);
        add_item(p, "Drops: source queue %s", si(m->lost[LOSS_SOURCE_QDISC], "", a));
        add_item(p, "network %s", si(m->lost[LOSS_NETWORK], "", a));
        add_item(p, "socket %s", si(m->lost[LOSS_SOCKET], "", a));
        add_item(p, "late %s", si(t[TOP_TOTAL_LATE], "", a));
        add_item(p, "corrupt %s", si(m->lost[LOSS_CORRUPT], "", a));
}

/* Adds figures that are shown only if they exist. */
static void add_extras(struct page *p, const struct top_model *m)
{
        char a[QUANTITY_TEXT_MAX], b[QUANTITY_TEXT_MAX], text[sizeof m->discarded + 16];

        if (m->discarded[0]) {
                snprintf(text, sizeof text, "Discarded: %s", m->discarded);
                add_wrapped(p, TOP_PLAIN, text, 2);
        }
        if (!isnan(m->totals[TOP_TOTAL_BACKLOG]) || m->fullest)
                add_line(p, TOP_PLAIN);
        if (!isnan(m->totals[TOP_TOTAL_BACKLOG]))
                add_item(p, "Shaping: backlog %s", si(m->totals[TOP_TOTAL_BACKLOG], "B", a));
        if (m->fullest)
                add_item(p, "Disk of %s: %s of %s free", m->fullest->from->node->name,
                         si(m->fullest->figures[TOP_DISK], "B", a),
                         si(m->fullest->figures[TOP_DISK_SIZE], "B", b));
}

/* Adds the most important problem and the number of the other problems, or what the run waits for. */
static void add_problems(struct page *p, const struct top_model *m, size_t n_max)
{
        char text[RUN_REASON_MAX + SCENARIO_TEXT_MAX];
        const struct node_status *whose = m->run.whose;
        bool dfm = whose && whose->node->role == ROLE_DFM;

        if (!m->run.reason[0])
                return;
        snprintf(text, sizeof text, "%s%s%s", dfm ? whose->node->name : "", dfm ? ": " : "", m->run.reason);
        add_wrapped(p, m->run.ok ? TOP_PLAIN : TOP_ERROR, text, n_max);
}

struct layout {
        unsigned widths[TOP_COLUMNS]; /* 0: the column is not shown */
};

/* A column is not shown if no node has a figure for it. */
static bool is_empty(const struct top_model *m, const struct top_column *c)
{
        if (c->format < TOP_HZ)
                return false;
        for (size_t i = 0; i < m->n; i++) {
                const double *f = &m->nodes[i].figures[c->figure];

                if (!isnan(f[0]) || (c->format == TOP_OF && !isnan(f[1])))
                        return false;
        }
        return true;
}

static struct layout lay_out(const struct top_view *v, const struct top_model *m)
{
        struct layout l = {};
        size_t name = 0, room = v->width + 1;

        for (size_t i = 0; i < m->n; i++)
                name = MAX(name, strlen(m->nodes[i].from->node->name));
        for (unsigned priority = 0; priority < TOP_COLUMNS; priority++) {
                for (size_t i = 0; i < TOP_COLUMNS; i++) {
                        const struct top_column *c = &top_columns[i];
                        unsigned width = c->format == TOP_TEXT_NODE
                                                 ? (unsigned)MIN(MAX(name, c->width), NAME_MAX)
                                                 : c->width;

                        if (c->priority != priority || is_empty(m, c) || width + 1 > room)
                                continue;
                        l.widths[i] = width;
                        room -= width + 1;
                }
        }
        for (size_t i = 0; i < TOP_COLUMNS; i++) {
                if (top_columns[i].format == TOP_TEXT_PROBLEM && l.widths[i] > 0)
                        l.widths[i] += (unsigned)room;
        }
        return l;
}

static bool is_left(const struct top_column *c)
{
        return c->format < TOP_HZ || c->format == TOP_BAR;
}

static void add_cell(struct page *p, struct top_line *line, const struct top_column *c, unsigned width,
                     const char *text)
{
        int w = (int)width;

        if (width > 0)
                add_text(p, line, "%s%*.*s", line->text[0] ? " " : "", is_left(c) ? -w : w, w, text);
}

static void add_head(struct page *p, const struct top_view *v, const struct layout *l)
{
        struct top_line *line = add_line(p, TOP_HEAD);
        char text[TOP_CELL_MAX];

        for (size_t i = 0; i < TOP_COLUMNS; i++) {
                const struct top_column *c = &top_columns[i];
                bool sorted = c == v->sort && strlen(c->head) < l->widths[i];

                snprintf(text, sizeof text, "%s%s", c->head, !sorted ? "" : v->reverse ? "^" : "v");
                add_cell(p, line, c, l->widths[i], text);
        }
}

static void add_node(struct page *p, const struct layout *l, const struct top_node *n)
{
        static const enum top_style styles[] = {[TOP_FINE] = TOP_PLAIN,
                                                [TOP_LATE] = TOP_DIM,
                                                [TOP_PROBLEM] = TOP_ERROR,
                                                [TOP_SILENT] = TOP_ERROR};
        bool grew = n->grew[TOP_DROPS] || n->grew[TOP_PARTIAL] || n->grew[TOP_LOST];
        struct top_line *line = add_line(p, n->state == TOP_FINE && grew ? TOP_WARNING : styles[n->state]);
        char text[TOP_CELL_MAX], marked[TOP_CELL_MAX + 1];

        for (size_t i = 0; i < TOP_COLUMNS; i++) {
                const struct top_column *c = &top_columns[i];
                const char *cell = top_cell_format(n, c, text);

                if (c->format == TOP_COUNT && n->grew[c->figure] && strlen(cell) < l->widths[i]) {
                        snprintf(marked, sizeof marked, "%s+", cell);
                        cell = marked;
                }
                add_cell(p, line, c, l->widths[i], cell);
        }
}

static void add_keys(struct page *p, const struct top_view *v)
{
        add_line(p, TOP_DIM);
        add_item(p, "q quit  s sort: %s  r reverse  arrows scroll  space pause  h help", v->sort->key);
}

static void add_help(struct page *p, const struct top_view *v)
{
        static const char *const keys[] = {
                "q           quit",
                "s > <       sort by the next or the previous column",
                "r           reverse the order",
                "arrows      scroll by a node; PgUp, PgDn, Home, End: by more",
                "space       stop and continue the display",
                "h ?         this help; any key leaves it",
        };

        add_text(p, add_line(p, TOP_TITLE), "evb top: keys, columns");
        for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
                add_text(p, add_line(p, TOP_PLAIN), "%s", keys[i]);
        for (size_t i = 0; i < TOP_COLUMNS && p->n < v->height; i++)
                add_text(p, add_line(p, TOP_DIM), "%-11s %s", top_columns[i].head, top_columns[i].help);
}

/* Number of nodes that fit below `used` lines. */
static size_t list_room(const struct top_view *v, size_t used)
{
        size_t keys = v->height >= KEYS_LEAST ? 1 : 0;

        return v->height > used + keys ? v->height - used - keys : 0;
}

/* Adds the lines above the list, as long as some nodes still fit below. */
static void add_top(struct page *p, const struct top_view *v, const struct top_model *m)
{
        size_t rows = MIN(m->n, (size_t)LIST_LEAST) + 2; /* the nodes, their head, and the keys */

        add_title(p, v, m, 0);
        p->n_max = MAX(v->height, rows + 1) - rows;
        add_problems(p, m, PROBLEM_LINES);
        add_summary(p, m);
        add_extras(p, m);
        p->n_max = v->height;
}

static size_t make_list(struct top_view *v, const struct top_model *m, struct page *p)
{
        struct layout l = lay_out(v, m);
        struct page title = {.width = p->width, .n_max = 1, .lines = p->lines};

        add_top(p, v, m);
        if (p->n < v->height)
                add_head(p, v, &l);
        v->page = list_room(v, p->n);
        v->first = MIN(v->first, m->n > v->page ? m->n - v->page : 0);
        top_sort(m, v->sort, v->reverse, v->order);
        for (size_t i = v->first; i < m->n && i < v->first + v->page; i++)
                add_node(p, &l, &m->nodes[v->order[i]]);
        add_title(&title, v, m, m->n - MIN(m->n, v->page));
        if (v->height < KEYS_LEAST)
                return p->n;
        while (p->n + 1 < v->height)
                add_line(p, TOP_PLAIN);
        add_keys(p, v);
        return p->n;
}

size_t top_view_make(struct top_view *v, const struct top_model *m, struct top_line *lines)
{
        struct page p = {.width = MIN(v->width, (size_t)TOP_LINE_MAX), .n_max = v->height, .lines = lines};

        if (v->width == 0 || v->height == 0)
                return 0;
        if (!v->help)
                return make_list(v, m, &p);
        add_help(&p, v);
        return p.n;
}
