/* The settings of a point: reads values, and writes those that depend on x. */
#pragma once

#include "lab/points.h"

/* The value of the last setting with this key, or `otherwise`. */
double setting_of(const struct lab_point *p, const char *key, double otherwise);
/* Removes all settings that begin with `key`. */
void settings_drop(char *settings, const char *key);

/* For lab_measurement.vary. */
#define VARY(name) void vary_##name(const struct lab_point *p, double x, char *to, size_t size)

VARY(nothing);
VARY(message_bytes);
VARY(payload_bytes);
VARY(row);
VARY(rate_mbps);
VARY(mtu_bytes);
VARY(link_mbps);
/* Of a stream. */
VARY(spacing_us);
VARY(rate_gbps);
VARY(stream_mbps);
VARY(trigger_hz);
/* The trigger rate follows from `load`, in percent of the ports' capacity. */
VARY(fragment_bytes);
VARY(fragment_bytes_at_25_khz);
/* x below 100: a stand-in farm accepts this share, after 5 ms. Then the window is larger than what is
 * undecided within that time, and small beside all triggers. 100: without level 2. */
VARY(accepted_percent);
/* x is the number of sources; `load` as above. */
VARY(sources);
