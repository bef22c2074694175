/* The records of EventStorage files as words, for the parts of the store that write them. Private to
 * src/store. */
#pragma once

#include <sys/types.h>

#include "evb/store/event_file.h"

/* `size_bytes` bytes and no less, at `offset`; *ret_written says how many there are, also on failure. */
struct iovec;
int record_write_all(int fd, const struct iovec *iov, size_t n_iov, uint64_t offset, size_t *ret_written);

void record_date(time_t time, uint32_t *ret_date, uint32_t *ret_time);
void record_put_data(uint8_t to[static EVENT_FILE_DATA_BYTES], uint32_t block, uint32_t size_bytes);
void record_put_end(uint8_t to[static EVENT_FILE_END_BYTES], const struct event_file_end *end);

#define RECORD_FRONT_MAX_BYTES 2048u
/* Makes the records at the front, with `front->metadata` for version 6. Returns their size; 0 if texts are
 * too long. */
size_t record_put_front(uint8_t to[static RECORD_FRONT_MAX_BYTES], const struct event_file_front *front);

/* Locks a file that is being written. The lock belongs to the process, as only such locks name their holder,
 * so the process must open the file only once. Waits for a repair that came first. Without locks in the file
 * system nothing is locked. */
void record_lock_writing(int fd);
/* The process that holds the lock; 0: none, or unknown. */
pid_t record_lock_holder(int fd);
/* Keeps writers away while `fd` is open. -EBUSY: a process writes the file, *ret_holder as above. `fd` is
 * open for writing if `writing`, else for reading. */
int record_lock_repair(int fd, bool writing, pid_t *ret_holder);
