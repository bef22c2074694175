/* A matcher whose board and trigger box are simulated, whatever drifts, is missing or comes late; without any
 * clock, socket or core: the test receives what the matcher passes on. */
#pragma once

#include <math.h>

#include "../test.h"

#include "base/random.h"
#include "data/matcher.h"

#define BEGIN_NS (1700000000 * NS_PER_S)
#define OFFSET_NS UINT64_C(123456789123)
#define PASSED_MAX 100000
#define FRAMES_MAX 8192

/* What a beam does; a rate of 0 means that there is none. */
struct beam {
        double rate_hz, noise_hz, drift;
        bool periodic;
        uint64_t jitter_ns;        /* of the board's times, in either direction */
        unsigned frames_missing;   /* in percent */
        unsigned triggers_missing; /* the same: their datagrams are lost */
        unsigned bits;             /* 0: 64 */
        uint64_t tick_ns;          /* 0: 1 */
        unsigned doubles;          /* in percent: triggers with another frame, by so much earlier */
        uint64_t double_ns;
};

/* A frame has the number of its trigger, or NOISE. */
#define NOISE UINT64_MAX

static struct {
        struct matcher *matcher;
        struct ros_counts counts;
        enum run_state state;
        bool is_full;
        uint8_t buffer[8];
        uint64_t number;               /* of the frame that the core receives */
        uint64_t right, wrong, chance; /* `chance`: frames of no trigger that come at the time of one */
        uint8_t passed[PASSED_MAX];

        struct random random;
        struct beam beam;
        uint64_t time_ns;  /* when the last trigger came */
        uint64_t board_ns; /* what the board's clock is ahead, without its drift */
        uint64_t drift_from_ns;
        uint64_t triggers, frames, noise;
        uint64_t expected; /* frames whose trigger arrived */
        bool begins;
        /* Of frames on their way. */
        struct flight {
                uint64_t arrives_ns, counter, number;
        } flights[1024];
        size_t first, n;
} b;

enum ros_verdict __wrap_ros_arrive(struct ros *r, const uint64_t *counter, const struct ros_fragment *f,
                                   uint64_t *ret_at)
{
        assert_int_equal(f->bytes, sizeof b.number);
        assert_true(f->frames == 1 && f->joined);
        *ret_at = 0;
        b.number = *counter;
        return b.is_full ? ROS_FULL : ROS_STORE;
}

void __wrap_ros_commit(struct ros *r)
{
        uint64_t of;

        memcpy(&of, b.buffer, sizeof of);
        b.right += of == b.number;
        b.chance += of == NOISE;
        b.wrong += of != b.number && of != NOISE;
        if (of < PASSED_MAX)
                assert_int_equal(b.passed[of]++, 0);
}

enum run_state __wrap_ros_run_state(const struct ros *r)
{
        return b.state;
}

const struct ros_counts *__wrap_ros_counts(const struct ros *r)
{
        return &b.counts;
}

static inline int teardown(void **state)
{
        matcher_free(b.matcher);
        b.matcher = NULL;
        return 0;
}

/* The socket was empty in this turn, and frames were read by `read_ns`. */
static inline void deliver_late(uint64_t now_ns, uint64_t read_ns)
{
        matcher_deliver(b.matcher, &(struct matcher_turn){now_ns, read_ns, now_ns, false}, NULL, b.buffer);
}

static inline void deliver(uint64_t now_ns)
{
        deliver_late(now_ns, now_ns);
}

/* Begins a run. The matcher of the run before belongs to the same process, unless it was freed. */
static inline void begin_matcher(uint32_t frames_max)
{
        struct matcher_config config = {
                .window_ns = NS_PER_US,
                .tick_ns = b.beam.tick_ns,
                .bits = b.beam.bits,
                .frames_max = frames_max,
                .buffer_bytes = 16u << 20,
                .search_ns = 750 * NS_PER_MS,
                .past = b.matcher ? matcher_past(b.matcher) : (struct matcher_past){},
        };

        teardown(NULL);
        assert_int_equal(matcher_new(&b.matcher, &config), 0);
        deliver(b.time_ns);
        b.expected = b.frames = b.noise = b.right = b.wrong = b.chance = 0;
}

static inline void begin(uint64_t seed, const struct beam *beam)
{
        teardown(NULL);
        memset(&b, 0, sizeof b);
        b.beam = *beam;
        b.beam.bits = beam->bits ?: 64;
        b.beam.tick_ns = beam->tick_ns ?: 1;
        b.state = RUN_RUNNING;
        b.begins = true;
        b.time_ns = b.drift_from_ns = BEGIN_NS;
        b.board_ns = OFFSET_NS;
        random_init(&b.random, seed);
        begin_matcher(FRAMES_MAX);
}

static inline uint64_t counter_at(uint64_t time_ns)
{
        int64_t jitter_ns = b.beam.jitter_ns > 0
                                    ? (int64_t)random_below(&b.random, 2 * b.beam.jitter_ns + 1) -
                                              (int64_t)b.beam.jitter_ns
                                    : 0;
        double gained_ns = b.beam.drift * (double)(int64_t)(time_ns - b.drift_from_ns);
        uint64_t count = (time_ns - BEGIN_NS + b.board_ns + (uint64_t)(llround(gained_ns) + jitter_ns)) /
                         b.beam.tick_ns;

        return b.beam.bits < 64 ? count & ((UINT64_C(1) << b.beam.bits) - 1) : count;
}

static inline enum ros_verdict send_frame(uint64_t now_ns, uint64_t counter, uint64_t number)
{
        uint8_t *to;
        enum ros_verdict verdict = matcher_arrive(b.matcher, now_ns, &counter, sizeof number, &to);

        if (verdict != ROS_STORE)
                return verdict;
        memcpy(to, &number, sizeof number);
        matcher_commit(b.matcher);
        b.frames++;
        b.noise += number == NOISE;
        return verdict;
}

/* Passes time, up to the arrival of all frames that come until then. */
static inline void pass_until(uint64_t now_ns)
{
        while (b.n > 0 && b.flights[b.first].arrives_ns <= now_ns) {
                const struct flight *f = &b.flights[b.first];

                assert_int_equal(send_frame(f->arrives_ns, f->counter, f->number), ROS_STORE);
                deliver(f->arrives_ns);
                b.first = (b.first + 1) % ARRAY_SIZE(b.flights);
                b.n--;
        }
        while (!b.is_full && matcher_deadline_ns(b.matcher) <= now_ns)
                deliver(matcher_deadline_ns(b.matcher));
        deliver(now_ns);
}

static inline void fly(uint64_t time_ns, uint64_t number)
{
        /* Readout takes 1 to 3 ms; frames stay in their order. */
        uint64_t arrives_ns = time_ns + NS_PER_MS + random_below(&b.random, 2 * NS_PER_MS);
        size_t last = (b.first + b.n - 1) % ARRAY_SIZE(b.flights);

        if (b.n > 0)
                arrives_ns = MAX(arrives_ns, b.flights[last].arrives_ns);
        assert_true(b.n < ARRAY_SIZE(b.flights));
        b.flights[(b.first + b.n++) % ARRAY_SIZE(b.flights)] =
                (struct flight){arrives_ns, counter_at(time_ns), number};
}

static inline double interval_ns(double rate_hz)
{
        return 1e9 / rate_hz * (b.beam.periodic ? 1 : random_exponential(&b.random));
}

static inline bool is_percent(unsigned percent)
{
        return random_below(&b.random, 100) < percent;
}

static inline void send_trigger(uint64_t now_ns, uint64_t number, uint64_t time_ns, uint32_t flags)
{
        const struct trigger_entry e = {.number = number, .time_ns = time_ns, .flags = flags};

        matcher_trigger(b.matcher, now_ns, &e, b.begins);
}

/* The next trigger: its datagram comes after 0.2 ms. */
static inline void trigger(void)
{
        bool lost = is_percent(b.beam.triggers_missing), has_frame = !is_percent(b.beam.frames_missing);
        uint64_t next_ns = b.time_ns + 1000 + (uint64_t)interval_ns(b.beam.rate_hz);

        for (double at_ns = (double)(b.time_ns - BEGIN_NS); b.beam.noise_hz > 0;) {
                at_ns += interval_ns(b.beam.noise_hz);
                if (BEGIN_NS + (uint64_t)at_ns >= next_ns)
                        break;
                pass_until(BEGIN_NS + (uint64_t)at_ns);
                fly(BEGIN_NS + (uint64_t)at_ns, NOISE);
        }
        b.time_ns = next_ns;
        pass_until(next_ns);
        if (b.beam.doubles > 0 && is_percent(b.beam.doubles))
                fly(next_ns - b.beam.double_ns, NOISE);
        if (has_frame)
                fly(next_ns, b.triggers);
        pass_until(next_ns + 200 * NS_PER_US);
        if (!lost)
                send_trigger(next_ns + 200 * NS_PER_US, b.triggers, next_ns, 0);
        deliver(next_ns + 200 * NS_PER_US);
        b.expected += has_frame && !lost;
        b.triggers++;
}

static inline void triggers(uint64_t n)
{
        for (; n > 0; n--)
                trigger();
}

static inline void settle(void)
{
        b.time_ns += 2 * NS_PER_S;
        pass_until(b.time_ns);
}

/* Each frame is in one class, and no frame belongs to another trigger. */
static inline const struct matcher_counts *check(void)
{
        const struct matcher_counts *c = matcher_counts(b.matcher);

        settle();
        assert_int_equal(b.wrong, 0);
        assert_fields(c, frames, b.frames, waiting, 0, passed, b.right + b.chance);
        assert_int_equal(c->frames, c->passed + c->alone + c->doubled + c->no_time + c->no_room);
        return c;
}
