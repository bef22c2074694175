/* What the files of `evb qos` share: the command line, what it asks for, and how results are told. */
#pragma once

#include <jansson.h>

#include "evb/cmd/options.h"
#include "evb/conf/scenario.h"
#include "evb/node/shaping_request.h"
#include "evb/tc-model/status.h"
#include "evb/tc/shaper.h"

#define QOS_EXIT_WRONG 2
#define QOS_EXIT_MISSING 77

/* The command line as it is. */
struct qos_options {
        struct options common;
        const char *config, *node, *device, *backend, *rate, *burst, *limit, *link_rate, *sources,
                *switch_buffer, *send_buffer;
        const char *control_port, *control_rate, *overhead, *mtu, *rx_usecs, *rx_frames, *tx_usecs,
                *tx_frames;
        const char *force, *repair, *patience;
        struct option_list destinations;
};

/* What it asks for. */
struct qos_job {
        const struct qos_options *options;
        bool device_only;          /* destinations and rates do not matter */
        struct scenario *scenario; /* NULL: all told on the command line */
        const struct scenario_node *node;
        char device_name[IF_NAMESIZE];
        struct tc_device device;
        bool has_device; /* on this machine */
        struct tc_destination *destinations;
        struct tc_request request;
        struct tc_tuning tuning;
        enum tc_backend asked; /* may be TC_BACKEND_AUTO */
        char backend_why[TC_REASON_MAX];
};

/* Reads scenario and device; messages are told. `needs_request`: destinations have to be named. OPTIONS_GO_ON
 * or the exit status. */
int qos_job_init(struct qos_job *job, const struct qos_options *o, bool needs_request);
/* The same for jobs without a plan. */
int qos_job_init_for_device(struct qos_job *job, const struct qos_options *o);
/* As that for `plan`, whose device may be that of another machine. */
int qos_job_init_for_plan(struct qos_job *job, const struct qos_options *o);
void qos_job_fini(struct qos_job *job);

/* qos_report.c: results as JSON and as text. Any of the parts may be NULL. */
struct qos_result {
        const char *device;
        const struct tc_plan *plan;
        const struct tc_status *status; /* NULL: counters and rates are null */
        const struct tc_tree *want;     /* for the tc commands */
        const struct tc_outcome *outcome;
        const struct tc_tuning *tuning; /* as it is now */
        const struct qos_job *job;
};

json_t *qos_result_json(const struct qos_result *r);
void qos_print_plan(const struct qos_result *r, FILE *to);
void qos_print_status(const struct qos_result *r, FILE *to);
/* Where --json wants it; false: it could not be written (told). */
bool qos_write_json(const struct qos_options *o, json_t *taken);

/* qos_watch.c */
int qos_watch(const struct qos_options *o);
/* The exit status for a negative errno of the tc layer. */
int qos_exit_status(int r);
/* Makes the plan for a job whose backend is known; the exit status, told, or OPTIONS_GO_ON. */
int qos_make_plan(struct qos_job *job, enum tc_backend backend, struct tc_plan *ret);
