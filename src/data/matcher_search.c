/* Searches the offset of a board's clock: with the frames that wait for their triggers, and if that fails, by
 * the first frame and the first trigger, or by the previous run. */
#include <math.h>

#include "base/util.h"
#include "matcher_internal.h"

/* If a frame came so shortly before the first trigger, the next one may belong to no trigger, either. */
#define SILENT_NS NS_PER_S

static void align(struct matcher *m, uint64_t offset_ns, uint64_t board_ns)
{
        m->aligned = true;
        m->begins = m->was_reset = false;
        m->counts.no_offset = m->alone = m->stepped = m->searched = 0;
        m->fit = (struct board_fit){
                .time_ns = board_ns - offset_ns, .offset_ns = offset_ns, .uncertainty = DRIFT_UNKNOWN};
        m->matched_ns = board_ns;
        m->matched_arrived_ns = 0;
        m->clock = (struct board_clock){};
}

struct offset_search matcher_begin_search(const struct matcher *m, enum search_part part)
{
        struct offset_search s = {.triggers = &m->triggers,
                                  .window_ns = m->config.window_ns,
                                  .from = m->triggers.n > SEARCH_TRIGGERS && part == PART_LAST
                                                  ? m->triggers.n - SEARCH_TRIGGERS
                                                  : 0};
        uint32_t skip = m->waiting.n > SEARCH_FRAMES && part == PART_LAST ? m->waiting.n - SEARCH_FRAMES : 0;

        for (uint32_t i = m->waiting.first; i != FRAME_NONE && s.n < SEARCH_FRAMES;
             i = m->store.frames[i].next) {
                if (skip > 0) {
                        skip--;
                } else if (m->arrivals[i].state == COUNT_SURE) {
                        offset_search_add(&s, m->store.frames[i].key, m->arrivals[i].turn_ns);
                        skip = part == PART_SPREAD ? m->waiting.n / SEARCH_FRAMES : 0;
                }
        }
        return s;
}

void matcher_search(struct matcher *m)
{
        uint32_t n = m->waiting.n;
        uint64_t offset_ns = 0, at_ns = 0;
        struct offset_search s;

        if (n < SURE_MATCHES || m->triggers.n < SURE_MATCHES || n < 2 * m->searched)
                return;
        m->searched = n;
        s = matcher_begin_search(m, PART_LAST);
        if (offset_find(&s, &offset_ns, &at_ns))
                align(m, offset_ns, at_ns);
}

/* The clock of the board may continue from the previous run. If the frames also agree that the first one
 * belongs to the first trigger (`begins`), there are two explanations: frames were lost between the runs, or
 * the offset of the previous run was wrong. */
static bool align_as_before(struct matcher *m, struct offset_search *s, bool begins, uint32_t not_here)
{
        double period_ns = ldexp((double)m->config.tick_ns, (int)m->config.bits);
        uint64_t offset_ns, at_ns;
        int32_t ahead;

        s->fit = &m->fit;
        if (!offset_continues(s, period_ns, &offset_ns, &at_ns, &ahead))
                return false;
        m->counts.contradicted += begins && ahead != (int32_t)not_here;
        align(m, offset_ns, at_ns);
        return true;
}

void matcher_end_search(struct matcher *m)
{
        uint64_t time_ns = m->store.frames[m->waiting.first].key, offset_ns;
        uint32_t not_here = m->is_reset ? 0 : m->counts.not_here;
        struct offset_search s = matcher_begin_search(m, PART_FIRST), spread;
        const struct known_trigger *first = known_trigger_at(&m->triggers, 0);
        struct agreement a;
        bool agrees, is_early;

        if (m->is_reset && m->lost_after > m->lost_before)
                m->begins = false;
        /* Frames that were dropped may be those of triggers that did not come here. */
        if (m->begins && m->triggers.n > 0 &&
            (not_here == 0 ||
             (not_here < s.n && m->counts.alone == 0 && known_triggers_are_counted(&m->triggers)))) {
                if (not_here > 0)
                        time_ns = s.times_ns[not_here];
                offset_ns = time_ns - first->time_ns;
                a = offset_agreement(&s, offset_ns, time_ns, 0);
                spread = matcher_begin_search(m, PART_SPREAD);
                is_early = (m->alone_ns > 0 && first->arrived_ns - m->alone_ns < SILENT_NS) ||
                           offset_is_early(&s, &spread, a, offset_ns, time_ns);
                agrees = offset_mostly_agrees(a) && !is_early;
                if (align_as_before(m, &s, agrees && 2 * a.matches > s.n, not_here))
                        return;
                if (agrees && !offset_has_rival(&s, offset_ns, time_ns)) {
                        align(m, offset_ns, time_ns);
                        return;
                }
                m->counts.early += is_early;
        }
        m->begins = false;
        m->searched -= MIN(m->searched, 1u);
        m->counts.no_offset += m->triggers.n > 0;
        if (m->triggers.n == 0)
                m->alone_ns = m->arrivals[m->waiting.first].turn_ns;
}
