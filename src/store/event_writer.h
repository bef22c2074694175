/* Writes events to EventStorage files (version 2 or 6). A file is NAME.writing while it grows and NAME.data
 * once it is complete; a configured number of events or bytes starts the next one. Between writes, a file
 * always ends with a correct end record.
 *
 * One thread per writer, and not the receiving thread, as write and fsync may block. The caller provides the
 * time. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>

#include "store/event_file.h"

/* A closed file. Its checksum follows from those of its events, so it was computed before they were on disk.
 */
struct event_writer_file {
        const char *path;
        uint64_t events, size_bytes;
        uint32_t sum; /* Adler-32 of all bytes of the file */
        time_t begun, ended;
};

/* Reports a closed file, which has its final name. Called by event_writer_write() and event_writer_close();
 * `file` is valid only during the call. */
typedef void (*event_writer_closed)(void *userdata, const struct event_writer_file *file);

/* Reports that a file is about to be sealed, which may take a long time. The kernel has all its events.
 * Called in the same way. */
typedef void (*event_writer_sealing)(void *userdata);
/* Reports a NAME.writing that exists when the writer starts. Either the process `writer` is still writing it,
 * or (0: no such process is known) its process ended early, and event_file_repair() can repair it. Called by
 * event_writer_new(). */
typedef void (*event_writer_left)(void *userdata, const char *path, pid_t writer);

/* Reports that an index cannot be written. It was removed, and the following files get none. */
typedef void (*event_writer_unindexed)(void *userdata, const char *path, int error);

struct event_writer_settings {
        const char *directory; /* must exist */
        /* See event_writer_core_name(). Files are DIRECTORY/CORE._NNNN.data, or have another separator (at
         * most 3 bytes; NULL: "._") between CORE and NNNN; NNNN begins at 0001, or after
         * the highest number of an existing .data or .writing file. */
        const char *core_name, *separator;
        const char *application; /* "SFI-1" */
        unsigned version;        /* see `storage_version` of struct eformat */
        /* Limits of a file; 0: unlimited. A file holds at least one event. */
        uint64_t file_events, file_bytes;
        uint32_t run, trigger_type, lumi_block;
        uint64_t detector_mask;
        /* Version 6: "NAME=VALUE", further metadata; at most EVENT_FILE_METADATA_FREE. */
        const char (*metadata)[EVENT_FILE_TEXT_MAX];
        size_t n_metadata;
        bool stamped;  /* all events have the builder's stamp, so the end record has a check of the file */
        bool has_seed; /* for pattern sources; see struct event_file_front */
        uint64_t seed;
        size_t buffer_bytes; /* 0: 4 MiB */
        /* The kernel writes a full buffer while a second one fills; see sys/disk_writer.h. */
        bool background;
        /* Events up to the size of the buffer bypass the page cache (O_DIRECT). */
        bool direct;
        /* Data that are on the disk stay in the page cache, where other programs can read them; otherwise,
         * they are dropped from it. */
        bool keeps_cached;
        /* Each file gets an index; see event_file_write_index(). A file that an error ends has none. */
        bool indexed;
        event_writer_closed closed; /* callbacks may be NULL */
        event_writer_sealing sealing;
        event_writer_unindexed unindexed;
        event_writer_left left;
        void *userdata;
};

struct event_writer_counts {
        uint64_t events, event_bytes; /* accepted events that are not lost; the bytes exclude data records */
        uint64_t events_lost; /* events that were accepted and then lost with the buffer after a disk error */
        /* Of `events`, the oldest: */
        uint64_t events_written; /* events that the kernel has, and that survive the end of the process */
        uint64_t events_synced;  /* events on the disk, which survive a crash of the machine */
        uint64_t events_closed;  /* in closed files */
        uint64_t file_bytes;     /* size of the closed files, and of the open file if it were closed now */
        uint64_t written_bytes;  /* size of the closed files, and of the open file what the kernel has */
        unsigned files;          /* number of files opened */
};

struct event_writer;

/* "data26_evb.00091668.physics_Main.daq.RAW._lb0000._SFI-1"; `time` gives the year. `text` needs at least 96
 * bytes. */
char *event_writer_core_name(char *text, size_t size_bytes, time_t time, uint32_t run, uint32_t lumi_block,
                             const char *application);

/* Opens the first file, and copies the strings. Never overwrites a file; if a file has the next number, skips
 * this number. An fcntl lock on the open file excludes event_file_repair(). Returns 0, -EINVAL for an
 * unsupported version, -ENAMETOOLONG, or the error of open, write or, if `direct`, disk_set_direct(). */
int event_writer_new(struct event_writer **ret, const struct event_writer_settings *settings, time_t now);
/* Without a previous event_writer_close(), the file keeps the name NAME.writing, and does not contain the
 * buffered events. Returns NULL. */
struct event_writer *event_writer_free(struct event_writer *writer);

/* Writes one event of `size_bytes` bytes, to which `iov` refers. `sum` is their Adler-32; 0: unknown, so it
 * is computed. `info` is for the index; it may be NULL if none is written. Small events go to the buffer, and
 * large events directly to the file.  An error (-ENOSPC, -EIO, -EFBIG...) is final, and all later calls
 * return it. The writer truncates the file after its last complete event and closes it as NAME.data. If this
 * fails too, the file keeps the name NAME.writing for event_file_repair(). This event and the buffered events
 * are lost: see event_writer_counts().  -EBADFD: another program changed the size of the file, which keeps
 * the name NAME.writing, or put another file in its place, which keeps this name.  -EMSGSIZE has no effect on
 * the writer: `size_bytes` is not the size of `iov`, not a multiple of 4, 0, or above 4 GiB. */
int event_writer_write(struct event_writer *writer, const struct iovec *iov, size_t n_iov, size_t size_bytes,
                       uint32_t sum, const struct event_info *info, time_t now);
/* Records the end of a background write, without waiting for it. Errors as above. */
int event_writer_poll(struct event_writer *writer);
/* Writes the buffer to the file. Errors as above. */
int event_writer_flush(struct event_writer *writer, time_t now);
/* Flushes, and waits until the disk has all events. After a disk error the file stays NAME.writing, because
 * its content is unreliable. */
int event_writer_sync(struct event_writer *writer, time_t now);
/* Flushes, marks the file as the last one of the run, syncs and renames it. Errors as above.  -ESTALE: all of
 * this was done, but another program moved or replaced the directory meanwhile. */
int event_writer_close(struct event_writer *writer, time_t now);

/* Explains the error of a call: as strerror() does, or with its own text for -EBADFD and -ESTALE. */
const char *event_writer_describe_error(int error);
/* Whether the error means that the disk, or the user's share of it, is full. */
bool event_writer_is_full(int error);
void event_writer_counts(const struct event_writer *writer, struct event_writer_counts *ret);
/* Number and current path of the newest file. */
unsigned event_writer_file_number(const struct event_writer *writer);
const char *event_writer_path(const struct event_writer *writer);
