/* Compares the times of a board's frames with those of triggers. The clock of the board is that of the
 * triggers plus an offset, which is searched once, and a drift, which each match measures again. front_end.c
 * reads the frames, trigger_times.c the triggers; matcher_search.c searches the offset. */
#include "data/matcher.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "protocol/event.h"
#include "protocol/number.h"
#include "matcher_internal.h"

/* So long after it came, a trigger with a reset may be repeated. */
#define REPEATED_NS NS_PER_S
/* A frame waits so long for its trigger, which the network may deliver later. */
#define HOLD_NS (100 * NS_PER_MS)
/* After so many frames and triggers in a row that do not match, the offset is searched again; fewer prove
 * that it was wrong from the beginning, as long as there are few matches. */
#define LOST_MATCHES 16u
#define WRONG_MATCHES 2u
#define PROVEN_MATCHES 4u
/* In a longer pause, the drift may change, even if it is known. */
#define PAUSE_NS (5 * NS_PER_S)
/* A frame that was read late may have at most so many times. */
#define PERIODS_MAX 16u
/* If the time of a board moves by more than this against the clock of the machine, it was set. */
#define STEP_NS NS_PER_S

int matcher_new(struct matcher **ret, const struct matcher_config *config)
{
        struct matcher *m;
        int r;

        if (config->window_ns == 0 || config->tick_ns == 0 || config->bits == 0 || config->frames_max == 0)
                return -EINVAL;
        m = calloc(1, sizeof *m);
        if (!m)
                return -ENOMEM;
        m->config = *config;
        m->fit = config->past.fit;
        m->count = m->fit.matches > 0 ? config->past.count : (struct board_count){};
        m->emptied_ns = m->count.anchor_ns;
        m->arriving = m->undated = FRAME_NONE;
        m->waiting = FRAME_LIST_EMPTY;
        m->arrivals = calloc(config->frames_max, sizeof *m->arrivals);
        m->triggers.ring = calloc(TRIGGERS_MAX, sizeof *m->triggers.ring);
        r = frame_store_init(&m->store, config->frames_max, config->buffer_bytes);
        if (r < 0 || !m->arrivals || !m->triggers.ring) {
                matcher_free(m);
                return r < 0 ? r : -ENOMEM;
        }
        *ret = m;
        return 0;
}

struct matcher *matcher_free(struct matcher *m)
{
        if (!m)
                return NULL;
        frame_store_fini(&m->store);
        free(m->arrivals);
        free(m->triggers.ring);
        free(m);
        return NULL;
}

/* ---- The oldest frame. ---- */

static void forget_alignment(struct matcher *m, bool begins)
{
        if (m->aligned)
                m->fit.matches = 0;
        m->aligned = false;
        m->begins = begins;
        m->searched = 0;
}

static void remove_oldest(struct matcher *m)
{
        struct frame_list *list = &m->waiting;
        uint32_t i = list->first;

        list->first = m->store.frames[i].next;
        if (m->undated == i)
                m->undated = list->first;
        if (list->first == FRAME_NONE)
                list->last = FRAME_NONE;
        list->bytes -= FRAME_LENGTH_BYTES + m->store.frames[i].bytes;
        list->n--;
        m->n_open -= m->arrivals[i].state == COUNT_OPEN;
        m->n_drifted -= m->arrivals[i].drifted;
        m->counts.waiting--;
        frame_store_release(&m->store, i);
}

/* The oldest frame belongs to no trigger. */
static void leave_alone(struct matcher *m)
{
        m->counts.alone++;
        remove_oldest(m);
}

/* ---- Triggers. ---- */

/* The trigger may be as near to the newest frame as the trigger of that frame. */
static void check_last_match(struct matcher *m, const struct known_trigger *t)
{
        double tolerance_ns;
        uint64_t time_ns = board_fit_time(&m->fit, m->config.window_ns, m->matched_ns, &tolerance_ns);

        if (!m->aligned || m->fit.matches == 0 || t->number == m->matched_number ||
            !time_is_near(t->time_ns, time_ns, tolerance_ns))
                return;
        m->counts.ambiguous++;
        m->counts.ambiguous_number = m->matched_number;
}

/* Whether the network or the box repeats the trigger. A reset that comes long after the trigger is another
 * one: the clock of the box may begin again with the same time. */
static bool is_repeated(const struct matcher *m, uint64_t now_ns, const struct trigger_entry *e)
{
        const struct known_trigger *t = known_triggers_find(&m->triggers, e->number, e->time_ns);

        return t && (!(e->flags & TRIGGER_RESET) || now_ns - t->arrived_ns < REPEATED_NS);
}

/* Forgets triggers and frames that cannot belong to the first trigger after the reset, or to a later one. */
static void forget_before_reset(struct matcher *m)
{
        while (m->triggers.n > 0 && known_trigger_at(&m->triggers, 0)->arrived_ns < m->reset_ns)
                known_triggers_drop_first(&m->triggers);
        while (m->waiting.n > 0 && m->arrivals[m->waiting.first].turn_ns + HOLD_NS <= m->reset_ns)
                leave_alone(m);
        forget_alignment(m, !m->left);
}

void matcher_trigger(struct matcher *m, uint64_t now_ns, const struct trigger_entry *e, bool begins)
{
        const struct known_trigger t = {e->number, e->time_ns, now_ns, false};

        if (!(e->flags & TRIGGER_MARKER) && is_repeated(m, now_ns, e))
                return;
        m->is_reset |= e->flags & TRIGGER_RESET && m->has_first;
        if (e->flags & TRIGGER_RESET) {
                m->was_reset = true;
                m->left = false;
                m->reset_ns = now_ns;
                m->lost_before = m->lost;
                m->lost_after = UINT64_MAX;
                if (!m->aligned)
                        forget_before_reset(m);
        }
        if (e->flags & TRIGGER_MARKER)
                return;
        m->lost_after = MIN(m->lost_after, m->lost);
        if (!m->is_reset) {
                m->first_here = m->has_first ? MIN(m->first_here, e->number) : e->number;
                m->has_first = true;
        }
        if (e->time_ns == 0) {
                m->counts.untimed++;
                return;
        }
        m->begins |= m->triggers.n == 0 && begins && !m->aligned;
        m->begins &= m->triggers.n < TRIGGERS_MAX;
        if (!known_triggers_add(&m->triggers, &t, STEP_NS)) {
                m->counts.lost += m->aligned && !m->was_reset;
                forget_alignment(m, m->was_reset);
        }
        check_last_match(m, &t);
}

void matcher_set_lost(struct matcher *m, uint64_t datagrams)
{
        m->lost = datagrams;
}

void matcher_set_first(struct matcher *m, uint32_t number)
{
        int32_t not_here = (int32_t)((uint32_t)m->first_here - number);

        if (m->has_first && !m->is_reset)
                m->counts.not_here = (uint32_t)MAX(not_here, 0);
}

/* ---- Frames. ---- */

/* A sure count shows whether those of earlier frames are right. */
static void settle_open(struct matcher *m, enum count_state state)
{
        for (uint32_t i = m->waiting.first; i != m->undated && m->n_open > 0; i = m->store.frames[i].next) {
                m->n_open -= m->arrivals[i].state == COUNT_OPEN;
                if (m->arrivals[i].state == COUNT_OPEN)
                        m->arrivals[i].state = state;
        }
}

/* Sets the time of the frame, which was read by now. */
static void date(struct matcher *m, uint32_t i)
{
        struct arrival *a = &m->arrivals[i];
        struct counted c = board_count_extend(&m->count, m->config.tick_ns, m->config.bits,
                                              m->store.frames[i].key, a->from_ns, a->read_ns);

        if (c.begins_anew) {
                m->counts.lost += m->aligned;
                m->counts.turned += c.was_wrong;
                forget_alignment(m, false);
        }
        a->drifted = c.drifted;
        m->n_drifted += c.drifted;
        if (c.state == COUNT_SURE)
                settle_open(m, c.earlier);
        m->n_open += c.state == COUNT_OPEN;
        a->state = c.state;
        m->store.frames[i].key = c.count * m->config.tick_ns;
}

/* Sets the times of frames that came since the last turn. */
static void date_frames(struct matcher *m, uint64_t read_ns)
{
        if (m->arriving != FRAME_NONE && m->arrivals[m->arriving].read_ns == 0)
                m->arrivals[m->arriving].read_ns = read_ns;
        while (m->undated != FRAME_NONE) {
                uint32_t i = m->undated;

                if (m->arrivals[i].read_ns == 0)
                        m->arrivals[i].read_ns = read_ns;
                date(m, i);
                m->undated = m->store.frames[i].next;
        }
}

enum ros_verdict matcher_arrive(struct matcher *m, uint64_t now_ns, const uint64_t *counter, uint32_t bytes,
                                uint8_t **ret_to)
{
        uint32_t i;

        m->discards = !counter;
        if (m->discards)
                return ROS_DISCARD;
        i = frame_store_add(&m->store, bytes, *counter);
        if (i == FRAME_NONE)
                return ROS_FULL;
        m->arrivals[i] = (struct arrival){.turn_ns = now_ns, .from_ns = m->emptied_ns};
        m->arriving = i;
        *ret_to = frame_store_bytes(&m->store, i);
        return ROS_STORE;
}

void matcher_commit(struct matcher *m)
{
        m->counts.frames++;
        if (m->discards) {
                m->discards = false;
                m->counts.no_time++;
                return;
        }
        frame_store_append(&m->store, &m->waiting, m->arriving);
        if (m->undated == FRAME_NONE)
                m->undated = m->arriving;
        m->counts.waiting++;
        m->arriving = FRAME_NONE;
}

void matcher_skip(struct matcher *m)
{
        if (m->arriving != FRAME_NONE)
                frame_store_release(&m->store, m->arriving);
        m->arriving = FRAME_NONE;
        m->discards = false;
        m->counts.frames++;
        m->counts.no_room++;
}

/* ---- Matches. ---- */

enum fate { FATE_WAITS, FATE_MATCHES, FATE_IS_ALONE, FATE_IS_DOUBLED, FATE_IS_OPEN };

/* The time of the oldest frame's trigger, and by how much this may be wrong. */
static uint64_t oldest_time_ns(const struct matcher *m, double *ret_tolerance_ns)
{
        return board_fit_time(&m->fit, m->config.window_ns, m->store.frames[m->waiting.first].key,
                              ret_tolerance_ns);
}

/* Whether the oldest frame may be the first one that shows whether a reset was that of its clock, too. */
static bool follows_reset(const struct matcher *m)
{
        return m->was_reset && m->arrivals[m->waiting.first].turn_ns + HOLD_NS > m->reset_ns;
}

/* Whether the oldest frame comes so long after the last match that its trigger is not sure. */
static bool follows_pause(const struct matcher *m)
{
        uint64_t board_ns = m->store.frames[m->waiting.first].key, time_ns;
        double tolerance_ns;

        if (!m->aligned || m->matched_arrived_ns == 0 ||
            time_is_near(board_ns, m->matched_ns, (double)m->config.window_ns / DRIFT_UNKNOWN))
                return false;
        time_ns = oldest_time_ns(m, &tolerance_ns);
        return tolerance_ns > 2 * (double)m->config.window_ns &&
               (!time_is_near(board_ns, m->matched_ns, PAUSE_NS) ||
                known_triggers_within(&m->triggers, time_ns, tolerance_ns) > 1);
}

/* When the oldest frame waits no longer; UINT64_MAX: there is none. */
static uint64_t due_ns(const struct matcher *m)
{
        const struct arrival *a;
        bool is_short;

        if (m->waiting.n == 0)
                return UINT64_MAX;
        a = &m->arrivals[m->waiting.first];
        is_short = m->triggers.n == 0 ||
                   (m->aligned && a->state != COUNT_OPEN && !follows_reset(m) && !follows_pause(m));
        return MAX(a->turn_ns, a->read_ns) + (is_short ? HOLD_NS : m->config.search_ns);
}

/* The time of the frame is known except for whole periods of its counter. True: the triggers show it. */
static bool find_period(struct matcher *m)
{
        const struct arrival *a = &m->arrivals[m->waiting.first];
        uint64_t tick_ns = m->config.tick_ns, periods = UINT64_C(1) << m->config.bits % 64, first = 0;
        uint64_t *key = &m->store.frames[m->waiting.first].key;
        unsigned n = board_count_possible(&m->count, tick_ns, m->config.bits, *key / tick_ns & (periods - 1),
                                          a->from_ns, a->read_ns, PERIODS_MAX, &first);

        *key = first * tick_ns;
        return board_fit_find(&m->fit, m->config.window_ns, &m->triggers, n, periods * tick_ns, key);
}

/* The times of the frames from here on may be wrong by whole periods. False: the oldest one must wait. */
static bool settle_drifted(struct matcher *m, bool is_last)
{
        enum resumption r = RESUMPTION_FOUND;
        int64_t periods = 0;

        if (m->aligned)
                r = board_fit_periods(&m->fit, m->config.window_ns, &m->triggers, &m->count,
                                      m->config.tick_ns, m->config.bits, m->was_reset, &periods);
        if (r == RESUMPTION_NO_TRIGGER) {
                m->left |= is_last && follows_reset(m);
                if (is_last)
                        leave_alone(m);
                return is_last;
        }
        m->drifted = false;
        if (r == RESUMPTION_FOUND) {
                uint64_t by_ns = board_count_shift(&m->count, m->config.tick_ns, m->config.bits, periods);

                for (uint32_t i = m->waiting.first; i != m->undated; i = m->store.frames[i].next)
                        m->store.frames[i].key += by_ns;
        } else if (m->was_reset) {
                m->was_reset = false;
                forget_before_reset(m);
        } else {
                m->counts.lost++;
                forget_alignment(m, false);
        }
        return true;
}

/* Decides on the time of the oldest frame, if it is not sure. False: it must wait. */
static bool settle_oldest(struct matcher *m, bool is_last)
{
        struct arrival *a = &m->arrivals[m->waiting.first];

        m->drifted |= a->drifted;
        m->n_drifted -= a->drifted;
        a->drifted = false;
        /* After another silence, the count shows nothing about the frames before. */
        if (a->state == COUNT_SURE && (!m->drifted || !m->aligned || m->n_drifted == 0))
                return !m->drifted || settle_drifted(m, is_last);
        if (a->state != COUNT_SURE && !is_last)
                return false;
        if (m->aligned && !m->drifted && m->n_drifted == 0 && find_period(m)) {
                m->n_open -= a->state == COUNT_OPEN;
                a->state = COUNT_SURE;
                return true;
        }
        m->begins = false;
        m->counts.unproven += m->triggers.n > 0;
        leave_alone(m);
        return true;
}

/* Decides about the oldest frame; `is_last`: it waits no longer. */
static enum fate decide(const struct matcher *m, bool is_last, uint32_t *ret_trigger, bool *ret_ambiguous)
{
        double tolerance_ns;
        uint64_t time_ns = oldest_time_ns(m, &tolerance_ns);
        uint32_t k;
        bool is_near;

        if (m->triggers.n == 0)
                return is_last ? FATE_IS_ALONE : FATE_WAITS;
        k = known_triggers_nearest(&m->triggers, 0, time_ns);
        is_near = time_is_near(known_trigger_at(&m->triggers, k)->time_ns, time_ns, tolerance_ns);
        is_last |= time_difference(known_trigger_at(&m->triggers, m->triggers.n - 1)->time_ns, time_ns) >=
                   tolerance_ns;
        /* A trigger that is yet to come may be the only one near, or as near. */
        if (!is_last && (!is_near || tolerance_ns > 2 * (double)m->config.window_ns))
                return FATE_WAITS;
        if (!is_near)
                return FATE_IS_ALONE;
        *ret_trigger = k;
        *ret_ambiguous = known_triggers_are_ambiguous(&m->triggers, k, time_ns, tolerance_ns);
        return known_trigger_at(&m->triggers, k)->used ? FATE_IS_DOUBLED : FATE_MATCHES;
}

/* False: the core has no room. */
static bool pass(struct matcher *m, uint64_t number, struct ros *core, uint8_t *buffer)
{
        uint32_t i = m->waiting.first;
        /* The DFM knows the low 32 bits. */
        uint64_t counter = number % NUMBER_PERIOD_MAX, at;
        struct ros_fragment fragment = {
                .bytes = m->store.frames[i].bytes, .form = FORM_RAW, .frames = 1, .joined = true};

        switch (ros_arrive(core, &counter, &fragment, &at)) {
        case ROS_FULL:
                return false;
        case ROS_STORE:
                memcpy(buffer + at, frame_store_bytes(&m->store, i), fragment.bytes);
                break;
        case ROS_DISCARD:
                break;
        }
        ros_commit(core);
        m->counts.passed++;
        return true;
}

static void record_match(struct matcher *m, uint32_t k, bool ambiguous)
{
        struct known_trigger *t = known_trigger_at(&m->triggers, k);
        uint32_t i = m->waiting.first;
        uint64_t board_ns = m->store.frames[i].key;
        bool is_newest = time_difference(board_ns, m->matched_ns) > 0;

        t->used = true;
        if (m->n_drifted == 0)
                board_count_follow_lag(&m->count, board_ns, t->arrived_ns);
        m->was_reset = m->begins = false;
        m->alone = m->stepped = 0;
        m->matched_ns = board_ns;
        m->matched_arrived_ns = m->arrivals[i].turn_ns;
        m->matched_number = t->number;
        m->matched_lost = m->lost;
        if (ambiguous) {
                m->counts.ambiguous++;
                m->counts.ambiguous_number = t->number;
        } else {
                if (is_newest)
                        board_clock_record(&m->clock, t->time_ns, board_ns);
                board_fit_add(&m->fit, m->config.window_ns, t->time_ns, board_ns);
        }
}

/* Whether the time of the oldest frame jumped, compared with the clock of the machine. */
static bool is_stepped(const struct matcher *m)
{
        uint32_t i = m->waiting.first;
        uint64_t moved_ns =
                m->store.frames[i].key - m->matched_ns - (m->arrivals[i].turn_ns - m->matched_arrived_ns);

        return m->matched_arrived_ns > 0 && !time_is_near(moved_ns, 0, (double)STEP_NS);
}

/* The oldest frame follows a reset and has no trigger. If later frames have triggers, the clock of the board
 * goes on; if not, or if `is_unsure` after a pause, it was reset, too. A single frame does not show this. */
static enum fate decide_after_reset(struct matcher *m, bool is_last, bool is_unsure)
{
        struct offset_search s = matcher_begin_search(m, PART_FIRST);
        uint64_t board_ns = m->store.frames[m->waiting.first].key, time_ns;
        double tolerance_ns;

        s.from = known_triggers_until(&m->triggers, m->reset_ns);
        time_ns = oldest_time_ns(m, &tolerance_ns);
        s.window_ns = (uint64_t)tolerance_ns;
        if (!is_unsure && s.from < m->triggers.n &&
            offset_mostly_agrees(offset_agreement(&s, board_ns - time_ns, board_ns, 0)))
                m->was_reset = false;
        else if (!is_last && MIN(s.n, m->triggers.n - s.from) < LOST_MATCHES)
                return FATE_WAITS;
        else if (s.from < m->triggers.n && (s.n > 1 || is_stepped(m))) {
                m->was_reset = false;
                forget_before_reset(m);
                return FATE_IS_OPEN;
        }
        m->left = true;
        return FATE_IS_ALONE;
}

/* The oldest frame has no trigger. If that happens again and again, although there were triggers, the clock
 * of the board was set, or the offset was wrong. */
static void record_alone(struct matcher *m)
{
        uint32_t passed, limit = m->fit.matches < PROVEN_MATCHES ? WRONG_MATCHES : LOST_MATCHES;
        double tolerance_ns;

        m->alone++;
        m->stepped += is_stepped(m);
        passed = known_triggers_before(&m->triggers, 0, oldest_time_ns(m, &tolerance_ns));
        passed -= MIN(passed, known_triggers_before(&m->triggers, 0, m->fit.time_ns + 1));
        if (m->alone < limit || (passed < limit && m->stepped < limit))
                return;
        m->counts.lost++;
        m->counts.wrong += m->fit.matches < PROVEN_MATCHES && m->fit.matches > 0;
        forget_alignment(m, false);
}

/* The oldest frame follows a pause. If the frames show no offset, it is searched without that of before;
 * frames that are too few, or have waited, are in no event. */
static enum resumption resume(struct matcher *m, bool is_last)
{
        uint64_t trigger_ns, board_ns;
        struct offset_search s;
        enum resumption r;

        if (!is_last && (m->waiting.n < SURE_MATCHES || m->waiting.n < 2 * m->searched))
                return RESUMPTION_OPEN;
        s = matcher_begin_search(m, PART_FIRST);
        offset_search_follow(&s, &m->fit);
        r = offset_resume(&s, is_last, m->lost == m->matched_lost, &trigger_ns, &board_ns);
        m->searched = r == RESUMPTION_OPEN ? m->waiting.n : 0;
        if (r == RESUMPTION_FOUND)
                board_fit_add(&m->fit, m->config.window_ns, trigger_ns, board_ns);
        if (r != RESUMPTION_FAILED || follows_reset(m))
                return r;
        m->counts.lost++;
        if (s.n >= SURE_MATCHES)
                forget_alignment(m, false);
        while ((m->aligned || is_last) && m->waiting.n > 0)
                leave_alone(m);
        return r;
}

static enum fate decide_next(struct matcher *m, bool is_last, uint32_t *ret_trigger, bool *ret_ambiguous)
{
        bool after_reset = follows_reset(m);
        enum resumption r = follows_pause(m) ? resume(m, is_last) : RESUMPTION_NO_TRIGGER;
        enum fate fate;

        if (r == RESUMPTION_OPEN)
                return FATE_WAITS;
        if (r == RESUMPTION_FAILED)
                return after_reset ? decide_after_reset(m, is_last, true) : FATE_IS_OPEN;
        fate = decide(m, is_last, ret_trigger, ret_ambiguous);
        return fate == FATE_IS_ALONE && after_reset ? decide_after_reset(m, is_last, false) : fate;
}

/* When the socket should be found empty. */
static uint64_t look_ns(const struct matcher *m)
{
        return m->config.bits < 64 ? MAX(m->emptied_ns, m->looked_ns) +
                                             board_count_look_ns(m->config.tick_ns, m->config.bits)
                                   : UINT64_MAX;
}

uint64_t matcher_deadline_ns(const struct matcher *m)
{
        return MIN(due_ns(m), look_ns(m));
}

uint64_t matcher_deliver(struct matcher *m, const struct matcher_turn *turn, struct ros *core,
                         uint8_t *buffer)
{
        bool over = ros_run_state(core) == RUN_ENDED, full = turn->full;
        uint64_t n = 0;

        if (turn->now_ns >= look_ns(m))
                m->looked_ns = turn->now_ns;
        date_frames(m, MAX(turn->read_ns, m->emptied_ns));
        m->emptied_ns = MAX(m->emptied_ns, turn->emptied_ns);
        while (m->waiting.n > 0) {
                bool is_last = over || full || turn->now_ns >= due_ns(m), ambiguous = false;
                uint32_t k = 0, waiting = m->waiting.n;

                if (!settle_oldest(m, is_last))
                        break;
                if (m->waiting.n < waiting) {
                        full = false;
                        continue;
                }

                if (!m->aligned)
                        matcher_search(m);
                if (!m->aligned && !is_last)
                        break;
                if (!m->aligned) {
                        matcher_end_search(m);
                        if (!m->aligned)
                                leave_alone(m);
                        full = false;
                        continue;
                }
                switch (decide_next(m, is_last, &k, &ambiguous)) {
                case FATE_WAITS:
                        return n;
                case FATE_MATCHES:
                        if (!pass(m, known_trigger_at(&m->triggers, k)->number, core, buffer))
                                return n;
                        record_match(m, k, ambiguous);
                        remove_oldest(m);
                        n++;
                        break;
                case FATE_IS_OPEN:
                        break;
                case FATE_IS_ALONE:
                        record_alone(m);
                        leave_alone(m);
                        break;
                case FATE_IS_DOUBLED:
                        m->counts.doubled++;
                        m->counts.doubled_number = known_trigger_at(&m->triggers, k)->number;
                        remove_oldest(m);
                        break;
                }
                full = false;
        }
        return n;
}

bool matcher_is_searching(const struct matcher *m)
{
        return m->waiting.n > 0 && (m->aligned ? follows_reset(m) || follows_pause(m) : m->begins);
}

bool matcher_is_aligned(const struct matcher *m)
{
        return m->aligned;
}

const struct matcher_counts *matcher_counts(const struct matcher *m)
{
        return &m->counts;
}

struct matcher_past matcher_past(const struct matcher *m)
{
        return (struct matcher_past){m->fit, m->count};
}

const struct board_clock *matcher_clock(const struct matcher *m)
{
        return &m->clock;
}
