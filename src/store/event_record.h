/* The records of EventStorage files in words, for the parts of the store that write them. Private to src/store. */
#pragma once

#include "evb/store/event_file.h"

/* `size_bytes` bytes and no less, at `offset`; *ret_written says how many there are, also on failure. */
struct iovec;
int record_write_all(int fd, const struct iovec *iov, size_t n_iov, uint64_t offset, size_t *ret_written);

void record_date(time_t time, uint32_t *ret_date, uint32_t *ret_time);
void record_put_data(uint8_t to[static EVENT_FILE_DATA_BYTES], uint32_t block, uint32_t size_bytes);
void record_put_end(uint8_t to[static EVENT_FILE_END_BYTES], const struct event_file_end *end);

#define RECORD_FRONT_MAX_BYTES 2048u
/* The records at the front, `front->metadata` for version 6. Returns their size; 0 where texts are too long. */
size_t record_put_front(uint8_t to[static RECORD_FRONT_MAX_BYTES], const struct event_file_front *front);
