/* Figures of a point of plain flows, computed from the flows' results. Pure. */
#pragma once

#include <jansson.h>

#include "run/testbed.h"
#include "traffic/flows.h"

json_t *flow_figures(const struct flow *flows, const struct flow_result *results, unsigned n);
json_t *flow_figures_echo(const struct flow_result *result);
/* Adds CPU usage. Merges the histograms of all results into the first one. */
void flow_figures_add_shares(json_t *o, struct flow_result *results, unsigned n);
/* Adds drops by location. What the switch did is null; flow_figures_add_switch() replaces it. */
void flow_figures_add_losses(json_t *o, const struct flow_result *results, unsigned n, enum flow_kind kind,
                             bool shaped);
/* Replaces what the switch did: packets that its ports dropped, and how they decided. */
void flow_figures_add_switch(json_t *o, const struct testbed_counts *counts);
