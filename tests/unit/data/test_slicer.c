/* Slices of time: which frames are in which, when they close, overlap, late frames, and boards that begin
 * again. */
#include "../test.h"

#include <endian.h>

#include "evb/base/arena.h"
#include "evb/base/util.h"
#include "evb/data/slicer.h"

#define BUFFER_BYTES (16u << 20)
#define TICK_NS 10
#define SLICE_TICKS 100u

struct bench {
        struct slicer *slicer;
        struct ros *core;
        uint8_t *buffer;
        struct node_stats stats;
        uint64_t now_ns, frames, slices;
        uint64_t mask; /* of the board's counter */
};

#define COOKIE UINT64_C(0xC00C1E)

/* Slices of 1 us, which close 2 us after their end. */
static struct slicer_config standard(void)
{
        return (struct slicer_config){
                .slice_ns = SLICE_TICKS * TICK_NS,
                .window_ns = 2 * SLICE_TICKS * TICK_NS,
                .tick_ns = TICK_NS,
                .bits = 16,
                .frames_max = 100,
                .buffer_bytes = 8u << 20,
                .idle_max_ns = 20000,
        };
}

static void begin(struct bench *b, const struct slicer_config *config)
{
        struct ros_config c = {.member = {.incarnation = 9, .retry_ns = NS_PER_S},
                               .n_sfi = 1,
                               .entries = 4096,
                               .buffer_bytes = BUFFER_BYTES,
                               .number_bits = 32};
        static struct message m;
        struct message_to to;

        *b = (struct bench){
                .now_ns = NS_PER_S,
                .buffer = malloc(BUFFER_BYTES),
                .mask = config->bits < 64 ? (UINT64_C(1) << config->bits) - 1 : UINT64_MAX,
        };
        assert_int_equal(ros_new(&b->core, &c, b->now_ns), 0);
        assert_int_equal(slicer_new(&b->slicer, config), 0);
        assert_true(ros_step(b->core, b->now_ns, &to, &m));
        m = (struct message){
                .header = {.cookie = COOKIE, .sender_role = ROLE_DFM, .type = MESSAGE_WELCOME},
                .dfm = 1,
                .welcome = {.incarnation = 9, .run = 1},
        };
        assert_true(ros_receive(b->core, b->now_ns, &m));
}

static void end(struct bench *b)
{
        const struct slicer_counts *c = slicer_counts(b->slicer);

        assert_int_equal(c->frames, b->frames);
        assert_int_equal(c->frames, c->used + c->late + c->dropped + c->waiting);
        slicer_free(b->slicer);
        ros_free(b->core);
        free(b->buffer);
}

/* A frame of the board at this count, whose payload is its count. */
static enum ros_verdict comes(struct bench *b, uint64_t count)
{
        uint64_t counter = count & b->mask;
        uint8_t *to;
        enum ros_verdict verdict = slicer_arrive(b->slicer, &counter, sizeof count, &to);

        if (verdict == ROS_STORE)
                memcpy(to, &count, sizeof count);
        if (verdict == ROS_FULL)
                return verdict;
        slicer_commit(b->slicer, b->now_ns);
        b->frames++;
        return verdict;
}

static uint64_t slices(const struct bench *b)
{
        return b->slices;
}

static void delivers(struct bench *b, bool idle, bool full)
{
        b->slices += slicer_deliver(b->slicer, b->now_ns, idle, full, b->core, b->buffer, &b->stats);
}

static void requests(struct bench *b, uint64_t event, uint64_t slice)
{
        static struct message m;

        m = (struct message){.header = {.cookie = COOKIE, .sender_role = ROLE_SFI, .type = MESSAGE_REQUEST},
                             .n = 1};
        m.request.entries[0] =
                (struct request_entry){.event = event, .l1_id = (uint32_t)slice, .to_bytes = UINT32_MAX};
        assert_true(ros_receive(b->core, b->now_ns, &m));
}

/* The event ends, after its fragment has been sent if there was one. */
static void ends(struct bench *b, uint64_t event)
{
        static struct message m;
        struct ros_job job;

        if (ros_jobs(b->core, 0, &job, 1) == 1)
                ros_sent(b->core, 0, 1, 0);

        m = (struct message){
                .header = {.cookie = COOKIE, .sender_role = ROLE_DFM, .type = MESSAGE_CLEAR},
                .dfm = 1,
                .n = 1,
        };
        m.clear.events[0] = event;
        assert_true(ros_receive(b->core, b->now_ns, &m));
}

/* The fragment of the slice has these counts. */
static void assert_slice(struct bench *b, uint64_t slice, size_t n, const uint64_t *counts)
{
        static uint64_t event;
        struct ros_job job;

        requests(b, event++ % 1000, slice);
        assert_int_equal(ros_jobs(b->core, 0, &job, 1), 1);
        assert_int_equal(job.job.chunk.status, FRAGMENT_OK);
        assert_int_equal(job.job.chunk.fragment_bytes, 12 * n);
        for (size_t i = 0; i < n; i++) {
                const uint8_t *at = b->buffer + job.at + 12 * i;

                assert_int_equal(at[0], 8);
                assert_memory_equal(at + 4, &counts[i], 8);
        }
        ros_sent(b->core, 0, 1, 0);
}

#define COUNTS(...)                                                                                          \
        ARRAY_SIZE(((const uint64_t[]){__VA_ARGS__})), (const uint64_t[])                                    \
        {                                                                                                    \
                __VA_ARGS__                                                                                  \
        }

static void frames_of_a_slice_are_one_fragment(void **state)
{
        struct slicer_config c = standard();
        struct bench b;

        (void)state;
        begin(&b, &c);
        comes(&b, 510);
        comes(&b, 599);
        comes(&b, 600);
        comes(&b, 505); /* late, but its slice is open */
        comes(&b, 799);
        delivers(&b, false, false);
        assert_int_equal(slices(&b), 0);
        comes(&b, 800);
        delivers(&b, false, false);
        assert_int_equal(slices(&b), 1);
        assert_int_equal(comes(&b, 590), ROS_DISCARD);
        assert_int_equal(slicer_counts(b.slicer)->late, 1);
        comes(&b, 1250);
        delivers(&b, false, false);
        assert_int_equal(slices(&b), 5);
        assert_slice(&b, 5, COUNTS(510, 599, 505));
        assert_slice(&b, 6, COUNTS(600));
        assert_slice(&b, 7, COUNTS(799));
        assert_slice(&b, 8, COUNTS(800));
        assert_slice(&b, 9, 0, NULL);
        assert_int_equal(stats_get(&b.stats.slice_frames_used), 6);
        end(&b);
}

static void the_overlap_is_in_both(void **state)
{
        struct slicer_config c = standard();
        struct bench b;

        (void)state;
        c.overlap_ns = 20 * TICK_NS;
        begin(&b, &c);
        comes(&b, 579);
        comes(&b, 580);
        comes(&b, 599);
        comes(&b, 601);
        comes(&b, 1000);
        delivers(&b, false, false);
        assert_int_equal(slices(&b), 3);
        assert_slice(&b, 5, COUNTS(579, 580, 599));
        assert_slice(&b, 6, COUNTS(580, 599, 601));
        assert_slice(&b, 7, 0, NULL);
        assert_int_equal(slicer_counts(b.slicer)->copied, 2);
        end(&b);
}

static void a_quiet_board_has_empty_slices(void **state)
{
        struct slicer_config c = standard();
        struct bench b;

        (void)state;
        begin(&b, &c);
        delivers(&b, true, false);
        assert_true(slicer_deadline_ns(b.slicer) == UINT64_MAX);
        comes(&b, 550);
        /* The slice ends after 500 ns, and closes 2000 ns later. */
        assert_int_equal(slicer_deadline_ns(b.slicer), b.now_ns + 2500);
        b.now_ns += 2499;
        delivers(&b, true, false);
        assert_int_equal(slices(&b), 0);
        b.now_ns += 1;
        delivers(&b, false, false);
        assert_int_equal(slices(&b), 0);
        delivers(&b, true, false);
        assert_int_equal(slices(&b), 1);
        b.now_ns += 5000;
        delivers(&b, true, false);
        assert_int_equal(slices(&b), 6);
        /* After 20 us, the board may be dead. */
        b.now_ns += 50000;
        delivers(&b, true, false);
        assert_int_equal(slices(&b), 21);
        assert_true(slicer_deadline_ns(b.slicer) == UINT64_MAX);
        comes(&b, 550 + 6000);
        delivers(&b, true, false);
        assert_true(slices(&b) > 50);
        end(&b);
}

/* Events went on without it. It returns in step, without the empty slices that nobody waits for. */
static void a_silent_board_returns_in_step(void **state)
{
        struct slicer_config c = standard();
        struct bench b;

        (void)state;
        begin(&b, &c);
        comes(&b, 550);
        b.now_ns += 100000;
        delivers(&b, true, false);
        assert_int_equal(slices(&b), 21);
        for (uint64_t event = 0; event < 56; event++)
                requests(&b, event, 5 + event);
        for (uint64_t event = 0; event < 56; event++)
                ends(&b, event);
        comes(&b, 6550);
        delivers(&b, false, false);
        assert_int_equal(slices(&b), 23);
        assert_int_equal(ros_counts(b.core)->late, 0);
        assert_int_equal(ros_counts(b.core)->restarts, 0);
        comes(&b, 6850);
        delivers(&b, false, false);
        requests(&b, 56, 65);
        ends(&b, 56);
        assert_int_equal(ros_counts(b.core)->used, 22);
        end(&b);
}

/* It returns after more slices than can be open. */
static void a_board_may_be_silent_for_long(void **state)
{
        struct slicer_config c = standard();
        struct bench b;

        (void)state;
        c.bits = 32;
        begin(&b, &c);
        comes(&b, 550);
        delivers(&b, true, false);
        /* A damaged time: no such time has passed. */
        assert_int_equal(comes(&b, 550 + 1200000000), ROS_DISCARD);
        b.now_ns += 500 * NS_PER_MS;
        delivers(&b, true, false);
        assert_int_equal(slices(&b), 21);
        assert_int_equal(comes(&b, 550 + 50000000), ROS_STORE);
        assert_int_equal(comes(&b, 850 + 50000000), ROS_STORE);
        delivers(&b, false, false);
        assert_slice(&b, 500005, COUNTS(550 + 50000000));
        assert_int_equal(slicer_counts(b.slicer)->late, 1);
        assert_int_equal(slicer_counts(b.slicer)->restarts, 0);
        end(&b);
}

/* Events wait for its frames for a shorter time than slices do: what it has sent is closed nevertheless. */
static void a_quiet_board_has_its_last_slice(void **state)
{
        struct slicer_config c = standard();
        struct bench b;

        (void)state;
        c.idle_max_ns = 500;
        begin(&b, &c);
        comes(&b, 550);
        assert_int_equal(slicer_deadline_ns(b.slicer), b.now_ns + 2500);
        b.now_ns += 2500;
        delivers(&b, true, false);
        assert_int_equal(slices(&b), 1);
        assert_slice(&b, 5, COUNTS(550));
        end(&b);
}

static void times_wrap(void **state)
{
        struct slicer_config c = standard();
        struct bench b;

        (void)state;
        begin(&b, &c);
        comes(&b, 65510);
        comes(&b, 65550);
        comes(&b, 65600);
        comes(&b, 65900);
        delivers(&b, false, false);
        assert_int_equal(slices(&b), 2);
        assert_slice(&b, 655, COUNTS(65510, 65550));
        assert_slice(&b, 656, COUNTS(65600));
        end(&b);
}

static void a_full_slicer_closes_slices_early(void **state)
{
        struct slicer_config c = standard();
        struct bench b;

        (void)state;
        c.frames_max = 3;
        begin(&b, &c);
        comes(&b, 510);
        comes(&b, 520);
        comes(&b, 610);
        assert_int_equal(comes(&b, 620), ROS_FULL);
        delivers(&b, false, true);
        assert_int_equal(slices(&b), 1);
        assert_int_equal(comes(&b, 620), ROS_STORE);
        assert_int_equal(comes(&b, 530), ROS_DISCARD);
        assert_slice(&b, 5, COUNTS(510, 520));
        end(&b);
}

static void a_board_that_begins_again_opens_other_slices(void **state)
{
        struct slicer_config c = standard();
        struct bench b;

        (void)state;
        c.bits = 32;
        begin(&b, &c);
        comes(&b, 50010);
        for (uint64_t k = 0; k < 63; k++)
                assert_int_equal(comes(&b, k), ROS_DISCARD);
        assert_int_equal(comes(&b, 63), ROS_STORE);
        assert_int_equal(slicer_counts(b.slicer)->restarts, 1);
        assert_int_equal(slicer_counts(b.slicer)->late, 63);
        assert_int_equal(slicer_counts(b.slicer)->dropped, 1);
        comes(&b, 300);
        delivers(&b, false, false);
        assert_slice(&b, 0, COUNTS(63));
        end(&b);
}

static void broken_frames_are_counted(void **state)
{
        struct slicer_config c = standard();
        uint64_t counter = 510;
        struct bench b;
        uint8_t *to;

        (void)state;
        begin(&b, &c);
        assert_int_equal(slicer_arrive(b.slicer, NULL, 3, &to), ROS_DISCARD);
        slicer_commit(b.slicer, b.now_ns);
        assert_int_equal(slicer_arrive(b.slicer, &counter, 3, &to), ROS_STORE);
        slicer_skip(b.slicer);
        assert_int_equal(slicer_arrive(b.slicer, &counter, EVB_FRAGMENT_MAX_BYTES, &to), ROS_DISCARD);
        slicer_skip(b.slicer);
        b.frames = 3;
        assert_int_equal(slicer_counts(b.slicer)->dropped, 3);
        end(&b);
}

/* A damaged time: slices of the present stay open. */
static void a_board_may_leap_once(void **state)
{
        struct slicer_config c = standard();
        struct bench b;

        (void)state;
        c.bits = 64;
        c.slice_ns = NS_PER_MS;
        c.window_ns = 2 * NS_PER_MS;
        c.tick_ns = 1000;
        begin(&b, &c);
        comes(&b, 5500);
        assert_int_equal(comes(&b, 10005500), ROS_STORE);
        delivers(&b, false, false);
        assert_int_equal(slices(&b), 0);
        assert_int_equal(comes(&b, 5600), ROS_STORE);
        comes(&b, 8000);
        delivers(&b, false, false);
        assert_int_equal(slices(&b), 1);
        assert_slice(&b, 5, COUNTS(5500, 5600));
        /* The board goes on from there. */
        comes(&b, 20000000);
        delivers(&b, false, false);
        assert_int_equal(slices(&b), 1);
        comes(&b, 20000010);
        delivers(&b, false, false);
        assert_true(slices(&b) > 1000);
        end(&b);
        /* The clock agrees. */
        begin(&b, &c);
        comes(&b, 5500);
        b.now_ns += 10 * NS_PER_S;
        comes(&b, 10005500);
        delivers(&b, false, false);
        assert_true(slices(&b) > 1000);
        end(&b);
}

/* The frame with which it begins again is too long. */
static void times_wrap_after_a_restart(void **state)
{
        struct slicer_config c = standard();
        uint64_t counter = 199100 & 0xffff;
        struct bench b;
        uint8_t *to;

        (void)state;
        begin(&b, &c);
        for (uint64_t count = 0; count < 210000; count += 10000) {
                comes(&b, count);
                delivers(&b, false, false);
        }
        for (uint64_t k = 0; k < 63; k++)
                assert_int_equal(comes(&b, 199000 + k), ROS_DISCARD);
        assert_int_equal(slicer_arrive(b.slicer, &counter, EVB_FRAGMENT_MAX_BYTES, &to), ROS_DISCARD);
        slicer_commit(b.slicer, b.now_ns);
        b.frames++;
        assert_int_equal(slicer_counts(b.slicer)->restarts, 1);
        assert_int_equal(comes(&b, 200010), ROS_STORE);
        assert_int_equal(slicer_counts(b.slicer)->late, 63);
        end(&b);
}

/* A board may mark a time that it does not know in this way. */
static void impossible_times_open_no_slice(void **state)
{
        struct slicer_config c = standard();
        struct bench b;

        (void)state;
        c.bits = 64;
        begin(&b, &c);
        assert_int_equal(comes(&b, UINT64_MAX), ROS_DISCARD);
        assert_int_equal(comes(&b, UINT64_MAX / TICK_NS), ROS_DISCARD);
        delivers(&b, true, false);
        assert_int_equal(slices(&b), 0);
        assert_int_equal(comes(&b, 510), ROS_STORE);
        assert_int_equal(comes(&b, UINT64_MAX), ROS_DISCARD);
        assert_int_equal(slicer_counts(b.slicer)->dropped, 3);
        comes(&b, 800);
        delivers(&b, false, false);
        assert_slice(&b, 5, COUNTS(510));
        end(&b);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(frames_of_a_slice_are_one_fragment),
                cmocka_unit_test(the_overlap_is_in_both),
                cmocka_unit_test(a_quiet_board_has_empty_slices),
                cmocka_unit_test(a_silent_board_returns_in_step),
                cmocka_unit_test(a_board_may_be_silent_for_long),
                cmocka_unit_test(a_quiet_board_has_its_last_slice),
                cmocka_unit_test(times_wrap),
                cmocka_unit_test(a_full_slicer_closes_slices_early),
                cmocka_unit_test(a_board_that_begins_again_opens_other_slices),
                cmocka_unit_test(broken_frames_are_counted),
                cmocka_unit_test(a_board_may_leap_once),
                cmocka_unit_test(times_wrap_after_a_restart),
                cmocka_unit_test(impossible_times_open_no_slice),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
