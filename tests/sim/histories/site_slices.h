/* Boards that send hits with times, in the simulated system: struct site_config.slices. */
#pragma once

#include "data/slicer.h"
#include "site.h"

/* Of the board of this ROS, in this process of the ROS: hits that the board sends, that the ROS read, and
 * that are in events of their slice, or of the next one; slices that were passed to its core. */
struct site_hits {
        uint64_t sent, read, built, copied, slices;
};

struct site_hits site_hits(const struct site *s, uint32_t ros);
bool site_hit_is_built(const struct site *s, uint32_t ros, uint64_t hit);
const struct slicer *site_slicer(const struct site *s, uint32_t ros);
