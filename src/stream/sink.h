/* Where the data of a received stream go: a file, standard output, a check of the pattern, or nowhere. One
 * thread at a time. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct sink;

/* `text` as in struct stream_receive_config. A file that exists is refused unless `overwrite`. */
int sink_open(struct sink **ret, const char *text, bool overwrite, struct error *e);
/* The data pass by the page cache (O_DIRECT). -EINVAL, -EOPNOTSUPP: not into this output. */
int sink_set_direct(struct sink *s, struct error *e);
/* Removes a file that it made and wrote nothing to. */
struct sink *sink_free(struct sink *s);

bool sink_is_pattern(const struct sink *s);
/* The pattern to expect. */
void sink_set_key(struct sink *s, uint64_t key);
/* Takes the next n bytes. `missing`: they stand for data that were lost. Returns negative errno, or
 * -ECANCELED if *stop was set while a pipe took nothing. */
int sink_put(struct sink *s, const void *bytes, size_t n, bool missing, const _Atomic bool *stop);
/* Ends the output, and makes it durable. */
int sink_finish(struct sink *s, struct error *e);
/* Explains a failure of sink_put(). */
int sink_explain(const struct sink *s, int code, struct error *e);

uint64_t sink_corrupt(const struct sink *s); /* puts that differ from the pattern */
uint64_t sink_bytes(const struct sink *s);   /* that the kernel has */
