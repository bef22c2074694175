/* evb check: a scenario file, read and shown as it is understood. */
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "evb/base/log.h"
#include "evb/base/util.h"
#include "evb/cmd/commands.h"
#include "evb/conf/keys.h"
#include "evb/net/address.h"
#include "evb/node/node.h"

struct scenario *command_load(const char *path, const struct options *o)
{
        _cleanup_free_ struct scenario *s = malloc(sizeof *s);
        _cleanup_free_ struct scenario_errors *errors = malloc(sizeof *errors);
        int r;

        if (!s || !errors) {
                fprintf(stderr, "evb: out of memory\n");
                return NULL;
        }
        r = scenario_load(s, path, o->settings, o->n_settings, errors);
        if (r == 0)
                return take_ptr(s);
        if (r != -EINVAL)
                fprintf(stderr, "%s: %s\n", path, strerror(-r));
        else
                for (size_t i = 0; i < MIN(errors->n, (size_t)SCENARIO_ERRORS_MAX); i++)
                        fprintf(stderr, "%s\n", errors->text[i]);
        if (r == -EINVAL && errors->n > SCENARIO_ERRORS_MAX)
                fprintf(stderr, "%s: and %zu more\n", path, errors->n - SCENARIO_ERRORS_MAX);
        return NULL;
}

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

static void write_json(const struct scenario *s, FILE *to)
{
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
        json_dumpf(object, to, JSON_INDENT(1));
        fputc('\n', to);
        json_decref(object);
}

/* Nodes without an address belong to evb run, on this machine. */
static bool is_here(const struct scenario_node *n)
{
        struct net_address address;

        return n->address[0] == '\0' ||
               (net_address_parse(&address, n->address, 1) == 0 && net_address_device(&address) > 0);
}

/* The directory of an SFI on this machine. Those of other machines cannot be seen from here. */
static bool directory_is_there(const struct scenario *s)
{
        const char *path = s->sfi.directory;
        struct stat st;
        bool here = false;
        int r;

        for (size_t i = 0; i < s->n_nodes; i++)
                here |= s->nodes[i].role == ROLE_SFI && is_here(&s->nodes[i]);
        if (s->sfi.output != OUTPUT_FILE || !here)
                return true;
        r = stat(path, &st) < 0 ? errno : S_ISDIR(st.st_mode) ? 0 : ENOTDIR;
        if (r > 0) {
                fprintf(stderr, "%s: sfi.directory: %s: %s, allowed: a directory that exists\n", s->path,
                        path, strerror(r));
                return false;
        }
        if (access(path, W_OK | X_OK) < 0)
                fprintf(stderr, "%s: sfi.directory: %s: warning: this user cannot write there: %s\n", s->path,
                        path, strerror(errno));
        return true;
}

/* Refuses what the node's start would refuse, in the same words. */
static int check_node(const struct scenario *s, const char *name)
{
        struct node_options options = {.scenario = s, .name = name};

        if (!scenario_find(s, name)) {
                fprintf(stderr, "%s: node: \"%s\" is unknown, allowed: a node of the scenario\n", s->path,
                        name);
                return 2;
        }
        log_open(name, LOG_LEVEL_INFO);
        return node_check(&options);
}

int cmd_check(int argc, char **argv)
{
        static const struct command command = {"check", cmd_check, "FILE",
                                               "Read a scenario and show its effective values; with "
                                               "--node or --net, check this machine as well."};
        const char *keys = NULL, *man = NULL, *node = NULL, *net = NULL;
        const struct option_entry own[] = {
                {"node", "NAME", "check this machine too: whether this node would start here", &node},
                {"net", "loopback|lab", "check this machine too: whether evb run --net would start", &net},
                {"keys", NULL, "instead, list all keys with their meaning", &keys},
                {"man", NULL, "with --keys: as the source of a manual page", &man},
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
        s = command_load(o.words[0], &o);
        /* With --node or --net the start itself finds and reports errors. */
        if (!s || (!node && !net && !directory_is_there(s)))
                return 2;
        r = node ? check_node(s, node) : net ? command_may_run(s, net) : 0;
        if (r != 0)
                return r;
        json = options_open_json(&o);
        if (o.json && !json)
                return 2;
        if (json)
                write_json(s, json);
        else
                scenario_write(s, stdout);
        return options_close_json(&o, json, 0);
}
