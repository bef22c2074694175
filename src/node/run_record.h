/* What this machine stores of its DFMs' runs: the last run number, so that run.number = auto never repeats,
 * and the current run, so that a restarted DFM can take it up. Files in $STATE_DIRECTORY,
 * $XDG_STATE_HOME/evb, /var/lib/evb (root) or ~/.local/state/evb. One thread. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "evb/core/dfm.h"

#define RUN_RECORD_PATH_MAX 512

/* How the age of the former run is known. */
enum run_age {
        RUN_AGE_CERTAIN, /* by a clock that nobody sets */
        RUN_AGE_STEPPED, /* likewise; somebody set the wall clock in between */
        RUN_AGE_BY_WALL, /* by the wall clock, as the machine restarted in between */
        RUN_AGE_UNKNOWN, /* 0: after such a restart, the wall clock shows a time before the run */
};

struct run_record {
        int fd; /* this DFM's file, locked; -1: none, or another DFM of this address holds it */
        char path[RUN_RECORD_PATH_MAX];
};

/* `address`: of the DFM. Negative errno: nothing can be kept, so nothing is known; s->path says where. */
int run_record_open(struct run_record *s, const char *address, unsigned port);
void run_record_close(struct run_record *s);
/* The run that a DFM of this address was in when it last stopped. */
struct dfm_former run_record_former(const struct run_record *s, bool *ret_damaged, enum run_age *ret_age);
/* A number that was not given out on this machine before. Negative errno: the last one is not known
 * (-EBADMSG: the file is damaged) or cannot be kept in the file, whose path is given; the number is the
 * time in seconds then. */
int run_record_next_number(uint32_t *ret, char path[static RUN_RECORD_PATH_MAX]);
/* The run, which began `age_ns` ago, goes on, or (`ended`) has ended. Negative errno. */
int run_record_write(struct run_record *s, uint32_t run, uint64_t cookie, uint64_t age_ns, bool ended);
