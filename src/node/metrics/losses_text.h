/* Reads from the answers of nodes what they lost, and describes what a node, or a whole run, lost a short
 * while ago. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "data/stats.h"
#include "node/metrics/statuses.h"

/* What a node has lost in its run, by place (losses.h); NAN: not known. */
void losses_read(const struct node_status *n, double ret[static LOSS_PLACES]);

/* "12 events lost, 3 partial in the last 7 s; missing fragments: ros3 12". False: it lost none. */
bool losses_describe(const struct scenario *s, const struct node_status *n, char *text, size_t size_bytes);
/* Where a run loses: "; missing fragments: ros3 12; dropped packets: network 9". "": it is not known. */
void losses_describe_places(const struct statuses *s, char *text, size_t size_bytes);
