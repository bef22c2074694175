/* The ends of SFI processes that another DFM inherits: those of a replaced process count, and those of one
 * without a record are reported. */
#include "../dfm_driver.h"

static struct dfm_processes *stored;

static int set_up(void **state)
{
        stored = calloc(1, sizeof *stored);
        return stored ? 0 : -1;
}

static int tear_down(void **state)
{
        free(stored);
        return 0;
}

static void store(struct dfm_driver *t)
{
        dfm_says_with(t, false);
        assert_true(dfm_processes_version(t->dfm) > 0);
        dfm_processes_fill(t->dfm, stored);
}

static void sfi_restarts(struct dfm_driver *t, uint16_t sfi, uint64_t incarnation)
{
        t->sfis[sfi] = (struct played_sfi){.incarnation = incarnation};
        sfi_says_alive(t, sfi, RUN_RUNNING, 0);
        dfm_says_with(t, false);
}

/* SFI 0 ends events 0 and 1, and the DFM stores its record of it. It then ends event 3; event 2 is open. */
static void begin_run(struct dfm_driver *t)
{
        struct dfm_config c = dfm_standard();

        c.push = false;
        c.event_timeout_ns = 100 * NS_PER_S;
        dfm_driver_start(t, &c);
        sfi0_takes(t, 4);
        sfi_ends(t, 0, 0, EVENT_COMPLETE, 0);
        sfi_ends(t, 0, 1, EVENT_PARTIAL, 1);
        store(t);
        sfi_ends(t, 0, 3, EVENT_COMPLETE, 0);
        dfm_says_with(t, false);
}

static void follows(struct dfm_driver *t, uint64_t dfm, enum node_role role, uint16_t index)
{
        node_follows(t, dfm, role, index, 0, 4);
        dfm_says_with(t, false);
}

static void reports(struct dfm_driver *t, uint16_t sfi, struct node_totals totals, uint64_t ended)
{
        sfi_reports(t, sfi, 0, 4, totals, 1, &(struct inventory_entry){.ended = ended});
        dfm_says_with(t, false);
}

/* The nodes join DFM `dfm` + 1, which has the record of `dfm`, and know that all events have ended. SFI 0
 * comes or not; the run continues. */
static void resume_ended(struct dfm_driver *t, uint64_t dfm, bool comes)
{
        struct dfm_config c = dfm_standard();

        c.push = false;
        c.cookie = TRACE_COOKIE + 1;
        c.incarnation = dfm + 1;
        c.previous_processes = stored;
        dfm_free(t->dfm);
        dfm_driver_init(t, &c);
        for (uint16_t i = 0; i < 4; i++) {
                if (i != 2 || comes)
                        node_follows(t, dfm, i < 2 ? ROLE_ROS : ROLE_SFI, i % 2, 4, 4);
        }
        dfm_says_with(t, false);
        reports(t, 1, (struct node_totals){}, 0);
        if (!comes)
                dfm_pass_ns(t, c.node_timeout_ns);
        dfm_says_with(t, false);
}

/* Event 1 is partial. */
static void sfi0_reports_all(struct dfm_driver *t)
{
        const struct node_totals totals = {.complete = 3, .partial = 1, .missing = 1, .payload_bytes = 300};

        sfi_reports(t, 0, 0, 4, totals, 1, &(struct inventory_entry){.ended = 0xf, .open = 2});
        dfm_says_with(t, false);
}

/* Another DFM begins with `processes`. The nodes followed `dfm`; SFI 0 is not there yet. */
static void resume(struct dfm_driver *t, const struct dfm_processes *processes, uint64_t dfm)
{
        struct dfm_config c = dfm_standard();

        c.push = false;
        c.cookie = TRACE_COOKIE + 1;
        c.incarnation = dfm + 1;
        c.event_timeout_ns = 100 * NS_PER_S;
        c.previous_processes = processes;
        dfm_free(t->dfm);
        dfm_driver_init(t, &c);
        follows(t, dfm, ROLE_ROS, 0);
        follows(t, dfm, ROLE_ROS, 1);
        follows(t, dfm, ROLE_SFI, 1);
        reports(t, 1, (struct node_totals){}, 0);
}

static void check(struct dfm_driver *t, uint64_t complete, uint64_t partial, uint64_t lost, uint32_t open)
{
        const struct dfm_counts *c = dfm_counts(t->dfm);

        assert_int_equal(dfm_state(t->dfm), RUN_RUNNING);
        assert_counts(c, complete, complete, partial, partial, lost, lost);
        assert_int_equal(dfm_open_events(t->dfm), open);
        assert_counts(c, triggers, complete + partial + lost + open, fragments_expected,
                      c->fragments_received + c->fragments_lost);
}

static bool is_unknown(const struct dfm_driver *t, uint16_t sfi)
{
        return dfm_view(t->dfm, ROLE_SFI, sfi).unknown;
}

DFM_TEST_AS(ends_of_a_replaced_process_count, dfm_standard(), begin_run(t))
{
        sfi_restarts(t, 0, 2);
        store(t);
        resume(t, stored, TRACE_DFM);
        t->sfis[0].incarnation = 2;
        follows(t, TRACE_DFM, ROLE_SFI, 0);
        reports(t, 0, (struct node_totals){}, 0);
        check(t, 2, 1, 0, 1); /* only event 2 is assigned again */
        assert_counts(dfm_counts(t->dfm), payload_bytes, 200, fragments_lost, 1);
        assert_false(is_unknown(t, 0) || is_unknown(t, 1));
        assert_true(dfm_view(t->dfm, ROLE_SFI, 0).replaced); /* it had event 2 */
        assert_int_equal(dfm_view(t->dfm, ROLE_SFI, 0).unclosed, 3);
        /* The next DFM has the same record. */
        sfi_restarts(t, 0, 3);
        store(t);
        resume(t, stored, TRACE_DFM + 1);
        t->sfis[0].incarnation = 3;
        follows(t, TRACE_DFM + 1, ROLE_SFI, 0);
        reports(t, 0, (struct node_totals){}, 0);
        check(t, 2, 1, 0, 1);
        assert_false(is_unknown(t, 0));
        assert_int_equal(dfm_view(t->dfm, ROLE_SFI, 0).unclosed, 3);
}

/* SFI 0 has ended all of its events, with or without closing its files. The next DFM must know, too. */
TEST(a_process_that_closed_its_files_is_known)
{
        for (unsigned left = 0; left <= 1; left++) {
                struct dfm_config c = dfm_standard();
                uint64_t unclosed = left ? 0 : 2;
                struct dfm_driver t;

                c.push = false;
                dfm_driver_start(&t, &c);
                sfi0_takes(&t, 2);
                sfi_ends(&t, 0, 0, EVENT_COMPLETE, 0);
                sfi_ends(&t, 0, 1, EVENT_PARTIAL, 1);
                assert_int_equal(dfm_view(t.dfm, ROLE_SFI, 0).left_open, 0);
                if (left)
                        sfi_says_alive(&t, 0, RUN_ENDED, 0);
                else
                        dfm_pass_ns(&t, c.node_timeout_ns + NS_PER_S);
                dfm_says_with(&t, false);
                assert_false(dfm_view(t.dfm, ROLE_SFI, 0).live);
                assert_int_equal(dfm_view(t.dfm, ROLE_SFI, 0).left_open, unclosed);
                store(&t);
                sfi_restarts(&t, 0, 2);
                assert_int_equal(dfm_view(t.dfm, ROLE_SFI, 0).unclosed, unclosed);
                assert_false(dfm_view(t.dfm, ROLE_SFI, 0).replaced);
                /* Another DFM learns of the process that replaced it. */
                resume(&t, stored, TRACE_DFM);
                sfi_restarts(&t, 0, 2);
                assert_int_equal(dfm_view(t.dfm, ROLE_SFI, 0).unclosed, unclosed);
                dfm_free(t.dfm);
        }
}

/* What was stored of it while it lived is the least that it ended. */
DFM_TEST_AS(a_process_replaced_without_a_dfm_is_named, dfm_standard(), begin_run(t))
{
        resume(t, stored, TRACE_DFM);
        sfi_restarts(t, 0, 2);
        check(t, 1, 1, 0, 2);
        assert_true(is_unknown(t, 0) && !is_unknown(t, 1));
        assert_true(dfm_view(t->dfm, ROLE_SFI, 0).replaced);
}

/* The process is alive, and reports itself what it has ended since. */
DFM_TEST_AS(a_process_that_is_left_counts_once, dfm_standard(), begin_run(t))
{
        resume(t, stored, TRACE_DFM);
        follows(t, TRACE_DFM, ROLE_SFI, 0);
        reports(t, 0, (struct node_totals){.complete = 2, .partial = 1, .missing = 1}, 0xb);
        check(t, 2, 1, 0, 1);
        assert_false(is_unknown(t, 0));
}

/* SFI 0 built events 2 and 3 after the record, and is away when the next DFM resumes the run, or the next
 * two. It comes while the last one resumes, or later. */
DFM_TEST_EACH_AS(what_an_absent_sfi_built_is_found_after_restarts, i, 4, dfm_standard(), begin_run(t))
{
        uint64_t dfm = TRACE_DFM;
        bool late = i % 2;

        sfi_ends(t, 0, 2, EVENT_COMPLETE, 0);
        dfm_says_with(t, false);
        for (int k = 0; k <= i / 2; k++) {
                resume_ended(t, dfm++, false);
                check(t, 1, 1, 2, 0);
                assert_true(is_unknown(t, 0));
                store(t);
        }
        resume_ended(t, dfm, !late);
        if (late) {
                check(t, 1, 1, 2, 0);
                node_follows(t, dfm, ROLE_SFI, 0, 4, 4);
                dfm_says_with(t, false);
        }
        sfi0_reports_all(t);
        check(t, 3, 1, 0, 0);
        assert_counts(dfm_counts(t->dfm), payload_bytes, 300, fragments_lost, 1, ended_again, 0);
        assert_false(is_unknown(t, 0) || dfm_run_view(t->dfm).has_guessed);
        store(t);
        assert_fields(stored, n_away, 0);
        assert_int_equal(stored->counted.unreported, 0);
}

/* The next DFM resumes the stopped run, with the record, and no node knows an ended event. */
static void resume_stopped(struct dfm_driver *t, struct dfm_config c)
{
        c.incarnation++;
        c.cookie++;
        c.previous_processes = stored;
        c.previous = (struct dfm_previous){.known = true, .cookie = TRACE_COOKIE, .stopped = true};
        dfm_free(t->dfm);
        dfm_driver_init(t, &c);
        for (uint16_t i = 0; i < 4; i++)
                node_follows(t, TRACE_DFM, i < 2 ? ROLE_ROS : ROLE_SFI, i % 2, 0, 4);
        dfm_says_with(t, false);
}

/* Event 2 was built, before the record or after it, so a board has read out its trigger: those of the events
 * before it were taken. */
DFM_TEST_EACH(a_trigger_that_was_taken_stays_so, recorded, 2, c.push = false, c.has_front_ends = true)
{
        sfi0_takes(t, 4);
        dfm_stop(t->dfm, t->now_ns);
        if (!recorded)
                store(t);
        sfi_ends(t, 0, 2, EVENT_COMPLETE, 0);
        if (recorded)
                store(t);
        resume_stopped(t, c);
        /* The SFI keeps only its newest ends. */
        sfi_reports_bits(t, 0, 4, 1, recorded ? 0 : 4, 0xb);
        sfi_reports_bits(t, 1, 4, 0, 0, 0);
        dfm_says_with(t, false);
        assert_int_equal(dfm_state(t->dfm), RUN_DRAINING);
        sfi_ends_unanswered(t, 0, 1);
        sfi_ends_unanswered(t, 0, 3);
        assert_counts(dfm_counts(t->dfm), complete, 1, lost, 1, not_taken, 1);
        t->config.run_is_free = true; /* the previous DFM assigned events */
}

/* Events 1 and 3 were not taken when the DFM ended. Event 2 is built while no DFM runs, or later. Then the
 * record does not say which of them are older. */
DFM_TEST_EACH(a_recorded_trigger_counts_once_a_newer_one_is_built, later, 2, c.push = false,
              c.has_front_ends = true)
{
        sfi0_takes(t, 4);
        dfm_stop(t->dfm, t->now_ns);
        sfi_ends(t, 0, 0, EVENT_COMPLETE, 0);
        sfi_ends_unanswered(t, 0, 1);
        sfi_ends_unanswered(t, 0, 3);
        assert_counts(dfm_counts(t->dfm), complete, 1, lost, 0, not_taken, 2);
        store(t);
        resume_stopped(t, c);
        sfi_reports_bits(t, 0, 4, later ? 1 : 2, later ? 0x1 : 0x5, later ? 0x4 : 0);
        sfi_reports_bits(t, 1, 4, 0, 0, 0);
        dfm_says_with(t, false);
        if (later) {
                assert_counts(dfm_counts(t->dfm), complete, 1, lost, 0, not_taken, 2);
                sfi_ends(t, 0, 2, EVENT_COMPLETE, 0);
        }
        assert_counts(dfm_counts(t->dfm), complete, 2, lost, 2, not_taken, 0, triggers, 4);
        t->config.run_is_free = true; /* the previous DFM assigned events */
}

/* Without a record, of another run, or of a DFM that was not the last one. */
DFM_TEST_EACH_AS(without_the_last_record_the_sfi_is_named, i, 3, dfm_standard(), begin_run(t))
{
        sfi_restarts(t, 0, 2);
        store(t);
        stored->cookie += i == 1;
        resume(t, i == 0 ? NULL : stored, i == 2 ? TRACE_DFM + 9 : TRACE_DFM);
        sfi_restarts(t, 0, 3);
        assert_int_equal(dfm_state(t->dfm), RUN_RUNNING);
        assert_true(is_unknown(t, 0));
        assert_false(is_unknown(t, 1));
}

/* It may have replaced a process, unlike the SFI that was there from the beginning. */
DFM_TEST_AS(without_a_record_an_sfi_that_came_late_is_named, dfm_standard(), begin_run(t))
{
        resume(t, NULL, TRACE_DFM);
        t->sfis[0].incarnation = 2;
        follows(t, TRACE_DFM, ROLE_SFI, 0);
        reports(t, 0, (struct node_totals){}, 0);
        assert_int_equal(dfm_state(t->dfm), RUN_RUNNING);
        assert_true(is_unknown(t, 0) && !is_unknown(t, 1));
        /* The next DFM knows it from this one. */
        store(t);
        resume(t, stored, TRACE_DFM + 1);
        t->sfis[0].incarnation = 2;
        follows(t, TRACE_DFM + 1, ROLE_SFI, 0);
        reports(t, 0, (struct node_totals){}, 0);
        assert_true(is_unknown(t, 0) && !is_unknown(t, 1));
}

/* The file of a run without replacements says that nothing is missing. */
DFM_TEST_AS(an_sfi_that_never_came_is_not_named, dfm_standard(), begin_run(t))
{
        store(t);
        stored->sfis[0] = (struct dfm_process){};
        resume(t, stored, TRACE_DFM);
        sfi_restarts(t, 0, 3);
        assert_int_equal(dfm_state(t->dfm), RUN_RUNNING);
        assert_false(is_unknown(t, 0) || is_unknown(t, 1));
}

int main(int argc, char **argv)
{
        return test_run(argc, argv, set_up, tear_down);
}
