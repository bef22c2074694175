/* The DFM and the sources of its ROSs: silent ones are left out of events, optional ones are not waited for
 * at the start, and what they owe is absent rather than lost. */
#include "dfm_driver.h"

static void ros_is(struct dfm_driver *t, uint16_t ros, enum node_reason reason, uint32_t ms, uint16_t flags)
{
        ros_reports(t, ros, .reason = (uint16_t)reason, .reason_ms = ms, .flags = flags);
}

static void assert_next_notice(struct dfm_driver *t, enum dfm_notice_kind kind, uint16_t ros)
{
        struct dfm_notice o;

        do
                assert_true(dfm_pop_notice(t->dfm, &o));
        while (o.kind == NOTICE_JOINED || o.kind == NOTICE_BEGUN);
        assert_int_equal(o.kind, kind);
        assert_fields(&o, role, ROLE_ROS, index, ros);
}

static const enum node_reason reasons[] = {REASON_SILENT, REASON_NO_FRONT_END};

DFM_TEST_EACH_AS(a_silent_ros_is_left_out_until_it_sends_again, i, ARRAY_SIZE(reasons),
                 dfm_with_optional_ros(), dfm_driver_start(t, &c))
{
        dfm_pass_ns(t, 100 * NS_PER_MS);
        ros_is(t, 2, reasons[i], 299, 0);
        assert_dfm_says_all(t, "all: KeepAlive running oldest 0 clears 0 ros 7 sfi 1");
        assert_false(dfm_view(t->dfm, ROLE_ROS, 2).left_out);
        ros_is(t, 2, reasons[i], 300, 0);
        assert_dfm_says_all(t, "all: KeepAlive running oldest 0 clears 0 ros 3 sfi 1");
        assert_true(dfm_view(t->dfm, ROLE_ROS, 2).left_out);
        assert_true(dfm_view(t->dfm, ROLE_ROS, 2).live);
        assert_next_notice(t, NOTICE_LEFT_OUT, 2);
        ros_is(t, 2, REASON_NONE, 0, 0);
        assert_dfm_says_all(t, "all: KeepAlive running oldest 0 clears 0 ros 7 sfi 1");
        assert_next_notice(t, NOTICE_TAKEN_IN, 2);
}

/* A required ROS without a wait has the time of a node. Other reasons leave no ROS out. */
DFM_TEST_AS(only_a_long_silence_counts, dfm_with_optional_ros(), dfm_driver_start(t, &c))
{
        ros_is(t, 0, REASON_SILENT, 999, 0);
        ros_is(t, 1, REASON_BUFFER_FULL, 100000, 0);
        assert_false(dfm_view(t->dfm, ROLE_ROS, 0).left_out || dfm_view(t->dfm, ROLE_ROS, 1).left_out);
        ros_is(t, 0, REASON_SILENT, 1000, 0);
        assert_true(dfm_view(t->dfm, ROLE_ROS, 0).left_out);
}

/* The silent ROS's buffer fills with what it waits for, which must not stop the others. */
DFM_TEST_AS(a_silent_ros_holds_no_triggers_back, dfm_with_optional_ros(), dfm_driver_start(t, &c))
{
        sfi_grants(t, 0, 2);
        ros_is(t, 2, REASON_SILENT, 250, ALIVE_XOFF);
        assert_dfm_says(t, "");
        assert_true(dfm_view(t->dfm, ROLE_ROS, 2).holds_back);
        ros_is(t, 2, REASON_SILENT, 300, ALIVE_XOFF);
        assert_false(dfm_view(t->dfm, ROLE_ROS, 2).holds_back);
        assert_dfm_says(t, "sfi0: Assign e0>sfi0#0 e1>sfi0#1 | ross: Assign e0>sfi0 e1>sfi0");
        /* Back in events, its XOFF counts again, and so does its departure. */
        ros_is(t, 2, REASON_NONE, 0, ALIVE_XOFF);
        sfi_grants(t, 0, 3);
        assert_dfm_says(t, "");
        ros_says_alive(t, 2, RUN_ENDED, 0);
        assert_dfm_says(t, "sfi0: Assign e2>sfi0#2 | ross: Assign e2>sfi0");
}

DFM_TEST_AS(absent_fragments_are_neither_received_nor_lost, dfm_with_optional_ros(), dfm_driver_start(t, &c))
{
        struct finished_entry entries[] = {
                {.event = 0, .end = EVENT_COMPLETE, .absent = 1, .payload_bytes = 100},
                {.event = 1, .end = EVENT_PARTIAL, .missing = 1, .absent = 1},
                {.event = 2, .end = EVENT_COMPLETE, .absent = 9, .payload_bytes = 100}, /* impossible */
                {.event = 3, .end = EVENT_LOST, .absent = 1},
        };
        const struct dfm_counts *n;

        sfi0_takes(t, 4);
        sfi_says_update(t, 0, 0, ARRAY_SIZE(entries), entries);
        n = dfm_counts(t->dfm);
        assert_counts(n, complete, 2, partial, 1, lost, 1, fragments_expected, 12, fragments_absent,
                      1 + 1 + 3, fragments_lost, 1 + 3);
        assert_int_equal(n->fragments_received, 2 + 1);
}

/* Further optional ROSs do not delay the start once only such ROSs are missing. */
DFM_TEST_AS(the_start_waits_for_optional_ross_only_so_long, dfm_with_optional_ros(), dfm_driver_init(t, &c),
            c.ros_rules = (const struct ros_rule[]){{}, {.optional = true}, {.optional = true}})
{
        ros_says_alive(t, 1, RUN_RUNNING, 0);
        dfm_pass_ns(t, 900 * NS_PER_MS);
        ros_says_alive(t, 1, RUN_RUNNING, 0);
        ros_says_alive(t, 0, RUN_RUNNING, 0);
        dfm_pass_ns(t, 900 * NS_PER_MS);
        sfi_says_alive(t, 0, RUN_RUNNING, 0); /* now only the optional ROS 2 is missing */
        ros_says_alive(t, 0, RUN_RUNNING, 0);
        ros_says_alive(t, 1, RUN_ENDED, 0);
        dfm_pass_ns(t, 900 * NS_PER_MS);
        sfi_says_alive(t, 0, RUN_RUNNING, 0);
        ros_says_alive(t, 0, RUN_RUNNING, 0);
        ros_says_alive(t, 1, RUN_RUNNING, 0); /* does not restart the wait */
        assert_dfm_says(t, "");
        assert_int_equal(dfm_state(t->dfm), RUN_STARTING);
        assert_dfm_says_after(t, 100 * NS_PER_MS, "");
        assert_int_equal(dfm_state(t->dfm), RUN_RUNNING);
}

/* ROSs report how many frames their silent front-ends have sent; the last ROS is gone if it says nothing
 * for the time given. */
static void check_counts(bool unreliable, const uint64_t frames[3], uint64_t silence_ns)
{
        struct dfm_config c = dfm_with_optional_ros();
        struct dfm_driver t;

        dfm_driver_start(&t, &c);
        for (uint64_t passed_ns = 0;; passed_ns += 100 * NS_PER_MS) {
                for (uint16_t i = 0; i < (passed_ns == 0 ? 3 : 2); i++)
                        ros_reports(&t, i, .flags = ALIVE_COUNTS | ALIVE_QUIET, .frames = frames[i]);
                sfi_says_alive(&t, 0, RUN_RUNNING, 0);
                if (passed_ns >= silence_ns)
                        break;
                dfm_pass_ns(&t, 100 * NS_PER_MS);
                dfm_says_with(&t, false);
        }
        assert_int_equal(dfm_view(t.dfm, ROLE_ROS, 2).live, silence_ns == 0);
        assert_int_equal(dfm_is_unreliable(t.dfm), unreliable);
        dfm_driver_fini(&t);
}

TEST(final_counts_of_frames_must_agree)
{
        check_counts(false, (uint64_t[]){7, 7, 7}, 0);
        check_counts(true, (uint64_t[]){7, 7, 6}, 0);
        check_counts(false, (uint64_t[]){7, 7, 0}, 0);
        check_counts(true, (uint64_t[]){7, 6, 0}, 0);
        check_counts(false, (uint64_t[]){7, 7, 6}, 2 * NS_PER_S);
        check_counts(true, (uint64_t[]){7, 6, 6}, 2 * NS_PER_S);
}
