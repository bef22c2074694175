/* Large buffers, memory shared between processes, and the resource usage of this process. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Zeroed anonymous memory, committed on first use; in huge pages if available. NULL: out of memory. */
void *memory_map(size_t size_bytes);
void memory_unmap(void *memory, size_t size_bytes);

/* Zeroed memory that is shared with processes forked later. NULL: out of memory. */
void *memory_map_shared(size_t size_bytes);

/* Creates shared memory, which exists as long as a process holds its descriptor or its mapping; no process
 * can change its size. Negative errno. */
int memory_share_new(const char *name, size_t size_bytes, int *ret_fd, void **ret);
/* Maps the shared memory of an inherited descriptor. -EINVAL: too small; or negative errno. */
int memory_share_map(int fd, size_t size_bytes, void **ret);

/* Makes free() return large blocks of malloc() to the kernel, so that each run of a process starts with as
 * little memory as the first. */
void memory_return_large_blocks(void);

uint64_t memory_peak_bytes(void); /* highest resident set size so far */
double cpu_used_seconds(void);    /* user and system time of all threads */
