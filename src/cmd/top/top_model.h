/* The data that evb top shows about the nodes: figures from their states, and changes since the previous
 * update. Pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "data/stats.h"
#include "node/metrics/run_summary.h"

/* Figures of one node; NAN: unknown, or not reported by this role. */
enum top_figure {
        TOP_RUN,
        TOP_TRIGGERS, /* per second */
        TOP_RATE,     /* events per second; of a ROS: fragments */
        TOP_DATA,     /* bytes per second */
        TOP_BUFFER,
        TOP_BUSY, /* shares, 0 to 1 */
        TOP_FREE,
        TOP_CREDITS,
        TOP_OPEN,
        TOP_UNWRITTEN,
        TOP_QUEUED,  /* bytes in this ROS, or in all ROSs for this SFI */
        TOP_BACKLOG, /* bytes in the shaping of this ROS, or of all ROSs for this SFI */
        TOP_PARTIAL,
        TOP_LOST,
        TOP_DROPS, /* packets */
        TOP_DISK,
        TOP_DISK_SIZE, /* TOP_DISK: free bytes; TOP_DISK_SIZE: all bytes */
        TOP_FIGURES,
};

/* In ascending order of importance. */
enum top_state { TOP_FINE, TOP_LATE, TOP_PROBLEM, TOP_SILENT };

struct top_node {
        const struct node_status *from;
        enum top_state state;
        char state_text[12];                   /* "running", "losing", "late", "no_answer" */
        char problem[NODE_STATUS_PROBLEM_MAX]; /* its problem, or what it waits for; printable ASCII */
        double figures[TOP_FIGURES];
        double lost[LOSS_PLACES]; /* NAN: unknown */
        bool grew[TOP_FIGURES];   /* since the previous update */
        /* From the previous answer. */
        uint64_t answered_ns;
        double start_time;
};

/* Sums over the nodes; NAN: unknown. */
enum top_total {
        TOP_TOTAL_TRIGGERS_HZ,
        TOP_TOTAL_EVENTS_HZ,
        TOP_TOTAL_DATA,
        TOP_TOTAL_BUSY,
        TOP_TOTAL_WAITING,
        TOP_TOTAL_OPEN,
        TOP_TOTAL_COMPLETE,
        TOP_TOTAL_PARTIAL,
        TOP_TOTAL_LOST,
        TOP_TOTAL_REJECTED,
        TOP_TOTAL_P50_US,
        TOP_TOTAL_P99_US,
        TOP_TOTAL_BACKLOG,
        TOP_TOTAL_LATE,
        TOP_TOTALS,
};

struct top_model {
        const struct statuses *from;
        size_t n, n_silent, n_late;
        struct top_node *nodes; /* in the order of the scenario */
        double totals[TOP_TOTALS], lost[LOSS_PLACES];
        char discarded[512]; /* "packets malformed 3, ...": discarded packets that are in no total; "": none
                              */
        struct run_summary run;         /* as of the last answers */
        char run_state[16];             /* state of the run, or "late" if the DFM is late */
        const struct top_node *fullest; /* the SFI with the smallest free share of its disk; NULL: none */
};

int top_model_init(struct top_model *m, const struct statuses *from); /* -ENOMEM */
void top_model_fini(struct top_model *m);
/* Reads the answers. `late_ns`: a node is late if a request to it has been in progress for this long. */
void top_model_update(struct top_model *m, uint64_t now_ns, uint64_t late_ns);
/* Returns the JSON object for one interval. */
json_t *top_model_to_json(const struct top_model *m, uint64_t now_ns, double utc_seconds);
