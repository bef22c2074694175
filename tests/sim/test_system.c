/* A whole system under virtual time: whatever the network and the nodes do, every trigger ends exactly once.
 * EVB_SIM_SEED=N runs that seed alone; a failure prints it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "evb/base/util.h"
#include "sim.h"

#define FOREVER_NS (200 * NS_PER_S)

static uint64_t seed_now;

static struct sim *sim_now;

static void tell_seed(const char *what)
{
        const struct dfm_counts *d = dfm_counts(sim_dfm(sim_now));

        print_error("%llu triggers, %llu complete, %llu partial, %llu lost, %llu assigned again, %llu ended again\n",
                    (unsigned long long)d->triggers, (unsigned long long)d->complete, (unsigned long long)d->partial,
                    (unsigned long long)d->lost, (unsigned long long)d->reassigned, (unsigned long long)d->ended_again);
        print_error("%s: replay with EVB_SIM_SEED=%llu\n", what, (unsigned long long)seed_now);
}

#define check(condition)                                                                                     \
        do {                                                                                                 \
                if (!(condition)) {                                                                          \
                        tell_seed(#condition);                                                               \
                        assert_true(condition);                                                              \
                }                                                                                            \
        } while (0)

/* The accounts by the DFM, and by what the SFIs wrote. */
static void check_accounts(struct sim *s, const struct sim_config *c)
{
        const struct dfm_counts *d = dfm_counts(sim_dfm(s));
        uint64_t written = 0, twice = 0;

        check(d->triggers == d->complete + d->partial + d->lost);
        check(d->fragments_expected == d->triggers * c->n_ros);
        check(d->fragments_expected == d->fragments_received + d->fragments_lost);
        for (uint64_t e = 0; e < c->events; e++) {
                const struct sim_event *event = sim_event(s, e);

                written += event->complete + event->partial > 0;
                twice += event->complete + event->partial > 1;
        }
        /* What was written and not counted, or counted and not written, is an event that a node took with it. */
        check(written >= d->complete + d->partial || d->lost + d->ended_again + d->reassigned > 0);
        check(twice <= d->reassigned);
        check(sim_wrong_bytes(s) == 0);
        check(sim_most_open(s) <= c->sfi_slots);
}

static void check_all_complete(struct sim *s, const struct sim_config *c)
{
        const struct dfm_counts *d = dfm_counts(sim_dfm(s));

        check_accounts(s, c);
        check(d->triggers == c->events && d->complete == c->events && d->reassigned == 0 && d->ended_again == 0);
        for (uint64_t e = 0; e < c->events; e++)
                check(sim_event(s, e)->complete == 1 && sim_event(s, e)->partial == 0);
}

/* Everything is let go: no fragment in a ROS, no byte in an SFI. */
static void check_empty(struct sim *s, const struct sim_config *c)
{
        for (uint32_t i = 0; i < c->n_ros; i++)
                check(ros_held(sim_ros(s, i)) == 0);
        for (uint32_t i = 0; i < c->n_sfi; i++)
                check(sfi_buffer_used_bytes(sim_sfi(s, i)) == 0 && sfi_open_events(sim_sfi(s, i)) == 0);
}

typedef void (*scene_fn)(struct sim_config *c, bool push);

/* Runs one system for many seeds, push and pull. */
static void each_seed(unsigned seeds, scene_fn prepare, void (*verify)(struct sim *, const struct sim_config *))
{
        const char *one = getenv("EVB_SIM_SEED");

        for (uint64_t seed = one ? strtoull(one, NULL, 0) : 1; seed <= (one ? strtoull(one, NULL, 0) : seeds); seed++) {
                for (int push = 0; push < 2; push++) {
                        struct sim_config c = sim_standard();
                        struct sim *s;

                        seed_now = seed;
                        c.push = push;
                        c.faults.seed = seed;
                        if (prepare)
                                prepare(&c, push);
                        s = sim_now = sim_new(&c);
                        check(sim_run(s, FOREVER_NS));
                        verify(s, &c);
                        sim_free(s);
                }
        }
}

static void verify_quiet(struct sim *s, const struct sim_config *c)
{
        check_all_complete(s, c);
        check_empty(s, c);
        for (uint32_t i = 0; i < c->n_sfi; i++) {
                const struct sfi_counts *k = sfi_counts(sim_sfi(s, i));

                check(k->re_asked == 0 && k->duplicate == 0 && k->late == 0 && k->no_room == 0 && k->datagrams_lost == 0);
        }
        for (uint32_t i = 0; i < c->n_ros; i++)
                check(ros_counts(sim_ros(s, i))->clear_gaps == 0);
}

static void without_faults(void **state)
{
        (void)state;
        each_seed(20, NULL, verify_quiet);
}

static void lose_2(struct sim_config *c, bool push)
{
        (void)push;
        c->faults.loss = 0.02;
}

static void lose_5_and_more(struct sim_config *c, bool push)
{
        (void)push;
        c->faults = (struct fault_config){.loss = 0.05, .reorder = 0.1, .duplicate = 0.05, .seed = c->faults.seed};
}

static void lose_20(struct sim_config *c, bool push)
{
        (void)push;
        c->faults = (struct fault_config){.loss = 0.2, .reorder = 0.1, .duplicate = 0.1, .seed = c->faults.seed};
        c->events = 100;
}

static void with_2_percent_loss(void **state)
{
        (void)state;
        each_seed(60, lose_2, check_all_complete);
}

static void with_5_percent_loss_reordering_duplication(void **state)
{
        (void)state;
        each_seed(60, lose_5_and_more, check_all_complete);
}

static void with_20_percent_loss(void **state)
{
        (void)state;
        each_seed(40, lose_20, check_accounts);
}

static void no_re_asking(struct sim_config *c, bool push)
{
        lose_5_and_more(c, push);
        c->re_ask_max = 0;
        c->timeout_ns = 100 * NS_PER_MS;
}

static void verify_partial(struct sim *s, const struct sim_config *c)
{
        check_accounts(s, c);
        check(dfm_counts(sim_dfm(s))->partial > 0);
}

static void without_re_asking_events_are_partial(void **state)
{
        (void)state;
        each_seed(10, no_re_asking, verify_partial);
}

static void small_buffers(struct sim_config *c, bool push)
{
        lose_2(c, push);
        c->sfi_buffer_bytes = 4u << 20;
        c->fragment_bytes = 300000;
        c->fixed = true;
        c->events = 20;
        c->mtu_bytes = 8972;
}

static void small_buffers_are_slow_not_stuck(void **state)
{
        (void)state;
        each_seed(6, small_buffers, check_all_complete);
}

static void large_fragments(struct sim_config *c, bool push)
{
        (void)push;
        c->faults.loss = 0.05;
        c->fragment_bytes = EVB_FRAGMENT_MAX_BYTES;
        c->fixed = true;
        c->n_ros = 2;
        c->n_sfi = 1;
        c->events = 2;
        c->sfi_buffer_bytes = 32u << 20;
}

static void fragments_of_4_mib_with_loss(void **state)
{
        (void)state;
        each_seed(3, large_fragments, check_all_complete);
}

static void slow_writer(struct sim_config *c, bool push)
{
        (void)push;
        c->write_ns = NS_PER_MS;
        c->events = 1500;
}

static void verify_busy(struct sim *s, const struct sim_config *c)
{
        check_all_complete(s, c);
        check(dfm_counts(sim_dfm(s))->busy_ns > 0);
}

static void a_slow_writer_shows_as_busy(void **state)
{
        (void)state;
        each_seed(5, slow_writer, verify_busy);
}

static void front_ends(struct sim_config *c, bool push)
{
        (void)push;
        c->arriving = true;
        c->arrive_percent = 50 + (uint32_t)c->faults.seed % 3 * 50; /* slower, as fast, faster */
        c->timeout_ns = 20 * NS_PER_S;
}

static void verify_complete_or_partial(struct sim *s, const struct sim_config *c)
{
        check_accounts(s, c);
        check(dfm_counts(sim_dfm(s))->complete == c->events);
}

static void fragments_that_arrive(void **state)
{
        (void)state;
        each_seed(6, front_ends, verify_complete_or_partial);
}

/* Runs for a while, does something to the system, and runs to the end. */
static void disturb(unsigned seeds, void (*harm)(struct sim *), void (*verify)(struct sim *, const struct sim_config *))
{
        for (uint64_t seed = 1; seed <= seeds; seed++) {
                for (int push = 0; push < 2; push++) {
                        struct sim_config c = sim_standard();
                        struct sim *s;

                        seed_now = seed;
                        c.push = push;
                        c.events = 600;
                        c.timeout_ns = 200 * NS_PER_MS;
                        c.faults = (struct fault_config){.loss = seed % 2 ? 0.02 : 0, .seed = seed};
                        s = sim_now = sim_new(&c);
                        check(!sim_run(s, 30 * NS_PER_MS + seed * NS_PER_MS));
                        harm(s);
                        check(sim_run(s, FOREVER_NS));
                        verify(s, &c);
                        sim_free(s);
                }
        }
}

static void kill_sfi(struct sim *s)
{
        sim_kill(s, ROLE_SFI, 0);
}

static void verify_reassigned(struct sim *s, const struct sim_config *c)
{
        const struct dfm_counts *d = dfm_counts(sim_dfm(s));

        check_accounts(s, c);
        /* One SFI is left, so each event of the dead one is built there. */
        check(d->triggers == c->events && d->lost == 0);
}

static void a_killed_sfi_gives_its_events_back(void **state)
{
        (void)state;
        disturb(20, kill_sfi, verify_reassigned);
}

static void kill_both_sfis(struct sim *s)
{
        sim_kill(s, ROLE_SFI, 0);
        sim_kill(s, ROLE_SFI, 1);
        dfm_stop(sim_dfm(s), sim_now_ns(s));
}

static void without_any_sfi_the_run_ends(void **state)
{
        (void)state;
        disturb(10, kill_both_sfis, check_accounts);
}

static void restart_sfi(struct sim *s)
{
        sim_restart_sfi(s, 1);
}

static void an_sfi_that_begins_anew(void **state)
{
        (void)state;
        disturb(20, restart_sfi, verify_reassigned);
}

static void kill_ros(struct sim *s)
{
        sim_kill(s, ROLE_ROS, 3);
}

static void verify_quickly_partial(struct sim *s, const struct sim_config *c)
{
        check_accounts(s, c);
        check(dfm_counts(sim_dfm(s))->partial > 0 && dfm_counts(sim_dfm(s))->lost == 0);
        /* Once it is known to be gone, no event waits for it. */
        check(sim_now_ns(s) < 10 * NS_PER_S);
}

static void a_killed_ros_makes_events_partial(void **state)
{
        (void)state;
        disturb(20, kill_ros, verify_quickly_partial);
}

static void stop_dfm(struct sim *s)
{
        dfm_stop(sim_dfm(s), sim_now_ns(s));
}

static void verify_stopped(struct sim *s, const struct sim_config *c)
{
        const struct dfm_counts *d = dfm_counts(sim_dfm(s));

        check_accounts(s, c);
        check(d->triggers < c->events && d->complete == d->triggers);
}

static void stopping_finishes_what_is_open(void **state)
{
        (void)state;
        disturb(20, stop_dfm, verify_stopped);
}

static void stop_sfi(struct sim *s)
{
        sfi_stop(sim_sfi(s, 0), sim_now_ns(s));
}

static void an_sfi_that_leaves_loses_nothing(void **state)
{
        (void)state;
        disturb(20, stop_sfi, verify_reassigned);
}

static void fail_writes(struct sim *s)
{
        sim_fail_writes(s, 1);
}

static void verify_failed(struct sim *s, const struct sim_config *c)
{
        check_accounts(s, c);
        check(dfm_counts(sim_dfm(s))->triggers < c->events && dfm_counts(sim_dfm(s))->lost > 0);
}

static void a_write_error_ends_the_run(void **state)
{
        (void)state;
        disturb(20, fail_writes, verify_failed);
}

static void throw_rubbish(struct sim *s)
{
        uint8_t bytes[600];
        struct random random;

        random_init(&random, seed_now);
        for (int i = 0; i < 3000; i++) {
                struct message m = {.header = {.run = 77, .sender_role = (enum node_role)(1 + random_below(&random, 3)),
                                               .sender_index = (uint16_t)random_below(&random, 8), .transaction = (uint32_t)random_next(&random)}};
                static const uint32_t types[] = {MESSAGE_UPDATE_ACK, MESSAGE_TOTALS, MESSAGE_XON, MESSAGE_REQUEST};
                size_t n;

                /* Some are whole messages with odd values, some are noise. Types that can end a run are left out. */
                m.header.type = types[random_below(&random, ARRAY_SIZE(types))];
                m.update_ack.finished_ack = (uint32_t)random_next(&random);
                m.n = 0;
                if (m.header.type == MESSAGE_REQUEST) {
                        m.n = 1;
                        uint32_t event = (uint32_t)random_below(&random, 700);

                        m.request.entries[0] = (struct request_entry){
                                .event = event, .l1_id = event, .from_bytes = 32 * (uint32_t)random_below(&random, 100), .to_bytes = UINT32_MAX};
                }
                n = message_encode(&m, bytes, sizeof bytes);
                if (i % 2)
                        bytes[random_below(&random, n)] ^= (uint8_t)(1 + random_below(&random, 255));
                sim_inject(s, (enum node_role)(1 + i % 3), (uint32_t)(i % 2), bytes, random_below(&random, 10) ? n : n / 2);
        }
}

static void rubbish_changes_nothing(void **state)
{
        (void)state;
        disturb(10, throw_rubbish, check_accounts);
}

static void same_seed_same_run(void **state)
{
        uint64_t steps[2];

        (void)state;
        for (int i = 0; i < 2; i++) {
                struct sim_config c = sim_standard();
                struct sim *s;

                lose_5_and_more(&c, true);
                s = sim_now = sim_new(&c);
                assert_true(sim_run(s, FOREVER_NS));
                steps[i] = sim_steps(s) * 1000003 + sim_now_ns(s);
                sim_free(s);
        }
        assert_int_equal(steps[0], steps[1]);
}

static void large_system(void **state)
{
        (void)state;
        for (int push = 0; push < 2; push++) {
                struct sim_config c = sim_standard();
                struct sim *s;

                c.push = push;
                c.n_ros = 100;
                c.n_sfi = 20;
                c.events = 100;
                c.fragment_bytes = 200;
                c.faults = (struct fault_config){.loss = 0.01, .seed = 3};
                s = sim_now = sim_new(&c);
                check(sim_run(s, FOREVER_NS));
                check_all_complete(s, &c);
                sim_free(s);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(without_faults),
                cmocka_unit_test(with_2_percent_loss),
                cmocka_unit_test(with_5_percent_loss_reordering_duplication),
                cmocka_unit_test(with_20_percent_loss),
                cmocka_unit_test(without_re_asking_events_are_partial),
                cmocka_unit_test(small_buffers_are_slow_not_stuck),
                cmocka_unit_test(fragments_of_4_mib_with_loss),
                cmocka_unit_test(a_slow_writer_shows_as_busy),
                cmocka_unit_test(fragments_that_arrive),
                cmocka_unit_test(a_killed_sfi_gives_its_events_back),
                cmocka_unit_test(without_any_sfi_the_run_ends),
                cmocka_unit_test(an_sfi_that_begins_anew),
                cmocka_unit_test(a_killed_ros_makes_events_partial),
                cmocka_unit_test(stopping_finishes_what_is_open),
                cmocka_unit_test(an_sfi_that_leaves_loses_nothing),
                cmocka_unit_test(a_write_error_ends_the_run),
                cmocka_unit_test(rubbish_changes_nothing),
                cmocka_unit_test(same_seed_same_run),
                cmocka_unit_test(large_system),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
