/* What a bad network does to one datagram after the other: the decisions alone, the same for a seed. Pure. */
#pragma once

#include <stdint.h>

#include "evb/base/random.h"

struct fault_config {
        double loss, reorder, duplicate; /* fractions of all datagrams, each below 1 */
        uint64_t seed;
};

enum fault_fate {
        FAULT_PASS,
        FAULT_LOSE,
        FAULT_HOLD,   /* deliver after some of those that follow */
        FAULT_DOUBLE, /* deliver twice */
};

/* The most datagrams that may overtake a held one. */
#define FAULT_OVERTAKEN_MAX 8

struct fault {
        struct fault_config config;
        struct random random;
};

void fault_init(struct fault *f, const struct fault_config *config);
/* The fate of the next datagram; for FAULT_HOLD *ret_overtaken says how many that follow go first. */
enum fault_fate fault_decide(struct fault *f, uint32_t *ret_overtaken);
