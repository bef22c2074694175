/* evb run: runs all nodes of a scenario on this machine, each in a process of its own. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "evb/base/log.h"
#include "evb/base/util.h"
#include "evb/cmd/commands.h"
#include "evb/conf/scenario.h"
#include "evb/launch/launch.h"

/* Reports unusable paths once, rather than once per node. */
static bool paths_are_usable(const struct scenario *s)
{
        const char *expected = NULL, *key = NULL, *path = NULL;

        if (s->ros.source_kind == SOURCE_FILE && access(s->ros.source_at, R_OK) < 0)
                key = "ros.source", path = s->ros.source_at, expected = "a readable event file";
        else if (s->sfi.output == OUTPUT_FILE && access(s->sfi.directory, W_OK | X_OK) < 0)
                key = "sfi.directory", path = s->sfi.directory, expected = "a writable directory";
        if (key)
                fprintf(stderr, "%s: %s: %s: %s; expected %s\n", s->path, key, path, strerror(errno),
                        expected);
        return !key;
}

/* All nodes share the loopback device, so none can shape its own traffic. */
static bool may_run_unshaped(struct scenario *s)
{
        if (s->qos.backend == QOS_NONE)
                return true;
        if (s->qos.required) {
                fprintf(stderr,
                        "%s: qos.backend: nodes cannot shape on loopback because all nodes share lo; use evb "
                        "run "
                        "--net lab (as root), or --set qos.required=no to run unshaped\n",
                        s->path);
                return false;
        }
        log_warning("qos.backend: nodes cannot shape on loopback; this run is unshaped (qos.required = no)");
        s->qos.backend = QOS_NONE;
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
        if (!lab)
                return may_run_unshaped(s) ? 0 : 77;
        return 0;
}

int cmd_run(int argc, char **argv)
{
        static const struct command command = {"run", cmd_run, "FILE",
                                               "Run all nodes of a scenario on this machine."};
        const char *net = "loopback";
        const struct option_entry own[] = {
                {"net", "loopback|lab",
                 "network: loopback addresses, or namespaces and a bridge, as root (default: loopback)",
                 &net},
        };
        _cleanup_free_ struct scenario *s = NULL;
        struct launch_options launch = {.program = "/proc/self/exe"};
        struct options o;
        int r = options_parse(&o, &command, own, ARRAY_SIZE(own), 1, argc, argv);

        if (r != OPTIONS_GO_ON)
                return r;
        s = command_load(o.words[0], &o);
        if (!s)
                return 2;
        r = command_may_run(s, net);
        if (r != 0)
                return r;
        launch.net = strcmp(net, "lab") == 0 ? LAUNCH_LAB : LAUNCH_LOOPBACK;
        launch.scenario = s;
        launch.progress = o.progress || isatty(STDERR_FILENO);
        launch.json = options_open_json(&o);
        if (o.json && !launch.json)
                return 2;
        r = launch_run(&launch);
        return options_close_json(&o, launch.json, r);
}
