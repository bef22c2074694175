/* The catalogue of measurements, in the order of the publications. */
#pragma once

#include "lab/points.h"

size_t lab_count(void);
/* i < lab_count(). */
const struct lab_measurement *lab_at(size_t i);
/* NULL: unknown ID. */
const struct lab_measurement *lab_find(const char *id);
