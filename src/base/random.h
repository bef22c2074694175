/* A small seeded generator (xoshiro256++, Blackman and Vigna 2019; seeded by splitmix64). Equal seeds give
 * equal sequences on all machines. */
#pragma once

#include <stdint.h>

struct random {
        uint64_t s[4];
};

/* The finaliser of splitmix64, a bijection of 64-bit words that mixes every bit. */
static inline uint64_t random_mix(uint64_t x)
{
        x += UINT64_C(0x9E3779B97F4A7C15);
        x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
        x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
        return x ^ (x >> 31);
}

void random_init(struct random *r, uint64_t seed);
uint64_t random_next(struct random *r);
/* Uniform in [0, limit), without bias; limit 0 gives 0. */
uint64_t random_below(struct random *r, uint64_t limit);
double random_unit(struct random *r);        /* [0, 1) with 53 bits */
double random_exponential(struct random *r); /* mean 1 */
double random_normal(struct random *r);      /* mean 0, sigma 1 */
