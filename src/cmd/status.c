/* evb status: asks each node of a scenario for its state, and prints a table or a JSON report. */
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <string.h>

#include "evb/base/log.h"
#include "evb/base/quantity.h"
#include "evb/base/util.h"
#include "evb/cmd/commands.h"
#include "evb/conf/scenario.h"
#include "evb/node/statuses.h"
#include "evb/sys/loop.h"

#define TIMEOUT_NS (3 * NS_PER_S)

static const char *text_of(const struct node_status *n, const char *name)
{
        return json_string_value(json_object_get(n->status, name)) ?: "?";
}

static char *format_figure(char text[static QUANTITY_TEXT_MAX], const json_t *value, const char *unit)
{
        return quantity_format_real(json_is_number(value) ? json_number_value(value) : NAN, unit, text);
}

static const json_t *figure(const struct node_status *n, const char *object, const char *name)
{
        return json_object_get(json_object_get(n->status, object), name);
}

static void write_node(const struct node_status *n)
{
        bool ros = n->node->role == ROLE_ROS;
        const json_t *run = json_object_get(n->status, "run"),
                     *buffer = json_object_get(n->status, "buffer_used");
        char number[24] = "-", share[16] = "-", done[QUANTITY_TEXT_MAX], rate[QUANTITY_TEXT_MAX],
             data[QUANTITY_TEXT_MAX];

        if (!n->status) {
                printf("%-16.16s %-4s %-9s\n", n->node->name, scenario_role_name(n->node->role), "no answer");
                return;
        }
        if (json_is_integer(run))
                snprintf(number, sizeof number, "%lld", (long long)json_integer_value(run));
        if (json_is_number(buffer))
                snprintf(share, sizeof share, "%.0f %%", 100 * json_number_value(buffer));
        printf("%-16.16s %-4s %-9.9s %10s %8s %9s %10s %6s\n", n->node->name,
               scenario_role_name(n->node->role), n->problem[0] ? "stalled" : text_of(n, "state"), number,
               format_figure(done, figure(n, "counts", ros ? "fragments_sent" : "events_complete"), ""),
               format_figure(rate, figure(n, "rates", ros ? "fragments_hz" : "events_hz"), "Hz"),
               format_figure(data, figure(n, "rates", "bytes_per_second"), "B/s"), share);
}

static void write_table(const struct node_status *nodes, size_t n)
{
        printf("%-16s %-4s %-9s %10s %8s %9s %10s %6s\n", "NODE", "ROLE", "STATE", "RUN", "DONE", "RATE",
               "DATA", "BUFFER");
        for (size_t i = 0; i < n; i++)
                write_node(&nodes[i]);
}

static json_t *to_json(const struct statuses *s, bool ok)
{
        json_t *all = json_array();

        for (size_t i = 0; i < s->n; i++)
                json_array_append_new(all, node_status_to_json(&s->nodes[i]));
        return json_pack("{s:s, s:b, s:o}", "scenario", s->scenario->scenario.name, "ok", ok, "nodes", all);
}

static int report(const struct options *o, const struct statuses *s)
{
        int status = 0;

        for (size_t i = 0; i < s->n; i++)
                status |= s->nodes[i].problem[0] != '\0';
        if (o->json)
                status = options_write_json(o, to_json(s, status == 0), status);
        else
                write_table(s->nodes, s->n);
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
                                               "Show the state of all nodes of a scenario."};
        const char *path = NULL;
        const struct option_entry own[] = {{"scenario", "FILE", "scenario file", &path}};
        _cleanup_free_ struct scenario *s = NULL;
        struct statuses all;
        struct options o;
        struct error e = {};
        char text[ERROR_TEXT_MAX];
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
        if (statuses_init(&all, s, &e) < 0) {
                fprintf(stderr, "%s\n", error_format(&e, text));
                return e.code == -EINVAL ? 2 : 1;
        }
        r = statuses_ask(&all, TIMEOUT_NS);
        r = r < 0 ? log_error_errno(r, "status: %m") < 0 : report(&o, &all);
        statuses_fini(&all);
        return r;
}
