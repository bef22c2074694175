/* A small scenario for the simulator. */
#pragma once

#include "../test.h"

#include <stdio.h>

#include "base/util.h"
#include "sim/sim.h"

/* Writes the scenario to a file, and reads it. */
static inline struct scenario *sample_scenario(const char *const *settings, size_t n)
{
        static const char text[] = "[scenario]\nmode = push\n[trigger]\nrate = 2kHz\nevents = 100\n"
                                   "[ros]\ncount = 3\nfragment-size = 2kB\nbuffer-size = 4MiB\n"
                                   "[sfi]\ncount = 2\noutput = null\nbuffer-size = 8MiB\ntimeout = 40ms\n"
                                   "[dfm]\nkeep-alive = 5ms\nnode-timeout = 30ms\n"
                                   "[network]\nlink-rate = 1Gbit\nswitch-buffer = 64KiB\n";
        struct scenario *s = calloc(1, sizeof *s);
        struct scenario_errors *errors = calloc(1, sizeof *errors);
        char path[] = "/tmp/evb-test-sim-XXXXXX";
        int fd = mkstemp(path), r;

        assert_true(s && errors && fd >= 0);
        assert_int_equal(write(fd, text, sizeof text - 1), sizeof text - 1);
        close(fd);
        r = scenario_load(s, path, settings, n, errors);
        unlink(path);
        if (r < 0)
                fail_msg("%s", errors->text[0]);
        free(errors);
        for (size_t i = 0; i < s->n_nodes; i++)
                snprintf(s->nodes[i].address, sizeof s->nodes[i].address, "10.69.0.%zu", i + 1);
        return s;
}

static inline struct sim *sample_run(const struct sim_config *config)
{
        struct error e = {};
        struct sim *sim;

        if (sim_new(&sim, config, &e) < 0)
                fail_msg("%s", e.message);
        sim_run(sim);
        return sim;
}

static inline uint32_t sample_node(const struct scenario *s, const char *name)
{
        return (uint32_t)(scenario_find(s, name) - s->nodes);
}

static inline const struct node_stats *sample_stats(const struct sim *sim, const struct scenario *s,
                                                    const char *name)
{
        return sim_node_end(sim, sample_node(s, name)).stats;
}

/* How a history ended. The events of the report add up. */
struct sample_outcome {
        struct sim_result result;
        uint64_t triggers, complete, partial, lost;
};

static inline struct sample_outcome sample_outcome_of(const struct sim_config *config)
{
        struct sim *sim = sample_run(config);
        const struct node_stats *dfm = sample_stats(sim, config->scenario, "dfm");
        struct sample_outcome o = {
                .result = sim_result(sim),
                .triggers = stats_get(&dfm->triggers),
                .complete = stats_get(&dfm->events_complete),
                .partial = stats_get(&dfm->events_partial),
                .lost = stats_get(&dfm->events_lost),
        };

        if (o.result.violation)
                fail_msg("%s", o.result.violation);
        assert_int_equal(o.triggers, o.complete + o.partial + o.lost);
        sim_free(sim);
        return o;
}

static inline struct sim_config sample_config(const struct scenario *s, uint64_t seed)
{
        return (struct sim_config){.scenario = s, .seed = seed, .model = sim_model_usual};
}
