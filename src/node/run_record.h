/* What this machine stores of its DFMs' runs: the last run number, so that run.number = auto never repeats,
 * and the current run, so that a restarted DFM can take it up. Files in $STATE_DIRECTORY,
 * $XDG_STATE_HOME/evb, /var/lib/evb (root) or ~/.local/state/evb. One thread. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "evb/core/dfm.h"

#define RUN_RECORD_PATH_MAX 512

struct run_record {
        int fd; /* this DFM's file, locked; -1: none, or another DFM of this address holds it */
        char path[RUN_RECORD_PATH_MAX];
};

/* `address`: the DFM's. Never fails: without a place to store anything, no run is known. */
void run_record_open(struct run_record *s, const char *address, unsigned port);
void run_record_close(struct run_record *s);
/* The run of this address's DFM when it last stopped. */
struct dfm_former run_record_former(const struct run_record *s);
/* A run number that this machine has not used yet. */
uint32_t run_record_next_number(void);
/* Records that the run goes on, or (`ended`) that it has ended. Negative errno. */
int run_record_write(struct run_record *s, uint32_t run, uint64_t cookie, uint64_t began_utc_ns, bool ended);
