/* Shared by the tests of a whole system under virtual time: counters that must balance in every case, and
 * runs for many seeds. EVB_SIM_SEED=N runs that seed alone; a failure prints it. EVB_SIM_SEEDS=N runs the
 * seeds 1 to N. Time is virtual and every seed is fixed, so no test here can fail by chance. */
#pragma once

#include "../unit/test.h"

#include <stdio.h>

#include "base/util.h"
#include "sim.h"

#define FOREVER_NS (200 * NS_PER_S)

static uint64_t seed_now;

static struct sim *sim_now;

static inline void print_seed(const char *what)
{
        const struct dfm_counts *d = dfm_counts(sim_dfm(sim_now));

        print_error("%llu triggers, %llu complete, %llu partial, %llu lost, %llu reassigned, %llu ended "
                    "again\n",
                    (unsigned long long)d->triggers, (unsigned long long)d->complete,
                    (unsigned long long)d->partial, (unsigned long long)d->lost,
                    (unsigned long long)d->reassigned, (unsigned long long)d->ended_again);
        print_error("%s: replay with EVB_SIM_SEED=%llu\n", what, (unsigned long long)seed_now);
}

#define check(condition)                                                                                     \
        do {                                                                                                 \
                if (!(condition)) {                                                                          \
                        print_seed(#condition);                                                              \
                        assert_true(condition);                                                              \
                }                                                                                            \
        } while (0)

/* Compares the DFM's counters with the events that the SFIs wrote. */
static inline void check_accounts(struct sim *s, const struct sim_config *c)
{
        const struct dfm_counts *d = dfm_counts(sim_dfm(s));
        uint64_t written = 0, twice = 0;

        check(d->triggers == d->complete + d->partial + d->lost + d->rejected);
        check(d->fragments_expected == (d->triggers - d->rejected) * c->n_ros);
        check(d->fragments_expected == d->fragments_received + d->fragments_lost + d->fragments_absent);
        for (uint64_t e = 0; e < c->events; e++) {
                const struct sim_event *event = sim_event(s, e);

                written += event->complete + event->partial > 0;
                twice += event->complete + event->partial > 1;
        }
        /* The two may differ only by events that a node lost when it died. */
        check(written >= d->complete + d->partial || d->lost + d->ended_again + d->reassigned > 0);
        check(twice <= d->reassigned + d->ended_again);
        check(sim_wrong_bytes(s) == 0);
        check(sim_most_open(s) <= c->sfi_slots);
}

/* Each written event counts once, and no other one counts as complete or partial. An event in no file is
 * lost, or was rejected by level 2. No SFI process may have ended. */
static inline void check_written(struct sim *s, const struct sim_config *c)
{
        const struct dfm_counts *d = dfm_counts(sim_dfm(s));
        uint64_t builds = 0, written = 0, not_accepted = 0;

        for (uint64_t e = 0; e < d->triggers; e++) {
                const struct sim_event *event = sim_event(s, e);

                builds += event->complete + event->partial;
                written += event->complete + event->partial > 0;
                not_accepted += c->level2.on && !sim_accepts(s, e);
        }
        check(d->complete + d->partial + d->ended_again == builds);
        check(d->complete + d->partial <= written);
        check(d->lost + d->rejected >= d->triggers - written);
        check(d->rejected <= not_accepted);
        check(!dfm_has_guessed(sim_dfm(s)));
}

static inline void check_all_complete(struct sim *s, const struct sim_config *c)
{
        const struct dfm_counts *d = dfm_counts(sim_dfm(s));

        check_accounts(s, c);
        check(d->triggers == c->events && d->complete == c->events && d->reassigned == 0 &&
              d->ended_again == 0);
        for (uint64_t e = 0; e < c->events; e++)
                check(sim_event(s, e)->complete == 1 && sim_event(s, e)->partial == 0);
}

/* Everything is released: no fragment in a ROS, no byte in an SFI. */
static inline void check_empty(struct sim *s, const struct sim_config *c)
{
        for (uint32_t i = 0; i < c->n_ros; i++)
                check(ros_held(sim_ros(s, i)) == 0);
        for (uint32_t i = 0; i < c->n_sfi; i++)
                check(sfi_buffer_used_bytes(sim_sfi(s, i)) == 0 && sfi_open_events(sim_sfi(s, i)) == 0);
}

/* Sanitizers look for errors of memory and threads, which the first seeds show; all of them take minutes. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SEEDS_DIVISOR 4u
#else
#define SEEDS_DIVISOR 1u
#endif

/* The seeds to run, by default `n` of them, and a quarter of it with a sanitizer. */
#define FOR_SEEDS(seed, n)                                                                                   \
        for (uint64_t seed = first_seed(), last_ = last_seed(n); (seed_now = seed) <= last_; seed++)

static inline uint64_t first_seed(void)
{
        const char *one = getenv("EVB_SIM_SEED");

        return one ? strtoull(one, NULL, 0) : 1;
}

static inline uint64_t last_seed(uint64_t seeds)
{
        const char *one = getenv("EVB_SIM_SEED"), *many = getenv("EVB_SIM_SEEDS");

        return one || many ? strtoull(one ?: many, NULL, 0) : DIV_ROUND_UP(seeds, SEEDS_DIVISOR);
}

/* A test that runs the system that its body prepares for many seeds. */
#define SCENE_OF(each, name, params, ...)                                                                    \
        static void name##_scene params;                                                                     \
        TEST(name)                                                                                           \
        {                                                                                                    \
                each(__VA_ARGS__);                                                                           \
        }                                                                                                    \
        static void name##_scene params
