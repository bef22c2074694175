/* Sources of single ROSs, of which one dies and perhaps returns: only its own fragments are missing. */
#include "boards.h"

/* Every trigger waits for a frame of each board; frame k belongs to trigger k. */
#define BEAM                                                                                                 \
        "trigger.events=0", "trigger.rate=1kHz", "ros.source=" BOARDS_SOURCE, "dfm.start-timeout=60s",       \
                "test.keep-alive=50ms"
#define NODES(last)                                                                                          \
        "[node dfm]\nrole=dfm\n[node sfi1]\nrole=sfi\n[node b0]\nrole=ros\n[node b1]\nrole=ros\n"            \
        "[node b2]\nrole=ros\n[node b3]\nrole=ros\n" last
/* No more events than these are late. */
#define FEW_CREDITS "sfi.credits=300"
/* Of each board. */
#define FRAMES 6000

static struct boards boards;

static size_t make_frame(uint64_t k, uint8_t *to)
{
        memset(to, (int)(k % 251), 112);
        return 112;
}

/* The last board is silent. */
static void begin(void)
{
        boards_begin(&boards, FRAMES, make_frame);
        boards.boards[3].allowed = 0;
        bed_start_all();
}

/* Ends the run once the ROSs have counted all frames of their boards: different counts are an error. */
static void stop(unsigned ross, int status)
{
        for (size_t i = 0; i < ross; i++)
                bed_until(count_of(bed_name(ROLE_ROS, i), front_end_frames) == FRAMES);
        bed_stop("dfm", status);
        bed_check_accounts();
        assert_int_equal(count_of("dfm", events_lost), 0);
}

static uint64_t fragments_of_b3(void)
{
        uint64_t received = count_of("dfm", fragments_received),
                 others = 3 * count_of("dfm", events_complete);

        return received > others ? received - others : 0;
}

/* Events are complete at the rate of the triggers, at first after the board's wait, and then at once. */
TEST_EACH(a_dead_optional_board_costs_its_fragment, pull, 2)
{
        BED(1, BEAM, bed_mode(pull), "sfi.timeout=30s", "dfm.node-timeout=20s", FEW_CREDITS,
            NODES("required=no\nwait=300ms\n"));
        begin();
        bed_until(count_of("dfm", events_complete) > 3000);
        stop(3, 0);
        bed_check_complete();
        assert_each(count_of, "dfm", fragments_optional, count_of("dfm", triggers), fragments_lost, 0);
        assert_true(histogram_quantile(&bed_stats("dfm")->latency_ns, 0.5) < 250 * NS_PER_MS);
}

/* All events are partial, but they keep coming: after dfm.node-timeout nothing waits. */
TEST_EACH(without_a_required_board_events_are_partial, i, 3)
{
        char missing[64];

        BED(1, BEAM, bed_mode(i == 1), "sfi.timeout=12s", "dfm.node-timeout=5s", "scenario.name=beam",
            FEW_CREDITS, NODES(""));
        begin();
        boards.refuses[3] = i == 2;
        bed_until(count_of("dfm", events_partial) > 3000);
        stop(3, 1);
        assert_each(count_of, "dfm", events_partial, count_of("dfm", triggers), fragments_lost,
                    count_of("dfm", triggers), fragments_optional, 0);
        assert_true(bed_logged("sfi1", "is partial: the fragments of b3 are missing; "));
        bed_ends("sfi1", 0);
        snprintf(missing, sizeof missing, "run 1 of beam partial: b3 %llu\n",
                 (unsigned long long)count_of("dfm", events_partial));
        assert_true(bed_logged("sfi1", missing));
        assert_int_equal(bed_reported("sfi1", "missing_fragments.b3"), count_of("dfm", events_partial));
        assert_true(histogram_quantile(&bed_stats("dfm")->latency_ns, 0.5) < 250 * NS_PER_MS);
}

/* Events wait for it again, and have its fragments. It is behind by the triggers so far; its old frames are
 * late. */
TEST_EACH(an_optional_board_returns, pull, 2)
{
        BED(1, BEAM, bed_mode(pull), "sfi.timeout=30s", "dfm.node-timeout=20s",
            NODES("required=no\nwait=100ms\n"));
        begin();
        bed_until(count_of("dfm", fragments_optional) > 500);
        assert_int_equal(fragments_of_b3(), 0);
        boards.boards[3].allowed = FRAMES;
        bed_until(fragments_of_b3() > 300);
        stop(4, 0);
        bed_check_complete();
        assert_true(count_of("dfm", fragments_optional) > 500);
        assert_true(count_of("dfm", fragments_optional) < count_of("dfm", triggers));
        assert_true(bed_logged("dfm", "b3 gets nothing from its front-end"));
        assert_true(bed_logged("dfm", "the front-end of b3 is back"));
}

/* The other ROSs continue; only a required one makes events partial and the run fall short. */
TEST_EACH(a_ros_dies, required, 2)
{
        uint64_t at;

        BED(1, BEAM, "sfi.timeout=30s", "dfm.node-timeout=5s", required ? NODES("") : NODES("required=no\n"));
        begin();
        boards.boards[3].allowed = FRAMES;
        bed_until(count_of("dfm", events_complete) > 200);
        bed_kill("b3");
        at = required ? count_of("dfm", events_partial) : count_of("dfm", events_complete);
        bed_until((required ? count_of("dfm", events_partial) : count_of("dfm", events_complete)) >
                  at + 2000);
        stop(3, required);
        /* Some of the 2000 had all fragments before. */
        assert_true((required ? count_of("dfm", fragments_lost) : count_of("dfm", fragments_optional)) >=
                    1000);
        assert_int_equal(required ? count_of("dfm", fragments_optional) : count_of("dfm", fragments_lost), 0);
}
