/* Shared by both parts of the event writer: event_writer.c appends events to the open file;
 * event_writer_file.c opens, syncs and closes it. Private to src/store. */
#pragma once

#include <limits.h>

#include "evb/store/event_writer.h"

#define EVENT_WRITER_NAME_BYTES (EVENT_FILE_TEXT_MAX + 32)

struct event_writer {
        struct event_file_front front; /* of the open file */
        uint64_t max_events, max_bytes;
        event_writer_closed closed;
        event_writer_sealing sealing;
        void *userdata;
        int error; /* the first one; all later calls return it */

        int directory_fd, fd;
        char directory[PATH_MAX];
        char writing[EVENT_WRITER_NAME_BYTES], final[EVENT_WRITER_NAME_BYTES];
        char path[PATH_MAX + EVENT_WRITER_NAME_BYTES];
        unsigned files;       /* opened so far */
        bool entry_is_synced; /* the directory entry of the open file is on the disk */

        /* Complete data records that are not in the file yet. The file's end record begins at `disk_bytes`.
         */
        uint8_t *buffer;
        size_t buffer_bytes, filled_bytes;
        uint64_t disk_bytes;
        uint64_t file_events;               /* in the file and the buffer */
        uint64_t disk_events;               /* of these, in the file */
        uint64_t begun_bytes, waited_bytes; /* offsets up to which write-back has begun, and ended */
        uint64_t closed_events, closed_bytes, event_bytes, events_lost, events_synced;
};

/* Builds in `to` the end record of the open file that follows `data_bytes` of data. */
struct iovec event_writer_end_record(const struct event_writer *w, uint64_t data_bytes, uint32_t status,
                                     time_t now, uint8_t to[static EVENT_FILE_END_BYTES]);
/* Finds the highest number of existing files. Calls `left`, unless it is NULL, for each NAME.writing. */
int event_writer_find_number(struct event_writer *w, event_writer_left left, void *userdata);
int event_writer_open_next(struct event_writer *w, time_t now);
/* The last bytes of the data before a write. */
struct write_guard {
        uint8_t bytes[64];
        uint64_t at;
};
/* Enclose writes at `disk_bytes`. Return -ENOENT if somebody removed the open file, -EBADFD if somebody
 * changed its size, also in between. */
int event_writer_begin_write(const struct event_writer *w, struct write_guard *ret);
int event_writer_end_write(const struct event_writer *w, const struct write_guard *guard);
/* Starts write-back of new data, so that sealing the file is fast. */
int event_writer_write_back(struct event_writer *w);
/* Syncs the open file, which has its end record, and gives it its final name. */
int event_writer_seal(struct event_writer *w);
