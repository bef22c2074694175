/* Where the data of a sent stream come from: a file, standard input, a pattern that the receiver can check,
 * or nothing but zeros. One thread at a time. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "base/error.h"
#include "stream/stream.h"
#include "stream/rules/vdif_fill.h"

struct stream_source;

/* `text` as in struct stream_send_config; `key` makes the pattern. -EINVAL: not a source. */
int stream_source_open(struct stream_source **ret, const char *text, uint64_t key, struct error *e);
/* The data pass by the page cache (O_DIRECT). Before the first read. -EINVAL, -EOPNOTSUPP: not this input. */
int stream_source_set_direct(struct stream_source *s, struct error *e);
struct stream_source *stream_source_free(struct stream_source *s);

bool stream_source_is_pattern(const struct stream_source *s);
/* Reads how the frames follow each other, without taking them. -EBADMSG: it is not a VDIF recording. */
int stream_source_plan(struct stream_source *s, struct vdif_plan *ret, struct error *e);
/* Fills the parts in order, at most 64; only the last one that it touches may stay incomplete, at the end. A
 * pipe that has no more at the moment fills fewer, but at least one. *ret_ended: the source has ended, or
 * *stop was set meanwhile. Returns the number of bytes, or negative errno. */
ssize_t stream_source_fill(struct stream_source *s, const struct iovec *parts, size_t n,
                           const _Atomic bool *stop, bool *ret_ended);
