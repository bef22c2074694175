/* evb sim: runs a scenario in virtual time, and reports it as evb run does. */
#include "sim_command.h"

#include <errno.h>
#include <inttypes.h>
#include <malloc.h>
#include <signal.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/random.h"
#include "base/util.h"
#include "cmd/commands.h"
#include "run/virtual_report.h"

#define FRESH_BYTES (64 << 10)

static volatile sig_atomic_t stop;

static void request_stop(int number)
{
        stop = number;
}

/* The first signal ends the history, and reports it; a second one ends the program. */
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

/* Ends at the first violation. */
static int run_many(const struct sim_options *o)
{
        struct sim_config config = o->config;
        struct sums sums = {};
        int status = 0;

        /* The cores' tables are large, and a short history uses little of them: fresh pages of the kernel are
         * zero, while the C library would fill memory that it uses again. */
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
