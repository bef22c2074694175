/* evb bench qos: builds events over one bare veth pair, unshaped and with each backend, and compares rate and
 * processor time. Each run works like `evb run --net lab`. */
#include "bench.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/quantity.h"
#include "base/util.h"
#include "run/launch.h"
#include "cmd/commands.h"
#include "sys/loop.h"
#include "sys/machine_watch.h"

#define ROUNDS_MAX 9
#define SECONDS_MAX 60
#define SETTING_BYTES 64
#define OWN_SETTINGS 9

struct bench_options {
        struct options common;
        const char *rate, *rounds, *seconds, *fragment_size;
        uint64_t n_rounds, duration_s;
};

/* The backends to measure; the others are compared with the first one. */
static const char *const backends[] = {"none", "htb+tbf", "htb", "cbq+tbf"};

/* The figures of one backend, with a value per round. */
struct figures {
        double bytes_per_second[ROUNDS_MAX], ratio[ROUNDS_MAX];
        double nodes_ns_per_byte[ROUNDS_MAX]; /* processor time of the nodes' processes */
        double busy_ns_per_byte[ROUNDS_MAX];  /* of the whole machine, kernel threads included */
        double stolen_seconds;                /* time that the hypervisor took in all rounds */
        json_int_t source_packets, socket_packets, events_lost;
        size_t n;
        bool unavailable;
};

struct machine_time {
        double busy_s, stolen_s;
};

static struct machine_time read_machine(void)
{
        _cleanup_free_ struct processors *all = malloc(sizeof *all);
        double tick_s = 1 / (double)sysconf(_SC_CLK_TCK);
        struct machine_time t = {};

        if (!all || processors_read(all) < 0)
                return t;
        for (size_t i = 0; i < all->n; i++) {
                const uint64_t *ticks = all->each[i].ticks;

                t.busy_s += (double)(ticks[PROCESSOR_USER] + ticks[PROCESSOR_SYSTEM] + ticks[PROCESSOR_IRQ] +
                                     ticks[PROCESSOR_SOFTIRQ]) *
                            tick_s;
                t.stolen_s += (double)ticks[PROCESSOR_STEAL] * tick_s;
        }
        return t;
}

static int make_scenario(struct scenario **ret, const struct bench_options *o, const char *backend)
{
        char texts[4][SETTING_BYTES];
        const char *settings[OWN_SETTINGS + OPTIONS_SETTINGS_MAX] = {"ros.count=1",
                                                                     "sfi.count=1",
                                                                     "trigger.rate=max",
                                                                     "sfi.output=null",
                                                                     "network.link-rate=unlimited",
                                                                     texts[0],
                                                                     texts[1],
                                                                     texts[2],
                                                                     texts[3]};
        char text[ERROR_TEXT_MAX];
        struct error e = {};
        int r;

        snprintf(texts[0], SETTING_BYTES, "qos.backend=%s", backend);
        snprintf(texts[1], SETTING_BYTES, "qos.rate=%s", o->rate);
        snprintf(texts[2], SETTING_BYTES, "scenario.duration=%llus", (unsigned long long)o->duration_s);
        snprintf(texts[3], SETTING_BYTES, "ros.fragment-size=%s", o->fragment_size);
        for (size_t i = 0; i < o->common.n_settings; i++)
                settings[OWN_SETTINGS + i] = o->common.settings[i];
        r = command_load_one(ret, "/dev/null", settings, OWN_SETTINGS + o->common.n_settings, &e);
        if (r < 0)
                fprintf(stderr, "evb bench qos: %s\n", error_format(&e, text));
        return r;
}

/* Returns the exit status of the run; *ret is its report, or NULL. */
static int run_once(const struct bench_options *o, const char *backend, json_t **ret)
{
        _cleanup_free_ struct scenario *s = NULL;
        struct launch_options launch = {.program = "/proc/self/exe", .net = LAUNCH_LAB, .quiet = true};
        char *text = NULL;
        size_t size = 0;
        int status;

        *ret = NULL;
        if (make_scenario(&s, o, backend) < 0)
                return 2;
        launch.scenario = s;
        launch.json = open_memstream(&text, &size);
        if (!launch.json)
                return 1;
        status = launch_run(&launch);
        fclose(launch.json);
        if (status <= 1 && size > 0)
                *ret = json_loadb(text, size, 0, NULL);
        free(text);
        return status;
}

static double number(const json_t *report, const char *section, const char *name)
{
        return json_number_value(json_object_get(json_object_get(report, section), name));
}

/* Adds a round. False: the run built no events. */
static bool record(struct figures *f, const json_t *report, struct machine_time before, double unshaped)
{
        double bytes = json_number_value(json_object_get(report, "payload_bytes"));
        double rate = json_number_value(json_object_get(report, "throughput_bytes_per_second"));
        struct machine_time now = read_machine();

        if (bytes <= 0 || rate <= 0)
                return false;
        f->bytes_per_second[f->n] = rate;
        f->ratio[f->n] = unshaped > 0 ? rate / unshaped : 1;
        f->nodes_ns_per_byte[f->n] =
                (number(report, "cpu_seconds", "ros") + number(report, "cpu_seconds", "sfi") +
                 number(report, "cpu_seconds", "dfm")) *
                1e9 / bytes;
        f->busy_ns_per_byte[f->n] = (now.busy_s - before.busy_s) * 1e9 / bytes;
        f->stolen_seconds += now.stolen_s - before.stolen_s;
        f->source_packets += (json_int_t)number(report, "drops", "source_qdisc_packets");
        f->socket_packets += (json_int_t)number(report, "drops", "socket_packets");
        f->events_lost += json_integer_value(json_object_get(report, "events_lost"));
        f->n++;
        return true;
}

/* Makes one round: all backends one after another, so that a disturbance affects all of them. Returns an exit
 * status. */
static int make_round(const struct bench_options *o, struct figures *all)
{
        double unshaped = 0;

        for (size_t i = 0; i < ARRAY_SIZE(backends); i++) {
                struct machine_time before = read_machine();
                json_t *report;
                int status;
                bool recorded;

                if (all[i].unavailable)
                        continue;
                if (options_wants_progress(&o->common))
                        fprintf(stderr, "evb bench qos: %s\n", backends[i]);
                status = run_once(o, backends[i], &report);
                if (signals_are_waiting()) {
                        json_decref(report);
                        return 1;
                }
                if (status == 77 && i > 0) {
                        all[i].unavailable = true;
                        continue;
                }
                recorded = report && record(&all[i], report, before, unshaped);
                json_decref(report);
                if (!recorded) {
                        fprintf(stderr, "evb bench qos: %s: the run built no event (exit status %d)\n",
                                backends[i], status);
                        return status == 0 ? 1 : status;
                }
                if (i == 0)
                        unshaped = all[0].bytes_per_second[all[0].n - 1];
        }
        return 0;
}

static int compare(const void *a, const void *b)
{
        double x = *(const double *)a, y = *(const double *)b;

        return (x > y) - (x < y);
}

static double median(const double *values, size_t n)
{
        double sorted[ROUNDS_MAX];

        memcpy(sorted, values, n * sizeof *values);
        qsort(sorted, n, sizeof *sorted, compare);
        return n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}

static void print(const struct bench_options *o, const struct figures *all)
{
        printf("events of one fragment of %s, %s per destination; medians of %llu rounds of %llu s\n\n",
               o->fragment_size, o->rate, (unsigned long long)o->n_rounds, (unsigned long long)o->duration_s);
        printf("%-10s %8s %10s %15s %18s %7s %7s %7s\n", "backend", "MB/s", "x unshaped", "nodes' ns/byte",
               "machine's ns/byte", "source", "socket", "lost");
        for (size_t i = 0; i < ARRAY_SIZE(backends); i++) {
                const struct figures *f = &all[i];

                if (f->unavailable)
                        printf("%-10s unavailable on this machine\n", backends[i]);
                else
                        printf("%-10s %8.0f %10.3f %15.3f %18.3f %7lld %7lld %7lld\n", backends[i],
                               median(f->bytes_per_second, f->n) / 1e6, median(f->ratio, f->n),
                               median(f->nodes_ns_per_byte, f->n), median(f->busy_ns_per_byte, f->n),
                               (long long)f->source_packets, (long long)f->socket_packets,
                               (long long)f->events_lost);
        }
}

static json_t *describe(const struct bench_options *o, const struct figures *all)
{
        json_t *list = json_array();

        for (size_t i = 0; i < ARRAY_SIZE(backends); i++) {
                const struct figures *f = &all[i];

                if (f->unavailable || f->n == 0)
                        continue;
                json_array_append_new(
                        list,
                        json_pack("{s:s, s:f, s:f, s:f, s:f, s:I, s:I, s:I, s:f}", "backend", backends[i],
                                  "throughput_bytes_per_second", median(f->bytes_per_second, f->n), "ratio",
                                  median(f->ratio, f->n), "nodes_ns_per_byte",
                                  median(f->nodes_ns_per_byte, f->n), "machine_ns_per_byte",
                                  median(f->busy_ns_per_byte, f->n), "source_packets", f->source_packets,
                                  "socket_packets", f->socket_packets, "events_lost", f->events_lost,
                                  "stolen_seconds", f->stolen_seconds));
        }
        return json_pack("{s:s, s:s, s:s, s:I, s:I, s:o}", "bench", "qos", "rate", o->rate, "fragment_size",
                         o->fragment_size, "rounds", (json_int_t)o->n_rounds, "seconds",
                         (json_int_t)o->duration_s, "points", list);
}

/* Rejects settings of the keys that the bench sets itself. */
static bool check_settings(const struct bench_options *o)
{
        static const struct {
                const char *key, *instead;
        } taken[] = {{"qos.backend=", "it compares all backends"},
                     {"qos.rate=", "use --rate"},
                     {"scenario.duration=", "use --seconds"},
                     {"ros.fragment-size=", "use --fragment-size"}};
        _cleanup_free_ struct scenario *s = NULL;

        for (size_t i = 0; i < o->common.n_settings; i++) {
                for (size_t k = 0; k < ARRAY_SIZE(taken); k++) {
                        if (strncmp(o->common.settings[i], taken[k].key, strlen(taken[k].key)) != 0)
                                continue;
                        fprintf(stderr, "evb bench qos: --set %s: the bench sets this key; %s\n",
                                o->common.settings[i], taken[k].instead);
                        return false;
                }
        }
        return make_scenario(&s, o, backends[0]) >= 0;
}

static int run(const struct bench_options *o)
{
        struct figures all[ARRAY_SIZE(backends)] = {};
        FILE *json;
        int status = 0;

        if (!check_settings(o))
                return 2;
        json = options_open_json(&o->common);
        if (o->common.json && !json)
                return 2;
        signals_hold();
        for (uint64_t i = 0; status == 0 && i < o->n_rounds; i++)
                status = make_round(o, all);
        if (status == 0 && json) {
                json_t *whole = describe(o, all);

                json_dumpf(whole, json, JSON_INDENT(1));
                fputc('\n', json);
                json_decref(whole);
        } else if (status == 0)
                print(o, all);
        return options_close_json(&o->common, json, status);
}

int bench_qos(const struct command *command, int argc, char **argv)
{
        struct bench_options o = {.rate = "10Gbit", .rounds = "3", .seconds = "2", .fragment_size = "14KiB"};
        const struct option_entry own[] = {
                {"rate", "RATE", "rate of the shaped destination (default: 10Gbit)", &o.rate},
                {"fragment-size", "SIZE", "payload of an event (default: 14KiB)", &o.fragment_size},
                {"rounds", "N", "number of runs of each backend, at most 9 (default: 3)", &o.rounds},
                {"seconds", "N", "duration of a run, at most 60 (default: 2)", &o.seconds},
        };
        int r = options_parse(&o.common, command, own, ARRAY_SIZE(own), 0, argc, argv);

        if (r != OPTIONS_GO_ON)
                return r;
        if (!bench_parse_number("rounds", o.rounds, ROUNDS_MAX, &o.n_rounds) ||
            !bench_parse_number("seconds", o.seconds, SECONDS_MAX, &o.duration_s))
                return 2;
        return run(&o);
}
