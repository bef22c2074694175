/* evb sim: runs a scenario in virtual time, and reports the run as evb run does. */
#include <errno.h>
#include <inttypes.h>
#include <malloc.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/quantity.h"
#include "base/random.h"
#include "base/util.h"
#include "cmd/commands.h"
#include "cmd/options.h"
#include "conf/scenario.h"
#include "data/network.h"
#include "run/launch.h"
#include "run/summary.h"
#include "sim/sim.h"

/* Reports a process that crashed and did not restart as killed. */
static struct child *make_children(const struct sim *sim, const struct scenario *s)
{
        struct child *children = calloc(s->n_nodes, sizeof *children);

        for (uint32_t i = 0; children && i < s->n_nodes; i++) {
                struct sim_node_end end = sim_node_end(sim, i);

                children[i].node = &s->nodes[i];
                children[i].stats = (struct node_stats *)end.stats;
                children[i].status = end.is_dead ? SIGKILL : 0;
        }
        return children;
}

/* Writes the report of a finished simulation, as summary_write() does: to options->json, or to standard
 * output. `options` may have no scenario. Returns the exit status. */
static int virtual_report_write(const struct sim *sim, const struct sim_config *config,
                                const struct launch_options *options)
{
        const struct sim_result r = sim_result(sim);
        const struct virtual_run run = {config->seed, r.digest,    r.run,
                                        r.violation,  r.plan_fits, r.port_most_bytes};
        struct launch launch = {
                .options = options,
                .scenario = config->scenario,
                .children = make_children(sim, config->scenario),
                .n_children = config->scenario->n_nodes,
                .end_ns = r.end_ns,
                .has_switch = r.has_switch,
                .at_switch = {.is_exact = true,
                              .dropped_packets = r.port_drops,
                              .lost_packets = r.link_drops},
                .virtual_run = &run,
        };
        int status;

        if (!launch.children) {
                log_error_errno(ENOMEM, "report: %m");
                return 1;
        }
        status = summary_write(&launch);
        free(launch.children);
        return status;
}

struct sim_options {
        struct options common;
        struct sim_config config;
        struct sim_fault faults[SIM_FAULTS_MAX];
        uint64_t histories;
        int argc;
        char **argv;
};

#define FAULT_MOST_NS (24 * 3600 * NS_PER_S)

struct texts {
        const char *config, *trace, *chaos;
        uint64_t seed, histories;
        struct option_list model, crashes, pauses, restarts;
};

/* Decimal digits only. */
static int parse_number(const char *text, uint64_t *ret)
{
        char *end;

        errno = 0;
        *ret = strtoull(text, &end, 10);
        return text[0] < '0' || text[0] > '9' || *end || errno != 0 ? -EINVAL : 0;
}

/* Parses a list of NAME=VALUE. */
static int read_model(struct sim_model *m, const struct option_list *list)
{
        for (size_t i = 0; i < list->n; i++) {
                const char *text = list->values[i], *equals = strchrnul(text, '='), *expected;
                char name[32];

                snprintf(name, sizeof name, "%.*s", (int)(equals - text), text);
                expected = sim_model_set(m, name, *equals ? equals + 1 : "");
                if (expected)
                        return options_refuse("sim", "model", text, expected);
        }
        return OPTIONS_GO_ON;
}

static bool parse_time(const char *text, size_t n, uint64_t *ret)
{
        char copy[QUANTITY_TEXT_MAX];

        if (n == 0 || n >= sizeof copy)
                return false;
        memcpy(copy, text, n);
        copy[n] = '\0';
        return quantity_parse_time(copy, ret) >= 0 && *ret <= FAULT_MOST_NS;
}

/* Parses NODE@TIME, or NODE@TIME+DURATION for a pause. */
static bool parse_fault(const struct scenario *s, enum sim_fault_kind kind, const char *text,
                        struct sim_fault *ret)
{
        const char *at = strchr(text, '@'), *plus;
        const struct scenario_node *node;
        char name[sizeof node->name];
        uint64_t for_ns = 0;

        if (!at || (size_t)(at - text) >= sizeof name)
                return false;
        snprintf(name, sizeof name, "%.*s", (int)(at - text), text);
        node = scenario_find(s, name);
        plus = strchr(at, '+');
        if (!node || (plus != NULL) != (kind == SIM_PAUSE) ||
            (plus && !parse_time(plus + 1, strlen(plus + 1), &for_ns)))
                return false;
        ret->kind = kind;
        ret->node = (uint32_t)(node - s->nodes);
        ret->for_ns = for_ns;
        return parse_time(at + 1, plus ? (size_t)(plus - at - 1) : strlen(at + 1), &ret->at_ns);
}

static int read_faults(struct sim_options *o, const struct scenario *s, enum sim_fault_kind kind,
                       const char *option, const struct option_list *list)
{
        for (size_t i = 0; i < list->n; i++) {
                if (o->config.n_faults == SIM_FAULTS_MAX) {
                        fprintf(stderr, "evb sim: more than %d faults\n", SIM_FAULTS_MAX);
                        return 2;
                }
                if (!parse_fault(s, kind, list->values[i], &o->faults[o->config.n_faults]))
                        return options_refuse(
                                "sim", option, list->values[i],
                                kind == SIM_PAUSE
                                        ? "NODE@TIME+DURATION, e.g. sfi1@1s+500ms, with a node of the "
                                          "scenario"
                                        : "NODE@TIME, e.g. ros3@1.5s, with a node of the scenario");
                o->config.n_faults++;
        }
        return OPTIONS_GO_ON;
}

static int read_all(struct sim_options *o, const struct texts *t, struct scenario *s)
{
        char text[ERROR_TEXT_MAX];
        struct error e = {};
        int r = read_model(&o->config.model, &t->model);

        if (r == OPTIONS_GO_ON)
                r = read_faults(o, s, SIM_CRASH, "fault crash", &t->crashes);
        if (r == OPTIONS_GO_ON)
                r = read_faults(o, s, SIM_PAUSE, "fault pause", &t->pauses);
        if (r == OPTIONS_GO_ON)
                r = read_faults(o, s, SIM_RESTART, "fault restart", &t->restarts);
        if (r == OPTIONS_GO_ON && sim_check(s, &e) < 0) {
                fprintf(stderr, "%s: %s\n", s->path, error_format(&e, text));
                return 2;
        }
        return r;
}

/* Reads the command line and the scenario; the caller frees *ret_scenario. Any other result than
 * OPTIONS_GO_ON is the exit status. */
static int sim_options_read(struct sim_options *o, const struct command *command,
                            struct scenario **ret_scenario, int argc, char **argv)
{
        struct texts t = {.seed = 1, .histories = 1};
        const struct option_entry own[] = {
                {"config", "FILE", COMMAND_CONFIG_HELP, &t.config},
                {"seed", "N", "seed of all random numbers (default: 1)",
                 OPTION_NUMBER(parse_number, &t.seed, 0, INT64_MAX, "a whole number up to 2^63 - 1")},
                {"trace", NULL,
                 "print each message, drop and change of state, with its time; to standard error with --json "
                 "on standard output",
                 &t.trace},
                {"count", "N", "run N histories, with this seed and the next ones (default: 1)",
                 .was = "histories",
                 OPTION_NUMBER(parse_number, &t.histories, 1, INT64_MAX, "a positive integer")},
                {"fault", "NAME=VALUE", "fault of a node; repeatable"},
                {"crash", "NODE@TIME", "crash the process", .list = &t.crashes, .part_of = "fault"},
                {"pause", "NODE@TIME+DURATION", "suspend the process for DURATION", .list = &t.pauses,
                 .part_of = "fault"},
                {"restart", "NODE@TIME", "start a new process", .list = &t.restarts, .part_of = "fault"},
                {"chaos", NULL, "add faults of nodes and of the network, drawn from the seed", &t.chaos},
                {"model", "NAME=VALUE",
                 "figure of the model: wake-time, packet-time, send-time, fragment-time, propagation, "
                 "timer-time, processors or uplinks; repeatable",
                 .list = &t.model},
        };
        int r = options_parse(&o->common, command, own, ARRAY_SIZE(own), OPTIONS_SCENARIO, argc, argv);

        *o = (struct sim_options){.common = o->common, .histories = t.histories, .argc = argc, .argv = argv};
        if (r == OPTIONS_GO_ON) {
                t.config = command_find_config(command, t.config);
                *ret_scenario = t.config ? command_load(t.config, &o->common) : NULL;
                r = *ret_scenario ? OPTIONS_GO_ON : 2;
        }
        if (r == OPTIONS_GO_ON) {
                sim_prepare(*ret_scenario);
                o->config = (struct sim_config){.scenario = *ret_scenario,
                                                .seed = t.seed,
                                                .model = sim_model_usual,
                                                .faults = o->faults,
                                                .chaos = t.chaos != NULL};
                if (t.trace)
                        o->config.trace = o->common.json && !o->common.json_path ? stderr : stdout;
                r = read_all(o, &t, *ret_scenario);
        }
        free(t.model.values);
        free(t.crashes.values);
        free(t.pauses.values);
        free(t.restarts.values);
        return r;
}

/* Prints the faults of a history with --chaos as options that reproduce it without --chaos. */
static void sim_print_faults(const struct sim *sim, const struct scenario *s)
{
        static const char *const names[] = {
                [SIM_CRASH] = "crash",
                [SIM_PAUSE] = "pause",
                [SIM_RESTART] = "restart",
        };
        const struct sim_fault *faults;
        struct fault_config network;
        size_t n = sim_faults(sim, &faults, &network);

        fprintf(stderr, "evb sim: its faults:");
        for (size_t i = 0; i < n; i++) {
                fprintf(stderr, " --fault %s=%s@%" PRIu64 "ns", names[faults[i].kind],
                        s->nodes[faults[i].node].name, faults[i].at_ns);
                if (faults[i].kind == SIM_PAUSE)
                        fprintf(stderr, "+%" PRIu64 "ns", faults[i].for_ns);
        }
        fprintf(stderr, " --set network.loss=%.9f --set network.reorder=%.9f --set network.duplicate=%.9f\n",
                network.loss, network.reorder, network.duplicate);
}

static bool is_option(const char *word, const char *name, bool *has_value)
{
        size_t n = strlen(name);

        if (strncmp(word, name, n) != 0 || (word[n] != '\0' && word[n] != '='))
                return false;
        *has_value = word[n] == '=';
        return true;
}

/* Prints the command that repeats the history of this seed. */
static void sim_print_replay(const struct sim_options *o, uint64_t seed)
{
        bool has_value;

        fprintf(stderr, "evb sim: replay with: evb");
        for (int i = 0; i < o->argc; i++) {
                if (is_option(o->argv[i], "--trace", &has_value) ||
                    is_option(o->argv[i], "--json", &has_value))
                        continue;
                if (is_option(o->argv[i], "--seed", &has_value) ||
                    is_option(o->argv[i], "--count", &has_value) ||
                    is_option(o->argv[i], "--histories", &has_value)) {
                        i += !has_value;
                        continue;
                }
                fprintf(stderr, strpbrk(o->argv[i], " \t'\"\\$;&|<>*?(){}") ? " '%s'" : " %s", o->argv[i]);
        }
        fprintf(stderr, " --seed %" PRIu64 " --trace\n", seed);
}

#define FRESH_BYTES (64 << 10)

static volatile sig_atomic_t stop;

static void request_stop(int number)
{
        stop = number;
}

/* The first signal ends the history, which is then reported; a second signal ends the program. */
static void catch_signals(void)
{
        const struct sigaction action = {.sa_handler = request_stop, .sa_flags = (int)SA_RESETHAND};

        sigaction(SIGINT, &action, NULL);
        sigaction(SIGTERM, &action, NULL);
}

static void print_violation(const struct sim_options *o, uint64_t seed, const struct sim *sim)
{
        const struct sim_result r = sim_result(sim);

        fprintf(stderr, "evb sim: seed %" PRIu64 ", at %.9f s: %s\n", seed, (double)r.violated_ns / NS_PER_S,
                r.violation);
        if (o->config.chaos)
                sim_print_faults(sim, o->config.scenario);
        sim_print_replay(o, seed);
}

static int report(const struct sim_options *o, const struct sim *sim)
{
        struct launch_options options = {.quiet = o->common.quiet, .json = options_open_json(&o->common)};
        const struct sim_result r = sim_result(sim);
        int status;

        if (o->common.json && !options.json)
                return 2;
        if (!options.json)
                printf("seed %" PRIu64 ", digest %016" PRIx64 ", %" PRIu64 " messages, in virtual time\n",
                       o->config.seed, r.digest, r.messages);
        status = virtual_report_write(sim, &o->config, &options);
        if (r.violation)
                print_violation(o, o->config.seed, sim);
        if (stop) {
                fprintf(stderr, "evb sim: stopped by a signal at %.3f s of virtual time\n",
                        (double)r.end_ns / NS_PER_S);
                status = 1;
        }
        return options_close_json(&o->common, options.json, status);
}

static struct sim *run_one(const struct sim_config *config)
{
        char text[ERROR_TEXT_MAX];
        struct error e = {};
        struct sim *sim;

        if (sim_new(&sim, config, &e) < 0) {
                fprintf(stderr, "%s: %s\n", config->scenario->path, error_format(&e, text));
                return NULL;
        }
        sim_run(sim);
        return sim;
}

/* Sums over many histories. */
struct sums {
        uint64_t histories, triggers, complete, partial, lost, digest;
        double seconds;
};

static void add(struct sums *sums, const struct sim *sim, const struct scenario *s)
{
        const struct sim_result r = sim_result(sim);

        sums->histories++;
        sums->seconds += (double)r.end_ns / NS_PER_S;
        sums->digest = random_mix(sums->digest ^ r.digest);
        for (uint32_t i = 0; i < s->n_nodes; i++) {
                const struct node_stats *stats = sim_node_end(sim, i).stats;

                if (s->nodes[i].role != ROLE_DFM)
                        continue;
                sums->triggers += stats_get(&stats->triggers);
                sums->complete += stats_get(&stats->events_complete);
                sums->partial += stats_get(&stats->events_partial);
                sums->lost += stats_get(&stats->events_lost);
        }
}

static int report_sums(const struct sim_options *o, const struct sums *sums, bool violated, int status)
{
        char digest[17];

        snprintf(digest, sizeof digest, "%016" PRIx64, sums->digest);
        if (o->common.json)
                return options_write_json(
                        &o->common,
                        json_pack("{s:I, s:I, s:f, s:I, s:I, s:I, s:I, s:s, s:b}", "seed",
                                  (json_int_t)o->config.seed, "histories", (json_int_t)sums->histories,
                                  "seconds", sums->seconds, "triggers", (json_int_t)sums->triggers,
                                  "events_complete", (json_int_t)sums->complete, "events_partial",
                                  (json_int_t)sums->partial, "events_lost", (json_int_t)sums->lost, "digest",
                                  digest, "violated", violated),
                        status);
        printf("%" PRIu64 " histories from seed %" PRIu64 " on: %" PRIu64 " triggers, %" PRIu64
               " complete, %" PRIu64 " partial, %" PRIu64 " lost, in %.1f s of virtual time; digest %s\n",
               sums->histories, o->config.seed, sums->triggers, sums->complete, sums->partial, sums->lost,
               sums->seconds, digest);
        return status;
}

/* Runs several histories, and ends at the first violation. */
static int run_many(const struct sim_options *o)
{
        struct sim_config config = o->config;
        struct sums sums = {};
        int status = 0;

        /* The cores' tables are large, and a short history uses only a small part of them. Fresh pages of the
         * kernel are zero, while the C library would have to clear memory that it reuses. */
        mallopt(M_MMAP_THRESHOLD, FRESH_BYTES);
        for (uint64_t i = 0; i < o->histories && status == 0 && !stop; i++) {
                struct sim *sim;
                struct sim_result r;

                config.seed = o->config.seed + i;
                sim = run_one(&config);
                if (!sim)
                        return 2;
                r = sim_result(sim);
                if (!stop)
                        add(&sums, sim, config.scenario);
                if (r.violation) {
                        print_violation(o, config.seed, sim);
                        status = 1;
                }
                sim_free(sim);
        }
        return report_sums(o, &sums, status != 0, stop ? 1 : status);
}

int cmd_sim(int argc, char **argv)
{
        static const struct command command = {"sim", cmd_sim, "[FILE]", "Run a scenario in virtual time.",
                                               OPTION_SET | OPTION_JSON};
        _cleanup_free_ struct scenario *s = NULL;
        static struct sim_options o;
        struct sim *sim;
        int r = sim_options_read(&o, &command, &s, argc, argv);

        if (r != OPTIONS_GO_ON)
                return r;
        catch_signals();
        o.config.stop = &stop;
        if (o.histories > 1)
                return run_many(&o);
        sim = run_one(&o.config);
        if (!sim)
                return 2;
        r = report(&o, sim);
        sim_free(sim);
        return r;
}
