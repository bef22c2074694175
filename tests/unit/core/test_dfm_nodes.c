/* The DFM and its nodes: their presence, the start and end of the run, and nodes that hold triggers back. */
#include "dfm_driver.h"

static struct dfm_config with_timeout(void)
{
        struct dfm_config c = dfm_standard();

        c.node_timeout_ns = NS_PER_S;
        return c;
}

DFM_TEST_AS(starts_when_all_nodes_are_present, dfm_standard(), dfm_driver_init(t, &c))
{
        assert_dfm_says_all(t, "all: KeepAlive starting oldest 0 clears 0 ros 0 sfi 0");
        ros_says_alive(t, 1, RUN_RUNNING, 0);
        sfi_says_alive(t, 1, RUN_RUNNING, 0);
        sfi_says_alive(t, 0, RUN_RUNNING, 0);
        assert_dfm_says_all(t, "all: KeepAlive starting oldest 0 clears 0 ros 2 sfi 3");
        ros_says_alive(t, 0, RUN_RUNNING, 0);
        assert_dfm_says_all(t, "all: KeepAlive running oldest 0 clears 0 ros 3 sfi 3");
        assert_int_equal(dfm_live(t->dfm, ROLE_ROS), 2);
        assert_int_equal(dfm_live(t->dfm, ROLE_SFI), 2);
        assert_int_equal(dfm_live(t->dfm, ROLE_DFM), 1);
}

/* `wait_ns` is how long the start waits. */
static void check_start(const struct dfm_config *c, uint64_t wait_ns)
{
        struct dfm_driver t;

        dfm_driver_init(&t, c);
        ros_says_alive(&t, 0, RUN_RUNNING, 0);
        sfi_says_alive(&t, 0, RUN_RUNNING, 0);
        dfm_pass_ns(&t, 900 * NS_PER_MS);
        ros_says_alive(&t, 0, RUN_RUNNING, 0);
        sfi_says_alive(&t, 0, RUN_RUNNING, 0);
        /* The newcomer restarts the wait. */
        ros_says_alive(&t, 2, RUN_RUNNING, 0);
        for (uint64_t passed_ns = 0; passed_ns < wait_ns - 100 * NS_PER_MS; passed_ns += 100 * NS_PER_MS) {
                dfm_pass_ns(&t, 100 * NS_PER_MS);
                ros_says_alive(&t, 0, RUN_RUNNING, 0);
                sfi_says_alive(&t, 0, RUN_RUNNING, 0);
                ros_says_alive(&t, 2, RUN_RUNNING, 0);
                assert_dfm_says(&t, "");
        }
        assert_dfm_says_after(&t, 100 * NS_PER_MS - 1, "");
        assert_int_equal(dfm_state(t.dfm), RUN_STARTING);
        assert_dfm_says_after(&t, 1, "");
        assert_int_equal(dfm_state(t.dfm), RUN_RUNNING);
        dfm_driver_fini(&t);
}

TEST(starts_with_some_nodes_after_a_while)
{
        struct dfm_config c = with_timeout();

        c.n_ros = 4;
        check_start(&c, NS_PER_S);
        c.start_timeout_ns = 5 * NS_PER_S;
        check_start(&c, 5 * NS_PER_S);
}

DFM_TEST_EACH_AS(needs_a_node_of_each_role_to_start, role, 2, with_timeout(), dfm_driver_init(t, &c))
{
        for (int i = 0; i < 20; i++, dfm_pass_ns(t, 500 * NS_PER_MS)) {
                for (uint16_t k = 0; k < 2; k++)
                        role == 0 ? ros_says_alive(t, k, RUN_RUNNING, 0)
                                  : sfi_says_alive(t, k, RUN_RUNNING, 0);
                assert_dfm_says(t, "");
        }
        assert_int_equal(dfm_state(t->dfm), RUN_STARTING);
}

DFM_TEST(sends_keep_alive_periodically)
{
        assert_int_equal(t->now_ns, TRACE_BEGIN_NS);
        for (int i = 0; i < 3; i++) {
                /* Triggers are always due, but there are no credits. The DFM is busy, and only the clock
                 * wakes it. */
                assert_int_equal(dfm_deadline_ns(t->dfm), t->now_ns + c.keep_alive_ns);
                assert_dfm_says_all_after(t, c.keep_alive_ns - 1, "");
                assert_dfm_says_all_after(t, 1, "all: KeepAlive running oldest 0 clears 0 ros 3 sfi 3");
        }
}

DFM_TEST(a_node_silent_for_node_timeout_is_gone, c.node_timeout_ns = NS_PER_S)
{
        dfm_pass_with_ros_ns(t, 1, 500 * NS_PER_MS);
        sfi_grants(t, 1, 0); /* any message of an SFI is a sign of life */
        dfm_pass_with_ros_ns(t, 1, 500 * NS_PER_MS);
        assert_dfm_says_all(t, "all: KeepAlive running oldest 0 clears 0 ros 3 sfi 3");
        assert_dfm_says_all_after(t, 100 * NS_PER_MS, "all: KeepAlive running oldest 0 clears 0 ros 2 sfi 2");
        ros_says_alive(t, 0, RUN_RUNNING, 0);
        assert_dfm_says_all(t, "all: KeepAlive running oldest 0 clears 0 ros 3 sfi 2");
}

/* The process of the DFM stands still most of the time, which is no excuse for a node that is dead. */
DFM_TEST(a_node_is_gone_although_the_dfm_stands_still_again_and_again, c.node_timeout_ns = NS_PER_S)
{
        uint64_t passed_ns = 0;

        ros_says_alive(t, 0, RUN_RUNNING, 0);
        while (passed_ns <= c.node_timeout_ns) {
                assert_true(dfm_view(t->dfm, ROLE_ROS, 0).live);
                dfm_pass_ns(t, 4 * c.keep_alive_ns);
                ros_says_alive(t, 1, RUN_RUNNING, 0);
                dfm_was_paused(t->dfm, t->now_ns, 4 * c.keep_alive_ns);
                dfm_says_with(t, false);
                dfm_pass_with_ros_ns(t, 1, 2 * c.keep_alive_ns);
                dfm_says_with(t, false);
                passed_ns += 2 * c.keep_alive_ns;
        }
        assert_false(dfm_view(t->dfm, ROLE_ROS, 0).live);
        assert_true(dfm_view(t->dfm, ROLE_ROS, 1).live);
}

/* All nodes fell silent at once, so the first one that returns must not give up the fragments of the others.
 * Its socket may still have the messages of that time. */
DFM_TEST(a_dfm_that_was_cut_off_waits_for_its_ross, c.node_timeout_ns = NS_PER_S)
{
        assert_dfm_says_all_after(t, c.node_timeout_ns + c.keep_alive_ns,
                                  "all: KeepAlive running oldest 0 clears 0 ros 3 sfi 0");
        sfi_says_alive(t, 0, RUN_RUNNING, 0);
        assert_dfm_says_all(t, "all: KeepAlive running oldest 0 clears 0 ros 3 sfi 1");
        dfm_pass_ns(t, c.node_timeout_ns / 2);
        sfi_says_alive(t, 0, RUN_RUNNING, 0);
        ros_says_alive(t, 1, RUN_RUNNING, 0);
        assert_dfm_says_all(t, "all: KeepAlive running oldest 0 clears 0 ros 3 sfi 1");
        assert_dfm_says_all_after(t, c.node_timeout_ns / 2,
                                  "all: KeepAlive running oldest 0 clears 0 ros 2 sfi 1");
}

/* The link of the DFM is down for nearly node_timeout, after which its process may stand still. What ROS 1
 * and SFI 1 send then comes a little later than what the others send. */
DFM_TEST_EACH(a_dfm_that_was_cut_off_gives_all_nodes_their_time, paused, 2, c.node_timeout_ns = NS_PER_S)
{
        dfm_pass_ns(t, c.node_timeout_ns - 1);
        dfm_says_with(t, false);
        if (paused) {
                dfm_pass_ns(t, 4 * c.keep_alive_ns);
                dfm_was_paused(t->dfm, t->now_ns, 4 * c.keep_alive_ns);
        }
        ros_says_alive(t, 0, RUN_RUNNING, 0);
        sfi_says_alive(t, 0, RUN_RUNNING, 0);
        assert_dfm_says_all_after(t, c.keep_alive_ns, "all: KeepAlive running oldest 0 clears 0 ros 3 sfi 3");
        assert_int_equal(dfm_live(t->dfm, ROLE_ROS), 2);
        assert_int_equal(dfm_live(t->dfm, ROLE_SFI), 2);
}

/* Events of the first SFI whose time is over must not go to another one that is as silent. */
DFM_TEST(events_stay_while_the_dfm_is_cut_off, c.node_timeout_ns = NS_PER_S)
{
        sfi_grants(t, 0, 1);
        assert_dfm_says(t, "sfi0: Assign e0>sfi0#0 | ross: Assign e0>sfi0");
        dfm_pass_ns(t, c.keep_alive_ns);
        sfi_grants(t, 1, 1);
        assert_dfm_says_all_after(t, c.node_timeout_ns - c.keep_alive_ns + 1,
                                  "all: KeepAlive running oldest 0 clears 0 ros 3 sfi 0");
        dfm_pass_ns(t, c.node_timeout_ns);
        sfi_says_alive(t, 1, RUN_RUNNING, 0);
        assert_int_equal(dfm_counts(t->dfm)->lost, 0);
        assert_dfm_says(t, "sfi1: Build e0>sfi1#0 | all: Build e0>sfi1");
}

/* The same after a stop: the events end, and the nodes learn of the end of the run, when the link is up
 * again. */
DFM_TEST_EACH(a_stopped_dfm_that_is_cut_off_waits, open, 2, c.node_timeout_ns = NS_PER_S,
              c.leave_timeout_ns = 10 * NS_PER_S)
{
        sfi_grants(t, 0, (uint64_t)open);
        dfm_says_with(t, false);
        dfm_stop(t->dfm, t->now_ns);
        dfm_says_with(t, false);
        dfm_pass_ns(t, c.node_timeout_ns + 1);
        dfm_says_with(t, false);
        dfm_pass_ns(t, 5 * NS_PER_S);
        dfm_says_with(t, false);
        assert_int_equal(dfm_state(t->dfm), open ? RUN_DRAINING : RUN_ENDED);
        assert_false(dfm_is_done(t->dfm));
        ros_says_alive(t, 0, RUN_RUNNING, 0);
        dfm_says_with(t, false);
        ros_says_alive(t, 0, RUN_ENDED, 0);
        assert_dfm_says_after(t, c.keep_alive_ns, "");
        assert_false(dfm_is_done(t->dfm));
        ros_says_alive(t, 1, RUN_RUNNING, 0);
        for (uint16_t i = 0; i < 2; i++)
                sfi_says_alive(t, i, RUN_RUNNING, 0);
        if (open)
                sfi_ends(t, 0, 0, EVENT_COMPLETE, 0);
        dfm_says_with(t, false);
        assert_int_equal(dfm_state(t->dfm), RUN_ENDED);
        assert_int_equal(dfm_counts(t->dfm)->complete, open);
        for (uint16_t i = 0; i < 2; i++) {
                ros_says_alive(t, i, RUN_ENDED, 0);
                sfi_says_alive(t, i, RUN_ENDED, 0);
        }
        dfm_says_with(t, false);
        assert_true(dfm_is_done(t->dfm));
}

/* If no node comes back, the time-outs of events and of the end bound the wait. */
DFM_TEST(a_stopped_dfm_without_nodes_ends, c.node_timeout_ns = NS_PER_S, c.leave_timeout_ns = 10 * NS_PER_S)
{
        sfi_grants(t, 0, 1);
        dfm_says_with(t, false);
        dfm_stop(t->dfm, t->now_ns);
        for (uint64_t at_ns = 0; at_ns < c.event_timeout_ns + c.leave_timeout_ns + 2 * c.node_timeout_ns;
             at_ns += c.keep_alive_ns) {
                dfm_says_with(t, false);
                dfm_pass_ns(t, c.keep_alive_ns);
        }
        assert_true(dfm_is_done(t->dfm));
        assert_int_equal(dfm_counts(t->dfm)->lost, 1);
}

/* All nodes are dead. The events and the end share one wait, and without a run, there is nothing to wait for.
 */
DFM_TEST_EACH(a_stopped_dfm_waits_for_dead_nodes_once, begun, 2, c.node_timeout_ns = NS_PER_S,
              c.event_timeout_ns = 4 * NS_PER_S, c.leave_timeout_ns = 10 * NS_PER_S)
{
        uint64_t stopped_ns;

        if (begun) {
                sfi_grants(t, 0, 1);
        } else {
                dfm_driver_fini(t);
                dfm_driver_init(t, &c);
                driver_join(t, ROLE_ROS, 0, 1);
                ros_says_alive(t, 0, RUN_STARTING, 0);
        }
        dfm_says_with(t, false);
        dfm_pass_ns(t, c.node_timeout_ns + 1);
        dfm_says_with(t, false);
        stopped_ns = t->now_ns;
        dfm_stop(t->dfm, t->now_ns);
        for (dfm_says_with(t, false); !dfm_is_done(t->dfm); dfm_says_with(t, false)) {
                assert_true(t->now_ns - stopped_ns < 3 * c.leave_timeout_ns);
                dfm_pass_ns(t, c.keep_alive_ns);
        }
        assert_in_range(t->now_ns - stopped_ns, begun ? c.leave_timeout_ns : 0,
                        begun ? c.leave_timeout_ns + c.keep_alive_ns : 3 * NS_PER_S);
        assert_int_equal(dfm_counts(t->dfm)->lost, begun);
}

/* An SFI that does not close its files is no longer waited for than without the cut. */
DFM_TEST(a_dfm_that_was_cut_off_waits_once_for_the_end, c.node_timeout_ns = NS_PER_S,
         c.leave_timeout_ns = 10 * NS_PER_S)
{
        uint64_t ended_ns;

        dfm_stop(t->dfm, t->now_ns);
        dfm_says_with(t, false);
        assert_int_equal(dfm_state(t->dfm), RUN_ENDED);
        dfm_pass_ns(t, c.node_timeout_ns + 1);
        dfm_says_with(t, false);
        ended_ns = t->now_ns;
        while (!dfm_is_done(t->dfm) && t->now_ns - ended_ns < 3 * c.leave_timeout_ns) {
                sfi_says_alive(t, 0, RUN_RUNNING, 0);
                dfm_says_with(t, false);
                dfm_pass_ns(t, c.keep_alive_ns);
        }
        assert_in_range(t->now_ns - ended_ns, c.leave_timeout_ns - c.node_timeout_ns,
                        c.leave_timeout_ns + 2 * c.keep_alive_ns);
}

/* Nodes that do not come back with the first ones are gone. */
DFM_TEST(a_dfm_that_was_cut_off_does_not_wait_for_dead_nodes, c.node_timeout_ns = NS_PER_S,
         c.leave_timeout_ns = 10 * NS_PER_S)
{
        uint64_t back_ns;

        dfm_stop(t->dfm, t->now_ns);
        dfm_says_with(t, false);
        dfm_pass_ns(t, c.node_timeout_ns + 1);
        dfm_says_with(t, false);
        back_ns = t->now_ns;
        ros_says_alive(t, 0, RUN_ENDED, 0);
        sfi_says_alive(t, 0, RUN_ENDED, 0);
        while (!dfm_is_done(t->dfm) && t->now_ns - back_ns < 3 * c.leave_timeout_ns) {
                dfm_says_with(t, false);
                dfm_pass_ns(t, c.keep_alive_ns);
        }
        assert_in_range(t->now_ns - back_ns, 0, 2 * NS_PER_S + 2 * c.keep_alive_ns);
}

DFM_TEST(an_overtaken_alive_is_ignored)
{
        t->sfis[0].alive_next = t->ros_alive_next[0] = 10;
        sfi_says_alive(t, 0, RUN_ENDED, 0);
        ros_says_alive(t, 0, RUN_ENDED, 0);
        for (uint32_t old = 9; old <= 10; old++) {
                t->sfis[0].alive_next = t->ros_alive_next[0] = old;
                sfi_says_alive(t, 0, RUN_RUNNING, 0);
                ros_says_alive(t, 0, RUN_RUNNING, 0);
        }
        assert_dfm_says_all(t, "all: KeepAlive running oldest 0 clears 0 ros 2 sfi 2");
}

DFM_TEST(an_overtaken_alive_of_the_previous_incarnation_is_ignored, c.node_timeout_ns = NS_PER_S)
{
        t->sfis[0] = (struct played_sfi){.incarnation = 2};
        sfi_says_alive(t, 0, RUN_RUNNING, 0);
        sfi_grants(t, 0, 1);
        assert_dfm_says(t, "sfi0: Assign e0>sfi0#0 | ross: Assign e0>sfi0");
        t->sfis[0] = (struct played_sfi){.incarnation = 1, .joined = 1, .alive_next = 1};
        sfi_says_alive(t, 0, RUN_ENDED, 0);
        t->sfis[0] =
                (struct played_sfi){.incarnation = 2, .joined = 2, .alive_next = 1, .ack = 1, .granted = 2};
        assert_int_equal(dfm_live(t->dfm, ROLE_SFI), 2);
        sfi_grants(t, 0, 2);
        /* The previous incarnation, if it still runs, learns that it was replaced. */
        assert_dfm_says(t, "sfi0: Welcome occupied run 7 | sfi0: Assign e1>sfi0#1 | ross: Assign e1>sfi0");
        /* A repeated number comes from a node that joined again. */
        dfm_pass_ns(t, c.node_timeout_ns + 1);
        t->sfis[0] = (struct played_sfi){.incarnation = 1, .alive_next = 5};
        sfi_says_alive(t, 0, RUN_RUNNING, 0);
        sfi_grants(t, 0, 2);
        assert_true(trace_begins(dfm_says_with(t, false),
                                 "sfi0: Build e0>sfi0#0 e1>sfi0#1 | all: Build e0>sfi0 e1>sfi0"));
}

DFM_TEST(xoff_holds_triggers_back_until_the_last_xon)
{
        ros_says_switch(t, 0, false);
        ros_says_switch(t, 1, false);
        ros_says_switch(t, 1, false);
        sfi_grants(t, 0, 1);
        assert_dfm_says(t, "");
        assert_true(dfm_run_view(t->dfm).is_busy);
        ros_says_switch(t, 0, true);
        assert_dfm_says(t, "");
        ros_says_switch(t, 1, true);
        assert_dfm_says(t, "sfi0: Assign e0>sfi0#0 | ross: Assign e0>sfi0");
        assert_int_equal(dfm_counts(t->dfm)->triggers, 1);
}

DFM_TEST(an_overtaken_xoff_is_ignored)
{
        t->ros_alive_next[0] = 6;
        ros_says_switch(t, 0, true);
        t->ros_alive_next[0] = 5;
        ros_says_switch(t, 0, false);
        sfi_grants(t, 0, 1);
        assert_dfm_says(t, "sfi0: Assign e0>sfi0#0 | ross: Assign e0>sfi0");
}

DFM_TEST(alive_repeats_and_revokes_xoff)
{
        ros_says_alive(t, 1, RUN_RUNNING, ALIVE_XOFF);
        sfi_grants(t, 0, 1);
        assert_dfm_says(t, "");
        ros_says_alive(t, 1, RUN_RUNNING, 0);
        assert_dfm_says(t, "sfi0: Assign e0>sfi0#0 | ross: Assign e0>sfi0");
}

DFM_TEST(the_xoff_of_a_departed_ros_has_no_effect, c.node_timeout_ns = NS_PER_S)
{
        ros_says_switch(t, 0, false);
        dfm_pass_with_ros_ns(t, 1, 900 * NS_PER_MS);
        sfi_grants(t, 0, 1);
        assert_dfm_says(t, "");
        assert_dfm_says_after(t, 101 * NS_PER_MS, "sfi0: Assign e0>sfi0#0 | ross: Assign e0>sfi0");
        /* Its XOFF no longer counts, until it joins again. */
        ros_says_switch(t, 0, false);
        sfi_grants(t, 0, 2);
        assert_dfm_says(t, "sfi0: Assign e1>sfi0#1 | ross: Assign e1>sfi0");
}

DFM_TEST(takes_the_configured_number_of_triggers, c.events = 3)
{
        sfi_grants(t, 0, 10);
        assert_dfm_says(t,
                        "sfi0: Assign e0>sfi0#0 e1>sfi0#1 e2>sfi0#2 | ross: Assign e0>sfi0 e1>sfi0 e2>sfi0");
        assert_dfm_says(t, "");
        assert_int_equal(dfm_state(t->dfm), RUN_DRAINING);
        assert_false(dfm_run_view(t->dfm).is_busy);
}

DFM_TEST(takes_triggers_for_the_configured_time, c.duration_ns = NS_PER_S,
         c.trigger_rate_millihertz = 1000 /* one per second */)
{
        sfi_grants(t, 0, 10);
        assert_dfm_says(t, "sfi0: Assign e0>sfi0#0 | ross: Assign e0>sfi0");
        dfm_pass_ns(t, NS_PER_S - 1);
        sfi_acks(t, 0, 1);
        assert_dfm_says(t, "");
        assert_int_equal(dfm_state(t->dfm), RUN_RUNNING);
        assert_int_equal(dfm_deadline_ns(t->dfm), t->now_ns + 1);
        assert_dfm_says_after(t, 1, "");
        assert_int_equal(dfm_state(t->dfm), RUN_DRAINING);
        assert_int_equal(dfm_counts(t->dfm)->triggers, 1);
}

DFM_TEST(a_failed_sfi_ends_the_run)
{
        sfi_grants(t, 0, 1);
        assert_dfm_says(t, "sfi0: Assign e0>sfi0#0 | ross: Assign e0>sfi0");
        sfi_says_alive(t, 0, RUN_RUNNING, ALIVE_FAILED);
        sfi_grants(t, 1, 1);
        assert_dfm_says(t, "");
        assert_int_equal(dfm_state(t->dfm), RUN_DRAINING);
        /* Nothing is reassigned in a run that must end. */
        sfi_says_alive(t, 0, RUN_ENDED, 0);
        assert_dfm_says(t, "ross: Clear #0 oldest 1: e0");
        assert_int_equal(dfm_counts(t->dfm)->lost, 1);
}

DFM_TEST(a_leaving_sfi_gets_no_new_events)
{
        sfi_grants(t, 0, 1);
        assert_dfm_says(t, "sfi0: Assign e0>sfi0#0 | ross: Assign e0>sfi0");
        sfi_says_alive(t, 0, RUN_DRAINING, 0);
        sfi_grants(t, 0, 5);
        assert_dfm_says(t, "");
        /* It may finish the events that it has. */
        sfi_acks(t, 0, 1);
        sfi_ends(t, 0, 0, EVENT_COMPLETE, 0);
        assert_dfm_says(t, "");
        assert_int_equal(dfm_counts(t->dfm)->complete, 1);
}

DFM_TEST(malformed_messages_are_refused)
{
        assert_false(ros_says_alive(t, 2, RUN_RUNNING, 0));
        assert_false(sfi_says_alive(t, 2, RUN_RUNNING, 0));
        assert_false(driver_say(t, ROLE_SFI, 0, MESSAGE_XOFF, 100));
        assert_false(driver_say(t, ROLE_DFM, 0, MESSAGE_ALIVE, 100));
        assert_false(driver_say(t, ROLE_ROS, 0, MESSAGE_UPDATE, 0));
        assert_false(driver_say(t, ROLE_SFI, 0, MESSAGE_REQUEST, 0));
        assert_false(sfi_grants(t, 2, 5));
        t->sfis[1].incarnation = 2;
        /* From an incarnation that has not joined: well-formed, but without effect. */
        assert_true(sfi_grants(t, 1, 5));
        assert_int_equal(dfm_counts(t->dfm)->foreign, 1);
        assert_dfm_says(t, "");
}

TEST(impossible_configurations_are_refused)
{
        struct dfm_config wrong[] = {dfm_standard(), dfm_standard(), dfm_standard(), dfm_standard(),
                                     dfm_standard()};
        struct dfm *d = NULL;

        wrong[0].n_ros = 0;
        wrong[1].n_sfi = EVB_SFI_MAX + 1;
        wrong[2].events_max = 0;
        wrong[3].clear_group = 0;
        wrong[4].message_bytes = MESSAGE_HEADER_BYTES + 8;
        for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
                assert_true(dfm_new(&d, &wrong[i], 0) < 0);
        assert_null(d);
        assert_null(dfm_free(NULL));
}
