/* A board with a clock of its own, next to one that counts triggers, and a trigger box that sends to a group:
 * frames are in the event of their trigger, or in none. The test plays the boards and the box. */
#include <signal.h>

#include "operator.h"
#include "base/arena.h"
#include "base/random.h"
#include "protocol/trigger_packet.h"

#define GROUP 0xef45564du /* 239.69.86.77 */
#define SCENARIO                                                                                             \
        "ros.count=2", "sfi.count=1", "sfi.timeout=4s", "dfm.node-timeout=4s", "ros.frame=datagram",         \
                "trigger.source=udp:239.69.86.77:47200", "trigger.busy-to=127.0.1.1:47201",                  \
                "trigger.events=0", "run.number=4711", "ros.source=udp:27000", "ros.tick=4ns"
/* The second board has a clock. */
#define CLOCK_NODES(time, more)                                                                              \
        "[node dfm]\nrole=dfm\n[node ros1]\nrole=ros\nevent-number=0:32\n[node ros2]\nrole=ros\n"            \
        "event-time=" time " within 1us\n" more "[node sfi1]\nrole=sfi\n"
#define NODES(more) CLOCK_NODES("0:48", more)
#define DRIFT 80e-6

static struct {
        int fd;
        bool busy;
        bool skips;         /* every second number */
        bool marks;         /* resets are announced by markers, not by flags of triggers */
        uint64_t period_ns; /* of the triggers; 0: random */
        struct random random;
        uint64_t number, next_ns, end;
        uint32_t sequence;
        unsigned frames_missing, triggers_missing, noise; /* in percent of the triggers */
        uint64_t missing;                                 /* number of these frames of the second board */
        uint64_t noise_frames, clock_frames;
        int64_t ahead_ns;
        /* Triggers whose datagrams are on their way, for `delay_ns`. */
        struct {
                uint64_t number, time_ns;
        } late[64];
        uint64_t late_first, late_end, delay_ns;
        /* What was built. */
        uint64_t events, fragments, mixed;
} beam;

static void look(void *ctx, const struct sfi_built *built, const uint8_t *buffer)
{
        beam.events++;
        for (int i = 0; i < 2; i++) {
                const struct sfi_fragment *f = &built->fragments[i];
                uint64_t serial;

                if (!f->whole || f->bytes == 0 || f->at == ARENA_NONE)
                        continue;
                memcpy(&serial, buffer + f->at + 8, sizeof serial);
                beam.fragments++;
                beam.mixed += serial != built->info.global_id;
        }
}

static bool is_percent(unsigned percent)
{
        return random_below(&beam.random, 100) < percent;
}

static void send_frame(const char *ros, uint64_t field, uint64_t serial)
{
        const uint64_t frame[2] = {field, serial};

        bed_send_datagram(ros, 27000, frame, sizeof frame);
}

static uint64_t clock_at(uint64_t now_ns)
{
        uint64_t ahead_ns = (uint64_t)(beam.ahead_ns + (int64_t)(DRIFT * (double)now_ns));

        return ((now_ns + ahead_ns) / 4) & ((UINT64_C(1) << 48) - 1);
}

static void send_trigger(uint64_t number, uint64_t now_ns, uint32_t flags)
{
        const struct sockaddr_in from = {AF_INET, htons(40000), {htonl(0x7f000101)}, {}},
                                 to = {AF_INET, htons(47200), {htonl(GROUP)}, {}};
        struct {
                char magic[4];
                uint16_t version, n;
                uint32_t sequence, run;
                uint64_t number, time_ns;
                uint32_t type, flags;
        } d = {"EVBT", 1, 1, beam.sequence++, 0, number, UINT64_C(1700000000) * NS_PER_S + now_ns, 0, flags};

        sockets_inject(&from, &to, (const uint8_t *)&d, sizeof d);
}

static void send_all(uint64_t now_ns)
{
        bool has_frame = !is_percent(beam.frames_missing), has_trigger = !is_percent(beam.triggers_missing);

        if (is_percent(beam.noise)) {
                send_frame("ros2", clock_at(now_ns - 50 * NS_PER_US), UINT64_MAX);
                beam.noise_frames++;
        }
        if (has_frame)
                send_frame("ros2", clock_at(now_ns), beam.number);
        if (has_trigger)
                beam.late[beam.late_end++ % ARRAY_SIZE(beam.late)] =
                        (typeof(beam.late[0])){beam.number, now_ns};
        send_frame("ros1", beam.number, beam.number);
        beam.missing += has_trigger && !has_frame;
        beam.clock_frames += has_frame;
        beam.number += 1 + beam.skips;
}

/* A trigger each 0.2 to 5 ms. */
static void turn(void *ctx)
{
        uint8_t bytes[100];

        while (bed_receive(beam.fd, bytes, sizeof bytes) == BUSY_PACKET_BYTES)
                beam.busy = bytes[4];
        while (!beam.busy && beam.number < beam.end && beam.next_ns <= turns_now_ns()) {
                send_all(beam.next_ns);
                beam.next_ns += beam.period_ns > 0
                                        ? beam.period_ns
                                        : 200 * NS_PER_US + random_below(&beam.random, 4800 * NS_PER_US);
        }
        for (; beam.late_first < beam.late_end; beam.late_first++) {
                typeof(beam.late[0]) *t = &beam.late[beam.late_first % ARRAY_SIZE(beam.late)];

                if (t->time_ns + beam.delay_ns > turns_now_ns())
                        break;
                send_trigger(t->number, t->time_ns, t->number == 0 && !beam.marks ? TRIGGER_RESET : 0);
        }
        if (beam.busy)
                beam.next_ns = MAX(beam.next_ns, turns_now_ns() + NS_PER_MS);
}

static void start(uint64_t seed)
{
        memset(&beam, 0, sizeof beam);
        random_init(&beam.random, seed);
        beam.busy = true;
        beam.ahead_ns = -5 * (int64_t)NS_PER_S;
        beam.fd = bed_open_socket(47201);
        bed_each_event(look, NULL);
        bed_each_ms(turn, NULL);
        bed_start_all();
}

static void begin(uint64_t seed)
{
        start(seed);
        bed_until(!beam.busy);
}

static void triggers(uint64_t n)
{
        beam.end = beam.number + n * (1 + beam.skips);
        beam.next_ns = MAX(beam.next_ns, turns_now_ns());
        bed_until(beam.number == beam.end);
}

static void stop(int status)
{
        bed_pass(5 * NS_PER_S);
        bed_signal("dfm", SIGTERM);
        bed_ends("dfm", status);
        bed_until(bed_has_ended("ros1") && bed_has_ended("ros2") && bed_has_ended("sfi1"));
        bed_check_accounts();
        assert_int_equal(beam.mixed, 0);
        assert_int_equal(count_of("ros2", slice_frames), beam.clock_frames + beam.noise_frames);
        assert_int_equal(count_of("ros2", slice_frames), count_of("ros2", slice_frames_used) +
                                                                 count_of("ros2", slice_frames_late) +
                                                                 count_of("ros2", slice_frames_dropped) +
                                                                 count_of("ros2", slice_frames_left_over));
}

/* With a drift of 80 ppm, the clock gains 2.4 ms in this time. Frames of no trigger are left over. Frames may
 * come before their trigger. */
TEST_EACH(frames_are_in_the_events_of_their_times, i, 4)
{
        BED(1, SCENARIO, bed_mode(i & 1), NODES(""));
        begin(i);
        beam.noise = i < 2 ? 0 : 30;
        beam.delay_ns = i < 2 ? 0 : 5 * NS_PER_MS;
        triggers(12000);
        stop(0);
        assert_fields(&beam, events, 12000, fragments, 24000);
        assert_int_equal(count_of("ros2", slice_frames_left_over), beam.noise_frames);
        assert_int_equal(count_of("ros2", slice_frames_used), 12000);
        assert_int_equal(count_of("ros2", board_clock_known), 1);
        assert_in_range(count_of("ros2", board_drift_ppb), 79000, 81000);
        assert_true(bed_logged("ros2", "ppm (within"));
}

/* Triggers without a frame are partial events; frames of triggers that did not arrive are left over. */
TEST_EACH(missing_frames_and_triggers_mix_nothing, pull, 2)
{
        BED(1, SCENARIO, bed_mode(pull), NODES(""));
        begin(7);
        beam.frames_missing = beam.triggers_missing = 5;
        triggers(4000);
        stop(1);
        assert_int_equal(count_of("dfm", events_partial), beam.missing);
        assert_true(beam.missing > 100);
}

/* A restarted ROS finds the offset of the clock without the beginning. */
TEST_EACH(a_restarted_ros_finds_the_offset, pull, 2)
{
        BED(1, SCENARIO, bed_mode(pull), NODES("required=no\n"));
        begin(9);
        triggers(1000);
        bed_pass(NS_PER_S);
        bed_kill("ros2");
        bed_start("ros2");
        bed_pass(3 * NS_PER_S);
        beam.clock_frames = 0;
        triggers(2000);
        stop(0);
        assert_in_range(beam.fragments, 2 * 3000 - 10, 2 * 3000);
}

/* It joins the new DFM before any node of the run does, so this DFM does not know yet that it resumes a run.
 * Triggers are periodic, and the first frame is lost: it is not that of the first trigger. */
TEST(a_ros_that_restarts_with_the_dfm_assumes_no_offset)
{
        BED(1, SCENARIO, bed_mode(0), NODES("required=no\n"));
        begin(13);
        beam.period_ns = 5 * NS_PER_MS;
        triggers(200);
        bed_pass(NS_PER_S);
        bed_kill("ros2");
        bed_kill("dfm");
        bed_freeze("ros1", true);
        bed_freeze("sfi1", true);
        bed_start("ros2");
        bed_start("dfm");
        bed_until(bed_logged("dfm", "ros2 has joined"));
        bed_pass(NS_PER_S);
        bed_freeze("ros1", false);
        bed_freeze("sfi1", false);
        bed_until(bed_logged("dfm", "resumed run"));
        bed_pass(3 * NS_PER_S);
        beam.clock_frames = 0;
        beam.frames_missing = 100;
        triggers(1);
        beam.frames_missing = 0;
        triggers(999);
        stop(0);
        assert_in_range(beam.fragments, 1400, 2399);
}

/* The network loses the first trigger on its way to this ROS, which learns of it from the DFM. `late`: the
 * DFM is held up, so this comes after the last trigger, together with the end of the run. */
TEST_EACH(the_first_trigger_may_not_reach_the_ros, late, 2)
{
        BED(1, SCENARIO, bed_mode(1), "trigger.events=20", NODES("required=no\n"));
        begin(17);
        beam.period_ns = 5 * NS_PER_MS;
        bed_cut_groups("ros2");
        bed_freeze("dfm", late);
        triggers(1);
        sockets_mend();
        triggers(19);
        bed_pass(100 * NS_PER_MS);
        bed_freeze("dfm", false);
        bed_until(bed_has_ended("ros2"));
        assert_fields(&beam, events, 20, mixed, 0, fragments, 20 + 19);
        assert_true(bed_has_reason(
                "ros2", "the first triggers of the run did not reach this ROS: 1, by their numbers"));
}

/* The box counts triggers that it vetoed, so numbers do not show how many triggers did not reach the ROS. */
TEST_EACH(numbers_that_are_skipped_show_no_offset, loses, 2)
{
        BED(1, SCENARIO, bed_mode(1), "trigger.events=20", NODES("required=no\n"));
        begin(31);
        beam.period_ns = 5 * NS_PER_MS;
        beam.skips = true;
        if (loses)
                bed_cut_groups("ros2");
        triggers(1);
        sockets_mend();
        triggers(19);
        bed_until(bed_has_ended("ros2"));
        assert_fields(&beam, events, 20, mixed, 0, fragments, loses ? 20 : 40);
        assert_int_equal(bed_status("ros2"), loses);
}

TEST(a_ros_that_receives_no_trigger_says_so)
{
        BED(1, SCENARIO, bed_mode(1), "trigger.events=20", NODES("required=no\n"));
        begin(23);
        bed_cut_groups("ros2");
        triggers(20);
        sockets_mend();
        bed_ends("ros2", 1);
        assert_fields(&beam, events, 20, fragments, 20);
        assert_true(bed_has_reason("ros2", "no datagram with the times of this run's triggers"));
}

/* Triggers are periodic, so only the clock of the previous run shows that the first frame of the next one, or
 * that of the previous run, was lost. */
TEST_EACH(the_next_run_continues_with_the_clock_of_the_board, losing, 2)
{
        json_t *report;

        BED(1, SCENARIO, CONTROL, "run.number=auto", "run.start=manual", bed_mode(0), NODES("required=no\n"));
        start(11);
        beam.period_ns = 5 * NS_PER_MS;
        for (int run = 0; run < 2; run++) {
                beam.number = beam.end = 0;
                assert_int_equal(bed_ctl(run == 0 ? "start" : "next-run", "100s"), 0);
                bed_until(!beam.busy);
                beam.frames_missing = (unsigned)run == losing ? 100 : 0;
                triggers(1);
                beam.frames_missing = 0;
                triggers(999);
                bed_pass(5 * NS_PER_S);
        }
        assert_int_equal(bed_ctl("stop", "100s"), 1);
        assert_int_equal(beam.mixed > 0, losing == 0);
        if (losing == 1)
                assert_int_equal(beam.fragments, 2 * 2000 - 1);
        report = bed_report_of_run("ros2", 1);
        assert_true(has_reason(report, "lost the first frames"));
        json_decref(report);
        report = bed_report_of_run("dfm", 1);
        assert_true(has_reason(report, "the run is unreliable"));
        json_decref(report);
}

/* After a reset, there are frames without a trigger, or the first trigger does not reach the ROS. The offset
 * is forgotten only if the clock of the board began again, too: then none is assumed. `holds`: the ROS reads
 * all of this at once. */
static const struct next_count {
        unsigned noise;
        bool loses, begins_again, holds;
} next_counts[] = {
        {.noise = 1},
        {.noise = 3},
        {.loses = true},
        {.loses = true, .begins_again = true},
        {.noise = 3, .begins_again = true},
        {.noise = 3, .begins_again = true, .holds = true},
};

static void reset(bool begins_again)
{
        bed_pass(6 * NS_PER_S);
        beam.marks = true;
        send_trigger(0, turns_now_ns(), TRIGGER_RESET | TRIGGER_MARKER);
        bed_pass(NS_PER_S);
        bed_until(!beam.busy);
        if (begins_again)
                beam.ahead_ns = -(int64_t)turns_now_ns();
        beam.number = beam.end = beam.late_first = beam.late_end = 0;
}

TEST_EACH(frames_without_triggers_after_a_reset_shift_nothing, i, 2 * ARRAY_SIZE(next_counts))
{
        const struct next_count *n = &next_counts[i / 2];

        BED(1, SCENARIO, bed_mode(i & 1), NODES("required=no\n"));
        begin(29);
        beam.period_ns = 5 * NS_PER_MS;
        triggers(200);
        reset(n->begins_again);
        bed_freeze("ros2", n->holds);
        for (; beam.noise_frames < n->noise; beam.noise_frames++) {
                send_frame("ros2", clock_at(turns_now_ns()), UINT64_MAX);
                bed_pass(beam.period_ns);
        }
        if (n->loses)
                bed_cut_groups("ros2");
        triggers(1);
        sockets_mend();
        triggers(49);
        bed_freeze("ros2", false);
        triggers(150);
        stop(0);
        assert_fields(&beam, events, 400, fragments, n->begins_again ? 600 : 800 - n->loses);
        assert_int_equal(bed_has_reason("ros2", "before the first trigger of the run or after a reset"),
                         n->begins_again && !n->loses);
}

/* In the second count, no offset is found, so events stop to wait for the board. They wait again in the third
 * one, while its frames wait for theirs. */
TEST_EACH(events_wait_for_the_offset_of_the_next_count, pull, 2)
{
        BED(1, SCENARIO, bed_mode(pull), NODES("required=no\n"));
        begin(37);
        beam.period_ns = 5 * NS_PER_MS;
        triggers(200);
        for (int loses = 1; loses >= 0; loses--) {
                reset(true);
                if (loses)
                        bed_cut_groups("ros2");
                triggers(1);
                sockets_mend();
                triggers(199);
        }
        stop(0);
        assert_int_equal(beam.events, 600);
        assert_in_range(beam.fragments, 995, 1000);
        assert_int_equal(count_of("ros2", front_end_restarts), 0);
}

/* The clock of the board starts over after 1.07 s, which is 256 periods of the triggers. The ROS is held up
 * for longer: its last frames are still in time for their events. */
TEST_EACH(a_ros_that_was_held_up_mixes_nothing, pull, 2)
{
        BED(1, SCENARIO, bed_mode(pull), CLOCK_NODES("0:28", "required=no\nwait=300ms\n"));
        begin(19);
        beam.period_ns = 4193968;
        triggers(400);
        bed_freeze("ros2", true);
        beam.end = UINT64_MAX;
        bed_pass(1400 * NS_PER_MS);
        bed_freeze("ros2", false);
        bed_until(beam.number > 1500);
        beam.end = beam.number;
        stop(0);
        assert_int_equal(beam.events, beam.number);
        assert_in_range(2 * beam.events - beam.fragments, 200, 350);
}

TESTS_BETWEEN(NULL, NULL)
