/* Level 2: farms decide which events are built. None of them can stop a run. */
#include "boards.h"
#include "base/random.h"
#include "net/tcp.h"

#define PORT 26803
/* No time-out decides unless a test sets a shorter one. */
#define SCENARIO                                                                                             \
        "trigger.events=4000", "trigger.rate=4kHz", "ros.count=3", "ros.fragment-size=512", "sfi.count=2",   \
                "sfi.timeout=30s", "dfm.node-timeout=30s", "level2.listen=tcp:26803", "level2.timeout=10min"
#define CONNECT "--connect", bed_address_text("dfm", PORT)

/* Whether evb level2 accepts the event. */
static bool accepts(uint64_t seed, uint64_t event, double share)
{
        return (double)(random_mix(random_mix(seed) ^ event) >> 11) * 0x1p-53 < share;
}

/* Every trigger was decided once. */
static void check_sums(void)
{
        bed_check_accounts();
        assert_true(count_of("dfm", triggers) > 0);
        assert_int_equal(count_of("dfm", triggers), count_of("dfm", level2_accepted) +
                                                            count_of("dfm", level2_rejected) +
                                                            count_of("dfm", level2_timed_out));
        assert_int_equal(count_of("dfm", triggers),
                         count_of("dfm", events_complete) + count_of("dfm", events_rejected));
}

/* The farm and the DFM count the same. */
static void check_farm(const char *farm)
{
        bed_ends(farm, 0);
        assert_int_equal(bed_reported(farm, "accepted") + bed_reported(farm, "rejected") -
                                 bed_reported(farm, "unused"),
                         count_of("dfm", level2_accepted) + count_of("dfm", level2_rejected));
}

/* SFIs write what the farm accepts, and nothing else. */
static void check_written(uint64_t n, uint64_t seed, double share)
{
        for (uint64_t e = 0; e < n; e++)
                assert_int_equal(bed_written(e), accepts(seed, e, share));
}

TEST_EACH(decisions_are_followed, i, 4)
{
        static const char *const transports[] = {"scenario.transport=udp", "scenario.transport=tcp"};

        BED(1, SCENARIO, bed_mode(i % 2), transports[i / 2]);
        FARM("farm", CONNECT, "--fraction", "0.1", "--latency", "5ms");
        bed_start_all();
        bed_all_end(0);
        check_sums();
        check_farm("farm");
        check_written(4000, 1, 0.1);
        assert_each(bed_reported, "farm", "events", 4000, "unused", 0);
        assert_each(count_of, "dfm", triggers, 4000, fragments_expected,
                    3 * count_of("dfm", events_complete));
        assert_int_equal(count_sum(ROLE_SFI, fragments_corrupt), 0);
        assert_true(histogram_quantile(&bed_stats("dfm")->level2_latency_ns, 0.5) >= 5 * NS_PER_MS);
}

TEST_EACH(a_farm_accepts_all_or_nothing, all, 2)
{
        BED(1, SCENARIO, "trigger.events=500");
        FARM("farm", CONNECT, "--fraction", all ? "1" : "0", "--latency", "0");
        bed_start_all();
        bed_all_end(0);
        check_sums();
        check_farm("farm");
        assert_int_equal(all ? count_of("dfm", events_complete) : count_of("dfm", events_rejected), 500);
}

TEST_EACH(without_a_farm_the_time_out_decides, accept, 2)
{
        RUN(1, SCENARIO, "trigger.events=300",
            accept ? "level2.timeout=100ms" : "level2.timeout=100ms:reject");
        bed_all_end(0);
        check_sums();
        assert_true(bed_logged("dfm", accept ? "level 2 leaves events undecided (0 clients are "
                                               "connected); they are accepted"
                                             : "level 2 leaves events undecided (0 clients are "
                                               "connected); they are rejected"));
        assert_int_equal(count_of("dfm", level2_timed_out), 300);
        assert_int_equal(accept ? count_of("dfm", events_complete) : count_of("dfm", events_rejected), 300);
        assert_int_equal(bed_stats("dfm")->level2_latency_ns.count, 0);
}

/* No event is left undecided. */
TEST(another_farm_takes_the_place_of_a_dead_one)
{
        uint64_t before;

        BED(1, SCENARIO);
        FARM("first", CONNECT, "--latency", "100ms");
        bed_start_all();
        bed_until(count_of("dfm", level2_rejected) > 300);
        bed_kill("first");
        before = count_of("dfm", triggers);
        bed_until(count_of("dfm", triggers) > before + 100);
        FARM("second", CONNECT);
        bed_all_end(0);
        check_sums();
        bed_ends("second", 0);
        assert_each(count_of, "dfm", triggers, 4000, level2_timed_out, 0, events_complete,
                    count_of("dfm", level2_accepted));
        assert_true(bed_reported("second", "events") > 100 && bed_reported("second", "unused") == 0);
}

/* Until the window is full: then triggers wait, and lose nothing. */
TEST(triggers_wait_for_a_frozen_farm)
{
        BED(1, SCENARIO, "test.buffer-events=400");
        FARM("farm", CONNECT);
        bed_start_all();
        bed_until(count_of("dfm", level2_rejected) > 100);
        bed_freeze("farm", true);
        bed_until(count_of("dfm", busy_ns) > 100 * NS_PER_MS);
        bed_pass(5 * NS_PER_S);
        bed_freeze("farm", false);
        bed_all_end(0);
        check_sums();
        check_farm("farm");
        assert_each(count_of, "dfm", level2_timed_out, 0, triggers, 4000);
}

TEST(the_first_of_two_decisions_counts)
{
        BED(1, SCENARIO);
        FARM("one", CONNECT, "--fraction", "0.5", "--seed", "1");
        FARM("two", CONNECT, "--fraction", "0.5", "--seed", "2");
        bed_start_all();
        bed_all_end(0);
        check_sums();
        bed_ends("one", 0);
        bed_ends("two", 0);
        assert_true(bed_reported("one", "unused") + bed_reported("two", "unused") > 0);
        assert_true(count_of("dfm", level2_repeated) + count_of("dfm", level2_late) >=
                    bed_reported("one", "unused") + bed_reported("two", "unused"));
        assert_int_equal(count_of("dfm", level2_unknown), 0);
}

TEST(a_farm_of_another_run_is_refused)
{
        BED(1, SCENARIO, "run.number=5", "trigger.events=200");
        FARM("wrong", CONNECT, "--run", "99");
        bed_start_all();
        bed_ends("wrong", 1);
        assert_true(bed_logged("wrong", "the DFM refused this client: it makes run 5"));
        FARM("right", CONNECT, "--run", "5");
        bed_all_end(0);
        check_sums();
        check_farm("right");
}

/* It joins, and never reads: its events time out, and other clients are not delayed. */
TEST(an_unresponsive_client_delays_no_other)
{
        struct sockaddr_in a;
        struct net_address to = {};
        struct message join = {.header = {.sender_role = ROLE_LEVEL2, .type = MESSAGE_JOIN}};
        uint8_t bytes[MESSAGE_LEVEL2_BYTES_MAX];
        struct iovec v = {bytes, 0};
        int fd;

        /* All events of 100 ms fit into the window of undecided events. */
        RUN(1, SCENARIO, "trigger.events=0", "trigger.rate=100kHz", "level2.timeout=100ms:reject",
            "test.buffer-events=65536");
        bed_pass(NS_PER_MS);
        a = bed_address("dfm", PORT);
        to.v4 = a;
        to.size_bytes = sizeof to.v4;
        fd = tcp_connect(NULL, &to, 0);
        assert_true(fd >= 0);
        join.join.incarnation = 7;
        v.iov_len = message_encode(&join, bytes, sizeof bytes);
        assert_int_equal(tcp_send(fd, &v, 1), v.iov_len);
        bed_until(count_of("dfm", level2_timed_out) > 50000);
        FARM("farm", CONNECT, "--fraction", "0", "--latency", "0");
        bed_until(count_of("dfm", level2_rejected) > 100);
        bed_stop_run(0);
        check_sums();
        bed_ends("farm", 0);
        assert_true(bed_reported("farm", "rejected") > bed_reported("farm", "unused"));
        close(fd);
}

static size_t make_frame(uint64_t k, uint8_t *to)
{
        memset(to, (int)(k % 256), 300);
        return 300;
}

/* Frames of undecided events wait in the ROSs; their buffers are small, and nothing is stuck or lost. */
TEST_EACH(frames_wait_for_decisions, pull, 2)
{
        struct boards boards;

        BED(1, SCENARIO, "ros.source=" BOARDS_SOURCE, "test.buffer-events=256", "trigger.rate=max",
            bed_mode(pull));
        boards_begin(&boards, 4000, make_frame);
        FARM("farm", CONNECT, "--fraction", "0.3", "--latency", "20ms");
        bed_start_all();
        bed_all_end(0);
        check_sums();
        check_farm("farm");
        check_written(4000, 1, 0.3);
        assert_int_equal(count_of("dfm", fragments_lost) + count_of("dfm", level2_timed_out), 0);
        /* Frames of rejected events were triggered, too. A ROS is informed of them only by Clear, of up to
         * 100 at a time. If a board is slower than the trigger, an event may be rejected before its frame
         * comes. */
        assert_int_equal(count_sum(ROLE_ROS, front_end_used) + count_sum(ROLE_ROS, front_end_late) +
                                 count_sum(ROLE_ROS, front_end_left_over),
                         3 * 4000);
        for (size_t i = 0; bed_name(ROLE_ROS, i); i++)
                assert_true(count_of(bed_name(ROLE_ROS, i), front_end_left_over) <=
                            100 * count_of(bed_name(ROLE_ROS, i), clear_gaps));
}

/* It decides what is open by its time-out, and ends. */
TEST(a_run_stops_without_a_farm)
{
        RUN(1, SCENARIO, "trigger.events=0", "level2.timeout=500ms:reject");
        bed_until(count_of("dfm", triggers) > 100);
        bed_stop_run(0);
        check_sums();
        assert_int_equal(count_of("dfm", level2_timed_out), count_of("dfm", events_rejected));
}

/* The farm returns, and decides again what no SFI knows. */
TEST_EACH(the_dfm_restarts, seed, 10)
{
        BED(seed, SCENARIO, "trigger.events=2000", bed_mode(seed % 2));
        FARM("farm", CONNECT, "--fraction", "0.5", "--seed", "3");
        bed_start_all();
        bed_until(count_of("dfm", events_complete) >= 200 + 37 * seed);
        bed_kill("dfm");
        bed_pass(seed % 3 * 50 * NS_PER_MS);
        bed_start("dfm");
        bed_all_end(0);
        bed_ends("farm", 0);
        assert_true(bed_logged("dfm", "resumed run 1 of an earlier DFM"));
        assert_int_equal(bed_reported("farm", "connections"), 2);
        assert_int_equal(count_of("dfm", triggers), 2000);
        assert_int_equal(count_of("dfm", events_complete) + count_of("dfm", events_rejected), 2000);
        assert_int_equal(count_of("dfm", level2_timed_out) + count_of("dfm", events_ended_again), 0);
        check_written(2000, 3, 0.5);
}
