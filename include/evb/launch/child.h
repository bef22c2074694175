/* A node as a child process: this same program, started, watched through a pidfd, its report read from its
 * standard output. Its page of counters outlives it. One thread: that of the loop. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "evb/conf/scenario.h"
#include "evb/data/stats.h"
#include "evb/sys/loop.h"

struct child {
        /* Set by the caller before child_start(). */
        const struct scenario_node *node;
        struct loop *loop;
        void (*ended)(void *ctx, struct child *c);
        void *ctx;

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

struct child_command {
        const char *program, *config;
        const char *const *settings; /* --set */
        size_t n_settings;
        int namespace; /* to run in; -1: the caller's */
};

/* Negative errno, logged; child_fini() is due in any case. */
int child_start(struct child *c, const struct child_command *command);
/* Kills it where it still runs. */
void child_fini(struct child *c);

enum node_state child_state(const struct child *c);
double child_cpu_seconds(const struct child *c);
