/* Histories in which random ones found bugs (docs/sim.md): all events must be complete, and in time. */
#include "sim_sample.h"

/* In each of 20 histories of the scenario, all events are complete, and the run ends before `end_ns`. */
static void expect_complete(const char *const *keys, size_t n, struct sim_model model, uint64_t end_ns)
{
        _cleanup_free_ struct scenario *s = sample_scenario(keys, n);

        for (uint64_t seed = 1; seed <= 20; seed++) {
                struct sim_config c = sample_config(s, seed);
                struct sample_outcome o;

                c.model = model;
                o = sample_outcome_of(&c);
                assert_int_equal(o.complete, s->trigger.events);
                assert_true(o.result.end_ns < end_ns);
        }
}

#define FOUND(name, end_ns, model, ...)                                                                      \
        TEST(name)                                                                                           \
        {                                                                                                    \
                static const char *const keys[] = {__VA_ARGS__};                                             \
                                                                                                             \
                expect_complete(keys, ARRAY_SIZE(keys), model, end_ns);                                      \
        }

static struct sim_model model_of(uint64_t wake_ns, uint64_t packet_ns)
{
        struct sim_model m = sim_model_usual;

        m.wake_ns = wake_ns;
        m.packet_ns = packet_ns;
        return m;
}

#define TWO_EVENTS_OF_A_FULL_BUFFER                                                                          \
        "scenario.mode=pull", "trigger.rate=5kHz", "trigger.events=2", "ros.count=5",                        \
                "ros.fragment-size=300kB", "sfi.count=1", "sfi.buffer-size=4MiB", "sfi.timeout=10s",         \
                "network.reorder=0.003", "network.switch-buffer=16KiB"

/* With seed 8, the second assignment overtakes the first: one event had the memory and waited for its
 * requests, the other one had been requested and waited for memory, for the whole of sfi.timeout. */
FOUND(memory_and_requests_have_one_order, NS_PER_S, model_of(10 * NS_PER_US, 0), TWO_EVENTS_OF_A_FULL_BUFFER,
      "network.link-rate=unlimited", "network.socket-buffer=64KiB")

/* With seed 2, fragments without memory counted as in flight, and took the share of their ROSs. */
FOUND(refused_fragments_are_not_in_flight, NS_PER_S, sim_model_usual, TWO_EVENTS_OF_A_FULL_BUFFER,
      "network.link-rate=100Mbit", "network.socket-buffer=auto")

/* With seed 19, a fragment without memory was requested again and again, and lost in parts, which took the
 * limit from the older events that had the memory. */
FOUND(what_finds_no_memory_is_not_requested_again, 20 * NS_PER_S, sim_model_usual, "scenario.mode=pull",
      "trigger.rate=2kHz", "trigger.events=7", "trigger.kind=burst", "ros.count=3", "ros.fragment-size=300kB",
      "sfi.count=1", "sfi.buffer-size=4MiB", "sfi.credits=16", "sfi.timeout=10s", "network.link-rate=10Gbit",
      "network.loss=0.02", "test.keep-alive=200ms", "dfm.node-timeout=2s", "network.switch-buffer=256KiB",
      "ros.buffer-size=64MiB")

/* With seed 1, the ROS misses a Clear, and has no room for the oldest events. */
FOUND(a_lost_clear_is_made_up_for, 5 * NS_PER_S, model_of(0, 0), "scenario.mode=pull", "trigger.rate=max",
      "trigger.events=75", "ros.count=1", "ros.fragment-size=3000", "test.buffer-events=16", "sfi.count=2",
      "sfi.credits=16", "sfi.outstanding=4", "sfi.timeout=10s", "network.link-rate=10Gbit",
      "network.mtu=9000", "network.loss=0.02", "network.reorder=0.003", "test.keep-alive=200ms",
      "dfm.node-timeout=2s", "network.switch-buffer=4MiB")

/* The SFIs have more credits than the ROSs have room for events. With seed 10, one ROS holds the first half
 * of the events and the other one the second, and each SFI waits for the half that is missing. */
FOUND(all_open_events_fit_into_each_ros, 5 * NS_PER_S, sim_model_usual, "trigger.rate=max",
      "trigger.events=48", "ros.count=2", "ros.fragment-size=1kB", "test.buffer-events=16", "sfi.credits=16",
      "sfi.timeout=10s", "network.reorder=0.02", "network.link-rate=unlimited", "test.keep-alive=200ms",
      "dfm.node-timeout=2s")

/* Each fragment is larger than the socket buffer, so all are requested again, and only the answers to that
 * show the latency. Retries 100 ms apart took 20 s, and a third of the events ended at sfi.timeout. */
FOUND(retries_alone_show_the_latency, 3 * NS_PER_S, sim_model_usual, "trigger.rate=max", "trigger.events=20",
      "ros.count=4", "ros.fragment-size=300kB", "ros.buffer-size=4MiB", "sfi.count=1", "sfi.buffer-size=4MiB",
      "sfi.credits=16", "sfi.timeout=10s", "network.link-rate=unlimited", "network.mtu=9000",
      "network.socket-buffer=64KiB", "test.keep-alive=5ms", "dfm.node-timeout=3s")

/* Of 4,000 chunks, 40 are lost. Each waited 100 ms for its retry in pull, as no latency was known, and the
 * event ended at sfi.timeout. */
FOUND(large_fragments_survive_losses, NS_PER_S, sim_model_usual, "scenario.mode=pull", "trigger.events=1",
      "ros.count=2", "ros.fragment-size=4MiB", "sfi.count=1", "sfi.timeout=10s",
      "network.link-rate=unlimited", "network.loss=0.01")

/* A tenth of 20,000 chunks is lost, and of their requests and retries. Losses left one frame of each ROS in
 * flight, which nothing overtook, and a lost retry was followed by a pause of 10 ms or more: 13 s. */
FOUND(large_fragments_survive_many_losses, 2 * NS_PER_S, sim_model_usual, "scenario.mode=pull",
      "trigger.events=3", "trigger.rate=100Hz", "ros.count=3", "ros.fragment-size=3MB",
      "ros.buffer-size=64MiB", "sfi.count=1", "sfi.buffer-size=64MiB", "sfi.timeout=10s",
      "test.keep-alive=200ms", "dfm.node-timeout=3s", "network.link-rate=unlimited", "network.loss=0.1")

/* Four events come at once, as no size is known yet, and the memory holds one of them and a part of another.
 * The others used up their retries, whose answers found no memory, and their time. */
FOUND(the_first_events_wait_for_memory, 3 * NS_PER_S, sim_model_usual, "trigger.rate=max", "trigger.events=6",
      "ros.count=6", "ros.fragment-size=500kB", "sfi.count=1", "sfi.buffer-size=5MiB", "sfi.retries=3",
      "sfi.timeout=10s", "network.link-rate=1Gbit")

/* The same on processes that wake late, and with a small socket buffer, which loses most of each event. A
 * retry of as much as that buffer holds was followed by a pause of up to 250 ms. */
FOUND(the_first_events_survive_late_processes, 8 * NS_PER_S,
      model_of(20 * NS_PER_MS, sim_model_usual.packet_ns), "trigger.rate=max", "trigger.events=6",
      "ros.count=6", "ros.fragment-size=1MiB", "ros.buffer-size=64MiB", "sfi.count=1",
      "sfi.buffer-size=10MiB", "network.socket-buffer=512KiB", "sfi.timeout=2s", "test.keep-alive=200ms",
      "dfm.node-timeout=3s", "network.link-rate=unlimited")

/* Sixteen credits, and memory for one event, and a part of another. With most seeds, a ROS that was ahead of
 * the others filled the memory with later events, and what gave way came again only as fast as retries: 6 to
 * 23 s for 12 MB. */
FOUND(events_wait_until_memory_is_free, 3 * NS_PER_S, model_of(0, 0), "scenario.mode=pull",
      "trigger.rate=20kHz", "trigger.events=8", "ros.count=5", "ros.fragment-size=300kB",
      "ros.buffer-size=4MiB", "sfi.count=1", "sfi.buffer-size=4MiB", "sfi.credits=16", "sfi.timeout=10s",
      "network.link-rate=100Mbit", "network.switch-buffer=16KiB", "network.loss=0.003",
      "network.reorder=0.02", "qos.backend=htb+tbf")
