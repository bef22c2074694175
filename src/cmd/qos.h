/* Shared by the files of `evb qos`: the command line, the job that it describes, and the reports. qos.c uses
 * qos_watch.c; both use qos_job.c; all use qos_report.c. */
#pragma once

#include <jansson.h>

#include "cmd/options.h"
#include "conf/scenario.h"
#include "node/shaping_request.h"
#include "shape/model/tree_status.h"
#include "shape/kernel/shaper.h"

#define QOS_EXIT_WRONG 2
#define QOS_EXIT_MISSING 77

/* Bits of the verbs that use an option. Verbs with a plan use the options that describe it; the systemd unit
 * passes the same options to apply and watch. */
enum qos_verb {
        QOS_PLAN = 1,
        QOS_APPLY = 2,
        QOS_WATCH = 4,
        QOS_PLANNING = QOS_PLAN | QOS_APPLY | QOS_WATCH,
        QOS_CHANGING = QOS_APPLY | QOS_WATCH,
};

/* The options as given. */
struct qos_options {
        struct options common;
        const char *config, *node, *device, *backend, *offload, *rate, *burst, *limit, *link_rate, *sources,
                *switch_buffer, *send_buffer;
        const char *control_port, *control_rate, *overhead;
        const char *force, *repair;
        uint64_t patience_ns;
        struct option_list destinations;
};

/* The job that the options describe. */
struct qos_job {
        const struct qos_options *options;
        bool device_only;          /* the job needs no destinations and no rates */
        struct scenario *scenario; /* NULL: all settings are on the command line */
        const struct scenario_node *node;
        char device_name[IF_NAMESIZE];
        struct tc_device device;
        bool has_device; /* the device exists on this machine */
        bool removes;    /* a deleted device is not an error if it left a state file, `lost` */
        struct tc_state_lost lost;
        struct tc_destination *destinations;
        struct tc_request request;
        bool link_rate_is_reported; /* the link rate is reported by the device, not configured */
        enum tc_backend asked;      /* may be TC_BACKEND_AUTO */
        char backend_reason[TC_REASON_MAX];
};

/* qos_job.c. Reads options, scenario and device. `needs_request`: destinations are required. OPTIONS_GO_ON,
 * or the exit status after an error is reported. */
int qos_job_init(struct qos_job *job, const struct qos_options *o, bool needs_request);
/* For jobs without a plan. For `removes` see struct qos_job. */
int qos_job_init_for_device(struct qos_job *job, const struct qos_options *o, bool removes);
/* For `plan`, whose device may belong to another machine. */
int qos_job_init_for_plan(struct qos_job *job, const struct qos_options *o);
/* Updates the request after the device has changed, except for a configured link rate. */
void qos_job_use_device(struct qos_job *job);
void qos_job_fini(struct qos_job *job);
/* Makes the plan for a job whose backend is known. OPTIONS_GO_ON, or the exit status after an error is
 * reported. */
int qos_make_plan(struct qos_job *job, enum tc_backend backend, struct tc_plan *ret);

/* qos_report.c: results as JSON and as text. Parts may be NULL. */
struct qos_result {
        const char *device;
        const struct tc_plan *plan;
        const struct tc_status *status; /* NULL: counters and rates are null */
        const struct tc_tree *want;     /* source of the tc commands */
        const struct tc_outcome *outcome;
        const struct tc_device *now; /* the device as it is now */
        const struct qos_job *job;
};

json_t *qos_result_json(const struct qos_result *r);
void qos_print_plan(const struct qos_result *r, FILE *to);
void qos_print_status(const struct qos_result *r, FILE *to);
/* Reports an error; returns the exit status for it. */
int qos_fail(const struct error *e);
/* The exit status for a negative errno of the tc layer. */
int qos_exit_status(int r);

/* qos_watch.c */
int qos_watch(const struct qos_options *o);
