/* The running process of one role, shared by all files of this folder. */
#pragma once

#include <stdio.h>

#include "conf/scenario.h"
#include "data/builder.h"
#include "data/context.h"
#include "data/matcher.h"
#include "data/reasons.h"
#include "data/stats.h"
#include "node/node.h"
#include "sys/loop.h"
#include "control_messages.h"
#include "membership.h"
#include "metrics/metrics.h"
#include "metrics/run_summary.h"
#include "progress/stall.h"
#include "run_list.h"

/* Number and interval of a ROS's or SFI's final messages, some of which may be lost. */
#define FAREWELLS 3
#define FAREWELL_NS (20 * NS_PER_MS)

struct node;
struct front_end;
struct shaping;
struct run_control;
struct run_file_job;

/* The functions that differ between the roles. */
struct node_kind {
        int (*open)(struct node *n);
        void (*receive)(struct node *n, uint64_t now_ns, const struct message *m);
        /* Called after every wake-up: moves data and sends due messages. */
        int (*turn)(struct node *n, uint64_t now_ns);
        uint64_t (*deadline_ns)(struct node *n);
        /* Stops accepting work. A DFM records the stop before it returns, because the caller then logs or
         * answers it. */
        void (*stop)(struct node *n, uint64_t now_ns);
        void (*pause)(struct node *n, uint64_t now_ns, bool on); /* of a DFM: see dfm_pause() */
        void (*stop_previous)(struct node *n); /* of a DFM: records that the awaited run is stopped */
        bool (*is_done)(struct node *n, uint64_t now_ns);
        void (*end)(struct node *n, uint64_t now_ns); /* of a DFM: the node ends, perhaps before its run */
        void (*account)(struct node *n);              /* publishes the core's counters */
        enum run_state (*state)(const struct node *n);
        const struct member *(*member)(const struct node *n); /* NULL for the DFM */
        struct work (*work)(const struct node *n, uint64_t now_ns);
        /* Describes what the node waits for, like stall_explain; an empty text means nothing. */
        void (*explain)(const struct node *n, uint64_t now_ns, struct obstacle *ret);
        void (*close)(struct node *n);
        /* Called at the end: adds each reason for exit status 1. */
        void (*reasons)(const struct node *n, struct reasons *r);
};

extern const struct node_kind node_dfm, node_ros, node_sfi;

struct node {
        const struct scenario *scenario; /* a reload changes this scenario */
        const struct scenario_node *self;
        struct scenario_node own; /* `self` with cpus = auto: with the processors that it got */
        const struct node_kind *kind;
        struct node_stats *stats;
        struct loop *loop;
        struct control control;
        struct metrics *metrics;     /* NULL: not served */
        struct member_config member; /* for Join; the DFM only uses the incarnation */
        uint32_t run;                /* 0: not known yet */
        struct membership membership;
        void *state;                   /* of the role */
        void *core;                    /* struct dfm, ros or sfi */
        struct message message;        /* scratch memory of node_send_due() */
        struct file_list files;        /* of an SFI */
        bool is_sealing;               /* of an SFI: it is writing and sealing its last files */
        struct run_file_job *run_file; /* of an SFI: the record of the run; NULL: not started */
        struct stall stall;
        struct run_fault fault;        /* of a DFM: which node is at fault */
        struct run_fault logged_fault; /* the fault that the log named last */
        bool ended_by_stall;           /* of a DFM: run.stall-timeout ended the run */
        bool ended_by_previous;        /* of a DFM: a fault that an earlier DFM recorded ended the run */
        bool has_begun;                /* the beginning of the run has been logged */
        bool is_stopped;               /* the node was stopped by a signal, or because it lost the DFM */
        struct run_list_stop stop;     /* of a DFM: the first stop of the run, by a signal or an operator */
        uint64_t stopped_ns;           /* time of the first stop signal; 0: none */
        uint64_t stop_timeout_ns;      /* value of run.stop-timeout at that time */
        bool check_only;               /* open and close only; change nothing on this machine */
        const struct node_source *source; /* NULL: reload is impossible */
        unsigned hangups;                 /* number of SIGHUPs handled */
        bool ready_unsent;      /* READY=1 after a reload must still be sent: the manager's queue was full */
        struct reasons reasons; /* for exit status 1 */
        /* Metadata of the run: from the scenario, and from the operator who started it. */
        struct scenario_metadata metadata[SCENARIO_METADATA_MAX];
        size_t n_metadata;
        /* State that lasts for all runs of this process. */
        struct run_control *control_of_runs; /* of a DFM with control.listen; NULL: none */
        struct shaping *shaping;             /* of a ROS, between two runs */
        struct front_end *front_end;         /* of a ROS, between two runs: the connection to its board */
        bool board_continues;                /* of a ROS: its board still sent when the previous run ended */
        bool was_refused;                    /* of a ROS: a run goes on without it, see front_end_refuse() */
        struct matcher_past board_clock;     /* of a ROS whose board has a clock: in the previous run */
        unsigned runs;                       /* number of runs that have begun */
        bool goes_on;                        /* another run follows the current one */
        uint64_t turn_ns;                    /* time of the last turn in this run; 0: none yet */
        bool has_served;      /* the node has been ready for a run, so it stays for the next one */
        bool fell_short;      /* a run fell short */
        bool number_is_fixed; /* of a DFM: run.number, or the file that is replayed, fixes the run number */
};

/* node_loop.c: serves one opened run until it is done. Negative errno: the node cannot continue (logged), or
 * -EINTR: a second signal stopped it at once. */
int node_loop(struct node *n);
/* Publishes the counters and the state of the run. */
void node_account(struct node *n);

/* role.c */
/* For the data path; valid after control_open(). */
struct data_context node_data_context(const struct node *n);
/* Adds the operator's metadata, which may replace names of the scenario. The DFM has checked these metadata,
 * but another program may have sent them in the DFM's name. */
void node_add_metadata(struct node *n, const struct metadata_set *set);
/* Records that a DFM's run is stopped; only the first reason counts. */
void node_record_stop(struct node *n, const char *how, const char *who);
/* Called at each turn: how long the process was suspended before it, which is logged with the timeouts that
 * are extended by that; 0: it was not. */
uint64_t node_absence_ns(struct node *n, uint64_t now_ns, const char *timeouts);
/* Whether this process serves several runs. */
bool node_stays(const struct node *n);
/* Draws a random 64-bit number other than 0. Errors are logged. */
int node_draw_number(uint64_t *ret);
/* Returns when a node that was stopped at `stopped_ns` (NEVER_NS: not stopped) leaves a run that continues:
 * it serves until the DFM falls silent or run.stop-timeout expires. */
uint64_t node_leave_ns(const struct node *n, uint64_t stopped_ns, uint64_t received_dfm_ns,
                       enum run_state run);
struct shaping *node_shaping(const struct node *n); /* of a ROS; NULL: none */
/* Sends all messages that `step` returns. */
typedef bool (*node_step)(void *core, uint64_t now_ns, struct message_to *ret_to, struct message *ret);
void node_send_due(struct node *n, void *core, node_step step, uint64_t now_ns);
