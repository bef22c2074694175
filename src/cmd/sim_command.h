/* What the files of evb sim share. */
#pragma once

#include "cmd/options.h"
#include "conf/scenario.h"
#include "sim/sim.h"

struct sim_options {
        struct options common;
        struct sim_config config;
        struct sim_fault faults[SIM_FAULTS_MAX];
        uint64_t histories;
        int argc;
        char **argv;
};

/* Reads the command line and the scenario; *ret_scenario is the caller's. Any other result than
 * OPTIONS_GO_ON is the exit status. */
int sim_options_read(struct sim_options *o, const struct command *command, struct scenario **ret_scenario,
                     int argc, char **argv);
/* Prints the faults of a history with --chaos as options, which make the same history without it. */
void sim_print_faults(const struct sim *sim, const struct scenario *s);
/* Prints the command that repeats the history of this seed. */
void sim_print_replay(const struct sim_options *o, uint64_t seed);
