/* The gauges of a node, and the figures of its connections to others. One table of each serves metrics and
 * /status. Pure. */
#pragma once

#include <stddef.h>

#include "openmetrics.h"

struct gauge {
        const char *key;    /* in /status; NULL: absent */
        const char *metric; /* without "evb_"; NULL: as the key */
        const char *unit, *help;
        unsigned roles; /* bits by COUNTER_ROLE() */
        bool is_flag;   /* true or false in /status, and 1 or 0 as a metric */
        uint64_t (*read)(const struct metrics_view *v);
        bool (*is_known)(const struct metrics_view *v); /* in /status; NULL: always */
};

#define GAUGES 14
extern const struct gauge gauges[GAUGES];

/* Whether the scenario requests shaping for this ROS. */
bool gauges_is_shaped_by_plan(const struct metrics_view *v);

/* A figure for each node of role `peer`. */
struct peer_figure {
        enum node_role self, peer;
        const char *key; /* in "peers" or "shaping" of /status; NULL: not there */
        enum metrics_type type;
        const char *metric, *unit, *help; /* `metric` NULL: /status only */
        size_t offset;                    /* in struct metrics_peer, or in struct metrics_shaped */
        bool is_shaped, is_flag;
};

#define PEER_FIGURES 20
extern const struct peer_figure peer_figures[PEER_FIGURES];

uint64_t peer_figure_read(const struct peer_figure *f, const struct metrics_view *v, size_t node);
