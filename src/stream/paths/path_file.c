/* Makes the file that the data paths send: nameless, with a pattern as its bytes, once for the page cache and
 * once for the disk, so that one never has to be read again because the other left the cache. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/pattern.h"
#include "base/util.h"
#include "sys/scratch_file.h"
#include "path_internal.h"

#define STEP_BYTES (1u << 20)
/* What must stay free on the disk. */
#define SPARE_BYTES (UINT64_C(256) << 20)

struct path_file {
        int fds[PATH_SOURCES]; /* -1: not wanted */
        int direct;            /* that of PATH_DISK, with O_DIRECT; negative errno: refused */
        uint64_t size_bytes;
};

static int check_room(const char *directory, uint64_t size_bytes, struct error *e)
{
        struct statvfs s;
        uint64_t free_bytes;

        if (statvfs(directory, &s) < 0)
                return error_set(e, -errno, "cannot read the free space: %m");
        free_bytes = (uint64_t)s.f_bavail * s.f_frsize;
        if (free_bytes >= size_bytes + SPARE_BYTES)
                return 0;
        return error_set(e, -ENOSPC,
                         "%llu MB are free, and %llu MB needed; choose a smaller file or another directory",
                         (unsigned long long)(free_bytes / 1000000),
                         (unsigned long long)((size_bytes + SPARE_BYTES) / 1000000));
}

static bool is_file(const char *place)
{
        struct stat s;

        return stat(place, &s) == 0 && S_ISREG(s.st_mode);
}

/* Opens the file that is kept at `place`, and says whether it has to be filled. */
static int open_kept(struct path_file *f, enum path_source source, const char *place, bool *ret_empty,
                     struct error *e)
{
        struct stat s;

        f->fds[source] = open(place, O_RDWR | O_CLOEXEC);
        if (f->fds[source] < 0 || fstat(f->fds[source], &s) < 0)
                return error_set(e, -errno, "%m");
        *ret_empty = s.st_size == 0;
        if (*ret_empty || (uint64_t)s.st_size == f->size_bytes)
                return 0;
        return error_set(e, -EINVAL, "has %lld bytes; expected an empty file, or one of %llu bytes",
                         (long long)s.st_size, (unsigned long long)f->size_bytes);
}

static int make(struct path_file *f, enum path_source source, const char *place, struct error *e)
{
        bool empty = true;
        char name[64];
        int r = 0;

        if (is_file(place))
                r = open_kept(f, source, place, &empty, e);
        else {
                f->fds[source] = scratch_file_open(place);
                if (f->fds[source] < 0)
                        return error_set(e, f->fds[source], "cannot make a file: %m");
        }
        if (r < 0)
                return r;
        if (empty)
                r = scratch_file_fill(f->fds[source], pattern_key(0, 0, 0), f->size_bytes);
        if (r < 0)
                return error_set(e, r, "cannot write the file: %m");
        if (source == PATH_DISK) {
                snprintf(name, sizeof name, "/proc/self/fd/%d", f->fds[source]);
                f->direct = open(name, O_RDONLY | O_DIRECT | O_CLOEXEC);
                f->direct = f->direct < 0 ? -errno : f->direct;
        }
        return 0;
}

int path_file_new(struct path_file **ret, const char *place, uint64_t size_bytes,
                  const bool want[static PATH_SOURCES], struct error *e)
{
        struct path_file *f = malloc(sizeof *f);
        int r;

        if (!f)
                return error_set(e, -ENOMEM, "cannot make a file: %m");
        *f = (struct path_file){.fds = {-1, -1}, .direct = -1, .size_bytes = size_bytes};
        r = is_file(place)
                    ? 0
                    : check_room(place, size_bytes * ((uint64_t)want[PATH_CACHE] + want[PATH_DISK]), e);
        for (unsigned i = 0; i < PATH_SOURCES && r >= 0; i++) {
                if (want[i])
                        r = make(f, i, place, e);
        }
        if (r < 0) {
                path_file_free(f);
                return error_locate(e, "%s", place);
        }
        *ret = f;
        return 0;
}

struct path_file *path_file_free(struct path_file *f)
{
        if (!f)
                return NULL;
        for (unsigned i = 0; i < PATH_SOURCES; i++) {
                if (f->fds[i] >= 0)
                        close(f->fds[i]);
        }
        if (f->direct >= 0)
                close(f->direct);
        free(f);
        return NULL;
}

int path_file_descriptor(const struct path_file *f, enum path_source source, enum path_reads reads)
{
        return source == PATH_DISK && reads == PATH_DIRECT ? f->direct : f->fds[source];
}

uint64_t path_file_bytes(const struct path_file *f)
{
        return f->size_bytes;
}

void path_file_empty(const struct path_file *f)
{
        if (f->fds[PATH_DISK] >= 0)
                (void)posix_fadvise(f->fds[PATH_DISK], 0, 0, POSIX_FADV_DONTNEED);
}

double path_file_cached_share(const struct path_file *f, enum path_source source)
{
        size_t page = (size_t)sysconf(_SC_PAGESIZE), n = f->size_bytes / page, cached = 0;
        _cleanup_free_ unsigned char *pages = malloc(n);
        void *map = mmap(NULL, f->size_bytes, PROT_READ, MAP_SHARED, f->fds[source], 0);
        bool known = false;

        if (map != MAP_FAILED && pages)
                known = mincore(map, f->size_bytes, pages) == 0;
        if (map != MAP_FAILED)
                munmap(map, f->size_bytes);
        for (size_t i = 0; known && i < n; i++)
                cached += pages[i] & 1;
        return known ? (double)cached / (double)n : NAN;
}

int path_file_warm(const struct path_file *f)
{
        _cleanup_free_ uint8_t *bytes = NULL;

        if (path_file_cached_share(f, PATH_CACHE) == 1)
                return 0;
        bytes = malloc(STEP_BYTES);
        for (uint64_t at = 0; bytes && at < f->size_bytes; at += STEP_BYTES) {
                if (pread(f->fds[PATH_CACHE], bytes, STEP_BYTES, (off_t)at) < 0)
                        return -errno;
        }
        return bytes ? 0 : -ENOMEM;
}
