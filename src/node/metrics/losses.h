/* What a node lost a short while ago, so that an operator sees that a run loses events now, whatever it has
 * lost before. Pure. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* A window begins after this time, so it covers the last 5 to 10 s. */
#define LOSSES_STEP_NS UINT64_C(5000000000)

struct losses_sample {
        uint64_t now_ns;
        uint64_t complete, partial, lost; /* events */
        uint64_t not_written;
        uint64_t packets_lost, packets_socket_dropped;        /* of an SFI; lost: by their numbers */
        uint64_t packets_source_dropped, packets_send_failed; /* of a ROS */
};

/* All zero: a run begins. */
struct losses {
        struct losses_sample older, newer, now;
};

/* Takes the counts of the present run. True: the window that began last is now the one that counts. */
bool losses_note(struct losses *l, const struct losses_sample *now);
/* What the window has, which began at .now_ns; counts that went back are 0. */
struct losses_sample losses_recent(const struct losses *l);
