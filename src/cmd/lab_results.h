/* Results of measurements: a line of JSON a point, appended as it is made. */
#pragma once

#include <jansson.h>

#include "evb/lab/catalogue.h"

/* An array of all points in the files; lines that are none, or of another version of the catalogue, are left
 * out, and told. NULL: a file cannot be read (told). */
json_t *results_read(const char *const *paths, size_t n);
/* Made on these machines; NULL: on any machine's own namespaces. */
bool results_are_of(const json_t *result, const struct lab_bed *bed);
/* Is this point among them, made by the same settings? */
bool results_have(const json_t *results, const struct lab_point *p);
/* Results of one measurement, from all machines or from one testbed alone. */
json_t *results_of(const json_t *results, const char *id);
json_t *results_of_bed(const json_t *results, const char *id, const struct lab_bed *bed);
/* Opens the file for points, for this process alone; returns its descriptor. Negative errno, reported. */
int results_open(const char *path);
/* Completes a point's figures with its description, the machine and the time; appends it, whole or not at
 * all. False: not written, reported. */
bool results_append(int fd, const char *path, const struct lab_point *p, json_t *figures);
