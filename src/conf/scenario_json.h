/* A scenario with its effective values as JSON, for reports and records. */
#pragma once

#include <jansson.h>

#include "conf/scenario.h"

/* {SECTION: {KEY: "VALUE"}, "metadata": {NAME: "VALUE"}, "nodes": [...]}; values are those of a file. */
json_t *scenario_to_json(const struct scenario *s);
json_t *scenario_metadata_to_json(const struct scenario_metadata *list, size_t n);
