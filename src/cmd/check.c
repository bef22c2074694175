/* evb check: validates a scenario and prints its effective values. */
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/json.h"
#include "base/log.h"
#include "base/quantity.h"
#include "base/util.h"
#include "cmd/commands.h"
#include "conf/keys.h"
#include "conf/scenario.h"
#include "core/sfi.h"
#include "data/event_encoder.h"
#include "data/network.h"
#include "data/fragment_source.h"
#include "net/address.h"
#include "node/metrics/statuses.h"
#include "node/metrics/openmetrics.h"
#include "node/node.h"
#include "shape/kernel/device.h"

/* Directory to which the unit of an SFI may write, in addition to its runtime directory. */
#define UNIT_DIRECTORY "/var/lib/evb"

/* Null without network.link-rate, because there is no bound. */
static json_t *bound(const struct scenario *s, enum node_role role)
{
        uint64_t bps = network_control_bound_bps(s, role);

        return json_count_if(bps > 0, bps);
}

static void add_control(json_t *object, const struct scenario *s)
{
        struct budget_plan p = network_control_plan(s);
        json_t *control = json_pack("{s:o, s:o, s:o}", "sfi_port_bps", bound(s, ROLE_SFI), "ros_port_bps",
                                    bound(s, ROLE_ROS), "dfm_port_bps", bound(s, ROLE_DFM));
        char reason[SCENARIO_TEXT_MAX];

        if (p.share_bps > 0) {
                network_control_reason(s, &p, reason, sizeof reason);
                json_object_set_new(control, "reason", json_string(reason));
        }
        json_object_set_new(object, "control", control);
        json_object_set_new(object, "regions_rate_bps",
                            json_count_if(network_regions_rate_bps(s) > 0, network_regions_rate_bps(s)));
}

static void write_control(const struct scenario *s)
{
        struct budget_plan p = network_control_plan(s);
        char reason[SCENARIO_TEXT_MAX], a[QUANTITY_TEXT_MAX], b[QUANTITY_TEXT_MAX];

        if (p.share_bps == 0) {
                puts("\n# Control messages have no bound. Set network.link-rate to the rate of your links to "
                     "see one.");
                return;
        }
        network_control_reason(s, &p, reason, sizeof reason);
        printf("\n# Control messages, with all headers, at any trigger rate:\n"
               "#   into the port of an SFI  at most %s (%s)\n",
               quantity_format_rate(p.share_bps, a), reason);
        printf("#   into the port of a ROS   at most %s from the DFM and %s from each SFI\n",
               quantity_format_rate(p.announce_bps, a), quantity_format_rate(p.request_bps, b));
        printf("#   into the port of the DFM at most %s from each SFI and %s from each ROS\n",
               quantity_format_rate(p.update_bps, a), quantity_format_rate(p.alive_bps, b));
}

static void write_regions(const struct scenario *s)
{
        uint64_t each_bps = network_regions_rate_bps(s), all_bps = s->ros.count * each_bps;
        char a[QUANTITY_TEXT_MAX], b[QUANTITY_TEXT_MAX];

        if (s->level2.regions_port == 0)
                return;
        printf("# Regions of interest, with all headers: each ROS sends at most %s to all level-2 clients, "
               "and all ROSs at most %s\n",
               quantity_format_rate(each_bps, a), quantity_format_rate(all_bps, b));
        if (s->network.link_rate_bps > 0 && all_bps > s->network.link_rate_bps)
                puts("# to one client. This exceeds its port, so TCP shares the port among the ROSs.");
}

static bool pulls_by_bytes(const struct scenario *s)
{
        return s->scenario.mode == MODE_PULL && s->scenario.transport == TRANSPORT_UDP &&
               s->sfi.outstanding == SCENARIO_AUTO;
}

/* Returns the limit that each SFI derives; 0: there is none, or the SFI determines it at run time. */
static uint64_t in_flight_max_bytes(const struct scenario *s)
{
        struct sfi_config c = {
                .n_ros = (uint32_t)s->ros.count,
                .port_bytes = s->network.switch_buffer_bytes,
                .message_bytes = network_message_bytes(s),
                .trailer_bytes = network_trailer_bytes(s),
                .frame_overhead_bytes = network_header_bytes(s) + network_overhead_bytes(s),
        };

        return pulls_by_bytes(s) && s->network.link_rate_bps > 0 ? sfi_in_flight_max_bytes(&c) : 0;
}

/* Writes the limit as a comment, so that the output remains a scenario. */
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

static json_t *to_json(const struct scenario *s)
{
        uint64_t in_flight = in_flight_max_bytes(s);
        json_t *object = scenario_to_json(s);

        add_control(object, s);
        json_object_set_new(
                object, "derived",
                json_pack("{s:o}", "sfi_in_flight_max_bytes", json_count_if(in_flight > 0, in_flight)));
        return object;
}

/* Nodes without an address run on this machine, under evb run. */
static bool is_local(const struct scenario_node *n)
{
        struct net_address address;

        return n->address[0] == '\0' ||
               (net_address_parse(&address, n->address, 1) == 0 && net_address_device(&address) > 0);
}

/* Checks the directory only for SFIs on this machine. */
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

/* If the file has enough sources for a later ROS, it also has one for this ROS. */
static bool later_decides(const struct scenario *s, const struct scenario_node *n)
{
        for (const struct scenario_node *later = n + 1; later < s->nodes + s->n_nodes; later++) {
                if (later->role == ROLE_ROS && later->source_kind == SOURCE_FILE && is_local(later) &&
                    n->source_id == SCENARIO_AUTO && later->source_id == SCENARIO_AUTO &&
                    strcmp(later->source_at, n->source_at) == 0)
                        return true;
        }
        return false;
}

/* Opens the files that ROSs on this machine replay, as the ROSs do when they start. */
static bool sources_are_usable(const struct scenario *s)
{
        char text[ERROR_TEXT_MAX], key[64];
        struct error shared = {};
        bool has_events = s->sfi.output != OUTPUT_NULL || strcmp(s->live.listen, "none") != 0, usable = true;

        for (const struct scenario_node *n = s->nodes; n < s->nodes + s->n_nodes; n++) {
                struct source *source = NULL;
                struct error e = {.message = "out of memory"};

                if (n->role != ROLE_ROS || n->source_kind != SOURCE_FILE || !is_local(n) ||
                    later_decides(s, n))
                        continue;
                if (source_new_file(&source, scenario_rank_in_file(s, n), n->source_id,
                                    scenario_replayed_file(s), n->source_at, &e) < 0) {
                        snprintf(key, sizeof key, n->has_source ? "node %s.source" : "ros.source", n->name);
                        fprintf(stderr, "%s: %s: %s\n", s->path, key, error_format(&e, text));
                        usable = false;
                }
                source_free(source);
        }
        if (usable && has_events && event_encoder_check(s, &shared) < 0) {
                fprintf(stderr, "%s: %s\n", s->path, error_format(&shared, text));
                usable = false;
        }
        return usable;
}

/* This is only a warning, because this process does not run in the unit's sandbox, and a drop-in may permit
 * more directories. */
static void warn_of_sandbox(const struct scenario *s, const struct scenario_node *n)
{
        size_t length = strlen(UNIT_DIRECTORY);
        const char *path = s->sfi.directory;

        if (n->role != ROLE_SFI || s->sfi.output != OUTPUT_FILE || strcmp(s->path, COMMAND_CONFIG) != 0 ||
            (strncmp(path, UNIT_DIRECTORY, length) == 0 && (path[length] == '/' || path[length] == '\0')))
                return;
        fprintf(stderr,
                "%s: sfi.directory: %s: warning: the unit evb-sfi@%s may write only below " UNIT_DIRECTORY
                ", unless a drop-in has ReadWritePaths=%s. This check does not see that\n",
                s->path, path, n->name, path);
}

/* What the device of the node counts explains low rates and losses, but hinders no start. */
static void warn_of_port(const struct scenario *s, const struct scenario_node *n)
{
        char name[IF_NAMESIZE], text[TC_PORT_TEXT_MAX] = "";
        struct strbuf what = strbuf_init(text, sizeof text);
        struct tc_device d;
        struct tc_port p;

        snprintf(name, sizeof name, "%.*s", IF_NAMESIZE - 1, n->device);
        if ((!name[0] && tc_device_of_address(n->address, name) < 0) || tc_device_read(&d, name) < 0)
                return;
        tc_port_read(&p, &d);
        tc_port_explain(&p, name, &what);
        if (text[0])
                fprintf(stderr, "%s: node %s: warning: %s\n", s->path, n->name, text);
}

/* Reports the errors that the node would report at its start. */
static int check_node(const struct scenario *s, const char *name)
{
        struct node_options options = {.scenario = s, .name = name};

        if (!scenario_find(s, name)) {
                char nodes[COMMAND_NODES_MAX];

                fprintf(stderr, "%s: node: unknown node \"%s\"; expected a node of the scenario%s\n", s->path,
                        name, command_list_nodes(s, -1, nodes));
                return 2;
        }
        log_open(name, LOG_LEVEL_INFO);
        warn_of_sandbox(s, scenario_find(s, name));
        warn_of_port(s, scenario_find(s, name));
        return node_check(&options);
}

/* ---- The network ---- */

/* Two requests for the states, with the pause between them, take at most 5 s. */
#define LOOK_NS (1500 * NS_PER_MS)
#define PAUSE_NS (800 * NS_PER_MS)

static json_t *look_at_network(struct statuses *all)
{
        return statuses_ask(all, LOOK_NS) < 0 ? NULL : network_check_faults(all);
}

static void write_faults(const struct scenario *s, const json_t *faults)
{
        const json_t *each;
        size_t i;

        json_array_foreach(faults, i, each)
        {
                printf("%s: %s\n  mend: %s\n", json_string_value(json_object_get(each, "node")),
                       json_string_value(json_object_get(each, "fault")),
                       json_string_value(json_object_get(each, "command")));
        }
        if (json_array_size(faults) == 0)
                printf("%zu nodes of %s answer, and have no fault\n", s->n_nodes, s->scenario.name);
        fflush(stdout);
        if (json_array_size(faults) > 0)
                fprintf(stderr, "evb check: the network of %s has %zu fault%s\n", s->scenario.name,
                        json_array_size(faults), json_array_size(faults) == 1 ? "" : "s");
}

/* A node that has just started exchanges no messages for a moment, so only a persistent fault counts. */
static int check_network(const struct options *o, const struct scenario *s)
{
        json_t *faults;
        struct statuses all;
        struct error e = {};
        char text[ERROR_TEXT_MAX];
        int status;

        if (statuses_init(&all, s, &e) < 0) {
                fprintf(stderr, "%s\n", error_format(&e, text));
                return e.code == -EINVAL ? 2 : 1;
        }
        faults = look_at_network(&all);
        if (json_array_size(faults) > 0) {
                nanosleep(&(struct timespec){.tv_nsec = (long)PAUSE_NS}, NULL);
                json_decref(faults);
                faults = look_at_network(&all);
        }
        status = faults && json_array_size(faults) == 0 ? 0 : 1;
        if (o->json)
                status = options_write_json(o,
                                            json_pack("{s:s, s:I, s:o}", "scenario", s->scenario.name,
                                                      "nodes", (json_int_t)s->n_nodes, "faults",
                                                      faults ?: json_array()),
                                            status);
        else {
                write_faults(s, faults);
                json_decref(faults);
        }
        statuses_fini(&all);
        return status;
}

/* Prints a list instead of a check. */
static int print_list(const char *metrics, const char *man)
{
        int r = 0;

        if (metrics)
                r = (man ? metrics_list_print_man : metrics_list_print)(stdout);
        else
                (man ? scenario_keys_print_man : scenario_keys_print)(stdout);
        return r < 0 ? 1 : 0;
}

int cmd_check(int argc, char **argv)
{
        static const struct command command = {"check", cmd_check, "[FILE]",
                                               "Check a scenario and print its effective values.",
                                               OPTION_SET | OPTION_JSON};
        const char *path = NULL, *keys = NULL, *man = NULL, *node = NULL, *net = NULL, *metrics = NULL,
                   *network = NULL;
        const struct option_entry own[] = {
                {"config", "FILE", COMMAND_CONFIG_HELP, &path},
                {"node", "NAME", "also check whether this node could start on this machine", &node},
                {"net", "loopback|lab", "also check whether evb run --net could start on this machine", &net},
                {"network", NULL, "check the network of the running nodes, and their clocks and versions",
                 &network},
                {"keys", NULL, "list all keys of a scenario, and exit", &keys},
                {"metrics", NULL, "list all metrics of nodes, and exit", &metrics},
                {"man", NULL, "with --keys or --metrics: print the source of a manual page", &man},
        };
        _cleanup_free_ struct scenario *s = NULL;
        struct options o;
        bool list = false;
        int r;

        for (int i = 1; i < argc; i++)
                list |= strcmp(argv[i], "--keys") == 0 || strcmp(argv[i], "--metrics") == 0;
        r = options_parse(&o, &command, own, ARRAY_SIZE(own), list ? 0 : OPTIONS_SCENARIO, argc, argv);

        if (r != OPTIONS_GO_ON)
                return r;
        if (list)
                return print_list(metrics, man);
        path = command_find_config(&command, path);
        s = path ? command_load(path, &o) : NULL;
        if (s && network)
                return check_network(&o, s);
        /* With --node or --net, the checks of the node's start include this check. */
        if (!s || (!node && !net && !directory_exists(s)))
                return 2;
        r = node ? check_node(s, node) : net ? command_may_run(s, net) : 0;
        if (r == 0 && !node && !sources_are_usable(s))
                r = 2;
        if (r != 0)
                return r;
        if (o.json)
                return options_write_json(&o, to_json(s), 0);
        scenario_write(s, stdout);
        write_derived(s, stdout);
        write_control(s);
        write_regions(s);
        return 0;
}
