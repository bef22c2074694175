/* Text values, the start of relative paths, and keys that contradict each other. */
#include <limits.h>

#include "conf_sample.h"

TEST(test_sources)
{
        assert_sets("ros.source=pattern");
        assert_int_equal(sample.ros.source_kind, SOURCE_PATTERN);
        assert_sets("ros.source=file:/data/run.raw");
        assert_int_equal(sample.ros.source_kind, SOURCE_FILE);
        assert_string_equal(sample.ros.source_at, "/data/run.raw");
        assert_sets("ros.source=udp:5000");
        assert_int_equal(sample.ros.source_kind, SOURCE_UDP);
        assert_string_equal(sample.ros.source_at, "5000");
        assert_sets("ros.source=tcp:[::1]:5000");
        assert_int_equal(sample.ros.source_kind, SOURCE_TCP);
        assert_string_equal(sample.ros.source_at, "[::1]:5000");
}

TEST(test_wrong_sources)
{
        assert_wrong_values("ros.source", "expected pattern, file:PATH, udp:PORT or tcp:HOST:PORT", "",
                            "file:", "udp:0", "udp:65536", "udp:", "udp:99999", "tcp:host", "tcp::5000",
                            "tcp:a:", "tcp:a:b", "patterns", "pigeon");
}

/* One setting over a scenario with front-ends. */
static int set_with_boards(const char *setting)
{
        return sample_load_with(COUNTS "[ros]\nsource = udp:5000\n", &setting, 1);
}

TEST(test_numbers_of_frames)
{
        assert_int_equal(set_with_boards("ros.event-number=count"), 0);
        assert_int_equal(sample.ros.board.number.bits, 0);
        assert_int_equal(set_with_boards("ros.event-number=65535:24"), 0);
        assert_fields(&sample.ros.board.number, offset_bytes, 65535, bits, 24);
        assert_false(sample.ros.board.number.big_endian);
        assert_int_equal(set_with_boards("ros.event-number=4:64:be"), 0);
        assert_fields(&sample.ros.board.number, offset_bytes, 4, bits, 64);
        assert_true(sample.ros.board.number.big_endian);
        assert_sets("ros.number-from=-3");
        assert_int_equal(sample.ros.board.number_from, -3);
        assert_sets("ros.number-from=9223372036854775807");
        assert_true(sample.ros.board.number_from == INT64_MAX);
        assert_sets("ros.wait=50ms");
        assert_int_equal(sample.ros.wait_ns, 50 * NS_PER_MS);
        assert_sets("ros.wait=auto");
        assert_int_equal(sample.ros.wait_ns, SCENARIO_AUTO);
}

/* The fragments of other sources have no numbers. */
TEST(test_numbers_without_frames)
{
        static const char board[] = "[node dfm]\nrole = dfm\n[node a]\nrole = ros\n"
                                    "[node b]\nrole = ros\nsource = tcp:10.0.0.1:5\n[node s]\nrole = sfi\n";
        const char *setting = "ros.event-number=0:32";

        assert_int_equal(sample_set(setting), -EINVAL);
        assert_one_error("--set ros.event-number=0:32: ros.event-number: ", "no ROS has frames with numbers");
        assert_wrong(COUNTS "[ros]\nsource = file:/a\nevent-number = 0:32\n",
                     ":7: ros.event-number: ", "expected count, or a source udp: or tcp:");
        assert_int_equal(sample_load_with(board, &setting, 1), 0);
        assert_sets("ros.event-number=count");
}

TEST(test_wrong_numbers_of_frames)
{
        assert_wrong_values("ros.event-number", "expected count, or OFFSET[.BIT]:BITS[:be]", "", "4",
                            "4:", "4:0", "4:65", "4:32:le", "4:32 mod", "4:32 modulo 5", "4.64:8",
                            "4:32:", ":32", "-1:32", "65536:32", "4:-16", "4:32:be:", "counts", "4: 32",
                            "4:32 be", "99999999999999999999:32");
        assert_wrong_values("ros.number-from", "is not a whole number; expected e.g. 1 or -1", "", "1.5", "x",
                            "9223372036854775808");
        assert_wrong_setting("ros.wait=2s", "too long; expected shorter than sfi.timeout");
}

TEST(test_dscp)
{
        assert_sets("network.dscp=none");
        assert_fields(&sample.network, control_dscp, 0, data_dscp, 0);
        assert_sets("network.dscp=cs6,af21");
        assert_fields(&sample.network, control_dscp, 48, data_dscp, 18);
        assert_sets("network.dscp=af43,cs0");
        assert_fields(&sample.network, control_dscp, 38, data_dscp, 0);
        assert_sets("network.dscp=ef,le");
        assert_fields(&sample.network, control_dscp, 46, data_dscp, 1);
        assert_sets("network.dscp=63,af11");
        assert_fields(&sample.network, control_dscp, 63, data_dscp, 10);
}

TEST(test_wrong_dscp)
{
        assert_wrong_values("network.dscp", "expected none, or CONTROL,DATA, e.g. cs6,af21", "", "cs6", ",",
                            "cs6,", ",af21", "cs6,af21,0", "64,0", "0,64", "-1,0", "048,0", "cs8,0", "cs,0",
                            "af20,0", "af14,0", "af51,0", "0,CS6", "0x10,0", "none,none", "cs6 af21",
                            "cs6cs6cs6,0");
}

TEST(test_sizes)
{
        assert_sets("ros.fragment-size=uniform:0-4MiB");
        assert_fields(&sample.ros, sizes_kind, 1, sizes_least_bytes, 0, sizes_most_bytes, 4 << 20);
        assert_sets("ros.fragment-size=lognormal:2kB,0.5");
        assert_int_equal(sample.ros.sizes_kind, 2);
        assert_true(sample.ros.sizes_mean_bytes == 2000 && sample.ros.sizes_sigma == 0.5);
        assert_sets("ros.fragment-size=4096");
        assert_fields(&sample.ros, sizes_kind, 0, fragment_size_bytes, 4096);
        assert_string_equal(sample.ros.fragment_size, "4KiB");
}

TEST(only_htb_is_offloaded)
{
        assert_sets("qos.offload=auto");
        assert_loads(COUNTS "[qos]\nbackend = auto:optional\noffload = required\n");
        assert_int_equal(sample.qos.offload, QOS_OFFLOAD_REQUIRED);
        assert_loads(COUNTS "[qos]\nbackend = htb\noffload = required\n");
        assert_wrong(COUNTS "[qos]\nbackend = htb+tbf\noffload = required\n",
                     ":7: qos.offload: ", "only htb can be offloaded; expected qos.backend = htb or auto");
        assert_wrong_setting("qos.offload=required",
                             "only htb can be offloaded; expected qos.backend = htb or auto");
        assert_wrong_setting("qos.offload=yes", "expected no, auto or required");
}

TEST(test_wrong_sizes)
{
        assert_wrong_values("ros.fragment-size",
                            "expected a size up to 4MiB, uniform:A-B or lognormal:MEAN,SIGMA", "5MiB", "",
                            "-1", "fixed", "uniform", "uniform:5", "uniform:2-1", "uniform:9-3",
                            "uniform:1-5MiB", "uniform:a-b", "lognormal:1kB", "lognormal:0,1",
                            "lognormal:1kB,0", "lognormal:1kB,nan", "lognormal:1kB,6", "lognormal:,1",
                            "lognormal:1kB,1x", "lognormal:5MiB,0.1", "lognormal:1kB,-0.5", "normal:1,2");
}

/* A path in the file starts at the directory of the file, a path in a setting at the current directory. */
TEST(test_paths)
{
        char here[PATH_MAX], wanted[PATH_MAX + 32];

        assert_non_null(getcwd(here, sizeof here));
        assert_loads(COUNTS "[sfi]\ndirectory = ./out/\n[ros]\nsource = file:../x.raw\n");
        assert_string_equal(sample.sfi.directory, "/tmp/out");
        assert_string_equal(sample.ros.source_at, "/tmp/../x.raw");
        assert_string_equal(sample.ros.source, "file:/tmp/../x.raw");
        assert_loads(COUNTS "[sfi]\ndirectory = .\n");
        assert_string_equal(sample.sfi.directory, "/tmp");
        assert_sets("sfi.directory=out");
        snprintf(wanted, sizeof wanted, "%s/out", here);
        assert_string_equal(sample.sfi.directory, wanted);
        assert_loads(COUNTS);
        assert_string_equal(sample.sfi.directory, here);
        assert_sets("sfi.directory=/");
        assert_string_equal(sample.sfi.directory, "/");
}

TEST(test_names_of_event_files)
{
        static const char *const right[] = {"sfi.file-name=atlas", "sfi.file-name={run}_{sequence}",
                                            "sfi.file-name=_{run}+{sfi}.x=1-_{sequence}"};

        for (size_t i = 0; i < ARRAY_SIZE(right); i++)
                assert_sets(right[i]);
        assert_wrong_values("sfi.file-name", "expected atlas, or", "Atlas", "x_{sequence}", "{run}{sequence}",
                            "{run}_{sequence}x", "a/{run}_{sequence}", ".{run}_{sequence}",
                            "-{run}_{sequence}", "{run}._{sequence}", "{node}{run}_{sequence}",
                            "a b{run}_{sequence}", "*{run}_{sequence}", "{run_{sequence}");
}

TEST(test_path_of_a_file_named_relatively)
{
        char here[PATH_MAX], relative[PATH_MAX] = "", wanted[PATH_MAX + 32];

        assert_non_null(getcwd(here, sizeof here));
        for (const char *c = here; (c = strchr(c, '/')) && c[1]; c++)
                strcat(relative, "../");
        sample_write(COUNTS "[sfi]\ndirectory = out\n");
        strcat(relative, sample_path + 1);
        assert_int_equal(scenario_load(&sample, relative, NULL, 0, &sample_errors), 0);
        unlink(sample_path);
        snprintf(wanted, sizeof wanted, "%s/%.*sout", here, (int)(strrchr(relative, '/') + 1 - relative),
                 relative);
        assert_string_equal(sample.sfi.directory, wanted);
}

TEST(test_long_path)
{
        char text[400] = COUNTS "[sfi]\ndirectory = ";

        memset(text + strlen(text), 'd', 252);
        assert_wrong(text, ":6: sfi.directory: ", "is too long; expected at most 255 bytes");
}

TEST(test_groups)
{
        assert_sets("network.control-group=none");
        assert_sets("network.control-group=224.0.0.99");
        assert_sets("network.control-group=ff02::1%lo");
        assert_int_equal(sample_set("network.control-group=10.0.0.1"), -EINVAL);
        assert_one_error("--set network.control-group=10.0.0.1: network.control-group: ",
                         "is not a multicast address; expected");
        assert_int_equal(sample_set("network.control-group=fe80::1"), -EINVAL);
        assert_int_equal(sample_set("network.control-group=239.1"), -EINVAL);
}

TEST(test_contradictory_keys)
{
        assert_wrong_setting("trigger.kind=poisson", "set trigger.rate, or use periodic");
        assert_wrong_setting("trigger.kind=burst", "set trigger.rate, or use periodic");
        assert_wrong_setting("dfm.node-timeout=500ms", "three times test.keep-alive");
        assert_wrong_setting("network.loss=1", "below 1");
        assert_wrong(COUNTS "[scenario]\ntransport = tcp\n[network]\nport = 4999\n"
                            "[level2]\nlisten = tcp:5000\n",
                     ":10: level2.listen: ", "equals the port after network.port");
        assert_loads(COUNTS "[network]\nport = 4999\n[level2]\nlisten = tcp:5000\n");
        assert_wrong("[ros]\ncount = 3\nfragment-size = 2000kB\n[sfi]\ncount = 1\n"
                     "buffer-size = 5MiB\n",
                     ":6: sfi.buffer-size: ",
                     "has no room for one event; expected at least 6144KiB, as each fragment takes a "
                     "power of two");
        assert_loads("[ros]\ncount = 3\nfragment-size = 2000kB\n[sfi]\ncount = 1\n"
                     "buffer-size = 6MiB\n");
        assert_wrong(COUNTS "[trigger]\nkind = poisson\n", ":6: trigger.kind: ", "needs a rate");
        assert_loads(COUNTS "[trigger]\nkind = poisson\nrate = 1kHz\n");
}

TEST(test_trigger)
{
        assert_sets("trigger.source=internal");
        assert_int_equal(sample.trigger.source_kind, TRIGGER_INTERNAL);
        assert_sets("trigger.source=udp:5000");
        assert_fields(&sample.trigger, source_kind, TRIGGER_UDP, port, 5000);
        assert_sets("trigger.source=clock");
        assert_int_equal(sample.trigger.source_kind, TRIGGER_CLOCK);
        assert_wrong_values("trigger.source", "expected internal, udp:PORT, frames or clock", "udp:0",
                            "udp:", "udp:65536", "udp:1:2", "udp:10.0.0.1:5", "frame", "tcp:5", "");
        assert_wrong(COUNTS "[live]\nall = yes\n[sfi]\nslow-disk = drop\n",
                     ":6: live.all: ", "expected no, or sfi.slow-disk = wait");
        assert_wrong_setting("trigger.source=udp:26800", "port 26800 is network.port; expected another port");
        assert_wrong_setting("trigger.source=udp:26801", "is the port after network.port");
        assert_wrong_setting("trigger.source=frames", "no ROS has a board whose frames make the triggers");
        assert_sets("trigger.busy-to=10.0.0.1:5000");
        assert_sets("trigger.busy-to=[fe80::1%lo]:5000");
        assert_sets("trigger.busy-to=239.1.1.1:5000");
        assert_wrong_values("trigger.busy-to", "expected none, or HOST:PORT", "5000", "host:5000", "::1:5000",
                            "[::1]", "0.0.0.0:5000", "10.0.0.1:0", "255.255.255.255:5000",
                            "[::ffff:255.255.255.255]:5000");
}

/* A port is none or tcp:PORT; the stand-in needs what it connects to. */
TEST(test_level2)
{
        assert_wrong_values("level2.listen", "expected none or tcp:PORT", "udp:5", "tcp:0");
        assert_wrong_values("level2.timeout", ":reject to reject events after it", "1s:maybe");
        assert_wrong(COUNTS "[level2]\nregions = udp:5\n",
                     ":6: level2.regions: ", "expected none or tcp:PORT");
        assert_wrong(COUNTS "[level2]\nregions = tcp:5\n", ":6: level2.regions: ", "set level2.listen");
        assert_wrong(COUNTS "[level2]\nstand-in = 0.1:5ms\n", ":6: test.stand-in: ", "set level2.listen");
        assert_wrong(COUNTS "[level2]\nlisten = tcp:4\nstand-in = 0.1:5ms:2\n",
                     ":7: test.stand-in: ", "set level2.regions");
        assert_wrong(COUNTS "[level2]\nlisten = tcp:4\nstand-in = 0.1\n",
                     ":7: test.stand-in: ", "expected none, FRACTION:TIME");
        assert_wrong(COUNTS "[level2]\nlisten = tcp:4\nstand-in = 0.1:5ms:x\n",
                     ":7: test.stand-in: ", "expected none, FRACTION:TIME");
        assert_wrong(COUNTS "[level2]\nlisten = tcp:4\nregions = tcp:5\nstand-in = 0.1:5ms:2:3\n",
                     ":8: test.stand-in: ", "expected none, FRACTION:TIME");
        assert_loads(COUNTS "[level2]\nlisten = tcp:4\nregions = tcp:5\nstand-in = 0.1:5ms:2\n");
        assert_fields(&sample.level2, port, 4, regions_port, 5);
}

TEST(test_stand_in)
{
        struct scenario_stand_in s;

        assert_true(scenario_split_stand_in("0.1:5ms", &s));
        assert_string_equal(s.accept, "0.1");
        assert_string_equal(s.latency, "5ms");
        assert_string_equal(s.regions, "");
        assert_true(scenario_split_stand_in("1:2s:3", &s));
        assert_string_equal(s.regions, "3");
        assert_false(scenario_split_stand_in("none", &s));
        assert_false(scenario_split_stand_in("", &s));
        assert_false(scenario_split_stand_in("1:2:3:4", &s));
        assert_false(scenario_split_stand_in("1:22222222222222222222222222222222", &s));
}

TEST(test_frames_as_triggers)
{
        assert_wrong(COUNTS "[trigger]\nsource = frames\n[ros]\nsource = udp:5000\n",
                     ":6: trigger.source: ", "set ros.event-number");
        assert_loads(COUNTS "[trigger]\nsource = frames:ros2\n[ros]\nsource = udp:5000\n"
                            "event-number = 0:32\n");
        assert_int_equal(sample.trigger.source_kind, TRIGGER_FRAMES);
        assert_true(scenario_leads(&sample, scenario_node_of(&sample, ROLE_ROS, 1)));
        assert_false(scenario_leads(&sample, scenario_node_of(&sample, ROLE_ROS, 0)));
        assert_wrong(COUNTS "[trigger]\nsource = frames:sfi1\n[ros]\nsource = udp:5000\n"
                            "event-number = 0:32\n",
                     ":6: trigger.source: ",
                     "not a ROS with a front-end; expected frames, or frames:ROS with the name");
}

TEST(test_slices_of_time)
{
        assert_wrong(COUNTS "[ros]\nsource = udp:5000\nevent-time = 0:64\n",
                     ":7: ros.event-time: ", "trigger.source = clock");
        assert_wrong(COUNTS "[trigger]\nsource = clock\n[ros]\nevent-time = 0:64\n",
                     ":8: ros.event-time: ", "no ROS has");
        assert_wrong(COUNTS "[trigger]\nsource = clock:10ms+1ms\n",
                     ":6: trigger.source: ", "set ros.event-time");
        assert_wrong(COUNTS "[trigger]\nsource = clock:50us\n",
                     ":6: trigger.source: ", "expected a time from 100us");
        assert_wrong(COUNTS "[trigger]\nsource = clock:10ms+\n",
                     ":6: trigger.source: ", "expected a time from 100us");
        assert_wrong(COUNTS "[trigger]\nsource = clock:10ms+10ms\n[ros]\nsource = udp:5000\nevent-time = "
                            "0:64\n",
                     ":6: trigger.source: ", "less than the slice");
        assert_wrong(COUNTS "[ros]\nevent-time = none follow\n",
                     ":6: ros.event-time: ", "expected none, or OFFSET[.BIT]:BITS[:be]");
        assert_wrong(COUNTS "[ros]\nevent-time = 0:65\n",
                     ":6: ros.event-time: ", "expected none, or OFFSET[.BIT]:BITS[:be]");
        assert_wrong(COUNTS "[trigger]\nsource = clock:100us within 10s\n[ros]\nsource = udp:5000\n"
                            "event-time = 0:64\n",
                     ":6: trigger.source: ", "less than 32768 times the slice");
        assert_wrong(COUNTS "[trigger]\nsource = clock within 2h\n",
                     ":6: trigger.source: ", "invalid time \"2h\" after within");
        assert_wrong(COUNTS "[trigger]\nsource = udp:5000 within 1s\n",
                     ":6: trigger.source: ", "only after frames or clock");
        assert_loads(COUNTS "[trigger]\nsource = clock:10ms+1ms within 200ms\n[ros]\nsource = "
                            "udp:5000\nevent-time = 4:32:be\ntick = 8ns\n");
        assert_true(scenario_has_slices(&sample) &&
                    scenario_number_period(&sample, scenario_node_of(&sample, ROLE_ROS, 0)) ==
                            NUMBER_PERIOD_MAX);
        assert_true(scenario_leads(&sample, scenario_node_of(&sample, ROLE_ROS, 1)));
        assert_int_equal(sample.ros.tick_ns, 8);
        assert_fields(&sample.trigger, slice_ns, 10 * NS_PER_MS, overlap_ns, NS_PER_MS, window_ns,
                      200 * NS_PER_MS);
}
