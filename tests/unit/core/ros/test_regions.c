/* Fragments for level-2 clients: whatever they request, the building does not notice. */
#include "numbered_driver.h"

static struct ros_config with_regions(void)
{
        struct ros_config c = ros_standard();

        c.regions = true;
        return c;
}

static struct ros_config counted(void)
{
        struct ros_config c = with_regions();

        c.describe = NULL;
        return c;
}

static struct ros_config with_numbers(void)
{
        struct ros_config c = numbered(16);

        c.regions = c.level2 = true;
        return c;
}

static struct ros_config with_narrow_numbers(void)
{
        struct ros_config c = with_numbers();

        c.number_period = number_period(8);
        return c;
}

#define REGIONS_TEST(name, config) ROS_TEST_AS(name, config, ros_driver_init(t, &c))

static void request_part(struct ros_driver *t, uint32_t client, uint64_t event, uint32_t l1_id, uint32_t from,
                         uint32_t to)
{
        assert_true(ros_region_has_room(t->ros, client));
        ros_region_request(
                t->ros, t->now_ns, client, t->client_resets,
                &(struct request_entry){.event = event, .l1_id = l1_id, .from_bytes = from, .to_bytes = to});
}

static void request(struct ros_driver *t, uint32_t client, uint64_t event)
{
        request_part(t, client, event, (uint32_t)event, 0, UINT32_MAX);
}

static const char *answers(struct ros_driver *t, uint32_t client)
{
        struct ros_job job;

        trace_clear(&t->trace);
        while (ros_region_answer(t->ros, client, &job)) {
                trace_job(&t->trace, &job);
                assert_int_equal(job.entry, UINT32_MAX);
        }
        assert_false(ros_region_is_ready(t->ros, client));
        return t->trace.text;
}

#define assert_answers(t, client, expected) assert_string_equal(answers(t, client), expected)

REGIONS_TEST(a_fragment_is_made_without_a_place, with_regions())
{
        request(t, 0, 3);
        request(t, 15, 4);
        request_part(t, 0, 5, 5, 64, 200);
        assert_answers(t, 0, "e3 fill | e5 fill");
        assert_answers(t, 15, "e4 fill");
        assert_int_equal(ros_region_counts(t->ros)->sent_bytes, 1000 + 1000 + 128);
        assert_int_equal(ros_held(t->ros), 0);
        assert_ros_says(t, "");
}

REGIONS_TEST(a_decided_event_is_gone, with_regions())
{
        ros_gets_assign(t, 1, 0, 0);
        ros_gets_request(t, 1, 2, 0);
        ros_gets_clear(t, 3);
        ros_gets_keep_alive(t, RUN_RUNNING, 1, 7);
        for (uint64_t event = 0; event < 5; event++)
                request(t, 0, event);
        assert_answers(t, 0, "e0 discarded | e1 discarded | e2 discarded | e3 discarded | e4 fill");
        /* Also when it ends before the answer is taken, and when its fragment was released. */
        request(t, 0, 4);
        ros_gets_clear(t, 4);
        ros_gets_clear(t, 1);
        request(t, 0, 1);
        assert_answers(t, 0, "e4 discarded | e1 discarded");
        assert_int_equal(ros_region_counts(t->ros)->gone, 6);
}

REGIONS_TEST(what_cannot_exist_is_refused, with_regions())
{
        request(t, 0, EVB_EVENT_WINDOW);
        request(t, 0, UINT64_MAX - 1);
        request_part(t, 0, 1, 1, 1024, UINT32_MAX);
        request_part(t, 0, 1, 1, 32, 32);
        assert_answers(t, 0, "e4194304 lost | e18446744073709551614 lost | e1 lost | e1 lost");
        assert_int_equal(ros_region_counts(t->ros)->refused, 4);
        /* The ROS learned nothing from it. */
        ros_gets_request(t, 0, EVB_EVENT_WINDOW, 0);
        assert_int_equal(ros_counts(t->ros)->implausible, 1);
}

REGIONS_TEST(a_frame_is_answered_when_it_comes, counted())
{
        struct ros_fragment f = {.bytes = 1000};
        uint64_t at;

        request(t, 0, 0);
        request(t, 1, 0);
        request(t, 0, 1);
        assert_answers(t, 0, "");
        assert_answers(t, 1, "");
        assert_int_equal(ros_held(t->ros), 0);
        assert_int_equal(ros_arrive(t->ros, NULL, &f, &at), ROS_STORE);
        assert_answers(t, 0, "");
        ros_commit(t->ros);
        assert_answers(t, 0, "e0[0,1000)");
        assert_answers(t, 1, "e0[0,1000)");
        ros_skip(t->ros, 1);
        assert_answers(t, 0, "e1 lost");
        request(t, 0, 1);
        assert_answers(t, 0, "e1 lost");
        /* Requests do not count as triggers. */
        for (int i = 0; i < 2; i++)
                ros_expire(t->ros, t->now_ns);
        assert_int_equal(ros_hungry_since_ns(t->ros), 0);
        assert_int_equal(ros_region_counts(t->ros)->absent, 2);
}

REGIONS_TEST(a_frame_that_does_not_come_is_absent, counted())
{
        t->now_ns += 10 * NS_PER_MS;
        request(t, 0, 0);
        t->now_ns += 10 * NS_PER_MS;
        request(t, 0, 1);
        request(t, 0, 2);
        assert_answers(t, 0, "");
        t->now_ns += 60 * NS_PER_S; /* the process is suspended, and has not read what arrived since */
        ros_was_paused(t->ros, t->now_ns, 60 * NS_PER_S);
        t->now_ns += c.wait_ns - 10 * NS_PER_MS - 1;
        ros_expire(t->ros, t->now_ns);
        assert_answers(t, 0, "");
        (void)ros_says(t);
        assert_int_equal(ros_deadline_ns(t->ros), t->now_ns + 1);
        ros_expire(t->ros, ++t->now_ns);
        assert_answers(t, 0, "e0 pending");
        /* Unless its event ends before: by a Clear, or by KeepAlive alone. */
        ros_gets_clear(t, 2);
        assert_answers(t, 0, "e2 discarded");
        ros_gets_keep_alive(t, RUN_RUNNING, 2, 7);
        assert_answers(t, 0, "e1 discarded");
}

REGIONS_TEST(an_event_that_is_built_is_not_waited_for, counted())
{
        request(t, 0, 0);
        assert_answers(t, 0, "");
        ros_gets_assign(t, 0, 1, 0);
        assert_answers(t, 0, "e0 discarded");
}

REGIONS_TEST(numbers_find_the_frame, with_numbers())
{
        frames_come(t, 100, 3);
        request_part(t, 0, 1, 101, 0, UINT32_MAX);
        request_part(t, 0, 3, 103, 0, UINT32_MAX);
        assert_answers(t, 0, "e1[0,1000)");
        frame_comes(t, 103);
        assert_answers(t, 0, "e3[0,1000)");
        /* A rejected event: its frame is gone, and one that still comes is not sent. */
        t->message.n = 2;
        t->message.clear.oldest = 0;
        t->message.clear.with_l1_ids = true;
        t->message.clear.resets = 0;
        for (uint32_t i = 0; i < 2; i++) {
                t->message.clear.events[i] = i == 0 ? 1 : 5;
                t->message.clear.l1_ids[i] = i == 0 ? 101 : 105;
        }
        request_part(t, 0, 5, 105, 0, UINT32_MAX);
        assert_answers(t, 0, "");
        assert_true(to_ros(t, ROLE_DFM, 0, MESSAGE_CLEAR, 0));
        request_part(t, 0, 1, 101, 0, UINT32_MAX);
        assert_answers(t, 0, "e5 discarded | e1 discarded");
        assert_int_equal(ros_counts(t->ros)->used, 1);
}

/* Before the first trigger, a narrow counter does not show the whole number. */
REGIONS_TEST(an_answer_has_the_l1_id_of_its_request, with_narrow_numbers())
{
        struct ros_job job;

        frames_come(t, 64, 2);
        request_part(t, 0, 0, 320, 0, UINT32_MAX);
        assert_true(ros_region_answer(t->ros, 0, &job));
        assert_int_equal(job.job.chunk.fragment_bytes, 1000);
        assert_int_equal(job.job.chunk.l1_id, 320);
        trigger(t, 0, 320);
        request_part(t, 0, 1, 321, 0, UINT32_MAX);
        assert_true(ros_region_answer(t->ros, 0, &job));
        assert_int_equal(job.job.chunk.fragment_bytes, 1000);
        assert_int_equal(job.job.chunk.l1_id, 321);
}

static void follows(struct ros_driver *t, uint32_t resets, uint64_t oldest)
{
        t->resets = resets;
        ros_gets_keep_alive(t, RUN_RUNNING, oldest, 7);
}

/* This ROS was cut off during a reset: its frames have the numbers of other triggers. */
REGIONS_TEST(a_request_waits_for_the_reset_before_its_trigger, with_numbers())
{
        follows(t, 1, 0);
        triggers_and_frames(t, 3);
        frames_come(t, 3, 7);
        t->client_resets = 2;
        request_part(t, 0, 10, 5, 0, UINT32_MAX);
        request_part(t, 0, 11, 6, 0, UINT32_MAX);
        assert_answers(t, 0, "");
        t->client_resets = 0; /* a client of an earlier version */
        request_part(t, 1, 8, 20, 0, UINT32_MAX);
        request_part(t, 1, 12, 20, 0, UINT32_MAX);
        frame_comes(t, 10);
        follows(t, 2, 10);
        assert_answers(t, 0, "");
        assert_answers(t, 1, "e8 discarded");
        frames_come(t, 0, 6);
        assert_answers(t, 0, "e10[0,1000)");
        frames_come(t, 6, 15);
        assert_answers(t, 0, "e11[0,1000)");
        assert_answers(t, 1, "e12[0,1000)");
        t->client_resets = 1;
        request_part(t, 0, 13, 8, 0, UINT32_MAX);
        assert_answers(t, 0, "e13 discarded");
}

REGIONS_TEST(a_request_does_not_wait_for_ever_for_a_reset, with_numbers())
{
        follows(t, 1, 0);
        t->client_resets = 3;
        request_part(t, 0, 4, 4, 0, UINT32_MAX);
        request_part(t, 0, 5, 5, 0, UINT32_MAX);
        frames_come(t, 0, 10);
        ros_expire(t->ros, t->now_ns + c.wait_ns - 1);
        follows(t, 2, 5);
        assert_answers(t, 0, "e4 discarded");
        ros_expire(t->ros, t->now_ns + c.wait_ns);
        assert_answers(t, 0, "e5 pending");
}

/* A client that lies about numbers does not disturb those of the triggers. */
REGIONS_TEST(a_client_with_false_requests_changes_nothing, with_numbers())
{
        for (uint32_t i = 0; i < 200; i++)
                request_part(t, 0, random_mix(i) % 1000, (uint32_t)random_mix(i + 1000), 0, UINT32_MAX);
        (void)answers(t, 0);
        triggers_and_frames(t, 20);
        for (uint32_t i = 0; i < 200; i++)
                request_part(t, 1, random_mix(i) % 30, (uint32_t)random_mix(i + 1000), 0, UINT32_MAX);
        (void)answers(t, 1);
        for (uint32_t i = 20; i < 80; i++) {
                trigger(t, i, i);
                frame_comes(t, i);
        }
        assert_string_equal(ros_sends(t, 1), "");
        assert_int_equal(ros_queued(t->ros, 0).jobs, 80);
        assert_int_equal(ros_counts(t->ros)->unknown + ros_counts(t->ros)->full, 0);
        ros_region_forget(t->ros, 0);
        ros_region_forget(t->ros, 1);
        assert_int_equal(ros_region_counts(t->ros)->open, 0);
        assert_int_equal(ros_deadline_ns(t->ros), ros_deadline_ns(t->ros));
}

/* One client has its own room, and leaves nothing behind. */
REGIONS_TEST(a_flood_is_bounded, counted())
{
        uint32_t n = 0;

        for (int round = 0; round < 3; round++) {
                for (; ros_region_has_room(t->ros, 0); n++)
                        request(t, 0, n % 7);
                assert_answers(t, 0, "");
                request(t, 1, 3);
                assert_answers(t, 1, "");
                ros_region_forget(t->ros, 0);
                assert_true(ros_region_has_room(t->ros, 0));
        }
        assert_int_equal(n, 3 * (ROS_REGION_REQUESTS - MESSAGE_ENTRIES_MAX + 1));
        assert_counts(ros_region_counts(t->ros), dropped, n, open, 3);
        ros_gets_keep_alive(t, RUN_RUNNING, 7, 7);
        assert_answers(t, 1, "e3 discarded | e3 discarded | e3 discarded");
}
