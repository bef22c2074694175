/* Whole histories: what the seed decides, what faults cost, and what the network drops. */
#include "sim_sample.h"

DEFINE_FREEP(sim)

static const char *const modes[] = {"scenario.mode=push", "scenario.mode=pull", "qos.backend=auto"};

TEST_EACH(one_seed_is_one_history, i, ARRAY_SIZE(modes))
{
        _cleanup_free_ struct scenario *s = sample_scenario(&modes[i], 1);
        struct sim_config c = sample_config(s, 3);
        struct sample_outcome first = sample_outcome_of(&c), again = sample_outcome_of(&c);

        assert_fields(&first, triggers, 100, complete, 100);
        assert_true(first.result.digest == again.result.digest);
        assert_fields(&first.result, messages, again.result.messages, end_ns, again.result.end_ns);
        c.seed = 4;
        assert_true(sample_outcome_of(&c).result.digest != first.result.digest);
}

/* Nothing but the processes' own times may decide. */
TEST(the_trace_changes_nothing)
{
        _cleanup_free_ struct scenario *s = sample_scenario(NULL, 0);
        struct sim_config c = sample_config(s, 3);
        uint64_t digest = sample_outcome_of(&c).result.digest;
        _cleanup_free_ char *text = NULL;
        size_t n = 0;

        c.trace = open_memstream(&text, &n);
        assert_true(sample_outcome_of(&c).result.digest == digest);
        fclose(c.trace);
        assert_non_null(strstr(text, "dfm: Join from ros1, 162 bytes\n"));
        assert_non_null(strstr(text, "builds event 99: complete\n"));
}

/* 12 kB of each of 3 ROSs: 36 kB and more do not fit into 16 KiB. */
TEST(an_overload_drops_at_the_port_and_retries_help)
{
        static const char *const keys[] = {"network.switch-buffer=16KiB", "ros.fragment-size=12kB",
                                           "sfi.timeout=5s"};
        _cleanup_free_ struct scenario *s = sample_scenario(keys, ARRAY_SIZE(keys));
        struct sim_config c = sample_config(s, 1);
        struct sample_outcome o = sample_outcome_of(&c);

        assert_true(o.result.port_drops > 0);
        assert_int_equal(o.result.link_drops, 0);
        assert_int_equal(o.complete, 100);
}

/* The DFM gives up all events of an SFI that slept for longer than the DFM waits for an event. Nobody answers
 * requests for them, so the SFI must not wait for each of them. A DFM that restarts meanwhile learns of
 * events that the previous one gave up, and must not lend their credits again. */
TEST(an_sfi_drops_what_the_dfm_gave_up)
{
        static const char *const keys[] = {
                "scenario.mode=pull",     "trigger.rate=20kHz",
                "trigger.events=300",     "ros.count=4",
                "ros.fragment-size=3000", "sfi.count=1",
                "sfi.credits=64",         "sfi.timeout=30ms",
                "dfm.node-timeout=1s",    "network.switch-buffer=16KiB",
        };
        static const uint64_t restarts_ms[] = {0, 100, 400, 460};
        _cleanup_free_ struct scenario *s = sample_scenario(keys, ARRAY_SIZE(keys));

        for (size_t i = 0; i < ARRAY_SIZE(restarts_ms); i++) {
                struct sim_fault faults[] = {
                        {SIM_PAUSE, sample_node(s, "sfi1"), 3 * NS_PER_MS, 450 * NS_PER_MS},
                        {SIM_RESTART, sample_node(s, "dfm"), restarts_ms[i] * NS_PER_MS, 0},
                };
                struct sim_config c = sample_config(s, 1);
                struct sample_outcome o;

                c.faults = faults;
                c.n_faults = restarts_ms[i] > 0 ? 2 : 1;
                o = sample_outcome_of(&c);
                assert_true(o.triggers >= 300 && o.lost <= 66 && o.partial <= 2);
                assert_true(o.result.end_ns < 650 * NS_PER_MS);
        }
}

/* A process that needs 1 ms for each packet cannot keep up, so its socket overflows. */
TEST(a_slow_process_drops_at_its_socket)
{
        static const char *const keys[] = {"network.socket-buffer=8KiB", "sfi.count=1",
                                           "ros.fragment-size=8kB"};
        _cleanup_free_ struct scenario *s = sample_scenario(keys, ARRAY_SIZE(keys));
        struct sim_config c = sample_config(s, 1);
        _cleanup_(sim_freep) struct sim *sim;

        c.model.packet_ns = NS_PER_MS;
        sim = sample_run(&c);
        assert_null(sim_result(sim).violation);
        assert_true(stats_get(&sample_stats(sim, s, "sfi1")->packets_socket_dropped) > 0);
        assert_int_equal(sim_result(sim).port_drops, 0);
        assert_false(sim_node_end(sim, sample_node(s, "sfi1")).is_dead);
}

/* Boards whose frames carry the numbers of triggers, or are counted; their triggers come from the DFM, from a
 * box, or from the frames. */
static const char *const front_ends[][3] = {
        {"ros.event-number=4:16:be", "ros.number-from=65500", "trigger.source=internal"},
        {"ros.event-number=0:32", "ros.source=tcp:127.0.0.1:4000", "trigger.source=internal"},
        {"ros.event-number=0:32", "ros.source=udp:4000", "trigger.source=clock"},
        {"ros.event-number=0:32", "trigger.kind=poisson", "trigger.source=udp:4001"},
        {"ros.event-number=0:32", "ros.fragment-size=uniform:0-4kB", "trigger.source=frames"},
        {"ros.event-number=count", "trigger.kind=burst", "trigger.source=internal"},
        {"ros.event-number=count", "ros.source=tcp:127.0.0.1:4000", "trigger.source=udp:4001"},
};

TEST_EACH(frames_of_boards_become_events, i, 2 * ARRAY_SIZE(front_ends))
{
        const char *const *keys = front_ends[i / 2],
                          *settings[] = {"ros.source=udp:4000", keys[0], keys[1], keys[2],
                                         i % 2 ? "scenario.mode=pull" : "scenario.mode=push"};
        _cleanup_free_ struct scenario *s = sample_scenario(settings, ARRAY_SIZE(settings));
        struct sim_fault faults[] = {{SIM_CRASH, sample_node(s, "ros2"), 20 * NS_PER_MS, 0},
                                     {SIM_RESTART, sample_node(s, "dfm"), 30 * NS_PER_MS, 0}};
        struct sim_config c = sample_config(s, 1);
        struct error e = {};

        assert_int_equal(sim_check(s, &e), 0);
        for (size_t n = 0; n <= ARRAY_SIZE(faults); n += 2) {
                _cleanup_(sim_freep) struct sim *sim = NULL;
                const struct node_stats *dfm, *ros;

                c.faults = faults;
                c.n_faults = n;
                sim = sample_run(&c);
                dfm = sample_stats(sim, s, "dfm");
                ros = sample_stats(sim, s, "ros1");
                assert_null(sim_result(sim).violation);
                assert_int_equal(stats_get(&dfm->triggers), 100);
                assert_true(stats_get(&ros->front_end_frames) >= 100);
                if (n > 0)
                        assert_true(stats_get(&dfm->events_complete) < 90);
                else
                        assert_fields(dfm, events_complete, 100, events_partial, 0);
                if (n == 0)
                        assert_fields(ros, front_end_late, 0, front_end_dropped, 0, front_end_impossible, 0);
        }
}

/* Such requests count as held by the core, but occupy no buffer. */
TEST(frames_that_have_not_arrived_do_not_fill_the_buffer)
{
        static const char *const keys[] = {"ros.source=tcp:127.0.0.1:4000", "ros.event-number=0:32",
                                           "trigger.source=udp:4003", "trigger.rate=20kHz",
                                           "test.buffer-events=16"};
        _cleanup_free_ struct scenario *s = sample_scenario(keys, ARRAY_SIZE(keys));
        struct sim_config c = sample_config(s, 1);
        struct sample_outcome o = sample_outcome_of(&c);

        assert_int_equal(o.complete, 100);
}

static const char *const uncovered_keys[] = {"scenario.transport=tcp", "test.pacing=1Mbit",
                                             "trigger.events=0"};

TEST_EACH(what_the_model_does_not_cover_is_refused, i, ARRAY_SIZE(uncovered_keys))
{
        _cleanup_free_ struct scenario *s = sample_scenario(&uncovered_keys[i], 1);
        struct error e = {};

        assert_int_equal(sim_check(s, &e), -EINVAL);
        assert_int_equal(strncmp(e.message, uncovered_keys[i], i < 2 ? strcspn(uncovered_keys[i], "=") : 0),
                         0);
}

/* A ROS sends 40 kB to each SFI at the rate of its class: 1 Gbit/s / 3 sources. Its burst lasts less than a
 * timer of 1 ms is late on average. */
TEST(late_timers_cost_a_part_of_the_rate)
{
        static const char *const settings[] = {"qos.backend=auto", "ros.fragment-size=40kB",
                                               "network.switch-buffer=32KiB", "trigger.rate=max",
                                               "sfi.timeout=1s"};
        _cleanup_free_ struct scenario *s = sample_scenario(settings, ARRAY_SIZE(settings));
        struct sim_config c = sample_config(s, 1);
        struct sample_outcome exact = sample_outcome_of(&c), late;

        c.model.timer_ns = NS_PER_MS;
        late = sample_outcome_of(&c);
        assert_int_equal(exact.complete, 100);
        assert_int_equal(late.complete, 100);
        assert_true(late.result.end_ns > exact.result.end_ns + 50 * NS_PER_MS);
        assert_int_equal(late.result.port_drops, 0);
}

/* The plan of a card would have the backend htb. */
TEST(a_card_that_shapes_is_simulated_as_the_kernel)
{
        static const char *const settings[] = {"qos.backend=auto", "qos.offload=required"};
        _cleanup_free_ struct scenario *s = sample_scenario(settings, ARRAY_SIZE(settings));
        struct sim_config c = sample_config(s, 1);

        assert_int_equal(sample_outcome_of(&c).complete, 100);
}

/* Five nodes that work 100 us for each packet are faster on two processors than on one. */
TEST(nodes_can_share_processors)
{
        static const char *const settings[] = {"trigger.rate=max", "sfi.timeout=1s", "dfm.node-timeout=500ms",
                                               "trigger.events=1000"};
        _cleanup_free_ struct scenario *s = sample_scenario(settings, ARRAY_SIZE(settings));
        struct sim_config c = sample_config(s, 1);
        uint64_t ends_ns[4];

        c.model.packet_ns = c.model.send_ns = 100 * NS_PER_US;
        for (uint32_t i = 0; i < 4; i++) {
                c.model.processors = (uint32_t[]){0, 8, 2, 1}[i];
                ends_ns[i] = sample_outcome_of(&c).result.end_ns;
        }
        /* With more processors than nodes, nobody waits. */
        assert_true(ends_ns[0] == ends_ns[1]);
        assert_true(ends_ns[3] > ends_ns[2] + ends_ns[2] / 3);
}

/* Two SFIs behind one uplink get their data at its rate, and what its buffer does not hold is dropped. */
TEST(sfis_share_uplinks)
{
        static const char *const settings[] = {"scenario.mode=pull", "trigger.rate=max",
                                               "trigger.events=300", "ros.fragment-size=16KiB",
                                               "sfi.timeout=1s",     "network.switch-buffer=16MiB"};
        _cleanup_free_ struct scenario *s = sample_scenario(settings, ARRAY_SIZE(settings));
        struct sim_config c = sample_config(s, 1);
        uint64_t ends_ns[3];

        for (uint32_t i = 0; i < ARRAY_SIZE(ends_ns); i++) {
                struct sample_outcome o;

                c.model.uplinks = i;
                o = sample_outcome_of(&c);
                assert_int_equal(o.complete, 300);
                assert_int_equal(o.result.port_drops, 0);
                ends_ns[i] = o.result.end_ns;
        }
        assert_true(ends_ns[1] > ends_ns[0] + 20 * NS_PER_MS);
        assert_true(ends_ns[2] < ends_ns[0] + 5 * NS_PER_MS);
        c.model.uplinks = 1;
        s->network.switch_buffer_bytes = 64 << 10;
        assert_true(sample_outcome_of(&c).result.port_drops > 0);
}

/* What a history with chaos prints makes the same one without it. */
TEST(the_faults_of_chaos_make_the_same_history)
{
        _cleanup_free_ struct scenario *s = sample_scenario(NULL, 0);
        struct sim_config c = sample_config(s, 0);
        size_t n_faults = 0;

        for (uint64_t seed = 1; seed <= 5; seed++) {
                struct scenario quiet = *s;
                const struct sim_fault *faults;
                struct fault_config network;
                struct sample_outcome again;
                struct sim_result r;
                _cleanup_(sim_freep) struct sim *sim;

                c = sample_config(s, seed);
                c.chaos = true;
                sim = sample_run(&c);
                r = sim_result(sim);
                c = sample_config(&quiet, seed);
                c.n_faults = sim_faults(sim, &faults, &network);
                c.faults = faults;
                quiet.network.loss = network.loss;
                quiet.network.reorder = network.reorder;
                quiet.network.duplicate = network.duplicate;
                again = sample_outcome_of(&c);
                assert_fields(&again.result, messages, r.messages, end_ns, r.end_ns);
                n_faults += c.n_faults;
        }
        assert_true(n_faults > 5);
}
