/* What incomplete events wait for in the SFI: for how long, which end they have without optional fragments,
 * and how many more events the SFI accepts in the meantime. */
#include "sfi_driver.h"

#define WAIT_NS (300 * NS_PER_MS)

/* Without retries; the rules are of ROS 0 and ROS 1. */
#define RULES_TEST_EACH(name, i, n, events, ...)                                                             \
        SFI_TEST_EACH(name, i, n, events, c.rules = (const struct ros_rule[])__VA_ARGS__, c.retries_max = 0, \
                      c.pull = i)
#define RULES_TEST(name, events, ...) RULES_TEST_EACH(name, once, 1, events, __VA_ARGS__)

/* The time passes without a request. */
static void pass(struct sfi_driver *t, uint64_t ns)
{
        t->now_ns += ns;
        sfi_says(t);
}

RULES_TEST_EACH(an_event_waits_for_an_optional_fragment_as_configured, pull, 2, 1,
                {{}, {.optional = true, .wait_ns = WAIT_NS}})
{
        pass(t, 0);
        sfi_gets_fragment(t, 0, 0);
        pass(t, WAIT_NS - 1);
        assert_sfi_writes(t, "");
        pass(t, 1);
        assert_sfi_writes(t, "e0 complete");
        assert_sfi_says(t, "dfm: Update granted 5 ack 1 #0:e0 complete 100 B absent 1");
        assert_counts(sfi_event_counts(t->sfi), complete, 1, fragments_absent, 1, fragments_lost, 0);
}

/* The wait ends, but a required fragment is still missing: the event ends when that arrives, or at its
 * time-out. */
RULES_TEST(required_fragments_have_the_whole_time, 2, {{}, {.optional = true, .wait_ns = WAIT_NS}})
{
        pass(t, 2 * WAIT_NS);
        sfi_gets_fragment(t, 0, 0);
        pass(t, NS_PER_MS);
        assert_sfi_writes(t, "e0 complete");
        sfi_gets_fragment(t, 1, 1);
        pass(t, 2 * NS_PER_S);
        assert_sfi_writes(t, "e1 partial");
}

/* Without a wait, sfi.timeout decides; a required ROS with a wait makes events partial earlier. */
RULES_TEST(waits_and_requirements_are_independent, 1, {{}, {.optional = true}})
{
        sfi_gets_fragment(t, 0, 0);
        pass(t, 2 * NS_PER_S - 1);
        assert_sfi_writes(t, "");
        pass(t, 1);
        assert_sfi_writes(t, "e0 complete");
        sfi_driver_fini(t);
        c.rules = (const struct ros_rule[]){{}, {.wait_ns = WAIT_NS}};
        sfi_driver_start(t, &c, 1);
        sfi_gets_fragment(t, 0, 0);
        pass(t, WAIT_NS);
        assert_sfi_writes(t, "e0 partial");
}

/* A fragment that the ROS reports as pending is absent at once. An event without any fragment is lost. */
RULES_TEST(reports_of_a_ros_end_the_wait, 2, {{.optional = true}, {.optional = true, .wait_ns = WAIT_NS}})
{
        struct sfi_chunk pending = chunk_of(1, 0, 0, 0, 0);

        pending.chunk.status = FRAGMENT_PENDING;
        sfi_gets_fragment(t, 0, 0);
        assert_int_equal(sfi_gets_chunk(t, pending), SFI_STORE);
        assert_sfi_writes(t, "e0 complete");
        pass(t, 3 * NS_PER_S);
        assert_sfi_writes(t, "e1 lost");
        assert_int_equal(sfi_counts(t->sfi).fragments_absent, 1);
}

/* A lost event is unanswered only if no frame came to any ROS that is present. */
static const struct {
        int first, second; /* status of the fragment of each ROS; -1: it does not answer */
        bool wait;         /* both ROSs have a wait */
        bool unanswered;
} cases[] = {
        {FRAGMENT_PENDING, FRAGMENT_PENDING, false, true},
        {FRAGMENT_PENDING, FRAGMENT_LOST, false, false},
        {FRAGMENT_DISCARDED, FRAGMENT_PENDING, false, false},
        {FRAGMENT_PENDING, -1, false, false},
        {-1, -1, false, false},
        {FRAGMENT_PENDING, FRAGMENT_PENDING, true, true},
        {FRAGMENT_PENDING, FRAGMENT_LOST, true, false},
        {FRAGMENT_PENDING, -1, true, true},
        {-1, -1, true, false},
};
static const struct ros_rule both_wait[] = {{.wait_ns = WAIT_NS}, {.wait_ns = WAIT_NS}};

SFI_TEST_EACH(only_pending_fragments_leave_an_event_unanswered, i, ARRAY_SIZE(cases), 1,
              c.rules = cases[i].wait ? both_wait : NULL, c.retries_max = 0)
{
        const int statuses[] = {cases[i].first, cases[i].second};

        for (uint16_t ros = 0; ros < 2; ros++) {
                struct sfi_chunk p = chunk_of(ros, 0, 0, 0, 0);

                p.chunk.status = (uint8_t)statuses[ros];
                if (statuses[ros] >= 0)
                        assert_int_equal(sfi_gets_chunk(t, p), SFI_STORE);
        }
        pass(t, 3 * NS_PER_S);
        assert_sfi_writes(t, "e0 lost");
        assert_int_equal(strstr(sfi_says(t), "unanswered") != NULL, cases[i].unanswered);
}

/* The SFI has nothing of this event: the ROSs, which wait as long, are about to report what they have. */
RULES_TEST_EACH(an_event_without_any_fragment_waits_for_an_answer, pull, 2, 1,
                {{.wait_ns = WAIT_NS}, {.wait_ns = WAIT_NS}})
{
        struct sfi_chunk pending = chunk_of(1, 0, 0, 0, 0);

        pending.chunk.status = FRAGMENT_PENDING;
        pass(t, 0);
        pass(t, 2 * WAIT_NS);
        assert_sfi_writes(t, "");
        assert_int_equal(sfi_gets_chunk(t, pending), SFI_STORE);
        pass(t, 0);
        assert_sfi_writes(t, "e0 lost");
        assert_non_null(strstr(sfi_says(t), "unanswered"));
}

/* Data may come before the assignment: the wait of an event that is not assigned here must not discard it. */
RULES_TEST(an_unassigned_event_keeps_its_time, 0, {{}, {.optional = true, .wait_ns = WAIT_NS}})
{
        sfi_gets_fragment(t, 0, 0);
        pass(t, 2 * WAIT_NS);
        assert_int_equal(sfi_open_events(t->sfi), 1);
        sfi_gets_assign(t, 0);
        pass(t, NS_PER_MS);
        assert_sfi_writes(t, "e0 complete");
}

/* A ROS that the DFM leaves out is not waited for. */
RULES_TEST(a_left_out_ros_ends_the_wait, 2, {{}, {.optional = true}})
{
        sfi_gets_fragment(t, 0, 0);
        assert_sfi_writes(t, "");
        sfi_gets_keep_alive(t, RUN_RUNNING, 0, 1);
        assert_sfi_writes(t, "e0 complete");
        sfi_gets_keep_alive(t, RUN_RUNNING, 0, 3);
        sfi_gets_fragment(t, 0, 1);
        assert_sfi_writes(t, "");
        sfi_gets_fragment(t, 1, 1);
        assert_sfi_writes(t, "e1 complete");
        assert_int_equal(sfi_counts(t->sfi).fragments_absent, 1);
}

/* Credits that the SFI has announced, in an Update that is due now. */
static uint64_t granted(struct sfi_driver *t, uint64_t after_ns)
{
        uint64_t n = 0;

        t->now_ns += after_ns;
        while (sfi_makes(t)) {
                if (t->message.header.type == MESSAGE_UPDATE)
                        n = t->message.update.granted;
        }
        return n;
}

/* There is room for four events in flight. */
#define AUTO_TEST(name)                                                                                      \
        SFI_TEST(name, 4, c.credits = 0, c.slots = 64, c.room_bytes = 4 * 512, c.retries_max = 0)

/* Events that wait only for the silent ROS 1 leave the socket buffer to others. */
AUTO_TEST(credits_grow_with_the_events_that_only_wait)
{
        sfi_gets_fragments(t, 0, 4);
        assert_int_equal(granted(t, 10 * NS_PER_MS), 4);
        granted(t, 240 * NS_PER_MS); /* an eighth of the time-out: ROS 1 is silent */
        assert_int_equal(granted(t, 10 * NS_PER_MS), 8);
        /* Once the first one ends, its place is free for another. */
        sfi_gets_fragment(t, 1, 0);
        assert_sfi_writes(t, "e0 complete");
        assert_int_equal(granted(t, 10 * NS_PER_MS), 8);
}

/* Lost fragments of a ROS that sends others are in flight: more events would only lose more. */
AUTO_TEST(credits_do_not_grow_while_the_ros_sends)
{
        sfi_gets_fragments(t, 0, 4);
        granted(t, 240 * NS_PER_MS);
        sfi_gets_fragment(t, 1, 3);
        assert_sfi_writes(t, "e3 complete");
        granted(t, 10 * NS_PER_MS);
        assert_int_equal(granted(t, 10 * NS_PER_MS), 0); /* nothing new */
}

/* Nothing at all arrives, so no ROS is silent compared with others. */
AUTO_TEST(credits_do_not_grow_if_all_are_silent)
{
        assert_int_equal(granted(t, 10 * NS_PER_MS), 4);
        granted(t, 240 * NS_PER_MS);
        assert_int_equal(granted(t, 10 * NS_PER_MS), 0);
}
