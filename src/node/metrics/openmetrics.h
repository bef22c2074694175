/* Writes the metrics of a node as text, and its state as JSON, from a view of it. Pure. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "conf/scenario.h"
#include "data/disk_space.h"
#include "data/stats.h"
#include "metrics_state.h"
#include "node/metrics/run_summary.h"
#include "node/run_control/mailbox.h"
#include "protocol/member.h"

/* Figures of the process; a negative value is unknown. */
struct metrics_process {
        double cpu_seconds, start_seconds;
        int64_t resident_bytes, virtual_bytes, open_fds, max_fds;
};

struct metrics_view {
        const char *version;
        const struct scenario *scenario;
        const struct scenario_node *self;
        enum node_state state;
        struct obstacle obstacle;               /* why it makes no progress now */
        uint64_t counters[COUNTERS];            /* since the process began; see counters_read() */
        uint64_t run_counters[COUNTERS];        /* of the current run; a count may decrease */
        const char *control_state;              /* of a DFM; NULL: it has no run control */
        char control_error[RUN_ERROR_TEXT_MAX]; /* why its last run ended in an error; "": no error */
        uint64_t receive_buffer_bytes, send_buffer_bytes; /* granted by the kernel; 0: none */
        double last_complete_seconds;                     /* since 1970; 0: no event is complete */
        double now_seconds;                               /* since 1970, by this machine's clock */
        struct member_keys digest;                        /* of the scenario */
        const struct metrics_state *shared;
        struct metrics_process process;
        struct disk_space disk; /* of an SFI's event files */
        uint64_t disk_left_s;   /* as in struct disk_trend */
        struct run_fault fault; /* of a DFM */
};

const char *metrics_state_name(enum node_state state);
/* Writes all metrics, as OpenMetrics if `open_metrics` is set. */
void metrics_page_write(const struct metrics_view *v, FILE *to, bool open_metrics);

/* ---- The tables of gauges, and of figures for each node of a role. ---- */

struct gauge {
        const char *key;    /* in /status; NULL: absent */
        const char *metric; /* without "evb_"; NULL: same as the key */
        const char *unit, *help;
        unsigned roles; /* bits by COUNTER_ROLE() */
        bool is_flag;   /* true or false in /status, and 1 or 0 as a metric */
        uint64_t (*read)(const struct metrics_view *v);
        bool (*is_known)(const struct metrics_view *v); /* in /status; NULL: always */
        bool is_signed; /* an int64_t, which as a metric is in 10^-9 of the unit */
};

#define GAUGES 20
extern const struct gauge gauges[GAUGES];

/* Whether the scenario requests shaping for this ROS. */
bool gauges_is_shaped_by_plan(const struct metrics_view *v);

/* A figure for each node of role `peer`. */
struct peer_figure {
        enum node_role self, peer;
        const char *key; /* in "peers" or "shaping" of /status; NULL: absent */
        enum metrics_type type;
        const char *metric, *unit, *help; /* `metric` NULL: /status only */
        size_t offset;                    /* in struct metrics_peer, or in struct metrics_shaped */
        bool is_shaped, is_flag;
};

#define PEER_FIGURES 20
extern const struct peer_figure peer_figures[PEER_FIGURES];

uint64_t peer_figure_read(const struct peer_figure *f, const struct metrics_view *v, size_t node);

/* ---- Formats. ---- */

/* Whether a client with this Accept header prefers OpenMetrics 1.0 to the format 0.0.4. */
bool metrics_wants_open_metrics(const char *accept);

/* Returns the state of a node as one JSON object, for `evb status`, from malloc(); NULL: out of memory.
 * `now_ns`: current time, by the clock of the other times. */
char *metrics_status_text(const struct metrics_view *v, uint64_t now_ns);
/* Returns the result of scenario_digest() as an array: the digest of the keys' names, then the digest of each
 * value. */
json_t *status_make_digest(const struct member_keys *keys);
/* Returns the results of scenario_digest_other() of all keys as an array. */
json_t *status_make_settings(const struct scenario *s);

/* Prints the list of all metrics of nodes: a line for each, with name, type, roles, labels, meaning.
 * -ENOMEM. */
int metrics_list_print(FILE *to);
/* Prints the same as mdoc, for the manual page. */
int metrics_list_print_man(FILE *to);
