/* Decides the fate of datagrams. net/injected_faults.c and the simulated networks execute the decisions. */
#include "base/fault.h"

void fault_init(struct fault *f, const struct fault_config *config)
{
        f->config = *config;
        random_init(&f->random, config->seed);
}

enum fault_fate fault_decide(struct fault *f, uint32_t *ret_overtaken)
{
        double x = random_unit(&f->random);

        if (x < f->config.loss)
                return FAULT_LOSE;
        x -= f->config.loss;
        if (x < f->config.reorder) {
                *ret_overtaken = 1 + (uint32_t)random_below(&f->random, FAULT_OVERTAKEN_MAX);
                return FAULT_HOLD;
        }
        x -= f->config.reorder;
        return x < f->config.duplicate ? FAULT_DOUBLE : FAULT_PASS;
}
