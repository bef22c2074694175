/* The input and the output of a stream from disk to disk. Neither has a name, so nothing is left of them,
 * however the lab ends; the ends of the stream open them by the descriptors of this process. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

#define STREAM_FILES_PATH_MAX 32
/* What must stay free on the disk. */
#define STREAM_FILES_SPARE_BYTES UINT64_C(1000000000)

struct stream_files {
        int input, output; /* -1: none */
        uint64_t size_bytes;
};

/* Whether the disk has room for both, and direct reads and writes if they are wanted; if not, `lack` names
 * what is missing. */
bool stream_files_are_possible(uint64_t size_bytes, bool direct, char *lack, size_t size);
/* Makes the input, of random bytes that are on the disk and nowhere else on return, and an empty output.
 * -EINTR: a signal of signals_hold() is waiting. */
int stream_files_init(struct stream_files *f, uint64_t size_bytes, struct error *e);
/* Accepts what stream_files_init() left, and waits until the disk has freed what they took. */
void stream_files_fini(struct stream_files *f);

void stream_files_path(int fd, char path[static STREAM_FILES_PATH_MAX]);
/* Compares all bytes. Returns the number of those that are the same up to the first that differs or is
 * missing, or negative errno; *ret_same: the output is as the input, and ends with it. */
int64_t stream_files_compare(const struct stream_files *f, bool *ret_same);
