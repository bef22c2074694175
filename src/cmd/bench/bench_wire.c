/* evb bench wire: measures the rate at which the kernel alone carries UDP super-packets over one link without
 * a rate limit, from one sender to one receiver that do nothing else. No event builder on this machine can
 * exceed this rate. */
#include "bench.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/quantity.h"
#include "base/util.h"
#include "run/testbed.h"
#include "stream/stream.h"
#include "sys/loop.h"
#include "sys/thread.h"

#define NAME "bench wire"
#define ROUNDS_MAX 9
#define DURATION_LEAST_NS (50 * NS_PER_MS)
#define DURATION_MOST_NS (60 * NS_PER_S)
#define SIZES_MAX 16
#define PORT 26900
/* Number of messages per super-packet, and maximum time until the receiver listens. */
#define BATCH 64u
#define WAIT_NS (10 * NS_PER_S)
#define LOOK_NS (20 * NS_PER_MS)
#define SOCKET_BUFFER_BYTES (8u << 20)
/* The kernel refuses to segment packets for a device whose MTU is smaller. */
#define IP_UDP_HEADER_BYTES 28u
#define MTU_LEAST_BYTES 576u
#define MTU_MOST_BYTES 65535u

struct bench_options {
        struct options common;
        const char *sizes;
        unsigned size_bytes[SIZES_MAX];
        size_t n_sizes;
        uint64_t mtu_bytes, n_rounds, duration_ns;
};

/* One measurement of one size. */
struct attempt {
        const struct bench_options *options;
        unsigned size_bytes;
};

static double per(double value, double n)
{
        return n > 0 ? value / n : 0;
}

/* One end of the stream, in a separate process. */
struct end {
        pid_t pid; /* 0: it has ended */
        int report_fd;
};

static double number(const json_t *figures, const char *key)
{
        return json_number_value(json_object_get(figures, key));
}

static json_t *describe(const struct attempt *a, const json_t *report)
{
        const json_t *sender = json_object_get(report, "measured"), *peer = json_object_get(report, "peer"),
                     *receiver = json_object_get(peer, "measured");
        double sent = number(sender, "packets"), received = number(receiver, "packets"),
               seconds = number(sender, "seconds");

        return json_pack("{s:i, s:f, s:I, s:I, s:f, s:f, s:f, s:f, s:f}", "datagram_bytes",
                         (int)a->size_bytes, "seconds", seconds, "sent_packets", (json_int_t)sent,
                         "received_packets", (json_int_t)received, "lost_percent",
                         100 * per(sent - received, sent), "throughput_bytes_per_second",
                         per(number(receiver, "bytes"), seconds), "datagrams_per_second",
                         per(received, seconds), "sender_ns_per_datagram",
                         per(number(sender, "cpu_seconds") * 1e9, sent), "receiver_ns_per_datagram",
                         per(number(receiver, "cpu_seconds") * 1e9, received));
}

static int run_stream(const struct attempt *a, const char *to, bool sends, json_t **ret)
{
        const struct stream_options common = {
                .ring_bytes = 1u << 20, .socket_buffer_bytes = SOCKET_BUFFER_BYTES, .wake = {WAKE_FUTEX, 0}};
        struct stream_receive_config receive = {.common = common, .output = "null"};
        struct stream_send_config send = {
                .common = common,
                .n_receivers = 1,
                .format = STREAM_RAW,
                .full_speed = true,
                .batch = BATCH,
                .packet_bytes = a->size_bytes,
                .duration_ns = a->options->duration_ns,
                .wait_ns = WAIT_NS,
        };

        if (net_address_parse(&receive.at, to, PORT) < 0)
                return -EINVAL;
        send.at[0] = receive.at;
        return sends ? stream_send(&send, ret) : stream_receive(&receive, ret);
}

/* Losses are a figure of the result, so the warnings of the stream are discarded. */
static _Noreturn void become_end(const struct attempt *a, int namespace, const char *to, bool sends,
                                 int report_fd, pid_t parent)
{
        int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
        json_t *report = NULL;

        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent || nowhere < 0 || netns_enter(namespace) < 0)
                _exit(1);
        (void)priority_raise();
        (void)dup2(nowhere, STDERR_FILENO);
        (void)run_stream(a, to, sends, &report);
        _exit(!report || json_dumpfd(report, report_fd, JSON_COMPACT) < 0);
}

static int start_end(struct end *e, const struct attempt *a, int namespace, const char *to, bool sends,
                     struct machine_watch *watch)
{
        pid_t self = getpid();

        e->report_fd = memfd_create("evb-report", MFD_CLOEXEC);
        e->pid = e->report_fd < 0 ? -1 : fork();
        if (e->pid == 0)
                become_end(a, namespace, to, sends, e->report_fd, self);
        if (e->pid < 0) {
                e->pid = 0;
                return -errno;
        }
        machine_watch_add(watch, e->pid);
        return 0;
}

/* Waits until both ends have ended, or a signal arrives. */
static int follow(struct end ends[static 2], struct machine_watch *watch)
{
        int r = 0;

        while (ends[0].pid > 0 || ends[1].pid > 0) {
                machine_watch_turn(watch, clock_now_ns(), true);
                if (signals_are_waiting()) {
                        r = -EINTR;
                        break;
                }
                nanosleep(&(struct timespec){.tv_nsec = LOOK_NS}, NULL);
                for (unsigned i = 0; i < 2; i++) {
                        if (ends[i].pid > 0 && waitpid(ends[i].pid, NULL, WNOHANG) == ends[i].pid)
                                ends[i].pid = 0;
                }
        }
        machine_watch_turn(watch, clock_now_ns(), false);
        return r;
}

static void end_fini(struct end *e)
{
        if (e->pid > 0) {
                kill(e->pid, SIGKILL);
                waitpid(e->pid, NULL, 0);
        }
        if (e->report_fd > 0)
                close(e->report_fd);
}

static json_t *read_report(const struct end *e)
{
        json_t *report = lseek(e->report_fd, 0, SEEK_SET) < 0 ? NULL : json_loadfd(e->report_fd, 0, NULL);
        const char *reason = json_string_value(json_object_get(report, "reason"));

        if (!reason && json_is_object(json_object_get(report, "peer")))
                return report;
        log_error("evb " NAME ": the stream failed: %s", reason ?: "an end did not report");
        json_decref(report);
        return NULL;
}

/* Sends from one namespace to the other. Returns NULL after logging the error. */
static json_t *measure(const struct attempt *a, struct machine_watch *watch)
{
        _cleanup_free_ struct scenario *s = calloc(1, sizeof *s);
        struct testbed *testbed = NULL;
        struct end ends[2] = {};
        json_t *report = NULL, *figures = NULL;
        int r;

        if (!s) {
                log_error_errno(ENOMEM, "evb " NAME ": %m");
                return NULL;
        }
        s->ros.count = s->sfi.count = 1;
        s->network.link_rate_bps = SCENARIO_UNLIMITED;
        s->network.mtu_bytes = a->options->mtu_bytes;
        s->n_nodes = 2;
        strcpy(s->nodes[0].name, "sender");
        strcpy(s->nodes[1].name, "receiver");
        r = testbed_new(&testbed, s);
        /* The testbed sets the addresses. */
        for (unsigned i = 0; r >= 0 && i < 2; i++)
                r = start_end(&ends[i], a, testbed_node_namespace(testbed, s->nodes[i].name),
                              s->nodes[1].address, i == 0, watch);
        if (r >= 0)
                r = follow(ends, watch);
        if (r >= 0)
                report = read_report(&ends[0]);
        if (report)
                figures = describe(a, report);
        json_decref(report);
        for (unsigned i = 0; i < 2; i++)
                end_fini(&ends[i]);
        testbed_free(testbed);
        return figures;
}

/* Makes one measurement, and records other activity of the machine. */
static json_t *watch_one(const struct attempt *a)
{
        struct machine_watch *watch = NULL;
        struct machine_view view;
        bool watched = machine_watch_new(&watch) >= 0;
        json_t *figures = measure(a, watch);

        machine_watch_view(watch, &view);
        if (figures)
                bench_record_machine(figures, watched ? &view : NULL);
        machine_watch_free(watch);
        return figures;
}

/* Makes all rounds. Each round measures every size, so that a disturbance affects all sizes. Returns false if
 * a measurement failed or a signal arrived. */
static bool make_rounds(const struct bench_options *o, json_t *rounds[SIZES_MAX][ROUNDS_MAX])
{
        for (size_t n = 0; n < o->n_rounds; n++) {
                for (size_t i = 0; i < o->n_sizes; i++) {
                        const struct attempt a = {o, o->size_bytes[i]};

                        if (options_wants_progress(&o->common))
                                fprintf(stderr, "evb " NAME ": round %zu of %llu, %u bytes\n", n + 1,
                                        (unsigned long long)o->n_rounds, a.size_bytes);
                        rounds[i][n] = watch_one(&a);
                        if (!rounds[i][n] || signals_are_waiting())
                                return false;
                }
        }
        return true;
}

static void print(const struct bench_options *o, const json_t *sizes)
{
        const json_t *f;
        size_t i;

        printf("UDP super-packets over one link, MTU %llu; medians of %llu round%s of %g s\n\n",
               (unsigned long long)o->mtu_bytes, (unsigned long long)o->n_rounds, o->n_rounds == 1 ? "" : "s",
               (double)o->duration_ns / NS_PER_S);
        printf("%8s %8s %12s %8s %14s %16s %8s\n", "bytes", "MB/s", "datagrams/s", "lost, %", "sender, ns",
               "receiver, ns", "stolen");
        json_array_foreach(sizes, i, f)
                printf("%8.0f %8.0f %12.0f %8.2f %14.0f %16.0f %6.1f %%\n", number(f, "datagram_bytes"),
                       number(f, "throughput_bytes_per_second") / 1e6, number(f, "datagrams_per_second"),
                       number(f, "lost_percent"), number(f, "sender_ns_per_datagram"),
                       number(f, "receiver_ns_per_datagram"), 100 * number(f, "stolen_share"));
}

static int finish(const struct bench_options *o, json_t *rounds[SIZES_MAX][ROUNDS_MAX])
{
        json_t *sizes = json_array();

        for (size_t i = 0; i < o->n_sizes; i++)
                json_array_append_new(
                        sizes, bench_median_round(rounds[i], o->n_rounds, "throughput_bytes_per_second"));
        if (!o->common.json || o->common.json_path)
                print(o, sizes);
        if (!o->common.json) {
                json_decref(sizes);
                return 0;
        }
        return options_write_json(&o->common,
                                  json_pack("{s:s, s:I, s:f, s:I, s:o}", "bench", "wire", "mtu_bytes",
                                            (json_int_t)o->mtu_bytes, "seconds",
                                            (double)o->duration_ns / NS_PER_S, "rounds",
                                            (json_int_t)o->n_rounds, "sizes", sizes),
                                  0);
}

static int run(const struct bench_options *o)
{
        json_t *rounds[SIZES_MAX][ROUNDS_MAX] = {};
        int status = 1;

        signals_hold();
        /* Without permission, the bench runs at ordinary priority. */
        (void)priority_attend();
        if (make_rounds(o, rounds))
                status = finish(o, rounds);
        else if (signals_are_waiting())
                fprintf(stderr, "evb " NAME ": interrupted\n");
        for (size_t i = 0; i < o->n_sizes; i++) {
                for (size_t n = 0; n < o->n_rounds; n++)
                        json_decref(rounds[i][n]);
        }
        return status;
}

/* Returns 0, or 2 after an error message. */
static int parse_sizes(struct bench_options *o)
{
        char expected[128];

        snprintf(expected, sizeof expected, "at most %u sizes from 1 to %llu bytes, for example 64,1024",
                 SIZES_MAX, (unsigned long long)o->mtu_bytes - IP_UDP_HEADER_BYTES);
        if (quantity_parse_list(o->sizes, (unsigned)(o->mtu_bytes - IP_UDP_HEADER_BYTES + 1), o->size_bytes,
                                SIZES_MAX, &o->n_sizes) < 0 ||
            o->n_sizes == 0)
                return options_refuse(NAME, "size", o->sizes, expected);
        for (size_t i = 0; i < o->n_sizes; i++) {
                if (o->size_bytes[i] == 0)
                        return options_refuse(NAME, "size", o->sizes, expected);
        }
        return 0;
}

int bench_wire(const struct command *command, int argc, char **argv)
{
        struct bench_options o = {
                .sizes = "64,1024,1448", .mtu_bytes = 1500, .duration_ns = 3 * NS_PER_S, .n_rounds = 3};
        const struct option_entry own[] = {
                {"size", "LIST", "bytes of a datagram, with a comma between two (default: 64,1024,1448)",
                 &o.sizes, .was = "sizes"},
                {"mtu", "BYTES", "MTU of the link (default: 1500)",
                 OPTION_NUMBER(quantity_parse_bytes, &o.mtu_bytes, MTU_LEAST_BYTES, MTU_MOST_BYTES,
                               "576 to 65535 bytes")},
                {"count", "N", "number of measurements of each size, at most 9 (default: 3)", .was = "rounds",
                 OPTION_NUMBER(quantity_parse_count, &o.n_rounds, 1, ROUNDS_MAX, "1 to 9")},
                {"duration", "TIME", "duration of a measurement, at most 60s (default: 3s)", .was = "seconds",
                 OPTION_NUMBER(bench_parse_time, &o.duration_ns, DURATION_LEAST_NS, DURATION_MOST_NS,
                               "50ms to 60s")},
        };
        int r = options_parse(&o.common, command, own, ARRAY_SIZE(own), 0, argc, argv);

        if (r != OPTIONS_GO_ON)
                return r;
        r = parse_sizes(&o);
        return r != 0 ? r : run(&o);
}
