/* A file in memory with the bytes of a target's input, for code that takes a path. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

/* Its path; NULL if it cannot be written. The same file each time. */
static inline const char *memory_file(const void *bytes, size_t size_bytes)
{
        static char path[64];
        static int fd = -1;

        if (fd < 0)
                fd = memfd_create("fuzz", MFD_CLOEXEC);
        if (fd < 0 || ftruncate(fd, 0) < 0 || pwrite(fd, bytes, size_bytes, 0) != (ssize_t)size_bytes)
                return NULL;
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        return path;
}
