/* Writes the metrics of a node as text, from a view of its state. Pure. */
#pragma once

#include "conf/scenario.h"
#include "data/disk_space.h"
#include "data/stats.h"
#include "protocol/member.h"
#include "node/run_control/state_copy.h"
#include "metrics_state.h"

/* Figures of the process; a negative number is unknown. */
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
        uint64_t counters[COUNTERS];            /* since the process began */
        uint64_t counters_before[COUNTERS];     /* of its earlier runs */
        const char *control_state;              /* of a DFM; NULL: it has no run control */
        char control_error[RUN_ERROR_TEXT_MAX]; /* why its last run ended in an error; "": no error */
        uint64_t receive_buffer_bytes, send_buffer_bytes; /* granted by the kernel; 0: none */
        double last_complete_seconds;                     /* since 1970; 0: no event is complete */
        double now_seconds;                               /* since 1970: this machine's clock */
        struct member_keys digest;                        /* of the scenario */
        const struct metrics_state *shared;
        struct metrics_process process;
        struct disk_space disk; /* of an SFI's event files */
        uint64_t disk_left_s;   /* as in struct disk_trend */
};

const char *metrics_state_name(enum node_state state);
/* Writes all metrics, with `open_metrics` as OpenMetrics. */
void metrics_page_write(const struct metrics_view *v, FILE *to, bool open_metrics);
