/* Allocates and shares memory, and reads the resource usage of this process. */
#include "sys/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "base/util.h"

#define HUGE_FROM_BYTES (4u << 20)
#define LARGE_FROM_BYTES (1 << 20)

void *memory_map(size_t size_bytes)
{
        void *m = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        if (m == MAP_FAILED)
                return NULL;
        if (size_bytes >= HUGE_FROM_BYTES)
                (void)madvise(m, size_bytes, MADV_HUGEPAGE);
        return m;
}

void memory_return_large_blocks(void)
{
        /* Otherwise, once a large block is freed, glibc keeps blocks of that size. */
        (void)mallopt(M_MMAP_THRESHOLD, LARGE_FROM_BYTES);
}

void *memory_map_shared(size_t size_bytes)
{
        void *memory = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

        return memory == MAP_FAILED ? NULL : memory;
}

void memory_unmap(void *memory, size_t size_bytes)
{
        if (memory)
                munmap(memory, size_bytes);
}

int memory_share_map(int fd, size_t size_bytes, void **ret)
{
        struct stat st;
        void *m;

        if (fstat(fd, &st) < 0)
                return -errno;
        if (st.st_size < (off_t)size_bytes)
                return -EINVAL;
        m = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (m == MAP_FAILED)
                return -errno;
        *ret = m;
        return 0;
}

int memory_share_new(const char *name, size_t size_bytes, int *ret_fd, void **ret)
{
        _cleanup_close_ int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
        int r;

        /* If a process could shrink the memory, SIGBUS would kill the others. */
        if (fd < 0 || ftruncate(fd, (off_t)size_bytes) < 0 ||
            fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
                return -errno;
        r = memory_share_map(fd, size_bytes, ret);
        if (r < 0)
                return r;
        *ret_fd = take_fd(&fd);
        return 0;
}

uint64_t memory_peak_bytes(void)
{
        struct rusage u;

        getrusage(RUSAGE_SELF, &u);
        return (uint64_t)u.ru_maxrss * 1024;
}

double cpu_used_seconds(void)
{
        struct rusage u;

        getrusage(RUSAGE_SELF, &u);
        return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
               (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}
