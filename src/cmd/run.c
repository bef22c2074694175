/* evb run: every node of a scenario on this machine. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "evb/base/log.h"
#include "evb/base/util.h"
#include "evb/cmd/commands.h"
#include "evb/conf/scenario.h"
#include "evb/launch/launch.h"

/* What every node would trip over is told once, before any is started. */
static bool paths_are_there(const struct scenario *s)
{
        const char *allowed = NULL, *key = NULL, *path = NULL;

        if (s->ros.source_kind == SOURCE_FILE && access(s->ros.source_at, R_OK) < 0)
                key = "ros.source", path = s->ros.source_at, allowed = "an event file that can be read";
        else if (s->sfi.output == OUTPUT_FILE && access(s->sfi.directory, W_OK | X_OK) < 0)
                key = "sfi.directory", path = s->sfi.directory, allowed = "a folder that can be written to";
        if (key)
                fprintf(stderr, "%s: %s: %s: %s, allowed: %s\n", s->path, key, path, strerror(errno),
                        allowed);
        return !key;
}

/* On loopback there is nothing to shape. */
static bool may_run_unshaped(struct scenario *s)
{
        if (s->qos.backend == QOS_NONE)
                return true;
        if (s->qos.required) {
                fprintf(stderr,
                        "%s: qos.backend: all nodes share lo, which cannot be shaped for each, allowed: evb "
                        "run --net lab (as root), "
                        "--set qos.backend=none, or --set qos.required=no to run unshaped\n",
                        s->path);
                return false;
        }
        log_warning("qos.backend: nothing can be shaped on loopback; the run is unshaped, as qos.required = "
                    "no allows");
        s->qos.backend = QOS_NONE;
        return true;
}

int command_may_run(struct scenario *s, const char *net)
{
        bool lab = strcmp(net, "lab") == 0;

        if (strcmp(net, "loopback") != 0 && !lab) {
                fprintf(stderr, "evb: --net: \"%s\" is not allowed, allowed: loopback|lab\n", net);
                return 2;
        }
        if (!paths_are_there(s))
                return 2;
        if (!lab)
                return may_run_unshaped(s) ? 0 : 77;
        return 0;
}

int cmd_run(int argc, char **argv)
{
        static const struct command command = {
                "run", cmd_run, "FILE",
                "Run every node of a scenario on this machine, each its own process."};
        const char *net = "loopback";
        const struct option_entry own[] = {
                {"net", "loopback|lab",
                 "where: addresses of 127.0.0.0/8, or namespaces joined by a bridge (root)", &net},
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
