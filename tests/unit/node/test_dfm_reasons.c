/* A DFM's reasons for a run without triggers, or with events that are not complete. */
#include "../test.h"

#include "../core/dfm_outside.h"
#include "node/dfm_reasons.h"

static struct scenario scenario;
static struct idle idle; /* what the DFM waited for last */
static struct reasons r;

static void name_nodes(const struct dfm_config *c)
{
        idle = (struct idle){};
        scenario = (struct scenario){
                .n_nodes = 1, .nodes[0] = {.name = "dfm", .role = ROLE_DFM}, .sfi.count = c->n_sfi};
        for (unsigned i = 0; i < c->n_ros + c->n_sfi; i++) {
                struct scenario_node *n = &scenario.nodes[scenario.n_nodes++];

                n->role = i < c->n_ros ? ROLE_ROS : ROLE_SFI;
                n->index = i < c->n_ros ? i : i - c->n_ros;
                snprintf(n->name, sizeof n->name, "%s%u", scenario_role_name(n->role), n->index + 1);
        }
}

/* A test of a DFM whose nodes have names. */
#define REASONS_TEST(name, begin, ...)                                                                       \
        DFM_TEST_AS(name, dfm_standard(), (name_nodes(&c), begin(t, &c)), ##__VA_ARGS__)

/* The DFM waits for this now. */
static void assert_waits(const struct dfm_driver *t, const char *text)
{
        struct obstacle o = {};

        dfm_explain(t->dfm, &scenario, t->now_ns, &o);
        assert_string_equal(o.text, text);
}

static void find_reasons(const struct dfm *d)
{
        r = (struct reasons){};
        dfm_reasons(d, &scenario, &idle, &r);
}

/* This is the only reason. NULL: there is none. */
static void assert_reason(const struct dfm *d, const char *text)
{
        find_reasons(d);
        assert_int_equal(r.n, text ? 1 : 0);
        if (text)
                assert_string_equal(r.text[0], text);
}

/* The DFM stops, and this is the only reason. */
static void assert_stops(struct dfm_driver *t, const char *text)
{
        dfm_stop(t->dfm, t->now_ns);
        assert_reason(t->dfm, text);
}

REASONS_TEST(missing_nodes_are_named, dfm_driver_init)
{
        ros_says_alive(t, 1, RUN_RUNNING, 0);
        sfi_says_alive(t, 0, RUN_RUNNING, 0);
        dfm_says_with(t, false);
        idle_explain(&idle, t->dfm, &scenario, 0);
        assert_stops(
                t,
                "no trigger was accepted: stopped before the run began; ros1, sfi2 never reached this DFM");
}

REASONS_TEST(a_long_list_of_nodes_is_shortened, dfm_driver_init, c.n_ros = 20)
{
        idle_explain(&idle, t->dfm, &scenario, 0);
        assert_stops(t, "no trigger was accepted: stopped before the run began; ros1, ros2, ros3, ros4, "
                        "ros5, ros6 and 16 more never reached this DFM");
}

/* At the end all nodes have left and XOFF is forgotten, so the reason must come from an earlier note. */
REASONS_TEST(a_ros_that_held_triggers_back_is_named, dfm_driver_start)
{
        ros_says_switch(t, 1, false);
        sfi_grants(t, 0, 3);
        assert_dfm_says(t, "");
        idle_explain(&idle, t->dfm, &scenario, 0);
        dfm_stop(t->dfm, t->now_ns);
        ros_says_alive(t, 0, RUN_ENDED, 0);
        ros_says_alive(t, 1, RUN_ENDED, 0);
        dfm_says_with(t, false);
        idle_explain(&idle, t->dfm, &scenario, 0);
        assert_stops(t, "no trigger was accepted: ros2 held triggers back (XOFF)");
}

REASONS_TEST(who_holds_back_at_the_end, dfm_driver_start)
{
        char text[256];

        sfi0_takes(t, 1);
        stall_describe_end(t->dfm, &scenario, 5 * NS_PER_S, text, sizeof text);
        assert_string_equal(text, "");
        ros_says_switch(t, 1, false);
        dfm_stop(t->dfm, t->now_ns);
        stall_describe_end(t->dfm, &scenario, 12 * NS_PER_S, text, sizeof text);
        assert_string_equal(text, "ros2 held triggers back (XOFF) for the last 12 s of the run");
}

/* All of its events had ended, and another process took its place: without durability, no file may have them.
 */
static const struct {
        enum scenario_durability durability;
        enum run_state end; /* RUN_ENDED: it leaves; else it falls silent */
        bool returns;
        const char *why;
} cases[] = {
        {DURABILITY_NONE, RUN_RUNNING, true,
         "sfi1 ended without closing its files: up to 2 of the events that it reported as built may be in no "
         "file, because sfi.durability is none"},
        {DURABILITY_NONE, RUN_RUNNING, false,
         "sfi1 ended without closing its files: up to 2 of the events that it reported as built may be in no "
         "file, because sfi.durability is none"},
        {DURABILITY_WRITTEN, RUN_RUNNING, true,
         "sfi1 was restarted before it had closed its files: until then it built 2 events, and the last ones "
         "before each restart are in a file without an end, which evb dump --repair completes"},
        {DURABILITY_SYNCED, RUN_RUNNING, false, NULL}, /* dfm_end.c: it is unfinished */
        {DURABILITY_NONE, RUN_ENDED, true, NULL},
        {DURABILITY_WRITTEN, RUN_ENDED, true, NULL},
};

TEST_EACH(files_that_were_not_closed_are_a_reason, i, ARRAY_SIZE(cases))
{
        struct dfm_config config = dfm_standard();
        _cleanup_(dfm_driver_fini) struct dfm_driver t;

        name_nodes(&config);
        scenario.sfi.output = OUTPUT_FILE;
        scenario.sfi.durability = cases[i].durability;
        dfm_driver_start(&t, &config);
        sfi0_takes(&t, 2);
        sfi_ends(&t, 0, 0, EVENT_COMPLETE, 0);
        sfi_ends(&t, 0, 1, EVENT_COMPLETE, 0);
        if (cases[i].end == RUN_ENDED)
                sfi_says_alive(&t, 0, RUN_ENDED, 0);
        else
                dfm_pass_ns(&t, config.node_timeout_ns + NS_PER_S);
        dfm_says_with(&t, false);
        if (cases[i].returns) {
                t.sfis[0] = (struct played_sfi){.incarnation = 2};
                sfi_says_alive(&t, 0, RUN_RUNNING, 0);
                dfm_says_with(&t, false);
        }
        assert_reason(t.dfm, cases[i].why);
}

REASONS_TEST(a_slow_front_end_is_a_reason, dfm_driver_start)
{
        ros_says_alive(t, 1, RUN_RUNNING, ALIVE_COUNTS); /* 0 frames */
        sfi_grants(t, 0, 3);
        assert_dfm_says(t, "");
        assert_waits(t, "ros2 waits for frames of its front-end");
        idle_explain(&idle, t->dfm, &scenario, 0);
        assert_stops(t, "no trigger was accepted: ros2 waited for a frame of its front-end");
}

REASONS_TEST(a_reset_is_a_reason, dfm_driver_start, c.trigger_source = DFM_TRIGGER_OFFERED,
             c.trigger_queue = 8)
{
        const struct trigger_entry reset = {.flags = TRIGGER_RESET | TRIGGER_MARKER};

        ros_says_alive(t, 0, RUN_RUNNING, 0);
        assert_waits(t, "ros1, ros2 did not confirm the beginning of the run");
        idle_explain(&idle, t->dfm, &scenario, 0);
        assert_string_equal(idle.why, "ros1, ros2 did not confirm the beginning of the run");
        t->resets = 1;
        for (uint16_t i = 0; i < c.n_ros; i++)
                ros_says_alive(t, i, RUN_RUNNING, 0);
        assert_dfm_says(t, "");
        assert_waits(t, "no trigger");
        sfi_grants(t, 0, 1);
        dfm_offer(t->dfm, t->now_ns, &(struct trigger_entry){.number = 5});
        dfm_says_with(t, false);
        dfm_offer(t->dfm, t->now_ns, &reset);
        dfm_says_with(t, false);
        assert_waits(t, "the counters were reset, and 1 event from before has not ended");
        sfi_acks(t, 0, 1);
        sfi_ends(t, 0, 0, EVENT_COMPLETE, 0);
        dfm_says_with(t, false);
        assert_waits(t, "ros1, ros2 did not confirm the last reset of the counters");
}

REASONS_TEST(missing_credits_are_a_reason, dfm_driver_start)
{
        idle_explain(&idle, t->dfm, &scenario, 0);
        assert_stops(t, "no trigger was accepted: no SFI had a free credit");
}

/* After the first trigger, only the fate of events matters. */
REASONS_TEST(open_partial_and_lost_events_are_counted, dfm_driver_start)
{
        sfi0_takes(t, 4);
        sfi_ends(t, 0, 0, EVENT_COMPLETE, 0);
        sfi_ends(t, 0, 1, EVENT_PARTIAL, 1);
        sfi_ends(t, 0, 2, EVENT_LOST, 2);
        dfm_close_accounts(t->dfm, t->now_ns);
        idle_explain(&idle, t->dfm, &scenario, 0);
        assert_string_equal(idle.why, "");
        find_reasons(t->dfm);
        assert_int_equal(r.n, 3);
        assert_string_equal(r.text[0], "1 of 4 events are partial");
        assert_string_equal(r.text[1], "2 of 4 events are lost");
        assert_string_equal(r.text[2], "lost events: 1 without a fragment, or not written (sfi1), 1 still "
                                       "open when this DFM ended (sfi1)");
}

/* The SFI may build them after the DFM's end. */
TEST_EACH(files_may_hold_open_events_that_count_as_lost, i, 3)
{
        static const char *const texts[] = {
                "lost events: 1 still open when this DFM ended (sfi1: files may hold it)",
                "lost events: 2 still open when this DFM ended (sfi1: files may hold some of them)",
                "lost events: 2 still open when this DFM ended (sfi1)"};
        struct dfm_config config = dfm_standard();
        _cleanup_(dfm_driver_fini) struct dfm_driver t;

        name_nodes(&config);
        scenario.sfi.output = i < 2 ? OUTPUT_FILE : OUTPUT_NULL;
        dfm_driver_start(&t, &config);
        sfi0_takes(&t, i == 0 ? 1 : 2);
        dfm_close_accounts(t.dfm, t.now_ns);
        find_reasons(t.dfm);
        assert_string_equal(r.text[r.n - 1], texts[i]);
}

/* With `synced`, the events in a file that cannot be synced or closed count as lost. */
TEST_EACH(files_of_a_failed_sfi_may_hold_events_that_were_not_synced, i, 4)
{
        static const char *const texts[] = {
                "lost events: 1 without a fragment, or not written (sfi1: files may hold it)",
                "lost events: 2 without a fragment, or not written (sfi1: files may hold some of them)",
                "lost events: 2 without a fragment, or not written (sfi1)",
                "lost events: 2 without a fragment, or not written (sfi1)"};
        struct dfm_config config = dfm_standard();
        _cleanup_(dfm_driver_fini) struct dfm_driver t;

        name_nodes(&config);
        scenario.sfi.output = OUTPUT_FILE;
        scenario.sfi.durability = i == 2 ? DURABILITY_WRITTEN : DURABILITY_SYNCED;
        dfm_driver_start(&t, &config);
        sfi0_takes(&t, i == 0 ? 1 : 2);
        for (uint64_t event = 0; event < (i == 0 ? 1 : 2); event++)
                sfi_ends(&t, 0, event, EVENT_LOST, (uint32_t)event);
        sfi_says_alive(&t, i == 3 ? 1 : 0, RUN_RUNNING, ALIVE_FAILED);
        dfm_says_with(&t, false);
        find_reasons(t.dfm);
        assert_string_equal(r.text[r.n - 1], texts[i]);
}

/* An SFI that fails to seal its last file reports that in its last message. */
REASONS_TEST(failed_output_and_repeated_events_are_reasons, dfm_driver_start)
{
        struct finished_entry late = {.event = 0, .end = EVENT_COMPLETE, .payload_bytes = 4};

        sfi0_takes(t, 1);
        sfi_ends(t, 0, 0, EVENT_COMPLETE, 0);
        assert_true(sfi_says_update(t, 1, 0, 1, &late));
        sfi_says_alive(t, 0, RUN_ENDED, ALIVE_FAILED);
        sfi_says_alive(t, 0, RUN_ENDED, 0);
        strcpy(scenario.sfi.directory, "/data");
        find_reasons(t->dfm);
        assert_int_equal(r.n, 2);
        assert_string_equal(r.text[0],
                            "the output of sfi1 failed: events that are complete may be in no file");
        assert_string_equal(r.text[1], "1 event ended again on another SFI: files may hold it twice");
}

/* An SFI received no fragment, but another one had built the event before. */
REASONS_TEST(an_event_that_another_sfi_built_is_not_lost, dfm_driver_start)
{
        sfi0_takes(t, 1);
        sfi_ends(t, 0, 0, EVENT_LOST, 0);
        find_reasons(t->dfm);
        assert_string_equal(r.text[0], "1 of 1 events are lost");
        sfi_ends(t, 1, 0, EVENT_COMPLETE, 0);
        assert_reason(t->dfm, NULL);
}

/* Another DFM lost event 0, and no process has its number. SFI 0 returns with it. */
REASONS_TEST(an_event_that_an_earlier_dfm_lost_may_be_in_a_file, dfm_driver_init, c.run = TRACE_RUN,
             c.cookie = TRACE_COOKIE + 1, c.run_is_free = true, c.node_timeout_ns = NS_PER_S)
{
        static struct dfm_processes p;

        p = (struct dfm_processes){.cookie = TRACE_COOKIE,
                                   .dfms = {0xf0},
                                   .has_all = true,
                                   .n_ros = 2,
                                   .n_sfi = 2,
                                   .counted.lost = 1,
                                   .oldest = 1,
                                   .next = 1};
        c.previous_processes = &p;
        dfm_driver_fini(t);
        dfm_driver_init(t, &c);
        for (uint16_t i = 0; i < 4; i++)
                node_follows(t, 0xf0, i < 2 ? ROLE_ROS : ROLE_SFI, i % 2, 1, 1);
        dfm_says_with(t, false);
        sfi_reports_bits(t, 0, 1, 1, 1, 0);
        sfi_reports_bits(t, 1, 1, 0, 0, 0);
        dfm_says_with(t, false);
        find_reasons(t->dfm);
        assert_string_equal(r.text[0], "1 event ended again on another SFI: files may hold it twice, or "
                                       "once, although the event counts as lost");
        assert_string_equal(r.text[2], "lost events: 1 of before this DFM resumed the run");
}

enum fate { SILENT, RETURNED, REPLACED, REPLACED_AT_ONCE };

/* Everybody speaks every tenth of a second, except SFI 0 if it is `silent`. */
static void pass_tenths(struct dfm_driver *t, unsigned tenths, bool silent)
{
        for (unsigned i = 0; i < tenths; i++) {
                dfm_pass_ns(t, NS_PER_S / 10);
                for (uint16_t k = 0; k < 2; k++) {
                        ros_says_alive(t, k, RUN_RUNNING, 0);
                        if (k > 0 || !silent)
                                sfi_says_alive(t, k, RUN_RUNNING, 0);
                }
                dfm_says_with(t, false);
        }
}

/* After this, the only reason is `text`. */
static void assert_reason_after(bool with_events, enum fate fate, const char *text)
{
        struct dfm_config config = dfm_standard();
        _cleanup_(dfm_driver_fini) struct dfm_driver t;

        config.node_timeout_ns = NS_PER_S;
        config.events = 1;
        name_nodes(&config);
        dfm_driver_start(&t, &config);
        if (with_events)
                sfi0_takes(&t, 1);
        if (fate != REPLACED_AT_ONCE)
                pass_tenths(&t, 30, true);
        if (fate >= REPLACED)
                t.sfis[0] = (struct played_sfi){.incarnation = 2};
        if (fate != SILENT)
                pass_tenths(&t, 10, false);
        sfi_grants(&t, 1, 1);
        dfm_says_with(&t, false);
        sfi_acks(&t, 1, 1);
        sfi_ends(&t, 1, 0, EVENT_COMPLETE, 0);
        dfm_says_with(&t, false);
        assert_int_equal(dfm_state(t.dfm), RUN_ENDED);
        assert_int_equal(dfm_counts(t.dfm)->complete, 1);
        assert_reason(t.dfm, text);
}

/* It may have built what was then assigned to another one. */
TEST(an_sfi_that_fell_silent_with_events_is_a_reason)
{
        assert_reason_after(
                true, SILENT,
                "sfi1 fell silent and did not return: it may have built events that other SFIs built too");
        assert_reason_after(true, RETURNED, NULL);
        assert_reason_after(false, SILENT, NULL);
}

/* It may have built them before it died. */
REASONS_TEST(lost_events_may_be_in_the_files_of_a_silent_sfi, dfm_driver_start, c.node_timeout_ns = NS_PER_S,
             c.reassign_max = 0)
{
        scenario.sfi.output = OUTPUT_FILE;
        sfi0_takes(t, 1);
        pass_tenths(t, 30, true);
        find_reasons(t->dfm);
        assert_string_equal(r.text[0], "sfi1 fell silent and did not return: its files may lack an end, or "
                                       "hold events that other SFIs built too, or that count as lost");
        assert_string_equal(r.text[2], "lost events: 1 of an SFI that left, fell silent or restarted (sfi1)");
}

/* The new process knows nothing of what the previous one built. */
TEST(an_sfi_that_restarted_with_events_is_a_reason)
{
        for (enum fate fate = REPLACED; fate <= REPLACED_AT_ONCE; fate++) {
                assert_reason_after(true, fate,
                                    "sfi1 was restarted with open events: its earlier process may have built "
                                    "events that other SFIs built too");
                assert_reason_after(false, fate, NULL);
        }
}

/* All its events ended: only its farewell was lost. */
REASONS_TEST(an_sfi_that_finished_its_events_may_fall_silent, dfm_driver_start, c.node_timeout_ns = NS_PER_S)
{
        struct finished_entry writing = {.event = 0, .end = UPDATE_WRITING};

        sfi0_takes(t, 1);
        assert_true(sfi_says_update(t, 0, t->sfis[0].finished++, 1, &writing));
        sfi_ends(t, 0, 0, EVENT_COMPLETE, 0);
        pass_tenths(t, 30, true);
        assert_false(dfm_view(t->dfm, ROLE_SFI, 0).live);
        assert_reason(t->dfm, NULL);
}

/* The event went to another SFI before the silence was noticed, so none is open on it any more. */
REASONS_TEST(an_sfi_whose_event_timed_out_is_a_reason, dfm_driver_start, c.node_timeout_ns = 2 * NS_PER_S,
             c.event_timeout_ns = 3 * NS_PER_S / 2, c.events = 1)
{
        sfi0_takes(t, 1);
        sfi_grants(t, 1, 1);
        pass_tenths(t, 20, true);
        assert_int_equal(dfm_counts(t->dfm)->reassigned, 1);
        sfi_acks(t, 1, 1);
        pass_tenths(t, 5, true);
        assert_false(dfm_view(t->dfm, ROLE_SFI, 0).live);
        sfi_ends(t, 1, 0, EVENT_COMPLETE, 0);
        dfm_says_with(t, false);
        assert_int_equal(dfm_counts(t->dfm)->complete, 1);
        find_reasons(t->dfm);
        assert_int_equal(r.n, 1);
}

static const struct ros_rule boards[] = {{.frames = true}, {.frames = true}};
static const struct ros_rule first_is_optional[] = {{.frames = true, .optional = true}, {.frames = true}};
static const struct ros_rule patterns[] = {{}, {}};

/* ROS 0 dies, returns as another process or not, and the run ends. The only reason is `text`. */
static void assert_ros_reason(const struct ros_rule *rules, bool dies, bool returns, uint16_t flags,
                              const char *text)
{
        struct dfm_config config = dfm_standard();
        _cleanup_(dfm_driver_fini) struct dfm_driver t;

        config.ros_rules = rules;
        config.events = 1;
        config.node_timeout_ns = NS_PER_S;
        config.leave_timeout_ns = 10 * NS_PER_S;
        name_nodes(&config);
        dfm_driver_start(&t, &config);
        if (returns) {
                dfm_pass_ns(&t, NS_PER_S);
                driver_join(&t, ROLE_ROS, 0, 2);
                t.message.alive.incarnation = 2;
                driver_say(&t, ROLE_ROS, 0, MESSAGE_ALIVE, 0);
        }
        sfi0_takes(&t, 1);
        sfi_ends(&t, 0, 0, EVENT_COMPLETE, 0);
        dfm_says_with(&t, false);
        assert_int_equal(dfm_state(t.dfm), RUN_ENDED);
        ros_says_alive(&t, 1, RUN_ENDED, 0);
        sfi_says_alive(&t, 0, RUN_ENDED, 0);
        sfi_says_alive(&t, 1, RUN_ENDED, 0);
        t.message.alive.incarnation = returns ? 2 : 1;
        t.message.alive.flags = flags;
        if (!dies)
                driver_say(&t, ROLE_ROS, 0, MESSAGE_ALIVE, t.ros_alive_next[0]++ + 1);
        for (int i = 0; i < 30 && !dfm_is_done(t.dfm); i++) {
                dfm_pass_ns(&t, NS_PER_S / 10);
                dfm_says_with(&t, true);
        }
        assert_true(dfm_is_done(t.dfm));
        assert_reason(t.dfm, text);
}

/* Only a process knows which frames it read and used. */
TEST(a_ros_that_restarts_or_does_not_report_is_a_reason)
{
        assert_ros_reason(boards, false, false, 0, NULL);
        assert_ros_reason(boards, false, true, 0,
                          "ros1 restarted in the run: frames that the earlier process had, or did not read, "
                          "may be in no account");
        assert_ros_reason(
                boards, true, false, 0,
                "ros1 did not report the end of the run: frames of the front-end may be in no account");
        for (int k = 0; k < 2; k++) {
                assert_ros_reason(k ? patterns : first_is_optional, k, !k, ALIVE_SHORT, NULL);
        }
}

TEST(frames_in_no_event_are_a_reason)
{
        assert_ros_reason(boards, false, false, ALIVE_SHORT,
                          "ros1 reported frames of the front-end that are lost, or in no event: the ROS's "
                          "own report says why");
}

/* Of three ROSs, the first one has wrong numbers, and the others counted different numbers of frames. */
REASONS_TEST(wrong_numbers_hide_no_different_counts, dfm_driver_start, c.n_ros = 3)
{
        static const char *const texts[] = {
                "the ROSs counted different numbers of them",
                "frames may be in events of other triggers, by their numbers or times, on ros1"};

        scenario.nodes[1].board.number.bits = 32;
        for (uint16_t i = 0; i < 3; i++)
                ros_reports(t, i, .flags = i == 0 ? ALIVE_UNRELIABLE : ALIVE_COUNTS | ALIVE_QUIET,
                            .frames = 5 + i);
        dfm_stop(t->dfm, t->now_ns);
        for (size_t k = 0; k < ARRAY_SIZE(texts); k++) {
                size_t found = 0;

                find_reasons(t->dfm);
                for (size_t i = 0; i < r.n; i++)
                        found += strstr(r.text[i], texts[k]) != NULL;
                assert_int_equal(found, 1);
        }
}

/* The box has sent one trigger, and the boards more frames. */
DFM_TEST_AS(more_frames_than_triggers_are_a_reason, outside_standard(5),
            (name_nodes(&c), outside_begins(t, &c, 1)))
{
        for (uint16_t i = 0; i < 2; i++)
                ros_reports(t, i, .flags = ALIVE_COUNTS | (i == 0 ? ALIVE_QUIET : ALIVE_SURPLUS),
                            .frames = 89);
        sfi_ends(t, 0, 0, EVENT_COMPLETE, 0);
        dfm_stop(t->dfm, t->now_ns);
        dfm_says_with(t, true);
        assert_reason(t->dfm,
                      "the run is unreliable: ROSs counted more frames than there were triggers: "
                      "ros1 (88 more), ros2 (88 or more); if the board sent these before the run, later "
                      "frames are in events of other triggers");
}

/* Further reasons are only counted, and no reason is listed twice. */
TEST(reasons_are_bounded)
{
        r = (struct reasons){};
        for (int i = 0; i < REASONS_MAX + 10; i++)
                reasons_add(&r, "reason %d", i);
        reasons_add(&r, "reason %d", 3);
        assert_int_equal(r.n, REASONS_MAX + 10);
        assert_string_equal(r.text[REASONS_MAX - 1], "reason 31");
}
