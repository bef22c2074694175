/* The end of a run: how long the DFM waits for its nodes to leave, and its record of those that do not
 * leave. */
#include "../dfm_driver.h"

DFM_TEST(drains_then_repeats_the_end_until_all_nodes_left)
{
        sfi_grants(t, 0, 1);
        assert_dfm_says(t, "sfi0: Assign e0>sfi0#0 | ross: Assign e0>sfi0");
        sfi_acks(t, 0, 1);
        dfm_stop(t->dfm, t->now_ns);
        sfi_grants(t, 1, 5);
        assert_dfm_says_all(t, "all: KeepAlive draining oldest 0 clears 0 ros 3 sfi 3");
        sfi_ends(t, 0, 0, EVENT_COMPLETE, 0);
        assert_dfm_says_all(t, "ross: Clear #0 oldest 1: e0 | all: KeepAlive ended oldest 1 clears 1 ros 3 "
                               "sfi 3 | sfi0: UpdateAck 1");
        assert_dfm_says_all_after(t, 20 * NS_PER_MS, "all: KeepAlive ended oldest 1 clears 1 ros 3 sfi 3");
        for (uint16_t i = 0; i < 2; i++) {
                assert_false(dfm_is_done(t->dfm));
                sfi_says_alive(t, i, RUN_ENDED, 0);
                ros_says_alive(t, i, RUN_ENDED, 0);
                dfm_says_with(t, true);
        }
        assert_true(dfm_is_done(t->dfm));
}

DFM_TEST(waits_at_most_two_seconds_for_nodes_to_leave)
{
        dfm_stop(t->dfm, t->now_ns);
        assert_dfm_says(t, "");
        assert_int_equal(dfm_state(t->dfm), RUN_ENDED);
        assert_dfm_says_after(t, 2 * NS_PER_S - 1, "");
        assert_false(dfm_is_done(t->dfm));
        assert_dfm_says_after(t, 1, "");
        assert_true(dfm_is_done(t->dfm));
}

/* Both SFIs have had an event. SFI 0 says nothing, or that it lives, for as long as `until_ns`; the ROSs and
 * SFI 1 leave at once. Returns how long the DFM waited. */
static uint64_t end_with(struct dfm_driver *t, const struct dfm_config *c, bool alive, uint64_t until_ns)
{
        uint64_t ended_ns;

        dfm_driver_fini(t);
        dfm_driver_start(t, c);
        for (uint16_t i = 0; i < 2; i++) {
                sfi_grants(t, i, 1);
                dfm_says_with(t, false);
                sfi_acks(t, i, 1);
        }
        for (uint16_t i = 0; i < 2; i++)
                sfi_ends(t, i, i, EVENT_COMPLETE, 0);
        dfm_stop(t->dfm, t->now_ns);
        dfm_says_with(t, false);
        assert_int_equal(dfm_state(t->dfm), RUN_ENDED);
        ended_ns = t->now_ns;
        ros_says_alive(t, 0, RUN_ENDED, 0);
        ros_says_alive(t, 1, RUN_ENDED, 0);
        sfi_says_alive(t, 1, RUN_ENDED, 0);
        for (dfm_says_with(t, false); !dfm_is_done(t->dfm); dfm_says_with(t, false)) {
                dfm_pass_ns(t, 100 * NS_PER_MS);
                if (t->now_ns - ended_ns == until_ns)
                        sfi_says_alive(t, 0, RUN_ENDED, ALIVE_FAILED);
                else if (alive)
                        sfi_says_alive(t, 0, RUN_RUNNING, 0);
        }
        return t->now_ns - ended_ns;
}

/* Its last message says whether it could close its last file. */
DFM_TEST(waits_for_an_sfi_that_closes_its_files, c.node_timeout_ns = NS_PER_S,
         c.leave_timeout_ns = 10 * NS_PER_S)
{
        assert_int_equal(end_with(t, &c, true, 5 * NS_PER_S), 5 * NS_PER_S);
        assert_true(dfm_view(t->dfm, ROLE_SFI, 0).failed);
        assert_false(dfm_view(t->dfm, ROLE_SFI, 0).unfinished);
        assert_false(dfm_view(t->dfm, ROLE_SFI, 1).unfinished);
        assert_int_equal(end_with(t, &c, true, NEVER_NS), 10 * NS_PER_S);
        assert_true(dfm_view(t->dfm, ROLE_SFI, 0).unfinished && dfm_view(t->dfm, ROLE_SFI, 0).live);
        assert_false(dfm_view(t->dfm, ROLE_SFI, 1).unfinished);
        /* One that is gone is not waited for. */
        assert_int_equal(end_with(t, &c, false, NEVER_NS), NS_PER_S + 100 * NS_PER_MS);
        assert_true(dfm_view(t->dfm, ROLE_SFI, 0).unfinished && !dfm_view(t->dfm, ROLE_SFI, 0).live);
}

/* SFI 1 dies. The DFM repeats the end more often than SFI 0 sends, but is not cut off. */
DFM_TEST(waits_for_an_sfi_while_another_one_dies, c.node_timeout_ns = 3 * NS_PER_S,
         c.leave_timeout_ns = 10 * NS_PER_S)
{
        dfm_stop(t->dfm, t->now_ns);
        dfm_says_with(t, false);
        ros_says_alive(t, 0, RUN_ENDED, 0);
        ros_says_alive(t, 1, RUN_ENDED, 0);
        for (unsigned i = 0; i < 50; i++) {
                dfm_pass_ns(t, c.keep_alive_ns);
                dfm_says_with(t, false);
                assert_false(dfm_is_done(t->dfm));
                assert_true(dfm_view(t->dfm, ROLE_SFI, 0).live);
                sfi_says_alive(t, 0, RUN_RUNNING, 0);
                dfm_says_with(t, false);
        }
        assert_false(dfm_view(t->dfm, ROLE_SFI, 1).live);
        sfi_says_alive(t, 0, RUN_ENDED, 0);
        dfm_says_with(t, false);
        assert_true(dfm_is_done(t->dfm));
}

/* In that time, the SFI may have left. */
DFM_TEST(a_suspended_dfm_waits_longer, c.leave_timeout_ns = 10 * NS_PER_S)
{
        dfm_stop(t->dfm, t->now_ns);
        dfm_says_with(t, false);
        dfm_pass_ns(t, 30 * NS_PER_S);
        dfm_was_paused(t->dfm, t->now_ns, 30 * NS_PER_S);
        dfm_says_with(t, false);
        assert_false(dfm_is_done(t->dfm));
}
