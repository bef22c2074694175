/* Shared by the tests of the store: a temporary directory, small events, files in memory, and the real file.
 */
#pragma once

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/pattern.h"
#include "format/eformat.h"
#include "store/event_writer.h"

#define SAMPLE_NOW ((time_t)1775621020) /* 2026-04-08 */

static inline char *sample_directory(void)
{
        const char *parent = getenv("TMPDIR");
        static char path[PATH_MAX];

        snprintf(path, sizeof path, "%s/evb-store-XXXXXX", parent ? parent : "/tmp");
        if (!mkdtemp(path))
                abort();
        return path;
}

static inline void sample_remove(const char *directory)
{
        char path[PATH_MAX + NAME_MAX + 2];
        DIR *d = opendir(directory);

        for (struct dirent *e; d && (e = readdir(d));) {
                snprintf(path, sizeof path, "%s/%s", directory, e->d_name);
                unlink(path);
        }
        closedir(d);
        rmdir(directory);
}

static inline uint8_t *sample_read(const char *path, size_t *ret_size_bytes)
{
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        struct stat st;
        uint8_t *bytes;

        if (fd < 0 || fstat(fd, &st) < 0)
                abort();
        bytes = malloc((size_t)st.st_size + 1);
        if (read(fd, bytes, (size_t)st.st_size) != st.st_size)
                abort();
        close(fd);
        *ret_size_bytes = (size_t)st.st_size;
        return bytes;
}

static inline void sample_write(const char *path, const void *bytes, size_t size_bytes)
{
        _cleanup_close_ int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);

        if (fd < 0 || write(fd, bytes, size_bytes) != (ssize_t)size_bytes)
                abort();
}

/* Makes event `number` of two pattern sources with `size_bytes` of payload each and seed 5. The caller frees
 * *ret_payload. */
static inline void sample_event_as(const struct eformat *format, uint64_t number, uint32_t spill,
                                   uint32_t l1_id, uint32_t size_bytes, struct eformat_encoding *e,
                                   uint8_t **ret_payload)
{
        struct eformat_settings settings = {.sfi_source_id = eformat_sfi_id(1),
                                            .checksum = EFORMAT_CHECKSUM_ADLER32};
        uint8_t *payload = malloc(2 * (size_t)size_bytes + 1);
        struct built_fragment fragments[2];
        struct built_event event = {
                .info = {.event = number, .global_id = number, .l1_id = l1_id, .run = 12, .spill = spill},
                .n_fragments = 2,
                .fragments = fragments,
        };

        for (uint32_t s = 0; s < 2; s++) {
                pattern_fill(pattern_key(5, s, number), payload + s * size_bytes, 0, size_bytes);
                fragments[s] = (struct built_fragment){.data = payload + s * size_bytes,
                                                       .size_bytes = size_bytes,
                                                       .source_id = eformat_source_id(s),
                                                       .order = (uint16_t)s};
        }
        if (format->encode(&event, &settings, e) < 0)
                abort();
        *ret_payload = payload;
}

static inline int sample_put_as(struct event_writer *w, const struct eformat *format, uint64_t number,
                                uint32_t spill, uint32_t l1_id, uint32_t size_bytes)
{
        static struct eformat_encoding e;
        _cleanup_free_ uint8_t *payload = NULL;

        sample_event_as(format, number, spill, l1_id, size_bytes, &e, &payload);
        return event_writer_write(w, e.iov, e.n_iov, e.size_bytes, e.sum, &e.info, SAMPLE_NOW);
}

static inline int sample_put(struct event_writer *w, const struct eformat *format, uint64_t number,
                             uint32_t size_bytes)
{
        return sample_put_as(w, format, number, 0, (uint32_t)number, size_bytes);
}

/* The path of the real file, or NULL if this checkout lacks it. */
static inline const char *sample_real_file(void)
{
        static char path[PATH_MAX];
        const char *shared = getenv("EVB_SHARED"), *root = getenv("EVB_SOURCE_ROOT");

        if (shared)
                snprintf(path, sizeof path, "%s/data/bes3-run91668.raw", shared);
        else
                snprintf(path, sizeof path, "%s/../shared/data/bes3-run91668.raw", root ? root : ".");
        return access(path, R_OK) == 0 ? path : NULL;
}
