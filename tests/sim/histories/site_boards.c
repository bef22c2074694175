/* Boards of the simulated system: they read out each trigger that the DFM takes, and send a frame with their
 * counter to their ROS. */

#include "base/util.h"
#include "site_internal.h"

/* From a trigger to the arrival of its frame. */
#define READOUT_NS (80 * NS_PER_US)
/* Before a reset, triggers pause until all frames have arrived. So no frame of these last triggers is late.
 */
#define PAUSE_TRIGGERS 300
/* Own triggers that no board misses: the run begins with them. */
#define FIRST_TRIGGERS 10
#define LIES 50u
#define LIE 5000u
/* A full ROS takes the frame again after this time, never together with a new one: their order counts. */
#define FULL_PAUSE_NS (5 * NS_PER_MS + 7)

static bool happens(struct site *s, double probability)
{
        return random_unit(&s->random) < probability;
}

static uint64_t since_reset(const struct site_boards *b, uint64_t trigger)
{
        return b->reset_at > 0 && trigger >= b->reset_at ? trigger - b->reset_at : trigger;
}

static uint64_t lie_of(const struct site_boards *b)
{
        return b->lie ?: LIE;
}

/* Often, the counter starts over during the run. No period is short enough for a lie to go unnoticed. */
struct site_counter site_boards_counter(const struct site_config *c, uint32_t ros)
{
        static const uint64_t units[] = {1 << 16, 70000, 100000}, times[] = {1, 2, 3, 25, 1 << 15};
        const struct site_boards *b = &c->boards;
        struct random r;
        uint64_t unit, period;

        if (c->slices.slice_ns > 0 || b->mixed == 0)
                return (struct site_counter){number_period(c->slices.slice_ns > 0 ? 32 : b->bits), 0};
        random_init(&r, b->mixed);
        unit = units[random_below(&r, ARRAY_SIZE(units))];
        random_init(&r, b->mixed + ros);
        period = unit * times[ros > 0 ? random_below(&r, ARRAY_SIZE(times)) : 0];
        if (b->narrow > 0)
                return (struct site_counter){b->narrow, (int64_t)random_below(&r, b->narrow)};
        return (struct site_counter){period, random_below(&r, 2) ? -(int64_t)random_below(&r, c->events)
                                                                 : (int64_t)random_below(&r, period)};
}

uint64_t site_boards_count(const struct site_config *c, uint32_t ros, uint64_t trigger)
{
        const struct site_boards *b = &c->boards;
        const struct site_counter counter = site_boards_counter(c, ros);
        uint64_t n = since_reset(b, trigger) + (uint64_t)counter.from;

        if (b->lies_at > 0 && ros == 0 && trigger - b->lies_at < (b->lies ?: LIES))
                n += lie_of(b);
        if (b->mixed > 0)
                return (n + counter.period) % counter.period;
        return b->bits < 64 ? n & ((UINT64_C(1) << b->bits) - 1) : n;
}

static bool is_just_before(uint64_t trigger, uint64_t end)
{
        return trigger < end && trigger + PAUSE_TRIGGERS >= end;
}

static uint64_t arrives_ns(const struct site_boards *b, uint32_t ros, uint64_t at_ns)
{
        bool held = ros == 0 && at_ns >= b->held_from_ns && at_ns < b->held_until_ns;

        return held ? b->held_until_ns : at_ns;
}

static void send(struct site *s, uint32_t ros, uint64_t trigger, uint64_t at_ns)
{
        if (s->config.boards.joins.frames == 0)
                site_send_frame(s, 1 + ros, trigger, at_ns);
        else if (!site_joins_send(s, ros, trigger, at_ns))
                s->events[trigger].absent |= (uint16_t)(1u << ros);
}

static void read_out(struct site *s, uint32_t ros, uint64_t trigger, uint64_t at_ns)
{
        const struct site_boards *b = &s->config.boards;
        bool dead = ros == 0 && trigger >= b->dead_from && trigger < b->dead_until;
        bool missed = dead || (happens(s, b->missed) && !(b->free > 0 && trigger < FIRST_TRIGGERS));
        bool late = happens(s, b->late) && !is_just_before(trigger, b->reset_at);

        if (missed) {
                s->events[trigger].absent |= (uint16_t)(1u << ros);
                return;
        }
        at_ns = arrives_ns(b, ros, at_ns + READOUT_NS + (late ? b->late_ns : 0));
        send(s, ros, trigger, at_ns);
        if (b->repeated > 0 && happens(s, b->repeated))
                send(s, ros, trigger, at_ns + b->repeated_ns);
}

void sim_boards_follow(struct sim *sim, const struct sim_node *dfm)
{
        struct site *s = site_of(sim);
        const struct site_boards *b = &s->config.boards;
        uint64_t triggers = dfm_counts(dfm->dfm)->triggers;

        for (; b->bits > 0 && b->free == 0 && !b->boxed && s->triggered < triggers; s->triggered++) {
                for (uint32_t i = 0; i < s->config.n_ros; i++)
                        read_out(s, i, s->triggered, site_now_ns(s));
        }
}

void site_boards_trigger_now(struct site *s, uint64_t number)
{
        for (uint32_t i = 0; i < s->config.n_ros; i++)
                read_out(s, i, number, site_now_ns(s));
}

void site_boards_run_free(struct site *s)
{
        const struct site_boards *b = &s->config.boards;
        uint64_t period_ns = UINT64_C(1000000000000) / s->config.rate_millihertz;

        for (uint64_t trigger = 0; trigger < b->free; trigger++) {
                for (uint32_t i = 0; i < s->config.n_ros; i++)
                        read_out(s, i, trigger, b->first_ns + trigger * period_ns);
        }
}

bool site_boards_is_lie(const struct site *s, uint64_t number)
{
        const struct site_boards *b = &s->config.boards;

        return b->free > 0 && b->lies_at > 0 && number >= lie_of(b);
}

uint64_t site_boards_trigger(const struct site *s, const struct sfi_built *built)
{
        const struct site_boards *b = &s->config.boards;
        uint64_t number = built->info.global_id;

        if (s->config.slices.slice_ns > 0)
                return number;
        if (b->boxed)
                return number + (built->info.trigger_type == SITE_AFTER_RESET ? b->reset_at : 0);
        if (b->free == 0)
                return built->event;
        if (site_boards_is_lie(s, number))
                number -= lie_of(b);
        if (b->narrow > 0)
                number %= b->narrow;
        return MIN(number, b->free - 1);
}

void site_boards_deliver(struct site *s, struct site_node *n, uint64_t trigger)
{
        struct ros_fragment f;
        uint64_t counter = site_boards_count(&s->config, site_index(n), trigger), at;
        enum ros_verdict verdict;

        if (s->config.slices.slice_ns > 0) {
                site_slices_deliver(s, n, trigger);
                return;
        }
        if (s->config.boards.joins.frames > 0) {
                site_joins_deliver(s, n, trigger);
                return;
        }
        if (!site_is_live(n)) {
                s->events[trigger].absent |= (uint16_t)(1u << site_index(n));
                return;
        }
        source_describe(n->sim->source, trigger, (uint32_t)trigger, &f);
        verdict = site_now_ns(s) < n->full_ns ? ROS_FULL : ros_arrive(n->sim->ros, &counter, &f, &at);
        if (verdict == ROS_FULL && !s->config.arrive_stream) {
                ros_skip(n->sim->ros, 1);
                n->frames++;
                return;
        }
        if (verdict == ROS_FULL) {
                n->full_ns =
                        MAX(n->full_ns, site_now_ns(s) + (site_now_ns(s) >= n->full_ns ? FULL_PAUSE_NS : 0));
                site_send_frame(s, (uint32_t)(n - s->nodes), trigger, n->full_ns);
                return;
        }
        if (verdict == ROS_STORE && f.bytes > 0)
                source_fill(n->sim->source, trigger, (uint32_t)trigger, n->sim->buffer + at, f.bytes);
        ros_commit(n->sim->ros);
        n->frames++;
}
