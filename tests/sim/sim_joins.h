/* Boards that send several frames for each trigger, in the simulated system: struct sim_boards.joins. */
#pragma once

#include "data/joiner.h"
#include "sim.h"

/* The frames of a trigger, by their index. */
struct sim_joined {
        uint16_t all;     /* that its board has for it */
        uint16_t reached; /* that its ROS read */
        uint16_t built;   /* that are in an event */
};

/* Adds the place of a field in the frames of the boards to a rule. */
struct number_field sim_joins_index(void), sim_joins_count(void), sim_joins_last(void), sim_joins_board(void);

struct sim_joined sim_joined(const struct sim *s, uint32_t ros, uint64_t trigger);
/* Number of different frames of this ROS's board that are in events. */
uint64_t sim_joined_frames(const struct sim *s, uint32_t ros);
/* Number of fragments in events that pass as whole, and lack frames. */
uint64_t sim_short_joins(const struct sim *s);
/* Of this process of the ROS; NULL: frames are not joined. */
const struct joiner *sim_joiner(const struct sim *s, uint32_t ros);
