/* Runs a point of one stream: builds its path, starts both ends, and computes figures from the report. */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "base/util.h"
#include "run/testbed.h"
#include "../run_internal.h"
#include "../settings.h"
#include "run/long_path.h"
#include "softirq_place.h"
#include "stream_ends.h"
#include "stream_figures.h"
#include "stream_files.h"

#define PORT 26900
#define DEVICE "eth0"
/* More than any stream sends. */
#define INPUT_BYTES "1000000000000"
/* The values of `wake` in settings: do not reorder. */
enum { SIGNAL = 1 };
/* The values of `interface`. */
enum { INTERFACE_ANYWHERE, INTERFACE_WITH_RECEIVER, INTERFACE_ELSEWHERE };

/* The processors of threads that are pinned. */
struct places {
        unsigned sender, receiver, interface;
};

/* Its data. */
static double rate_mbps_of(const struct lab_point *p)
{
        return setting_of(p, "rate_mbps", 0);
}

static bool is_from_disk(const struct lab_point *p)
{
        return setting_of(p, "disk", 0) > 0;
}

/* The file lasts for the time of the stream. */
static uint64_t file_bytes_of(const struct lab_point *p)
{
        return (uint64_t)(rate_mbps_of(p) * 1e6 / 8 * setting_of(p, "seconds", 2));
}

/* The path of the stream: the testbed with two nodes, or a long path. */
struct path {
        struct scenario *scenario;
        struct testbed *testbed;
        struct long_path *long_path;
        int sender, receiver; /* namespaces */
};

static void path_fini(struct path *p)
{
        testbed_free(p->testbed);
        long_path_free(p->long_path);
        free(p->scenario);
}

static int make_long_path(struct path *path, const struct lab_point *p)
{
        struct long_path_config config = {
                .delay_ns = (uint64_t)(setting_of(p, "round_trip_ms", 0) * 1e6 / 2),
                .loss = setting_of(p, "loss_percent", 0) / 100,
                .mtu_bytes = (uint32_t)setting_of(p, "mtu", 1500),
        };
        char text[ERROR_TEXT_MAX];
        struct error e = {};
        int r = long_path_new(&path->long_path, &config, &e);

        if (r < 0) {
                log_error("lab: %s", error_format(&e, text));
                return r;
        }
        path->sender = long_path_namespace(path->long_path, false);
        path->receiver = long_path_namespace(path->long_path, true);
        return 0;
}

static int make_path(struct path *path, const struct lab_point *p)
{
        struct scenario *s = path->scenario = calloc(1, sizeof *s);
        int r;

        if (!s)
                return log_error_errno(ENOMEM, "lab: cannot make a testbed: %m");
        if (setting_of(p, "round_trip_ms", 0) > 0)
                return make_long_path(path, p);
        s->network.link_rate_bps = (uint64_t)setting_of(p, "link", 1e9);
        s->network.switch_buffer_bytes = (uint64_t)setting_of(p, "buffer", 262144);
        s->network.mtu_bytes = (uint64_t)setting_of(p, "mtu", 1500);
        s->n_nodes = 2;
        snprintf(s->nodes[0].name, sizeof s->nodes[0].name, "sender");
        snprintf(s->nodes[1].name, sizeof s->nodes[1].name, "receiver");
        r = testbed_new(&path->testbed, s);
        if (r < 0)
                return r;
        path->sender = testbed_node_namespace(path->testbed, "sender");
        path->receiver = testbed_node_namespace(path->testbed, "receiver");
        return 0;
}

/* The first, the second and the last of the processors that this process may use. Returns their number. */
static size_t find_processors(unsigned *first, unsigned *second, unsigned *last)
{
        cpu_set_t set;
        size_t n = 0;

        if (sched_getaffinity(0, sizeof set, &set) < 0)
                return 0;
        for (unsigned i = 0; i < CPU_SETSIZE; i++) {
                if (!CPU_ISSET(i, &set))
                        continue;
                *last = i;
                *second = n < 2 ? i : *second;
                *first = n++ == 0 ? i : *first;
        }
        return n;
}

/* With two processors, the sender shares the one that serves the interface, or the receiver does. */
static bool find_places(const struct lab_point *p, struct places *ret)
{
        unsigned first = 0, second = 0, last = 0;
        size_t n = find_processors(&first, &second, &last);

        *ret = (struct places){.sender = first, .receiver = last, .interface = last};
        if (setting_of(p, "interface", INTERFACE_ANYWHERE) == INTERFACE_ELSEWHERE)
                ret->interface = n > 2 ? second : first;
        return n >= 2;
}

static void add_wake(struct stream_words *w, const struct lab_point *p)
{
        static const char *const names[] = {"futex", "signal", "yield", "poll"};
        unsigned wake = MIN((unsigned)setting_of(p, "wake", 0), (unsigned)ARRAY_SIZE(names) - 1);

        if (wake == SIGNAL)
                stream_words_add(w, "--wake=signal=%.0f", setting_of(p, "every", 100));
        else
                stream_words_add(w, "--wake=%s", names[wake]);
}

/* A file ends the stream by itself. */
static void add_data(struct stream_run *run, const struct lab_point *p, const struct stream_files *files)
{
        const char *kind = setting_of(p, "pattern", 0) > 0 ? "pattern" : "null";
        char path[STREAM_FILES_PATH_MAX];

        if (!is_from_disk(p)) {
                stream_words_add(&run->sender, "--input=%s:" INPUT_BYTES, kind);
                stream_words_add(&run->sender, "--duration=%.0fms", 1e3 * run->seconds);
                stream_words_add(&run->receiver, "--output=%s", kind);
                return;
        }
        stream_files_path(files->input, path);
        stream_words_add(&run->sender, "--input=%s", path);
        stream_files_path(files->output, path);
        stream_words_add(&run->receiver, "--output=%s", path);
        if (setting_of(p, "direct", 0) > 0) {
                stream_words_add(&run->sender, "--direct");
                stream_words_add(&run->receiver, "--direct");
        }
}

/* The receiver wakes its output thread as the point says. A sender's threads always use the default. */
static void make_words(struct stream_run *run, const struct lab_point *p, const char *to,
                       const struct places *at, const struct stream_files *files)
{
        struct stream_words *s = &run->sender, *r = &run->receiver;
        bool pinned = setting_of(p, "pin", 0) > 0, busy = setting_of(p, "busy", 0) > 0;
        double spacing_ns = setting_of(p, "spacing_ns", 0), rate_mbps = rate_mbps_of(p);

        stream_words_add(s, "%s:%d", to, PORT);
        stream_words_add(s, "--packet-size=%.0f", setting_of(p, "packet", 1472));
        if (spacing_ns > 0)
                stream_words_add(s, "--spacing=%.0fns", spacing_ns);
        else
                stream_words_add(s, "--rate=%.0fMbit", rate_mbps);
        stream_words_add(r, "0.0.0.0:%d", PORT);
        stream_words_add(r, "--socket-buffer=%.0f", setting_of(p, "socket", 8 << 20));
        stream_words_add(r, "--json");
        add_data(run, p, files);
        add_wake(r, p);
        if (pinned) {
                stream_words_add(s, "--network-cpus=%u", at->sender);
                stream_words_add(r, "--network-cpus=%u", at->receiver);
        }
        if (busy)
                stream_words_add(r, "--file-cpus=%u", at->receiver);
        run->busy_processor = busy ? (int)at->receiver : -1;
}

static int place_interface(const struct path *path, const struct lab_point *p, const struct places *at)
{
        int r;

        if (setting_of(p, "interface", INTERFACE_ANYWHERE) == INTERFACE_ANYWHERE)
                return 0;
        r = softirq_place(path->receiver, DEVICE, at->interface);
        return r < 0 ? log_error_errno(r, "lab: cannot choose the processor that serves " DEVICE ": %m") : 0;
}

/* What the path did to the packets, as it counted them itself. */
static void add_path(json_t *o, const struct path *path)
{
        struct long_path_counts counts;
        struct testbed_counts at_switch;

        if (path->long_path) {
                long_path_read(path->long_path, &counts);
                json_object_set_new(o, "path_lost_packets", json_integer((json_int_t)counts.lost_packets));
                json_object_set_new(o, "testbed_lost_packets",
                                    json_integer((json_int_t)counts.failed_packets));
        } else if (testbed_read_counts(path->testbed, &at_switch) >= 0) {
                json_object_set_new(o, "switch_packets", json_integer((json_int_t)at_switch.dropped_packets));
                json_object_set_new(o, "testbed_lost_packets",
                                    json_integer((json_int_t)at_switch.lost_packets));
                json_object_set_new(o, "port", json_string(testbed_port_name(&at_switch)));
        }
}

static void add_places(json_t *o, const struct lab_point *p, const struct places *at)
{
        if (setting_of(p, "pin", 0) > 0)
                json_object_set_new(
                        o, "places",
                        json_pack("{s:i, s:i}", "send", (int)at->sender, "receive", (int)at->receiver));
        if (setting_of(p, "interface", INTERFACE_ANYWHERE) != INTERFACE_ANYWHERE)
                json_object_set_new(json_object_get(o, "places"), "interface",
                                    json_integer((json_int_t)at->interface));
}

/* Leaves the disk quiet for the stream. */
static int make_files(struct stream_files *files, const struct lab_point *p)
{
        char text[ERROR_TEXT_MAX];
        struct error e = {};
        int r = 0;

        *files = (struct stream_files){.input = -1, .output = -1};
        if (is_from_disk(p))
                r = stream_files_init(files, file_bytes_of(p), &e);
        if (r < 0 && r != -EINTR)
                log_error("lab: %s", error_format(&e, text));
        if (r >= 0 && setting_of(p, "quiet", 0) > 0)
                sync();
        return r;
}

/* A stream from disk whose output differs from the input, or ends earlier or later, is corrupt. Negative
 * errno. */
static int add_comparison(json_t *o, const struct stream_files *files)
{
        bool same = false;
        int64_t n;

        if (files->input < 0)
                return 0;
        n = stream_files_compare(files, &same);
        if (n < 0)
                return n == -EINTR ? (int)n : log_error_errno((int)n, "lab: cannot compare the files: %m");
        if (!same)
                log_error("lab: the output differs from the input at byte %lld of %llu", (long long)n,
                          (unsigned long long)files->size_bytes);
        json_object_set_new(o, "file_bytes", json_integer((json_int_t)files->size_bytes));
        json_object_set_new(o, "same_bytes", json_integer((json_int_t)n));
        json_object_set_new(o, "corrupt", json_integer(!same));
        return 0;
}

json_t *run_streams(const struct lab_point *p, struct machine_watch *watch)
{
        struct stream_shape shape = {.packet_bytes = setting_of(p, "packet", 1472),
                                     .interval_s = setting_of(p, "interval", 1)};
        struct stream_run run = {.seconds = setting_of(p, "seconds", 2)};
        struct path path = {};
        struct places at = {};
        struct stream_files files;
        json_t *report = NULL, *figures = NULL;
        int r = make_files(&files, p);

        if (r >= 0)
                r = make_path(&path, p);

        if (r >= 0) {
                (void)find_places(p, &at);
                r = place_interface(&path, p, &at);
        }
        if (r >= 0) {
                make_words(&run, p, path.long_path ? LONG_PATH_TO : path.scenario->nodes[1].address, &at,
                           &files);
                run.sender_namespace = path.sender;
                run.receiver_namespace = path.receiver;
                if (path.long_path)
                        machine_watch_add(watch, long_path_process(path.long_path));
                report = stream_ends_run(&run, watch);
        }
        if (report) {
                figures = stream_figures(report, &shape);
                add_path(figures, &path);
                add_places(figures, p, &at);
                if (add_comparison(figures, &files) < 0) {
                        json_decref(figures);
                        figures = NULL;
                }
        }
        json_decref(report);
        stream_files_fini(&files);
        path_fini(&path);
        return figures;
}

bool streams_can_run(const struct lab_point *p, char *lack, size_t size)
{
        struct places at;

        if (setting_of(p, "round_trip_ms", 0) > 0 && !long_path_is_possible()) {
                snprintf(lack, size, "needs TUN devices, which the kernel lacks");
                return false;
        }
        if (setting_of(p, "pin", 0) > 0 && !find_places(p, &at)) {
                snprintf(lack, size, "needs two processors");
                return false;
        }
        return !is_from_disk(p) ||
               stream_files_are_possible(file_bytes_of(p), setting_of(p, "direct", 0) > 0, lack, size);
}
