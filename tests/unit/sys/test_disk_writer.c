/* Tests writes in the background, at once and past the page cache, and the limit of data that are only in
 * memory. */
#include "../test.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <linux/magic.h>
#include <signal.h>
#include <unistd.h>

#include "sys/disk_writer.h"

DEFINE_FREEP(disk_writer)

#define BYTES (1u << 20)
#define MIB ((uint64_t)1 << 20)

static char path[] = "/var/tmp/evb-disk-writer-XXXXXX";
static int fd;
static _Alignas(DISK_BLOCK_BYTES) uint8_t bytes[BYTES], seen[BYTES];

int __real_sync_file_range(int f, off_t offset, off_t n, unsigned flags);

/* ---- Write-back ---- */

static uint64_t begun, waited;
static int range_error;

int __wrap_sync_file_range(int f, off_t offset, off_t n, unsigned flags)
{
        if (f == fd)
                return __real_sync_file_range(f, offset, n, flags);
        assert_int_equal(f, 7);
        if (range_error) {
                errno = range_error;
                return -1;
        }
        if (flags & SYNC_FILE_RANGE_WAIT_AFTER) {
                assert_int_equal(offset, waited);
                waited += (uint64_t)n;
        } else {
                assert_int_equal(offset, begun);
                begun += (uint64_t)n;
        }
        return 0;
}

/* At any time, at most 72 MiB of a file wait for the disk: 8 MiB until write-back begins, and 64 MiB. */
TEST(what_is_in_memory_is_limited)
{
        struct disk_behind b = {};

        begun = waited = 0;
        range_error = 0;
        for (uint64_t size = 0; size < 300 * MIB; size += 3 * MIB + 5) {
                assert_int_equal(disk_write_behind(&b, 7, size), 0);
                assert_true(size - begun < 8 * MIB);
                assert_true(size - waited < 72 * MIB);
                assert_true(waited == 0 || size - waited >= 64 * MIB);
        }
}

TEST_EACH(a_lost_write_is_an_error_but_an_unsupported_call_is_not, i, 3)
{
        static const int fatal[] = {EIO, ENOSPC, EDQUOT}, harmless[] = {EINVAL, ESPIPE, ENOSYS};
        struct disk_behind b = {};

        range_error = fatal[i];
        assert_int_equal(disk_write_behind(&b, 7, 100 * MIB), -fatal[i]);
        b = (struct disk_behind){};
        range_error = harmless[i];
        assert_int_equal(disk_write_behind(&b, 7, 100 * MIB), 0);
}

/* Returns how many bytes of a range are in the page cache. */
static uint64_t cached(uint64_t from, uint64_t n)
{
        static unsigned char resident[64 * MIB / 4096];
        size_t page = (size_t)sysconf(_SC_PAGESIZE), pages = 0;
        void *map = mmap(NULL, n, PROT_READ, MAP_SHARED, fd, (off_t)from);

        assert_ptr_not_equal(map, MAP_FAILED);
        assert_int_equal(mincore(map, n, resident), 0);
        munmap(map, n);
        for (size_t i = 0; i < n / page; i++)
                pages += resident[i] & 1;
        return pages * page;
}

/* The disk has the first 16 of 80 MiB; the rest, and all if it is to stay, remains in the page cache. */
TEST(what_the_disk_has_leaves_the_page_cache)
{
        struct statfs fs;

        if (fstatfs(fd, &fs) < 0 || fs.f_type == TMPFS_MAGIC) {
                print_message("page cache: skipped, the file system of /var/tmp is nothing else\n");
                return;
        }
        for (unsigned drops = 0; drops < 2; drops++) {
                struct disk_behind b = {.drops = drops};

                assert_int_equal(ftruncate(fd, 0), 0);
                for (uint64_t at = 0; at < 80 * MIB; at += BYTES)
                        assert_int_equal(pwrite(fd, bytes, BYTES, (off_t)at), BYTES);
                assert_int_equal(disk_write_behind(&b, fd, 80 * MIB), 0);
                assert_true(drops ? cached(0, 16 * MIB) == 0 : cached(0, 16 * MIB) > 8 * MIB);
                assert_true(cached(16 * MIB, 64 * MIB) > 32 * MIB);
        }
        assert_int_equal(fdatasync(fd), 0);
        disk_drop_cached(fd);
        assert_int_equal(cached(16 * MIB, 64 * MIB), 0);
        assert_int_equal(ftruncate(fd, 0), 0);
}

/* ---- Writing ---- */

static void fill(uint8_t seed)
{
        for (size_t i = 0; i < BYTES; i++)
                bytes[i] = (uint8_t)(seed + i * 7 + i / 251);
}

static void check(uint64_t offset, size_t n)
{
        _cleanup_close_ int f = open(path, O_RDONLY | O_CLOEXEC);

        assert_int_equal(pread(f, seen, n, (off_t)offset), n);
        assert_memory_equal(seen, bytes, n);
}

TEST(each_way_writes_all_bytes)
{
        for (unsigned way = 0; way < 4; way++) {
                struct disk_writer *w;
                size_t n;

                if (way >= 2 && disk_set_direct(fd, true) < 0) {
                        print_message("direct writes: skipped, the file system of /var/tmp has none\n");
                        break;
                }
                assert_int_equal(disk_writer_new(&w, way % 2), 0);
                for (uint8_t i = 0; i < 5; i++) {
                        fill((uint8_t)(way * 16 + i));
                        disk_writer_begin(w, fd, bytes, BYTES, i * (uint64_t)BYTES);
                        while (!disk_writer_is_done(w))
                                usleep(100);
                        assert_int_equal(disk_writer_end(w, &n), 0);
                        assert_int_equal(n, BYTES);
                        check(i * (uint64_t)BYTES, BYTES);
                }
                disk_writer_begin(w, fd, bytes, BYTES, 0);
                disk_writer_free(w);
                check(0, BYTES);
        }
        assert_int_equal(disk_set_direct(fd, false), 0);
}

/* What precedes the limit is in the file, and counts. */
TEST(an_error_tells_how_much_was_written)
{
        struct rlimit limit, low;

        signal(SIGXFSZ, SIG_IGN);
        getrlimit(RLIMIT_FSIZE, &limit);
        low = limit;
        low.rlim_cur = 100000;
        fill(9);
        for (unsigned way = 0; way < 4; way++) {
                _cleanup_(disk_writer_freep) struct disk_writer *w;
                size_t n;

                assert_int_equal(ftruncate(fd, 0), 0);
                if (way >= 2 && disk_set_direct(fd, true) < 0)
                        break;
                assert_int_equal(disk_writer_new(&w, way % 2), 0);
                setrlimit(RLIMIT_FSIZE, &low);
                disk_writer_begin(w, fd, bytes, BYTES, 4096);
                assert_int_equal(disk_writer_end(w, &n), -EFBIG);
                setrlimit(RLIMIT_FSIZE, &limit);
                assert_int_equal(n, 100000 - 4096);
                check(4096, n);
                assert_int_equal(!!(fcntl(fd, F_GETFL) & O_DIRECT), way >= 2);
        }
        assert_int_equal(disk_set_direct(fd, false), 0);
}

TEST(a_bad_descriptor_is_an_error)
{
        for (unsigned background = 0; background < 2; background++) {
                _cleanup_(disk_writer_freep) struct disk_writer *w;
                size_t n;

                assert_int_equal(disk_writer_new(&w, background), 0);
                disk_writer_begin(w, -1, bytes, 10, 0);
                assert_int_equal(disk_writer_end(w, &n), -EBADF);
                assert_int_equal(n, 0);
        }
        disk_writer_free(NULL);
}

/* ---- Direct ---- */

TEST(what_cannot_be_written_directly_is_refused)
{
        int f = open("/proc/self/comm", O_RDWR | O_CLOEXEC);

        assert_true(f >= 0);
        assert_true(disk_set_direct(f, true) < 0);
        assert_int_equal(disk_set_direct(f, false), 0);
        close(f);
        assert_true(disk_check_direct("/nonexistent") < 0);
        assert_int_equal(disk_check_direct("/var/tmp"), disk_set_direct(fd, true));
        assert_int_equal(disk_set_direct(fd, false), 0);
        assert_int_equal(access(path, F_OK), 0);
}

static int make(void **state)
{
        fd = mkstemp(path);
        return fd < 0 ? -1 : 0;
}

static int remove_it(void **state)
{
        close(fd);
        return unlink(path);
}

TESTS_BETWEEN(make, remove_it)
