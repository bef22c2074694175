/* Checks the invariants of every history, independently of what the cores report. coverage.c follows the
 * bytes of each chunk into the built event, ends.c follows events to the SFIs' outputs, and this file checks
 * that the DFM makes progress in time. */
#include <inttypes.h>

#include "sim_internal.h"

/* Minimum sfi.timeout with which retries recover all losses of a working network. */
#define PATIENT_NS (10 * NS_PER_S)
/* Minimum dfm.node-timeout with which a busy node does not count as silent. */
#define NODE_PATIENT_NS (1 * NS_PER_S)

static const char *name_of_ros(const struct sim *s, uint32_t ros)
{
        return s->nodes[s->node_of_ros[ros]].self->name;
}

/* A whole fragment must have the size that its source gave it, and all of its bytes must have arrived for
 * this event. */
static void check_fragment(struct sim *s, const struct sim_node *n, const struct sim_slot *slot,
                           const struct sfi_built *built, uint32_t ros)
{
        const struct sfi_fragment *f = &built->fragments[ros];
        const struct sim_node *from = &s->nodes[s->node_of_ros[ros]];
        bool is_frame = scenario_has_front_end(from->self), is_numbered = from->self->board.number.bits > 0;
        struct ros_fragment made;

        if (!f->whole || f->status != FRAGMENT_OK)
                return;
        source_describe(from->source, is_frame && is_numbered ? built->info.global_id : built->event,
                        built->info.l1_id, &made);
        /* A trigger that the DFM refuses shifts the count of frames, so their sizes cannot be compared. */
        if (f->bytes != made.bytes && (!is_frame || is_numbered))
                sim_violate(s, n, SIM_EVENTS_UNMIXED,
                            "event %" PRIu64 " has a fragment of %s with %u bytes, which made %u",
                            built->event, name_of_ros(s, ros), f->bytes, made.bytes);
        if (!sim_coverage_all(slot, built, ros))
                sim_violate(s, n, SIM_EVENTS_UNMIXED,
                            "event %" PRIu64 " has a whole fragment of %s with %u bytes, of which only "
                            "some arrived for it",
                            built->event, name_of_ros(s, ros), f->bytes);
}

static void check_fragments(struct sim *s, const struct sim_node *n, const struct sim_slot *slot,
                            const struct sfi_built *built)
{
        for (uint32_t i = 0; i < s->n_ros; i++) {
                check_fragment(s, n, slot, built, i);
                if (built->end == EVENT_COMPLETE && !s->rules[i].optional &&
                    !sfi_fragment_is_present(&built->fragments[i]))
                        sim_violate(s, n, SIM_EVENTS_UNMIXED,
                                    "event %" PRIu64 " is complete without a fragment of %s", built->event,
                                    name_of_ros(s, i));
        }
}

/* Until the time-out has passed, no event was accepted without a decision. */
static void check_decision(struct sim *s, const struct sim_node *n, const struct sfi_built *built)
{
        if (s->scenario->level2.port > 0 && sim_now_ns(s) < s->scenario->level2.timeout_ns &&
            !sim_farm_accepts(&s->farm, built->event))
                sim_violate(s, n, SIM_EVENTS_UNMIXED, "it built event %" PRIu64 ", which level 2 rejects",
                            built->event);
}

void sim_check_built(struct sim *s, struct sim_node *n, uint32_t number)
{
        static const char *const ends[] = {"complete", "partial", "lost"};
        struct sim_slot *slot = &n->slots[number];
        struct sfi_built built;

        sfi_built_event(n->sfi, number, &built);
        sim_trace(s, n, built.event << 2 | built.end, "builds event %" PRIu64 ": %s", built.event,
                  ends[built.end]);
        sim_ends_record(s, n, &built);
        if (built.end != EVENT_LOST) {
                check_decision(s, n, &built);
                check_fragments(s, n, slot, &built);
        }
        sim_coverage_clear(s, n, slot);
}

void sim_check_answer(struct sim *s, const struct sim_node *n, const struct chunk *c)
{
        struct ros_fragment made;

        if (c->status != FRAGMENT_OK)
                return;
        source_describe(n->source, c->event, c->l1_id, &made);
        if (c->fragment_bytes != made.bytes && !scenario_has_front_end(n->self))
                sim_violate(s, n, SIM_EVENTS_UNMIXED,
                            "level 2 got a fragment of event %" PRIu64
                            " with %u bytes, but its source made %u",
                            c->event, c->fragment_bytes, made.bytes);
}

/* Maximum time in which no event ends, once no further node joins. It covers the time-out of each assignment
 * of an event, the time until the DFM notices a silent node, and the time until the run's state reaches every
 * node. */
static uint64_t patience_ns(const struct scenario *s)
{
        return (EVB_REASSIGNMENTS + 2) * s->dfm.event_timeout_ns + 5 * s->dfm.node_timeout_ns +
               s->dfm.start_timeout_ns + 60 * s->dfm.keep_alive_ns +
               (s->level2.port > 0 ? 2 * s->level2.timeout_ns : 0);
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

/* Lists the nodes that hold back triggers, as many as fit into the text. */
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
        uint64_t progress = (dfm_progress(n->dfm) + dfm_counts(n->dfm)->lost) ^ (uint64_t)n->state << 56,
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
                sim_violate(s, n, SIM_NOTHING_WAITS, "nothing has moved for %.3f s, and %u events are open%s",
                            (double)(now_ns - from_ns) / NS_PER_S, dfm_open_events(n->dfm), why);
        }
}

/* Maximum number of SFIs per check. In a small system, these are all SFIs; in a large system, different SFIs
 * are checked in turn. */
#define SUM_SFIS 8u

/* Checks that the events in the SFIs are open, and that no SFI has more events than credits. */
static void check_credits(struct sim *s, struct sim_node *n)
{
        uint32_t first = s->n_sfi <= SUM_SFIS ? 0 : s->dfm_turns++ % s->n_sfi, open = dfm_open_events(n->dfm);
        uint64_t held = 0;

        for (uint32_t i = first; i < MIN(first + SUM_SFIS, s->n_sfi); i++) {
                const struct dfm_node_view v = dfm_view(n->dfm, ROLE_SFI, (uint16_t)i);
                const struct sim_node *sfi = &s->nodes[s->node_of_sfi[i]];

                held += v.held;
                if (v.held > sfi->n_slots)
                        sim_violate(s, n, SIM_BUFFERS_BOUNDED, "%s has %u events, more than its %u slots",
                                    sfi->self->name, v.held, sfi->n_slots);
                /* A DFM that resumes the run without the reports of a node may assign an event too many. */
                if (s->scenario->sfi.credits > 0 && v.held > s->scenario->sfi.credits && !s->has_cuts)
                        sim_violate(s, n, SIM_BUFFERS_BOUNDED, "%s has %u events and %u credits",
                                    sfi->self->name, v.held, (unsigned)s->scenario->sfi.credits);
        }
        if (held > open)
                sim_violate(s, n, SIM_ACCOUNTS_BALANCE, "SFIs have %" PRIu64 " events, but %u are open", held,
                            open);
}

static void check_dfm(struct sim *s, struct sim_node *n)
{
        const struct dfm_counts *c = dfm_counts(n->dfm);
        uint64_t ends = c->complete + c->partial + c->lost + c->rejected;

        /* A DFM that resumes a run collects the events of the run before it counts them. */
        if (dfm_has_begun(n->dfm) && c->triggers != ends + dfm_open_events(n->dfm))
                sim_violate(s, n, SIM_ENDS_ONCE,
                            "%" PRIu64 " triggers, but %" PRIu64 " have ended and %u are open", c->triggers,
                            ends, dfm_open_events(n->dfm));
        if (c->fragments_expected != c->fragments_received + c->fragments_lost + c->fragments_absent)
                sim_violate(s, n, SIM_ACCOUNTS_BALANCE,
                            "%" PRIu64 " fragments are expected, but %" PRIu64 " received, %" PRIu64
                            " lost and %" PRIu64 " absent",
                            c->fragments_expected, c->fragments_received, c->fragments_lost,
                            c->fragments_absent);
        if (ends != n->ends_seen)
                sim_trace(s, n, ends,
                          "counts %" PRIu64 " triggers, %" PRIu64 " complete, %" PRIu64 " partial, %" PRIu64
                          " lost",
                          c->triggers, c->complete, c->partial, c->lost);
        n->ends_seen = ends;
        check_credits(s, n);
        sim_ends_check(s, n);
        check_progress(s, n);
}

static void check_ros(struct sim *s, struct sim_node *n)
{
        const struct scenario *sc = s->scenario;
        uint64_t bytes = ros_buffer_used_bytes(n->ros);
        uint32_t held = ros_held(n->ros);
        /* With a front-end, requests for frames that have not arrived count, too. */
        bool is_full = held > sc->ros.buffer_events && !scenario_has_front_end(n->self);

        if (is_full || bytes > sc->ros.buffer_size_bytes)
                sim_violate(s, n, SIM_BUFFERS_BOUNDED,
                            "it holds %u fragments in %" PRIu64 " bytes, more than its buffer", held, bytes);
        if (held == 0 && bytes > 0)
                sim_violate(s, n, SIM_BUFFERS_BOUNDED, "it holds no fragment, but %" PRIu64 " bytes", bytes);
        /* The end of a run clears all events, but not frames that belong to no event. */
        if (n->state == RUN_ENDED && held > 0 && !scenario_has_front_end(n->self))
                sim_violate(s, n, SIM_BUFFERS_BOUNDED, "the run has ended, but it holds %u fragments", held);
}

static void check_sfi(struct sim *s, struct sim_node *n)
{
        const struct sfi_counts *c = sfi_event_counts(n->sfi);
        uint64_t built = 0, bytes = sfi_buffer_used_bytes(n->sfi);
        uint32_t open = sfi_open_events(n->sfi);

        for (size_t i = 0; i < ARRAY_SIZE(n->built); i++)
                built += n->built[i];
        if (open > n->n_slots || bytes > s->scenario->sfi.buffer_size_bytes)
                sim_violate(s, n, SIM_BUFFERS_BOUNDED,
                            "it has %u open events in %" PRIu64 " bytes, more than its buffer", open, bytes);
        if (open == 0 && bytes > 0)
                sim_violate(s, n, SIM_BUFFERS_BOUNDED, "it has no open event, but %" PRIu64 " bytes", bytes);
        if (c->complete != n->built[EVENT_COMPLETE] || c->partial != n->built[EVENT_PARTIAL] ||
            c->lost != n->built[EVENT_LOST])
                sim_violate(s, n, SIM_ACCOUNTS_BALANCE,
                            "it counts %" PRIu64 " complete events, %" PRIu64 " partial and %" PRIu64
                            " lost, but built %" PRIu64 ", %" PRIu64 " and %" PRIu64,
                            c->complete, c->partial, c->lost, n->built[0], n->built[1], n->built[2]);
        if (c->fragments_received + c->fragments_lost + c->fragments_absent != built * s->n_ros)
                sim_violate(s, n, SIM_ACCOUNTS_BALANCE,
                            "%" PRIu64 " events have %" PRIu64 " fragments received, %" PRIu64
                            " lost and %" PRIu64 " absent",
                            built, c->fragments_received, c->fragments_lost, c->fragments_absent);
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
                sim_trace(s, n, state, "sees the run: %s", texts[state]);
        n->state = state;
        if (n->self->role == ROLE_DFM)
                check_dfm(s, n);
        else if (n->self->role == ROLE_ROS)
                check_ros(s, n);
        else
                check_sfi(s, n);
}

/* If the plan has no warning, no port drops packets while every node sends and reads. In pull, this also
 * requires the limit of bytes in flight. */
void sim_check_drop(struct sim *s, const struct sim_node *at)
{
        bool disturbed =
                s->n_faults > 0 || s->network.loss > 0 || s->network.reorder > 0 || s->network.duplicate > 0;

        if (s->plan_is_valid && !disturbed)
                sim_violate(s, at, SIM_PLAN_HOLDS,
                            "its switch port dropped a packet, although the plan allows none");
}

/* Retries recover all losses of the network, unless a node fails or seems to fail, or a timeout is short. */
static void check_lost(struct sim *s, const struct sim_node *dfm, const struct dfm_counts *c)
{
        const struct scenario *sc = s->scenario;

        if (s->n_faults == 0 && sc->sfi.retries == SCENARIO_UNBOUNDED && sc->sfi.timeout_ns >= PATIENT_NS &&
            sc->dfm.node_timeout_ns >= NODE_PATIENT_NS && !scenario_has_front_ends(sc) &&
            c->partial + c->lost > 0)
                sim_violate(s, dfm, SIM_NOTHING_LOST,
                            "%" PRIu64 " events are partial and %" PRIu64 " lost, although no node failed",
                            c->partial, c->lost);
}

void sim_check_end(struct sim *s)
{
        const struct sim_node *dfm = &s->nodes[s->dfm];
        const struct dfm_counts *c;

        if (!dfm->is_live)
                return;
        c = dfm_counts(dfm->dfm);
        if (c->fragments_expected != (c->triggers - c->rejected) * s->n_ros)
                sim_violate(s, dfm, SIM_ACCOUNTS_BALANCE,
                            "%" PRIu64 " triggers expect %" PRIu64 " fragments of %u ROSs", c->triggers,
                            c->fragments_expected, s->n_ros);
        if (dfm_open_events(dfm->dfm) > 0)
                sim_violate(s, dfm, SIM_ENDS_ONCE, "the run is over, but %u events are open",
                            dfm_open_events(dfm->dfm));
        check_lost(s, dfm, c);
}
