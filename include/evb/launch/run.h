/* What the files of the launcher share: the run and its children. */
#pragma once

#include <jansson.h>

#include "evb/launch/child.h"
#include "evb/launch/cpu_meter.h"
#include "evb/launch/launch.h"
#include "evb/node/reasons.h"

struct launch {
        const struct launch_options *options;
        const struct scenario *scenario;
        struct loop *loop;
        struct child *children;
        size_t n_children, n_running;
        char directory[64], config[96];
        uint64_t start_ns, end_ns;
        struct cpu_meter *meter;                   /* a group for each role */
        struct histogram cpu_shares[ROLE_SFI + 1]; /* of what it has counted */
        bool has_switch_drops;
        uint64_t switch_drops;
        /* How the end is pressed for, further each time its deadline passes. */
        enum { PRESS_NOT, PRESS_DFM, PRESS_ALL, PRESS_KILL } press;
        uint64_t press_deadline_ns;
        unsigned signals;
        bool start_failed;
        int start_status;
};

/* The accounts of the run: the DFM's, completed here if the DFM could not do so itself. */
struct accounts {
        uint64_t triggers, assigned, complete, partial, lost;
        uint64_t expected, received, fragments_lost;
        uint64_t payload_bytes, first_ns, last_ns;
        uint64_t stored;      /* in closed files, if any */
        uint64_t unexplained; /* built by SFIs beyond what the DFM counts */
        bool balanced, all_lived;
        char difference[200]; /* between the counts of DFM, SFIs and files; "": none */
};

struct child *launch_dfm(const struct launch *l);
/* How long nodes may take that are told to end. */
uint64_t launch_drain_ns(const struct scenario *s);

/* progress.c: one line, drawn again. */
void progress_draw(const struct launch *l, uint64_t now_ns);
void progress_end(const struct launch *l);
/* summary.c: the exit status; the report has been written. */
int summary_write(const struct launch *l);
/* run_reasons.c: adds each reason for exit status 1. `nodes`: the nodes' reports. */
void run_reasons(const struct launch *l, const struct accounts *a, const json_t *nodes, struct reasons *to);
