/* Finds the DFM, sums counters, and computes how long the nodes may take to drain, for launching and
 * reporting. */
#include "run/launched_run.h"

#include "base/util.h"

struct child *launch_dfm(const struct launch *l)
{
        for (size_t i = 0; i < l->n_children; i++) {
                if (l->children[i].node->role == ROLE_DFM)
                        return &l->children[i];
        }
        return NULL;
}

uint64_t launch_sum(const struct launch *l, enum node_role role, size_t counter)
{
        uint64_t sum = 0;

        for (size_t i = 0; i < l->n_children; i++) {
                if (role == 0 || l->children[i].node->role == role)
                        sum += stats_value(l->children[i].stats, counter);
        }
        return sum;
}

void launch_sums(const struct launch *l, uint64_t ret[static COUNTERS])
{
        for (size_t k = 0; k < COUNTERS; k++)
                ret[k] = 0;
        for (size_t i = 0; i < l->n_children; i++) {
                unsigned role = COUNTER_ROLE(l->children[i].node->role);

                for (size_t k = 0; k < COUNTERS; k++) {
                        if (stats_table[k].roles == 0 || stats_table[k].roles & role)
                                ret[k] += stats_value(l->children[i].stats, k);
                }
        }
}

/* Every wait during the drain is bounded, because an event that its SFI does not finish is reassigned. */
uint64_t launch_drain_ns(const struct scenario *s)
{
        uint64_t events_ns = s->sfi.timeout_ns + (EVB_REASSIGNMENTS + 2) * s->dfm.event_timeout_ns;

        return MAX(events_ns, s->run.stop_timeout_ns) + LAUNCH_TERM_NS;
}
