/* Content negotiation of HTTP (RFC 9110, 12.5.1) between the two formats of metrics. */
#pragma once

#include <stdbool.h>

/* Whether a client with this Accept header prefers OpenMetrics 1.0 to the format 0.0.4. */
bool metrics_wants_open_metrics(const char *accept);
