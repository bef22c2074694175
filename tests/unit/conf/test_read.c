/* Reads files and settings: layouts that are accepted, and the line and reason of each error. */
#include "conf_sample.h"

TEST(test_values)
{
        assert_loads("[scenario]\nmode = pull\nduration=250ms\n[trigger]\nrate : 5kHz\n" COUNTS);
        assert_fields(&sample.scenario, mode, MODE_PULL, duration_ns, 250 * NS_PER_MS);
        assert_int_equal(sample.trigger.rate_millihertz, 5000000);
        assert_int_equal(sample.sfi.credits, SCENARIO_AUTO);
        assert_int_equal(sample.run.seed, 1);
        /* The command line wins. */
        assert_int_equal(
                sample_load_with("[scenario]\nmode = pull ; inline\n[network]\nloss = 2%\nlink-rate = 1Gbit\n"
                                 "[qos]\nbackend = cbq+tbf\n[sfi]\noutstanding = 3\n" COUNTS,
                                 (const char *[]){"scenario.mode=push", "sfi.outstanding=7"}, 2),
                0);
        assert_int_equal(sample.scenario.mode, MODE_PUSH);
        assert_int_equal(sample.sfi.outstanding, 7);
        assert_int_equal(sample.network.link_rate_bps, 1000000000);
        assert_true(sample.network.loss == 0.02);
        assert_int_equal(sample.qos.backend, QOS_CBQ_TBF);
        assert_int_equal(sample.trigger.rate_millihertz, SCENARIO_MAX);
}

TEST(test_layout)
{
        /* A byte order mark, both kinds of comments, indented lines, Windows line ends, no final newline. */
        assert_loads("\xEF\xBB\xBF[ros]\r\n  count = 3 # three\r\n\tfragment-size = 2kB ; each\r\n"
                     "# nothing\r\n  ; nothing\r\n\r\n[sfi]   # here\r\n   count = 2");
        assert_fields(&sample.ros, count, 3, fragment_size_bytes, 2000);
        assert_int_equal(sample.sfi.count, 2);
        assert_loads("[scenario]\nname = a#b;c\n" COUNTS);
        assert_string_equal(sample.scenario.name, "a#b;c");
        /* A section may appear twice. */
        assert_loads(COUNTS "[ros]\nfragment-size = 1\n");
        assert_int_equal(sample.ros.fragment_size_bytes, 1);
}

TEST(test_wrong_values)
{
        assert_wrong(COUNTS "\n[scenario]\nmode = shove\n",
                     ":7: scenario.mode: ", "invalid value \"shove\"; expected push or pull");
        assert_wrong("[ros]\ncount = 1025\n[sfi]\ncount=1\n",
                     ":2: ros.count: ", "1025 is out of range; expected 0 to 1024");
        assert_wrong(COUNTS "[trigger]\nrate =\n",
                     ":6: trigger.rate: ", "\"\" is not a frequency; expected e.g. 2kHz, or max");
}

/* A file of another program has many unknown keys: only errors with a text propose a name. */
TEST(test_many_unknown_keys)
{
        char text[4000] = COUNTS "[sfi]\n";

        for (unsigned i = 0; i < 3 * SCENARIO_ERRORS_MAX; i++)
                snprintf(text + strlen(text), sizeof text - strlen(text), "retry%u = 1\n", i);
        assert_int_equal(sample_load(text), -EINVAL);
        assert_int_equal(sample_errors.n, 3 * SCENARIO_ERRORS_MAX);
        for (unsigned i = 0; i < SCENARIO_ERRORS_MAX; i++)
                assert_non_null(strstr(sample_errors.text[i], "did you mean sfi.retries?"));
}

TEST(test_unknown_keys)
{
        assert_wrong(COUNTS "[sfi]\nretry = 1\n", ":6: sfi.retry: ", "did you mean sfi.retries?");
        /* A misspelt old name leads to the new one. */
        assert_wrong(COUNTS "[sfi]\nre-asks = 1\n", ":6: sfi.re-asks: ", "did you mean sfi.retries?");
        assert_wrong("[rso]\ncount = 2\n[sfi]\ncount = 1\n[ros]\ncount = 1\n",
                     ":2: rso.count: ", "did you mean ros.count?");
        assert_wrong(COUNTS "[run]\nfragment-size = 1\n",
                     ":6: run.fragment-size: ", "did you mean ros.fragment-size?");
        assert_wrong("fragment-size = 1\n" COUNTS, ":1: fragment-size: ", "did you mean ros.fragment-size?");
        assert_wrong(COUNTS "[colour]\nof-paint = red\n", ":6: colour.of-paint: ", "evb check --keys");
        assert_wrong(COUNTS "[sfi]\nretries\u00a0= 1\n", ":6: ", "the character U+00A0; expected only ASCII");
        assert_wrong(COUNTS "[sfi]\nretri\U0001f600s = 1\n",
                     ":6: ", "the character U+1F600; expected only ASCII");
        /* Not UTF-8. */
        assert_wrong(COUNTS "[sfi]\nretries\xa0 = 1\n", ":6: ", "did you mean sfi.retries?");
}

TEST(accepts_old_names)
{
        char wanted[128];

        assert_int_equal(sample_load_with(COUNTS "[sfi]\nre-ask = 3\n[network]\nport = 27000\n",
                                          (const char *[]){"network.control-port=27100"}, 1),
                         0);
        assert_int_equal(sample.sfi.retries, 3);
        assert_int_equal(sample.network.control_port, 27100);
        assert_int_equal(sample_errors.n_warnings, 2);
        snprintf(wanted, sizeof wanted, "%s:6: warning: sfi.re-ask is now sfi.retries", sample_path);
        assert_string_equal(sample_errors.warnings[0], wanted);
        assert_string_equal(
                sample_errors.warnings[1],
                "--set network.control-port=27100: warning: network.control-port is now network.port");
        assert_loads(COUNTS "[sfi]\nretries = 3\n");
        assert_int_equal(sample_errors.n_warnings, 0);
}

TEST(removed_keys_have_no_effect)
{
        char wanted[160];

        /* Nor does their value matter, or how often they are set. */
        assert_int_equal(sample_load_with(COUNTS "[sfi]\nreceive-threads = x\nreceive-threads = 2\n",
                                          (const char *[]){"sfi.receive-threads=0"}, 1),
                         0);
        assert_int_equal(sample_errors.n_warnings, 3);
        snprintf(wanted, sizeof wanted,
                 "%s:6: warning: sfi.receive-threads has no effect any more: run several SFIs on the machine",
                 sample_path);
        assert_string_equal(sample_errors.warnings[0], wanted);
        assert_int_equal(sample_set("test.segmentation=no"), 0);
        assert_string_equal(sample_errors.warnings[0],
                            "--set test.segmentation=no: warning: test.segmentation has no effect any more");
}

/* Keys of earlier versions whose values are now part of the value of another key, wherever that is set. */
TEST(parts_of_other_keys_have_an_effect)
{
        static const char text[] =
                COUNTS "[level2]\nundecided = reject\ntimeout = 5ms\n"
                       "[trigger]\nslice = 20ms+1ms\nsource = clock\n"
                       "[ros]\nsource = udp:5000\nevent-time = 0:64\nstagger = no\n"
                       "[scenario]\ntransport = tcp\n[qos]\nrequired = no\nbackend = htb\n";
        static const char *const settings[] = {"network.tcp-congestion=bbr", "trigger.leader=ros1"};

        assert_int_equal(sample_load_with(text, settings, ARRAY_SIZE(settings)), 0);
        assert_true(sample.level2.rejects && sample.level2.timeout_ns == 5 * NS_PER_MS);
        assert_true(sample.scenario.transport == TRANSPORT_TCP &&
                    sample.scenario.congestion == CONGESTION_BBR);
        assert_string_equal(sample.trigger.source, "clock:20ms+1ms");
        assert_true(!sample.ros.stagger && sample.ros.pacing_bps == 0);
        assert_int_equal(sample_errors.n_warnings, 6);
        assert_true(sample.qos.backend == QOS_HTB && !sample.qos.required);
        assert_string_equal(sample_errors.warnings[1],
                            "--set network.tcp-congestion=bbr: warning: network.tcp-congestion is now part "
                            "of scenario.transport: set scenario.transport = tcp:bbr");
        assert_wrong(COUNTS "[level2]\ntimeout = 5ns\nundecided = reject\n",
                     ":6: level2.timeout: ", "expected a time from 1ms");
}

TEST(sockets_are_paced_over_tcp_only)
{
        assert_loads(COUNTS
                     "[scenario]\ntransport = tcp:cubic\n[qos]\nbackend = socket:optional\nrate = 1Gbit\n");
        assert_true(sample.qos.backend == QOS_SOCKET && !sample.qos.required);
        assert_loads(COUNTS "[scenario]\ntransport = tcp\n[qos]\nbackend = socket\n");
        assert_true(sample.qos.backend == QOS_SOCKET && sample.qos.required);
        assert_wrong(COUNTS "[qos]\nbackend = socket\n",
                     ":6: qos.backend: ", "only over TCP; set scenario.transport = tcp, or another backend");
        assert_wrong(COUNTS "[scenario]\ntransport = tcp\n[qos]\nbackend = socket\nburst = 16KiB\n",
                     ":9: qos.burst: ", "qos.backend = socket has no queue; expected auto");
        assert_wrong(COUNTS "[scenario]\ntransport = tcp\n[qos]\nbackend = socket\nlimit = 1MiB\n",
                     ":9: qos.limit: ", "qos.backend = socket has no queue; expected auto");
}

/* The parts of trigger.source stand in one order, in whichever order their old keys are set. */
TEST(parts_of_the_trigger_source_are_joined)
{
        static const struct {
                const char *keys, *source;
                uint64_t slice_ms, overlap_us, window_ms;
        } cases[] = {
                {"window = 200ms\nsource = frames\n", "frames within 200ms", 10, 0, 200},
                {"window = 200ms\nleader = ros1\nsource = frames\n", "frames:ros1 within 200ms", 10, 0, 200},
                {"source = frames within 200ms\nleader = ros1\n", "frames:ros1 within 200ms", 10, 0, 200},
                {"window = 200ms\nsource = clock\n", "clock within 200ms", 10, 0, 200},
                {"source = clock within 200ms\nslice = 20ms\n", "clock:20ms within 200ms", 20, 0, 200},
                {"slice-overlap = 100us\nsource = clock\n", "clock:10ms+100us", 10, 100, 100},
                {"source = clock:20ms within 50ms\nslice-overlap = 100us\n", "clock:20ms+100us within 50ms",
                 20, 100, 50},
                {"window = 200ms\nslice-overlap = 100us\nslice = 20ms\nsource = clock\n",
                 "clock:20ms+100us within 200ms", 20, 100, 200},
        };

        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                char text[320], wanted[100];

                snprintf(text, sizeof text, "%s[ros]\nsource = udp:5000\nevent-%s = 0:64\n[trigger]\n%s",
                         COUNTS, cases[i].source[0] == 'c' ? "time" : "number", cases[i].keys);
                assert_loads(text);
                assert_string_equal(sample.trigger.source, cases[i].source);
                assert_fields(&sample.trigger, slice_ns, cases[i].slice_ms * NS_PER_MS, overlap_ns,
                              cases[i].overlap_us * NS_PER_US, window_ns, cases[i].window_ms * NS_PER_MS);
                snprintf(wanted, sizeof wanted, "is now part of trigger.source: set trigger.source = %s",
                         cases[i].source);
                assert_non_null(strstr(sample_errors.warnings[sample_errors.n_warnings - 1], wanted));
        }
}

/* The value that changes nothing, or is in the other key too, or belongs to another value of it. */
static const struct {
        const char *text, *warning, *timeout;
} without_effect[] = {
        {"[level2]\nundecided = accept\n", "level2.timeout = 1s; remove it: its value is the default", "1s"},
        {"[level2]\ntimeout = 2s:reject\nundecided = reject\n",
         "level2.timeout = 2s:reject; remove it: this value contains it", "2s:reject"},
        {"[test]\nstagger = yes\npacing = 100Mbit\n", "= 100Mbit; remove it: its value is the default", "1s"},
        {"[test]\nstagger = no\npacing = together\n", "= together; remove it: this value contains it", "1s"},
        {"[trigger]\nleader = any\n", "= internal; remove it: its value is the default", "1s"},
        {"[trigger]\nslice = 10ms\nsource = clock:10ms\n[ros]\nsource = udp:5000\nevent-time = 0:64\n",
         "= clock:10ms; remove it: its value is the default", "1s"},
        {"[trigger]\nslice = 20ms\nsource = clock:20ms within 200ms\n[ros]\nsource = udp:5000\n"
         "event-time = 0:64\n",
         "= clock:20ms within 200ms; remove it: this value contains it", "1s"},
        {"[trigger]\nwindow = 200ms\n", "= internal; remove it: it has no effect with this value", "1s"},
        {"[trigger]\nslice-overlap = 1ms\nsource = udp:6000\n",
         "= udp:6000; remove it: it has no effect with this value", "1s"},
        {"[qos]\nrequired = no\n", "= none; remove it: it has no effect with this value", "1s"},
        {"[qos]\nrequired = no\nbackend = auto:optional\n",
         "= auto:optional; remove it: this value contains it", "1s"},
        {"[network]\ntcp-congestion = bbr\n", "= udp; remove it: it has no effect with this value", "1s"},
        {"[ros]\nfragment-sizes = fixed\nfragment-size = 2kB\n",
         "ros.fragment-size = 2kB; remove it: its value is the default", "1s"},
        {"[ros]\nfragment-sizes = uniform:1-2\nfragment-size = uniform:1-2\n",
         "= uniform:1-2; remove it: this value contains it", "1s"},
        {"[ros]\nfragment-sizes = uniform:1-2\nfragment-size = 2kB\n",
         "ros.fragment-sizes is now part of ros.fragment-size: set ros.fragment-size = uniform:1-2", "1s"},
};

TEST_EACH(parts_without_effect_are_removed, i, ARRAY_SIZE(without_effect))
{
        char text[256];

        snprintf(text, sizeof text, "%s%s", COUNTS, without_effect[i].text);
        assert_loads(text);
        assert_int_equal(sample_errors.n_warnings, 1);
        assert_non_null(strstr(sample_errors.warnings[0], without_effect[i].warning));
        assert_string_equal(sample.level2.timeout, without_effect[i].timeout);
}

/* In particular, no value is lost without an error. */
TEST(parts_do_not_contradict_their_key)
{
        static const char clock[] = COUNTS "[ros]\nsource = udp:5000\nevent-time = 0:64\n[trigger]\n"
                                           "source = clock:20ms\nslice = 10ms\n";
        static const char *const undecided[] = {"level2.timeout=200ms:reject", "level2.undecided=accept"};

        assert_wrong(COUNTS "[test]\nstagger = no\npacing = 100Mbit\n", ":6: test.stagger: ",
                     "\"no\" contradicts test.pacing = 100Mbit; set test.pacing = together, or remove "
                     "test.stagger");
        assert_wrong(COUNTS "[test]\nstagger = yes\npacing = together\n",
                     ":6: test.stagger: ", "; set test.pacing = none");
        assert_wrong(
                COUNTS "[ros]\nfragment-size = uniform:1-2\nfragment-sizes = fixed\n",
                ":7: ros.fragment-sizes: ", "; set ros.fragment-size = 1KiB, or remove ros.fragment-sizes");
        assert_wrong(COUNTS "[ros]\nfragment-size = uniform:1-2\nfragment-sizes = uniform:1-3\n",
                     ":7: ros.fragment-sizes: ", "; set ros.fragment-size = uniform:1-3, or");
        assert_wrong(COUNTS "[level2]\nundecided = accept\ntimeout = 200ms:reject\n",
                     ":6: level2.undecided: ", "; set level2.timeout = 200ms, or");
        assert_wrong(COUNTS "[scenario]\ntransport = tcp:bbr\n[network]\ntcp-congestion = reno\n",
                     ":8: network.tcp-congestion: ", "; set scenario.transport = tcp:reno, or");
        assert_wrong(COUNTS "[qos]\nbackend = htb:optional\nrequired = yes\n",
                     ":7: qos.required: ", "; set qos.backend = htb, or");
        assert_wrong(clock, ":10: trigger.slice: ", "; set trigger.source = clock, or");
        assert_wrong(COUNTS "[trigger]\nleader = ros1\nsource = frames:ros2 within 200ms\n",
                     ":6: trigger.leader: ", "; set trigger.source = frames:ros1 within 200ms, or");
        assert_wrong(COUNTS "[trigger]\nwindow = 100ms\nsource = frames:ros1 within 200ms\n",
                     ":6: trigger.window: ", "; set trigger.source = frames:ros1, or");
        assert_int_equal(sample_load_with(COUNTS, undecided, ARRAY_SIZE(undecided)), -EINVAL);
        assert_non_null(strstr(sample_errors.text[0], "--set level2.undecided=accept: level2.undecided: "));
}

TEST(removed_keys_of_one_meaning_are_one_key)
{
        static const char *const stagger[] = {"test.stagger=yes"};

        assert_int_equal(sample_load_with(COUNTS "[ros]\nstagger = no\n", stagger, 1), 0);
        assert_true(sample.ros.stagger);
        assert_wrong(COUNTS "[test]\nstagger = no\n[ros]\nstagger = no\n",
                     ":8: ros.stagger: ", "duplicate key; first set on line 6 as test.stagger");
}

TEST(values_of_removed_parts_are_checked)
{
        assert_wrong(COUNTS "[level2]\nundecided = maybe\n",
                     ":6: level2.undecided: ", "invalid value \"maybe\"; expected accept or reject");
        assert_wrong(COUNTS "[test]\nstagger = maybe\n", ":6: test.stagger: ", "expected no or yes");
        assert_wrong(COUNTS "[test]\ntcp-congestion = vegas\n",
                     ":6: test.tcp-congestion: ", "expected auto, reno");
        assert_wrong(COUNTS "[trigger]\nslice = garbage\n", ":6: trigger.slice: ", "; set trigger.source");
        assert_wrong(COUNTS "[trigger]\nwindow = 2h\n", ":6: trigger.window: ", "; set trigger.source");
        assert_wrong(COUNTS "[trigger]\nslice-overlap = x\n",
                     ":6: trigger.slice-overlap: ", "; set trigger.source");
        assert_wrong(COUNTS "[trigger]\nleader =\n", ":6: trigger.leader: ", "; set trigger.source");
}

/* One key, whichever names set it. */
TEST(old_and_new_name_are_duplicates)
{
        assert_wrong(COUNTS "[sfi]\nre-ask = 3\nretries = 3\n",
                     ":7: sfi.retries: ", "duplicate key; first set on line 6 by its old name sfi.re-ask");
        assert_wrong(COUNTS "[sfi]\nretries = 3\nre-ask = 3\n",
                     ":7: sfi.re-ask: ", "duplicate key; first set on line 6 by its new name sfi.retries");
        assert_wrong(COUNTS "[sfi]\nre-ask = 3\nre-ask = 3\n",
                     ":7: sfi.re-ask: ", "duplicate key; first set on line 6");
}

TEST(test_lines_without_a_key)
{
        assert_wrong("[ros]\ncount\n" COUNTS,
                     ":2: line: ", "invalid line \"count\"; expected [SECTION], KEY = VALUE");
        /* The lines below an unclosed head belong to its section. */
        assert_wrong("[ros\ncount = 2\n[sfi]\ncount = 1\n", ":1: line: ", "\"[ros\" is not closed");
        assert_wrong("[ros]\ncount = 2\n[sfi]\ncount = 1\ncount = 3\n",
                     ":5: sfi.count: ", "duplicate key; first set on line 4");
}

TEST(test_long_lines)
{
        char text[5000] = COUNTS "[sfi]\ndirectory = /";
        size_t head = strlen(text);

        /* Longer than the default limit of inih. */
        memset(text + head, 'd', 240);
        strcpy(text + head + 240, "\n[run]\nseed = 7\n");
        assert_loads(text);
        assert_int_equal(strlen(sample.sfi.directory), 241);
        assert_int_equal(sample.run.seed, 7);
        for (size_t more = 900; more < 4000; more += more < 990 ? 30 : 97) {
                memset(text + head, 'd', more);
                strcpy(text + head + more, "\n[run]\nseed = x\n");
                sample_load(text);
                assert_int_equal(sample_errors.n, 2);
                assert_non_null(strstr(sample_errors.text[0], ":6: "));
                assert_non_null(strstr(sample_errors.text[0], more < 1000
                                                                      ? "sfi.directory: "
                                                                      : "line: too long; expected at most "));
                assert_non_null(strstr(sample_errors.text[1], ":8: run.seed: "));
        }
}

static void load_bytes(const char *bytes, size_t n)
{
        sample_write_bytes(bytes, n);
        assert_int_equal(scenario_load(&sample, sample_path, NULL, 0, &sample_errors), -EINVAL);
        assert_int_equal(unlink(sample_path), 0);
}

/* A file after a crash of its machine, or in UTF-16. The lines around are read. */
TEST(test_bytes_that_are_not_text)
{
        static const char middle[] = COUNTS "[run]\nseed = 7\0 8\nnumber = x\n",
                          last[] = COUNTS "[run]\nseed = 7\n\0\0\0";

        load_bytes(middle, sizeof middle - 1);
        assert_int_equal(sample_errors.n, 2);
        assert_non_null(strstr(sample_errors.text[0], ":6: line: contains a NUL byte"));
        assert_non_null(strstr(sample_errors.text[1], ":7: run.number: "));
        load_bytes(last, sizeof last - 1);
        assert_one_error(":7: line: ", "contains a NUL byte; expected UTF-8 text");
}

TEST(test_all_errors_at_once)
{
        char text[2000] = COUNTS "[run]\n";

        sample_load("[scenario]\nmode = shove\n[ros]\ncount = 2\nsource = pigeon\n[sfi]\ncount = one\nlast = "
                    "1\n");
        assert_int_equal(sample_errors.n, 4);
        assert_non_null(strstr(sample_errors.text[0], ":2: scenario.mode"));
        assert_non_null(strstr(sample_errors.text[1], ":7: sfi.count"));
        assert_non_null(strstr(sample_errors.text[2], ":8: sfi.last"));
        assert_non_null(strstr(sample_errors.text[3], ":5: ros.source"));
        for (int i = 0; i < SCENARIO_ERRORS_MAX + 5; i++)
                strcat(text, "colour = red\n");
        sample_load(text);
        assert_int_equal(sample_errors.n, SCENARIO_ERRORS_MAX + 5);
        assert_non_null(strstr(sample_errors.text[SCENARIO_ERRORS_MAX - 1], ":25: run.colour"));
}

/* An invalid value causes no further errors. */
TEST(test_no_consequent_errors)
{
        assert_wrong(COUNTS "[trigger]\nrate = fast\nkind = poisson\n",
                     ":6: trigger.rate: ", "\"fast\" is not a frequency");
        assert_wrong("[ros]\ncount = 2\n[trigger]\nkind = poisson\n", ": sfi.count: ", "0 SFIs");
}

TEST(test_settings)
{
        const char *const settings[] = {"ros.count=3", "ros.count=4", "ros.fragment-size=1.5kB",
                                        "scenario.name=a=b.c"};

        assert_int_equal(sample_load_with(COUNTS, settings, ARRAY_SIZE(settings)), 0);
        assert_fields(&sample.ros, count, 4, fragment_size_bytes, 1500);
        assert_string_equal(sample.scenario.name, "a=b.c");
}

TEST(test_wrong_settings)
{
        static const char *const wrong[] = {"", "=", "ros.count", "count=1", ".=", "ros=1.5"};

        for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
                assert_int_equal(sample_set(wrong[i]), -EINVAL);
        assert_wrong_setting("ros=1.5", "expected SECTION.KEY=VALUE");
        assert_wrong_setting("ros.count=x", "\"x\" is not a number; expected 0 to 1024");
        assert_wrong_setting("ros.cuont=1", "did you mean ros.count?");
        assert_wrong_setting("scenario.name=a\n[run]\nseed=2", "on one line");
}

/* A scenario is large, and only its used nodes are cleared. */
TEST_EACH(a_scenario_loads_into_used_memory, i, 2)
{
        static const char own[] = "[node dfm]\nrole = dfm\n[node a]\nrole = ros\n"
                                  "[node b]\nrole = sfi\ncpus = 1\n";
        static struct scenario first;

        memset(&sample, 0, sizeof sample);
        sample_write(i == 0 ? COUNTS : own);
        assert_int_equal(scenario_load(&sample, sample_path, NULL, 0, &sample_errors), 0);
        first = sample;
        memset(&sample, 0xa5, sizeof sample);
        assert_int_equal(scenario_load(&sample, sample_path, NULL, 0, &sample_errors), 0);
        assert_int_equal(unlink(sample_path), 0);
        assert_memory_equal(&sample, &first,
                            (size_t)((char *)&sample.nodes[sample.n_nodes] - (char *)&sample));
        assert_int_equal(sample.n_nodes, first.n_nodes);
}

TEST(test_no_file)
{
        assert_int_equal(scenario_load(&sample, "/nowhere/x.conf", NULL, 0, &sample_errors), -ENOENT);
        assert_int_equal(scenario_load(&sample, "/", NULL, 0, &sample_errors), -EISDIR);
}
