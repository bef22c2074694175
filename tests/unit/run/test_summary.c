/* The accounts of a run's report, from the counters of its nodes. */
#include "../json_assert.h"

#include <signal.h>
#include <stdio.h>

#include "run/summary.h"

#define EVENTS 10

struct sample {
        struct scenario *scenario;
        struct node_stats *stats[3]; /* DFM, ROS, SFI */
        struct child children[3];
};

/* A run of one ROS and one SFI that built all events. */
static void begin(struct sample *s)
{
        static const enum node_role roles[] = {ROLE_DFM, ROLE_ROS, ROLE_SFI};

        s->scenario = calloc(1, sizeof *s->scenario);
        assert_non_null(s->scenario);
        s->scenario->ros.count = s->scenario->sfi.count = 1;
        for (size_t i = 0; i < ARRAY_SIZE(roles); i++) {
                s->scenario->nodes[i].role = roles[i];
                snprintf(s->scenario->nodes[i].name, sizeof s->scenario->nodes[i].name, "n%zu", i);
                s->stats[i] = calloc(1, sizeof *s->stats[i]);
                assert_non_null(s->stats[i]);
                atomic_store(&s->stats[i]->state, NODE_ENDED);
                s->children[i] = (struct child){.node = &s->scenario->nodes[i], .stats = s->stats[i]};
        }
        s->scenario->n_nodes = ARRAY_SIZE(roles);
        stats_add(&s->stats[0]->triggers, EVENTS);
        stats_add(&s->stats[0]->events_assigned, EVENTS);
        stats_add(&s->stats[0]->events_complete, EVENTS);
        stats_add(&s->stats[0]->fragments_expected, EVENTS);
        stats_add(&s->stats[0]->fragments_received, EVENTS);
        stats_add(&s->stats[2]->events_complete, EVENTS);
}

/* Returns the report, and the exit status. */
static json_t *report(struct sample *s, int *ret_status)
{
        struct launch_options options = {.quiet = true};
        struct launch l = {
                .options = &options, .scenario = s->scenario, .children = s->children, .n_children = 3};
        char *text = NULL;
        size_t bytes = 0;
        json_t *o;

        options.json = open_memstream(&text, &bytes);
        assert_non_null(options.json);
        *ret_status = summary_write(&l);
        fclose(options.json);
        o = json_loads(text, 0, NULL);
        assert_non_null(o);
        free(text);
        for (size_t i = 0; i < ARRAY_SIZE(s->stats); i++)
                free(s->stats[i]);
        free(s->scenario);
        return o;
}

static bool has_reason(json_t *o, const char *text)
{
        json_t *reason;
        bool has = false;
        size_t i;

        json_array_foreach(json_object_get(o, "reasons"), i, reason) has |=
                strstr(json_string_value(reason), text) != NULL;
        return has;
}

/* The SFI built `built` events of those that the DFM counts as complete; `reassigned` had been taken back. */
static void check_balance(uint64_t built, uint64_t reassigned, bool balanced)
{
        struct sample s;
        int status;

        begin(&s);
        stats_add(&s.stats[2]->events_complete, built - EVENTS);
        stats_add(&s.stats[0]->events_reassigned, reassigned);
        json_auto_t *o = report(&s, &status);

        assert_int_equal(json_is_true(json_object_get(o, "balanced")), balanced);
        assert_int_equal(status, built != EVENTS);
        assert_int_equal(json_array_size(json_object_get(o, "reasons")) > 0, built != EVENTS);
        assert_int_equal(has_reason(o, " more events than the DFM counts"), built > EVENTS);
}

TEST(the_dfm_counts_what_the_sfis_built)
{
        check_balance(EVENTS, 0, true);
        check_balance(EVENTS - 1, 0, false);
        check_balance(EVENTS + 1, 0, false);
        check_balance(EVENTS + 1, 1, true);
        check_balance(EVENTS + 2, 1, false);
}

/* Its counters are as old as their last copy. */
TEST(a_dfm_that_died_makes_no_balance)
{
        struct sample s;
        int status;

        begin(&s);
        atomic_store(&s.stats[0]->state, NODE_RUNNING);
        s.children[0].status = SIGKILL;
        stats_add(&s.stats[0]->triggers, 1);
        stats_add(&s.stats[2]->events_complete, 3);
        json_t *o = report(&s, &status), *reasons = json_object_get(o, "reasons");

        assert_int_equal(status, 1);
        assert_true(json_is_false(json_object_get(o, "balanced")));
        assert_int_equal(json_array_size(reasons), 3);
        assert_string_equal(json_string_value(json_array_get(reasons, 1)),
                            "the accounts do not balance: n0 died, and had last counted 11 triggers and 10 "
                            "complete or partial events: the rest counts as lost, but the SFIs built 13");
        assert_string_equal(json_string_value(json_array_get(reasons, 2)),
                            "n0 was killed by signal 9 (Killed)");
        json_decref(o);
}

TEST(a_run_names_whose_fragments_are_missing)
{
        static char report_of_sfi[] = "{'name': 'n2', 'missing_fragments': {'n1': 7}}";
        struct sample s;
        int status;

        begin(&s);
        stats_add(&s.stats[0]->triggers, 7);
        stats_add(&s.stats[0]->events_partial, 7);
        stats_add(&s.stats[2]->events_partial, 7);
        stats_add(&s.stats[0]->fragments_expected, 7);
        stats_add(&s.stats[0]->fragments_lost, 7);
        for (char *c = report_of_sfi; *c; c++)
                *c = *c == '\'' ? '"' : *c;
        s.children[2].report = report_of_sfi;
        s.children[2].report_bytes = strlen(report_of_sfi);
        json_auto_t *o = report(&s, &status);

        assert_json(o, "{'reasons': ['7 of 17 events are partial', 'partial: n1 7']}");
}

/* Without files, an SFI that was killed has lost none. */
TEST_EACH(a_run_states_what_files_may_lack, i, 2)
{
        static char report_of_dfm[] = "{'name': 'n0', 'reasons': ['n2 ended without closing its files: up to "
                                      "3 events may be in no file', 'n1 did not report the end of the run']}";
        struct sample s;
        int status;

        begin(&s);
        s.scenario->sfi.output = i == 0 ? OUTPUT_FILE : OUTPUT_NULL;
        stats_add(&s.stats[0]->events_lost, 1);
        stats_add(&s.stats[0]->triggers, 1);
        for (char *c = report_of_dfm; *c; c++)
                *c = *c == '\'' ? '"' : *c;
        s.children[0].report = report_of_dfm;
        s.children[0].report_bytes = strlen(report_of_dfm);
        s.children[0].status = 1 << 8; /* exited with 1 */
        s.children[2].status = SIGKILL;
        json_auto_t *o = report(&s, &status);

        assert_int_equal(status, 1);
        assert_true(has_reason(o, "n2 was killed by signal 9"));
        assert_int_equal(has_reason(o, "up to 3 events may be in no file"), i == 0);
        assert_false(has_reason(o, "did not report the end"));
}

TEST(failed_packets_are_reported_and_not_lost_in_the_network)
{
        struct sample s;
        int status;

        begin(&s);
        stats_add(&s.stats[1]->packets_send_failed, 7);
        stats_add(&s.stats[2]->packets_lost, 9);
        json_auto_t *o = report(&s, &status);
        const json_t *ros = json_array_get(json_object_get(o, "nodes"), 1);

        assert_json(ros, "{'packets_send_failed': 7}");
        assert_json(json_object_get(o, "drops"), "{'network_packets': 2}");
}

/* 10 events of 1000 bytes: triggers from 1 s, complete from 2 s to 3 s. */
TEST(throughput_leaves_the_first_event_out)
{
        struct sample s;
        int status;

        begin(&s);
        stats_add(&s.stats[0]->payload_bytes, EVENTS * 1000);
        stats_set(&s.stats[0]->first_trigger_ns, NS_PER_S);
        stats_set(&s.stats[0]->first_complete_ns, 2 * NS_PER_S);
        stats_set(&s.stats[0]->last_complete_ns, 3 * NS_PER_S);
        json_auto_t *o = report(&s, &status);

        assert_float_equal(json_number_value(json_object_get(o, "event_rate_hz")), EVENTS - 1, 1e-6);
        assert_float_equal(json_number_value(json_object_get(o, "throughput_bytes_per_second")),
                           (EVENTS - 1) * 1000, 1e-3);
        assert_float_equal(json_number_value(json_object_get(o, "building_seconds")), 2, 1e-9);
}
