/* Tests the text of metrics: both formats, the names that follow from the table of counters, histograms, and
 * what each role has. */
#include "../test.h"

#include "metrics_sample.h"

#include "node/metrics/openmetrics.h"
#include "node/metrics/counters.h"

static char *text;
static size_t text_bytes;

static void write_view(bool open_metrics)
{
        FILE *f;

        free(text);
        f = open_memstream(&text, &text_bytes);
        assert_non_null(f);
        metrics_page_write(&v, f, open_metrics);
        assert_int_equal(fclose(f), 0);
}

static void assert_line(const char *line)
{
        const char *at = strstr(text, line);

        while (at && !((at == text || at[-1] == '\n') && at[strlen(line)] == '\n'))
                at = strstr(at + 1, line);
        if (!at)
                fail_msg("missing \"%s\" in\n%s", line, text);
}

static int end(void **state)
{
        free(take_ptr(text));
        return view_end(state);
}

TEST_WITH(counters_have_names_by_rule, NULL, end)
{
        view_of("dfm");
        v.counters[COUNTER_events_complete] = UINT64_MAX;
        v.counters[COUNTER_payload_bytes] = 3;
        v.counters[COUNTER_busy_ns] = 12000000034;
        v.counters[COUNTER_bytes_sent] = 4;
        v.counters[COUNTER_packets_malformed] = 5;
        shared.run = 7;
        write_view(true);
        assert_line("# TYPE evb_events_complete counter");
        assert_line("# HELP evb_events_complete Events built with all fragments.");
        assert_line("evb_events_complete_total{node=\"dfm\",role=\"dfm\"} 18446744073709551615");
        assert_line("# UNIT evb_payload_bytes bytes");
        assert_line("evb_payload_bytes_total{node=\"dfm\",role=\"dfm\"} 3");
        assert_line("# UNIT evb_busy_seconds seconds");
        assert_line("evb_busy_seconds_total{node=\"dfm\",role=\"dfm\"} 12.000000034");
        assert_line("evb_sent_bytes_total{node=\"dfm\",role=\"dfm\"} 4");
        assert_line("evb_packets_discarded_total{node=\"dfm\",role=\"dfm\",reason=\"malformed\"} 5");
        assert_line("evb_packets_discarded_total{node=\"dfm\",role=\"dfm\",reason=\"foreign\"} 0");
        assert_line("evb_node_info{node=\"dfm\",role=\"dfm\",run=\"7\",mode=\"push\",transport=\"udp\"} 1");
        assert_line("evb_build_info{node=\"dfm\",role=\"dfm\",version=\"1.2.3\"} 1");
        assert_line("evb_stalled{node=\"dfm\",role=\"dfm\"} 0");
        assert_line("evb_node_state{node=\"dfm\",role=\"dfm\",state=\"running\"} 1");
        assert_line("evb_node_state{node=\"dfm\",role=\"dfm\",state=\"ended\"} 0");
        assert_line("process_open_fds{node=\"dfm\",role=\"dfm\"} 7");
        assert_null(strstr(text, "process_resident_memory_bytes"));
        assert_string_equal(text + text_bytes - 6, "# EOF\n");
}

/* Events that counted as lost were only late: the status of the run has the new count, the metrics the
 * highest. */
TEST(counters_of_a_process_never_decrease)
{
        static const struct {
                bool begins_run;
                uint64_t lost, process;
        } looks[] = {{false, 10, 10}, {false, 4, 10}, {false, 9, 10},
                     {true, 0, 10},   {false, 3, 13}, {false, 0, 13}};
        static struct node_stats stats;
        uint64_t before[COUNTERS] = {}, process[COUNTERS] = {}, run[COUNTERS];

        for (size_t i = 0; i < ARRAY_SIZE(looks); i++) {
                if (looks[i].begins_run)
                        memcpy(before, process, sizeof before);
                stats_set(&stats.events_lost, looks[i].lost);
                counters_read(&stats, false, before, run, process);
                assert_int_equal(run[COUNTER_events_lost], looks[i].lost);
                assert_int_equal(process[COUNTER_events_lost], looks[i].process);
        }
}

/* In each of two runs, frames wait for their events, and 2 stay without one. */
TEST(frames_are_left_over_at_the_end_only)
{
        static struct node_stats stats;
        uint64_t before[COUNTERS] = {}, process[COUNTERS] = {}, run[COUNTERS];

        for (uint64_t n = 0; n < 2; n++) {
                stats_set(&stats.front_end_left_over, 30);
                counters_read(&stats, false, before, run, process);
                assert_int_equal(run[COUNTER_front_end_left_over], 0);
                assert_int_equal(process[COUNTER_front_end_left_over], 2 * n);
                stats_set(&stats.front_end_left_over, 2);
                counters_read(&stats, true, before, run, process);
                assert_int_equal(run[COUNTER_front_end_left_over], 2);
                assert_int_equal(process[COUNTER_front_end_left_over], 2 * (n + 1));
                memcpy(before, process, sizeof before);
                stats.state = NODE_ENDED;
                stats_begin_run(&stats);
                assert_int_equal(stats.state, NODE_STARTING);
        }
}

TEST_WITH(the_older_format_differs_in_names_of_families, NULL, end)
{
        view_of("dfm");
        write_view(false);
        assert_line("# TYPE evb_events_complete_total counter");
        assert_line("# HELP evb_events_complete_total Events built with all fragments.");
        assert_line("# TYPE evb_build_info gauge");
        assert_null(strstr(text, "# UNIT"));
        assert_null(strstr(text, "# EOF"));
}

/* Each value appears once: a table whose rows miss or repeat a counter is wrong. */
TEST_WITH(every_counter_appears_once, NULL, end)
{
        char value[32];

        view_of("ros1");
        for (unsigned i = 0; i < COUNTERS; i++)
                v.counters[i] = 1000000000 * UINT64_C(770001) + i * UINT64_C(1000000000);
        write_view(true);
        for (unsigned i = 0; i < COUNTERS; i++) {
                const char *whole, *time;

                snprintf(value, sizeof value, " %u000000000\n", 770001 + i);
                whole = strstr(text, value);
                if (whole)
                        assert_null(strstr(whole + 1, value));
                snprintf(value, sizeof value, " %u.000000000\n", 770001 + i);
                time = strstr(text, value);
                if (!whole == !time)
                        fail_msg("counter %u is not written once:\n%s", i, text);
        }
}

TEST(each_family_has_one_head_and_adjacent_samples)
{
        static const char *const nodes[] = {"dfm", "ros1", "sfi1"};

        for (size_t i = 0; i < ARRAY_SIZE(nodes); i++) {
                view_of(nodes[i]);
                v.disk = (struct disk_space){true, 5, 10};
                for (size_t k = 0; k < shared.n_peers; k++)
                        shared.shapings[k].known = v.scenario->nodes[k].role == ROLE_SFI;
                write_view(true);
                for (const char *at = text; (at = strstr(at, "# TYPE ")); at++) {
                        char name[128];
                        int n = (int)strcspn(at + 7, " ");

                        snprintf(name, sizeof name, "# TYPE %.*s ", n, at + 7);
                        assert_null(strstr(at + 1, name));
                        /* Head and samples up to the next head have this name. */
                        for (const char *line = strchr(at, '\n') + 1; *line; line = strchr(line, '\n') + 1) {
                                if (strncmp(line, "# TYPE ", 7) == 0 || strncmp(line, "# EOF", 5) == 0)
                                        break;
                                assert_int_equal(strncmp(*line == '#' ? line + 7 : line, at + 7, (size_t)n),
                                                 0);
                        }
                }
                view_end(NULL);
        }
}

TEST_WITH(histograms_are_cumulative, NULL, end)
{
        struct metrics_histogram folded;
        struct histogram h;

        view_of("dfm");
        histogram_init(&h);
        histogram_add(&h, 10 * NS_PER_US, 2);
        histogram_add(&h, 3 * NS_PER_MS, 5);
        histogram_add(&h, 100 * NS_PER_S, 1);
        metrics_fold(&folded, &h);
        shared.event_latency = folded;
        write_view(true);
#define COMMON "{node=\"dfm\",role=\"dfm\""
        assert_line("# TYPE evb_event_latency_seconds histogram");
        assert_line("evb_event_latency_seconds_bucket" COMMON ",le=\"0.00005\"} 2");
        assert_line("evb_event_latency_seconds_bucket" COMMON ",le=\"0.0025\"} 2");
        assert_line("evb_event_latency_seconds_bucket" COMMON ",le=\"0.005\"} 7");
        assert_line("evb_event_latency_seconds_bucket" COMMON ",le=\"60.0\"} 7");
        assert_line("evb_event_latency_seconds_bucket" COMMON ",le=\"+Inf\"} 8");
        assert_line("evb_event_latency_seconds_count" COMMON "} 8");
        assert_line("evb_event_latency_seconds_sum" COMMON "} 100.015020000");
}

TEST_WITH(names_are_escaped, NULL, end)
{
        view_of("dfm");
        v.version = "a\"b\\c\nd";
        write_view(true);
        assert_line("evb_build_info{node=\"dfm\",role=\"dfm\",version=\"a\\\"b\\\\c\\nd\"} 1");
}

TEST_WITH(roles_have_metrics_of_their_peers, NULL, end)
{
        view_of("ros1");
        for (size_t i = 0; i < shared.n_peers; i++) {
                if (v.scenario->nodes[i].role != ROLE_SFI)
                        continue;
                shared.peers[i].bytes = 11;
                shared.shapings[i] = (struct metrics_shaped){.known = true, .rate_bps = 20000004, .drops = 2};
        }
        write_view(true);
        assert_line("evb_pair_sent_bytes_total{node=\"ros1\",role=\"ros\",sfi=\"sfi1\"} 11");
        assert_line("evb_shaping_packets_dropped_total{node=\"ros1\",role=\"ros\",sfi=\"sfi1\"} 2");
        assert_line("evb_shaping_rate_bytes_per_second{node=\"ros1\",role=\"ros\",sfi=\"sfi1\"} 2500000.5");
        assert_line("evb_shaping_installed{node=\"ros1\",role=\"ros\"} 0");
        assert_null(strstr(text, "evb_output_free_bytes"));
        assert_null(strstr(text, "evb_event_latency"));
}

TEST_WITH(run_control_has_one_state_or_none, NULL, end)
{
        view_of("dfm");
        write_view(true);
        assert_line("evb_run_control_state{node=\"dfm\",role=\"dfm\",state=\"paused\"} 0");
        assert_line("evb_run_control_state{node=\"dfm\",role=\"dfm\",state=\"error\"} 0");
        v.control_state = "paused";
        write_view(true);
        assert_line("evb_run_control_state{node=\"dfm\",role=\"dfm\",state=\"paused\"} 1");
        assert_line("evb_run_control_state{node=\"dfm\",role=\"dfm\",state=\"running\"} 0");
}

TEST_WITH(a_fault_has_the_node_and_the_cause_or_no_labels, NULL, end)
{
        view_of("dfm");
        write_view(true);
        assert_line("evb_fault{node=\"dfm\",role=\"dfm\"} 0");
        v.fault = (struct run_fault){.node = "ros1", .state = "cut off", .cause = "it \"x\""};
        write_view(true);
        assert_line("evb_fault{node=\"dfm\",role=\"dfm\",peer=\"ros1\",state=\"cut off\",cause=\"it "
                    "\\\"x\\\"\"} 1");
}

/* After a repair, the kernel counts from zero. */
TEST_WITH(shaping_counters_never_go_back, NULL, end)
{
        struct tc_row row = {.counters = {.known = true, .bytes = 100, .drops = 3, .backlog_bytes = 9}};
        struct tc_status status = {.rows = &row, .n = 1};
        const struct scenario_node *sfi;
        struct metrics_shaped *to;

        view_of("ros1");
        sfi = scenario_node_of(v.scenario, ROLE_SFI, 0);
        to = &shared.shapings[sfi - v.scenario->nodes];

        assert_true(tc_address_parse(&row.address, sfi->address));
        metrics_set_shaping(&shared, v.scenario, &status);
        assert_true(to->known);
        assert_int_equal(to->bytes, 100);
        row.counters.bytes = 40;
        row.counters.drops = 4;
        metrics_set_shaping(&shared, v.scenario, &status);
        assert_fields(to, bytes, 140, drops, 4, backlog_bytes, 9);
        status.n = 0;
        metrics_set_shaping(&shared, v.scenario, &status);
        assert_fields(to, bytes, 140, backlog_bytes, 0);
}

static void rates_at(struct metrics_rates *r, struct metrics_sample now)
{
        static struct metrics_sample last;

        metrics_update_rates(r, &last, &now);
}

TEST(rates_are_of_a_second_or_more)
{
        struct metrics_rates rates = {};

        rates_at(&rates, (struct metrics_sample){.now_ns = NS_PER_S, .events = 1000});
        assert_true(rates.events_hz == 0);
        rates_at(&rates, (struct metrics_sample){.now_ns = 3 * NS_PER_S / 2, .events = 3000});
        assert_true(rates.events_hz == 0);
        rates_at(&rates, (struct metrics_sample){.now_ns = 3 * NS_PER_S, .events = 5000, .bytes = 100});
        assert_true(rates.events_hz == 2000 && rates.bytes_per_second == 50 && rates.fragments_hz == 0);
        rates_at(&rates, (struct metrics_sample){5 * NS_PER_S, .events = 5000, .bytes = 100, .triggers = 8,
                                                 .busy_ns = NS_PER_S});
        assert_true(rates.events_hz == 0 && rates.bytes_per_second == 0);
        assert_true(rates.triggers_hz == 4 && rates.busy_share == 0.5);
        rates_at(&rates, (struct metrics_sample){.now_ns = 6 * NS_PER_S, .busy_ns = 5 * NS_PER_S});
        assert_true(rates.busy_share == 1);
        /* Another run begins, and all counts with it. */
        rates_at(&rates, (struct metrics_sample){.now_ns = 7 * NS_PER_S, .bytes = 30});
        assert_true(rates.events_hz == 0 && rates.triggers_hz == 0 && rates.busy_share == 0);
        assert_true(rates.bytes_per_second == 30);
}

/* A DFM that waits for its next run takes no rates, so those of the last run must go with it. */
TEST(rates_end_with_their_run)
{
        _cleanup_(metrics_state_fini) struct metrics_state s;

        assert_int_equal(metrics_state_init(&s, 1), 0);
        s.rates = (struct metrics_rates){.triggers_hz = 1000, .events_hz = 1000, .busy_share = 0.5};
        metrics_state_begin_run(&s);
        assert_true(s.rates.triggers_hz == 0 && s.rates.events_hz == 0 && s.rates.busy_share == 0);
}

static const struct {
        const char *accept;
        bool open_metrics;
} cases[] = {
        {"", false},
        {"*/*", false},
        {"text/plain", false},
        {"text/html,*/*;q=0.8", false},
        {"application/openmetrics-text", true},
        {"application/openmetrics-text; version=1.0.0; charset=utf-8", true},
        {"Application/OpenMetrics-Text;Version=1.0.0", true},
        {"application/openmetrics-text;version=0.0.1", false},
        {"application/openmetrics-text;q=0", false},
        {"application/openmetrics-text;q=0.2,text/plain", false},
        {"application/openmetrics-text-more", false},
        {"application/openmetrics-text;version=1.0.0,application/"
         "openmetrics-text;version=0.0.1;q=0.75,"
         "text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
         true},
        {",,;;q=,", false},
        {"application/openmetrics-text;q=nan", false},
};

TEST_EACH(clients_choose_the_format, i, ARRAY_SIZE(cases))
{
        if (metrics_wants_open_metrics(cases[i].accept) != cases[i].open_metrics)
                fail_msg("Accept: %s", cases[i].accept);
}
