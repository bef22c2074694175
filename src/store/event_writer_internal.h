/* Shared by the parts of the event writer: event_writer.c appends events to a buffer; event_writer_disk.c
 * writes it to the open file; event_writer_file.c opens, syncs and closes files. Private to src/store. */
#pragma once

#include <limits.h>

#include "store/event_writer.h"
#include "sys/disk_writer.h"

#define EVENT_WRITER_NAME_BYTES (EVENT_FILE_TEXT_MAX + 32)

/* The last bytes of the data before a write. */
struct write_guard {
        uint8_t bytes[64];
        size_t n;
};

struct event_writer {
        struct event_file_front front; /* front records of the open file */
        char separator[4];
        bool stamped;
        uint16_t front_crc;
        uint64_t max_events, max_bytes;
        event_writer_closed closed;
        event_writer_sealing sealing;
        event_writer_unindexed unindexed;
        void *userdata;
        int error; /* the first error; all later calls return it */

        int directory_fd, fd;
        char directory[PATH_MAX];
        char writing[EVENT_WRITER_NAME_BYTES], final[EVENT_WRITER_NAME_BYTES];
        char path[PATH_MAX + EVENT_WRITER_NAME_BYTES];
        unsigned files;       /* opened so far */
        bool entry_is_synced; /* the directory entry of the open file is on the disk */

        bool direct, keeps_cached;
        struct disk_writer *disk;
        struct disk_behind behind;
        /* With a single memory, each write ends before the next event comes. */
        uint8_t *memory[2];
        unsigned filling; /* index of the memory that contains `buffer` */
        /* Complete data records that the kernel does not have yet. A direct write begins with a whole block:
         * the bytes before `buffer` are the last bytes of the data that precede it, from a multiple of
         * DISK_BLOCK_BYTES on. */
        uint8_t *buffer;
        size_t buffer_bytes, filled_bytes;
        uint32_t sum;         /* Adler-32 of the file, of the write in progress and of the buffer */
        uint32_t disk_sum;    /* Adler-32 of the data in the file */
        uint64_t disk_bytes;  /* size of the data in the file, which its end record follows */
        uint64_t file_events; /* events in the file, in the write in progress and in the buffer */
        uint64_t disk_events; /* part of these that is in the file */
        /* The write in progress: data records that follow `disk_bytes`, and an end record. */
        struct {
                bool begun;
                const uint8_t *records;
                size_t bytes, lead_bytes;
                uint32_t sum;    /* Adler-32 of the data in the file after the write */
                uint64_t events; /* events in the file after the write */
                time_t begun_at;
                struct write_guard guard;
        } flight;
        struct event_index *index;         /* NULL: none is written, or no longer */
        time_t begun, ended;               /* of the open file; ended: at its last end record */
        uint8_t end[EVENT_FILE_END_BYTES]; /* the last end record */
        uint64_t closed_events, closed_bytes, event_bytes, events_lost, events_synced;
};

/* Builds in `to` the end record of the open file that follows `data_bytes` of data. The caller writes it. */
struct iovec event_writer_end_record(struct event_writer *w, uint64_t data_bytes, uint32_t status, time_t now,
                                     uint8_t to[static EVENT_FILE_END_BYTES]);
/* Finds the highest number of the existing files. Calls `left`, unless it is NULL, for each NAME.writing. */
int event_writer_find_number(struct event_writer *w, event_writer_left left, void *userdata);
int event_writer_open_next(struct event_writer *w, time_t now);
/* Empties the buffer, after data that end before `end`. */
void event_writer_empty_buffer(struct event_writer *w, uint64_t data_bytes, const uint8_t *end);
/* Call these before and after writes at `disk_bytes`. They return -ENOENT if the open file was removed, and
 * -EBADFD if its size was changed before or during the write. `ret` is NULL before a direct write, which
 * needs no guard. */
int event_writer_begin_write(const struct event_writer *w, struct write_guard *ret);
int event_writer_end_write(const struct event_writer *w, const struct write_guard *guard);
/* Removes the padding of a direct write. */
int event_writer_end_direct(const struct event_writer *w, uint64_t size_bytes);
/* Drops the index and reports it, unless `result` is 0. */
void event_writer_check_index(struct event_writer *w, int result);
/* Syncs the open file, which has its end record, and gives it its final name. */
int event_writer_seal(struct event_writer *w);

/* In event_writer_disk.c. All return 0, or the error that ends the writer. */
/* Begins to write the buffer and an end record, after the end of the previous write. */
int event_writer_begin_buffer(struct event_writer *w, uint32_t status, time_t now);
/* Ends the write in progress, if there is one. */
int event_writer_end_buffer(struct event_writer *w);
/* Closes a file whose accepted data the disk lost; it keeps the name NAME.writing. Returns `error`. */
int event_writer_fail_on_disk(struct event_writer *w, int error);
/* Writes an event directly to the file. The buffer must be empty. */
int event_writer_write_large(struct event_writer *w, const uint8_t *record, const struct iovec *iov,
                             size_t n_iov, size_t size_bytes, time_t now);
