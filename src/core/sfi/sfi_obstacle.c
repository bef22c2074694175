/* What an SFI waits for: its disk, or fragments of a ROS. */
#include "sfi_internal.h"

/* If an event waits longer than this for a fragment, the ROS of the fragment counts as slow. */
#define SFI_LONG_WAIT_NS NS_PER_S

/* Examines only the oldest assigned event, because it has waited longest. */
static struct node_obstacle missing_fragments(const struct sfi *s, uint64_t now_ns)
{
        const struct sfi_slots *t = &s->slots;
        uint32_t slot = t->collecting[1].first;
        struct node_obstacle o = {};

        if (slot == SLOT_NONE || (s->config.pull && !t->items[slot].requested) ||
            now_ns - t->items[slot].first_ns < SFI_LONG_WAIT_NS)
                return o;
        for (uint32_t i = t->n_ros; i-- > 0;) {
                if (sfi_fragment(t, slot, i)->whole || !sfi_slots_ros_is_live(t, i))
                        continue;
                o.reason = REASON_WAITS_FOR;
                o.node = (uint16_t)i;
                o.n_nodes++;
                o.since_ns = t->items[slot].first_ns;
        }
        return o;
}

struct node_obstacle sfi_obstacle(const struct sfi *s, uint64_t now_ns)
{
        if (s->failure != REASON_NONE)
                return (struct node_obstacle){.reason = s->failure, .since_ns = s->failed_ns};
        if (s->slots.slow_since_ns != NEVER_NS)
                return (struct node_obstacle){.reason = REASON_SLOW_OUTPUT,
                                              .since_ns = s->slots.slow_since_ns};
        return missing_fragments(s, now_ns);
}

void sfi_set_failed(struct sfi *s, uint64_t now_ns, enum node_reason why)
{
        if (!s->failed) {
                s->failed_ns = now_ns;
                s->failure = why;
        }
        s->failed = true;
        s->keep_alive_due_ns = now_ns;
}
