/* Decides what a bad network does to each datagram; equal seeds give equal decisions. Pure. */
#pragma once

#include <stdint.h>

#include "base/random.h"

struct fault_config {
        double loss, reorder, duplicate; /* each a fraction of all datagrams, below 1 */
        uint64_t seed;
};

enum fault_fate {
        FAULT_PASS,
        FAULT_LOSE,
        FAULT_HOLD,   /* deliver after some later datagrams */
        FAULT_DOUBLE, /* deliver twice */
};

/* Maximum number of datagrams that overtake a held one. */
#define FAULT_OVERTAKEN_MAX 8

struct fault {
        struct fault_config config;
        struct random random;
};

void fault_init(struct fault *f, const struct fault_config *config);
/* The fate of the next datagram. For FAULT_HOLD *ret_overtaken is the number of later datagrams to deliver
 * first. */
enum fault_fate fault_decide(struct fault *f, uint32_t *ret_overtaken);
