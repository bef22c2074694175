/* Histories in which random ones found bugs (docs/sim.md): all events must be complete, and in time. */
#include "sim_sample.h"

/* In each of 20 histories of the scenario, all events are complete, and the run ends before `end_ns`. */
static void expect_complete(const char *const *keys, size_t n, const struct sim_model *model, uint64_t events,
                            uint64_t end_ns)
{
        _cleanup_free_ struct scenario *s = sample_scenario(keys, n);

        for (uint64_t seed = 1; seed <= 20; seed++) {
                struct sim_config c = sample_config(s, seed);
                struct sample_outcome o;

                c.model = *model;
                o = sample_outcome_of(&c);
                assert_int_equal(o.complete, events);
                assert_true(o.result.end_ns < end_ns);
        }
}

static void two_events_of_a_full_buffer(const char *rate, const char *receive_buffer,
                                        const struct sim_model *model)
{
        const char *const keys[] = {
                "scenario.mode=pull",
                "trigger.rate=5kHz",
                "trigger.events=2",
                "ros.count=5",
                "ros.fragment-size=300kB",
                "sfi.count=1",
                "sfi.buffer-size=4MiB",
                "sfi.timeout=10s",
                "network.reorder=0.003",
                "network.switch-buffer=16KiB",
                rate,
                receive_buffer,
        };

        expect_complete(keys, ARRAY_SIZE(keys), model, 2, NS_PER_S);
}

/* With seed 8, the second assignment overtakes the first: one event had the memory and waited for its
 * requests, the other one had been requested and waited for memory, for the whole of sfi.timeout. */
TEST(memory_and_requests_have_one_order)
{
        struct sim_model model = sim_model_usual;

        model.wake_ns = 10 * NS_PER_US;
        model.packet_ns = 0;
        two_events_of_a_full_buffer("network.link-rate=unlimited", "network.socket-buffer=64KiB", &model);
}

/* With seed 2, fragments without memory counted as in flight, and took the share of their ROSs. */
TEST(refused_fragments_are_not_in_flight)
{
        two_events_of_a_full_buffer("network.link-rate=100Mbit", "network.socket-buffer=auto",
                                    &sim_model_usual);
}

/* With seed 19, a fragment without memory was requested again and again, and lost in parts, which took the
 * limit from the older events that had the memory. */
TEST(what_finds_no_memory_is_not_requested_again)
{
        static const char *const keys[] = {
                "scenario.mode=pull",
                "trigger.rate=2kHz",
                "trigger.events=7",
                "trigger.kind=burst",
                "ros.count=3",
                "ros.fragment-size=300kB",
                "sfi.count=1",
                "sfi.buffer-size=4MiB",
                "sfi.credits=16",
                "sfi.timeout=10s",
                "network.link-rate=10Gbit",
                "network.loss=0.02",
                "test.keep-alive=200ms",
                "dfm.node-timeout=2s",
                "network.switch-buffer=256KiB",
                "ros.buffer-size=64MiB",
        };

        expect_complete(keys, ARRAY_SIZE(keys), &sim_model_usual, 7, 20 * NS_PER_S);
}

/* With seed 1, the ROS misses a Clear, and has no room for the oldest events. */
TEST(a_lost_clear_is_made_up_for)
{
        static const char *const keys[] = {
                "scenario.mode=pull",
                "trigger.rate=max",
                "trigger.events=75",
                "ros.count=1",
                "ros.fragment-size=3000",
                "test.buffer-events=16",
                "sfi.count=2",
                "sfi.credits=16",
                "sfi.outstanding=4",
                "sfi.timeout=10s",
                "network.link-rate=10Gbit",
                "network.mtu=9000",
                "network.loss=0.02",
                "network.reorder=0.003",
                "test.keep-alive=200ms",
                "dfm.node-timeout=2s",
                "network.switch-buffer=4MiB",
        };
        struct sim_model model = sim_model_usual;

        model.wake_ns = model.packet_ns = 0;
        expect_complete(keys, ARRAY_SIZE(keys), &model, 75, 5 * NS_PER_S);
}

/* The SFIs have more credits than the ROSs have room for events. With seed 10, one ROS holds the first half
 * of the events and the other one the second, and each SFI waits for the half that is missing. */
TEST(all_open_events_fit_into_each_ros)
{
        static const char *const keys[] = {
                "trigger.rate=max",      "trigger.events=48",
                "ros.count=2",           "ros.fragment-size=1kB",
                "test.buffer-events=16", "sfi.credits=16",
                "sfi.retry-after=1ms",   "sfi.timeout=10s",
                "network.reorder=0.02",  "network.link-rate=unlimited",
                "test.keep-alive=200ms", "dfm.node-timeout=2s",
        };

        expect_complete(keys, ARRAY_SIZE(keys), &sim_model_usual, 48, 5 * NS_PER_S);
}

/* Each fragment is larger than the socket buffer, so all are requested again, and only the answers to that
 * show the latency. Retries 100 ms apart took 20 s, and a third of the events ended at sfi.timeout. */
TEST(retries_alone_show_the_latency)
{
        static const char *const keys[] = {
                "trigger.rate=max",     "trigger.events=20",
                "ros.count=4",          "ros.fragment-size=300kB",
                "ros.buffer-size=4MiB", "sfi.count=1",
                "sfi.buffer-size=4MiB", "sfi.credits=16",
                "sfi.timeout=10s",      "network.link-rate=unlimited",
                "network.mtu=9000",     "network.socket-buffer=64KiB",
                "test.keep-alive=5ms",  "dfm.node-timeout=3s",
        };

        expect_complete(keys, ARRAY_SIZE(keys), &sim_model_usual, 20, 3 * NS_PER_S);
}

/* Of 4,000 chunks, 40 are lost. Each waited 100 ms for its retry in pull, as no latency was known, and the
 * event ended at sfi.timeout. */
TEST(large_fragments_survive_losses)
{
        static const char *const keys[] = {
                "scenario.mode=pull",          "trigger.events=1",  "ros.count=2",
                "ros.fragment-size=4MiB",      "sfi.count=1",       "sfi.timeout=10s",
                "network.link-rate=unlimited", "network.loss=0.01",
        };

        expect_complete(keys, ARRAY_SIZE(keys), &sim_model_usual, 1, NS_PER_S);
}

/* A tenth of 20,000 chunks is lost, and of their requests and retries. Losses left one frame of each ROS in
 * flight, which nothing overtook, and a lost retry was followed by a pause of 10 ms or more: 13 s. */
TEST(large_fragments_survive_many_losses)
{
        static const char *const keys[] = {
                "scenario.mode=pull",    "trigger.events=3",      "trigger.rate=100Hz",
                "ros.count=3",           "ros.fragment-size=3MB", "ros.buffer-size=64MiB",
                "sfi.count=1",           "sfi.buffer-size=64MiB", "sfi.timeout=10s",
                "test.keep-alive=200ms", "dfm.node-timeout=3s",   "network.link-rate=unlimited",
                "network.loss=0.1",
        };

        expect_complete(keys, ARRAY_SIZE(keys), &sim_model_usual, 3, 2 * NS_PER_S);
}

/* Four events come at once, as no size is known yet, and the memory holds one of them and a part of another.
 * The others used up their retries, whose answers found no memory, and their time. */
TEST(the_first_events_wait_for_memory)
{
        static const char *const keys[] = {
                "trigger.rate=max",        "trigger.events=6", "ros.count=6",
                "ros.fragment-size=500kB", "sfi.count=1",      "sfi.buffer-size=5MiB",
                "sfi.retries=3",           "sfi.timeout=10s",  "network.link-rate=1Gbit",
        };

        expect_complete(keys, ARRAY_SIZE(keys), &sim_model_usual, 6, 3 * NS_PER_S);
}

/* The same on processes that wake late, and with a small socket buffer, which loses most of each event. A
 * retry of as much as that buffer holds was followed by a pause of up to 250 ms. */
TEST(the_first_events_survive_late_processes)
{
        static const char *const keys[] = {
                "trigger.rate=max",      "trigger.events=6",
                "ros.count=6",           "ros.fragment-size=1MiB",
                "ros.buffer-size=64MiB", "sfi.count=1",
                "sfi.buffer-size=10MiB", "network.socket-buffer=512KiB",
                "sfi.timeout=2s",        "test.keep-alive=200ms",
                "dfm.node-timeout=3s",   "network.link-rate=unlimited",
        };
        struct sim_model model = sim_model_usual;

        model.wake_ns = 20 * NS_PER_MS;
        expect_complete(keys, ARRAY_SIZE(keys), &model, 6, 8 * NS_PER_S);
}

/* Sixteen credits, and memory for one event, and a part of another. With most seeds, a ROS that was ahead of
 * the others filled the memory with later events, and what gave way came again only as fast as retries: 6 to
 * 23 s for 12 MB. */
TEST(events_wait_until_memory_is_free)
{
        static const char *const keys[] = {
                "scenario.mode=pull",
                "trigger.rate=20kHz",
                "trigger.events=8",
                "ros.count=5",
                "ros.fragment-size=300kB",
                "ros.buffer-size=4MiB",
                "sfi.count=1",
                "sfi.buffer-size=4MiB",
                "sfi.credits=16",
                "sfi.retry-after=20ms",
                "sfi.timeout=10s",
                "network.link-rate=100Mbit",
                "network.switch-buffer=16KiB",
                "network.loss=0.003",
                "network.reorder=0.02",
                "qos.backend=htb+tbf",
        };
        struct sim_model model = sim_model_usual;

        model.wake_ns = model.packet_ns = 0;
        expect_complete(keys, ARRAY_SIZE(keys), &model, 8, 3 * NS_PER_S);
}
