/* Large buffers, pages shared with another process, and what this process has used so far. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Anonymous memory, zero, touched only as it is used; huge pages where the system gives them. NULL: none. */
void *memory_map(size_t size_bytes);
void memory_unmap(void *memory, size_t size_bytes);

/* Memory that processes forked from now on have in common; zero. NULL: none. */
void *memory_map_shared(size_t size_bytes);

/* A page that outlives its processes' deaths as long as someone holds the descriptor. */
int memory_share_new(const char *name, size_t size_bytes, int *ret_fd,
                     void **ret);                            /* makes it; negative errno */
int memory_share_map(int fd, size_t size_bytes, void **ret); /* an inherited one; -EINVAL: too small */

uint64_t memory_peak_bytes(void); /* resident set of this process, its highest so far */
double cpu_used_seconds(void);    /* of all its threads, user and system */
