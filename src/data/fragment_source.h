/* Generates a ROS's fragments on request: `pattern` makes bytes that any reader can check, and `file:`
 * replays an event file. Fragments that arrive from front-end electronics are in data/front_end.h. One
 * thread. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "conf/scenario.h"
#include "core/ros.h"
#include "data/reasons.h"
#include "protocol/event.h"

enum source_sizes { SIZES_FIXED, SIZES_UNIFORM, SIZES_LOGNORMAL };

/* Determines the size of a pattern source's fragment of an event; every reader computes the same size. */
struct pattern_sizes {
        enum source_sizes kind;
        uint32_t bytes;           /* SIZES_FIXED */
        uint32_t least, most;     /* SIZES_UNIFORM, both inclusive */
        double mean_bytes, sigma; /* SIZES_LOGNORMAL: mean size, sigma of its logarithm */
};

/* Returns the sizes configured by `ros.fragment-size`. */
struct pattern_sizes source_sizes_of(const struct scenario *s);

struct source;

int source_new_pattern(struct source **ret, uint32_t index, uint64_t seed, const struct pattern_sizes *sizes);
/* Replays the source with this ID or, if the ID is 0, the source at `rank`. Each trigger gets the fragment of
 * the event that belongs to it (replay_match()); the triggers are passes over the file `triggers`. NULL: the
 * fragment of the next event. -EINVAL: the file has no such source, or its events cannot be matched; other
 * errors as for replay_open(). */
int source_new_file(struct source **ret, uint32_t rank, uint32_t source_id, const char *triggers,
                    const char *path, struct error *error);
/* Adds as reasons the number of triggers without an event in the file, and the number of events without a
 * trigger that the run has passed. */
void source_reasons(const struct source *source, struct reasons *to);
struct source *source_free(struct source *source);

/* A callback for struct ros_config, once for each event. */
void source_describe(void *source, uint64_t event, uint32_t l1_id, struct ros_fragment *ret);
/* Generates a fragment of the size that source_describe() returned. */
void source_fill(const struct source *source, uint64_t event, uint32_t l1_id, void *to, uint32_t bytes);
