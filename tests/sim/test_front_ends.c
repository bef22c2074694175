/* Boards whose frames carry the numbers of their triggers: they miss triggers, deliver late and restart, and
 * ROSs restart. No event has a fragment of another trigger, every frame is accounted for, and an event misses
 * only frames that did not reach its ROS. */
#include "scenes.h"

#define WAIT_NS (200 * NS_PER_MS) /* half of the SFI's timeout: see sim_nodes.c */

static struct sim_config with_boards(uint64_t seed, unsigned bits, bool push)
{
        struct sim_config c = sim_standard();

        c.n_ros = 4;
        c.push = push;
        c.events = 3000;
        c.fragment_bytes = 200;
        c.sfi_slots = 1024;
        c.timeout_ns = 2 * WAIT_NS;
        c.faults.seed = seed;
        c.boards = (struct sim_boards){
                .bits = bits,
                /* All counters wrap after 1,100 triggers. */
                .from = (int64_t)(UINT64_C(0) - 1100),
                .missed = 0.001,
                .late = 0.01,
                .late_ns = 50 * NS_PER_MS,
        };
        return c;
}

static void check_frames(struct sim *s, uint32_t ros)
{
        const struct ros_counts *c = ros_counts(sim_ros(s, ros));

        check(c->used + c->late + c->duplicate + c->impossible + c->dropped + c->left_over ==
              sim_frames(s, ros));
        check(c->dropped == 0);
}

/* Every event was built, from all fragments that reached their ROS. */
static void check_boards(struct sim *s, const struct sim_config *c)
{
        const struct dfm_counts *d = dfm_counts(sim_dfm(s));
        uint16_t all = (uint16_t)((1u << c->n_ros) - 1);

        check_accounts(s, c);
        check(d->triggers == c->events && d->reassigned == 0 && d->not_taken == 0);
        for (uint32_t i = 0; i < c->n_ros; i++) {
                check_frames(s, i);
                check(ros_counts(sim_ros(s, i))->restarts == (c->boards.forgets && i == 0));
        }
        for (uint32_t i = 0; i < c->n_sfi; i++)
                check(sfi_counts(sim_sfi(s, i)).mismatched == 0);
        for (uint64_t e = 0; e < c->events; e++) {
                const struct sim_event *event = sim_event(s, e);

                check(((event->present ^ all) & ~event->unsure) == (event->absent & ~event->unsure));
                check(event->complete == (event->present == all));
                check(event->complete + event->partial == (event->present != 0));
        }
}

typedef void (*disturb_fn)(struct sim *s, const struct sim_config *c);

/* Runs for many seeds, in push and pull, with counters of every width. */
static void each_width(unsigned seeds, void (*prepare)(struct sim_config *c), disturb_fn disturb)
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
                        check(sim_run(s, FOREVER_NS));
                        check_boards(s, &c);
                        /* Only the process that was replaced knew what it had read. */
                        check(dfm_view(sim_dfm(s), ROLE_ROS, 1).replaced == (disturb != NULL));
                        sim_free(s);
                }
        }
}

#define WIDTH_SCENE(name, seeds, disturb)                                                                    \
        SCENE_OF(each_width, name, (struct sim_config * c), seeds, name##_scene, disturb)

TEST(boards_miss_triggers_and_deliver_late)
{
        each_width(4, NULL, NULL);
}

/* Beside a network that loses and reorders packets. */
WIDTH_SCENE(boards_miss_many_triggers, 3, NULL)
{
        c->boards.missed = 0.05;
        c->boards.late = 0.05;
        c->faults = (struct fault_config){.loss = 0.01, .reorder = 0.05, .seed = c->faults.seed};
}

/* The board restarts, and then has the right number of the trigger. */
static void restart_a_board(struct sim_config *c)
{
        c->boards.dead_from = 300 + c->faults.seed * 97 % 2000;
        c->boards.dead_until = c->boards.dead_from + c->faults.seed * 31 % 300;
}

TEST(a_board_restarts_in_step)
{
        each_width(3, restart_a_board, NULL);
}

/* The board counts from 0 again, so its numbers differ from the triggers by `dead_until`. With fewer than
 * 256, the board would look like a good one. */
static void restart_and_forget(struct sim_config *c)
{
        restart_a_board(c);
        c->boards.dead_until = MAX(c->boards.dead_until, UINT64_C(400));
        c->boards.from = 0;
        c->boards.forgets = true;
}

TEST(a_board_restarts_and_counts_from_0)
{
        each_width(4, restart_and_forget, NULL);
}

/* The numbers that it missed are still open when it sends them for other triggers. */
WIDTH_SCENE(a_board_restarts_among_open_events, 4, NULL)
{
        c->boards.from = 0;
        c->boards.dead_from = 3 + c->faults.seed % 40;
        c->boards.dead_until = 300 + c->faults.seed * 31 % 400;
        c->boards.forgets = true;
}

/* Soon after the run began, the numbers of the new count are close to those of the triggers, and events
 * without their frames are open. */
static void forget_at_once(struct sim_config *c)
{
        c->boards.from = 0;
        c->boards.dead_from = 2 + c->faults.seed % 30;
        c->boards.dead_until = c->boards.dead_from + 1 + c->faults.seed * 31 % 40;
        c->boards.forgets = true;
}

TEST(a_board_restarts_at_once)
{
        each_width(4, forget_at_once, NULL);
}

/* At 50 Hz, events stop waiting before 16 frames of the new count have come. */
WIDTH_SCENE(a_slow_board_restarts_at_once, 6, NULL)
{
        forget_at_once(c);
        c->events = 200;
        c->rate_millihertz = 50000;
        c->boards.missed = 0.05;
        c->boards.late = 0;
        c->boards.dead_from = 4 + c->faults.seed % 5;
        c->boards.dead_until = c->boards.dead_from + 1 + c->faults.seed % 3;
}

/* The counters of the trigger and of all boards are reset, so that all are in step again. */
WIDTH_SCENE(a_reset_brings_a_board_back, 4, NULL)
{
        restart_and_forget(c);
        c->boards.from = (int64_t)(c->faults.seed % 3) - 1;
        c->boards.reset_at = 2500;
}

/* Frames that reached the killed process in its last 100 ms may be lost with it. Until the new one has
 * joined, SFIs request in vain, and may give up before their next retry. */
static void restart_a_ros(struct sim *s, const struct sim_config *c)
{
        uint64_t triggers;

        check(!sim_run(s, 100 * NS_PER_MS + c->faults.seed * 7919 % 300 * NS_PER_MS));
        triggers = dfm_counts(sim_dfm(s))->triggers;
        check_frames(s, 1);
        sim_lose_frames(s, 1, triggers - MIN(triggers, UINT64_C(500)), triggers + 600);
        sim_kill(s, ROLE_ROS, 1);
        (void)sim_run(s, sim_now_ns(s) + c->faults.seed % 50 * NS_PER_MS + 1);
        sim_restart_ros(s, 1);
}

TEST(a_ros_restarts)
{
        each_width(3, NULL, restart_a_ros);
}

/* The ROS of the first board is away for so long that events end without it. */
#define DIES_NS (100 * NS_PER_MS)
#define RETURNS_NS (350 * NS_PER_MS)

/* Frames come late, and wait until there is a connection. */
static void let_frames_wait(struct sim_config *c)
{
        c->boards.from = -1900; /* the board has not just begun to count */
        c->boards.late = c->faults.seed % 3 > 0;
        c->boards.late_ns = (1 + c->faults.seed * 7 % 48) * NS_PER_MS;
        c->boards.held_from_ns = RETURNS_NS - c->faults.seed % 5 * 50 * NS_PER_MS;
        c->boards.held_until_ns = RETURNS_NS + (1 + c->faults.seed % 4 * 15) * NS_PER_MS;
}

/* When it has joined, there come frames of such events, and of those that wait for it: it refuses none, and
 * the latter are complete. */
TEST(a_ros_that_was_away_refuses_no_frame)
{
        static const unsigned widths[] = {16, 24, 32, 64};
        FOR_SEEDS(seed, 12)
        {
                for (int k = 0; k < 8; k++) {
                        struct sim_config c = with_boards(seed, widths[k / 2], k % 2);
                        const struct ros_counts *r;
                        uint64_t joined;
                        struct sim *s;

                        let_frames_wait(&c);
                        s = sim_now = sim_new(&c);
                        check(!sim_run(s, DIES_NS));
                        sim_kill(s, ROLE_ROS, 0);
                        check(!sim_run(s, RETURNS_NS));
                        sim_restart_ros(s, 0);
                        check(!sim_run(s, RETURNS_NS + 20 * NS_PER_MS));
                        joined = dfm_counts(sim_dfm(s))->triggers;
                        check(joined < c.events);
                        check(sim_run(s, FOREVER_NS));
                        r = ros_counts(sim_ros(s, 0));
                        check_frames(s, 0);
                        check(r->restarts == 0 && r->impossible == 0 && r->duplicate == 0);
                        for (uint64_t e = joined; e < c.events; e++)
                                check((sim_event(s, e)->present | sim_event(s, e)->absent) == 15);
                        sim_free(s);
                }
        }
}

TEST(everything_at_once)
{
        each_width(3, restart_and_forget, restart_a_ros);
}

/* The trigger passes the wraps of 16 bits twice, and all counters are right again after each. */
static void long_run(struct sim_config *c)
{
        c->events = 140000;
        c->n_ros = 2;
        c->fragment_bytes = 20;
        c->rate_millihertz = 20000000;
        c->boards.late_ns = 10 * NS_PER_MS;
}

TEST(a_long_run_wraps_often)
{
        struct sim_config c = with_boards(1, 16, true);
        struct sim *s;

        long_run(&c);
        s = sim_now = sim_new(&c);
        check(sim_run(s, FOREVER_NS));
        check_boards(s, &c);
        sim_free(s);
}
