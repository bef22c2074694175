/* evb check: validates a scenario and prints its effective values. */
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "evb/base/log.h"
#include "evb/base/quantity.h"
#include "evb/base/util.h"
#include "evb/cmd/commands.h"
#include "evb/conf/keys.h"
#include "evb/core/sfi.h"
#include "evb/data/network.h"
#include "evb/net/address.h"
#include "evb/node/node.h"

static void add_key(json_t *object, const struct scenario *s, const struct scenario_key *k)
{
        json_t *section = json_object_get(object, k->section);
        char value[SCENARIO_TEXT_MAX];

        if (!section) {
                section = json_object();
                json_object_set_new(object, k->section, section);
        }
        json_object_set_new(section, k->name, json_string(scenario_key_value(s, k, value, sizeof value)));
}

static bool pulls_by_bytes(const struct scenario *s)
{
        return s->scenario.mode == MODE_PULL && s->scenario.transport == TRANSPORT_UDP &&
               s->sfi.outstanding == SCENARIO_AUTO;
}

/* The limit that each SFI derives; 0: none, or the SFI finds it while it runs. */
static uint64_t in_flight_max_bytes(const struct scenario *s)
{
        struct sfi_config c = {
                .n_ros = (uint32_t)s->ros.count,
                .port_bytes = s->network.switch_buffer_bytes,
                .message_bytes = network_datagram_bytes(s),
        };

        return pulls_by_bytes(s) && s->network.link_rate_bps > 0 ? sfi_in_flight_max_bytes(&c) : 0;
}

/* As a comment, so that the output remains a scenario. */
static void write_derived(const struct scenario *s, FILE *to)
{
        char rate[QUANTITY_TEXT_MAX];

        if (!pulls_by_bytes(s))
                return;
        if (s->network.link_rate_bps == 0) {
                fprintf(to, "# sfi.outstanding = auto: network.link-rate is unlimited, so each SFI finds its "
                            "limit of bytes in flight from losses and latency\n");
                return;
        }
        fprintf(to,
                "# sfi.outstanding = auto: each SFI requests at most %llu bytes before they arrive "
                "(network.switch-buffer less 1/16 or 2 frames, headers included; less if its socket buffer "
                "is smaller), at %s\n",
                (unsigned long long)in_flight_max_bytes(s),
                quantity_format_rate(s->network.link_rate_bps, rate));
}

static void write_json(const struct scenario *s, FILE *to)
{
        uint64_t in_flight = in_flight_max_bytes(s);
        json_t *object = json_object(), *nodes = json_array();

        for (size_t i = 0; i < n_scenario_keys; i++)
                add_key(object, s, &scenario_keys[i]);
        for (size_t i = 0; i < s->n_nodes; i++) {
                const struct scenario_node *n = &s->nodes[i];

                json_array_append_new(nodes, json_pack("{s:s, s:s, s:s, s:s}", "name", n->name, "role",
                                                       scenario_role_name(n->role), "address", n->address,
                                                       "device", n->device));
        }
        json_object_set_new(object, "nodes", nodes);
        json_object_set_new(object, "derived",
                            json_pack("{s:o}", "sfi_in_flight_max_bytes",
                                      in_flight > 0 ? json_integer((json_int_t)in_flight) : json_null()));
        json_dumpf(object, to, JSON_INDENT(1));
        fputc('\n', to);
        json_decref(object);
}

/* Nodes without an address run on this machine, under evb run. */
static bool is_local(const struct scenario_node *n)
{
        struct net_address address;

        return n->address[0] == '\0' ||
               (net_address_parse(&address, n->address, 1) == 0 && net_address_device(&address) > 0);
}

/* Only checks the directory of SFIs on this machine. */
static bool directory_exists(const struct scenario *s)
{
        const char *path = s->sfi.directory;
        struct stat st;
        bool local = false;
        int r;

        for (size_t i = 0; i < s->n_nodes; i++)
                local |= s->nodes[i].role == ROLE_SFI && is_local(&s->nodes[i]);
        if (s->sfi.output != OUTPUT_FILE || !local)
                return true;
        r = stat(path, &st) < 0 ? errno : S_ISDIR(st.st_mode) ? 0 : ENOTDIR;
        if (r > 0) {
                fprintf(stderr, "%s: sfi.directory: %s: %s; expected an existing directory\n", s->path, path,
                        strerror(r));
                return false;
        }
        if (access(path, W_OK | X_OK) < 0)
                fprintf(stderr, "%s: sfi.directory: %s: warning: not writable for this user: %s\n", s->path,
                        path, strerror(errno));
        return true;
}

/* Reports the errors that the start of the node would report. */
static int check_node(const struct scenario *s, const char *name)
{
        struct node_options options = {.scenario = s, .name = name};

        if (!scenario_find(s, name)) {
                fprintf(stderr, "%s: node: unknown node \"%s\"; expected a node of the scenario\n", s->path,
                        name);
                return 2;
        }
        log_open(name, LOG_LEVEL_INFO);
        return node_check(&options);
}

int cmd_check(int argc, char **argv)
{
        static const struct command command = {"check", cmd_check, "FILE",
                                               "Check a scenario and print its effective values."};
        const char *keys = NULL, *man = NULL, *node = NULL, *net = NULL;
        const struct option_entry own[] = {
                {"node", "NAME", "also check whether this node could start on this machine", &node},
                {"net", "loopback|lab", "also check whether evb run --net could start on this machine", &net},
                {"keys", NULL, "list all keys of a scenario, and exit", &keys},
                {"man", NULL, "with --keys: print the source of a manual page", &man},
        };
        _cleanup_free_ struct scenario *s = NULL;
        struct options o;
        FILE *json;
        bool list = false;
        int r;

        for (int i = 1; i < argc; i++)
                list |= strcmp(argv[i], "--keys") == 0;
        r = options_parse(&o, &command, own, ARRAY_SIZE(own), list ? 0 : 1, argc, argv);

        if (r != OPTIONS_GO_ON)
                return r;
        if (list) {
                (man ? scenario_keys_print_man : scenario_keys_print)(stdout);
                return 0;
        }
        s = command_load_and_warn(o.words[0], &o);
        /* With --node or --net, the checks of the start include this one. */
        if (!s || (!node && !net && !directory_exists(s)))
                return 2;
        r = node ? check_node(s, node) : net ? command_may_run(s, net) : 0;
        if (r != 0)
                return r;
        json = options_open_json(&o);
        if (o.json && !json)
                return 2;
        if (json)
                write_json(s, json);
        else {
                scenario_write(s, stdout);
                write_derived(s, stdout);
        }
        return options_close_json(&o, json, 0);
}
