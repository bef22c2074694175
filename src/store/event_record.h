/* The records of EventStorage files, for the files of src/store that write them. Private to src/store. */
#pragma once

#include <sys/types.h>

#include "store/event_file.h"

struct iovec;
struct stat;
/* Writes all of `iov` at `offset`. *ret_written is the number of written bytes, also on failure. */
int record_write_all(int fd, const struct iovec *iov, size_t n_iov, uint64_t offset, size_t *ret_written);

void record_date(time_t time, uint32_t *ret_date, uint32_t *ret_time);
void record_put_data(uint8_t to[static EVENT_FILE_DATA_BYTES], uint32_t block, uint32_t size_bytes);

/* The check of a file: the CRC-16 (polynomial 0x1021, begins with 0xFFFF) of its front records, of the XOR of
 * all block numbers as a word, and of the end record without the CRC. It is in the status word of the end
 * record: status | CRC << 8 | RECORD_CHECKED. */
#define RECORD_CHECKED (0xEBu << 24)
#define RECORD_CRC_BEGIN 0xFFFFu
uint16_t record_crc(uint16_t crc, const void *bytes, size_t size_bytes);
struct record_check {
        bool on;            /* the file has a check, as all files of stamped events do */
        uint16_t front_crc; /* of the front records */
        uint32_t blocks;    /* XOR of all block numbers */
};
uint16_t event_file_front_crc(const struct event_file *file);
void record_put_end(uint8_t to[static EVENT_FILE_END_BYTES], const struct event_file_end *end,
                    const struct record_check *check);

#define RECORD_FRONT_MAX_BYTES 8192u
/* Builds the front records, with `front->metadata` for version 6. Returns their size, or 0 if a text is too
 * long. */
size_t record_put_front(uint8_t to[static RECORD_FRONT_MAX_BYTES], const struct event_file_front *front);

/* Locks a file for its writer; waits until a repair ends. The lock belongs to the process, because only such
 * locks name their holder. So the process must open the file only once. Has no effect on file systems without
 * locks. */
void record_lock_writing(int fd);
/* Returns the process that holds the lock; 0: none or unknown. */
pid_t record_lock_holder(int fd);
/* Excludes writers while `fd` is open. `writing`: `fd` is open for writing. Returns 0, or -EBUSY if a process
 * is writing the file; *ret_holder is that process, or 0 if it is unknown. */
int record_lock_repair(int fd, bool writing, pid_t *ret_holder);

/* The index of one file at a time, in event_index.c. Functions return 0 or a negative errno; after an error,
 * only event_index_drop() and event_index_free() may follow. */
struct event_index;
struct event_index *event_index_new(void);                       /* NULL: no memory */
struct event_index *event_index_free(struct event_index *index); /* drops it; always returns NULL */
/* Creates `name` in the directory, which must stay open. `front_sum` is the Adler-32 of the front records. */
int event_index_begin(struct event_index *index, int directory_fd, const char *name, unsigned file_version,
                      uint32_t front_sum);
/* Adds an event of this size, at this offset in the file. `info` is what a reader finds in the event. */
int event_index_add(struct event_index *index, uint64_t at, size_t size_bytes, const struct event_info *info);
/* Completes the index of the closed file, whose end record is `end`, and renames it to `name`. */
int event_index_finish(struct event_index *index, const char *name, const struct stat *st,
                       const uint8_t end[static EVENT_FILE_END_BYTES]);
/* Removes the index that was begun, if there is one. */
void event_index_drop(struct event_index *index);
