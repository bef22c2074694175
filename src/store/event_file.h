/* Reads EventStorage files of versions 2, 5 and 6: front records, events and end record, with all bounds
 * checked. It also repairs truncated files. Only the repair looks inside events.  All fields are 32-bit
 * little-endian words; docs/event-format.md has the tables. The file is mapped, and its bytes stay valid
 * until event_file_free(). If another process truncates the file in the meantime, SIGBUS kills this process.
 * Only one thread may use a handle. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "format/eformat.h"

#define EVENT_FILE_START 0x1234AAAAu
#define EVENT_FILE_NAMES 0x1234AABBu
#define EVENT_FILE_METADATA 0x1234AABCu
#define EVENT_FILE_RUN 0x1234BBBBu
#define EVENT_FILE_DATA 0x1234CCCCu
#define EVENT_FILE_END 0x1234DDDDu
#define EVENT_FILE_END_MARK 0x1234EEEEu

#define EVENT_FILE_DATA_BYTES 16u /* the record before each event */
#define EVENT_FILE_END_BYTES 40u
/* Size of the application and core name, with the terminating null; the reader truncates longer names. */
#define EVENT_FILE_TEXT_MAX 256u
#define EVENT_FILE_METADATA_MAX 16u
#define EVENT_FILE_METADATA_FREE 12u /* part of these, for the caller of the event writer */

/* The front records. */
struct event_file_front {
        unsigned version; /* 2, 5, 6 */
        uint32_t file_number;
        uint32_t date, time; /* DDMMYYYY, HHMMSS, local time */
        uint32_t max_events, max_megabytes;
        char application[EVENT_FILE_TEXT_MAX];
        char core_name[EVENT_FILE_TEXT_MAX]; /* without the seed that our files append */
        size_t n_metadata;                   /* v5, v6; at most EVENT_FILE_METADATA_MAX */
        char metadata[EVENT_FILE_METADATA_MAX][EVENT_FILE_TEXT_MAX]; /* "NAME=VALUE" */
        uint32_t run, recording, trigger_type, beam_type, beam_energy;
        uint64_t detector_mask[2]; /* low word first */
        /* The seed of a run with pattern sources: " seed=N" at the end of v2 core names, "Seed=N" in the
         * metadata. */
        bool has_seed;
        uint64_t seed;
};

struct event_file_end {
        uint32_t date, time;
        uint32_t events, megabytes;         /* in this file */
        uint32_t run_events, run_megabytes; /* in the run, up to the end of this file */
        uint32_t status;                    /* 1: the last file of the run */
        bool checked; /* has a check of the front records, block numbers and this record */
};

struct event_record {
        size_t offset_bytes; /* offset of the data record in the file */
        uint32_t block;
        const uint8_t *event;
        uint32_t size_bytes; /* size of the event; > 0, a multiple of 4 */
};

struct event_file;

/* Returns 0, -EBADMSG if the front records are invalid (*ret_fault contains the position, and may be NULL),
 * or the error of open, fstat or mmap. A missing end record is not an error. */
int event_file_open(struct event_file **ret, const char *path, struct eformat_fault *ret_fault);
/* event_file_open() for an open descriptor, which the caller keeps. */
int event_file_map(struct event_file **ret, int fd, struct eformat_fault *ret_fault);
struct event_file *event_file_free(struct event_file *file); /* always returns NULL */

const struct event_file_front *event_file_front(const struct event_file *file);
const uint8_t *event_file_bytes(const struct event_file *file, size_t *ret_size_bytes);

/* Reads the record at *position, and advances *position; 0 selects the first record. Returns 1 for a record,
 * 0 at the end record, or -EBADMSG. */
int event_file_next(const struct event_file *file, size_t *position, struct event_record *ret,
                    struct eformat_fault *ret_fault);
/* Reads the end record at the position where event_file_next() returned 0. Returns -EBADMSG if the record is
 * truncated, or is not at the end of the file. */
int event_file_read_end(const struct event_file *file, size_t position, struct event_file_end *ret,
                        struct eformat_fault *ret_fault);

/* What a reader found before the end record. */
struct event_file_found {
        uint64_t events, stamped; /* stamped: events with a stamp */
        uint32_t blocks;          /* XOR of the block numbers */
};

/* Compares the end record at `position` with what was found. Returns NULL, or the reason of a fault (static
 * text). */
const char *event_file_check_end(const struct event_file *file, size_t position,
                                 const struct event_file_end *end, const struct event_file_found *found);

#define EVENT_FILE_INDEX ".index"

/* Writes the index of a whole file to `path` and this ending, in place of an earlier one. Returns 0;
 * -EBADMSG: the file is damaged (*ret_fault contains the position), so it has no index; -EBUSY: a process is
 * writing the file; or another negative errno. *ret_at_index: the error is about the index, of which no
 * incomplete one remains. */
int event_file_write_index(const char *path, uint64_t *ret_events, struct eformat_fault *ret_fault,
                           bool *ret_at_index);

struct event_file_repair {
        uint64_t events;       /* number of intact events, which stay */
        uint64_t gaps, behind; /* gaps: number of damaged places between intact events; behind: number of
                                  intact events after the first such place */
        uint64_t cut_bytes;    /* number of bytes removed, including a damaged end record */
        uint64_t missing;      /* number of events that the end record counts in addition to `events` */
        size_t other_file;     /* offset at which another file begins, to which some of the events of `behind`
                                  belong; 0: none */
        bool wrong_records; /* all events are intact, but the front records, block numbers or end record did
                               not match their check; the new end record has a check of them as they are */
        bool was_whole;     /* the file was intact and did not change */
        struct eformat_fault fault; /* the first damage, if any */
        pid_t holder;               /* -EBUSY: the process that writes the file; 0: unknown */
        bool at_output;             /* the error is about `output`, of which no incomplete file remains */
};

/* Keeps all intact events, and adds a correct end record with the date `now`. If `output` is NULL, repairs
 * the file at `path` in place. Otherwise, creates `output`, which must not exist (-EEXIST). In place, refuses
 * a file with intact events after a damaged place (-EBADMSG, ret->behind). In any case, refuses a file that
 * is followed by events of another file. Until `output` is complete, its name ends with ".repair"; if the
 * caller is root, it gets the owner of the original. The end record marks the last file of the run, and its
 * counters for the run are those of this file. Syncs the result. Returns 0, -EBADMSG if the front records are
 * damaged, -EBUSY, or another negative errno. */
int event_file_repair(const char *path, const char *output, time_t now, struct event_file_repair *ret);
