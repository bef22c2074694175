/* Figures of a point of plain streams, from its results. Pure. */
#pragma once

#include <jansson.h>

#include "evb/traffic/flows.h"

json_t *stream_figures(const struct flow *flows, const struct flow_result *results, unsigned n);
json_t *stream_figures_echo(const struct flow_result *result);
/* Processor time; merges the results' histograms into the first one. */
void stream_figures_add_shares(json_t *o, struct flow_result *results, unsigned n);
/* Where packets were lost; `switch_packets` is null, as only the caller may know it. */
void stream_figures_add_losses(json_t *o, const struct flow_result *results, unsigned n, enum flow_kind kind,
                               bool shaped);
