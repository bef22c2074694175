/* Boards of the simulated system: they read out each trigger that the DFM takes, and send a frame with their
 * counter to their ROS. */
#include <assert.h>

#include "base/pattern.h"
#include "base/util.h"
#include "sim_internal.h"

/* From a trigger to the arrival of its frame. */
#define READOUT_NS (80 * NS_PER_US)
/* Before a reset, triggers pause until all frames have arrived, and a board that forgets delivers nothing
 * from before. So no frame of these last triggers is late. */
#define PAUSE_TRIGGERS 300
/* Own triggers that no board misses: the run begins with them. */
#define FIRST_TRIGGERS 10
#define LIES 50u
#define LIE 5000u
/* A full ROS takes the frame again after this time, never together with a new one: their order counts. */
#define FULL_PAUSE_NS (5 * NS_PER_MS + 7)

static bool happens(struct sim *s, double probability)
{
        return random_unit(&s->random) < probability;
}

static uint64_t since_reset(const struct sim_boards *b, uint64_t trigger)
{
        return b->reset_at > 0 && trigger >= b->reset_at ? trigger - b->reset_at : trigger + b->first;
}

/* Whether the board counts from 0 since it was dead. */
static bool has_forgotten(const struct sim_boards *b, uint32_t ros, uint64_t trigger)
{
        return b->forgets && ros == 0 && trigger >= b->dead_until &&
               (b->reset_at == 0 || trigger < b->reset_at);
}

static uint64_t lie_of(const struct sim_boards *b)
{
        return b->lie ?: LIE;
}

/* Often, the counter starts over during the run. No period is short enough for a lie to go unnoticed. */
struct sim_counter sim_boards_counter(const struct sim_config *c, uint32_t ros)
{
        static const uint64_t units[] = {1 << 16, 70000, 100000}, times[] = {1, 2, 3, 25, 1 << 15};
        const struct sim_boards *b = &c->boards;
        struct random r;
        uint64_t unit, period;

        if (c->slices.slice_ns > 0 || b->mixed == 0)
                return (struct sim_counter){number_period(c->slices.slice_ns > 0 ? 32 : b->bits), b->from};
        random_init(&r, b->mixed);
        unit = units[random_below(&r, ARRAY_SIZE(units))];
        random_init(&r, b->mixed + ros);
        period = unit * times[ros > 0 ? random_below(&r, ARRAY_SIZE(times)) : 0];
        if (b->narrow > 0)
                return (struct sim_counter){b->narrow, (int64_t)random_below(&r, b->narrow)};
        return (struct sim_counter){period, random_below(&r, 2) ? -(int64_t)random_below(&r, c->events)
                                                                : (int64_t)random_below(&r, period)};
}

uint64_t sim_boards_count(const struct sim_config *c, uint32_t ros, uint64_t trigger)
{
        const struct sim_boards *b = &c->boards;
        const struct sim_counter counter = sim_boards_counter(c, ros);
        uint64_t n = has_forgotten(b, ros, trigger) ? trigger - b->dead_until
                                                    : since_reset(b, trigger) + (uint64_t)counter.from;

        if (b->lies_at > 0 && ros == 0 && trigger - b->lies_at < (b->lies ?: LIES))
                n += lie_of(b);
        if (b->mixed > 0)
                return (n + counter.period) % counter.period;
        return b->bits < 64 ? n & ((UINT64_C(1) << b->bits) - 1) : n;
}

void sim_boards_info(void *ctx, uint64_t event, struct event_info *ret)
{
        const struct sim *s = ctx;

        *ret = (struct event_info){.global_id = event,
                                   .l1_id = (uint32_t)since_reset(&s->config.boards, event)};
}

static bool is_just_before(uint64_t trigger, uint64_t end)
{
        return trigger < end && trigger + PAUSE_TRIGGERS >= end;
}

static uint64_t arrives_ns(const struct sim_boards *b, uint32_t ros, uint64_t at_ns)
{
        bool held = ros == 0 && at_ns >= b->held_from_ns && at_ns < b->held_until_ns;

        return held ? b->held_until_ns : at_ns;
}

static void send(struct sim *s, uint32_t ros, uint64_t trigger, uint64_t at_ns)
{
        if (s->config.boards.joins.frames == 0)
                sim_send_frame(s, 1 + ros, trigger, at_ns);
        else if (!sim_joins_send(s, ros, trigger, at_ns))
                s->events[trigger].absent |= (uint16_t)(1u << ros);
}

static void read_out(struct sim *s, uint32_t ros, uint64_t trigger, uint64_t at_ns)
{
        const struct sim_boards *b = &s->config.boards;
        bool dead =
                (ros == 0 && trigger >= b->dead_from && trigger < b->dead_until) || trigger < ros * b->ragged;
        bool missed = dead || (happens(s, b->missed) && !(b->free > 0 && trigger < FIRST_TRIGGERS));
        bool late = happens(s, b->late) && !is_just_before(trigger, b->reset_at) &&
                    !(b->forgets && is_just_before(trigger, b->dead_from));

        if (missed || has_forgotten(b, ros, trigger))
                s->events[trigger].absent |= (uint16_t)(1u << ros);
        if (missed)
                return;
        at_ns = arrives_ns(b, ros, at_ns + READOUT_NS + (late ? b->late_ns : 0));
        send(s, ros, trigger, at_ns);
        if (b->repeated > 0 && happens(s, b->repeated))
                send(s, ros, trigger, at_ns + b->repeated_ns);
}

void sim_boards_read_out(struct sim *s)
{
        const struct sim_boards *b = &s->config.boards;
        uint64_t triggers = dfm_counts(s->nodes[0].dfm)->triggers;

        for (; b->bits > 0 && b->free == 0 && !b->boxed && s->triggered < triggers; s->triggered++) {
                for (uint32_t i = 0; i < s->config.n_ros; i++) {
                        if (s->triggered == b->reset_at && b->reset_at > 0 && !s->config.outside)
                                ros_resynchronise(s->nodes[1 + i].ros, b->reset_at, 0);
                        read_out(s, i, s->triggered, s->now_ns);
                }
        }
}

void sim_boards_trigger_now(struct sim *s, uint64_t number)
{
        for (uint32_t i = 0; i < s->config.n_ros; i++)
                read_out(s, i, number, s->now_ns);
}

void sim_boards_run_free(struct sim *s)
{
        const struct sim_boards *b = &s->config.boards;
        uint64_t period_ns = UINT64_C(1000000000000) / s->config.rate_millihertz;

        for (uint64_t trigger = 0; trigger < b->free; trigger++) {
                bool is_after = b->reset_at > 0 && trigger >= b->reset_at;
                uint64_t at_ns = b->first_ns + trigger * period_ns + (is_after ? b->pause_ns : 0);

                for (uint32_t i = 0; i < s->config.n_ros; i++)
                        read_out(s, i, trigger, at_ns);
        }
}

static bool is_of(const struct sim *s, const struct sim_node *sfi, const struct sfi_fragment *f, uint32_t ros,
                  uint64_t trigger)
{
        if (s->config.boards.joins.frames > 0)
                return sim_joins_are_right(s, sfi, f, ros, trigger);
        return f->status != FRAGMENT_OK || (f->bytes == sim_size_of(&s->config, ros, trigger) &&
                                            pattern_check(pattern_key(SIM_SEED, ros, trigger),
                                                          sfi->buffer + f->at, 0, f->bytes) == f->bytes);
}

/* Whether all fragments are those of the trigger. */
static bool is_built_of(const struct sim *s, const struct sim_node *sfi, const struct sfi_built *built,
                        uint64_t trigger)
{
        for (uint32_t i = 0; i < s->config.n_ros; i++) {
                const struct sfi_fragment *f = &built->fragments[i];

                if (f->whole && f->bytes > 0 && !is_of(s, sfi, f, i, trigger))
                        return false;
        }
        return true;
}

bool sim_boards_is_lie(const struct sim *s, uint64_t number)
{
        const struct sim_boards *b = &s->config.boards;

        return b->free > 0 && b->lies_at > 0 && number - b->first >= lie_of(b);
}

uint64_t sim_boards_trigger(const struct sim *s, const struct sim_node *sfi, const struct sfi_built *built)
{
        const struct sim_boards *b = &s->config.boards;
        uint64_t number = built->info.global_id, after = b->reset_at + number;

        if (s->config.slices.slice_ns > 0)
                return number;
        if (b->boxed)
                return b->reset_at > 0 && built->info.trigger_type == SIM_AFTER_RESET ? after : number;
        if (b->free == 0)
                return built->event;
        if (sim_boards_is_lie(s, number))
                number -= lie_of(b);
        if (b->reset_at > 0 && after < b->free && is_built_of(s, sfi, built, after))
                return after;
        number -= b->first;
        if (b->narrow > 0)
                number %= b->narrow;
        return MIN(number, b->free - 1);
}

void sim_boards_deliver(struct sim *s, struct sim_node *n, uint64_t trigger)
{
        struct ros_fragment f = {.bytes = sim_size_of(&s->config, n->index, trigger),
                                 .order = (uint16_t)n->index};
        uint64_t counter = sim_boards_count(&s->config, n->index, trigger), at;
        enum ros_verdict verdict;

        if (s->config.slices.slice_ns > 0) {
                sim_slices_deliver(s, n, trigger);
                return;
        }
        if (s->config.boards.joins.frames > 0) {
                sim_joins_deliver(s, n, trigger);
                return;
        }
        if (!n->live) {
                s->events[trigger].absent |= (uint16_t)(1u << n->index);
                return;
        }
        verdict = s->now_ns < n->full_ns ? ROS_FULL : ros_arrive(n->ros, &counter, &f, &at);
        if (verdict == ROS_FULL && !s->config.arrive_stream) {
                ros_skip(n->ros, 1);
                n->frames++;
                return;
        }
        if (verdict == ROS_FULL) {
                n->full_ns = MAX(n->full_ns, s->now_ns + (s->now_ns >= n->full_ns ? FULL_PAUSE_NS : 0));
                sim_send_frame(s, (uint32_t)(n - s->nodes), trigger, n->full_ns);
                return;
        }
        if (verdict == ROS_STORE && f.bytes > 0)
                pattern_fill(pattern_key(SIM_SEED, n->index, trigger), n->buffer + at, 0, f.bytes);
        ros_commit(n->ros);
        n->frames++;
}

void sim_lose_frames(struct sim *s, uint32_t ros, uint64_t from, uint64_t until)
{
        for (uint64_t trigger = from; trigger < until; trigger++)
                s->events[trigger].unsure |= (uint16_t)(1u << ros);
}
