/* What the files of the launcher share: its children. */
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include "evb/lab/launch.h"
#include "evb/node/stats.h"
#include "evb/sys/loop.h"

struct child {
        struct launch *launch;
        const struct scenario_node *node;
        pid_t pid;
        struct loop_io exit_io;   /* pidfd */
        struct loop_io report_io; /* pipe of its standard output */
        struct node_stats *stats; /* outlives it */
        int stats_fd;
        bool running;
        int status; /* of waitpid */
        struct rusage usage;
        char *report;
        size_t report_bytes, report_size;
};

struct launch {
        const struct launch_options *options;
        const struct scenario *scenario;
        struct loop *loop;
        struct child *children;
        size_t n_children, n_running;
        char directory[64], config[96];
        uint64_t start_ns, end_ns;
        bool has_switch_drops;
        uint64_t switch_drops;
        /* How the end is pressed for, further each time its deadline passes. */
        enum { PRESS_NOT, PRESS_DFM, PRESS_ALL, PRESS_KILL } press;
        uint64_t press_deadline_ns;
        unsigned signals;
        bool start_failed;
        int start_status;
};

struct child *launch_dfm(const struct launch *l);
enum node_state launch_state(const struct child *c);

/* progress.c: one line, drawn again. */
void progress_draw(const struct launch *l, uint64_t now_ns);
void progress_end(const struct launch *l);
/* summary.c: the exit status; the report has been written. */
int summary_write(const struct launch *l);
