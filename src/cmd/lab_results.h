/* The results file: one line of JSON per measured point. */
#pragma once

#include <jansson.h>

#include "lab/catalogue.h"

/* An array of all points in the files. Lines that are not results, and points of another version of the
 * catalogue, are skipped with a warning. NULL: a file cannot be read, which is reported. */
json_t *results_read(const char *const *paths, size_t n);
bool results_are_simulated(const json_t *result);
/* Whether the result is from this testbed, or from the simulator with this seed; NULL: from namespaces. */
bool results_are_of(const json_t *result, const struct lab_bed *bed);
/* Whether the result is of this point, with the same settings. */
bool results_are_same(const json_t *result, const struct lab_point *p);
/* Whether the results hold this point, valid and with the same settings. */
bool results_have(const json_t *results, const struct lab_point *p);
/* Results of one measurement, from all machines or from one testbed. */
json_t *results_of(const json_t *results, const char *id);
json_t *results_of_bed(const json_t *results, const char *id, const struct lab_bed *bed);
/* Opens and locks the file; returns its descriptor, or a negative errno, which is reported. */
int results_open(const char *path);
/* Adds the point's description, the machine and the time to its figures, and appends them as a complete line.
 * A simulated point has a seed instead of a machine and a time, so the line is the same whenever it is made.
 * False: nothing was written, which is reported. */
bool results_append(int fd, const char *path, const struct lab_point *p, json_t *figures);
