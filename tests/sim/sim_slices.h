/* Boards that send hits with times, in the simulated system: struct sim_config.slices. */
#pragma once

#include "data/slicer.h"
#include "sim.h"

/* Of the board of this ROS, in this process of the ROS: hits that the board sends, that the ROS read, and
 * that are in events of their slice, or of the next one; slices that were passed to its core. */
struct sim_hits {
        uint64_t sent, read, built, copied, slices;
};

struct sim_hits sim_hits(const struct sim *s, uint32_t ros);
bool sim_hit_is_built(const struct sim *s, uint32_t ros, uint64_t hit);
const struct slicer *sim_slicer(const struct sim *s, uint32_t ros);
