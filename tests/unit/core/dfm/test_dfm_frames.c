/* ROSs that match frames by count: a trigger waits until the frame of its event has come, so that a slow
 * front-end makes no event incomplete. */
#include "../dfm_outside.h"

#define assert_busy(t, expected) assert_int_equal(dfm_busy((t)->dfm).reason, expected)

static void ros_counted(struct dfm_driver *t, uint16_t ros, uint64_t frames, uint32_t silent_ms)
{
        ros_reports(t, ros, .flags = ALIVE_COUNTS, .frames = frames,
                    .reason = silent_ms > 0 ? REASON_SILENT : REASON_NONE, .reason_ms = silent_ms);
}

/* The number of triggers that the DFM has taken. */
static uint64_t taken(struct dfm_driver *t)
{
        dfm_says_with(t, false);
        sfi_acks(t, 0, (uint32_t)dfm_counts(t->dfm)->triggers);
        return dfm_counts(t->dfm)->triggers;
}

/* Whether the next KeepAlive calls a front-end without a frame silent. */
static bool expects_frames(struct dfm_driver *t)
{
        dfm_pass_ns(t, t->config.keep_alive_ns);
        return keep_alive_flags(t) & KEEP_ALIVE_AWAITS_FRAMES;
}

static void start(struct dfm_driver *t, const struct dfm_config *c, uint64_t frames)
{
        dfm_driver_start(t, c);
        for (uint16_t i = 0; i < c->n_ros; i++)
                ros_counted(t, i, i == 2 ? 0 : frames, 0);
        sfi_grants(t, 0, 60);
}

static bool is_missing_frame(const struct dfm_driver *t, uint16_t ros)
{
        return dfm_view(t->dfm, ROLE_ROS, ros).is_missing_frame;
}

DFM_TEST_AS(a_trigger_waits_for_its_frames, dfm_with_optional_ros(), start(t, &c, 0))
{
        assert_int_equal(taken(t), 0);
        assert_true(dfm_run_view(t->dfm).waits_for_frames && dfm_run_view(t->dfm).is_busy);
        ros_counted(t, 1, 5, 0);
        assert_int_equal(taken(t), 0);
        assert_true(is_missing_frame(t, 0) && !is_missing_frame(t, 1) && !is_missing_frame(t, 2));
        ros_counted(t, 0, 2, 0);
        assert_int_equal(taken(t), 2);
        assert_true(is_missing_frame(t, 0));
        ros_counted(t, 0, 40, 0);
        assert_int_equal(taken(t), 5);
        assert_true(is_missing_frame(t, 1) && !is_missing_frame(t, 0));
        /* It leaves: others bound the triggers. */
        ros_says_alive(t, 1, RUN_ENDED, 0);
        assert_int_equal(taken(t), 40);
        ros_says_alive(t, 0, RUN_ENDED, 0);
        assert_int_equal(taken(t), 60);
        assert_false(dfm_run_view(t->dfm).waits_for_frames); /* but for a credit */
}

DFM_TEST_AS(a_ros_that_does_not_count_bounds_nothing, dfm_with_optional_ros(), dfm_driver_start(t, &c))
{
        sfi_grants(t, 0, 60);
        assert_int_equal(taken(t), 60);
}

DFM_TEST_AS(a_silent_front_end_bounds_nothing, dfm_with_optional_ros(), start(t, &c, 3))
{
        ros_counted(t, 1, 10, 0);
        assert_int_equal(taken(t), 3);
        ros_counted(t, 0, 3, 999);
        assert_int_equal(taken(t), 3);
        ros_counted(t, 0, 3, 1000);
        assert_int_equal(taken(t), 10);
        /* It is back, and behind: the others continue until it has caught up. */
        ros_counted(t, 0, 4, 0);
        ros_counted(t, 1, 20, 0);
        assert_int_equal(taken(t), 20);
        ros_counted(t, 0, 20, 0);
        ros_counted(t, 1, 30, 0);
        assert_int_equal(taken(t), 20);
        ros_counted(t, 0, 22, 0);
        assert_int_equal(taken(t), 22);
        /* A count that goes back is wrong. */
        ros_counted(t, 0, 7, 0);
        assert_int_equal(taken(t), 30);
}

DFM_TEST_AS(silence_needs_a_proof, dfm_with_optional_ros(), start(t, &c, 3))
{
        ros_counted(t, 2, 3, 0);
        assert_int_equal(taken(t), 3);
        assert_false(expects_frames(t)); /* perhaps there was nothing to read out */
        ros_counted(t, 2, 4, 0);
        assert_true(expects_frames(t));
        ros_counted(t, 0, 4, 0);
        ros_counted(t, 1, 4, 0);
        assert_false(expects_frames(t));
        ros_says_alive(t, 1, RUN_RUNNING, 0); /* it makes its fragments */
        assert_true(expects_frames(t));
}

OUTSIDE_TEST(triggers_from_outside_wait_in_the_queue, 10, 100)
{
        ros_counted(t, 0, 1, 0);
        ros_counted(t, 1, 1, 0);
        for (uint64_t k = 1; k <= 7; k++)
                outside_offers(t, 100 + k, 0);
        assert_int_equal(taken(t), 1);
        assert_busy(t, BUSY_NOT);
        assert_true(expects_frames(t));
        assert_true(dfm_run_view(t->dfm).is_busy); /* held back as usual, until its frames come */
        dfm_pass_ns(t, NS_PER_MS);
        assert_int_equal(taken(t), 1);
        assert_int_equal(dfm_counts(t->dfm)->busy_ns, 0);
        outside_offers(t, 108, 0);
        assert_busy(t, BUSY_FRAMES);
        dfm_pass_ns(t, 2 * NS_PER_MS);
        assert_int_equal(taken(t), 1);
        assert_int_equal(dfm_counts(t->dfm)->busy_ns, 2 * NS_PER_MS);
        ros_counted(t, 0, 9, 0);
        assert_int_equal(taken(t), 1);
        assert_busy(t, BUSY_FRAMES);
        ros_counted(t, 1, 9, 0);
        assert_int_equal(taken(t), 9);
        assert_busy(t, BUSY_NOT);
        assert_false(dfm_run_view(t->dfm).is_busy);
}

/* At the end, boards are silent, and have sent more frames than there were triggers. */
static const struct extra {
        uint16_t flags;
        uint64_t frames;
        bool followed; /* the box sent a trigger after the stop */
        uint64_t expected;
} extras[] = {
        {ALIVE_COUNTS | ALIVE_QUIET, 2, false, 0},
        {ALIVE_COUNTS | ALIVE_QUIET, 90, false, 88},
        {ALIVE_COUNTS | ALIVE_QUIET, 3, true, 0},
        {ALIVE_COUNTS | ALIVE_SURPLUS, 90, false, 88}, /* more wait for room */
        {ALIVE_COUNTS | ALIVE_SURPLUS, 90, true, 0},
        {ALIVE_COUNTS, 3, false, 0}, /* its trigger may be on its way */
        {ALIVE_QUIET, 90, false, 0}, /* it has numbers */
};

OUTSIDE_TEST_EACH(frames_without_a_trigger_show_at_the_end, i, ARRAY_SIZE(extras), 10, 100)
{
        const struct extra *e = &extras[i];

        ros_counted(t, 0, 2, 0);
        ros_counted(t, 1, e->flags & ALIVE_COUNTS ? e->frames : 2, 0);
        outside_offers(t, 101, 0);
        (void)taken(t);
        ros_reports(t, 0, .flags = ALIVE_QUIET);
        ros_reports(t, 1, .flags = e->flags, .frames = e->frames);
        assert_false(dfm_is_unreliable(t->dfm)); /* a trigger may come */
        dfm_stop(t->dfm, t->now_ns);
        sfi_ends(t, 0, 0, EVENT_COMPLETE, 0);
        sfi_ends(t, 0, 1, EVENT_COMPLETE, 0);
        dfm_says_with(t, true);
        assert_int_equal(dfm_state(t->dfm), RUN_ENDED);
        if (e->followed)
                outside_offers(t, 102, 0);
        assert_int_equal(dfm_view(t->dfm, ROLE_ROS, 1).extra_frames, e->expected);
        assert_int_equal(dfm_view(t->dfm, ROLE_ROS, 1).has_more_frames, (e->flags & ALIVE_SURPLUS) != 0);
        assert_int_equal(dfm_is_unreliable(t->dfm), e->expected > 0);
}
