/* A whole system under virtual time: whatever the network and the nodes do, every trigger ends exactly once.
 * test_disturbed.c covers nodes that die, leave or restart. */
#include "scenes.h"

static void verify_quiet(struct sim *s, const struct sim_config *c)
{
        check_all_complete(s, c);
        check_empty(s, c);
        for (uint32_t i = 0; i < c->n_sfi; i++) {
                const struct sfi_counts k = sfi_counts(sim_sfi(s, i));

                check(k.retried == 0 && k.duplicate == 0 && k.late == 0 && k.no_room == 0 &&
                      k.datagrams_lost == 0);
        }
        for (uint32_t i = 0; i < c->n_ros; i++)
                check(ros_counts(sim_ros(s, i))->clear_gaps == 0);
}

TEST(without_faults)
{
        each_seed(20, NULL, verify_quiet);
}

/* So slow that fragments wait in the queue of their source a hundred times longer than at first. */
static void shape(struct sim_config *c, bool push)
{
        (void)push;
        c->shaped_bps = 10000000;
        c->rate_millihertz = 20000000;
        c->events = 300;
        c->timeout_ns = 20 * NS_PER_S;
}

TEST(fragments_queued_at_their_source_are_not_retried)
{
        each_seed(10, shape, verify_quiet);
}

SCENE(losses_among_queued_fragments_are_retried, 5, check_all_complete)
{
        shape(c, push);
        c->faults.loss = 0.02;
}

static void lose_2(struct sim_config *c, bool push)
{
        (void)push;
        c->faults.loss = 0.02;
}

static void lose_5_and_more(struct sim_config *c, bool push)
{
        (void)push;
        c->faults = (struct fault_config){
                .loss = 0.05, .reorder = 0.1, .duplicate = 0.05, .seed = c->faults.seed};
}

TEST(with_2_percent_loss)
{
        each_seed(60, lose_2, check_all_complete);
}

TEST(with_5_percent_loss_reordering_duplication)
{
        each_seed(60, lose_5_and_more, check_all_complete);
}

SCENE(with_20_percent_loss, 40, check_all_complete)
{
        c->faults =
                (struct fault_config){.loss = 0.2, .reorder = 0.1, .duplicate = 0.1, .seed = c->faults.seed};
        c->events = 100;
        c->timeout_ns = 20 * NS_PER_S;
}

/* For longer than all retries take, at their growing pauses. */
SCENE(events_survive_an_outage, 10, check_all_complete)
{
        c->retries_max = c->faults.seed % 2 ? 5 : UINT32_MAX;
        c->away_from_ns = 20 * NS_PER_MS;
        c->away_until_ns = 720 * NS_PER_MS;
}

static void verify_partial(struct sim *s, const struct sim_config *c)
{
        check_accounts(s, c);
        check(dfm_counts(sim_dfm(s))->partial > 0);
}

SCENE(without_retries_events_are_partial, 10, verify_partial)
{
        lose_5_and_more(c, push);
        c->retries_max = 0;
        c->timeout_ns = 100 * NS_PER_MS;
}

SCENE(small_buffers_are_slow_but_not_stuck, 6, check_all_complete)
{
        lose_2(c, push);
        c->sfi_buffer_bytes = 4u << 20;
        c->fragment_bytes = 300000;
        c->fixed = true;
        c->events = 20;
        c->mtu_bytes = 8972;
}

SCENE(fragments_of_4_mib_with_loss, 3, check_all_complete)
{
        c->faults.loss = 0.05;
        c->fragment_bytes = EVB_FRAGMENT_MAX_BYTES;
        c->fixed = true;
        c->n_ros = 2;
        c->n_sfi = 1;
        c->events = 2;
        c->sfi_buffer_bytes = 32u << 20;
}

static void verify_busy(struct sim *s, const struct sim_config *c)
{
        check_all_complete(s, c);
        check(dfm_counts(sim_dfm(s))->busy_ns > 0);
}

SCENE(a_slow_writer_makes_the_dfm_busy, 5, verify_busy)
{
        c->write_ns = NS_PER_MS;
        c->events = 1500;
}

static void verify_complete_or_partial(struct sim *s, const struct sim_config *c)
{
        check_accounts(s, c);
        check(dfm_counts(sim_dfm(s))->complete == c->events);
}

SCENE(fragments_arrive_from_front_ends, 6, verify_complete_or_partial)
{
        c->arriving = true;
        c->arrive_percent = 50 + (uint32_t)c->faults.seed % 3 * 50; /* slower, as fast, faster */
        c->timeout_ns = 20 * NS_PER_S;
}

/* Front-ends send as fast as they can, some later than others, into small buffers, while the disk stalls. */
SCENE(a_front_end_ahead_of_the_trigger_blocks_nothing, 8, check_all_complete)
{
        c->arriving = c->arrive_stream = true;
        c->arrive_percent = 1000;
        c->ros_entries = 200;
        c->events = 1500;
        c->timeout_ns = 20 * NS_PER_S;
        c->arrive_skew_ns = c->faults.seed % 2 * 20 * NS_PER_MS;
        if (c->faults.seed % 4 > 1) {
                c->stall_from_ns = 100 * NS_PER_MS;
                c->stall_until_ns = 900 * NS_PER_MS;
        }
        if (c->faults.seed % 8 > 3)
                c->rate_millihertz = 1000000000; /* not limited by the trigger */
}

TEST(the_same_seed_repeats_the_run)
{
        uint64_t steps[2];

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

TEST_EACH(a_large_system_runs, push, 2)
{
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
