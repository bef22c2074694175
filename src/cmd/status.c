/* evb status: requests the state of each node of a scenario, and prints the state of the run, a table of its
 * nodes and the reasons why nodes wait, or a JSON report. */
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <string.h>

#include "base/log.h"
#include "base/quantity.h"
#include "base/strbuf.h"
#include "base/util.h"
#include "cmd/commands.h"
#include "conf/scenario.h"
#include "node/metrics/run_summary.h"
#include "sys/loop.h"

#define TIMEOUT_NS (3 * NS_PER_S)

static char *format_figure(char text[static QUANTITY_TEXT_MAX], const json_t *value, const char *unit)
{
        return quantity_format_real(json_is_number(value) ? json_number_value(value) : NAN, unit, text);
}

static const json_t *figure(const struct node_status *n, const char *object, const char *name)
{
        return json_object_get(json_object_get(n->status, object), name);
}

/* A node may send any bytes, which a terminal must not interpret. */
static void write_printable(const char *from)
{
        _cleanup_free_ char *text = strdup(from);

        fputs(text_make_printable(text) ?: "", stdout);
}

/* Writes, on a separate line, why a node has a problem or what it waits for. */
static void write_reason(const struct statuses *s, const struct node_status *n)
{
        struct node_view view;

        node_view_make(s, n, 0, NEVER_NS, &view);
        if (view.why[0])
                printf("  %s\n", view.why);
}

static void write_figures(const struct node_status *n)
{
        bool ros = n->node->role == ROLE_ROS;
        const json_t *run = json_object_get(n->status, "run"),
                     *buffer = json_object_get(n->status, "buffer_used");
        char number[24] = "-", share[16] = "-", done[QUANTITY_TEXT_MAX], rate[QUANTITY_TEXT_MAX],
             data[QUANTITY_TEXT_MAX];

        if (json_is_integer(run))
                snprintf(number, sizeof number, "%lld", (long long)json_integer_value(run));
        if (json_is_number(buffer))
                snprintf(share, sizeof share, "%.0f %%", 100 * json_number_value(buffer));
        printf("%10s %8s %9s %10s %6s", number,
               format_figure(done, figure(n, "counts", ros ? "fragments_sent" : "events_complete"), ""),
               format_figure(rate, figure(n, "rates", ros ? "fragments_hz" : "events_hz"), "Hz"),
               format_figure(data, figure(n, "rates", "bytes_per_second"), "B/s"), share);
}

static void write_node(const struct statuses *s, const struct node_status *n)
{
        char word[10];

        snprintf(word, sizeof word, "%s", node_status_word(n));
        printf("%-16.16s %-4s ", n->node->name, scenario_role_name(n->node->role));
        write_printable(word);
        if (n->status) {
                printf("%*s ", (int)(sizeof word - 1 - strlen(word)), "");
                write_figures(n);
        }
        putchar('\n');
        write_reason(s, n);
}

/* Writes how many events of the run are complete, partial and lost, as counted by the DFM. */
static void write_accounts(const struct statuses *s)
{
        const struct node_status *n = statuses_find_dfm(s);
        char complete[QUANTITY_TEXT_MAX], partial[QUANTITY_TEXT_MAX], lost[QUANTITY_TEXT_MAX];

        if (n && n->status)
                printf("events: %s complete, %s partial, %s lost\n",
                       format_figure(complete, figure(n, "counts", "events_complete"), ""),
                       format_figure(partial, figure(n, "counts", "events_partial"), ""),
                       format_figure(lost, figure(n, "counts", "events_lost"), ""));
}

static void write_disks(const struct statuses *s)
{
        char text[DISK_TEXT_MAX];
        bool is_low;

        for (size_t i = 0; i < s->n; i++) {
                if (node_status_disk(&s->nodes[i], text, &is_low))
                        printf("disk of %s: %s\n", s->nodes[i].node->name, text);
        }
}

/* Most reasons begin with the word for the state. */
static void write_run(const struct statuses *s, const struct run_summary *run)
{
        bool repeats = strncmp(run->reason, run->state, strlen(run->state)) == 0;

        if (run->run > 0)
                printf("run %u of ", run->run);
        printf("%s: %s%s%s\n", s->scenario->scenario.name, repeats ? "" : run->state,
               repeats || !run->reason[0] ? "" : "; ", run->reason);
}

static void write_table(const struct statuses *s, const struct run_summary *run)
{
        write_run(s, run);
        write_accounts(s);
        write_disks(s);
        printf("%-16s %-4s %-9s %10s %8s %9s %10s %6s\n", "NODE", "ROLE", "STATE", "RUN", "DONE", "RATE",
               "DATA", "BUFFER");
        for (size_t i = 0; i < s->n; i++)
                write_node(s, &s->nodes[i]);
}

static json_t *to_json(const struct statuses *s, const struct run_summary *run)
{
        json_t *all = json_array(), *o = run_summary_to_json(run);

        for (size_t i = 0; i < s->n; i++)
                json_array_append_new(all, node_status_to_json(&s->nodes[i]));
        json_object_set_new(o, "scenario", json_string(s->scenario->scenario.name));
        json_object_set_new(o, "nodes", all);
        return o;
}

static int report(const struct options *o, const struct statuses *s)
{
        struct run_summary run;
        int status;

        run_summary_make(s, &run);
        status = run.ok ? 0 : 1;
        if (o->json)
                status = options_write_json(o, to_json(s, &run), status);
        else
                write_table(s, &run);
        fflush(stdout);
        for (size_t i = 0; i < s->n; i++) {
                if (s->nodes[i].problem[0])
                        fprintf(stderr, "%s: %s\n", s->nodes[i].node->name, s->nodes[i].problem);
        }
        return status;
}

int cmd_status(int argc, char **argv)
{
        static const struct command command = {"status", cmd_status, "",
                                               "Show the state of all nodes of a scenario.",
                                               OPTION_SET | OPTION_JSON};
        const char *path = NULL;
        const struct option_entry own[] = {{"config", "FILE", COMMAND_CONFIG_HELP, &path}};
        _cleanup_free_ struct scenario *s = NULL;
        struct statuses all;
        struct options o;
        struct error e = {};
        char text[ERROR_TEXT_MAX];
        int r = options_parse(&o, &command, own, ARRAY_SIZE(own), 0, argc, argv);

        if (r != OPTIONS_GO_ON)
                return r;
        path = command_find_config(&command, path);
        s = path ? command_load(path, &o) : NULL;
        if (!s)
                return 2;
        if (statuses_init(&all, s, &e) < 0) {
                fprintf(stderr, "%s\n", error_format(&e, text));
                return e.code == -EINVAL ? 2 : 1;
        }
        r = statuses_ask(&all, TIMEOUT_NS);
        r = r < 0 ? log_error_errno(r, "status: %m") < 0 : report(&o, &all);
        statuses_fini(&all);
        return r;
}
