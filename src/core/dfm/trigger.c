/* Computes when triggers are due. This file only counts time; the DFM decides whether to accept an event. */
#include "core/trigger.h"

#include "base/util.h"

#define NS_PER_MILLIHERTZ_PERIOD UINT64_C(1000000000000)

static uint64_t period_ns(const struct trigger *t, uint64_t n)
{
        uint64_t groups = t->kind == TRIGGER_BURST ? n / t->burst * t->burst : n;

        return (uint64_t)((unsigned __int128)groups * NS_PER_MILLIHERTZ_PERIOD / t->rate_millihertz);
}

static void poisson_advance(struct trigger *t)
{
        double interval_ns = random_exponential(&t->random) * (double)NS_PER_MILLIHERTZ_PERIOD /
                             (double)t->rate_millihertz;
        uint64_t whole_ns = (uint64_t)interval_ns;

        t->fraction += (uint64_t)((interval_ns - (double)whole_ns) * 0x1p32);
        t->next_ns += whole_ns + (t->fraction >> 32);
        t->fraction &= UINT32_MAX;
}

static void advance(struct trigger *t)
{
        t->taken++;
        if (t->kind == TRIGGER_POISSON)
                poisson_advance(t);
        else
                t->next_ns = t->start_ns + period_ns(t, t->taken);
}

void trigger_init(struct trigger *t, enum trigger_kind kind, uint64_t rate_millihertz, uint64_t burst,
                  uint64_t seed, uint64_t now_ns)
{
        *t = (struct trigger){
                .kind = kind,
                .rate_millihertz = rate_millihertz,
                .burst = burst,
                .start_ns = now_ns,
                .next_ns = now_ns,
        };
        random_init(&t->random, seed);
        if (kind == TRIGGER_POISSON && rate_millihertz != TRIGGER_RATE_MAX)
                poisson_advance(t);
}

uint64_t trigger_next_due(struct trigger *t, uint64_t now_ns, uint64_t max)
{
        uint64_t n = 0;

        if (t->rate_millihertz == TRIGGER_RATE_MAX) {
                t->taken += max;
                return max;
        }
        while (n < max && t->next_ns <= now_ns) {
                advance(t);
                n++;
        }
        return n;
}

uint64_t trigger_next_ns(const struct trigger *t)
{
        return t->next_ns;
}

void trigger_hold(struct trigger *t, uint64_t now_ns)
{
        if (t->rate_millihertz == TRIGGER_RATE_MAX || t->next_ns >= now_ns)
                return;
        /* Moving the start, not the count, keeps all later intervals exact. */
        t->start_ns += now_ns - t->next_ns;
        t->next_ns = now_ns;
}

void trigger_shift(struct trigger *t, uint64_t by_ns)
{
        t->start_ns += by_ns;
        t->next_ns += by_ns;
}

/* The time from now_ns to the next trigger, scaled to the new interval; negative if the trigger is
 * overdue. */
static int64_t scaled_ns(const struct trigger *t, uint64_t now_ns, uint64_t rate_millihertz)
{
        __int128 left_ns = (int64_t)(t->next_ns - now_ns);

        left_ns = left_ns * t->rate_millihertz / rate_millihertz;
        return left_ns < -(__int128)now_ns ? -(int64_t)now_ns : (int64_t)MIN(left_ns, (__int128)INT64_MAX);
}

void trigger_change(struct trigger *t, uint64_t now_ns, enum trigger_kind kind, uint64_t rate_millihertz,
                    uint64_t burst)
{
        bool was_max = t->rate_millihertz == TRIGGER_RATE_MAX, is_max = rate_millihertz == TRIGGER_RATE_MAX;
        bool in_burst = !was_max && t->kind == TRIGGER_BURST && kind == TRIGGER_BURST;
        uint64_t begun = in_burst ? MIN(t->taken % t->burst, burst) : 0;

        t->next_ns = was_max || is_max ? now_ns : now_ns + (uint64_t)scaled_ns(t, now_ns, rate_millihertz);
        t->start_ns = t->next_ns;
        t->kind = kind;
        t->rate_millihertz = rate_millihertz;
        t->burst = burst;
        t->taken = begun;
        if (kind == TRIGGER_POISSON && was_max && !is_max)
                poisson_advance(t);
        else if (begun > 0)
                t->next_ns = t->start_ns + period_ns(t, begun);
}
