/* Tests what evb top makes of the answers of nodes: figures, states, growth, order, and lines of text. */
#include "top_sample.h"

#include <math.h>

#include "cmd/top/top.h"

static double figure(size_t i, enum top_figure figure)
{
        return t.model.nodes[i].figures[figure];
}

TEST_WITH(figures_come_from_the_states, NULL, sample_close)
{
        sample_open(2, 2);
        sample_answer(
                0, "'run':7,'rates':{'triggers_hz':5,'events_hz':4,'bytes_per_second':100,'busy_share':0.25},"
                   "'waiting_triggers':6,'open_events':3,'counts':{'events_complete':9,'events_partial':1,"
                   "'events_lost':2,'events_rejected':0},'latency_us':{'p50':1.5,'p99':20},"
                   "'peers':[{'node':'sfi1','free_credits':10},{'node':'sfi2','free_credits':20},"
                   "{'node':'ros1','free_credits':null}]");
        sample_answer(1, "'rates':{'fragments_hz':8,'events_hz':null},'buffer_used':0.5,"
                         "'peers':[{'node':'sfi1','queued_bytes':100},{'node':'sfi2','queued_bytes':1}],"
                         "'shaping':[{'node':'sfi1','backlog_bytes':30},{'node':'sfi2','backlog_bytes':4}],"
                         "'drops':{'source_qdisc_packets':5,'send_failed_packets':2,'network_packets':null}");
        sample_answer(2, "'shaping':[{'node':'sfi1','backlog_bytes':6}]");
        sample_answer(3, "'credits':12,'unwritten_events':3,'output_free_bytes':10,'output_size_bytes':100");
        sample_answer(4, "'output_free_bytes':5,'output_size_bytes':100");
        sample_look();
        assert_true(figure(0, TOP_RATE) == 4 && figure(0, TOP_DATA) == 100);
        assert_true(figure(0, TOP_FREE) == 30 && isnan(figure(0, TOP_BUFFER)));
        assert_true(figure(0, TOP_LOST) == 2 && figure(0, TOP_PARTIAL) == 1);
        assert_true(figure(1, TOP_RATE) == 8 && figure(1, TOP_BUFFER) == 0.5);
        assert_true(figure(1, TOP_QUEUED) == 101 && figure(1, TOP_BACKLOG) == 34);
        assert_true(figure(1, TOP_DROPS) == 7 && isnan(figure(1, TOP_CREDITS)));
        assert_true(figure(3, TOP_FREE) == 10 && figure(3, TOP_CREDITS) == 12);
        assert_true(figure(3, TOP_BACKLOG) == 36 && figure(3, TOP_QUEUED) == 100);
        assert_true(figure(4, TOP_BACKLOG) == 4 && figure(3, TOP_UNWRITTEN) == 3);
        assert_true(t.model.run.run == 7 && t.model.totals[TOP_TOTAL_BACKLOG] == 40);
        assert_true(t.model.totals[TOP_TOTAL_TRIGGERS_HZ] == 5 && t.model.totals[TOP_TOTAL_BUSY] == 0.25);
        assert_true(t.model.totals[TOP_TOTAL_P99_US] == 20 && t.model.totals[TOP_TOTAL_WAITING] == 6);
        assert_string_equal(t.model.fullest->from->node->name, "sfi2");
        assert_string_equal(t.model.run_state, "running");
}

/* As in a run's report. */
TEST_WITH(drops_are_summed_by_place, NULL, sample_close)
{
        sample_open(2, 2);
        sample_look();
        assert_true(isnan(t.model.lost[LOSS_NETWORK]));
        sample_answer(1, "'drops':{'source_qdisc_packets':1,'send_failed_packets':4,'socket_packets':100}");
        sample_answer(2,
                      "'drops':{'source_qdisc_packets':2},'discarded':{'packets':{'malformed':3,'foreign':0},"
                      "'fragments':null,'front_end_frames':{'no_room':2}}");
        sample_answer(3,
                      "'drops':{'network_packets':10,'socket_packets':5},'fragments':{'late':6,'corrupt':7}");
        sample_answer(
                4,
                "'drops':{'network_packets':1},'fragments':{'late':1},'discarded':{'packets':{'malformed':4,"
                "'socket_full':9},'fragments':{'late':1,'duplicate':5}}");
        sample_look();
        assert_true(t.model.lost[LOSS_SOURCE_QDISC] == 3);
        assert_true(t.model.lost[LOSS_NETWORK] == 7);
        assert_true(t.model.lost[LOSS_SOCKET] == 5);
        assert_true(t.model.totals[TOP_TOTAL_LATE] == 7 && t.model.lost[LOSS_CORRUPT] == 7);
        assert_string_equal(t.model.discarded,
                            "packets malformed 7, front end frames no room 2, fragments duplicate 5");
}

TEST_WITH(states_name_the_problem, NULL, sample_close)
{
        sample_open(2, 2);
        sample_answer(0, "'stalled_seconds':7");
        sample_problem(0, CONDITION_STALLED, "stalled for 7 s: no credit");
        sample_problem(1, CONDITION_SILENT, "no answer from x: Connection refused");
        sample_answer(2, "'reason':'waits for the board'");
        sample_answer(3, "'version':'0.0.9'");
        sample_look();
        assert_int_equal(t.model.nodes[0].state, TOP_PROBLEM);
        assert_string_equal(t.model.nodes[0].problem, "stalled for 7 s: no credit");
        assert_int_equal(t.model.nodes[1].state, TOP_SILENT);
        assert_string_equal(t.model.nodes[1].state_text, "no_answer");
        assert_string_equal(t.model.nodes[2].problem, "waits for the board");
        assert_int_equal(t.model.nodes[2].state, TOP_FINE);
        assert_string_equal(t.model.nodes[3].problem, "it runs evb 0.0.9, and this is evb " EVB_VERSION);
        assert_int_equal(t.model.nodes[4].state, TOP_LATE);
        assert_string_equal(t.model.nodes[4].problem, "no answer yet");
        assert_int_equal(t.model.n_silent, 1);
        /* An answer is under way for long. */
        t.now_ns += 2 * NS_PER_S;
        t.statuses.nodes[2].asked_ns = t.now_ns - NS_PER_S;
        t.statuses.nodes[3].asked_ns = t.now_ns - NS_PER_S / 10;
        sample_look();
        assert_int_equal(t.model.nodes[2].state, TOP_LATE);
        assert_string_equal(t.model.nodes[2].problem, "no answer for 2.0 s");
        assert_int_equal(t.model.nodes[3].state, TOP_FINE);
}

TEST_WITH(a_restarted_node_counts_afresh, NULL, sample_close)
{
        const struct top_node *n;

        sample_open(0, 1);
        n = &t.model.nodes[1];
        sample_answer(1, "'start_time':1,'counts':{'events_partial':100},'fragments':{'lost':3}");
        sample_look();
        assert_false(n->grew[TOP_PARTIAL]);
        t.now_ns += NS_PER_S;
        sample_answer(1, "'start_time':1,'counts':{'events_partial':101},'fragments':{'lost':3}");
        sample_look();
        assert_true(n->grew[TOP_PARTIAL] && !n->grew[TOP_LOST]);
        /* The same answer again is no growth, and no end of it. */
        sample_look();
        assert_true(n->grew[TOP_PARTIAL]);
        t.now_ns += NS_PER_S;
        sample_answer(1, "'start_time':2,'counts':{'events_partial':0},'fragments':{'lost':1}");
        sample_look();
        assert_true(n->figures[TOP_PARTIAL] == 0 && !n->grew[TOP_PARTIAL] && n->grew[TOP_LOST]);
        /* Gone and back. */
        json_decref(t.statuses.nodes[1].status);
        t.statuses.nodes[1].status = NULL;
        sample_problem(1, CONDITION_SILENT, "no answer");
        sample_look();
        assert_true(isnan(n->figures[TOP_PARTIAL]) && !n->grew[TOP_PARTIAL]);
        t.now_ns += NS_PER_S;
        sample_answer(1, "'start_time':2,'counts':{'events_partial':5}");
        sample_look();
        assert_true(n->figures[TOP_PARTIAL] == 5 && !n->grew[TOP_PARTIAL]);
}

/* Any program may listen where a node should. */
TEST_WITH(nonsense_is_unknown, NULL, sample_close)
{
        sample_open(1, 1);
        sample_answer(
                0, "'rates':[1],'counts':'x','peers':{'node':1},'run':'7','reason':'a\\u001b[2Jb\\n\\u00e9'");
        sample_answer(1, "'peers':[7,null,{'node':3,'queued_bytes':'5'}],'shaping':0,'discarded':[1]");
        sample_answer(2, "'state':'run\\u001bning','buffer_used':-1e300,'credits':1e300,'discarded':{'a':{'"
                         "b\\u001b':1}}");
        sample_look();
        assert_true(isnan(figure(0, TOP_RATE)) && isnan(figure(0, TOP_RUN)));
        assert_true(isnan(figure(0, TOP_FREE)) && isnan(figure(1, TOP_QUEUED)));
        assert_string_equal(t.model.nodes[0].problem, "a?[2Jb???");
        assert_string_equal(t.model.nodes[2].state_text, "run_ning");
        assert_string_equal(t.model.discarded, "a b? 1");
}

static void assert_order(const char *key, bool reverse, const char *expected)
{
        size_t order[16];
        char names[256] = "";

        assert_non_null(top_column_find(key));
        top_sort(&t.model, top_column_find(key), reverse, order);
        for (size_t i = 0; i < t.model.n; i++)
                sprintf(names + strlen(names), " %s", t.statuses.nodes[order[i]].node->name);
        assert_string_equal(names, expected);
}

TEST_WITH(nodes_are_sorted, NULL, sample_close)
{
        sample_open(2, 2);
        sample_answer(1, "'buffer_used':0.1");
        sample_answer(2, "'buffer_used':0.9");
        sample_answer(3, "'buffer_used':0.9");
        sample_problem(4, CONDITION_SILENT, "no answer");
        sample_look();
        assert_null(top_column_find("nothing"));
        assert_order("node", false, " dfm ros1 ros2 sfi1 sfi2");
        assert_order("node", true, " sfi2 sfi1 ros2 ros1 dfm");
        assert_order("buffer", false, " ros2 sfi1 ros1 dfm sfi2");
        assert_order("buffer", true, " ros1 ros2 sfi1 dfm sfi2");
        assert_order("state", false, " sfi2 dfm ros1 ros2 sfi1");
        assert_order("note", false, " sfi2 dfm ros1 ros2 sfi1");
        assert_order("role", true, " sfi1 sfi2 ros1 ros2 dfm");
}

static const char *cell(size_t i, const char *key)
{
        static char text[TOP_CELL_MAX];

        return top_cell_format(&t.model.nodes[i], top_column_find(key), text);
}

TEST_WITH(cells_fit_their_columns, NULL, sample_close)
{
        sample_open(0, 1);
        sample_answer(0, "'peers':[{'node':'sfi1','free_credits':3}]");
        sample_answer(1, "'credits':1024,'open_events':12,'buffer_used':0.01,'rates':{'events_hz':12345,"
                         "'bytes_per_second':99990000}");
        sample_look();
        assert_string_equal(cell(1, "credits"), "3/1024");
        assert_string_equal(cell(0, "credits"), "3");
        assert_string_equal(cell(1, "open"), "12");
        assert_string_equal(cell(1, "rate"), "12.3 kHz");
        assert_string_equal(cell(1, "data"), "100 MB/s");
        assert_string_equal(cell(1, "buffer"), "\x01\x02\x02\x02\x02\x02   1%");
        assert_string_equal(cell(0, "buffer"), "-");
        sample_answer(1, "'credits':12345678,'open_events':1234567,'buffer_used':9");
        sample_look();
        assert_string_equal(cell(1, "credits"), "3");
        assert_string_equal(cell(1, "open"), "1.23 M");
        assert_string_equal(cell(1, "buffer"), "\x01\x01\x01\x01\x01\x01 900%");
}

/* Programs read them: each line has the fields of the head, and nothing but text. */
TEST_WITH(lines_have_the_same_fields, NULL, sample_close)
{
        char *text = NULL, *rest, *line;
        size_t size, lines = 0, fields[8] = {};
        FILE *f = open_memstream(&text, &size);

        sample_open(1, 1);
        sample_answer(1, "'buffer_used':0.25,'rates':{'fragments_hz':12345.67}");
        sample_problem(2, CONDITION_SILENT, "no");
        sample_look();
        top_lines_print_head(f);
        top_lines_print(f, &t.model, "2026-11-24T18:45:01");
        fclose(f);
        rest = text;
        assert_non_null(strstr(text, " 12345.7 "));
        assert_non_null(strstr(text, " 25.0 "));
        while ((line = strsep(&rest, "\n")) && *line) {
                for (char *word; (word = strsep(&line, " "));)
                        fields[lines] += *word != '\0';
                assert_true(++lines < ARRAY_SIZE(fields));
        }
        assert_int_equal(lines, 4);
        for (size_t i = 0; i < lines; i++) {
                /* Only a note has blanks. */
                if (i != 1)
                        assert_int_equal(fields[i], TOP_COLUMNS + 1);
        }
        free(text);
}

TEST_WITH(the_object_has_the_age_of_answers, NULL, sample_close)
{
        const json_t *nodes;
        json_auto_t *o;

        sample_open(0, 1);
        sample_answer(0, "'run':7");
        t.now_ns += 2 * NS_PER_S;
        sample_problem(1, CONDITION_SILENT, "no answer");
        sample_look();
        o = top_model_to_json(&t.model, t.now_ns, 5.5);
        assert_json(o, "{'time': 5.5, 'scenario': 'beam', 'ok': false}");
        nodes = json_object_get(o, "nodes");
        assert_json(json_array_get(nodes, 0), "{'age_seconds': 2.0, 'run': 7}");
        assert_json(json_array_get(nodes, 1), "{'age_seconds': null, 'reachable': false}");
}
