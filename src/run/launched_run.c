/* What launching and reporting both need to know of a run. */
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

/* Every wait of the drain is bounded by a key: an event that its SFI does not finish is reassigned. */
uint64_t launch_drain_ns(const struct scenario *s)
{
        uint64_t events_ns = s->sfi.timeout_ns + (s->dfm.reassign + 2) * s->dfm.event_timeout_ns;

        return MAX(events_ns, s->run.stop_timeout_ns) + LAUNCH_TERM_NS;
}
