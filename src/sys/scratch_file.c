/* Makes nameless files, and fills them with a pattern. */
#include "sys/scratch_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/pattern.h"
#include "base/util.h"
#include "sys/disk_writer.h"
#include "sys/loop.h"

#define STEP_BYTES ((uint64_t)1 << 20)

int scratch_file_open(const char *directory)
{
        char path[4096];
        int fd = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

        /* Some file systems cannot make a file without a name. */
        if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR))
                return fd < 0 ? -errno : fd;
        snprintf(path, sizeof path, "%.4000s/evb-scratch-XXXXXX", directory);
        fd = mkostemp(path, O_CLOEXEC);
        if (fd < 0)
                return -errno;
        (void)unlink(path);
        return fd;
}

int scratch_file_fill(int fd, uint64_t key, uint64_t size_bytes)
{
        _cleanup_free_ uint8_t *bytes = malloc(STEP_BYTES);
        struct disk_behind behind = {};
        int r = bytes ? 0 : -ENOMEM;

        for (uint64_t at = 0; r >= 0 && at < size_bytes;) {
                size_t n = (size_t)MIN(STEP_BYTES, size_bytes - at);
                ssize_t written;

                if (signals_are_waiting())
                        return -EINTR;
                pattern_fill(key, bytes, at, n);
                written = pwrite(fd, bytes, n, (off_t)at);
                if (written <= 0)
                        return written < 0 ? -errno : -EIO;
                at += (uint64_t)written;
                r = disk_write_behind(&behind, fd, at);
        }
        return r >= 0 && fdatasync(fd) < 0 ? -errno : r;
}
