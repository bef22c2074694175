/* Sources of single ROSs: their keys, what follows from [ros], and the errors of both with their lines. */
#include "conf_sample.h"

#define DFM "[node d]\nrole = dfm\n"
#define SFI "[node s]\nrole = sfi\n"
#define ROS "[node r]\nrole = ros\n"
#define BASE DFM SFI ROS
#define OTHER "[node q]\nrole = ros\n"

static const struct scenario_node *node(const char *name)
{
        const struct scenario_node *n = scenario_find(&sample, name);

        assert_non_null(n);
        return n;
}

TEST(each_ros_has_its_source)
{
        char text[SCENARIO_TEXT_MAX];

        assert_loads("[ros]\nsource = udp:5000\n" BASE "source = pattern\n" OTHER
                     "[node p]\nrole = ros\nsource = tcp:[::1]:9000\nsource-id = 0x51000a\n"
                     "required = no\nwait = 200ms\n"
                     "[node o]\nrole = ros\nsource = udp:127.0.0.5:5001\nsource-id = 17\n"
                     "[node f]\nrole = ros\nsource = file:/tmp/x.data\n");
        assert_int_equal(node("r")->source_kind, SOURCE_PATTERN);
        assert_string_equal(node("r")->source_at, "");
        assert_true(node("r")->required);
        assert_int_equal(node("r")->source_id, SCENARIO_AUTO);
        assert_int_equal(node("q")->source_kind, SOURCE_UDP);
        assert_string_equal(node("q")->source_at, "5000");
        assert_false(node("q")->has_source);
        assert_int_equal(node("p")->source_kind, SOURCE_TCP);
        assert_string_equal(node("p")->source_at, "[::1]:9000");
        assert_int_equal(node("p")->source_id, 0x51000a);
        assert_false(node("p")->required);
        assert_int_equal(node("p")->wait_ns, 200 * NS_PER_MS);
        assert_string_equal(scenario_source_text(node("o"), text), "udp:127.0.0.5:5001");
        assert_int_equal(node("o")->source_id, 17);
        assert_string_equal(scenario_source_text(node("f"), text), "file:/tmp/x.data");
        assert_false(scenario_all_from(&sample, SOURCE_PATTERN));
        assert_null(scenario_replayed_file(&sample));
}

TEST(each_board_has_its_numbers)
{
        assert_loads("[ros]\nsource = udp:5000\nevent-number = 4:32\nnumber-from = 1\n" BASE OTHER
                     "event-number = 8.4:20:be mod 100000\nnumber-from = -3\n"
                     "[node c]\nrole = ros\nevent-number = count\n[node p]\nrole = ros\nsource = pattern\n");
        assert_fields(&node("r")->board, number.bits, 32, number.offset_bytes, 4, number_from, 1);
        assert_fields(&node("q")->board, number.bits, 20, number.offset_bytes, 8, number.bit, 4,
                      number.big_endian, true, number.modulus, 100000, number_from, -3);
        assert_int_equal(scenario_number_period(&sample, node("r")), NUMBER_PERIOD_MAX);
        assert_int_equal(scenario_number_period(&sample, node("q")), 100000);
        assert_false(node("r")->board.join.joins);
        assert_int_equal(scenario_number_period(&sample, node("c")), 0);
        assert_true(scenario_counts_frames(&sample));
        assert_int_equal(sample_errors.n_warnings, 0);
        assert_loads("[ros]\nsource = udp:5000\n" BASE "event-number = 0:5\n");
        assert_int_equal(sample_errors.n_warnings, 1);
        assert_non_null(strstr(sample_errors.warnings[0], "its numbers start over after 32 values"));
        /* If frames make the triggers, numbers are compared as far as all boards have them. */
        assert_loads("[trigger]\nsource = frames\n[ros]\nsource = udp:5000\nevent-number = 0:64\n" BASE OTHER
                     "event-number = 0:16 mod 32768\n");
        assert_int_equal(scenario_number_period(&sample, node("r")), 32768);
        assert_loads("[ros]\nsource = udp:5000\nevent-number = 0:32\nfragments = join count 2\n" BASE OTHER
                     "fragments = one\n");
        assert_true(node("r")->board.join.count == 2 && !node("q")->board.join.joins);
        assert_loads("[trigger]\nsource = clock\n[ros]\nsource = udp:5000\nevent-time = 0:64\n" BASE OTHER
                     "event-time = 8:48\ntick = 25ns\n");
        assert_fields(&node("q")->board, time.bits, 48, tick_ns, 25);
        assert_fields(&node("r")->board, time.bits, 64, tick_ns, 1);
        assert_true(scenario_has_slices(&sample));
        /* A board with a clock next to boards with numbers. */
#define BOX "[trigger]\nsource = udp:239.1.1.1:5001\n"
        assert_loads(BOX "[ros]\nsource = udp:5000\nevent-number = 0:16\n" BASE OTHER
                         "event-time = 8:48 within 500ns\ntick = 25ns\n");
        assert_string_equal(sample.trigger.group, "239.1.1.1");
        assert_int_equal(sample.trigger.port, 5001);
        assert_fields(&node("q")->board, time.bits, 48, time_window_ns, 500, number.bits, 0);
        assert_true(scenario_matches_times(node("q")) && !scenario_matches_times(node("r")));
        assert_int_equal(scenario_number_period(&sample, node("q")), NUMBER_PERIOD_MAX);
        assert_false(scenario_has_slices(&sample) || scenario_counts_frames(&sample));
        assert_loads("[trigger]\nsource = udp:[ff02::1]:5001\n" BASE);
        assert_string_equal(sample.trigger.group, "ff02::1");
        assert_int_equal(sample_errors.n_warnings, 0);
        assert_loads(BOX "[ros]\nsource = udp:5000\n" BASE "event-time = 0:24 within 1us\ntick = 8ns\n");
        assert_int_equal(sample_errors.n_warnings, 1);
        assert_non_null(strstr(sample_errors.warnings[0], "its clock starts over after 0.134 s"));
}

TEST(wrong_boards)
{
#define UDP "[ros]\nsource = udp:5000\n"
        assert_wrong(UDP BASE "event-number = 4\n", ":9: node r.event-number: ", "expected count, or OFFSET");
        assert_wrong(UDP BASE "event-number = 0:8 mod 257\n", ":9: node r.event-number: ", "N from 8 to 256");
        assert_wrong(UDP BASE "event-number = 0:2\n", ":9: node r.event-number: ", "expected 3 to 64 bits");
        assert_wrong("[ros]\nframe = datagram\n" BASE "source = udp:5000\n" OTHER "source = tcp:[::1]:9000\n",
                     ":2: ros.frame: ", "a stream has no datagrams");
        assert_wrong("[trigger]\nsource = clock\n" UDP BASE "event-time = 0:12\ntick = 8ns\n",
                     ":11: node r.event-time: ", "starts over within two slices");
        assert_wrong(UDP BASE "fragments = join\n", ":9: node r.fragments: ", "but event-number is count");
        assert_wrong("[ros]\nfragments = all\n" BASE, ":2: ros.fragments: ", "expected one, or join");
        assert_wrong(UDP "fragments = join within 1s\nevent-number = 0:32\nwait = 500ms\n" BASE,
                     ":3: ros.fragments: ", "expected a shorter time, or a longer wait");
        assert_wrong(UDP "event-number = 0:32\nframe = fixed 8\n" BASE "fragments = join last 8:1\n",
                     ":11: node r.fragments: ", "within its fixed size");
        assert_wrong("[trigger]\nsource = clock\n" UDP "event-time = 0:64\nfragments = join\n" BASE,
                     ":6: ros.fragments: ", "form a fragment already");
        /* A key of the node does not fit inherited fragments. */
#define JOIN(rule) UDP "event-number = 0:32\nfragments = join" rule "\n" BASE OTHER
        assert_wrong(JOIN("") "event-number = count\n", ":13: node q.event-number: ", "joined by the number");
        assert_wrong(JOIN(" within 100ms") "wait = 20ms\n", ":13: node q.wait: ", "or a longer wait");
        assert_wrong(JOIN(" count 60:32") "frame = fixed 20\n", ":13: node q.frame: ", "its fixed size");
        assert_wrong(JOIN("") "event-number = count\n[node p]\nrole = ros\nevent-number = 4:32\n",
                     ":13: node q.event-number: ", "or fragments = one");
        /* A node does not fit, nor do those that inherit both keys and share one error. */
        assert_int_equal(sample_load(UDP "fragments = join\n" BASE "event-number = count\n" OTHER
                                         "[node p]\nrole = ros\n"),
                         -EINVAL);
        assert_int_equal(sample_errors.n, 2);
        assert_non_null(strstr(sample_errors.text[0], ":10: node r.event-number: "));
        assert_non_null(strstr(sample_errors.text[1], ":3: ros.fragments: "));
#define DEMUX UDP "event-number = 0:32\nfragments = join demux 4:8\n"
        assert_wrong(DEMUX BASE, ":9: node r.source-id: ", "expected one, e.g. 0x110000");
        assert_wrong(DEMUX BASE "source-id = 0x11ff01\n", ":11: node r.source-id: ", "exceed 16 bits");
        assert_wrong(DEMUX BASE "source-id = 0x110000\n" OTHER "source-id = 0x1100ff\nfragments = one\n",
                     ":14: node q.source-id: ", "node r also has 0x1100ff");
        assert_wrong(UDP "event-number = 0:32\nfragments = join demux 4:10\n" BASE
                         "source-id = 0x110000\n" OTHER "fragments = join\n",
                     ":4: ros.fragments: ", "more than 1024 boards");
        assert_wrong(UDP BASE "number-from = x\n", ":9: node r.number-from: ", "is not a whole number");
        assert_wrong(UDP BASE "event-time = 0:65\n", ":9: node r.event-time: ", "expected none, or OFFSET");
        assert_wrong(UDP BASE "tick = 0\n", ":9: node r.tick: ", "is not a time from 1ns to 3600s");
        assert_wrong(UDP BASE "event-time = 0:64\n",
                     ":9: node r.event-time: ", "expected trigger.source = clock");
        assert_wrong(UDP BASE "event-time = 0:64 within 2s\n",
                     ":9: node r.event-time: ", "expected 1ns to 100ms");
        assert_wrong("[trigger]\nsource = udp:5001\n" UDP BASE "event-time = 0:64 within 1us\n",
                     ":11: node r.event-time: ", "expected trigger.source = udp:GROUP:PORT");
        assert_wrong(BOX UDP BASE "event-time = 0:64 within 1us\ntick = 2us\n",
                     ":11: node r.event-time: ", "shorter than a count of tick");
        assert_wrong(BOX UDP BASE "event-time = 0:64 within 1us\nevent-number = 0:32\n",
                     ":12: node r.event-number: ", "expected count, or event-time = none");
        assert_wrong(BOX UDP BASE "event-time = 0:64 within 1us\nfragments = join\n",
                     ":12: node r.fragments: ", "expected fragments = one");
        assert_wrong(BASE "event-number = 0:32\n", ":7: node r.event-number: ", "this ROS has no board");
        assert_wrong(UDP DFM SFI "tick = 1ns\n" ROS, ":7: node s.tick: ", "an SFI has no source");
        assert_wrong("[trigger]\nsource = clock\n" UDP BASE "event-time = 0:64\n" OTHER,
                     ":12: node q.event-time: ", "other boards have times");
        assert_wrong("[trigger]\nsource = clock\n" UDP BASE "event-time = 0:64\nevent-number = 0:32\n",
                     ":12: node r.event-number: ", "by their time, not by a number");
        assert_wrong("[trigger]\nsource = frames\n" UDP "event-number = 0:32\n" BASE OTHER
                     "event-number = count\n",
                     ":14: node q.event-number: ", "frames make the triggers only if");
        assert_wrong("[trigger]\nsource = frames\n" UDP "event-number = 0:32 mod 1000\n" BASE OTHER
                     "event-number = 0:16\n",
                     ":5: ros.event-number: ",
                     "must start over together at least every 4096 triggers, not every 8");
}

/* Nodes made from counts have the source of [ros]. */
TEST(counts_take_the_common_source)
{
        assert_loads(COUNTS);
        assert_true(scenario_all_from(&sample, SOURCE_PATTERN));
        assert_true(node("ros2")->required);
        assert_loads("[ros]\ncount = 2\nsource = file:/a\n[sfi]\ncount = 1\n");
        assert_string_equal(scenario_replayed_file(&sample), "/a");
        assert_int_equal(scenario_rank_in_file(&sample, node("ros1")), 0);
        assert_int_equal(scenario_rank_in_file(&sample, node("ros2")), 1);
}

TEST(files_are_ranked_by_themselves)
{
        assert_loads(BASE "source = file:/a\n" OTHER "source = file:/b\n"
                          "[node p]\nrole = ros\nsource = file:/a\n"
                          "[node o]\nrole = ros\nsource = file:/a\nsource-id = 5\n"
                          "[node n]\nrole = ros\nsource = file:/a\n");
        assert_int_equal(scenario_rank_in_file(&sample, node("r")), 0);
        assert_int_equal(scenario_rank_in_file(&sample, node("q")), 0);
        assert_int_equal(scenario_rank_in_file(&sample, node("p")), 1);
        assert_int_equal(scenario_rank_in_file(&sample, node("n")), 2);
        assert_string_equal(scenario_replayed_file(&sample), "/a");
}

TEST(settings_replace_keys)
{
        const char *const settings[] = {"node r.source=udp:7000", "node r.required=no", "node r.wait=1s"};

        assert_int_equal(sample_load_with(BASE "source = pattern\nrequired = yes\n", settings, 3), 0);
        assert_string_equal(node("r")->source_at, "7000");
        assert_false(node("r")->required);
        assert_int_equal(node("r")->wait_ns, NS_PER_S);
}

/* A relative path starts at the file that contains it. */
TEST(paths_become_absolute)
{
        assert_loads(BASE "source = file:some.data\n");
        assert_string_equal(node("r")->source_at, "/tmp/some.data");
}

TEST(a_written_scenario_is_the_same)
{
        static struct scenario before;
        _cleanup_free_ char *text = NULL;

        assert_loads(BASE "source = udp:127.0.0.1:5000\nsource-id = 0x520001\nrequired = no\n"
                          "wait = 150ms\n" OTHER "source = file:/a b/c.data\n");
        before = sample;
        text = sample_written();
        assert_loads(text);
        for (size_t i = 0; i < before.n_nodes; i++) {
                before.nodes[i].line = sample.nodes[i].line;
                assert_memory_equal(&before.nodes[i], &sample.nodes[i], sizeof before.nodes[i]);
        }
}

TEST(errors_name_their_lines)
{
        assert_wrong(BASE "source = banana\n",
                     ":7: node r.source: ", "invalid source \"banana\"; expected pattern");
        assert_wrong(BASE "source = tcp:board1:9000\n", ":7: node r.source: ", "HOST is a numeric address");
        assert_wrong(BASE "source = tcp:::1:9000\n", ":7: node r.source: ", "invalid source");
        assert_wrong(BASE "source = udp:0\n", ":7: node r.source: ", "invalid source");
        assert_wrong(BASE "source = file:/a\n" OTHER "source = file:/b\n[node p]\nrole = ros\n",
                     ":10: node q.source: ", "node r replays another file");
        assert_wrong(BASE "source = pattern\nsource = pattern\n",
                     ":8: node r.source: ", "duplicate key; first set on line 7");
        assert_wrong(BASE "source-id = 0x1000000\n", ":7: node r.source-id: ", "expected 1 to 0xffffff");
        assert_wrong(BASE "source-id = five\n", ":7: node r.source-id: ", "invalid source ID \"five\"");
        assert_wrong(BASE "source-id = 0\n", ":7: node r.source-id: ", "expected 1 to 0xffffff");
        assert_wrong(BASE "source-id = 0x790001\n", ":7: node r.source-id: ", "sub-detector of an SFI");
        assert_wrong(BASE "source-id = 0x700001\n", ":7: node r.source-id: ", "sources without source-id");
        assert_wrong(BASE "source-id = 7\n" OTHER "source-id = 7\n",
                     ":10: node q.source-id: ", "node r also has 0x000007");
        assert_wrong(BASE "required = maybe\n", ":7: node r.required: ", "expected no or yes");
        assert_wrong(BASE "wait = 0\n", ":7: node r.wait: ", "is not a time from 1ms to 3600s");
        assert_wrong(BASE "wait = 5s\n", ":7: node r.wait: ", "longer than sfi.timeout");
        assert_wrong(DFM SFI "required = no\n" ROS, ":5: node s.required: ", "an SFI has no source");
        assert_wrong(DFM "source = pattern\n" SFI ROS, ":3: node d.source: ", "a DFM has no source");
        assert_wrong(BASE "source = udp:26800\n", ":7: node r.source: ", "port 26800 is network.port");
        assert_wrong("[ros]\nsource = udp:26800\ncount = 1\n[sfi]\ncount = 1\n",
                     ":2: ros.source: ", "port 26800 is network.port");
        assert_wrong(BASE "source = udp:127.0.0.1:5000\n" OTHER "source = udp:127.0.0.1:5000\n",
                     ":10: node q.source: ", "node r has the same source");
        assert_wrong(BASE "colour = red\n", ":7: node r.colour: ",
                     "expected role, address, device or cpus; for a ROS also source, source-id, required, "
                     "wait, frame, event-number");
}

/* ros.count keeps the first ROSs; the lines of the others' keys do not move to them. */
TEST(dropped_nodes_take_their_errors_along)
{
        const char *const one[] = {"ros.count=1"}, *const wrong[] = {"node s.wait=1s"};

        assert_int_equal(sample_load_with(DFM ROS OTHER "wait = 5s\n" SFI, one, 1), 0);
        sample_load_with(BASE, wrong, 1);
        assert_one_error("--set node s.wait=1s: node s.wait: ", "an SFI has no source");
}
