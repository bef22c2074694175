/* The parts of `evb lab`. Private to src/cmd/lab*.c. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "cmd/options.h"
#include "lab/catalogue.h"

#define LAB_RESULTS "evb-lab.jsonl"
#define LAB_OUTPUT "evb-lab"

struct lab_options {
        struct options common;
        const char *quick, *results, *output, *again, *scenario, *accept, *simulate, *seed, *model;
};

/* The verbs; each returns the exit status. */
int lab_run(const struct lab_options *o);
int lab_report(const struct lab_options *o);
/* Part of lab_run(): with --sim. */
int lab_run_virtual(const struct lab_options *o, const char *words);

/* Whether `words` select a measurement: "all", a letter, an id, or a list of them separated by commas. */
bool lab_is_selected(const struct lab_measurement *m, const char *words);
/* 0, or exit status 2 after an error message if a word selects no measurement. */
int lab_check_words(const char *words);
/* The points of the selected measurements; those that the testbed cannot make are reported and,
 * unless they are optional, counted. Measurements that only exist elsewhere, in the simulator or outside it,
 * count only if `words` name them. */
size_t lab_plan(const char *words, const struct lab_bed *bed, bool quick, struct lab_point *points,
                size_t max, size_t *ret_skipped);
/* How many points a run made, how many of them again after a disturbance, how many of all its points have
 * disturbed results only, and how many were made more often because a verdict rests on them. */
struct lab_made {
        size_t points, repeated, disturbed, confirmed;
};

/* Prints the verdicts of the selected measurements; returns the exit status. */
int lab_print_verdicts(const struct lab_options *o, const char *words, const struct lab_bed *bed,
                       const json_t *results, const struct lab_made *made);
