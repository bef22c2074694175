/* evb top: requests the states of all nodes of a scenario at each interval, and shows them on a screen, as
 * lines, or as JSON. */
#include "top.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/quantity.h"
#include "base/util.h"
#include "cmd/commands.h"
#include "conf/scenario.h"
#include "node/metrics/statuses.h"
#include "sys/loop.h"

#define TIMEOUT_NS (3 * NS_PER_S)
#define INTERVAL_LEAST_NS (100 * NS_PER_MS)
#define INTERVAL_MOST_NS (3600 * NS_PER_S)
/* The screen waits at most GRACE_NS for answers. It is drawn at least every REDRAW_NS, because it shows a
 * clock. */
#define GRACE_NS (500 * NS_PER_MS)
#define REDRAW_NS NS_PER_S

struct top_settings {
        const struct top_column *sort;
        uint64_t interval_ns, looks; /* 0: unlimited */
};

struct top {
        struct top_settings settings;
        struct statuses statuses;
        struct loop *loop;
        struct statuses_watch *watch;
        struct top_model model;
        FILE *json;                /* NULL: none */
        struct top_screen *screen; /* NULL: lines */
        struct loop_io keys;
        struct top_view view;
        struct top_line *lines;
        size_t n_lines;
        uint64_t asked_ns, drawn_ns, looks;
        bool looked; /* the states requested at asked_ns have been shown */
        bool quit;
};

/* Formats local time: "2026-11-24T18:45:01". */
static const char *format_now(char text[static 32])
{
        time_t now = (time_t)(clock_utc_ns() / NS_PER_S);
        struct tm parts;

        if (!localtime_r(&now, &parts) || strftime(text, 32, "%Y-%m-%dT%H:%M:%S", &parts) == 0)
                strcpy(text, "T");
        return text;
}

static void draw(struct top *t)
{
        char clock[32];
        size_t height = t->view.height;

        t->drawn_ns = clock_now_ns();
        top_screen_get_size(t->screen, &t->view.width, &t->view.height);
        if (t->view.height > t->n_lines) {
                struct top_line *grown = reallocarray(t->lines, t->view.height, sizeof *grown);

                if (!grown) {
                        t->view.height = height;
                        return;
                }
                t->lines = grown;
                t->n_lines = t->view.height;
        }
        t->view.clock = strchr(format_now(clock), 'T') + 1;
        top_screen_draw(t->screen, t->lines, top_view_make(&t->view, &t->model, t->lines));
}

static void print(struct top *t)
{
        char time[32];
        json_t *o = NULL;

        if (t->json) {
                o = top_model_to_json(&t->model, clock_now_ns(), (double)clock_utc_ns() / NS_PER_S);
                if (o)
                        (void)json_dumpf(o, t->json, JSON_COMPACT | JSON_REAL_PRECISION(12));
                fputc('\n', t->json);
                json_decref(o);
        } else {
                if (t->looks == 0)
                        top_lines_print_head(stdout);
                top_lines_print(stdout, &t->model, format_now(time));
        }
        /* main(), or options_close_json(), reports the error. */
        if (fflush(t->json ?: stdout) != 0)
                t->quit = true;
}

static void look(struct top *t, uint64_t now_ns)
{
        t->looked = true;
        if (!t->view.paused)
                top_model_update(&t->model, now_ns, GRACE_NS);
        if (t->screen)
                draw(t);
        else
                print(t);
        t->looks++;
        t->quit |= t->settings.looks > 0 && t->looks >= t->settings.looks;
}

static const struct top_column *neighbour(const struct top_column *c, size_t step)
{
        return &top_columns[((size_t)(c - top_columns) + step) % TOP_COLUMNS];
}

static void scroll(struct top_view *v, enum top_key key, size_t n)
{
        size_t by = key == TOP_KEY_PAGE_UP || key == TOP_KEY_PAGE_DOWN ? MAX(v->page, (size_t)1) : 1;

        if (key == TOP_KEY_UP || key == TOP_KEY_PAGE_UP)
                v->first -= MIN(by, v->first);
        else if (key == TOP_KEY_HOME)
                v->first = 0;
        else
                v->first = key == TOP_KEY_END ? n : v->first + by;
}

static void handle_key(struct top *t, enum top_key key)
{
        struct top_view *v = &t->view;

        if (v->help && key != TOP_KEY_QUIT && key != TOP_KEY_RESIZED) {
                v->help = false;
                return;
        }
        switch (key) {
        case TOP_KEY_QUIT:
                t->quit = true;
                break;
        case TOP_KEY_NEXT:
                v->sort = neighbour(v->sort, 1);
                break;
        case TOP_KEY_PREVIOUS:
                v->sort = neighbour(v->sort, TOP_COLUMNS - 1);
                break;
        case TOP_KEY_REVERSE:
                v->reverse = !v->reverse;
                break;
        case TOP_KEY_UP:
        case TOP_KEY_DOWN:
        case TOP_KEY_PAGE_UP:
        case TOP_KEY_PAGE_DOWN:
        case TOP_KEY_HOME:
        case TOP_KEY_END:
                scroll(v, key, t->model.n);
                break;
        case TOP_KEY_HELP:
                v->help = true;
                break;
        case TOP_KEY_PAUSE:
                v->paused = !v->paused;
                break;
        case TOP_KEY_RESIZED:
        case TOP_KEY_OTHER:
        case TOP_KEY_NONE:
                break;
        }
}

/* The keys are read in run(), because ncurses may already have buffered some. */
static void check_terminal(void *ctx, uint32_t events)
{
        struct top *t = ctx;

        t->quit |= (events & (EPOLLHUP | EPOLLERR)) != 0;
}

static void handle_keys(struct top *t)
{
        enum top_key key;
        bool any = false;

        while (t->screen && (key = top_screen_read_key(t->screen)) != TOP_KEY_NONE) {
                handle_key(t, key);
                any = true;
        }
        if (any && !t->quit && t->looks > 0)
                draw(t);
}

/* Lines and JSON wait for answers longer than a screen does, because evb top cannot correct them later. */
static uint64_t grace_ns(const struct top *t)
{
        if (t->screen)
                return MIN(GRACE_NS, t->settings.interval_ns / 2);
        return t->looks == 0 ? TIMEOUT_NS : MIN(TIMEOUT_NS, t->settings.interval_ns);
}

static uint64_t next_ns(const struct top *t)
{
        uint64_t ns = MIN(t->asked_ns + t->settings.interval_ns, statuses_watch_deadline_ns(t->watch));

        if (!t->looked)
                ns = MIN(t->looks == 0 ? NEVER_NS : ns, t->asked_ns + grace_ns(t));
        if (t->screen)
                ns = MIN(ns, t->drawn_ns + REDRAW_NS);
        return MIN(ns, statuses_watch_deadline_ns(t->watch));
}

static void turn(struct top *t, uint64_t now_ns)
{
        statuses_watch_expire(t->watch, now_ns);
        if (!t->looked &&
            (statuses_watch_pending(t->watch, t->asked_ns) == 0 || now_ns >= t->asked_ns + grace_ns(t)))
                look(t, now_ns);
        else if (t->screen && t->looks > 0 && now_ns >= t->drawn_ns + REDRAW_NS)
                draw(t);
        if (t->looked && now_ns >= t->asked_ns + t->settings.interval_ns) {
                /* After a pause of this process, missed intervals are not repeated. */
                t->asked_ns = MAX(t->asked_ns + t->settings.interval_ns,
                                  now_ns - MIN(now_ns, t->settings.interval_ns / 2));
                t->looked = false;
                statuses_watch_ask(t->watch, now_ns);
        }
}

static int run(struct top *t)
{
        int r = 0;

        t->asked_ns = clock_now_ns();
        statuses_watch_ask(t->watch, t->asked_ns);
        while (r >= 0 && !t->quit && loop_signals(t->loop) + loop_hangups(t->loop) == 0) {
                turn(t, clock_now_ns());
                handle_keys(t);
                if (!t->quit)
                        r = loop_wait(t->loop, next_ns(t));
        }
        return r;
}

static int open_screen(struct top *t)
{
        int r;

        t->view.sort = t->settings.sort;
        if (t->json || !top_screen_is_possible())
                return 0;
        t->view.order = calloc(t->model.n, sizeof *t->view.order);
        if (!t->view.order)
                return -ENOMEM;
        r = top_screen_open(&t->screen);
        if (r < 0)
                return r;
        t->keys = (struct loop_io){.fd = STDIN_FILENO, .events = EPOLLIN, .ready = check_terminal, .ctx = t};
        return isatty(STDIN_FILENO) ? loop_add(t->loop, &t->keys) : 0;
}

static int open_all(struct top *t)
{
        int r = loop_new(&t->loop);

        if (r >= 0)
                r = loop_catch_signals(t->loop);
        if (r >= 0)
                r = statuses_watch_new(&t->watch, &t->statuses, t->loop, TIMEOUT_NS);
        if (r >= 0)
                r = top_model_init(&t->model, &t->statuses);
        return r >= 0 ? open_screen(t) : r;
}

static void close_all(struct top *t)
{
        t->screen = top_screen_free(t->screen);
        free(t->lines);
        free(t->view.order);
        top_model_fini(&t->model);
        statuses_watch_free(t->watch);
        loop_free(t->loop);
        statuses_fini(&t->statuses);
}

/* If --count limits the updates, silent nodes are an error, because the scenario may contain wrong addresses.
 * Without --count, the run may just have ended. */
static int judge(const struct top *t)
{
        if (t->settings.looks == 0 || t->model.n_silent < t->model.n)
                return 0;
        fprintf(stderr, "evb top: none of %zu nodes answers; %s: %s\n", t->model.n,
                t->statuses.nodes[0].node->name, t->statuses.nodes[0].problem);
        return 1;
}

static int watch(struct top *t)
{
        int r = open_all(t);

        if (r >= 0)
                r = run(t);
        t->screen = top_screen_free(t->screen);
        r = r < 0 ? log_error_errno(r, "top: %m") < 0 : judge(t);
        close_all(t);
        return r;
}

static bool choose_sort(struct top_settings *to, const char *sort)
{
        to->sort = sort ? top_column_find(sort) : top_columns;
        if (to->sort)
                return true;
        fprintf(stderr, "evb top: --sort: \"%s\" is not a column; expected", sort);
        for (size_t i = 0; i < TOP_COLUMNS; i++)
                fprintf(stderr, "%s %s", i > 0 ? "," : "", top_columns[i].key);
        fputc('\n', stderr);
        return false;
}

int cmd_top(int argc, char **argv)
{
        static const struct command command = {"top", cmd_top, "", "Watch all nodes of a scenario.",
                                               OPTION_SET | OPTION_JSON};
        const char *path = NULL, *sort = NULL;
        struct top t = {.settings = {.interval_ns = NS_PER_S}};
        const struct option_entry own[] = {
                {"config", "FILE", COMMAND_CONFIG_HELP, &path},
                {"interval", "TIME", "interval between updates (default: 1s)",
                 OPTION_NUMBER(quantity_parse_time, &t.settings.interval_ns, INTERVAL_LEAST_NS,
                               INTERVAL_MOST_NS, "a time from 100ms to 1h, e.g. 2s")},
                {"sort", "COLUMN", "order of the nodes on the screen (default: node)", &sort},
                {"count", "N", "exit after N updates",
                 OPTION_NUMBER(quantity_parse_count, &t.settings.looks, 1, UINT64_MAX,
                               "a number of updates, e.g. 10")},
        };
        _cleanup_free_ struct scenario *s = NULL;
        struct options o;
        struct error e = {};
        char text[ERROR_TEXT_MAX];
        int r = options_parse(&o, &command, own, ARRAY_SIZE(own), 0, argc, argv);

        if (r != OPTIONS_GO_ON)
                return r;
        path = command_find_config(&command, path);
        if (!path || !choose_sort(&t.settings, sort))
                return 2;
        s = command_load(path, &o);
        if (!s)
                return 2;
        if (statuses_init(&t.statuses, s, &e) < 0) {
                fprintf(stderr, "%s\n", error_format(&e, text));
                return e.code == -EINVAL ? 2 : 1;
        }
        if (o.json && !(t.json = options_open_json(&o))) {
                statuses_fini(&t.statuses);
                return 2;
        }
        r = watch(&t);
        return options_close_json(&o, t.json, r);
}
