/* Passes one write at a time to an io_uring, or writes it at once; limits the data that is only in memory. */
#include "sys/disk_writer.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/util.h"
#include "sys/uring.h"

/* Write-back starts after every WRITE_BACK_BYTES. The writer waits until data that are WRITE_BEHIND_BYTES
 * before its position are on the disk. */
#define WRITE_BACK_BYTES ((uint64_t)8 << 20)
#define WRITE_BEHIND_BYTES ((uint64_t)64 << 20)

struct disk_writer {
        bool background;
        struct uring *uring; /* created by the thread that writes first */
        /* The write that has begun. */
        bool begun, in_kernel;
        int fd, error;
        const uint8_t *bytes;
        size_t size_bytes, written;
        uint64_t offset;
};

int disk_writer_new(struct disk_writer **ret, bool background)
{
        struct disk_writer *w = calloc(1, sizeof *w);

        if (!w)
                return -ENOMEM;
        w->background = background;
        *ret = w;
        return 0;
}

struct disk_writer *disk_writer_free(struct disk_writer *w)
{
        size_t ignored;

        if (!w)
                return NULL;
        if (w->begun)
                (void)disk_writer_end(w, &ignored);
        uring_free(w->uring);
        free(w);
        return NULL;
}

/* The ring belongs to the thread that creates it, so the first write creates it. */
static bool has_uring(struct disk_writer *w)
{
        if (w->background && !w->uring && uring_new(&w->uring, 1, 1) < 0)
                w->background = false;
        return w->background;
}

static bool is_direct(int fd)
{
        int flags = fcntl(fd, F_GETFL);

        return flags >= 0 && (flags & O_DIRECT);
}

static int submit(struct disk_writer *w)
{
        struct io_uring_sqe *request = uring_request(w->uring);

        assert(request);
        request->opcode = IORING_OP_WRITE;
        /* A worker copies to the page cache, which takes time; a direct write is only started here. */
        request->flags = is_direct(w->fd) ? 0 : IOSQE_ASYNC;
        request->fd = w->fd;
        request->off = w->offset;
        request->addr = (uintptr_t)w->bytes;
        request->len = (uint32_t)w->size_bytes;
        return uring_submit(w->uring, 0);
}

/* Writes the rest. A direct write that ended within a block continues through the page cache; so does one
 * that the file system refuses as unaligned, e.g. because a limit shortened it. */
static int write_rest(struct disk_writer *w)
{
        bool was_direct = w->written < w->size_bytes && is_direct(w->fd), direct = was_direct;
        int r = 0;

        while (w->written < w->size_bytes && r == 0) {
                struct iovec iov = {(void *)(w->bytes + w->written), w->size_bytes - w->written};
                bool refused;
                ssize_t n;

                if (direct && w->written % DISK_BLOCK_BYTES > 0)
                        direct = disk_set_direct(w->fd, false) < 0;
                n = pwritev(w->fd, &iov, 1, (off_t)(w->offset + w->written));
                w->written += (size_t)MAX(n, 0);
                refused = n < 0 && errno == EINVAL && direct && disk_set_direct(w->fd, false) >= 0;
                direct &= !refused;
                if (n <= 0 && !refused && !(n < 0 && errno == EINTR))
                        r = n < 0 ? -errno : -EIO;
        }
        if (was_direct && !direct)
                (void)disk_set_direct(w->fd, true);
        return r;
}

void disk_writer_begin(struct disk_writer *w, int fd, const void *bytes, size_t size_bytes, uint64_t offset)
{
        assert(!w->begun && size_bytes <= UINT32_MAX);
        w->begun = true;
        w->fd = fd;
        w->bytes = bytes;
        w->size_bytes = size_bytes;
        w->offset = offset;
        w->written = 0;
        w->in_kernel = has_uring(w) && submit(w) >= 0;
        if (w->in_kernel)
                return;
        w->background = false; /* the kernel refused the request */
        w->error = write_rest(w);
}

/* Errors after which write_rest() may succeed. */
static bool may_pass(int error)
{
        /* ECANCELED: the kernel could not create a worker. */
        return error == -EINTR || error == -EAGAIN || error == -EINVAL || error == -ECANCELED;
}

static void complete(struct disk_writer *w, const struct io_uring_cqe *done)
{
        w->in_kernel = false;
        w->error = done->res < 0 && !may_pass(done->res) ? done->res : 0;
        w->written = (size_t)MAX(done->res, 0);
}

bool disk_writer_is_done(struct disk_writer *w)
{
        struct io_uring_cqe done;

        if (w->in_kernel && uring_submit(w->uring, 0) >= 0 && uring_completion(w->uring, &done))
                complete(w, &done);
        return !w->in_kernel;
}

int disk_writer_end(struct disk_writer *w, size_t *ret_written)
{
        struct io_uring_cqe done;
        int r = 0;

        assert(w->begun);
        while (w->in_kernel && r >= 0) {
                if (uring_completion(w->uring, &done))
                        complete(w, &done);
                else
                        r = uring_submit(w->uring, 1);
        }
        if (r >= 0)
                r = w->error < 0 ? w->error : write_rest(w);
        w->begun = w->in_kernel = false;
        *ret_written = w->written;
        return r;
}

/* ---- Direct writes ---- */

/* If the file system does not report its alignment, the first write detects an unsuitable one. */
static int check_alignment(int fd)
{
#ifdef STATX_DIOALIGN
        struct statx x;

        if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &x) < 0 || !(x.stx_mask & STATX_DIOALIGN))
                return 0;
        if (x.stx_dio_offset_align == 0 || DISK_BLOCK_BYTES % x.stx_dio_offset_align > 0 ||
            DISK_BLOCK_BYTES % x.stx_dio_mem_align > 0)
                return -EOPNOTSUPP;
#endif
        return 0;
}

int disk_set_direct(int fd, bool direct)
{
        int flags = fcntl(fd, F_GETFL), r = direct ? check_alignment(fd) : 0;

        if (flags < 0)
                return -errno;
        if (r < 0)
                return r;
        flags = direct ? flags | O_DIRECT : flags & ~O_DIRECT;
        return fcntl(fd, F_SETFL, flags) < 0 ? -errno : 0;
}

int disk_check_direct(const char *directory)
{
        _cleanup_close_ int fd = open(directory, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);

        /* Without unnamed files, only the first file shows whether direct writes work. */
        if (fd < 0)
                return errno == EOPNOTSUPP || errno == EISDIR ? 0 : -errno;
        return disk_set_direct(fd, true);
}

/* ---- Write-back ---- */

/* Ignores an unsupported call, but not a failed write, which the kernel reports only once. */
static int sync_range(int fd, uint64_t from, uint64_t to, unsigned flags)
{
        if (sync_file_range(fd, (off_t)from, (off_t)(to - from), flags) == 0)
                return 0;
        return errno == EIO || errno == ENOSPC || errno == EDQUOT ? -errno : 0;
}

/* Pages that leave the cache are reused for the next data: memory in use costs less than new memory, above
 * all in a virtual machine whose host must provide it first. */
static int wait_for_disk(const struct disk_behind *b, int fd, uint64_t to)
{
        const unsigned wait =
                SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
        int r = sync_range(fd, b->waited_bytes, to, wait);

        if (r == 0 && b->drops)
                (void)posix_fadvise(fd, (off_t)b->waited_bytes, (off_t)(to - b->waited_bytes),
                                    POSIX_FADV_DONTNEED);
        return r;
}

int disk_write_behind(struct disk_behind *b, int fd, uint64_t size_bytes)
{
        uint64_t whole = size_bytes - size_bytes % WRITE_BACK_BYTES;
        uint64_t behind = whole > WRITE_BEHIND_BYTES ? whole - WRITE_BEHIND_BYTES : 0;
        int r = 0;

        if (whole > b->begun_bytes)
                r = sync_range(fd, b->begun_bytes, whole, SYNC_FILE_RANGE_WRITE);
        if (r == 0 && behind > b->waited_bytes)
                r = wait_for_disk(b, fd, behind);
        b->begun_bytes = MAX(b->begun_bytes, whole);
        b->waited_bytes = MAX(b->waited_bytes, behind);
        return r;
}

void disk_drop_cached(int fd)
{
        (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
}

int disk_read(int fd, uint64_t offset, void *bytes, size_t n)
{
        uint8_t *at = bytes;

        while (n > 0) {
                ssize_t got = pread(fd, at, n, (off_t)offset);

                if (got < 0 && errno == EINTR)
                        continue;
                if (got <= 0)
                        return got < 0 ? -errno : -ENODATA;
                at += got;
                offset += (uint64_t)got;
                n -= (size_t)got;
        }
        return 0;
}
