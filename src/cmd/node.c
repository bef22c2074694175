/* evb ros, evb dfm, evb sfi: one node in the foreground, as systemd and `evb run` start it, for one run or
 * for whatever `evb lab` orders. */
#include <stdlib.h>
#include <string.h>

#include "evb/base/log.h"
#include "evb/base/util.h"
#include "evb/cmd/commands.h"
#include "evb/node/node.h"
#include "evb/remote/standby.h"

static int run_role(const struct command *command, enum node_role role, int argc, char **argv)
{
        const char *config = NULL, *name = NULL, *standby = NULL;
        const struct option_entry own[] = {
                {"config", "FILE", "the scenario", &config},
                {"node", "NAME", "which of its nodes this is", &name},
                {"standby", NULL, "make the runs that evb lab run --scenario orders, until stopped",
                 &standby},
        };
        _cleanup_free_ struct scenario *s = NULL;
        const struct scenario_node *self;
        struct node_options node = {};
        struct options o;
        int r = options_parse(&o, command, own, ARRAY_SIZE(own), 0, argc, argv);

        if (r != OPTIONS_GO_ON)
                return r;
        if (!config || !name) {
                fprintf(stderr, "evb %s: --config FILE and --node NAME are both needed\n", command->name);
                return 2;
        }
        log_open(name, LOG_LEVEL_INFO);
        s = command_load(config, &o);
        if (!s)
                return 2;
        self = scenario_find(s, name);
        if (!self || self->role != role) {
                fprintf(stderr, "%s: node: \"%s\" is %s, allowed: a node whose role is %s\n", config, name,
                        self ? "of another role" : "unknown", command->name);
                return 2;
        }
        if (standby) {
                struct standby_options by = {.scenario = s,
                                             .name = name,
                                             .config = config,
                                             .settings = o.settings,
                                             .n_settings = o.n_settings};

                return standby_run(&by);
        }
        node.scenario = s;
        node.name = name;
        node.json = options_open_json(&o);
        if (o.json && !node.json)
                return 2;
        r = node_run(&node);
        return options_close_json(&o, node.json, r);
}

int cmd_ros(int argc, char **argv)
{
        static const struct command command = {"ros", cmd_ros, "",
                                               "Run one readout (ROS): hold fragments and send them."};

        return run_role(&command, ROLE_ROS, argc, argv);
}

int cmd_dfm(int argc, char **argv)
{
        static const struct command command = {
                "dfm", cmd_dfm, "", "Run the data flow manager (DFM): take triggers, assign events."};

        return run_role(&command, ROLE_DFM, argc, argv);
}

int cmd_sfi(int argc, char **argv)
{
        static const struct command command = {
                "sfi", cmd_sfi, "", "Run one builder (SFI): collect fragments, build and write events."};

        return run_role(&command, ROLE_SFI, argc, argv);
}
