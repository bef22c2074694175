/* evb run: runs all nodes of a scenario on this machine, each in a separate process. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/util.h"
#include "cmd/commands.h"
#include "conf/scenario.h"
#include "run/launch.h"
#include "net/address.h"
#include "sys/loop.h"
#include "sys/thread.h"

static void report_path(const struct scenario *s, const char *key, const char *path, const char *expected)
{
        fprintf(stderr, "%s: %s: %s: %s; expected %s\n", s->path, key, path, strerror(errno), expected);
}

/* Reports unusable paths once, rather than once per node. */
static bool paths_are_usable(const struct scenario *s)
{
        const char *reported = NULL;
        char key[64];

        for (const struct scenario_node *n = s->nodes; n < s->nodes + s->n_nodes; n++) {
                if (n->role != ROLE_ROS || n->source_kind != SOURCE_FILE || access(n->source_at, R_OK) == 0 ||
                    (reported && strcmp(reported, n->source_at) == 0))
                        continue;
                snprintf(key, sizeof key, n->has_source ? "node %s.source" : "ros.source", n->name);
                report_path(s, key, reported = n->source_at, "a readable event file");
        }
        if (!reported && s->sfi.output == OUTPUT_FILE && access(s->sfi.directory, W_OK | X_OK) < 0)
                report_path(s, "sfi.directory", reported = s->sfi.directory, "a writable directory");
        return !reported;
}

/* On loopback, each node without an address gets an address of 127.0.0.0/8. Checks that this machine has the
 * addresses of all other nodes, and that all nodes can reach each other. */
static bool addresses_hold(const struct scenario *s)
{
        const struct scenario_node *v6 = NULL, *unset = NULL;
        struct net_address address;
        bool hold = true;

        for (const struct scenario_node *n = s->nodes; n < s->nodes + s->n_nodes; n++) {
                if (n->address[0] == '\0') {
                        unset = n;
                        continue;
                }
                if (net_address_parse(&address, n->address, 1) < 0 || net_address_device(&address) == 0) {
                        fprintf(stderr,
                                "%s:%u: node %s.address: this machine does not have address %s; expected one "
                                "that ip address lists, one of 127.0.0.0/8, or none\n",
                                s->path, n->line, n->name, n->address);
                        hold = false;
                } else if (address.any.sa_family == AF_INET6)
                        v6 = n;
        }
        if (!hold || !v6 || !unset)
                return hold;
        fprintf(stderr,
                "%s:%u: node %s.address: %s cannot reach node %s, which evb run gives an address of "
                "127.0.0.0/8; expected an IPv4 address, or an address for each node\n",
                s->path, v6->line, v6->name, v6->address, unset->name);
        return false;
}

/* All nodes share the loopback device, so none can shape its own traffic by a tree. */
static bool may_run_unshaped(struct scenario *s)
{
        if (s->qos.backend == QOS_NONE || s->qos.backend == QOS_SOCKET)
                return true;
        if (s->qos.required) {
                fprintf(stderr,
                        "%s: qos.backend: nodes cannot shape on loopback because all nodes share lo; use evb "
                        "run --net lab (as root), or --set qos.backend=none to run unshaped\n",
                        s->path);
                return false;
        }
        log_warning("qos.backend: nodes cannot shape on loopback; this run is unshaped (:optional)");
        scenario_set_backend(s, QOS_NONE);
        return true;
}

int command_may_run(struct scenario *s, const char *net)
{
        bool lab = strcmp(net, "lab") == 0;

        if (strcmp(net, "loopback") != 0 && !lab) {
                fprintf(stderr, "evb: --net: invalid network \"%s\"; expected loopback or lab\n", net);
                return 2;
        }
        if (!paths_are_usable(s))
                return 2;
        if (lab)
                return 0;
        if (!addresses_hold(s))
                return 2;
        return may_run_unshaped(s) ? 0 : 77;
}

/* Without permission for a raised priority, the run is watched nevertheless. The threads of the watch must
 * not receive signals. */
static void watch_machine(struct launch_options *launch)
{
        int r;

        signals_hold();
        r = machine_watch_new(&launch->watch);
        if (r < 0)
                log_warning_errno(r, "cannot watch the machine: %m");
        (void)priority_attend();
        launch->raised = true;
}

int cmd_run(int argc, char **argv)
{
        static const struct command command = {"run", cmd_run, "[FILE]",
                                               "Run all nodes of a scenario on this machine.",
                                               OPTION_SET | OPTION_JSON | OPTION_PROGRESS};
        const char *path = NULL, *net = "loopback", *measure = NULL;
        const struct option_entry own[] = {
                {"config", "FILE", COMMAND_CONFIG_HELP, &path},
                {"net", "loopback|lab",
                 "network: loopback addresses, or namespaces and a bridge, as root (default: loopback)",
                 &net},
                {"measure", NULL,
                 "give the nodes precedence over other processes, and report what else the machine did",
                 &measure},
        };
        _cleanup_free_ struct scenario *s = NULL;
        struct launch_options launch = {.program = "/proc/self/exe", .keep_records = true};
        struct options o;
        int r = options_parse(&o, &command, own, ARRAY_SIZE(own), OPTIONS_SCENARIO, argc, argv);

        if (r != OPTIONS_GO_ON)
                return r;
        path = command_find_config(&command, path);
        s = path ? command_load(path, &o) : NULL;
        if (!s)
                return 2;
        r = command_may_run(s, net);
        if (r != 0)
                return r;
        launch.net = strcmp(net, "lab") == 0 ? LAUNCH_LAB : LAUNCH_LOOPBACK;
        launch.scenario = s;
        launch.progress = options_wants_progress(&o);
        launch.json = options_open_json(&o);
        if (o.json && !launch.json)
                return 2;
        if (measure)
                watch_machine(&launch);
        r = launch_run(&launch);
        machine_watch_free(launch.watch);
        return options_close_json(&o, launch.json, r);
}
