/* Resets of the counters: no trigger is taken before the frames of earlier ones are over, and before every
 * ROS knows. Also what level 2 learns of triggers from outside. */
#include "../dfm_outside.h"

#define assert_busy(t, expected) assert_int_equal(dfm_busy((t)->dfm).reason, expected)

/* A trigger box that waits for the end of busy sends no trigger before all ROSs have received the reset. */
OUTSIDE_TEST(a_marker_resets_at_once, 8, 9)
{
        assert_busy(t, BUSY_NOT);
        assert_int_equal(outside_offers(t, 40, TRIGGER_RESET | TRIGGER_MARKER), OFFER_MARKER);
        assert_busy(t, BUSY_RESET);
        assert_true(dfm_waits_for_reset(t->dfm));
        assert_dfm_says_all(t, "");
        sfi_ends(t, 0, 0, EVENT_COMPLETE, 0);
        assert_dfm_says_all(t, "ross: Clear #0 oldest 1: e0 | "
                               "all: KeepAlive running oldest 1 clears 1 ros 3 sfi 3 reset 2 at 40");
        assert_busy(t, BUSY_RESET);
        t->resets = 2;
        ros_says_alive(t, 0, RUN_RUNNING, 0);
        assert_dfm_says(t, "");
        assert_busy(t, BUSY_RESET);
        assert_false(dfm_view(t->dfm, ROLE_ROS, 0).behind);
        assert_true(dfm_view(t->dfm, ROLE_ROS, 1).behind);
        ros_says_alive(t, 1, RUN_RUNNING, 0);
        assert_dfm_says(t, "");
        assert_busy(t, BUSY_NOT);
        assert_int_equal(outside_offers(t, 40, 0), OFFER_QUEUED);
        assert_dfm_says_all(t, "sfi0: Assign e1>sfi0#1 | ross: Assign e1>sfi0");
        assert_int_equal(offered(t)->resets, 1);
}

/* ROSs that received the first reset may have frames from after it. */
OUTSIDE_TEST(a_second_reset_is_another_one, 8, 9)
{
        sfi_ends(t, 0, 0, EVENT_COMPLETE, 0);
        dfm_says_with(t, false);
        outside_offers(t, 0, TRIGGER_RESET | TRIGGER_MARKER);
        dfm_says_with(t, true);
        assert_non_null(strstr(t->trace.text, "reset 2 at 0"));
        outside_offers(t, 3, TRIGGER_RESET);
        dfm_says_with(t, true);
        assert_non_null(strstr(t->trace.text, "reset 3 at 3"));
        ross_know(t, 2);
        assert_dfm_says(t, "");
        ross_know(t, 3);
        assert_dfm_says(t, "sfi0: Assign e1>sfi0#1 | ross: Assign e1>sfi0");
        assert_busy(t, BUSY_NOT);
}

OUTSIDE_TEST(assignments_carry_the_number_of_resets, 8, 9)
{
        unsigned n = 0;

        sfi_ends(t, 0, 0, EVENT_COMPLETE, 0);
        outside_offers(t, 0, TRIGGER_RESET | TRIGGER_MARKER);
        dfm_says_with(t, false);
        ross_know(t, 2);
        outside_offers(t, 0, 0);
        while (dfm_makes(t)) {
                if (t->message.header.type != MESSAGE_ASSIGN)
                        continue;
                assert_int_equal(t->message.assign.resets, 2);
                n++;
        }
        assert_int_equal(n, 2); /* to the SFI, and to the ROSs */
}

DFM_TEST_EACH_AS(the_first_trigger_of_a_run_needs_no_reset, marker, 2, outside_standard(8),
                 dfm_driver_start(t, &c))
{
        sfi_grants(t, 0, 9);
        assert_dfm_says(t, "");
        assert_busy(t, BUSY_RESET);
        ross_know(t, 1);
        assert_dfm_says(t, "");
        assert_busy(t, BUSY_NOT);
        outside_offers(t, 0, TRIGGER_RESET | (marker ? TRIGGER_MARKER : 0));
        assert_int_equal(dfm_waits_for_reset(t->dfm), marker);
        dfm_says_with(t, false);
        ross_know(t, 2);
        dfm_says_with(t, false);
}

/* Not even before the run begins is a marker without effect; but a trigger that was not taken is. */
DFM_TEST_EACH_AS(a_marker_before_the_run_counts, marker, 2, outside_standard(8), dfm_driver_init(t, &c))
{
        outside_offers(t, 7, TRIGGER_RESET | (marker ? TRIGGER_MARKER : 0));
        assert_busy(t, BUSY_STOPPED);
        all_say_alive(t);
        sfi_grants(t, 0, 9);
        dfm_says_with(t, true);
        assert_non_null(strstr(t->trace.text, marker ? "reset 2 at 7" : "reset 1 at 0"));
        assert_busy(t, BUSY_RESET);
        ross_know(t, marker ? 2 : 1);
        dfm_says_with(t, false);
        assert_busy(t, BUSY_NOT);
}

/* A DFM that resumes a run before its first trigger: the counters continue as well. */
DFM_TEST_AS(the_first_trigger_after_a_restart_needs_no_reset, outside_standard(8), dfm_driver_init(t, &c),
            c.cookie = TRACE_COOKIE + 1, c.run_is_free = true)
{
        struct message m = {.header = {.cookie = TRACE_COOKIE, .type = MESSAGE_JOIN}, .dfm = 0xF0};

        m.join.incarnation = 1;
        m.join.run = TRACE_RUN;
        t->resets = 1;
        for (uint16_t i = 0; i < 4; i++) {
                m.header.sender_role = i < 2 ? ROLE_ROS : ROLE_SFI;
                m.header.sender_index = i % 2;
                dfm_receive(t->dfm, t->now_ns, &m);
                t->ros_joined[i % 2] |= i < 2;
                t->sfis[i % 2].joined |= i >= 2;
        }
        all_say_alive(t);
        dfm_says_with(t, false);
        for (uint16_t i = 0; i < 2; i++) {
                t->message.n = 0;
                t->message.inventory = (__typeof__(t->message.inventory)){.incarnation = 1};
                assert_true(driver_say(t, ROLE_SFI, i, MESSAGE_INVENTORY, 0));
        }
        dfm_says_with(t, true);
        assert_int_equal(dfm_state(t->dfm), RUN_RUNNING);
        sfi_grants(t, 0, 9);
        outside_offers(t, 0, TRIGGER_RESET);
        assert_false(dfm_waits_for_reset(t->dfm));
        assert_dfm_says(t, "sfi0: Assign e0>sfi0#0 | ross: Assign e0>sfi0");
}

/* A ROS that missed the reset, or has just joined, would match the trigger to earlier frames. */
OUTSIDE_TEST(triggers_wait_for_a_ros_that_is_behind, 8, 9)
{
        t->resets = 0;
        ros_says_alive(t, 1, RUN_RUNNING, 0);
        outside_offers(t, 101, 0);
        assert_dfm_says(t, "");
        assert_busy(t, BUSY_RESET);
        ross_know(t, 1);
        assert_dfm_says(t, "sfi0: Assign e1>sfi0#1 | ross: Assign e1>sfi0");
        dfm_driver_fini(t);
        /* A resumed run, in which a ROS received only an earlier reset. */
        outside_resumes(t, &c);
        t->resets = 2;
        ros_says_alive(t, 1, RUN_RUNNING, 0);
        dfm_says_with(t, false);
        sfi_grants(t, 0, 9);
        outside_offers(t, 5, 0);
        assert_dfm_says(t, "");
        ross_know(t, 3);
        assert_dfm_says(t, "sfi0: Assign e4>sfi0#0 | ross: Assign e4>sfi0");
}

static struct dfm_config level2_outside(void)
{
        struct dfm_config c = outside_standard(100);

        c.level2 = level2_with_window(10);
        c.frame_wait_ns = 300 * NS_PER_MS;
        return c;
}

static void decides(struct dfm_driver *t, uint64_t event, enum decision_verdict verdict)
{
        const struct decision_entry decision = {.event = event, .verdict = (uint8_t)verdict};

        assert_true(dfm_decide(t->dfm, t->now_ns, &decision));
}

#define LEVEL2_TEST(name, first, n, ...)                                                                     \
        DFM_TEST_AS(name, level2_outside(), send_triggers(t, &c, first, n), ##__VA_ARGS__)

/* All nodes are present, and these triggers are taken: events from 0 on. */
static void send_triggers(struct dfm_driver *t, const struct dfm_config *c, uint64_t first, uint64_t n)
{
        dfm_driver_start(t, c);
        sfi_grants(t, 0, 100);
        ross_know(t, 1);
        assert_dfm_says(t, "");
        for (uint64_t k = 0; k < n; k++)
                outside_offers(t, first + k, TRIGGER_SPILL_ENDS);
        assert_dfm_says(t, "");
        assert_int_equal(dfm_run_view(t->dfm).undecided, n);
}

/* A rejected event ends before its frames arrived: late frames must not meet a trigger from after the
 * reset. */
LEVEL2_TEST(a_reset_waits_for_the_frames_of_rejected_events, 0, 2)
{
        dfm_pass_ns(t, 100 * NS_PER_MS);
        outside_offers(t, 2, 0);
        dfm_says_with(t, false);
        for (uint64_t event = 0; event < 3; event++)
                decides(t, event, DECISION_REJECT);
        outside_offers(t, 0, TRIGGER_RESET);
        dfm_says_with(t, true);
        assert_null(strstr(t->trace.text, "reset 2"));
        assert_int_equal(dfm_open_events(t->dfm), 0);
        /* The last trigger came 100 ms after the others. */
        dfm_pass_ns(t, c.frame_wait_ns - 1);
        dfm_says_with(t, true);
        assert_null(strstr(t->trace.text, "reset 2"));
        assert_busy(t, BUSY_RESET);
        assert_int_equal(dfm_deadline_ns(t->dfm), t->now_ns + 1);
        dfm_pass_ns(t, 1);
        dfm_says_with(t, true);
        assert_non_null(strstr(t->trace.text, "reset 2 at 0"));
        assert_true(dfm_deadline_ns(t->dfm) > t->now_ns);
        ross_know(t, 2);
        assert_dfm_says(t, "");
        assert_int_equal(dfm_run_view(t->dfm).undecided, 1);
}

/* The oldest event of KeepAlive is the first after a reset: rejected events must not hold it back. */
LEVEL2_TEST(a_reset_follows_the_last_clear, 0, 2, c.clear_group = 20, c.clear_after_ns = 3600 * NS_PER_S)
{
        decides(t, 0, DECISION_REJECT);
        dfm_pass_ns(t, c.frame_wait_ns);
        outside_offers(t, 0, TRIGGER_RESET | TRIGGER_MARKER);
        dfm_says_with(t, true);
        assert_null(strstr(t->trace.text, "Clear #"));
        decides(t, 1, DECISION_REJECT);
        assert_true(dfm_deadline_ns(t->dfm) <= t->now_ns);
        assert_dfm_says_all(t, "ross: Clear #0 oldest 2: e0 e1 | "
                               "all: KeepAlive running oldest 2 clears 1 ros 3 sfi 3 reset 2 at 0");
        ross_know(t, 2);
        assert_dfm_says(t, "");
        assert_busy(t, BUSY_NOT);
}

/* A trigger box that ignores busy: triggers refused after the marker have no frames from before the reset. */
LEVEL2_TEST(refused_triggers_do_not_delay_their_reset, 0, 2, c.trigger_queue = 2)
{
        decides(t, 0, DECISION_REJECT);
        decides(t, 1, DECISION_REJECT);
        outside_offers(t, 0, TRIGGER_RESET | TRIGGER_MARKER);
        for (uint64_t k = 0; k < 10; k++) {
                assert_int_equal(outside_offers(t, k, 0), k < 2 ? OFFER_QUEUED : OFFER_REFUSED);
                dfm_says_with(t, true);
                assert_null(strstr(t->trace.text, "reset 2"));
                dfm_pass_ns(t, c.frame_wait_ns / 10);
        }
        dfm_says_with(t, true);
        assert_non_null(strstr(t->trace.text, "reset 2 at 0"));
        ross_know(t, 2);
        dfm_says_with(t, false);
        assert_int_equal(dfm_run_view(t->dfm).undecided, 2);
}

/* Both ROSs confirm the reset, or one is away and may take L1 IDs for those of frames from before it. */
DFM_TEST_EACH_AS(a_clear_has_the_reset_that_a_ros_may_have_missed, away, 2, level2_outside(),
                 send_triggers(t, &c, 5, 1))
{
        decides(t, 0, DECISION_REJECT);
        assert_dfm_says(t, "ross: Clear #0 oldest 1: e0");
        dfm_pass_ns(t, c.frame_wait_ns);
        outside_offers(t, 0, TRIGGER_RESET | TRIGGER_MARKER);
        dfm_says_with(t, true);
        assert_int_equal(dfm_run_view(t->dfm).resets, 2);
        if (away)
                ros_says_alive(t, 1, RUN_ENDED, 0);
        t->resets = 2;
        ros_says_alive(t, 0, RUN_RUNNING, 0);
        if (!away)
                ros_says_alive(t, 1, RUN_RUNNING, 0);
        outside_offers(t, 0, 0);
        assert_dfm_says(t, "");
        decides(t, 1, DECISION_REJECT);
        assert_dfm_says(t, away ? "ross: Clear #1 oldest 2: e1 reset 2" : "ross: Clear #1 oldest 2: e1");
}

LEVEL2_TEST(level_2_learns_the_flags_of_a_trigger, 50, 2)
{
        struct undecided_entry e[4];
        uint64_t from = 0;

        decides(t, 0, DECISION_REJECT);
        decides(t, 1, DECISION_REJECT);
        outside_offers(t, 7, TRIGGER_RESET | TRIGGER_SPILL_BEGINS);
        dfm_pass_ns(t, c.frame_wait_ns);
        dfm_says_with(t, false);
        ross_know(t, 2);
        dfm_says_with(t, false);
        assert_int_equal(dfm_list_undecided(t->dfm, &from, e, ARRAY_SIZE(e)), 1);
        assert_fields(&e[0], number, 7, flags, TRIGGER_RESET | TRIGGER_SPILL_BEGINS);
}

LEVEL2_TEST(undecided_events_make_the_dfm_busy, 0, 7)
{
        assert_busy(t, BUSY_NOT);
        outside_offers(t, 7, 0);
        dfm_says_with(t, false);
        assert_busy(t, BUSY_LEVEL2);
        for (uint64_t event = 0; event < 3; event++) {
                assert_busy(t, BUSY_LEVEL2);
                decides(t, event, DECISION_REJECT);
                dfm_says_with(t, false);
        }
        assert_busy(t, BUSY_NOT);
}

/* It is unknown which frames of the previous DFM's triggers still come. */
DFM_TEST_AS(a_reset_in_a_resumed_run_waits_for_frames, level2_outside(), outside_resumes(t, &c))
{
        assert_dfm_says(t, "");
        sfi_ends(t, 1, 1, EVENT_COMPLETE, 0);
        assert_int_equal(dfm_open_events(t->dfm), 0);
        outside_offers(t, 0, TRIGGER_RESET | TRIGGER_MARKER);
        dfm_says_with(t, true);
        assert_null(strstr(t->trace.text, "reset 4"));
        dfm_pass_ns(t, c.frame_wait_ns);
        dfm_says_with(t, true);
        assert_non_null(strstr(t->trace.text, "reset 4 at 0"));
}
