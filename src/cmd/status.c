/* evb status: asks each node of a scenario for its state, and prints a table or a JSON report. */
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "evb/base/log.h"
#include "evb/base/util.h"
#include "evb/cmd/commands.h"
#include "evb/conf/scenario.h"
#include "evb/net/http_get.h"

#define TIMEOUT_NS (3 * NS_PER_S)
#define WHY_MAX 400

struct status_node {
        const struct scenario_node *node;
        char place[SCENARIO_TEXT_MAX];
        json_t *status;    /* NULL: it did not answer */
        char why[WHY_MAX]; /* what is wrong; "": nothing */
};

static const char *text_of(const struct status_node *n, const char *name)
{
        const char *text = json_string_value(json_object_get(n->status, name));

        return text ?: "?";
}

static void take_answer(struct status_node *n, struct http_get *g)
{
        json_t *stalled, *reason;

        if (g->error == 0 && g->status == 200)
                n->status = json_loads(g->body, 0, NULL);
        if (g->error < 0)
                snprintf(n->why, sizeof n->why, "no answer from %s: %s", n->place, strerror(-g->error));
        else if (!json_is_object(n->status) || !json_object_get(n->status, "state"))
                snprintf(n->why, sizeof n->why, "%s is not a node of evb", n->place);
        else if (strcmp(text_of(n, "node"), n->node->name) != 0)
                snprintf(n->why, sizeof n->why, "%s is node %.60s", n->place, text_of(n, "node"));
        free(take_ptr(g->body));
        if (n->why[0]) {
                json_decref(take_ptr(n->status));
                return;
        }
        stalled = json_object_get(n->status, "stalled_seconds");
        reason = json_object_get(n->status, "reason");
        if (json_is_number(stalled))
                snprintf(n->why, sizeof n->why, "stalled for %.0f s%s%.300s", json_number_value(stalled),
                         json_is_string(reason) ? ": " : "",
                         json_is_string(reason) ? json_string_value(reason) : "");
}

static int find_places(const struct scenario *s, struct status_node *nodes)
{
        if (s->metrics.kind == METRICS_NONE) {
                fprintf(stderr,
                        "%s: metrics.listen: the nodes serve no status; expected :PORT, HOST:PORT or "
                        "unix:PATH\n",
                        s->path);
                return 2;
        }
        for (size_t i = 0; i < s->n_nodes; i++) {
                nodes[i].node = &s->nodes[i];
                if (scenario_metrics_reach(s, &s->nodes[i], nodes[i].place))
                        continue;
                fprintf(stderr,
                        "%s: metrics.listen: the address of node %s is not known, as evb run chooses it; "
                        "expected HOST:PORT or unix:PATH\n",
                        s->path, s->nodes[i].name);
                return 2;
        }
        return 0;
}

static int ask(const struct scenario *s, struct status_node *nodes)
{
        _cleanup_free_ struct http_get *gets = calloc(s->n_nodes, sizeof *gets);

        if (!gets)
                return log_error_errno(ENOMEM, "status: %m");
        for (size_t i = 0; i < s->n_nodes; i++)
                gets[i] = (struct http_get){.place = nodes[i].place, .path = "/status"};
        http_get_all(gets, s->n_nodes, TIMEOUT_NS);
        for (size_t i = 0; i < s->n_nodes; i++)
                take_answer(&nodes[i], &gets[i]);
        return 0;
}

/* At most 8 characters and the unit: "1.23 k", "999 ". */
static char *format_si(char text[static 32], const json_t *value, const char *unit)
{
        static const char *const prefixes[] = {"", "k", "M", "G", "T"};
        double v = json_number_value(value);
        size_t i = 0;

        if (!json_is_number(value))
                return strcpy(text, "-");
        for (; v >= 999.5 && i + 1 < ARRAY_SIZE(prefixes); i++)
                v /= 1000;
        snprintf(text, 32, "%.3g %s%s", v, prefixes[i], unit);
        return text;
}

static const json_t *figure(const struct status_node *n, const char *object, const char *name)
{
        return json_object_get(json_object_get(n->status, object), name);
}

static void write_node(const struct status_node *n)
{
        bool ros = n->node->role == ROLE_ROS;
        const json_t *run = json_object_get(n->status, "run"),
                     *buffer = json_object_get(n->status, "buffer_used");
        char number[24] = "-", share[16] = "-", done[32], rate[32], data[32];

        if (!n->status) {
                printf("%-16.16s %-4s %-9s\n", n->node->name, scenario_role_name(n->node->role), "no answer");
                return;
        }
        if (json_is_integer(run))
                snprintf(number, sizeof number, "%lld", (long long)json_integer_value(run));
        if (json_is_number(buffer))
                snprintf(share, sizeof share, "%.0f %%", 100 * json_number_value(buffer));
        printf("%-16.16s %-4s %-9.9s %10s %8s %9s %10s %6s\n", n->node->name,
               scenario_role_name(n->node->role), n->why[0] ? "stalled" : text_of(n, "state"), number,
               format_si(done, figure(n, "counts", ros ? "fragments_sent" : "events_complete"), ""),
               format_si(rate, figure(n, "rates", ros ? "fragments_hz" : "events_hz"), "Hz"),
               format_si(data, figure(n, "rates", "bytes_per_second"), "B/s"), share);
}

static void write_table(const struct status_node *nodes, size_t n)
{
        printf("%-16s %-4s %-9s %10s %8s %9s %10s %6s\n", "NODE", "ROLE", "STATE", "RUN", "DONE", "RATE",
               "DATA", "BUFFER");
        for (size_t i = 0; i < n; i++)
                write_node(&nodes[i]);
}

static json_t *to_json(const struct scenario *s, const struct status_node *nodes, bool ok)
{
        json_t *all = json_array();

        for (size_t i = 0; i < s->n_nodes; i++) {
                const struct status_node *n = &nodes[i];
                json_t *one = n->status ? json_copy(n->status)
                                        : json_pack("{s:s, s:s}", "node", n->node->name, "role",
                                                    scenario_role_name(n->node->role));

                json_object_set_new(one, "reachable", json_boolean(n->status));
                json_object_set_new(one, "problem", n->why[0] ? json_string(n->why) : json_null());
                json_array_append_new(all, one);
        }
        return json_pack("{s:s, s:b, s:o}", "scenario", s->scenario.name, "ok", ok, "nodes", all);
}

static int report(const struct options *o, const struct scenario *s, const struct status_node *nodes)
{
        int status = 0;

        for (size_t i = 0; i < s->n_nodes; i++)
                status |= nodes[i].why[0] != '\0';
        if (o->json)
                status = options_write_json(o, to_json(s, nodes, status == 0), status);
        else
                write_table(nodes, s->n_nodes);
        fflush(stdout);
        for (size_t i = 0; i < s->n_nodes; i++) {
                if (nodes[i].why[0])
                        fprintf(stderr, "%s: %s\n", nodes[i].node->name, nodes[i].why);
        }
        return status;
}

int cmd_status(int argc, char **argv)
{
        static const struct command command = {"status", cmd_status, "",
                                               "Show the state of all nodes of a scenario."};
        const char *path = NULL;
        const struct option_entry own[] = {{"scenario", "FILE", "scenario file", &path}};
        _cleanup_free_ struct status_node *nodes = NULL;
        _cleanup_free_ struct scenario *s = NULL;
        struct options o;
        int r = options_parse(&o, &command, own, ARRAY_SIZE(own), 0, argc, argv);

        if (r != OPTIONS_GO_ON)
                return r;
        if (!path) {
                fprintf(stderr, "evb status: missing option; --scenario FILE is required\n");
                return 2;
        }
        s = command_load(path, &o);
        if (!s)
                return 2;
        nodes = calloc(s->n_nodes, sizeof *nodes);
        if (!nodes)
                return log_error_errno(ENOMEM, "status: %m") < 0;
        r = find_places(s, nodes);
        if (r == 0)
                r = ask(s, nodes) < 0 ? 1 : report(&o, s, nodes);
        for (size_t i = 0; i < s->n_nodes; i++)
                json_decref(nodes[i].status);
        return r;
}
