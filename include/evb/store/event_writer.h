/* Writes events to EventStorage files (version 2 or 6): NAME.writing while it grows, NAME.data when it is
 * whole, the next file after so many events or bytes. A file on the disk ends in a right end record at all
 * times but inside one write.
 *
 * One thread a writer, and it may block in write and fsync: not the thread that receives. The clock is the
 * caller's. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>

#include "evb/store/event_file.h"

/* A file has been closed and has its final name. Called by event_writer_write and _close; `path` is the
 * callee's for the time of the call. */
typedef void (*event_writer_closed)(void *userdata, const char *path, uint64_t events, uint64_t size_bytes);

/* All events of the file are with the kernel, and now it is sealed, which may take long. Called as above. */
typedef void (*event_writer_sealing)(void *userdata);
/* A file that is NAME.writing when the writer begins: its process has ended without closing it, so that it
 * waits for event_file_repair, or is `writer` (0: none is known) and still writes. Called by
 * event_writer_new. */
typedef void (*event_writer_left)(void *userdata, const char *path, pid_t writer);

struct event_writer_settings {
        const char *directory;   /* must exist */
        /* ATLAS-like, see event_writer_core_name; files are DIRECTORY/CORE._NNNN.data, NNNN from 0001, or
         * from behind the highest number that is there, closed or not. */
        const char *core_name;
        const char *application; /* "SFI-1" */
        unsigned version;        /* struct eformat: storage_version */
        /* When to start the next; 0: never for that reason. A file holds one event at least. */
        uint64_t file_events, file_bytes;
        uint32_t run, trigger_type, lumi_block;
        uint64_t detector_mask;
        bool has_seed;           /* of pattern sources; see struct event_file_front */
        uint64_t seed;
        size_t buffer_bytes;     /* 0: 4 MiB */
        event_writer_closed closed; /* may be NULL, like the others */
        event_writer_sealing sealing;
        event_writer_left left;
        void *userdata;
};

struct event_writer_counts {
        uint64_t events, event_bytes; /* accepted and not lost since; bytes without data records */
        uint64_t events_lost;    /* accepted, then lost with the buffer to an error of the disk */
        /* Of `events`, in the order of their acceptance the first so many: */
        uint64_t events_written; /* handed to the kernel: they outlive the process */
        uint64_t events_synced;  /* on the disk: they outlive the machine */
        uint64_t events_closed;  /* in closed files */
        uint64_t file_bytes;     /* closed files, and the open one as it would be closed now */
        unsigned files;          /* begun */
};

struct event_writer;

/* "data26_evb.00091668.physics_Main.daq.RAW._lb0000._SFI-1"; `time` gives the year. At least 96 bytes. */
char *event_writer_core_name(char *text, size_t size_bytes, time_t time, uint32_t run, uint32_t lumi_block,
                             const char *application);

/* Opens the first file. Strings are copied. No file is ever overwritten: numbers that are taken are passed
 * over. The open file is locked (fcntl), so that event_file_repair leaves it alone. -EINVAL: version;
 * -ENAMETOOLONG; errno of open or write (ENOSPC...). */
int event_writer_new(struct event_writer **ret, const struct event_writer_settings *settings, time_t now);
/* Without event_writer_close first, the file stays as NAME.writing and lacks what is in the buffer. Returns
 * NULL. */
struct event_writer *event_writer_free(struct event_writer *writer);

/* One event, whose `size_bytes` bytes are iov[0] to iov[n_iov - 1]; borrowed for the time of the call. `iov`
 * is not changed. Small events are gathered in the buffer, large ones go to the file by writev. An error
 * (-ENOSPC, -EIO, -EFBIG...) is final: the file has been cut back to its last whole event and closed in
 * order, a readable NAME.data (where even that fails it stays as NAME.writing, for event_file_repair). Events
 * accepted earlier that were still in the buffer are lost, see event_writer_counts; this one is too. Every
 * later call returns the same error. -EMSGSIZE: the sizes do not add up, or are no whole words, or 4 GiB;
 * nothing has happened. */
int event_writer_write(struct event_writer *writer, const struct iovec *iov, size_t n_iov, size_t size_bytes,
                       time_t now);
/* Hands what the buffer holds to the kernel. Errors as above. */
int event_writer_flush(struct event_writer *writer, time_t now);
/* The same, and waits until all of it is on the disk. After an error of the disk the file stays as
 * NAME.writing: what is in it cannot be relied on. */
int event_writer_sync(struct event_writer *writer, time_t now);
/* Flushes, writes the end record (last file of the run), fsyncs, renames, fsyncs the directory. Errors as
 * above. */
int event_writer_close(struct event_writer *writer, time_t now);

void event_writer_counts(const struct event_writer *writer, struct event_writer_counts *ret);
unsigned event_writer_file_number(const struct event_writer *writer); /* of the newest file */
const char *event_writer_path(const struct event_writer *writer); /* of the newest file, as it is named now */
