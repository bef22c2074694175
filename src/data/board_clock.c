/* Compares the clock of a board with this machine's, by the times in its frames and the times at which they
 * arrive. The network and a busy machine only delay frames, so of each second (later: of 16) the frame counts
 * whose time is furthest ahead; the drift is the slope between the least delayed ones at both ends of the
 * last minute (later: 17). */
#include "data/slicer.h"

#include <math.h>
#include <stdlib.h>

#include "base/util.h"

#define INTERVAL_MIN_NS NS_PER_S
#define INTERVAL_MAX_NS (16 * NS_PER_S)
/* Over a shorter time, different delays would look like drift. */
#define SPAN_MIN_NS (30 * NS_PER_S)
/* If the clock moves by more between two points, it was set, or frames were held up. */
#define STEP_NS (NS_PER_S / 2)
#define DRIFT_MAX_DIVISOR 100
/* The least delayed frames depend on the drift, and the drift on them. */
#define ROUNDS 3

static const struct board_clock_point *point_at(const struct board_clock *c, uint32_t i)
{
        return &c->points[(c->first + i) % BOARD_CLOCK_POINTS];
}

/* How much the board's clock gained between two points. The times of damaged frames may be anything. */
static int64_t gain_ns(const struct board_clock_point *from, const struct board_clock_point *to)
{
        return (int64_t)((uint64_t)to->ahead_ns - (uint64_t)from->ahead_ns);
}

static double expected_ns(const struct board_clock *c, const struct board_clock_point *from, uint64_t now_ns)
{
        return c->drift * ((double)now_ns - (double)from->now_ns);
}

/* How much more the first frame was delayed than the second one. */
static double delay_ns(const struct board_clock *c, const struct board_clock_point *of,
                       const struct board_clock_point *than)
{
        return (double)gain_ns(of, than) - expected_ns(c, of, than->now_ns);
}

/* Returns the least delayed of `n` points from number `from` on. */
static struct board_clock_point least_delayed(const struct board_clock *c, uint32_t from, uint32_t n)
{
        const struct board_clock_point *best = point_at(c, from);

        for (uint32_t i = from + 1; i < from + n; i++) {
                if (delay_ns(c, point_at(c, i), best) < 0)
                        best = point_at(c, i);
        }
        return *best;
}

static int compare(const void *a, const void *b)
{
        double x = *(const double *)a, y = *(const double *)b;

        return (x > y) - (x < y);
}

/* How much more than the least delayed point a quarter of the others was delayed at most: the least delayed
 * one itself was hardly delayed more than that. */
static double spread_ns(const struct board_clock *c, uint32_t from, uint32_t n,
                        const struct board_clock_point *least)
{
        double delays_ns[BOARD_CLOCK_POINTS] = {};

        for (uint32_t i = 0; i < n; i++)
                delays_ns[i] = delay_ns(c, point_at(c, from + i), least);
        qsort(delays_ns, n, sizeof *delays_ns, compare);
        return delays_ns[1 + n / 4];
}

static void measure(struct board_clock *c)
{
        uint32_t third = c->n / 3;

        c->known = third > 1 && point_at(c, c->n - 1)->now_ns - point_at(c, 0)->now_ns >= SPAN_MIN_NS;
        c->drift = 0;
        for (int round = 0; c->known && round < ROUNDS; round++) {
                struct board_clock_point begin = least_delayed(c, 0, third);
                double span_ns;

                c->at = least_delayed(c, c->n - third, third);
                span_ns = (double)(c->at.now_ns - begin.now_ns);
                c->drift = (double)gain_ns(&begin, &c->at) / span_ns;
                c->error = (spread_ns(c, 0, third, &begin) + spread_ns(c, c->n - third, third, &c->at)) /
                           span_ns;
        }
}

/* Makes room for a point: of each pair, the less delayed one stays, or the oldest point goes. */
static void make_room(struct board_clock *c)
{
        if (c->interval_ns >= INTERVAL_MAX_NS) {
                c->first = (c->first + 1) % BOARD_CLOCK_POINTS;
                c->n--;
                return;
        }
        c->interval_ns *= 2;
        c->n /= 2;
        for (uint32_t i = 0; i < c->n; i++) {
                const struct board_clock_point *pair = &c->points[2 * i];

                c->points[i] = pair[delay_ns(c, &pair[0], &pair[1]) > 0];
        }
}

static void add_point(struct board_clock *c, const struct board_clock_point *p)
{
        const struct board_clock_point *last = c->n > 0 ? point_at(c, c->n - 1) : p;
        int64_t gain = gain_ns(last, p);
        uint64_t size = gain < 0 ? -(uint64_t)gain : (uint64_t)gain;

        if (size > STEP_NS + (p->now_ns - last->now_ns) / DRIFT_MAX_DIVISOR)
                c->first = c->n = 0;
        if (c->n == 0)
                c->interval_ns = INTERVAL_MIN_NS;
        if (c->n == BOARD_CLOCK_POINTS)
                make_room(c);
        c->points[(c->first + c->n++) % BOARD_CLOCK_POINTS] = *p;
        measure(c);
}

bool board_clock_record(struct board_clock *c, uint64_t now_ns, uint64_t time_ns)
{
        struct board_clock_point p = {now_ns, (int64_t)(time_ns - now_ns)}, sure = p;
        bool is_due = c->has_best && now_ns - c->begin_ns >= MAX(c->interval_ns, INTERVAL_MIN_NS);

        /* A single damaged time that is ahead does not count, as the frames around it are not. */
        if (gain_ns(&c->previous, &p) > 0)
                sure = c->previous;
        if (is_due)
                add_point(c, &c->best);
        if (c->has_previous && (!c->has_best || is_due || gain_ns(&c->best, &sure) > 0)) {
                c->begin_ns = c->has_best && !is_due ? c->begin_ns : now_ns;
                c->best = sure;
                c->has_best = true;
        }
        c->previous = p;
        c->has_previous = true;
        return is_due;
}

int64_t board_clock_ahead_ns(const struct board_clock *c, uint64_t now_ns)
{
        return (int64_t)((uint64_t)c->at.ahead_ns + (uint64_t)(int64_t)expected_ns(c, &c->at, now_ns));
}

void board_clock_account(const struct board_clock *c, uint64_t now_ns, uint64_t utc_ns,
                         struct node_stats *stats)
{
        if (c->known) {
                stats_set(&stats->board_ahead_ns,
                          (uint64_t)board_clock_ahead_ns(c, now_ns) - (utc_ns - now_ns));
                stats_set(&stats->board_drift_ppb, (uint64_t)llround(c->drift * 1e9));
                stats_set(&stats->board_drift_error_ppb, (uint64_t)llround(c->error * 1e9));
        }
        stats_set(&stats->board_clock_known, c->known);
}
