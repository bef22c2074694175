/* Verdicts: compares the results of a measurement with its published outcome. */
#pragma once

#include "lab/points.h"

/* The points that a verdict requires: those of a full sweep, those of a quick one, or (LAB_AS_MADE) those of
 * the sweep that the results belong to. */
enum lab_extent { LAB_AS_MADE, LAB_QUICK, LAB_WHOLE };

/* LAB_QUICK or LAB_WHOLE, derived from the results. */
enum lab_extent lab_extent_of(const struct lab_measurement *m, const json_t *results);
/* Judges the results of one measurement, which are all simulated or all measured. Returns LAB_UNKNOWN if a
 * point or a required figure is missing; `why` then names it. */
enum lab_verdict lab_judge(const struct lab_measurement *m, const json_t *results, enum lab_extent extent,
                           char *why, size_t size);
/* The points that a verdict rests on: those whose figures, changed, may change it. Counts of losses are not
 * among them, as a loss is not a matter of chance. Returns their number, at most `max`. */
size_t lab_judge_decisive(const struct lab_measurement *m, const json_t *results, enum lab_extent extent,
                          struct lab_point *ret, size_t max);
const char *lab_verdict_text(enum lab_verdict v);
