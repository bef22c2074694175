/* The job of a standby node: a run of the node as a child process, or flows. A node has one job at a time. */
#pragma once

#include <jansson.h>

#include "run/child.h"
#include "run/cpu_meter.h"
#include "remote/standby.h"
#include "standby_flows.h"

struct job {
        const struct standby_options *options;
        const struct scenario_node *self;
        struct loop *loop;
        void (*answer)(void *ctx, json_t *answer); /* consumes the answer */
        void *ctx;

        json_int_t id;
        struct scenario *scenario; /* of this run */
        struct child child;
        struct cpu_meter *meter; /* of the child */
        enum { JOB_RUNNING, JOB_STOPPING, JOB_KILLED } press;
        uint64_t kill_ns; /* NEVER_NS: not stopping */
        json_t *next;     /* a command that waits until a stopping run ends; NULL: none */
        struct standby_flows flows;
};

void job_init(struct job *j, const struct standby_options *options, const struct scenario_node *self,
              struct loop *loop, void (*answer)(void *ctx, json_t *answer), void *ctx);
void job_fini(struct job *j); /* kills what still runs */
/* Executes a command from the network (docs/protocol.md, "Commands"). The answer says if the node refuses. */
void job_command(struct job *j, json_t *command, uint64_t now_ns);
/* Stops the job, which may drain within the limits of its own keys, and refuses a waiting command. */
void job_stop(struct job *j, uint64_t now_ns);
void job_turn(struct job *j, uint64_t now_ns);
uint64_t job_deadline_ns(const struct job *j);
bool job_is_running(const struct job *j);
const char *job_status(const struct job *j);
