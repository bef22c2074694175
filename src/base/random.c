/* xoshiro256++ and the distributions for triggers, sizes and faults. */
#include "base/random.h"

#include <math.h>

static uint64_t rotate(uint64_t x, int k)
{
        return (x << k) | (x >> (64 - k));
}

void random_init(struct random *r, uint64_t seed)
{
        for (int i = 0; i < 4; i++) {
                r->s[i] = random_mix(seed);
                seed += UINT64_C(0x9E3779B97F4A7C15);
        }
}

uint64_t random_next(struct random *r)
{
        uint64_t *s = r->s, result = rotate(s[0] + s[3], 23) + s[0], t = s[1] << 17;

        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = rotate(s[3], 45);
        return result;
}

uint64_t random_below(struct random *r, uint64_t limit)
{
        unsigned __int128 product;
        uint64_t threshold;

        if (limit == 0)
                return 0;
        /* Lemire 2019: multiply and take the high half; redraw the few values that would be too frequent. */
        threshold = -limit % limit;
        do
                product = (unsigned __int128)random_next(r) * limit;
        while ((uint64_t)product < threshold);
        return (uint64_t)(product >> 64);
}

double random_unit(struct random *r)
{
        return (double)(random_next(r) >> 11) * 0x1p-53;
}

double random_exponential(struct random *r)
{
        return -log1p(-random_unit(r));
}

double random_normal(struct random *r)
{
        double radius = sqrt(2 * random_exponential(r));

        return radius * cos(2 * 3.14159265358979323846 * random_unit(r));
}
