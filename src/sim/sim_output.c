/* An output that stores events at once (sfi.output = null), and checks them. */
#include "sim_internal.h"

#define BUILT_MAX 256

void sim_output_turn(struct sim *s, struct sim_node *n)
{
        uint32_t slots[BUILT_MAX];
        size_t k;

        do {
                k = sfi_pop_built(n->sfi, slots, BUILT_MAX);
                for (size_t i = 0; i < k; i++) {
                        sim_check_built(s, n, slots[i]);
                        sfi_written(n->sfi, sim_now_ns(s), slots[i], false);
                }
        } while (k == BUILT_MAX);
}

uint64_t sim_output_deadline_ns(const struct sim *s, const struct sim_node *n)
{
        (void)s;
        (void)n;
        return NEVER_NS;
}

bool sim_output_close(struct sim *s, struct sim_node *n)
{
        (void)s;
        (void)n;
        return true;
}
