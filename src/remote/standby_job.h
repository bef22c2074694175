/* The one thing that a node which stands by is doing at the moment: a run of its node, as a child process, or
 * ends of plain streams. */
#pragma once

#include <jansson.h>

#include "evb/launch/child.h"
#include "evb/remote/standby.h"
#include "standby_flows.h"

struct job {
        const struct standby_options *options;
        const struct scenario_node *self;
        struct loop *loop;
        void (*answer)(void *ctx, json_t *what); /* consumes */
        void *ctx;

        json_int_t id;
        struct scenario *scenario; /* of this run */
        struct child child;
        struct cpu_meter *meter; /* of the child, while it runs */
        enum { JOB_GOES, JOB_TOLD_TO_END, JOB_KILLED } press;
        uint64_t kill_ns; /* NEVER_NS: not yet told to end */
        json_t *next;     /* an order that waits for the end of a run that is being stopped; NULL: none */
        struct streams streams;
};

void job_init(struct job *j, const struct standby_options *options, const struct scenario_node *self,
              struct loop *loop, void (*answer)(void *ctx, json_t *what), void *ctx);
void job_fini(struct job *j); /* kills what still runs */
/* An order from the network (docs/protocol.md, "Orders"). What is not allowed is refused in the answer. */
void job_order(struct job *j, json_t *order, uint64_t now_ns);
/* Lets what runs end well, within the bounds of its own keys; what waits for that is refused. */
void job_stop(struct job *j, uint64_t now_ns);
void job_turn(struct job *j, uint64_t now_ns);
uint64_t job_deadline_ns(const struct job *j);
bool job_is_running(const struct job *j);
const char *job_status(const struct job *j);
