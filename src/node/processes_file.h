/* Stores the DFM's record of its run next to the record of runs (run_record.h), so that a restarted DFM
 * accounts for earlier events and for processes that have exited. The file is replaced as a whole. One
 * thread. */
#pragma once

#include "core/dfm_processes.h"
#include "run_record.h"

/* Counters of the DFM's node that its core does not have (data/stats.h). */
#define PROCESSES_FILE_COUNTERS(X)                                                                           \
        X(trigger_datagrams)                                                                                 \
        X(trigger_datagrams_repeated)                                                                        \
        X(trigger_datagrams_late)                                                                            \
        X(trigger_datagrams_other_run)                                                                       \
        X(trigger_datagrams_dropped)                                                                         \
        X(busy_datagrams)

struct processes_counters {
#define X(name) uint64_t name;
        PROCESSES_FILE_COUNTERS(X)
#undef X
};

struct processes_file {
        char path[RUN_RECORD_PATH_MAX + 16]; /* "": none */
        char next[RUN_RECORD_PATH_MAX + 24]; /* the file that replaces it */
        uint8_t *bytes;
        struct dfm_processes *processes;    /* as read or last written; cookie 0: none */
        struct processes_counters counters; /* as read or last written */
};

/* `record_path`: path of the run's record, which the caller has locked. -ENOMEM. */
int processes_file_open(struct processes_file *f, const char *record_path);
void processes_file_close(struct processes_file *f);
/* Reads f->processes. Negative errno; -ENOENT: the file does not exist, -EBADMSG: it is damaged. */
int processes_file_read(struct processes_file *f);
/* Writes f->processes. Negative errno: the write failed, and the file was removed, because the old one would
 * be wrong. If the process is killed, either the complete new file or the complete old file remains; the data
 * may reach the disk later. */
int processes_file_write(struct processes_file *f);
void processes_file_remove(const struct processes_file *f);
