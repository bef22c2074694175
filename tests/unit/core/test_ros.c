/* The ROS with fragments made on request: holding, sending, clearing and its messages. */
#include "ros_driver.h"

ROS_TEST(holds_and_sends_a_fragment_once)
{
        ros_gets_assign(t, 4, 2, 0);
        assert_int_equal(ros_next_with_jobs(t->ros, 0), 2);
        assert_ros_sends(t, 0, "");
        assert_ros_sends(t, 2, "e4[0,1000) fill");
        assert_ros_sends(t, 2, "");
        assert_int_equal(ros_next_with_jobs(t->ros, 0), UINT32_MAX);
        assert_int_equal(ros_held(t->ros), 1);
        assert_true(ros_buffer_used_bytes(t->ros) >= 1000);
        assert_int_equal(ros_counts(t->ros)->fragments_sent, 1);
}

ROS_TEST(holds_a_fragment_until_it_is_cleared)
{
        ros_gets_assign(t, 0, 0, 0);
        ros_gets_assign(t, 1, 0, 0);
        assert_ros_sends(t, 0, "e0[0,1000) fill | e1[0,1000) fill");
        /* A retry sends it again without making it again. */
        ros_gets_request(t, 0, 0, 1);
        assert_ros_sends(t, 0, "e0[0,1000)");
        ros_gets_clear(t, 0);
        assert_int_equal(ros_held(t->ros), 1);
        ros_gets_clear(t, 0);
        ros_gets_clear(t, 77);
        assert_int_equal(ros_held(t->ros), 1);
        ros_gets_request(t, 0, 1, 2);
        assert_ros_sends(t, 0, "e1[0,1000)");
}

ROS_TEST(void_and_foreign_assignments_send_nothing)
{
        ros_gets_assign(t, 0, 0, ASSIGN_VOID);
        ros_gets_assign(t, 1, 3, 0);
        assert_int_equal(ros_next_with_jobs(t->ros, 0), UINT32_MAX);
        assert_int_equal(ros_held(t->ros), 0);
}

ROS_TEST(sends_the_requested_range)
{
        ros_gets_request_part(t, 0, 3, 64, 128, 0);
        ros_gets_request_part(t, 0, 3, 64, 159, 0);   /* ends on a block */
        ros_gets_request_part(t, 0, 3, 992, 1000, 0); /* or with the fragment */
        ros_gets_request_part(t, 0, 3, 992, 5000, 0);
        ros_gets_request_part(t, 0, 3, 1024, UINT32_MAX, 0); /* past its end */
        ros_gets_request_part(t, 0, 3, 64, 90, 0);           /* less than a block */
        assert_ros_sends(t, 0, "e3[64,128) fill | e3[64,128) | e3[992,1000) | e3[992,1000)");
        assert_int_equal(ros_next_with_jobs(t->ros, 0), UINT32_MAX);
}

ROS_TEST(a_queued_fragment_is_not_queued_again)
{
        ros_gets_request(t, 0, 3, 0);
        ros_gets_request(t, 0, 3, 1);
        ros_gets_request(t, 1, 3, 1); /* for another SFI */
        assert_ros_sends(t, 0, "e3[0,1000) fill");
        assert_ros_sends(t, 1, "e3[0,1000)");
        ros_gets_request(t, 0, 3, 2);
        assert_ros_sends(t, 0, "e3[0,1000)");
        /* In pull by bytes, the first range may be lost while the next ones wait. */
        ros_gets_request_part(t, 0, 3, 320, 640, 0);
        ros_gets_request_part(t, 0, 3, 640, 1024, 0);
        ros_gets_request_part(t, 0, 3, 320, 1024, 1); /* this range waits */
        ros_gets_request_part(t, 0, 3, 640, 1024, 1);
        ros_gets_request_part(t, 0, 3, 0, 320, 1);
        ros_gets_request_part(t, 1, 3, 640, 1024, 1); /* for another SFI */
        assert_ros_sends(t, 0, "e3[320,640) | e3[640,1000) | e3[0,320)");
        assert_ros_sends(t, 1, "e3[640,1000)");
        ros_gets_request_part(t, 0, 3, 640, 1024, 2);
        assert_ros_sends(t, 0, "e3[640,1000)");
}

/* A restarted DFM gave the number of the event to another trigger, and an SFI that was away has the event of
 * its predecessor. */
ROS_TEST(a_made_fragment_keeps_the_l1_id_of_its_trigger)
{
        struct ros_job job;

        ros_gets_request(t, 0, 3, 0); /* it is not made yet when the other request comes */
        t->message.request.entries[0] = (struct request_entry){3, 71, 0, UINT32_MAX, 0};
        assert_true(to_ros(t, ROLE_SFI, 1, MESSAGE_REQUEST, 0));
        for (uint32_t sfi = 2; sfi-- > 0;) {
                assert_int_equal(ros_jobs(t->ros, sfi, &job, 1), 1);
                assert_int_equal(job.job.chunk.l1_id, 3);
                assert_int_equal(job.fill, sfi == 1);
        }
}

ROS_TEST(a_cleared_fragment_is_not_sent)
{
        ros_gets_request(t, 0, 3, 0);
        ros_gets_request(t, 0, 4, 0);
        ros_gets_clear(t, 3); /* it still waits to be sent */
        assert_ros_sends(t, 0, "e4[0,1000) fill");
        ros_gets_keep_alive(t, RUN_RUNNING, 5, 7);
        assert_int_equal(ros_held(t->ros), 0);
        ros_gets_request(t, 0, 4, 1);
        assert_ros_sends(t, 0, "");
        assert_int_equal(ros_counts(t->ros)->unknown, 1);
        assert_int_equal(ros_held(t->ros), 0);
}

ROS_TEST(keep_alive_makes_up_for_lost_clears)
{
        ros_gets_assigns(t, 0, 6);
        ros_gets_clear(t, 0);
        t->clear_next += 2; /* two are lost */
        ros_gets_keep_alive(t, RUN_RUNNING, 4, 7);
        assert_int_equal(ros_held(t->ros), 2);
        assert_int_equal(ros_counts(t->ros)->clear_gaps, 2);
        ros_gets_keep_alive(t, RUN_RUNNING, 4, 7);
        ros_gets_clear(t, 4);
        assert_int_equal(ros_counts(t->ros)->clear_gaps, 2);
        t->clear_next++;
        ros_gets_clear(t, 5);
        assert_int_equal(ros_counts(t->ros)->clear_gaps, 3);
        assert_int_equal(ros_held(t->ros), 0);
}

ROS_TEST(a_stray_clear_number_does_not_spoil_the_count)
{
        ros_gets_assigns(t, 0, 5);
        ros_gets_clear(t, 0);
        t->clear_next = 1u << 31;
        ros_gets_clear(t, 1); /* its number is wrong, but its content is right */
        ros_gets_keep_alive(t, RUN_RUNNING, 0, 7);
        assert_int_equal(ros_held(t->ros), 3);
        assert_int_equal(ros_counts(t->ros)->clear_gaps, 0);
        t->clear_next = 2;
        ros_gets_clear(t, 3);
        assert_int_equal(ros_counts(t->ros)->clear_gaps, 1);
        t->clear_next = 1; /* it was only overtaken */
        ros_gets_clear(t, 2);
        assert_counts(ros_counts(t->ros), clear_gaps, 0, clear_suspects, 2);
        assert_int_equal(ros_held(t->ros), 1);
}

ROS_TEST(an_overtaken_keep_alive_is_ignored)
{
        assert_int_equal(ros_sfi_live(t->ros)[0], UINT64_MAX);
        ros_gets_keep_alive(t, RUN_STARTING, 0, 1);
        assert_int_equal(ros_sfi_live(t->ros)[0], UINT64_MAX); /* only those that joined so far */
        t->keep_alive_next = 9;
        ros_gets_keep_alive(t, RUN_RUNNING, 0, 5);
        assert_int_equal(ros_sfi_live(t->ros)[0], 5);
        t->keep_alive_next = 8;
        ros_gets_keep_alive(t, RUN_ENDED, 0, 7);
        assert_int_equal(ros_sfi_live(t->ros)[0], 5);
        t->dfm = TRACE_DFM + 1; /* a restarted DFM, which the ROS joins */
        t->keep_alive_next = 0;
        ros_gets_keep_alive(t, RUN_STARTING, 0, 1);
        t->now_ns += NS_PER_S;
        ros_says(t);
        ros_gets_welcome(t, TRACE_DFM + 1, WELCOME_OK);
        ros_gets_keep_alive(t, RUN_STARTING, 0, 1);
        assert_int_equal(ros_sfi_live(t->ros)[0], 5); /* again only those that joined it so far */
        assert_int_equal(ros_run_state(t->ros), RUN_RUNNING);
        t->keep_alive_next = 10;
        ros_gets_keep_alive(t, RUN_ENDED, 0, 0);
        assert_int_equal(ros_sfi_live(t->ros)[0], 5); /* they leave, but finish first */
        assert_int_equal(ros_run_state(t->ros), RUN_ENDED);
}

/* The run continues, so a frame without room is lost data again. */
ROS_TEST(a_restarted_dfm_forgets_a_stop)
{
        ros_gets_keep_alive(t, RUN_RUNNING, 0, 1);
        ros_gets_keep_alive(t, RUN_DRAINING, 0, 1);
        assert_int_equal(ros_run_state(t->ros), RUN_DRAINING);
        t->dfm = TRACE_DFM + 1;
        t->keep_alive_next = 0;
        ros_gets_keep_alive(t, RUN_STARTING, 0, 1);
        t->now_ns += NS_PER_S;
        ros_says(t);
        ros_gets_welcome(t, TRACE_DFM + 1, WELCOME_OK);
        ros_gets_keep_alive(t, RUN_RUNNING, 0, 1);
        assert_int_equal(ros_run_state(t->ros), RUN_RUNNING);
        ros_gets_keep_alive(t, RUN_DRAINING, 0, 1);
        assert_int_equal(ros_run_state(t->ros), RUN_DRAINING);
}

/* All other nodes were replaced while this ROS was cut off, so another run began. */
ROS_TEST(a_ros_whose_run_is_over_holds_nothing)
{
        ros_gets_keep_alive(t, RUN_RUNNING, 0, 1);
        ros_gets_assigns(t, 0, 3);
        assert_ros_sends(t, 0, "e0[0,1000) fill | e1[0,1000) fill | e2[0,1000) fill");
        ros_gets_clear(t, 1);
        assert_int_equal(ros_held(t->ros), 2);
        ros_run_is_over(t);
        assert_int_equal(ros_run_state(t->ros), RUN_ENDED);
        assert_int_equal(ros_held(t->ros), 0);
        assert_int_equal(ros_buffer_used_bytes(t->ros), 0);
        /* An SFI that was cut off, too, still follows the previous DFM. */
        ros_gets_request(t, 0, 3, 0);
        assert_int_equal(ros_held(t->ros), 0);
        assert_ros_sends(t, 0, "");
}

/* A DFM that was restarted without its record does not know the newest events. */
ROS_TEST(the_end_of_a_run_ends_events_that_its_dfm_does_not_know)
{
        ros_gets_keep_alive(t, RUN_RUNNING, 0, 1);
        ros_gets_assigns(t, 0, 3);
        assert_ros_sends(t, 0, "e0[0,1000) fill | e1[0,1000) fill | e2[0,1000) fill");
        ros_gets_keep_alive(t, RUN_ENDED, 1, 1);
        assert_int_equal(ros_held(t->ros), 0);
        assert_int_equal(ros_buffer_used_bytes(t->ros), 0);
}

ROS_TEST(bytes_in_use_stay_until_unpinned)
{
        struct ros_job job;

        t->fragment_bytes = EVB_FRAGMENT_MAX_BYTES; /* the whole buffer */
        ros_gets_assign(t, 0, 0, 0);
        assert_int_equal(ros_jobs(t->ros, 0, &job, 1), 1);
        ros_pin(t->ros, job.entry);
        ros_pin(t->ros, job.entry);
        ros_sent(t->ros, 0, 1, 0);
        ros_gets_clear(t, 0);
        ros_gets_assign(t, 1, 0, 0);
        ros_unpin(t->ros, job.entry);
        ros_gets_assign(t, 1, 0, 0);
        assert_ros_sends(t, 0, "");
        assert_int_equal(ros_counts(t->ros)->full, 2);
        ros_unpin(t->ros, job.entry);
        ros_gets_assign(t, 1, 0, 0);
        assert_ros_sends(t, 0, "e1[0,4194304) fill");
}

/* Room for ten fragments: by number, or by bytes. */
ROS_TEST_EACH(a_full_buffer_sends_xoff_and_room_sends_xon, entries, 2, c.entries = entries ? 10 : 100,
              c.buffer_bytes = entries ? 16u << 20 : 10u << 20)
{
        t->fragment_bytes = 1u << 20;
        ros_gets_assigns(t, 0, 8);
        assert_ros_says(t, "");
        ros_gets_assign(t, 8, 0, 0);
        assert_ros_says(t, "dfm: XOFF");
        ros_gets_assign(t, 9, 0, 0);
        ros_gets_assign(t, 10, 0, 0);
        assert_ros_says(t, "");
        assert_int_equal(ros_held(t->ros), 10);
        assert_counts(ros_counts(t->ros), full, 1, xoff, 1);
        ros_gets_clears(t, 0, 3);
        assert_ros_says(t, "");
        ros_gets_clear(t, 3);
        assert_ros_says(t, "dfm: XON");
}

ROS_TEST(a_refused_fragment_takes_no_room, c.entries = 1)
{
        ros_gets_assign(t, 0, 0, 0);
        ros_gets_assign(t, 1, 0, 0);
        assert_int_equal(ros_counts(t->ros)->full, 1);
        ros_gets_clear(t, 0);
        t->fragment_bytes = EVB_FRAGMENT_MAX_BYTES; /* the whole buffer */
        ros_gets_assign(t, 2, 0, 0);
        assert_ros_sends(t, 0, "e2[0,4194304) fill");
}

ROS_TEST(alive_reports_xoff_when_the_message_was_lost)
{
        ros_gets_assigns(t, 0, 9);
        assert_int_equal(ros_deadline_ns(t->ros), t->now_ns + c.keep_alive_ns);
        assert_ros_says_after(t, c.keep_alive_ns, "dfm: Alive running xoff");
        assert_int_equal(t->message.header.transaction, 1);
        assert_int_equal(t->message.alive.incarnation, 9);
        assert_ros_says(t, "");
        ros_gets_keep_alive(t, RUN_RUNNING, 9, 7);
        assert_ros_says(t, "dfm: XON");
        assert_int_equal(t->message.header.transaction, 2); /* one count for all three */
}

/* A ROS whose buffer is at its limit would otherwise send XOFF and XON at any rate. */
ROS_TEST(xoff_keeps_to_its_share, c.control = (struct budget_plan){.alive_bps = 8000, .header_bytes = 42})
{
        unsigned messages = 0;
        uint64_t event = 0;

        for (int turn = 0; turn < 100; turn++) {
                for (int k = 0; k < 9; k++)
                        ros_gets_assign(t, event++, 0, 0);
                messages += ros_says(t)[0] != '\0';
                ros_gets_keep_alive(t, RUN_RUNNING, event, 7);
                messages += ros_says(t)[0] != '\0';
        }
        assert_in_range(messages, 20, 40);
}

ROS_TEST(totals_go_with_alive_to_each_served_sfi)
{
        ros_gets_assign(t, 0, 0, 0);
        ros_gets_assign(t, 1, 2, 0);
        ros_gets_assign(t, 2, 2, 0);
        ros_sends(t, 0);
        ros_sends(t, 2);
        assert_int_equal(ros_transaction(t->ros, 2), 0);
        ros_count_datagrams(t->ros, 0, 1);
        ros_count_datagrams(t->ros, 2, 3);
        ros_count_datagrams(t->ros, 2, 2);
        assert_int_equal(ros_transaction(t->ros, 2), 5);
        assert_ros_says(t, "");
        assert_ros_says_after(t, c.keep_alive_ns,
                              "dfm: Alive running | sfi0: Totals 1 datagrams 1 fragments | sfi2: Totals 5 "
                              "datagrams 2 fragments");
        ros_set_ended(t->ros, t->now_ns);
        assert_ros_says(t, "dfm: Alive ended | sfi0: Totals 1 datagrams 1 fragments | sfi2: Totals 5 "
                           "datagrams 2 fragments");
}

ROS_TEST(a_partly_sent_fragment_continues)
{
        struct ros_job jobs[2];

        ros_gets_assigns(t, 0, 3);
        assert_int_equal(ros_jobs(t->ros, 0, jobs, 2), 2);
        ros_sent(t->ros, 0, 1, 512);
        assert_int_equal(ros_counts(t->ros)->fragments_sent, 1);
        assert_int_equal(ros_sent_to(t->ros, 0).bytes, 1512);
        assert_ros_sends(t, 0, "e1[512,1000) | e2[0,1000) fill");
        assert_int_equal(ros_sent_to(t->ros, 0).bytes, 3000);
        assert_int_equal(ros_sent_to(t->ros, 0).fragments, 3);
        assert_int_equal(ros_sent_to(t->ros, 1).bytes, 0);
}

ROS_TEST(each_sfi_has_its_own_queue)
{
        ros_gets_assign(t, 0, 2, 0);
        ros_gets_assign(t, 1, 0, 0);
        ros_gets_assign(t, 2, 2, 0);
        assert_int_equal(ros_next_with_jobs(t->ros, 0), 0);
        assert_int_equal(ros_next_with_jobs(t->ros, 1), 2);
        assert_int_equal(ros_next_with_jobs(t->ros, 3), UINT32_MAX);
        ros_forget_sfi(t->ros, 2);
        assert_ros_sends(t, 2, "");
        assert_ros_sends(t, 0, "e1[0,1000) fill");
        assert_int_equal(ros_held(t->ros), 3);
        /* It restarts: its requests are served. */
        ros_gets_request(t, 2, 2, 1);
        assert_ros_sends(t, 2, "e2[0,1000) fill");
}

ROS_TEST(a_fragment_without_bytes_is_sent_once)
{
        t->fragment_bytes = 0;
        ros_gets_assign(t, 0, 0, 0);
        assert_ros_sends(t, 0, "e0");
        ros_gets_request_part(t, 0, 0, 32, UINT32_MAX, 1);
        assert_ros_sends(t, 0, "");
}

ROS_TEST(leaves_when_empty_or_when_the_run_is_over)
{
        ros_gets_assign(t, 0, 0, 0);
        assert_false(ros_is_drained(t->ros));
        ros_stop(t->ros, t->now_ns);
        assert_ros_says(t, "dfm: Alive draining");
        ros_stop(t->ros, t->now_ns);
        assert_ros_says(t, "");
        assert_false(ros_is_drained(t->ros));
        ros_gets_clear(t, 0);
        assert_false(ros_is_drained(t->ros)); /* its item is still in a queue */
        ros_sends(t, 0);
        assert_true(ros_is_drained(t->ros));
        ros_free(t->ros);

        ros_driver_init(t, &c);
        ros_gets_assign(t, 0, 0, 0);
        ros_gets_keep_alive(t, RUN_DRAINING, 0, 7);
        assert_false(ros_is_drained(t->ros));
        ros_gets_keep_alive(t, RUN_ENDED, 0, 7);
        assert_true(ros_is_drained(t->ros));
}

ROS_TEST(malformed_messages_are_refused)
{
        struct ros_config wrong[] = {c, c, c, c};
        struct ros *r = NULL;

        t->message.n = 0;
        assert_false(to_ros(t, ROLE_SFI, 0, MESSAGE_ASSIGN, 0));
        assert_false(to_ros(t, ROLE_SFI, 0, MESSAGE_CLEAR, 0));
        assert_false(to_ros(t, ROLE_SFI, 0, MESSAGE_KEEP_ALIVE, 0));
        assert_false(to_ros(t, ROLE_SFI, 3, MESSAGE_REQUEST, 0));
        assert_false(to_ros(t, ROLE_DFM, 0, MESSAGE_REQUEST, 0));
        assert_false(to_ros(t, ROLE_SFI, 0, MESSAGE_UPDATE, 0));
        t->now_ns += NS_PER_MS;
        ros_gets_keep_alive(t, RUN_RUNNING, 0, 7);
        assert_int_equal(ros_member(t->ros)->received_ns, t->now_ns);

        wrong[0].n_sfi = 0;
        wrong[1].index = EVB_ROS_MAX;
        wrong[2].entries = 0;
        wrong[3].buffer_bytes = EVB_FRAGMENT_MAX_BYTES - 1;
        for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
                assert_true(ros_new(&r, &wrong[i], 0) < 0);
        assert_null(r);
        assert_null(ros_free(NULL));
}
