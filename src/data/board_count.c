/* Extends the counts of a board's clock that starts over, by the clock of this machine or by later frames. */
#include "data/board_count.h"

#include <math.h>

#include "base/util.h"
#include "protocol/number.h"

/* Parts of the period. A frame is read in time if it came within an eighth. Boards and networks may delay it
 * by a quarter more or less than the frame before. */
#define HELD_PART 8
#define LOOKS 16
/* More often, looking would cost more than the frames do. */
#define LOOK_MIN_NS 250e3
#define APART_PART (3.0 / 8)
#define EARLY_PART (1.0 / 4)
/* The clocks of a board and of this machine differ by at most this fraction. */
#define DRIFT_MAX 1e-3
/* With a shorter period, sockets cannot be found empty often enough. */
#define PERIOD_MIN_NS 16e6
/* If so many frames in a row do not fit the anchor, the clock of the board was set. */
#define APART_MAX 16u

static double period_ns_of(uint64_t tick_ns, unsigned bits)
{
        return ldexp((double)tick_ns, (int)bits);
}

static uint64_t periods(unsigned bits, unsigned eighths)
{
        return bits < 64 ? ((UINT64_C(1) << bits) >> 3) * eighths : 0;
}

/* The smallest delay may change by what the clocks drift. Returns false if the delay of this frame is too
 * small to be plausible, so its count or earlier ones are wrong. */
static bool follow_delay(struct board_count *c, uint64_t delay_ns, uint64_t at_ns, double period_ns)
{
        double by_ns = (double)(int64_t)(delay_ns - c->least_ns);
        double drift_ns = DRIFT_MAX * (double)(at_ns - c->least_at_ns);

        if (by_ns < -EARLY_PART * period_ns - drift_ns)
                return false;
        c->least_ns += (uint64_t)(int64_t)fmax(fmin(by_ns, drift_ns), -drift_ns);
        c->least_at_ns = at_ns;
        return true;
}

static void set_anchor(struct board_count *c, uint64_t count, uint64_t at_ns)
{
        c->has_anchor = true;
        c->last = c->anchor = count;
        c->anchor_ns = at_ns;
        c->n_apart = 0;
}

static void begin(struct board_count *c, uint64_t count, uint64_t at_ns, uint64_t tick_ns)
{
        set_anchor(c, count, at_ns);
        c->least_ns = at_ns - count * tick_ns;
        c->least_at_ns = at_ns;
}

struct counted board_count_extend(struct board_count *c, uint64_t tick_ns, unsigned bits, uint64_t counter,
                                  uint64_t from_ns, uint64_t until_ns)
{
        double period_ns = period_ns_of(tick_ns, bits);
        uint64_t held_ns = until_ns - from_ns, at_ns = from_ns + held_ns / 2, near, follows;
        struct counted r = {.state = COUNT_SURE, .earlier = COUNT_UNKNOWN};

        /* The count may be a little smaller than the last one, as datagrams overtake each other. */
        if (c->has_last)
                follows = number_extend(counter, bits, c->last + periods(bits, 3));
        else
                follows = bits < 63 ? counter + (UINT64_C(1) << bits) : counter;
        r.count = c->last = follows;
        c->has_last = true;
        if (bits >= 64)
                return r;
        if ((double)held_ns > period_ns / HELD_PART) {
                r.state = COUNT_OPEN;
                return r;
        }
        if (!c->has_anchor) {
                begin(c, follows, at_ns, tick_ns);
                return r;
        }
        near = c->anchor + (uint64_t)((int64_t)(at_ns - c->anchor_ns) / (int64_t)tick_ns);
        r.count = number_extend(counter, bits, near);
        /* The clocks may have drifted apart by half a period, so earlier frames prove nothing. */
        if (2 * DRIFT_MAX * (double)(at_ns - c->anchor_ns) > period_ns) {
                begin(c, r.count, at_ns, tick_ns);
                r.drifted = true;
                return r;
        }
        if (fabs((double)(int64_t)(r.count - near)) * (double)tick_ns > APART_PART * period_ns &&
            ++c->n_apart < APART_MAX) {
                r.count = follows;
                r.state = COUNT_OPEN;
                return r;
        }
        r.begins_anew = c->n_apart == APART_MAX;
        r.was_wrong = !r.begins_anew && !follow_delay(c, at_ns - r.count * tick_ns, at_ns, period_ns);
        r.begins_anew |= r.was_wrong;
        if (r.begins_anew) {
                begin(c, r.count, at_ns, tick_ns);
                return r;
        }
        r.earlier = r.count == follows ? COUNT_SURE : COUNT_UNKNOWN;
        set_anchor(c, r.count, at_ns);
        return r;
}

void board_count_follow_lag(struct board_count *c, uint64_t board_ns, uint64_t arrived_ns)
{
        /* A trigger that was read late does not show the lag. */
        uint64_t lag_ns = c->least_ns + board_ns - arrived_ns, by_ns = board_ns - c->lag_at_ns;

        c->lag_ns -= MIN(by_ns, NS_PER_S) / 1024;
        if (c->lag_at_ns == 0 || (int64_t)(lag_ns - c->lag_ns) > 0)
                c->lag_ns = lag_ns;
        c->lag_at_ns = board_ns;
}

uint64_t board_count_shift(struct board_count *c, uint64_t tick_ns, unsigned bits, int64_t by)
{
        uint64_t counts = (uint64_t)by << bits % 64;

        c->anchor += counts;
        c->last += counts;
        c->least_ns -= counts * tick_ns;
        return counts * tick_ns;
}

unsigned board_count_possible(const struct board_count *c, uint64_t tick_ns, unsigned bits, uint64_t counter,
                              uint64_t from_ns, uint64_t until_ns, unsigned max, uint64_t *ret_first)
{
        double period_ns = period_ns_of(tick_ns, bits);
        double n = (double)(until_ns - from_ns) / period_ns + APART_PART + APART_PART;
        uint64_t low, high;

        if (!c->has_anchor || bits >= 63 || n >= max || period_ns < PERIOD_MIN_NS)
                return 0;
        low = c->anchor + (uint64_t)((int64_t)(from_ns - c->anchor_ns) / (int64_t)tick_ns) - periods(bits, 3);
        high = c->anchor + (uint64_t)((int64_t)(until_ns - c->anchor_ns) / (int64_t)tick_ns) +
               periods(bits, 3);
        *ret_first = number_extend(counter, bits, low + periods(bits, 4));
        return (int64_t)(high - *ret_first) < 0 ? 0 : 1 + (unsigned)((high - *ret_first) >> bits);
}

uint64_t board_count_look_ns(uint64_t tick_ns, unsigned bits)
{
        double look_ns = fmax(period_ns_of(tick_ns, bits) / LOOKS, LOOK_MIN_NS);

        return look_ns < 1e18 ? (uint64_t)look_ns : UINT64_C(1000000000000000000);
}
