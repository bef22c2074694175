/* Files that a measurement needs for a while. They have no name, so nothing is left of them, however the
 * process ends. */
#pragma once

#include <stdint.h>

/* Makes an empty file to read and write. Returns its descriptor, which the caller closes, or negative errno.
 */
int scratch_file_open(const char *directory);
/* Fills it with the pattern of this key (base/pattern.h). On return all of it is on the disk: what the kernel
 * writes later would disturb a measurement. Negative errno; -EINTR: a signal of signals_hold() is waiting. */
int scratch_file_fill(int fd, uint64_t key, uint64_t size_bytes);
