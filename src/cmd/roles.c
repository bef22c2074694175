/* evb ros, evb dfm, evb sfi: runs one node in the foreground, for systemd and `evb run`. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "cmd/commands.h"
#include "node/node.h"
#include "sys/loop.h"

/* Applies log.level, unless the environment or an option sets the level. False: one of them does. */
static bool follow_log_level(const struct scenario *s)
{
        if (getenv("EVB_LOG") || log_level() != LOG_LEVEL_INFO)
                return false;
        log_set_level((enum log_level)s->log.level);
        return true;
}

static int run_role(const struct command *command, enum node_role role, int argc, char **argv)
{
        const char *config = NULL, *name = NULL;
        const struct option_entry own[] = {
                {"config", "FILE", COMMAND_CONFIG_HELP, &config},
                {"node", "NAME", "name of this node in the scenario", &name},
        };
        _cleanup_free_ struct scenario *s = NULL;
        const struct scenario_node *self;
        struct node_options node = {};
        struct node_source source;
        struct options o;
        int r;

        /* A request to reload must not end the node, even if it arrives before the node can reload. Nor must
         * SIGTERM: to systemd, a node that it kills has ended well, but a restarted DFM must end its run. */
        signals_hold_early();
        r = options_parse(&o, command, own, ARRAY_SIZE(own), 0, argc, argv);
        if (r != OPTIONS_GO_ON)
                return r;
        config = command_find_config(command, config);
        if (config && !name)
                fprintf(stderr, "evb %s: missing option; --node NAME is required\n", command->name);
        if (!config || !name)
                return 2;
        log_open(name, LOG_LEVEL_INFO);
        log_set_role(command->name);
        s = command_load(config, &o);
        if (!s)
                return 2;
        source = (struct node_source){s, config, o.settings, o.n_settings, follow_log_level(s)};
        self = scenario_find(s, name);
        if (!self || self->role != role) {
                char nodes[COMMAND_NODES_MAX];

                fprintf(stderr, "%s: node: %s \"%s\"; expected a node with role = %s%s\n", config,
                        self ? "wrong role of node" : "unknown node", name, command->name,
                        command_list_nodes(s, (int)role, nodes));
                return 2;
        }
        node.scenario = s;
        node.source = &source;
        node.name = name;
        node.json = options_open_json(&o);
        if (o.json && !node.json)
                return 2;
        r = node_run(&node);
        return options_close_json(&o, node.json, r);
}

int cmd_ros(int argc, char **argv)
{
        static const struct command command = {
                "ros", cmd_ros, "", "Run a readout system (ROS), which buffers and sends fragments.",
                OPTION_SET | OPTION_JSON};

        return run_role(&command, ROLE_ROS, argc, argv);
}

int cmd_dfm(int argc, char **argv)
{
        static const struct command command = {
                "dfm", cmd_dfm, "",
                "Run the data flow manager (DFM), which accepts triggers and assigns events.",
                OPTION_SET | OPTION_JSON};

        return run_role(&command, ROLE_DFM, argc, argv);
}

int cmd_sfi(int argc, char **argv)
{
        static const struct command command = {
                "sfi", cmd_sfi, "",
                "Run a builder (SFI), which collects fragments, builds events and writes them.",
                OPTION_SET | OPTION_JSON};

        return run_role(&command, ROLE_SFI, argc, argv);
}
