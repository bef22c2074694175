/* The triggers by their times, and the search for the offset between two clocks and their drift. */
#include "data/offset_search.h"

#include "base/util.h"

/* The search begins with the differences of so many frames. */
#define SEARCH_FIRST_FRAMES 12u
/* The drift is that of about this time, or of so many matches if they take longer. */
#define MEMORY_NS 3e9
#define MEMORY_MATCHES 16.0
#define TOLERANCE_MAX_NS 1e9
/* While there is no match, the drift of a clock may change by so much per ns, and by so much in total. */
#define WANDER_PER_NS 2e-18
#define WANDER_MAX 2e-6
/* Without doubt, a drift that was measured before a pause has changed by less. */
#define WANDER_SURE 1e-5
/* So many frames may match a wrong offset by chance. */
#define CHANCE_MATCHES 3u
/* The delays of triggers and of frames on their way here are known to this. */
#define DELAY_ERROR_NS 5e5
/* Parts of the period of a board's counter: a frame may be delayed by so much more or less than others; and
 * by so much, the clock of this machine may drift from a trigger that shows the time. */
#define DELAY_PART (1.0 / 4)
#define REACH_PART (1.0 / 16)
/* If the time is not known to this, that of a clock that was set is near a trigger by chance. */
#define CHANCE_PART (1.0 / 256)

uint32_t known_triggers_before(const struct known_triggers *t, uint32_t from, uint64_t time_ns)
{
        uint32_t low = from, high = t->n;

        while (low < high) {
                uint32_t middle = low + (high - low) / 2;

                if (time_difference(known_trigger_at(t, middle)->time_ns, time_ns) < 0)
                        low = middle + 1;
                else
                        high = middle;
        }
        return low;
}

uint32_t known_triggers_nearest(const struct known_triggers *t, uint32_t from, uint64_t time_ns)
{
        uint32_t k = known_triggers_before(t, from, time_ns);

        if (k == t->n || (k > from && time_difference(time_ns, known_trigger_at(t, k - 1)->time_ns) <=
                                              time_difference(known_trigger_at(t, k)->time_ns, time_ns)))
                k--;
        return k;
}

const struct known_trigger *known_triggers_find(const struct known_triggers *t, uint64_t number,
                                                uint64_t time_ns)
{
        uint32_t k = known_triggers_before(t, 0, time_ns);

        /* If the clock of the box stands still, many triggers have the same time. */
        for (uint32_t end = MIN(t->n, k + OVERTAKEN_MAX); k < end; k++) {
                const struct known_trigger *found = known_trigger_at(t, k);

                if (found->time_ns != time_ns)
                        return NULL;
                if (found->number == number)
                        return found;
        }
        return NULL;
}

uint32_t known_triggers_until(const struct known_triggers *t, uint64_t arrived_ns)
{
        uint32_t k = t->n;

        while (k > 0 && known_trigger_at(t, k - 1)->arrived_ns >= arrived_ns)
                k--;
        return k;
}

bool known_triggers_are_ambiguous(const struct known_triggers *t, uint32_t k, uint64_t time_ns,
                                  double tolerance_ns)
{
        return (k > 0 && time_is_near(known_trigger_at(t, k - 1)->time_ns, time_ns, tolerance_ns)) ||
               (k + 1 < t->n && time_is_near(known_trigger_at(t, k + 1)->time_ns, time_ns, tolerance_ns));
}

uint32_t known_triggers_within(const struct known_triggers *t, uint64_t time_ns, double tolerance_ns)
{
        uint32_t from = known_triggers_before(t, 0, time_ns - (uint64_t)tolerance_ns);

        return known_triggers_before(t, from, time_ns + (uint64_t)tolerance_ns + 1) - from;
}

bool known_triggers_are_counted(const struct known_triggers *t)
{
        for (uint32_t k = 1; k < t->n; k++)
                if (known_trigger_at(t, k)->number != known_trigger_at(t, k - 1)->number + 1)
                        return false;
        return t->n > 1;
}

void offset_search_add(struct offset_search *s, uint64_t time_ns, uint64_t arrived_ns)
{
        uint32_t i = s->n++;

        for (; i > 0 && time_difference(s->times_ns[i - 1], time_ns) > 0; i--) {
                s->times_ns[i] = s->times_ns[i - 1];
                s->arrived_ns[i] = s->arrived_ns[i - 1];
        }
        s->times_ns[i] = time_ns;
        s->arrived_ns[i] = arrived_ns;
}

void known_triggers_drop_first(struct known_triggers *t)
{
        t->first = (t->first + 1) % TRIGGERS_MAX;
        t->n--;
}

bool known_triggers_add(struct known_triggers *t, const struct known_trigger *trigger, int64_t step_ns)
{
        uint32_t k = t->n;
        bool was_set;

        while (k > 0 && t->n - k <= OVERTAKEN_MAX &&
               time_difference(known_trigger_at(t, k - 1)->time_ns, trigger->time_ns) > 0)
                k--;
        was_set = t->n - k > OVERTAKEN_MAX ||
                  (t->n > 0 &&
                   time_difference(known_trigger_at(t, t->n - 1)->time_ns, trigger->time_ns) > step_ns);
        if (was_set)
                k = t->n = 0;
        if (t->n == TRIGGERS_MAX) {
                known_triggers_drop_first(t);
                if (k-- == 0)
                        return true;
        }
        for (uint32_t i = t->n++; i > k; i--)
                *known_trigger_at(t, i) = *known_trigger_at(t, i - 1);
        *known_trigger_at(t, k) = *trigger;
        return !was_set;
}

/* By how much the offset grows between these times. */
static uint64_t gained_ns(const struct offset_search *s, uint64_t time_ns, uint64_t since_ns)
{
        return (uint64_t)llround(s->drift * (double)time_difference(time_ns, since_ns));
}

static double search_tolerance_ns(const struct offset_search *s, uint64_t time_ns, uint64_t of_ns)
{
        return (double)s->window_ns +
               (s->drift_error ?: DRIFT_UNKNOWN) * fabs((double)time_difference(time_ns, of_ns));
}

struct agreement offset_agreement(const struct offset_search *s, uint64_t offset_ns, uint64_t at_ns,
                                  uint32_t most)
{
        uint64_t first_ns = known_trigger_at(s->triggers, s->from)->time_ns,
                 last_ns = known_trigger_at(s->triggers, s->triggers->n - 1)->time_ns;
        uint32_t frames = 0, matches = 0, next = s->from, first = s->triggers->n, end = s->from;
        uint64_t which = 0;

        for (uint32_t i = 0; i < s->n && matches + (s->n - i) > most; i++) {
                double tolerance_ns = search_tolerance_ns(s, s->times_ns[i], at_ns);
                uint64_t time_ns = s->times_ns[i] - offset_ns - gained_ns(s, s->times_ns[i], at_ns);
                uint32_t k;

                if ((double)time_difference(first_ns, time_ns) > tolerance_ns ||
                    (double)time_difference(time_ns, last_ns) > tolerance_ns)
                        continue;
                frames++;
                k = known_triggers_nearest(s->triggers, s->from, time_ns);
                first = MIN(first, k);
                end = MAX(end, k + 1);
                if (k < next ||
                    !time_is_near(known_trigger_at(s->triggers, k)->time_ns, time_ns, tolerance_ns))
                        continue;
                matches++;
                which |= UINT64_C(1) << i;
                next = k + 1;
        }
        return (struct agreement){matches, first < end ? MIN(frames, end - first) : 0, which};
}

bool offset_mostly_agrees(struct agreement a)
{
        return a.matches > 0 && 4 * a.matches >= 3 * a.possible;
}

/* The triggers of which this frame may be, from `from` on; returns the end. */
static uint32_t triggers_of(const struct offset_search *s, uint64_t board_ns, uint32_t *ret_from)
{
        double tolerance_ns;
        uint64_t time_ns;

        *ret_from = s->from;
        if (!s->fit)
                return s->triggers->n;
        time_ns = board_fit_time(s->fit, s->window_ns, board_ns, &tolerance_ns);
        *ret_from = known_triggers_before(s->triggers, s->from, time_ns - (uint64_t)tolerance_ns);
        return known_triggers_before(s->triggers, *ret_from, time_ns + (uint64_t)tolerance_ns + 1);
}

struct choice {
        uint64_t offset_ns, at_ns;
        struct agreement best, other;
};

static bool is_likely(const struct offset_search *s, struct agreement a)
{
        if (s->fit)
                return a.matches > 0 && 2 * a.matches >= a.possible;
        return a.matches >= SURE_MATCHES && offset_mostly_agrees(a);
}

static bool choose(const struct offset_search *s, struct choice *c)
{
        *c = (struct choice){};
        for (int round = 0; round < 2; round++) {
                for (uint32_t i = 0; i < MIN(s->n, SEARCH_FIRST_FRAMES); i++) {
                        uint32_t k, end = triggers_of(s, s->times_ns[i], &k);

                        for (; k < end; k++) {
                                uint64_t offset_ns =
                                        s->times_ns[i] - known_trigger_at(s->triggers, k)->time_ns;
                                struct agreement a =
                                        offset_agreement(s, offset_ns, s->times_ns[i],
                                                         round == 0 ? c->best.matches : c->other.matches);

                                if (round == 0 && a.matches > c->best.matches) {
                                        c->best = a;
                                        c->offset_ns = offset_ns;
                                        c->at_ns = s->times_ns[i];
                                } else if (round == 1 && a.matches > c->other.matches &&
                                           !time_is_near(
                                                   offset_ns - gained_ns(s, s->times_ns[i], c->at_ns),
                                                   c->offset_ns,
                                                   2 * search_tolerance_ns(s, s->times_ns[i], c->at_ns)))
                                        c->other = a;
                        }
                }
                if (!is_likely(s, c->best))
                        return false;
        }
        return 2 * c->other.matches <= c->best.matches;
}

bool offset_find(const struct offset_search *s, uint64_t *ret_offset_ns, uint64_t *ret_at_ns)
{
        struct choice c;
        bool found = choose(s, &c);

        *ret_offset_ns = c.offset_ns;
        *ret_at_ns = c.at_ns;
        return found;
}

bool offset_continues(const struct offset_search *s, double period_ns, uint64_t *ret_offset_ns,
                      uint64_t *ret_at_ns, int32_t *ret_ahead)
{
        double tolerance_ns;

        for (uint32_t i = 0; i < s->n && s->fit->matches > 0; i++) {
                uint64_t time_ns = board_fit_time(s->fit, s->window_ns, s->times_ns[i], &tolerance_ns);
                uint32_t k = known_triggers_nearest(s->triggers, s->from, time_ns);
                uint64_t trigger_ns = known_trigger_at(s->triggers, k)->time_ns;

                if (!time_is_near(trigger_ns, time_ns, tolerance_ns) ||
                    known_triggers_are_ambiguous(s->triggers, k, time_ns, tolerance_ns) ||
                    2 * DRIFT_MAX * fabs((double)time_difference(time_ns, s->fit->time_ns)) > period_ns)
                        continue;
                *ret_offset_ns = s->times_ns[i] - trigger_ns;
                *ret_at_ns = s->times_ns[i];
                *ret_ahead = (int32_t)(i - k);
                return 2 * offset_agreement(s, *ret_offset_ns, *ret_at_ns, 0).matches > s->n;
        }
        return false;
}

bool offset_has_rival(const struct offset_search *s, uint64_t offset_ns, uint64_t at_ns)
{
        for (uint32_t i = 0; i < MIN(s->n, SEARCH_FIRST_FRAMES); i++) {
                uint64_t other_ns = s->times_ns[i] - (at_ns - offset_ns);
                struct offset_search near = *s;
                struct agreement a, b;

                /* Later frames may fit both offsets, as the drift is not known. */
                while (near.n > 0 && time_is_near(other_ns - gained_ns(s, s->times_ns[i], at_ns), offset_ns,
                                                  2 * search_tolerance_ns(s, s->times_ns[near.n - 1], at_ns)))
                        near.n--;
                a = offset_agreement(&near, offset_ns, at_ns, 0);
                b = offset_agreement(&near, other_ns, s->times_ns[i], CHANCE_MATCHES);
                /* If an offset is wrong by a period of the triggers, most frames fit it, too. */
                if (b.matches > CHANCE_MATCHES && 8 * b.matches >= 7 * a.matches &&
                    2 * (uint32_t)__builtin_popcountll(a.frames & b.frames) < b.matches)
                        return true;
        }
        return false;
}

/* By how much less the fastest frame is delayed than the fastest trigger: others may have waited. */
static double lead_ns(const struct offset_search *s, uint64_t offset_ns, uint64_t at_ns)
{
        const struct known_trigger *first = known_trigger_at(s->triggers, s->from);
        int64_t trigger_ns = 0, frame_ns = 0;

        for (uint32_t k = s->from; k < s->triggers->n; k++) {
                const struct known_trigger *t = known_trigger_at(s->triggers, k);

                trigger_ns = MIN(trigger_ns, time_difference(t->arrived_ns - first->arrived_ns,
                                                             t->time_ns - first->time_ns));
        }
        for (uint32_t i = 0; i < s->n; i++) {
                uint64_t time_ns = s->times_ns[i] - offset_ns;
                uint32_t k = known_triggers_nearest(s->triggers, s->from, time_ns);

                if (time_is_near(known_trigger_at(s->triggers, k)->time_ns, time_ns,
                                 search_tolerance_ns(s, s->times_ns[i], at_ns)))
                        frame_ns = MIN(frame_ns, time_difference(s->arrived_ns[i] - first->arrived_ns,
                                                                 time_ns - first->time_ns));
        }
        return (double)trigger_ns - (double)frame_ns;
}

bool offset_is_early(const struct offset_search *s, const struct offset_search *spread, struct agreement a,
                     uint64_t offset_ns, uint64_t at_ns)
{
        double span_ns = (double)time_difference(spread->times_ns[spread->n - 1], spread->times_ns[0]);
        /* The clocks of the board and of the box differ from that of this machine. */
        double error_ns = DELAY_ERROR_NS + 2 * DRIFT_UNKNOWN * span_ns;
        double lead = lead_ns(spread, offset_ns, at_ns);

        for (uint32_t i = 0; i < s->n; i++) {
                double by_ns = (double)time_difference(s->times_ns[i], at_ns);
                struct agreement other;

                if (by_ns < error_ns || by_ns + error_ns > 2 * lead)
                        continue;
                other = offset_agreement(s, s->times_ns[i] - (at_ns - offset_ns), s->times_ns[i], 0);
                if (offset_mostly_agrees(other) && 2 * other.matches >= a.matches)
                        return true;
        }
        return false;
}

/* Whether the first frame is that of the first trigger after the pause both by its place and by its time. */
static bool begins_together(const struct offset_search *s, uint32_t from, bool is_last)
{
        uint64_t board_ns = s->times_ns[0], trigger_ns = known_trigger_at(s->triggers, from)->time_ns;
        double tolerance_ns;
        uint64_t time_ns = board_fit_time(s->fit, s->window_ns, board_ns, &tolerance_ns);
        struct agreement a = offset_agreement(s, board_ns - trigger_ns, board_ns, 0);

        /* If only the board paused, no trigger is the first one. */
        if (from > s->from &&
            2 * time_difference(trigger_ns, known_trigger_at(s->triggers, from - 1)->time_ns) <
                    time_difference(trigger_ns, s->fit->time_ns))
                return false;
        /* As far as to the place of a trigger that might have come before, if they are periodic. */
        if (from + 1 < s->triggers->n)
                tolerance_ns = (double)time_difference(known_trigger_at(s->triggers, from + 1)->time_ns,
                                                       trigger_ns) /
                               2;
        if (!time_is_near(trigger_ns, time_ns, tolerance_ns) || !offset_mostly_agrees(a))
                return false;
        return a.matches >= SURE_MATCHES ? !offset_has_rival(s, board_ns - trigger_ns, board_ns)
                                         : is_last && a.matches == s->n;
}

enum resumption offset_resume(const struct offset_search *s, bool is_last, bool is_complete,
                              uint64_t *ret_trigger_ns, uint64_t *ret_board_ns)
{
        uint32_t from, end = triggers_of(s, s->times_ns[0], &from);
        struct choice c;

        if (from == end)
                return RESUMPTION_NO_TRIGGER;
        if (end - from > SEARCH_TRIGGERS)
                return RESUMPTION_FAILED;
        if (choose(s, &c) && (is_last || c.best.matches >= SURE_MATCHES)) {
                *ret_trigger_ns = c.at_ns - c.offset_ns;
                *ret_board_ns = c.at_ns;
                return RESUMPTION_FOUND;
        }
        if (is_complete && begins_together(s, from, is_last)) {
                *ret_trigger_ns = known_trigger_at(s->triggers, from)->time_ns;
                *ret_board_ns = s->times_ns[0];
                return RESUMPTION_FOUND;
        }
        if (is_last || (c.best.possible >= SURE_MATCHES && !is_likely(s, c.best)))
                return RESUMPTION_FAILED;
        return RESUMPTION_OPEN;
}

void offset_search_follow(struct offset_search *s, const struct board_fit *f)
{
        s->fit = f;
        s->drift = f->drift;
        s->drift_error = fmin(f->uncertainty + WANDER_SURE, DRIFT_UNKNOWN);
}

static double wander_ns(double pause_ns)
{
        return fmin(WANDER_PER_NS * fabs(pause_ns), WANDER_MAX) * fabs(pause_ns);
}

static uint64_t time_of(const struct board_fit *f, uint64_t window_ns, uint64_t board_ns,
                        double *ret_error_ns)
{
        uint64_t time_ns = board_ns - f->offset_ns;
        double since_ns = (double)time_difference(time_ns, f->time_ns);

        *ret_error_ns = (double)window_ns + f->uncertainty * fabs(since_ns) + wander_ns(since_ns);
        /* The drift is that per time of the triggers, and `since_ns` is of the board. */
        return time_ns - (uint64_t)llround((f->ahead_ns + f->drift * since_ns) / (1 + f->drift));
}

uint64_t board_fit_time(const struct board_fit *f, uint64_t window_ns, uint64_t board_ns,
                        double *ret_tolerance_ns)
{
        uint64_t time_ns = time_of(f, window_ns, board_ns, ret_tolerance_ns);

        *ret_tolerance_ns = fmin(*ret_tolerance_ns, TOLERANCE_MAX_NS);
        return time_ns;
}

/* How long a trigger takes to come here, plus a constant; triggers may be read late. False: none came near
 * this time. */
static bool least_delay_ns(const struct known_triggers *t, uint64_t came_ns, double reach_ns, uint64_t *ret)
{
        bool found = false;

        for (uint32_t k = t->n; k > 0; k--) {
                const struct known_trigger *g = known_trigger_at(t, k - 1);
                uint64_t delay_ns = g->arrived_ns - g->time_ns;

                if (!time_is_near(g->arrived_ns, came_ns, reach_ns)) {
                        if (time_difference(g->arrived_ns, came_ns) < 0)
                                break;
                } else if (!found || time_difference(delay_ns, *ret) < 0) {
                        found = true;
                        *ret = delay_ns;
                }
        }
        return found;
}

enum resumption board_fit_periods(const struct board_fit *f, uint64_t window_ns,
                                  const struct known_triggers *t, const struct board_count *c,
                                  uint64_t tick_ns, unsigned bits, bool was_reset, int64_t *ret_periods)
{
        double error_ns, ahead_ns, period_ns = ldexp((double)tick_ns, (int)bits);
        uint64_t time_ns = time_of(f, window_ns, c->anchor * tick_ns, &error_ns), delay_ns = 0;

        if (!least_delay_ns(t, c->anchor_ns, REACH_PART * period_ns / DRIFT_MAX, &delay_ns))
                return RESUMPTION_NO_TRIGGER;
        if (was_reset && error_ns > CHANCE_PART * period_ns)
                return RESUMPTION_FAILED;
        ahead_ns = (double)time_difference(c->anchor_ns - c->lag_ns - delay_ns, time_ns);
        *ret_periods = llround(ahead_ns / period_ns);
        ahead_ns = fabs(ahead_ns - (double)*ret_periods * period_ns);
        error_ns += DELAY_PART * period_ns;
        /* No other number of periods is possible. */
        return ahead_ns <= error_ns && ahead_ns + error_ns < period_ns ? RESUMPTION_FOUND : RESUMPTION_FAILED;
}

bool board_fit_find(const struct board_fit *f, uint64_t window_ns, const struct known_triggers *t, unsigned n,
                    uint64_t period_ns, uint64_t *board_ns)
{
        uint64_t at_ns = *board_ns;
        unsigned fits = 0;

        for (; n > 0 && t->n > 0; n--, at_ns += period_ns) {
                double tolerance_ns;
                uint64_t time_ns = board_fit_time(f, window_ns, at_ns, &tolerance_ns);
                const struct known_trigger *g = known_trigger_at(t, known_triggers_nearest(t, 0, time_ns));

                if (g->used || !time_is_near(g->time_ns, time_ns, tolerance_ns))
                        continue;
                fits++;
                *board_ns = at_ns;
        }
        return fits == 1;
}

/* Moves the origin of the sums to a later time, and forgets older matches. */
static void age_fit(struct board_fit *f, uint64_t window_ns, uint64_t time_ns)
{
        double by_ns = (double)time_difference(time_ns, f->time_ns);
        double keep = fmax(1 / (1 + fabs(by_ns) / MEMORY_NS), 1 - 1 / MEMORY_MATCHES);
        double wander = wander_ns(by_ns) / (double)window_ns;

        /* The older matches together are wrong by what the clock may have wandered since. */
        keep = fmin(keep, 1 / (1 + f->s * wander * wander));

        f->stt += by_ns * (by_ns * f->s - 2 * f->st);
        f->ste -= by_ns * f->se;
        f->st -= by_ns * f->s;
        f->s *= keep;
        f->st *= keep;
        f->stt *= keep;
        f->se *= keep;
        f->ste *= keep;
        f->time_ns = time_ns;
}

void board_fit_add(struct board_fit *f, uint64_t window_ns, uint64_t time_ns, uint64_t board_ns)
{
        /* As if the drift had been measured as 0, with an error of DRIFT_UNKNOWN. */
        double unknown_ns = (double)window_ns / DRIFT_UNKNOWN;
        double ahead_ns, spread;

        if (f->matches == 0)
                *f = (struct board_fit){.time_ns = time_ns, .offset_ns = board_ns - time_ns};
        age_fit(f, window_ns, time_ns);
        ahead_ns = (double)time_difference(board_ns - time_ns, f->offset_ns);
        f->s += 1;
        f->se += ahead_ns;
        spread = fmax(f->s * f->stt - f->st * f->st, 0);
        f->drift = (f->s * f->ste - f->st * f->se) / (spread + f->s * unknown_ns * unknown_ns);
        f->drift = fmax(fmin(f->drift, DRIFT_MAX), -DRIFT_MAX);
        f->uncertainty = (double)window_ns / sqrt(spread / (f->s * f->s) + unknown_ns * unknown_ns);
        f->ahead_ns = (f->se - f->drift * f->st) / f->s;
        f->matches++;
        /* Keeps the sums small. */
        double by_ns = round(f->ahead_ns);

        f->offset_ns += (uint64_t)(int64_t)by_ns;
        f->ahead_ns -= by_ns;
        f->se -= by_ns * f->s;
        f->ste -= by_ns * f->st;
}
