/* Boards without a trigger box: the numbers of their frames make the events. Each number becomes one event,
 * with all fragments that reached their ROS, whatever boards and network do; no event mixes triggers. */
#include "scenes.h"

#define WAIT_NS (200 * NS_PER_MS) /* half of the SFI's timeout: see sim_nodes.c */

static struct sim_config with_boards(uint64_t seed, unsigned bits, bool push)
{
        struct sim_config c = sim_standard();

        c.n_ros = 4;
        c.push = push;
        c.events = 1500;
        c.fragment_bytes = 200;
        c.sfi_slots = 1024;
        c.timeout_ns = 2 * WAIT_NS;
        c.faults.seed = seed;
        c.boards = (struct sim_boards){
                .bits = bits,
                .free = c.events,
                .first_ns = seed % 4 * 5 * NS_PER_MS,
                /* 16 bits wrap after 500 triggers. */
                .first = 65036,
                .window_ns = seed % 3 ? 20 * NS_PER_MS : 100 * NS_PER_MS,
        };
        return c;
}

/* Runs until all frames have come and their events have ended, and then stops the run. */
static void finish(struct sim *s, const struct sim_config *c)
{
        uint64_t period_ns = UINT64_C(1000000000000) / c->rate_millihertz;
        const struct dfm_counts *d;

        check(!sim_run(s, c->boards.first_ns + c->boards.pause_ns + c->events * period_ns + 4 * NS_PER_S));
        dfm_stop(sim_dfm(s), sim_now_ns(s));
        sim_inject(s, ROLE_DFM, 0, "wake", 4);
        check(sim_run(s, FOREVER_NS));
        check_accounts(s, c);
        d = dfm_counts(sim_dfm(s));
        check(d->announced.numbers == d->offered.triggers + d->announced.confirmed + d->announced.late);
        check(dfm_announced_waiting(sim_dfm(s)) == 0 && dfm_waiting(sim_dfm(s)) == 0);
        check(d->offered.refused == 0 && d->offered.repeated == 0);
        for (uint32_t i = 0; i < c->n_sfi; i++)
                check(sfi_counts(sim_sfi(s, i)).mismatched == 0);
        for (uint32_t i = 0; i < c->n_ros; i++) {
                const struct ros_counts *r = ros_counts(sim_ros(s, i));

                check(r->used + r->late + r->duplicate + r->impossible + r->dropped + r->left_over ==
                      sim_frames(s, i));
                check(r->dropped == 0);
        }
}

/* The events of these triggers were built once, from what reached the ROSs. */
static void check_built(struct sim *s, const struct sim_config *c, uint64_t from, uint64_t until)
{
        uint16_t all = (uint16_t)((1u << c->n_ros) - 1);

        for (uint64_t k = from; k < until; k++) {
                const struct sim_event *event = sim_event(s, k);

                check(((event->present ^ all) & ~event->unsure) == (event->absent & ~event->unsure));
                check(event->complete == (event->present == all));
                check(event->complete + event->partial == (event->present != 0));
        }
}

static void check_all_built(struct sim *s, const struct sim_config *c)
{
        uint64_t built = 0;

        check_built(s, c, 0, c->events);
        for (uint64_t k = 0; k < c->events; k++)
                built += sim_event(s, k)->present != 0;
        check(dfm_counts(sim_dfm(s))->triggers == built);
}

typedef void (*disturb_fn)(struct sim *s, const struct sim_config *c);

/* Runs for many seeds, in push and pull, with counters of every width. */
static void each_width(unsigned seeds, void (*prepare)(struct sim_config *c), disturb_fn disturb,
                       disturb_fn verify)
{
        static const unsigned widths[] = {16, 24, 32, 64};
        FOR_SEEDS(seed, seeds)
        {
                for (int k = 0; k < 8; k++) {
                        struct sim_config c = with_boards(seed, widths[k / 2], k % 2);
                        struct sim *s;

                        if (prepare)
                                prepare(&c);
                        s = sim_now = sim_new(&c);
                        if (disturb)
                                disturb(s, &c);
                        finish(s, &c);
                        verify(s, &c);
                        sim_free(s);
                }
        }
}

#define WIDTH_SCENE(name, seeds, disturb, verify)                                                            \
        SCENE_OF(each_width, name, (struct sim_config * c), seeds, name##_scene, disturb, verify)

static void check_complete(struct sim *s, const struct sim_config *c)
{
        const struct dfm_counts *d = dfm_counts(sim_dfm(s));

        check_all_built(s, c);
        check(d->complete == c->events && d->offered.not_taken == 0 && d->announced.late == 0);
}

TEST(every_number_is_an_event)
{
        each_width(2, NULL, NULL, check_complete);
}

static void lossy(struct sim_config *c)
{
        c->boards.missed = 0.01;
        c->boards.late = 0.02;
        c->boards.late_ns = 50 * NS_PER_MS;
        c->faults = (struct fault_config){
                .loss = 0.02, .reorder = 0.05, .duplicate = 0.02, .seed = c->faults.seed};
}

TEST(boards_miss_triggers_and_the_network_loses)
{
        each_width(3, lossy, NULL, check_all_built);
}

static void check_ragged(struct sim *s, const struct sim_config *c)
{
        uint64_t first = (c->n_ros - 1) * c->boards.ragged;

        check_built(s, c, first, c->events);
        check(dfm_counts(sim_dfm(s))->triggers == c->events - first);
        check(dfm_counts(sim_dfm(s))->offered.not_taken == first);
        check(dfm_counts(sim_dfm(s))->partial == 0);
}

/* Board i sends nothing for the first triggers: the run begins with the first one that all have. */
WIDTH_SCENE(the_run_begins_with_all_boards, 2, NULL, check_ragged)
{
        c->boards.ragged = 1 + c->faults.seed % 5;
        c->boards.window_ns = 100 * NS_PER_MS;
}

/* The first board is dead for a while, and then has the right number of the trigger. A counter of 16 bits
 * must not miss 256 numbers more than its ROS has received. */
static void restart_a_board(struct sim_config *c)
{
        lossy(c);
        c->boards.window_ns = 10 * NS_PER_MS;
        c->boards.dead_from = 300 + c->faults.seed * 97 % 600;
        c->boards.dead_until = c->boards.dead_from + c->faults.seed * 31 % 150;
}

TEST(a_board_restarts_in_step)
{
        each_width(2, restart_a_board, NULL, check_all_built);
}

static void check_without_first_board(struct sim *s, const struct sim_config *c)
{
        check_all_built(s, c);
        check(ros_counts(sim_ros(s, 0))->restarts == 1);
        check(dfm_counts(sim_dfm(s))->offered.resets == 0);
}

/* It counts from 0 again: its frames are refused, and the others make the events. With fewer than 256
 * triggers between the two counts, the board would look like a good one. */
WIDTH_SCENE(a_board_restarts_and_counts_from_0, 2, NULL, check_without_first_board)
{
        restart_a_board(c);
        c->boards.dead_until = MAX(c->boards.dead_until, UINT64_C(700));
        c->boards.forgets = true;
        c->boards.first = 0;
}

static void check_reset(struct sim *s, const struct sim_config *c)
{
        const struct dfm_counts *d = dfm_counts(sim_dfm(s));

        check(d->offered.resets == 1);
        check_built(s, c, 0, c->boards.reset_at);
        /* 16 frames of each board, and those that came until all events had ended. */
        for (uint64_t k = c->boards.reset_at; k < c->events; k++)
                check(sim_event(s, k)->complete + sim_event(s, k)->partial <= 1);
        check_built(s, c, c->boards.reset_at + 150, c->events);
}

/* All counters begin again after a pause, and the run continues once all ROSs have noticed. */
WIDTH_SCENE(all_boards_reset, 3, NULL, check_reset)
{
        c->boards.missed = 0.01;
        c->boards.reset_at = 700;
        c->boards.pause_ns = 300 * NS_PER_MS;
        c->faults = (struct fault_config){.loss = 0.01, .seed = c->faults.seed};
}

static void check_wrong_numbers(struct sim *s, const struct sim_config *c)
{
        for (uint64_t k = 0; k < c->events; k++) {
                const struct sim_event *event = sim_event(s, k);

                check((event->present | 1) == 15);
                check(event->complete + event->partial == 1);
        }
        check(dfm_counts(sim_dfm(s))->triggers <= c->events + 64);
}

/* Frames of the first board carry numbers that are far ahead: they cost that board's frames only. */
WIDTH_SCENE(a_board_lies, 2, NULL, check_wrong_numbers)
{
        c->boards.lies_at = 400 + c->faults.seed * 131 % 500;
}

static void lead(struct sim_config *c)
{
        c->boards.missed = 0.05;
        c->boards.leader = 1 + c->faults.seed % c->n_ros;
        c->faults = (struct fault_config){.loss = 0.01, .seed = c->faults.seed};
}

static void check_led(struct sim *s, const struct sim_config *c)
{
        uint16_t leader = (uint16_t)(1u << (c->boards.leader - 1)), all = (uint16_t)((1u << c->n_ros) - 1);

        for (uint64_t k = 0; k < c->events; k++) {
                const struct sim_event *event = sim_event(s, k);

                check(event->present == (event->absent & leader ? 0 : all & ~event->absent));
                check(event->complete + event->partial == (event->present != 0));
        }
}

TEST(one_ros_leads)
{
        each_width(2, lead, NULL, check_led);
}

/* The leader's board is dead for a while: frames of the others are left over, and the run continues after
 * that. */
WIDTH_SCENE(a_leader_dies, 2, NULL, check_led)
{
        lead(c);
        c->boards.leader = 1;
        c->boards.dead_from = 300 + c->faults.seed * 97 % 600;
        c->boards.dead_until = c->boards.dead_from + 1 + c->faults.seed * 31 % 150;
}

/* The SFIs stall, and the ROSs' buffers fill: boards wait, and nothing is lost. */
WIDTH_SCENE(frames_wait_for_slow_sfis, 1, NULL, check_complete)
{
        c->arrive_stream = true;
        c->ros_entries = 200;
        c->sfi_credits = 50;
        c->stall_from_ns = 50 * NS_PER_MS;
        c->stall_until_ns = 300 * NS_PER_MS;
        c->timeout_ns = NS_PER_S;
}

static void restart_a_ros(struct sim *s, const struct sim_config *c)
{
        uint64_t period_ns = UINT64_C(1000000000000) / c->rate_millihertz, at_ns, k;

        at_ns = 100 * NS_PER_MS + c->faults.seed * 7919 % 200 * NS_PER_MS;
        check(!sim_run(s, at_ns));
        k = (at_ns - c->boards.first_ns) / period_ns;
        sim_lose_frames(s, 1, k - MIN(k, UINT64_C(600)), MIN(k + 800, c->events));
        sim_kill(s, ROLE_ROS, 1);
        (void)sim_run(s, sim_now_ns(s) + c->faults.seed % 50 * NS_PER_MS + 1);
        sim_restart_ros(s, 1);
}

TEST(a_ros_restarts)
{
        each_width(3, lossy, restart_a_ros, check_all_built);
}

static void restart_the_dfm(struct sim *s, const struct sim_config *c)
{
        check(!sim_run(s, 100 * NS_PER_MS + c->faults.seed * 7919 % 200 * NS_PER_MS));
        sim_kill(s, ROLE_DFM, 0);
        (void)sim_run(s, sim_now_ns(s) + c->faults.seed % 50 * NS_PER_MS + 1);
        sim_restart_dfm(s);
}

/* Triggers that the previous DFM had accepted and no SFI had are lost; a number that only SFIs have may be
 * accepted twice, but its frames are used once. */
static void check_resumed(struct sim *s, const struct sim_config *c)
{
        uint64_t missing = 0, again = 0;

        for (uint64_t k = 0; k < c->events; k++) {
                const struct sim_event *event = sim_event(s, k);

                missing += event->complete == 0;
                again += event->complete + event->partial > 1;
                check(event->complete <= 1);
        }
        check(missing <= 100 && again <= 100);
        check_built(s, c, c->events - 300, c->events);
}

TEST(the_dfm_restarts)
{
        each_width(4, NULL, restart_the_dfm, check_resumed);
}

/* A frame is in an event, or the ROS counts that it is in none. An event that no SFI had is lost. */
static void check_late(struct sim *s, const struct sim_config *c)
{
        const struct dfm_counts *d = dfm_counts(sim_dfm(s));
        const struct ros_counts *r = ros_counts(sim_ros(s, 0));

        (void)c;
        check(d->offered.unclear == 0 && d->offered.missed == 0 && d->announced.late == 0);
        check(d->complete == r->used && d->complete + d->lost == d->triggers);
        check(r->left_over + r->late - r->no_event <= d->lost);
}

/* A frame may be late by as long as no DFM runs. */
WIDTH_SCENE(late_frames_come_under_another_dfm, 10, restart_the_dfm, check_late)
{
        c->records = true;
        c->n_ros = 1;
        c->boards.missed = 0.01;
        c->boards.late = 0.05;
        c->boards.late_ns = 40 * NS_PER_MS;
}
