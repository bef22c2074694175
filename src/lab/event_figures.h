/* Figures that a run's report does not contain: event building relative to the offered load and to the
 * capacity of the ports. Pure. */
#pragma once

#include <jansson.h>

#include "conf/scenario.h"

/* Adds figures to `to`, computed from the report of a run of `s` (`evb run --json`):
 *   whole_events_per_second, whole_bytes_per_second: complete events and their payload, over the entire time
 *     in which triggers were accepted or events completed. The report's event_rate_hz and
 *     throughput_bytes_per_second span only the first to the last complete event, and so overrate a run that
 *     stops building early.
 *   complete_share: complete events / triggers
 *   port_share: whole_bytes_per_second / capacity of the SFIs' ports
 *   offered_share: offered load / capacity of the ports
 *   built_share: whole_bytes_per_second / the smaller of offered load and capacity
 * An unknown figure is null, never 0: for example, links without a rate have no capacity, and triggers at
 * maximum rate have no offered load. */
void figures_add_building(json_t *to, const json_t *report, const struct scenario *s);

/* Maximum payload rate of a port for fragments of one size, in bytes per second. */
double lab_payload_limit(double link_bps, double mtu_bytes, double fragment_bytes);
