/* The triggers by their times, and the search for the offset between two clocks and their drift. */
#include "data/offset_search.h"

#include "base/util.h"

/* The search begins with the differences of so many frames. */
#define SEARCH_FIRST_FRAMES 12u
/* The drift is that of about this time, or of so many matches if they take longer. */
#define MEMORY_NS 3e9
#define MEMORY_MATCHES 16.0
#define TOLERANCE_MAX_NS 1e9

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

void offset_search_add(struct offset_search *s, uint64_t time_ns)
{
        uint32_t i = s->n++;

        for (; i > 0 && time_difference(s->times_ns[i - 1], time_ns) > 0; i--)
                s->times_ns[i] = s->times_ns[i - 1];
        s->times_ns[i] = time_ns;
}

static double search_tolerance_ns(const struct offset_search *s, uint64_t time_ns, uint64_t of_ns)
{
        return (double)s->window_ns + DRIFT_UNKNOWN * fabs((double)time_difference(time_ns, of_ns));
}

struct agreement offset_agreement(const struct offset_search *s, uint64_t offset_ns, uint64_t at_ns,
                                  uint32_t most)
{
        uint64_t first_ns = known_trigger_at(s->triggers, s->from)->time_ns,
                 last_ns = known_trigger_at(s->triggers, s->triggers->n - 1)->time_ns;
        uint32_t frames = 0, matches = 0, next = s->from, first = s->triggers->n, end = s->from;

        for (uint32_t i = 0; i < s->n && matches + (s->n - i) > most; i++) {
                double tolerance_ns = search_tolerance_ns(s, s->times_ns[i], at_ns);
                uint64_t time_ns = s->times_ns[i] - offset_ns;
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
                next = k + 1;
        }
        return (struct agreement){matches, first < end ? MIN(frames, end - first) : 0};
}

bool offset_mostly_agrees(struct agreement a)
{
        return a.matches > 0 && 4 * a.matches >= 3 * a.possible;
}

bool offset_find(const struct offset_search *s, uint64_t *ret_offset_ns, uint64_t *ret_at_ns)
{
        struct agreement best = {}, other = {};

        for (int round = 0; round < 2; round++) {
                for (uint32_t i = 0; i < MIN(s->n, SEARCH_FIRST_FRAMES); i++) {
                        for (uint32_t k = s->from; k < s->triggers->n; k++) {
                                uint64_t offset_ns =
                                        s->times_ns[i] - known_trigger_at(s->triggers, k)->time_ns;
                                struct agreement a =
                                        offset_agreement(s, offset_ns, s->times_ns[i],
                                                         round == 0 ? best.matches : other.matches);

                                if (round == 0 && a.matches > best.matches) {
                                        best = a;
                                        *ret_offset_ns = offset_ns;
                                        *ret_at_ns = s->times_ns[i];
                                } else if (round == 1 && a.matches > other.matches &&
                                           !time_is_near(
                                                   offset_ns, *ret_offset_ns,
                                                   2 * search_tolerance_ns(s, s->times_ns[i], *ret_at_ns)))
                                        other = a;
                        }
                }
                if (best.matches < SURE_MATCHES || !offset_mostly_agrees(best))
                        return false;
        }
        return 2 * other.matches <= best.matches;
}

uint64_t board_fit_time(const struct board_fit *f, uint64_t window_ns, uint64_t board_ns,
                        double *ret_tolerance_ns)
{
        uint64_t time_ns = board_ns - f->offset_ns;
        double since_ns = (double)time_difference(time_ns, f->time_ns);

        *ret_tolerance_ns = fmin((double)window_ns + f->uncertainty * fabs(since_ns), TOLERANCE_MAX_NS);
        /* The drift is that per time of the triggers, and `since_ns` is of the board. */
        return time_ns - (uint64_t)llround((f->ahead_ns + f->drift * since_ns) / (1 + f->drift));
}

/* Moves the origin of the sums to a later time, and forgets older matches. */
static void age_fit(struct board_fit *f, uint64_t time_ns)
{
        double by_ns = (double)time_difference(time_ns, f->time_ns);
        double keep = fmax(1 / (1 + fabs(by_ns) / MEMORY_NS), 1 - 1 / MEMORY_MATCHES);

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
        age_fit(f, time_ns);
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
