/* Makes and compares the files of a stream from disk to disk. */
#include "stream_files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/util.h"
#include "sys/disk_writer.h"
#include "sys/loop.h"
#include "sys/scratch_file.h"

#define DIRECTORY "/var/tmp"
#define STEP_BYTES ((size_t)1 << 20)
#define KEY UINT64_C(940)

bool stream_files_are_possible(uint64_t size_bytes, bool direct, char *lack, size_t size)
{
        struct statvfs s;
        uint64_t free_bytes;
        int r = 0;

        if (statvfs(DIRECTORY, &s) < 0 || (direct && (r = disk_check_direct(DIRECTORY)) < 0)) {
                snprintf(lack, size, "needs %s in " DIRECTORY ": %s",
                         r < 0 ? "direct reads and writes (O_DIRECT)" : "files",
                         strerror(r < 0 ? -r : errno));
                return false;
        }
        free_bytes = (uint64_t)s.f_bavail * s.f_frsize;
        if (free_bytes >= 2 * size_bytes + STREAM_FILES_SPARE_BYTES)
                return true;
        snprintf(lack, size, "needs %.1f GB in " DIRECTORY ", where %.1f GB are free",
                 (double)(2 * size_bytes + STREAM_FILES_SPARE_BYTES) / 1e9, (double)free_bytes / 1e9);
        return false;
}

int stream_files_init(struct stream_files *f, uint64_t size_bytes, struct error *e)
{
        int r;

        *f = (struct stream_files){.input = -1, .output = -1, .size_bytes = size_bytes};
        r = f->input = scratch_file_open(DIRECTORY);
        if (r >= 0)
                r = f->output = scratch_file_open(DIRECTORY);
        if (r >= 0)
                r = scratch_file_fill(f->input, KEY, size_bytes);
        if (r < 0) {
                stream_files_fini(f);
                error_set(e, r, "cannot make the files of a stream: %m");
                return error_locate(e, DIRECTORY);
        }
        /* Only clean pages leave the cache. */
        (void)posix_fadvise(f->input, 0, 0, POSIX_FADV_DONTNEED);
        return 0;
}

void stream_files_fini(struct stream_files *f)
{
        if (f->input >= 0)
                close(f->input);
        if (f->output >= 0)
                close(f->output);
        if (f->input >= 0 || f->output >= 0)
                sync();
        f->input = f->output = -1;
}

void stream_files_path(int fd, char path[static STREAM_FILES_PATH_MAX])
{
        snprintf(path, STREAM_FILES_PATH_MAX, "/proc/%d/fd/%d", (int)getpid(), fd);
}

/* Reads until n bytes or the end. */
static ssize_t read_at(int fd, uint8_t *to, size_t n, uint64_t at)
{
        size_t whole = 0;
        ssize_t got = 1;

        while (whole < n && got > 0) {
                got = pread(fd, to + whole, n - whole, (off_t)(at + whole));
                whole += (size_t)MAX(got, 0);
        }
        return got < 0 ? -errno : (ssize_t)whole;
}

static size_t same_bytes(const uint8_t *a, const uint8_t *b, size_t n)
{
        size_t i = 0;

        if (memcmp(a, b, n) == 0)
                return n;
        while (a[i] == b[i])
                i++;
        return i;
}

int64_t stream_files_compare(const struct stream_files *f, bool *ret_same)
{
        _cleanup_free_ uint8_t *in = malloc(STEP_BYTES), *out = malloc(STEP_BYTES);
        uint64_t at = 0;

        if (!in || !out)
                return -ENOMEM;
        while (true) {
                ssize_t n_in = read_at(f->input, in, STEP_BYTES, at),
                        n_out = read_at(f->output, out, STEP_BYTES, at);
                size_t least, same;

                if (n_in < 0 || n_out < 0)
                        return MIN(n_in, n_out);
                if (signals_are_waiting())
                        return -EINTR;
                least = (size_t)MIN(n_in, n_out);
                same = same_bytes(in, out, least);
                at += same;
                *ret_same = same == least && n_in == n_out;
                if (!*ret_same || n_in == 0)
                        return (int64_t)at;
        }
}
