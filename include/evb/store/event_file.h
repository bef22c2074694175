/* Reads EventStorage files of versions 2, 5 and 6: the records at the front, the events one by one, the end
 * record, with every bound checked. It also repairs a file that a crash cut short. It looks into events only
 * for repair.
 *
 * Everything is 32-bit little-endian words; docs/event-format.md has the tables. The file is mapped: bytes
 * stay valid until event_file_free(); if another process shortens the file meanwhile, SIGBUS ends this one.
 * One thread per handle. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "evb/format/eformat.h"

#define EVENT_FILE_START 0x1234AAAAu
#define EVENT_FILE_NAMES 0x1234AABBu
#define EVENT_FILE_METADATA 0x1234AABCu
#define EVENT_FILE_RUN 0x1234BBBBu
#define EVENT_FILE_DATA 0x1234CCCCu
#define EVENT_FILE_END 0x1234DDDDu
#define EVENT_FILE_END_MARK 0x1234EEEEu

#define EVENT_FILE_DATA_BYTES 16u /* the record before each event */
#define EVENT_FILE_END_BYTES 40u
#define EVENT_FILE_TEXT_MAX                                                                                  \
        256u /* application and core name with their ends; longer ones are cut when read */
#define EVENT_FILE_METADATA_MAX 16u

/* The records at the front. */
struct event_file_front {
        unsigned version; /* 2, 5, 6 */
        uint32_t file_number;
        uint32_t date, time; /* DDMMYYYY, HHMMSS, local */
        uint32_t max_events, max_megabytes;
        char application[EVENT_FILE_TEXT_MAX];
        char core_name[EVENT_FILE_TEXT_MAX]; /* without the seed that our files carry behind it */
        size_t n_metadata;                   /* v5, v6; the first EVENT_FILE_METADATA_MAX are kept */
        char metadata[EVENT_FILE_METADATA_MAX][EVENT_FILE_TEXT_MAX]; /* "NAME=VALUE" */
        uint32_t run, recording, trigger_type, beam_type, beam_energy;
        uint64_t detector_mask[2]; /* low first */
        /* The seed of a run of pattern sources: " seed=N" at the end of our v2 core names, "Seed=N" in the
         * metadata. */
        bool has_seed;
        uint64_t seed;
};

struct event_file_end {
        uint32_t date, time;
        uint32_t events, megabytes;         /* in this file */
        uint32_t run_events, run_megabytes; /* in the run, up to the end of this file */
        uint32_t status;                    /* 1: the last file of the run */
};

struct event_record {
        size_t offset_bytes; /* of the data record in the file */
        uint32_t block;
        const uint8_t *event;
        uint32_t size_bytes; /* of the event; > 0, a multiple of 4 */
};

struct event_file;

/* -EBADMSG: not such a file, at *ret_fault (may be NULL; offset from the start of the file); or errno of
 * open, fstat, mmap. A file without its end record opens if the records at the front are whole. */
int event_file_open(struct event_file **ret, const char *path, struct eformat_fault *ret_fault);
/* The same for an open descriptor, which stays the caller's. */
int event_file_map(struct event_file **ret, int fd, struct eformat_fault *ret_fault);
struct event_file *event_file_free(struct event_file *file); /* always returns NULL */

const struct event_file_front *event_file_front(const struct event_file *file);
const uint8_t *event_file_bytes(const struct event_file *file, size_t *ret_size_bytes);

/* The record at *position, which moves behind it; set *position to 0 for the first. 1: *ret is it; 0: the end
 * record is there; -EBADMSG: neither. */
int event_file_next(const struct event_file *file, size_t *position, struct event_record *ret,
                    struct eformat_fault *ret_fault);
/* The end record at `position`, where event_file_next returned 0. -EBADMSG: cut short, or bytes follow it. */
int event_file_read_end(const struct event_file *file, size_t position, struct event_file_end *ret,
                        struct eformat_fault *ret_fault);

struct event_file_repair {
        uint64_t events;            /* whole ones, kept */
        uint64_t cut_bytes;         /* of what came after them, a damaged end record too */
        bool was_whole;             /* nothing was wrong; nothing has been changed */
        struct eformat_fault fault; /* what was wrong, where not */
        pid_t holder;               /* -EBUSY: the process that writes the file; 0: unknown */
};

/* Keeps the events before the first incomplete one (its record and everything inside it), and puts a correct
 * end record behind them, dated `now`. If `output` is NULL it repairs the file at `path` in place, else it
 * makes a new file `output`, which must not exist (-EEXIST). The run's counters are those of this file, and
 * its status says that the run ended here. All is on the disk before this returns. -EBADMSG: the records at
 * the front are damaged, so nothing can be kept; or errno. */
int event_file_repair(const char *path, const char *output, time_t now, struct event_file_repair *ret);
