/* Checks what must hold in every history. The checks do not rely only on what the cores say about themselves:
 * they follow chunks from their bytes to the built event, and compare the DFM's progress with the time. */
#include <inttypes.h>

#include "sim_internal.h"

void sim_check_chunks(struct sim_node *n, const struct sfi_chunk *chunks, size_t k)
{
        for (size_t i = 0; i < k; i++) {
                const struct sfi_chunk *c = &chunks[i];
                struct sim_slot *slot;

                if (c->verdict != SFI_STORE)
                        continue;
                slot = &n->slots[c->slot];
                /* If the core has given the slot to another event, its bytes count from here on. */
                if (!slot->used || slot->event != c->chunk.event)
                        *slot = (struct sim_slot){.used = true, .event = c->chunk.event};
                slot->bytes += c->chunk.length;
        }
}

/* A whole fragment has the size that its source gave it. */
static uint64_t check_fragments(struct sim *s, const struct sim_node *n, const struct sfi_built *built)
{
        uint64_t bytes = 0;

        for (uint32_t i = 0; i < s->n_ros; i++) {
                const struct sfi_fragment *f = &built->fragments[i];
                struct ros_fragment made;

                if (!f->whole || f->status != FRAGMENT_OK)
                        continue;
                bytes += f->bytes;
                source_describe(s->nodes[s->node_of_ros[i]].source, built->event, built->info.l1_id, &made);
                if (f->bytes != made.bytes)
                        sim_violate(
                                s, n, "event %" PRIu64 " has a fragment of %s with %u bytes, which made %u",
                                built->event, s->nodes[s->node_of_ros[i]].self->name, f->bytes, made.bytes);
        }
        return bytes;
}

void sim_check_built(struct sim *s, struct sim_node *n, uint32_t number)
{
        struct sim_slot *slot = &n->slots[number];
        struct sfi_built built;
        uint64_t bytes;

        sfi_built_event(n->sfi, number, &built);
        s->built++;
        sim_note(s, n, built.event << 2 | built.end, "builds event %" PRIu64 ": %s", built.event,
                 built.end == EVENT_COMPLETE  ? "complete"
                 : built.end == EVENT_PARTIAL ? "partial"
                                              : "lost");
        if (built.end == EVENT_COMPLETE) {
                bytes = check_fragments(s, n, &built);
                for (uint32_t i = 0; i < s->n_ros; i++) {
                        if (!s->rules[i].optional && !sfi_fragment_is_present(&built.fragments[i]))
                                sim_violate(s, n, "event %" PRIu64 " is complete without a fragment of %s",
                                            built.event, s->nodes[s->node_of_ros[i]].self->name);
                }
                if (bytes > 0 && (!slot->used || slot->event != built.event || slot->bytes < bytes))
                        sim_violate(s, n,
                                    "event %" PRIu64 " is complete with %" PRIu64
                                    " bytes, of which only %" PRIu64 " arrived for it",
                                    built.event, bytes,
                                    slot->used && slot->event == built.event ? slot->bytes : 0);
        }
        slot->used = false;
}

/* The longest time without the end of an event, once no further node comes: each assignment of an event times
 * out, the DFM notices a silent node, and the run's state reaches every node. An SFI in pull may have to give
 * up many events that the DFM has already ended, one after the other. */
static uint64_t patience_ns(const struct scenario *s)
{
        return (s->dfm.reassign + 2) * s->dfm.event_timeout_ns + 5 * s->dfm.node_timeout_ns +
               s->dfm.start_timeout_ns + 60 * s->dfm.keep_alive_ns;
}

static bool is_served(const struct sim *s)
{
        uint32_t ross = 0, sfis = 0;

        for (uint32_t i = 0; i < s->n_nodes; i++) {
                ross += s->nodes[i].self->role == ROLE_ROS && s->nodes[i].is_live;
                sfis += s->nodes[i].self->role == ROLE_SFI && s->nodes[i].is_live;
        }
        return ross > 0 && sfis > 0;
}

/* Lists nodes that hold triggers back, as far as the text has room. */
static void explain(const struct sim *s, const struct dfm *d, char *text, size_t size)
{
        size_t used = 0;

        text[0] = '\0';
        for (uint32_t i = 0; i < s->n_nodes && used < size; i++) {
                const struct scenario_node *n = s->nodes[i].self;
                struct dfm_node_view v;

                if (n->role == ROLE_DFM)
                        continue;
                v = dfm_view(d, n->role, (uint16_t)n->index);
                if (!v.live)
                        used += (size_t)snprintf(text + used, size - used, "; %s is absent", n->name);
                else if (v.holds_back)
                        used += (size_t)snprintf(text + used, size - used, "; %s holds back", n->name);
                else if (n->role == ROLE_SFI && v.credits == 0)
                        used += (size_t)snprintf(text + used, size - used, "; %s has no credit", n->name);
        }
}

static void check_progress(struct sim *s, const struct sim_node *n)
{
        uint64_t progress = (dfm_progress(n->dfm) + s->built) ^ (uint64_t)n->state << 56,
                 now_ns = sim_now_ns(s), from_ns;
        char why[128];
        bool waits = dfm_has_work(n->dfm) || n->state != RUN_RUNNING;

        if (progress != s->progress || !waits) {
                s->progress = progress;
                s->progress_ns = now_ns;
        }
        from_ns = MAX(s->progress_ns, s->calm_ns);
        if (now_ns > from_ns && now_ns - from_ns > patience_ns(s->scenario) && is_served(s)) {
                explain(s, n->dfm, why, sizeof why);
                sim_violate(s, n, "nothing has moved for %.3f s, and %u events are open%s",
                            (double)(now_ns - from_ns) / NS_PER_S, dfm_open_events(n->dfm), why);
        }
}

static void check_dfm(struct sim *s, struct sim_node *n)
{
        const struct dfm_counts *c = dfm_counts(n->dfm);
        uint64_t ends = c->complete + c->partial + c->lost + c->rejected;

        /* A DFM that resumes a run first collects its events, and only then counts them. */
        if (dfm_has_begun(n->dfm) && c->triggers != ends + dfm_open_events(n->dfm))
                sim_violate(s, n, "%" PRIu64 " triggers, but %" PRIu64 " have ended and %u are open",
                            c->triggers, ends, dfm_open_events(n->dfm));
        if (c->fragments_expected != c->fragments_received + c->fragments_lost + c->fragments_absent)
                sim_violate(s, n,
                            "%" PRIu64 " fragments are expected, but %" PRIu64 " received, %" PRIu64
                            " lost and %" PRIu64 " absent",
                            c->fragments_expected, c->fragments_received, c->fragments_lost,
                            c->fragments_absent);
        if (ends != n->ends_seen)
                sim_note(s, n, ends,
                         "counts %" PRIu64 " triggers, %" PRIu64 " complete, %" PRIu64 " partial, %" PRIu64
                         " lost",
                         c->triggers, c->complete, c->partial, c->lost);
        n->ends_seen = ends;
        check_progress(s, n);
}

static void check_bounds(struct sim *s, struct sim_node *n)
{
        const struct scenario *sc = s->scenario;

        if (n->self->role == ROLE_ROS && (ros_held(n->ros) > sc->ros.buffer_events ||
                                          ros_buffer_used_bytes(n->ros) > sc->ros.buffer_size_bytes))
                sim_violate(s, n, "it holds %u fragments in %" PRIu64 " bytes, more than its buffer",
                            ros_held(n->ros), ros_buffer_used_bytes(n->ros));
        if (n->self->role == ROLE_SFI && (sfi_open_events(n->sfi) > n->n_slots ||
                                          sfi_buffer_used_bytes(n->sfi) > sc->sfi.buffer_size_bytes))
                sim_violate(s, n, "it has %u open events in %" PRIu64 " bytes, more than its buffer",
                            sfi_open_events(n->sfi), sfi_buffer_used_bytes(n->sfi));
}

static enum run_state state_of(const struct sim_node *n)
{
        return n->self->role == ROLE_DFM   ? dfm_state(n->dfm)
               : n->self->role == ROLE_ROS ? ros_run_state(n->ros)
                                           : sfi_run_state(n->sfi);
}

void sim_check_node(struct sim *s, struct sim_node *n)
{
        static const char *const texts[] = {
                [RUN_STARTING] = "starting",
                [RUN_RUNNING] = "running",
                [RUN_DRAINING] = "draining",
                [RUN_ENDED] = "ended",
        };
        enum run_state state = state_of(n);

        if (state != n->state)
                sim_note(s, n, state, "sees the run: %s", texts[state]);
        n->state = state;
        if (n->self->role == ROLE_DFM)
                check_dfm(s, n);
        else
                check_bounds(s, n);
}

/* A plan without a warning promises that no port drops packets, as long as every node sends and reads. */
static void check_ports(struct sim *s)
{
        bool disturbed =
                s->n_faults > 0 || s->network.loss > 0 || s->network.reorder > 0 || s->network.duplicate > 0;

        for (uint32_t i = 0; i < s->n_nodes && s->plan_is_valid && !disturbed; i++) {
                if (s->nodes[i].port.dropped > 0)
                        sim_violate(s, &s->nodes[i],
                                    "its switch port dropped %" PRIu64
                                    " packets, although the plan allows none",
                                    s->nodes[i].port.dropped);
        }
}

void sim_check_end(struct sim *s)
{
        const struct sim_node *dfm = &s->nodes[s->dfm];
        const struct dfm_counts *c;

        check_ports(s);
        if (!dfm->is_live)
                return;
        c = dfm_counts(dfm->dfm);
        if (c->fragments_expected != (c->triggers - c->rejected) * s->n_ros)
                sim_violate(s, dfm, "%" PRIu64 " triggers expect %" PRIu64 " fragments of %u ROSs",
                            c->triggers, c->fragments_expected, s->n_ros);
        if (dfm_open_events(dfm->dfm) > 0)
                sim_violate(s, dfm, "the run is over, but %u events are open", dfm_open_events(dfm->dfm));
}
