/* The reports of an SFI to a DFM that resumes the run, and on events that a slow disk delays. */
#include "sfi_driver.h"

#define SECOND_DFM (TRACE_DFM + 1)

#define QUIET_TEST(name, events) SFI_TEST(name, events, c.retries_max = 0)

/* The previous DFM is gone, and another one answers. */
static void another_dfm_comes(struct sfi_driver *t, uint64_t dfm, const char *join)
{
        t->now_ns += 100 * NS_PER_MS;
        t->dfm = dfm;
        t->keep_alive_next = 0;
        sfi_gets_keep_alive(t, RUN_STARTING, 0, 3);
        assert_true(trace_begins(sfi_says(t), join));
        sfi_gets_welcome(t, dfm, WELCOME_OK);
        t->assign_next = 0;
}

static void is_asked(struct sfi_driver *t, uint64_t incarnation, uint64_t from)
{
        t->message.inquiry.incarnation = incarnation;
        t->message.inquiry.from = from;
        assert_true(to_sfi(t, ROLE_DFM, 0, MESSAGE_INQUIRY, 0));
}

QUIET_TEST(the_inventory_lists_ended_and_open_events, 4)
{
        sfi_gets_whole(t, 0);
        sfi_gets_whole(t, 2);
        assert_sfi_writes(t, "e0 complete | e2 complete");
        sfi_gets_whole(t, 3); /* built and not written */
        sfi_says(t);
        another_dfm_comes(t, SECOND_DFM, "dfm: Join in run 7, events [0,4)");
        /* Its own reports start afresh: the inventory holds the earlier ends. */
        assert_sfi_says(t, "dfm: Alive running | dfm: Update granted 4 ack 0");
        is_asked(t, c.member.incarnation + 1, 0);
        assert_sfi_says(t, "");
        is_asked(t, c.member.incarnation, 0);
        assert_sfi_says(t, "dfm: Inventory [0,4) 2 complete 0 partial ended 5 open a");
        /* Later ends are reported as usual, and the inventory does not change. */
        assert_sfi_writes(t, "e3 complete");
        assert_sfi_says(t, "dfm: Update granted 5 ack 0 #0:e3 complete 200 B");
        is_asked(t, c.member.incarnation, 0);
        assert_sfi_says(t, "dfm: Inventory [0,4) 2 complete 0 partial ended 5 open a");
        is_asked(t, c.member.incarnation, 64);
        assert_sfi_says(t, "dfm: Inventory [64,4) 2 complete 0 partial");
        sfi_gets_whole(t, 1);
        assert_sfi_writes(t, "e1 complete");
        assert_sfi_says(t, "dfm: Update granted 6 ack 0 #1:e1 complete 200 B");
}

/* An event that could not be written is neither ended nor open, so another SFI may build it. */
QUIET_TEST(a_failed_event_is_not_in_the_inventory, 1)
{
        sfi_gets_whole(t, 0);
        assert_string_equal(sfi_writes_with(t, true), "e0 complete");
        sfi_says(t);
        another_dfm_comes(t, SECOND_DFM, "dfm: Join in run 7, events [0,1)");
        sfi_says(t);
        is_asked(t, c.member.incarnation, 0);
        assert_sfi_says(t, "dfm: Inventory [0,1) 0 complete 0 partial ended 0 open 0");
}

/* It joins late in the run, and its first KeepAlive is lost. It must remember what it builds. */
QUIET_TEST(a_late_sfi_remembers_events_built_before_the_first_keep_alive, 0)
{
        const uint64_t far = 3 * (uint64_t)EVB_EVENT_WINDOW + 10;

        sfi_gets_assign(t, far);
        sfi_gets_whole(t, far);
        assert_true(trace_begins(sfi_writes_with(t, false), "e"));
        assert_int_equal(sfi_gets_fragment(t, 0, far), SFI_LATE);
        sfi_says(t);
        sfi_gets_keep_alive(t, RUN_RUNNING, far - 5, 3);
        another_dfm_comes(t, SECOND_DFM, "dfm: Join in run 7, events [12582917,12582923)");
        sfi_says(t);
        is_asked(t, c.member.incarnation, far / 64 * 64);
        assert_sfi_says(t, "dfm: Inventory [12582912,12582923) 1 complete 0 partial ended 400 open 0");
}

/* The disk takes longer than the DFM waits for an event. The DFM is informed once. */
QUIET_TEST(an_event_being_written_is_reported, 1)
{
        struct sfi_built built;
        uint32_t slot;

        sfi_gets_whole(t, 0);
        assert_int_equal(sfi_pop_built(t->sfi, &slot, 1), 1);
        sfi_built_event(t->sfi, slot, &built);
        sfi_says(t);
        t->now_ns += NS_PER_S / 2;
        sfi_says(t);
        assert_sfi_says_after(t, NS_PER_S / 2 - 1, "");
        assert_sfi_says_after(t, 1, "dfm: Update granted 4 ack 1 #0:e0 writing");
        sfi_gets_ack(t, 1);
        assert_sfi_says_after(t, 5 * NS_PER_S, "");
        /* Another DFM must be informed as well. */
        another_dfm_comes(t, SECOND_DFM, "dfm: Join in run 7, events [0,1)");
        assert_sfi_says(t, "dfm: Alive running | dfm: Update granted 4 ack 0 #0:e0 writing");
        sfi_gets_ack(t, 1);
        sfi_written(t->sfi, t->now_ns, slot, false);
        assert_sfi_says(t, "dfm: Update granted 5 ack 0 #1:e0 complete 200 B");
}

/* The DFM ignored the report while the event was not assigned here. */
QUIET_TEST(an_event_that_returns_while_it_is_written_is_reported_again, 1)
{
        uint32_t slot;

        sfi_gets_whole(t, 0);
        assert_int_equal(sfi_pop_built(t->sfi, &slot, 1), 1);
        sfi_says(t);
        assert_sfi_says_after(t, NS_PER_S, "dfm: Update granted 4 ack 1 #0:e0 writing");
        sfi_gets_ack(t, 1);
        sfi_gets_entry(t, MESSAGE_BUILD, 0, 1, t->assign_next++, 0);
        assert_sfi_says_after(t, NS_PER_S / 2, "dfm: Update granted 4 ack 2 #1:e0 writing");
        assert_sfi_says_after(t, 10 * NS_PER_MS, "");
        sfi_written(t->sfi, t->now_ns, slot, false);
        t->voids++;
}

/* The map of a DFM that resumes the run shows the nodes that joined so far. The others are not gone. */
QUIET_TEST(the_node_map_of_a_starting_dfm_ends_no_event, 1)
{
        sfi_gets_keep_alive(t, RUN_RUNNING, 0, 3);
        sfi_gets_fragment(t, 0, 0);
        another_dfm_comes(t, SECOND_DFM, "dfm: Join in run 7, events [0,1)");
        sfi_gets_keep_alive(t, RUN_STARTING, 0, 1);
        assert_sfi_writes(t, "");
        sfi_gets_fragment(t, 1, 0);
        assert_sfi_writes(t, "e0 complete");
}

/* It may then have replaced a process of which the other DFM does not know. */
static const uint32_t welcomes[] = {0, WELCOME_LATE, WELCOME_LATE | WELCOME_RESUMED};

/* The run begins when the last node has joined, so the first KeepAlive of that node shows a running DFM. */
CORE_TEST(sfi, an_sfi_reports_that_it_came_late, i, ARRAY_SIZE(welcomes), sfi_standard(),
          (t->welcome = welcomes[i], sfi_driver_start(t, &c, 0)), c.retries_max = 0)
{
        sfi_gets_keep_alive(t, RUN_RUNNING, 0, 3);
        sfi_says(t);
        t->welcome = WELCOME_LATE | WELCOME_RESUMED;
        another_dfm_comes(t, SECOND_DFM, "dfm: Join in run 7");
        sfi_says(t);
        is_asked(t, c.member.incarnation, 0);
        assert_true(trace_begins(sfi_says(t), "dfm: Inventory "));
        assert_int_equal(t->message.inventory.flags, welcomes[i] ? INVENTORY_LATE : 0);
}

/* What the new DFM does not learn of uses none of its credits, so the end returns none. */
QUIET_TEST(the_end_of_an_unlisted_event_returns_no_credit, 4)
{
        uint32_t slots[2];

        sfi_gets_whole(t, 1);
        sfi_gets_keep_alive(t, RUN_RUNNING, 1, 3); /* event 0 has ended elsewhere */
        assert_int_equal(sfi_pop_built(t->sfi, slots, 2), 2);
        sfi_says(t);
        another_dfm_comes(t, SECOND_DFM, "dfm: Join in run 7, events [1,4)");
        assert_sfi_says(t, "dfm: Alive running | dfm: Update granted 3 ack 0");
        is_asked(t, c.member.incarnation, 0);
        assert_sfi_says(t, "dfm: Inventory [0,4) 0 complete 0 partial ended 0 open e");
        sfi_written(t->sfi, t->now_ns, slots[1], false);
        assert_sfi_says(t, "dfm: Update granted 4 ack 0 #0:e0 lost -2");
        sfi_written(t->sfi, t->now_ns, slots[0], false);
        assert_sfi_says(t, "dfm: Update granted 5 ack 0 #1:e1 complete 200 B");
        t->voids++;
}

/* The same for an event that a slow disk delayed until all events up to the inquiry have ended. */
QUIET_TEST(an_event_from_before_the_inquiry_returns_no_credit, 4)
{
        uint32_t slot;

        sfi_gets_whole(t, 1);
        assert_int_equal(sfi_pop_built(t->sfi, &slot, 1), 1);
        sfi_says(t);
        another_dfm_comes(t, SECOND_DFM, "dfm: Join in run 7, events [0,4)");
        sfi_says(t);
        is_asked(t, c.member.incarnation, 64);
        assert_sfi_says(t, "dfm: Inventory [64,4) 0 complete 0 partial");
        sfi_written(t->sfi, t->now_ns, slot, false);
        assert_sfi_says(t, "dfm: Update granted 1 ack 0 #0:e1 complete 200 B");
}
