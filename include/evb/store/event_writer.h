/* Writes events to EventStorage files (version 2 or 6): NAME.writing while it grows, NAME.data once it is
 * whole, and the next file after so many events or bytes. Except during a write, a file on the disk always
 * ends in a correct end record.
 *
 * One thread per writer. It may block in write and fsync, so it is not the receiving thread. The caller
 * supplies the clock. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>

#include "evb/store/event_file.h"

/* A file is closed and has its final name. Called by event_writer_write() and _close(); `path` is valid
 * during the call. */
typedef void (*event_writer_closed)(void *userdata, const char *path, uint64_t events, uint64_t size_bytes);

/* The kernel has all events of the file, and sealing it begins, which may take long. Called as above. */
typedef void (*event_writer_sealing)(void *userdata);
/* A file that is NAME.writing when the writer starts. Either its process ended without closing it, and
 * event_file_repair() can repair it, or the process `writer` (0: none known) still writes it. Called by
 * event_writer_new(). */
typedef void (*event_writer_left)(void *userdata, const char *path, pid_t writer);

struct event_writer_settings {
        const char *directory; /* must exist */
        /* ATLAS-like, see event_writer_core_name(); files are DIRECTORY/CORE._NNNN.data, NNNN from 0001 or
         * from the highest existing number plus 1, closed files or not. */
        const char *core_name;
        const char *application; /* "SFI-1" */
        unsigned version;        /* struct eformat: storage_version */
        /* When to start the next; 0: never for that reason. A file holds one event at least. */
        uint64_t file_events, file_bytes;
        uint32_t run, trigger_type, lumi_block;
        uint64_t detector_mask;
        bool has_seed; /* of pattern sources; see struct event_file_front */
        uint64_t seed;
        size_t buffer_bytes;        /* 0: 4 MiB */
        event_writer_closed closed; /* may be NULL, like the others */
        event_writer_sealing sealing;
        event_writer_left left;
        void *userdata;
};

struct event_writer_counts {
        uint64_t events, event_bytes; /* accepted and not lost since; bytes without data records */
        uint64_t events_lost;         /* accepted, then lost with the buffer to an error of the disk */
        /* Of `events`, in order of acceptance, this many from the first on are: */
        uint64_t events_written; /* with the kernel: they survive the process */
        uint64_t events_synced;  /* on the disk: they survive the machine */
        uint64_t events_closed;  /* in closed files */
        uint64_t file_bytes;     /* closed files, and the open one as it would be closed now */
        unsigned files;          /* begun */
};

struct event_writer;

/* "data26_evb.00091668.physics_Main.daq.RAW._lb0000._SFI-1"; `time` gives the year. At least 96 bytes. */
char *event_writer_core_name(char *text, size_t size_bytes, time_t time, uint32_t run, uint32_t lumi_block,
                             const char *application);

/* Opens the first file. Strings are copied. It never overwrites a file: it skips numbers that are taken. The
 * open file is locked (fcntl), so event_file_repair() leaves it alone. -EINVAL: version; -ENAMETOOLONG; errno
 * of open or write (ENOSPC...). */
int event_writer_new(struct event_writer **ret, const struct event_writer_settings *settings, time_t now);
/* Without event_writer_close() first, the file stays NAME.writing and lacks what is in the buffer. Returns
 * NULL. */
struct event_writer *event_writer_free(struct event_writer *writer);

/* Writes one event, whose `size_bytes` bytes are iov[0] to iov[n_iov - 1], borrowed during the call. `iov`
 * does not change. Small events are gathered in the buffer, large ones go to the file by writev. An error
 * (-ENOSPC, -EIO, -EFBIG...) is final: the file is cut back to its last whole event and closed as a readable
 * NAME.data; if even that fails, it stays NAME.writing for event_file_repair(). This event is lost, as are
 * earlier ones that were still in the buffer: see event_writer_counts(). Every later call returns the same
 * error. -EBADFD: another program changed the size of the file, which stays NAME.writing. -EMSGSIZE: the
 * sizes do not add up, are not whole words, or exceed 4 GiB; the call did nothing. */
int event_writer_write(struct event_writer *writer, const struct iovec *iov, size_t n_iov, size_t size_bytes,
                       time_t now);
/* Hands the buffer to the kernel. Errors as above. */
int event_writer_flush(struct event_writer *writer, time_t now);
/* The same, and waits until all of it is on the disk. After a disk error the file stays NAME.writing: its
 * content is unreliable. */
int event_writer_sync(struct event_writer *writer, time_t now);
/* Flushes, writes the end record (last file of the run), fsyncs, renames, fsyncs the directory. Errors as
 * above. */
int event_writer_close(struct event_writer *writer, time_t now);

/* What the error of a call means; as strerror(), and for -EBADFD in our own words. */
const char *event_writer_describe_error(int error);
void event_writer_counts(const struct event_writer *writer, struct event_writer_counts *ret);
unsigned event_writer_file_number(const struct event_writer *writer); /* of the newest file */
const char *event_writer_path(const struct event_writer *writer); /* of the newest file, as it is named now */
