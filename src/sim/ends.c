/* Keeps an independent record of the events that reached the SFIs' outputs, and compares the cores' counts
 * with it. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "sim_internal.h"

#define FIRST_EVENTS UINT64_C(256)

static void *grow(void *memory, uint64_t from, uint64_t to)
{
        uint8_t *bytes = sim_must(realloc(memory, to));

        memset(bytes + from, 0, to - from);
        return bytes;
}

static void record_event(struct sim_ends *e, uint64_t event, enum event_end end)
{
        uint64_t size = e->size;

        if (event >= size) {
                for (size = MAX(size, FIRST_EVENTS); size <= event;)
                        size *= 2;
                e->events = grow(e->events, e->size, size);
                e->size = size;
        }
        e->distinct[end] += !(e->events[event] >> end & 1);
        e->events[event] |= (uint8_t)(1u << end);
}

/* Returns whether this process has built the event before. */
static bool record_output(struct sim_node *n, uint64_t event)
{
        uint64_t words = n->n_outputs, mask = UINT64_C(1) << event % 64;
        bool before;

        if (event / 64 >= words) {
                for (words = MAX(words, FIRST_EVENTS / 64); words <= event / 64;)
                        words *= 2;
                n->outputs = grow(n->outputs, n->n_outputs * 8, words * 8);
                n->n_outputs = words;
        }
        before = n->outputs[event / 64] & mask;
        n->outputs[event / 64] |= mask;
        return before;
}

void sim_ends_record(struct sim *s, struct sim_node *n, const struct sfi_built *built)
{
        n->built[built->end] += !built->is_elsewhere;
        /* A lost event has no output. Its number may be arbitrarily large, so it is not recorded in the
         * bitmap. */
        if (built->end == EVENT_LOST)
                return;
        if (record_output(n, built->event))
                sim_violate(s, n, SIM_ENDS_ONCE, "it built event %" PRIu64 " twice", built->event);
        record_event(&s->ends, built->event, built->end);
        for (uint32_t i = 0; built->end == EVENT_COMPLETE && i < s->n_ros; i++)
                s->ends.payload_bytes += built->fragments[i].whole ? built->fragments[i].bytes : 0;
}

/* A restarted DFM may count fewer events than before only if it reports an SFI whose ends are unknown. */
static void check_restart(struct sim *s, const struct sim_node *dfm, const struct dfm_counts *c)
{
        uint64_t counted = c->complete + c->partial;

        if (!dfm_has_begun(dfm->dfm))
                return;
        /* If no node is left, another run begins. */
        if (s->ends.cookie != dfm_cookie(dfm->dfm))
                s->ends.counted = 0;
        s->ends.cookie = dfm_cookie(dfm->dfm);
        for (uint32_t i = 0; i < s->n_sfi; i++) {
                if (dfm_view(dfm->dfm, ROLE_SFI, (uint16_t)i).unknown)
                        return;
        }
        if (counted < s->ends.counted)
                sim_violate(s, dfm, SIM_ACCOUNTS_BALANCE,
                            "%" PRIu64 " events count as complete or partial, but %" PRIu64
                            " did before the DFM restarted",
                            counted, s->ends.counted);
        s->ends.counted = MAX(s->ends.counted, counted);
}

/* A DFM that resumes a run does not know why an earlier DFM lost events. */
static void check_causes(struct sim *s, const struct sim_node *dfm, const struct dfm_counts *c)
{
        uint64_t caused = 0;

        for (enum dfm_loss why = 0; why < DFM_LOSSES; why++)
                caused += dfm_lost(dfm->dfm, UINT16_MAX, why);
        if (caused > c->lost || (caused < c->lost && dfm->process <= 1))
                sim_violate(s, dfm, SIM_ACCOUNTS_BALANCE,
                            "%" PRIu64 " events are lost, and %" PRIu64 " have a cause", c->lost, caused);
}

void sim_ends_check(struct sim *s, const struct sim_node *dfm)
{
        const struct dfm_counts *c = dfm_counts(dfm->dfm);
        const struct sim_ends *e = &s->ends;
        if (c->complete > e->distinct[EVENT_COMPLETE] || c->partial > e->distinct[EVENT_PARTIAL])
                sim_violate(s, dfm, SIM_ENDS_ONCE,
                            "%" PRIu64 " events count as complete and %" PRIu64
                            " as partial, but SFIs built %" PRIu64 " and %" PRIu64,
                            c->complete, c->partial, e->distinct[EVENT_COMPLETE], e->distinct[EVENT_PARTIAL]);
        if (c->payload_bytes > e->payload_bytes)
                sim_violate(s, dfm, SIM_ACCOUNTS_BALANCE,
                            "complete events have %" PRIu64 " bytes, but SFIs built %" PRIu64,
                            c->payload_bytes, e->payload_bytes);
        check_restart(s, dfm, c);
        check_causes(s, dfm, c);
}

void sim_ends_forget(struct sim_node *n)
{
        free(n->outputs);
        n->outputs = NULL;
        n->n_outputs = 0;
        memset(n->built, 0, sizeof n->built);
}
