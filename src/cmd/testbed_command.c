/* evb testbed: builds the network of a scenario, or a long path, keeps it while its standard input is open,
 * and reports what happened to packets in it. Other programs run in its namespaces; evb.lab measures streams
 * and flows in this way. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/log.h"
#include "base/quantity.h"
#include "base/util.h"
#include "cmd/commands.h"
#include "conf/scenario.h"
#include "run/long_path.h"
#include "run/summary.h"
#include "run/testbed.h"
#include "sys/loop.h"
#include "sys/thread.h"

#define NAME "evb testbed"
#define LOOK_MS 50
#define DEVICE "eth0"

struct bed {
        struct scenario *scenario;
        struct long_path_config config;
        struct testbed *testbed;
        struct long_path *path;
        struct machine_watch *watch;
        bool active;
        char line[64]; /* current line of standard input */
        size_t length;
};

static json_t *node(const char *name, const char *address)
{
        char namespace[64];

        snprintf(namespace, sizeof namespace, "evb-%d-%s", (int)getpid(), name);
        return json_pack("{s:s, s:s, s:s, s:s}", "name", name, "address", address, "device", DEVICE,
                         "namespace", namespace);
}

static void print_line(json_t *o)
{
        json_dumpf(o, stdout, JSON_COMPACT | JSON_REAL_PRECISION(12));
        json_decref(o);
        putchar('\n');
        fflush(stdout);
}

/* Prints the namespaces, as soon as programs can start in them. */
static void print_nodes(const struct bed *b)
{
        const struct scenario *s = b->scenario;
        json_t *nodes = json_array();

        if (b->path) {
                json_array_append_new(nodes, node("sender", LONG_PATH_FROM));
                json_array_append_new(nodes, node("receiver", LONG_PATH_TO));
        }
        for (size_t i = 0; !b->path && i < s->n_nodes; i++)
                json_array_append_new(nodes, node(s->nodes[i].name, s->nodes[i].address));
        print_line(json_pack("{s:o}", "nodes", nodes));
}

static json_t *report(struct bed *b)
{
        json_t *o =
                json_pack("{s:n, s:n, s:n, s:n, s:o}", "port", "switch_packets", "path_lost_packets",
                          "testbed_lost_packets", "machine", machine_report(b->watch, priority_may_raise()));
        struct long_path_counts lost;
        struct testbed_counts counts;

        if (b->path) {
                long_path_read(b->path, &lost);
                json_put_count(o, "path_lost_packets", lost.lost_packets);
                json_put_count(o, "testbed_lost_packets", lost.failed_packets);
        } else if (testbed_read_counts(b->testbed, &counts) >= 0) {
                json_object_set_new(o, "port", json_string(testbed_port_name(&counts)));
                json_put_count(o, "switch_packets", counts.dropped_packets);
                json_put_count(o, "testbed_lost_packets", counts.lost_packets);
        }
        return o;
}

static void obey(struct bed *b, const char *line)
{
        char *end;
        long pid = strncmp(line, "watch ", 6) == 0 ? strtol(line + 6, &end, 10) : 0;

        if (pid > 0 && !*end)
                machine_watch_add(b->watch, (pid_t)pid);
        else if (strcmp(line, "begin") == 0)
                b->active = true;
        else if (strcmp(line, "end") == 0) {
                /* The time since the last look counts. */
                machine_watch_turn(b->watch, clock_now_ns(), b->active);
                b->active = false;
        } else
                log_warning("unknown command \"%s\"; expected watch PID, begin or end", line);
        machine_watch_turn(b->watch, clock_now_ns(), b->active);
}

/* Returns false at the end of standard input. */
static bool read_commands(struct bed *b)
{
        char bytes[256];
        ssize_t n = read(STDIN_FILENO, bytes, sizeof bytes);

        for (ssize_t i = 0; i < n; i++) {
                if (bytes[i] == '\n') {
                        b->line[b->length] = '\0';
                        obey(b, b->line);
                        b->length = 0;
                } else if (b->length < sizeof b->line - 1)
                        b->line[b->length++] = bytes[i];
        }
        return n > 0 || (n < 0 && (errno == EINTR || errno == EAGAIN));
}

static void serve(struct bed *b)
{
        struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};

        while (!signals_are_waiting()) {
                int n = poll(&input, 1, LOOK_MS);

                if (n > 0 && !read_commands(b))
                        break;
                machine_watch_turn(b->watch, clock_now_ns(), b->active);
        }
        machine_watch_turn(b->watch, clock_now_ns(), false);
}

static int build(struct bed *b)
{
        char text[ERROR_TEXT_MAX];
        struct error e = {};
        int r;

        if (b->config.delay_ns == 0)
                return testbed_new(&b->testbed, b->scenario);
        if (!long_path_is_possible()) {
                log_error("cannot make a long path: the kernel has no TUN devices (/dev/net/tun)");
                return -EPERM;
        }
        b->config.mtu_bytes = (uint32_t)scenario_mtu_bytes(b->scenario);
        r = long_path_new(&b->path, &b->config, &e);
        if (r < 0)
                log_error("%s", error_format(&e, text));
        else
                machine_watch_add(b->watch, long_path_process(b->path));
        return r;
}

/* Returns an exit status. */
static int keep(struct bed *b)
{
        int r;

        /* A killed process would leave namespaces behind. */
        signals_hold();
        r = machine_watch_new(&b->watch);
        if (r < 0)
                log_warning_errno(r, "cannot watch the machine: %m");
        r = build(b);
        if (r >= 0) {
                (void)priority_attend();
                print_nodes(b);
                serve(b);
                print_line(report(b));
                r = 0;
        } else
                r = r == -EPERM || r == -EACCES ? 77 : r == -EINVAL ? 2 : 1;
        long_path_free(b->path);
        testbed_free(b->testbed);
        machine_watch_free(b->watch);
        return r;
}

int cmd_testbed(int argc, char **argv)
{
        static const struct command command = {
                "testbed", cmd_testbed, "[FILE]",
                "Build the network of a scenario, for other programs, until standard input closes.",
                OPTION_SET};
        const char *path = NULL, *loss = NULL;
        uint64_t round_trip_ns = 0;
        struct bed b = {};
        const struct option_entry own[] = {
                {"config", "FILE", COMMAND_CONFIG_HELP, &path},
                {"round-trip", "TIME", "instead, a path from sender to receiver with this round trip",
                 OPTION_NUMBER(quantity_parse_time, &round_trip_ns, 2, UINT64_MAX, "a time, e.g. 100ms")},
                {"fault", "NAME=VALUE", "fault of this path"},
                {"loss", "FRACTION", "share of the UDP packets to the receiver that the path loses", &loss,
                 .part_of = "fault", OPTION_FRACTION(&b.config.loss, "a fraction, e.g. 0.001")},
        };
        struct options o;
        int r = options_parse(&o, &command, own, ARRAY_SIZE(own), OPTIONS_SCENARIO, argc, argv);

        if (r != OPTIONS_GO_ON)
                return r;
        if (loss && round_trip_ns == 0) {
                fprintf(stderr, NAME ": --fault loss needs --round-trip\n");
                return 2;
        }
        b.config.delay_ns = round_trip_ns / 2;
        path = command_find_config(&command, path);
        b.scenario = path ? command_load(path, &o) : NULL;
        if (!b.scenario)
                return 2;
        r = keep(&b);
        free(b.scenario);
        return r;
}
