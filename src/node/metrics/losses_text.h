/* Reads the losses of nodes from their answers, and describes the recent losses of a node or a whole run. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "data/stats.h"
#include "node/metrics/statuses.h"

/* Reads the losses of a node in its run, by place (losses.h); NAN: unknown. */
void losses_read(const struct node_status *n, double ret[static LOSS_PLACES]);

/* Describes "12 events lost, 3 partial in the last 7 s; missing fragments: ros3 12". False: the node lost no
 * events. */
bool losses_describe(const struct scenario *s, const struct node_status *n, char *text, size_t size_bytes);
/* Describes the places where a run loses data: "; missing fragments: ros3 12; dropped packets: network 9".
 * "": unknown. */
void losses_describe_places(const struct statuses *s, char *text, size_t size_bytes);
