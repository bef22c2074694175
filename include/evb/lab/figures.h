/* What a run's report does not say by itself: how much was built of all that was offered, and of what the
 * ports pass. Pure. */
#pragma once

#include <jansson.h>

#include "evb/conf/scenario.h"

/* Adds to `to`, from the report of a run of `s` (`evb run --json`):
 *   whole_events_per_second, whole_bytes_per_second: complete events and their payload over all the time in
 * which triggers were taken, and what came to be built after it. The report's own event_rate_hz and
 * throughput_bytes_per_second begin with the first complete event and end with the last: they flatter a run
 * that builds nothing any more after its first moment. complete_share: complete events of all triggers;
 *   port_share: whole_bytes_per_second of what the ports of the SFIs pass; offered_share: what is offered of
 * the same; built_share: whole_bytes_per_second of the lesser of both, which is all that can be built. A
 * figure that cannot be known is null, never 0: wires without a rate have no limit, triggers that come as
 * fast as the DFM takes them have no rate, a run without a trigger has no share, and a report may lack a
 * value. */
void figures_add_building(json_t *to, const json_t *report, const struct scenario *s);
