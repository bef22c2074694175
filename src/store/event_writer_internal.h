/* Shared by the two halves of the event writer: event_writer.c puts events into the open file,
 * event_writer_file.c opens it, makes it durable and closes it. Private to src/store. */
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
        int error; /* the first; every call returns it from then on */

        int directory_fd, fd;
        char directory[PATH_MAX];
        char writing[EVENT_WRITER_NAME_BYTES], final[EVENT_WRITER_NAME_BYTES];
        char path[PATH_MAX + EVENT_WRITER_NAME_BYTES];
        unsigned files;       /* begun */
        bool entry_is_synced; /* the directory entry of the open file is on the disk */

        /* Whole data records that are not in the file yet. The file holds `disk_bytes` of them; its end
         * record begins there. */
        uint8_t *buffer;
        size_t buffer_bytes, filled_bytes;
        uint64_t disk_bytes;
        uint64_t file_events;               /* in the file and the buffer */
        uint64_t disk_events;               /* of these, in the file */
        uint64_t begun_bytes, waited_bytes; /* of the file: write-back begun, write-back done */
        uint64_t closed_events, closed_bytes, event_bytes, events_lost, events_synced;
};

/* The end record of the open file after `data_bytes` of data; `to` holds its bytes. */
struct iovec event_writer_end_record(const struct event_writer *w, uint64_t data_bytes, uint32_t status,
                                     time_t now, uint8_t to[static EVENT_FILE_END_BYTES]);
/* Opens the next file. Calls `left`, unless it is NULL, for each file that is still NAME.writing. Negative
 * errno. */
int event_writer_find_number(struct event_writer *w, event_writer_left left, void *userdata);
int event_writer_open_next(struct event_writer *w, time_t now);
/* -ENOENT: somebody removed the open file. -EBADFD: somebody changed its size. */
int event_writer_check_linked(const struct event_writer *w);
/* Lets the disk begin with what the file has grown by, so that little is left to do when it is sealed. */
int event_writer_write_back(struct event_writer *w);
/* The open file has its end record: makes it durable, and gives it its final name. */
int event_writer_seal(struct event_writer *w);
