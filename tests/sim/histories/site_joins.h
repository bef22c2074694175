/* Boards that send several frames for each trigger, in the simulated system: struct site_boards.joins. */
#pragma once

#include "data/joiner.h"
#include "site.h"

/* The frames of a trigger, by their index. */
struct site_joined {
        uint16_t all;     /* that its board has for it */
        uint16_t reached; /* that its ROS read */
        uint16_t built;   /* that are in an event */
};

/* Adds the place of a field in the frames of the boards to a rule. */
struct number_field site_joins_index(void), site_joins_count(void), site_joins_last(void),
        site_joins_board(void);

struct site_joined site_joined(const struct site *s, uint32_t ros, uint64_t trigger);
/* Number of different frames of this ROS's board that are in events. */
uint64_t site_joined_frames(const struct site *s, uint32_t ros);
/* Number of fragments in events that pass as whole, and lack frames. */
uint64_t site_short_joins(const struct site *s);
/* Of this process of the ROS; NULL: frames are not joined. */
const struct joiner *site_joiner(const struct site *s, uint32_t ros);
