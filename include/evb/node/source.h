/* Where a ROS's fragments come from: a table of kinds. Some make a fragment at the asking, so that they need
 * no clock: `pattern` (bytes that anyone can check) and `file:` (an event file, taken apart). Others arrive
 * by themselves from front-end electronics, `udp:` and `tcp:`; see node/front_end.h for those. One thread. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "evb/base/error.h"
#include "evb/core/ros.h"
#include "evb/protocol/event.h"

enum source_sizes { SIZES_FIXED, SIZES_UNIFORM, SIZES_LOGNORMAL };

/* How many bytes a pattern source's fragment of an event has: the same for every reader. */
struct pattern_sizes {
        enum source_sizes kind;
        uint32_t bytes;           /* SIZES_FIXED */
        uint32_t least, most;     /* SIZES_UNIFORM, both included */
        double mean_bytes, sigma; /* SIZES_LOGNORMAL: mean of the sizes, sigma of their logarithm */
};

uint32_t pattern_sizes_bytes(const struct pattern_sizes *sizes, uint64_t key);

struct source;

/* What becomes of a fragment made at the asking. `path` is for `file:`. */
int source_new_pattern(struct source **ret, uint32_t index, uint64_t seed, const struct pattern_sizes *sizes);
/* -EINVAL: the file has fewer sources than index + 1; other errors as replay_open(). */
int source_new_file(struct source **ret, uint32_t index, const char *path, struct error *error);
struct source *source_free(struct source *source);

/* For ros_config: pure. */
void source_describe(void *source, uint64_t event, uint32_t l1_id, struct ros_fragment *ret);
/* Makes the bytes of a fragment: as many as source_describe() said. */
void source_fill(const struct source *source, uint64_t event, void *to, uint32_t bytes);
