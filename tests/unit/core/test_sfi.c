/* The SFI and the DFM: ends and credits. See test_sfi_assign.c for assignments and test_sfi_run.c for the
 * run. */
#include "sfi_driver.h"

SFI_TEST(a_complete_event_is_reported_with_a_new_credit, 0)
{
        struct sfi_built built;
        uint32_t slot;

        sfi_gets_assign(t, 5);
        sfi_gets_whole(t, 5);
        assert_int_equal(sfi_pop_built(t->sfi, &slot, 1), 1);
        assert_int_equal(sfi_pop_built(t->sfi, &slot, 1), 0);
        sfi_built_event(t->sfi, slot, &built);
        assert_fields(&built, event, 5, end, EVENT_COMPLETE);
        assert_int_equal(built.fragments[1].bytes, 100);
        assert_true(built.fragments[1].whole && built.fragments[1].at != built.fragments[0].at);
        assert_sfi_says(t, ""); /* it is not written yet */
        sfi_written(t->sfi, t->now_ns, slot, false);
        assert_sfi_says(t, "dfm: Update granted 5 ack 1 #0:e5 complete 200 B");
        assert_int_equal(sfi_open_events(t->sfi), 0);
}

SFI_TEST_EACH(the_event_header_comes_from_the_trigger, with_info, 2, 0)
{
        struct sfi_built built;
        uint32_t slot;

        t->message.assign.with_info = with_info;
        t->message.n = 1;
        t->message.assign.announces = false;
        t->message.assign.sfi = 1;
        t->message.assign.incarnation = 3;
        t->message.assign.entries[0] =
                (struct assign_entry){.event = 2, .l1_id = 40, .sfi = 1, .time_ns = 5000000006};
        t->message.assign.infos[0] = (struct event_info){.global_id = 90, .l1_id = 40, .bc_id = 7};
        assert_true(to_sfi(t, ROLE_DFM, 0, MESSAGE_BUILD, 0));
        for (uint16_t ros = 0; ros < c.n_ros; ros++) {
                struct sfi_chunk p = chunk_of(ros, 2, 0, 100, 100);

                p.chunk.l1_id = 40;
                assert_int_equal(sfi_gets_chunk(t, p), SFI_STORE);
        }
        assert_int_equal(sfi_pop_built(t->sfi, &slot, 1), 1);
        sfi_built_event(t->sfi, slot, &built);
        assert_true(built.assigned_again);
        assert_fields(&built.info, l1_id, 40, global_id, with_info ? 90 : 2, bc_id, with_info ? 7 : 0, time_s,
                      with_info ? 0 : 5, time_ns, with_info ? 0 : 6, run, with_info ? 0 : 7);
        sfi_written(t->sfi, t->now_ns, slot, false);
}

SFI_TEST(unacknowledged_entries_are_resent_with_backoff, 0)
{
        static const uint64_t distances_ms[] = {20, 40, 80, 160, 320, 320};

        for (uint64_t event = 0; event < 2; event++) {
                sfi_gets_assign(t, event);
                sfi_gets_whole(t, event);
        }
        assert_sfi_writes(t, "e0 complete | e1 complete");
        assert_sfi_says(t, "dfm: Update granted 6 ack 2 #0:e0 complete 200 B #1:e1 complete 200 B");
        for (size_t i = 0; i < ARRAY_SIZE(distances_ms); i++) {
                assert_true(sfi_deadline_ns(t->sfi) <= t->now_ns + distances_ms[i] * NS_PER_MS);
                assert_sfi_says_after(t, distances_ms[i] * NS_PER_MS - 1, "");
                assert_sfi_says_after(
                        t, 1, "dfm: Update granted 6 ack 2 #0:e0 complete 200 B #1:e1 complete 200 B");
        }
        t->config.member.incarnation = 2; /* one for the previous incarnation */
        sfi_gets_ack(t, 2);
        t->config.member.incarnation = 3;
        sfi_gets_ack(t, 3); /* more than there are */
        sfi_gets_ack(t, 1);
        assert_sfi_says_after(t, 20 * NS_PER_MS, "dfm: Update granted 6 ack 2 #1:e1 complete 200 B");
        sfi_gets_ack(t, 2);
        sfi_gets_ack(t, 1); /* overtaken */
        assert_sfi_says_after(t, NS_PER_S, "");
}

/* At 8 kbit/s, a message of some 120 bytes is paid for in 120 ms, and a burst of two frames goes ahead. */
PULL_TEST(updates_and_requests_keep_to_their_share, 0,
          c.control = (struct budget_plan){
                  .share_bps = 8000, .update_bps = 8000, .request_bps = 8000, .header_bytes = 42})
{
        unsigned updates = 0;

        for (uint64_t event = 0; event < 60; event++) {
                sfi_gets_assign(t, event);
                sfi_says(t);
                sfi_gets_whole(t, event);
                sfi_writes_with(t, false);
                updates += strstr(sfi_says(t), "Update") != NULL;
        }
        assert_in_range(updates, 10, 30);
        /* Waiting requests are sent together once the budget allows it. */
        assert_int_equal(sfi_deadline_ns(t->sfi) > t->now_ns, 1);
        t->now_ns = sfi_deadline_ns(t->sfi);
        assert_non_null(strstr(sfi_says(t), "#59:e59 complete"));

        sfi_gets_assign(t, 60);
        assert_null(strstr(sfi_says(t), "Request"));
        while (!strstr(sfi_says(t), "Request")) {
                assert_true(t->now_ns < TRACE_BEGIN_NS + 10 * NS_PER_S);
                t->now_ns = sfi_deadline_ns(t->sfi);
        }
}

SFI_TEST_EACH(an_expired_event_is_built_without_missing_fragments, pull, 2, 0, c.retries_max = 0,
              c.pull = pull)
{
        sfi_gets_assign(t, 0);
        sfi_gets_assign(t, 1);
        sfi_says(t);
        sfi_gets_fragment(t, 1, 0);
        sfi_gets_chunk(t, chunk_of(0, 0, 0, 32, 100));
        t->now_ns += c.timeout_ns - 1;
        sfi_says(t);
        assert_sfi_writes(t, "");
        t->now_ns += 1;
        sfi_says(t);
        assert_sfi_writes(t, "e0 partial | e1 lost");
        assert_sfi_says(t, "dfm: Update granted 6 ack 2 #0:e0 partial -1 #1:e1 lost -2");
        assert_counts(sfi_event_counts(t->sfi), fragments_lost, 3, payload_bytes, 0);
}

/* What came while the process did not run waits in its sockets. Only the time before and after counts. */
SFI_TEST_EACH(a_suspended_sfi_extends_the_timeouts_of_its_events, pull, 2, 0, c.retries_max = 0,
              c.pull = pull)
{
        sfi_gets_assign(t, 0);
        sfi_says(t);
        t->now_ns += c.timeout_ns / 4;
        sfi_says(t);
        t->now_ns += c.timeout_ns;
        sfi_was_paused(t->sfi, t->now_ns, c.timeout_ns);
        sfi_says(t);
        assert_sfi_writes(t, "");
        t->now_ns += c.timeout_ns * 3 / 4 - 1;
        sfi_says(t);
        assert_sfi_writes(t, "");
        t->now_ns += 1;
        sfi_says(t);
        assert_sfi_writes(t, "e0 lost");
}

SFI_TEST(an_unwritable_event_is_lost, 0)
{
        sfi_gets_assign(t, 0);
        sfi_gets_whole(t, 0);
        assert_string_equal(sfi_writes_with(t, true), "e0 complete");
        assert_sfi_says(t, "dfm: Update granted 5 ack 1 #0:e0 lost -2");
        assert_counts(sfi_event_counts(t->sfi), lost, 1, payload_bytes, 0);
        sfi_set_failed(t->sfi, t->now_ns, REASON_NONE);
        assert_sfi_says(t, "dfm: Alive running failed | dfm: Update granted 5 ack 1");
}

SFI_TEST(credits_follow_the_buffer_size, 0, c.credits = 0, c.slots = 16, c.n_ros = 1)
{
        sfi_gets_assign(t, 0);
        sfi_gets_whole(t, 0);
        assert_sfi_writes(t, "e0 complete");
        /* For small events: three quarters of the slots. */
        assert_sfi_says(t, "dfm: Update granted 13 ack 1 #0:e0 complete 100 B");
        sfi_gets_ack(t, 1);
        /* For an event of one mebibyte: three quarters of the buffer, but no credit is taken back. */
        for (uint64_t event = 1; event < 10; event++) {
                sfi_gets_assign(t, event);
                sfi_gets_chunk(t, chunk_of(0, event, 0, 1u << 20, 1u << 20));
                sfi_writes_with(t, false);
        }
        assert_non_null(strstr(sfi_says(t), "Update granted 16 ack 10 "));
}

SFI_TEST_EACH(in_push_credits_follow_the_socket_buffer_too, pull, 2, 0, c.credits = 0,
              c.room_bytes = 5 * 512 + 200, c.pull = pull)
{
        sfi_gets_assign(t, 0);
        sfi_gets_whole(t, 0); /* takes 512 bytes */
        assert_sfi_writes(t, "e0 complete");
        /* In pull, the slots bound them: the buffer bounds none of the first 32. */
        assert_sfi_says(t, pull ? "dfm: Update granted 7 ack 1 #0:e0 complete 200 B"
                                : "dfm: Update granted 6 ack 1 #0:e0 complete 200 B");
}

/* More would let ROSs run further ahead of each other. A few are known ahead of their requests in any case.
 */
static const struct {
        uint32_t events, credits;
} rooms[] = {{50, 50}, {5, 32}, {0, 96}};

SFI_TEST_EACH(in_pull_credits_follow_the_socket_buffer_down_to_32, i, ARRAY_SIZE(rooms), 1, c.credits = 0,
              c.slots = 128, c.pull = true, c.n_ros = 64,
              /* the limit begins with a frame of each, which allows all of them */ c.room_bytes =
                      rooms[i].events * 64 * 1024)
{
        char says[64];

        for (uint16_t ros = 0; ros < c.n_ros; ros++)
                sfi_gets_chunk(t, chunk_of(ros, 0, 0, 1000, 1000));
        assert_sfi_writes(t, "e0 complete");
        snprintf(says, sizeof says, "dfm: Update granted %u ack 1 #0:e0 complete 64000 B",
                 rooms[i].credits + 1);
        assert_sfi_says(t, says);
}
