/* Shaping of a namespace's eth0 for a measurement. */
#pragma once

#include "evb/tc/plan.h"

/* Installs the plan of a request, by a process that goes there and ends; it goes with the namespace. Errors are logged. */
int lab_shape(int namespace, const struct tc_request *request);
