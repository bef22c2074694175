/* Writes large buffers to a file, one at a time. With io_uring the kernel writes while the caller fills the
 * next buffer; without it, or if the kernel does not permit it, disk_writer_begin() writes at once. One
 * thread, from the first disk_writer_begin() onwards. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Offsets, sizes and addresses of direct writes must be multiples of this. */
#define DISK_BLOCK_BYTES 4096u

struct disk_writer;

/* `background`: uses io_uring. Returns negative errno. */
int disk_writer_new(struct disk_writer **ret, bool background);
/* Waits for a write that has begun. Returns NULL. */
struct disk_writer *disk_writer_free(struct disk_writer *w);

/* Starts to write `size_bytes` bytes at `offset`. The bytes and `fd` must stay valid until disk_writer_end(),
 * which must end each write before the next one starts. */
void disk_writer_begin(struct disk_writer *w, int fd, const void *bytes, size_t size_bytes, uint64_t offset);
/* Whether disk_writer_end() would not wait. */
bool disk_writer_is_done(struct disk_writer *w);
/* Waits until all bytes are written, and returns 0 or negative errno; *ret_written is their number, also on
 * failure. */
int disk_writer_end(struct disk_writer *w, size_t *ret_written);

/* Makes writes to a file bypass the page cache (O_DIRECT), or not. -EINVAL, -EOPNOTSUPP: the file system does
 * not support it, or not in blocks of DISK_BLOCK_BYTES. */
int disk_set_direct(int fd, bool direct);
/* Whether a new file in this directory can be written directly: 0, an error of disk_set_direct(), or another
 * negative errno. */
int disk_check_direct(const char *directory);

/* The write-back progress of a growing file; all zeros at first. */
struct disk_behind {
        uint64_t begun_bytes, waited_bytes; /* offsets up to which write-back has begun, and ended */
        bool drops;                         /* written pages leave the page cache */
};

/* Starts write-back of new data up to `size_bytes`, and waits for old data, so that a file never has more
 * than about 72 MiB of unwritten data and syncing it is fast. Negative errno if the disk lost data, which the
 * kernel reports only once. */
int disk_write_behind(struct disk_behind *b, int fd, uint64_t size_bytes);
/* Drops a file from the page cache, except for pages that are not yet on the disk. */
void disk_drop_cached(int fd);
/* Reads n bytes of a file at an offset. Returns negative errno; -ENODATA: the file ends before; -EINVAL: no
 * file has this offset. */
int disk_read(int fd, uint64_t offset, void *bytes, size_t n);
