/* A node as a child process: starts this program, watches it through a pidfd and reads its report from its
 * standard output. The node's counters stay readable after it exits. One thread: that of the loop. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "conf/scenario.h"
#include "data/stats.h"
#include "sys/loop.h"

struct child {
        /* Set by the caller before child_start(). */
        const struct scenario_node *node;
        struct loop *loop;
        void (*ended)(void *ctx, struct child *c);
        void *ctx;

        pid_t pid;
        struct loop_io exit_io;   /* pidfd */
        struct loop_io report_io; /* pipe from its standard output */
        struct node_stats *stats; /* shared memory; valid until child_fini() */
        int stats_fd;
        bool running;
        int status; /* as of waitpid(2) */
        struct rusage usage;
        char *report;
        size_t report_bytes, report_size;
};

struct child_command {
        const char *program, *config;
        const char *const *settings; /* --set */
        size_t n_settings;
        int namespace; /* in which the child runs; -1: the caller's */
        bool raised;   /* with precedence over ordinary processes, see sys/thread.h, if that is permitted */
};

/* Returns negative errno and logs it. child_fini() is required in any case. */
int child_start(struct child *c, const struct child_command *command);
/* Kills the child if it still runs. */
void child_fini(struct child *c);

enum node_state child_state(const struct child *c);
double child_cpu_seconds(const struct child *c);
/* It ended by itself, so its counters are final. */
bool child_lived(const struct child *c);
