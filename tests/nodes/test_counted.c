/* Frames that are counted: frame k of each board belongs to trigger k, whatever the boards and their
 * connections do. */
#include "boards.h"
#include "base/arena.h"

#define BEAM "ros.source=" BOARDS_SOURCE, "sfi.count=1", "sfi.timeout=30s", "dfm.node-timeout=30s"
#define EVENTS_MAX 4000

static struct boards boards;
/* Fragments with the frame of their event, and with another one or none. A thread of a node fills them. */
static uint64_t right, wrong;
static uint64_t first; /* frame of event 0 */

static size_t make_frame(uint64_t k, uint8_t *to)
{
        size_t n = 700 + k % 50;

        for (size_t i = 0; i < n; i++)
                to[i] = (uint8_t)((k * 7 + i) & 127);
        memcpy(to, &k, sizeof k);
        return n;
}

static void look(void *ctx, const struct sfi_built *built, const uint8_t *buffer)
{
        const size_t *n_ros = ctx;
        uint8_t expected[BOARD_FRAME_MAX];

        for (size_t i = 0; i < *n_ros; i++) {
                const struct sfi_fragment *f = &built->fragments[i];
                size_t n = boards.make(first + built->event, expected);
                bool is_right = f->whole && f->at != ARENA_NONE && f->bytes == n &&
                                memcmp(buffer + f->at, expected, n) == 0;

                right += is_right;
                wrong += !is_right;
        }
}

static void begin(size_t *n_ros, uint64_t frames)
{
        right = wrong = first = 0;
        bed_each_event(look, n_ros);
        boards_begin(&boards, frames, make_frame);
        bed_start_all();
}

TEST(each_frame_is_in_its_event)
{
        size_t n = 1;

        for (int loss = 0; loss < 2; loss++) {
                BED(1, BEAM, "ros.count=1", "trigger.events=500",
                    loss ? "network.loss=0.1" : "network.loss=0");
                begin(&n, 500);
                bed_ends_complete();
                assert_int_equal(right, 500);
                assert_int_equal(wrong, 0);
                assert_int_equal(loss, count_sum(ROLE_SFI, fragments_recovered) > 0);
        }
}

/* The frame is lost, and the others follow on another connection. */
TEST(a_connection_breaks_within_a_frame)
{
        struct board *b = &boards.boards[0];
        struct iovec part;
        size_t n = 1;

        BED(1, BEAM, "ros.count=1", "trigger.events=500");
        begin(&n, 100);
        bed_until(b->sent == 100 && b->begin == b->end);
        boards_make(&boards, b);
        part = (struct iovec){b->frame, 100};
        assert_int_equal(tcp_send(b->fd, &part, 1), 100);
        b->is_connected = false;
        close(b->fd);
        b->allowed = 500;
        bed_ends("dfm", 1);
        bed_ends("ros1", 1);
        /* Its event has an empty fragment. */
        assert_int_equal(count_of("dfm", events_complete), 499);
        assert_int_equal(right, 499);
        assert_int_equal(count_of("ros1", front_end_gaps), 1);
}

/* No frame of a run can be lost in a connection that the ROS has closed. A frame that comes in part before a
 * run, and then the rest, is in no run. */
TEST_EACH(a_connection_stays_between_runs, partly, 2)
{
        struct board *b = &boards.boards[0];
        struct iovec part;
        size_t n = 1;
        json_t *report;
        int fd;

        BED(1, BEAM, CONTROL, "ros.count=1", "trigger.events=100", "run.start=manual", "run.number=auto");
        begin(&n, 100);
        assert_int_equal(bed_ctl("start", "100s"), 0);
        bed_until(b->sent == 100 && b->begin == b->end);
        if (partly) {
                boards_make(&boards, b);
                part = (struct iovec){b->frame, 100};
                assert_int_equal(tcp_send(b->fd, &part, 1), 100);
                b->begin = 100;
                b->is_connected = false;
        }
        bed_until((report = bed_report_of_run("ros1", 0)));
        json_decref(report);
        fd = b->fd;
        first = 100 + partly;
        bed_pass(NS_PER_S);
        b->allowed = 200 + partly;
        b->is_connected = true;
        assert_int_equal(bed_ctl("start", "100s"), 0);
        bed_until((report = bed_report_of_run("ros1", 1)));
        json_decref(report);
        assert_int_equal(b->fd, fd);
        assert_int_equal(right, 200);
        assert_int_equal(wrong, 0);
        for (size_t i = 0; i < bed_scenario()->n_nodes; i++)
                bed_signal(bed_scenario()->nodes[i].name, SIGTERM);
        bed_all_end(0);
}

static uint64_t again; /* the first frame of the second run */

/* Large frames, whose numbers begin again in the second run. */
static size_t make_numbered(uint64_t k, uint8_t *to)
{
        uint64_t number = k < again ? k : k - again;

        memset(to, k < again ? 1 : 2, BOARD_FRAME_MAX - 4);
        memcpy(to, &number, sizeof number);
        return BOARD_FRAME_MAX - 4;
}

/* The board runs ahead of the triggers of the first run, by more than the buffer and the sockets hold. It
 * sends the rest when there is room again, and then the frames of the second run. */
TEST_EACH(what_a_full_board_sends_later_is_in_no_run, numbered, 2)
{
        struct board *b = &boards.boards[0];
        uint64_t gaps, left;
        json_t *report;
        size_t n = 1;

        BED(1, BEAM, CONTROL, "ros.count=1", "test.buffer-events=16", "trigger.events=20", "run.start=manual",
            "run.number=auto", numbered ? "ros.event-number=0:64" : "ros.event-number=count");
        begin(&n, 200);
        boards.make = make_numbered;
        again = UINT64_MAX;
        assert_int_equal(bed_ctl("start", "100s"), 0);
        bed_until((report = bed_report_of_run("ros1", 0)));
        assert_true(b->sent < 180);
        assert_int_equal(json_unpack(report, "{s:I}", "front_end_left_over", &left), 0);
        json_decref(report);
        first = again = 200;
        bed_until(b->sent == 200 && b->begin == b->end);
        bed_pass(150 * NS_PER_MS);
        assert_int_equal(bed_times_logged("ros1", "joined run"), 1);
        assert_int_equal(bed_ctl("start", "100s"), 0);
        b->allowed = 220;
        bed_until((report = bed_report_of_run("ros1", 1)));
        assert_int_equal(json_unpack(report, "{s:I}", "front_end_gaps", &gaps), 0);
        json_decref(report);
        assert_int_equal(right, 40);
        assert_int_equal(wrong, 0);
        assert_int_equal(gaps, 200 - 20 - left);
        for (size_t i = 0; i < bed_scenario()->n_nodes; i++)
                bed_signal(bed_scenario()->nodes[i].name, SIGTERM);
        bed_all_end(0);
}

static void send_frames(const char *ros, uint64_t from, uint64_t n)
{
        uint8_t frame[BOARD_FRAME_MAX];

        for (uint64_t k = from; k < from + n; k++) {
                uint32_t size = (uint32_t)make_frame(k, frame + sizeof size);

                memcpy(frame, &size, sizeof size);
                bed_send_datagram(ros, 47000, frame, sizeof size + size);
                bed_pass(NS_PER_MS / 10);
        }
}

/* Its ROS is killed in the first run, and the new process must wait for the next one. What the board sends in
 * the first run is not counted in the second. If it also sends before the ROS has joined the second run, evb
 * cannot know of which run these frames are. */
TEST_EACH(frames_for_a_refused_ros_are_in_no_run, late, 2)
{
        size_t n = 2;
        uint64_t gaps;
        json_t *report;

        BED(1, CONTROL, "ros.source=udp:47000", "ros.count=2", "sfi.count=1", "sfi.timeout=1s",
            "dfm.node-timeout=1s", "trigger.events=200", "run.start=manual", "run.number=auto");
        begin(&n, 0);
        assert_int_equal(bed_ctl("start", "100s"), 0);
        bed_pass(100 * NS_PER_MS);
        send_frames("ros1", 0, 50);
        send_frames("ros2", 0, 50);
        bed_freeze("dfm", true);
        bed_restart("ros1");
        bed_pass(10 * NS_PER_MS);
        send_frames("ros1", 50, 20);
        send_frames("ros2", 50, 100);
        bed_freeze("dfm", false);
        bed_pass(NS_PER_S);
        assert_true(bed_logged("ros1", "must count its front-end's frames from the beginning"));
        send_frames("ros1", 70, 80);
        bed_pass(3 * NS_PER_S);
        if (late)
                bed_freeze("ros1", true);
        assert_int_equal(bed_ctl("stop", "100s"), 1);
        send_frames("ros1", 1000, late);
        bed_freeze("ros1", false);
        bed_until(bed_logged("ros1", "joined run 2"));
        right = wrong = 0;
        first = 150;
        assert_int_equal(bed_ctl("start", "100s"), 0);
        bed_pass(100 * NS_PER_MS);
        send_frames("ros1", 150, 200);
        send_frames("ros2", 150, 200);
        bed_until((report = bed_report_of_run("ros1", 0)));
        assert_int_equal(json_unpack(report, "{s:I}", "front_end_gaps", &gaps), 0);
        json_decref(report);
        assert_int_equal(right, 400);
        assert_int_equal(wrong, 0);
        assert_int_equal(gaps, 100 + late);
        assert_int_equal(bed_logged("ros1", "the run is unreliable"), late);
        for (size_t i = 0; i < bed_scenario()->n_nodes; i++)
                bed_signal(bed_scenario()->nodes[i].name, SIGTERM);
        bed_ends("ros1", late);
}

/* Its ROS is killed between two runs. Frames of the first run that come late, but before the new process has
 * joined the second one, are counted as its first frames. Before the first run, boards may send. */
TEST_EACH(frames_before_a_later_run_make_it_unreliable, later, 2)
{
        const uint64_t late = 5, events = 200;
        size_t n = 2;
        json_t *report;

        BED(1, CONTROL, "ros.source=udp:47000", "ros.count=2", "sfi.count=1", "trigger.events=200",
            "run.start=manual", "run.number=auto");
        begin(&n, 0);
        if (later) {
                assert_int_equal(bed_ctl("start", "100s"), 0);
                send_frames("ros1", 0, events);
                send_frames("ros2", 0, events);
                bed_until((report = bed_report_of_run("ros1", 0)));
                json_decref(report);
                assert_int_equal(right, 2 * events);
        }
        bed_until(bed_times_logged("ros1", "joined run") == 1 + (unsigned)later);
        bed_restart("ros1");
        bed_pass(10 * NS_PER_MS);
        send_frames("ros1", later ? 0 : events, late);
        assert_int_equal(bed_times_logged("ros1", "joined run"), 1 + later);
        bed_until(bed_times_logged("ros1", "joined run") == 2 + (unsigned)later);
        right = wrong = 0;
        first = events;
        assert_int_equal(bed_ctl("start", "100s"), 0);
        send_frames("ros1", later ? events : events + late, events - late);
        send_frames("ros2", events, events);
        bed_until((report = bed_report_of_run("ros1", 0)));
        json_decref(report);
        assert_int_equal(right, later ? events : 2 * events);
        assert_int_equal(bed_logged("ros1", "the run is unreliable"), later);
        for (size_t i = 0; i < bed_scenario()->n_nodes; i++)
                bed_signal(bed_scenario()->nodes[i].name, SIGTERM);
        bed_ends("ros1", later);
}

/* They run ahead of the trigger, and of each other, by more than the buffer holds. */
TEST(boards_ahead_of_all_wait)
{
        static const char *const rates[] = {"trigger.rate=2kHz", "trigger.rate=max", "trigger.rate=2kHz"};
        size_t n = 2;

        for (int i = 0; i < 3; i++) {
                BED(1, BEAM, "ros.count=2", "test.buffer-events=256", "trigger.events=4000", rates[i],
                    bed_mode(i == 2));
                begin(&n, 4000);
                boards.boards[1].allowed = 0;
                bed_until(boards.boards[0].sent > 256);
                bed_pass(NS_PER_S);
                boards.boards[1].allowed = 4000;
                bed_ends_complete();
                bed_check_written_once(4000);
                assert_int_equal(right, 8000);
                assert_int_equal(wrong, 0);
        }
}

/* It may replace a frame, so the run falls short although its events are complete. */
TEST(a_malformed_datagram_is_a_gap)
{
        RUN(1, BEAM, "ros.source=udp:47000", "ros.count=1", "trigger.events=200");
        bed_pass(10 * NS_PER_MS);
        bed_send_datagram("ros1", 47000, "\x05\0\0\0lie", 7);
        for (uint64_t k = 0; k < 200; k++) {
                uint8_t frame[BOARD_FRAME_MAX];
                uint32_t size = (uint32_t)make_frame(k, frame + sizeof size);

                memcpy(frame, &size, sizeof size);
                bed_send_datagram("ros1", 47000, frame, sizeof size + size);
                bed_pass(NS_PER_MS / 10);
        }
        bed_until(bed_has_ended("dfm"));
        bed_ends("ros1", 1);
        bed_check_complete();
        assert_true(bed_logged(
                "ros1", "malformed datagram at frame 0: its first 4 bytes give a length of 5, but 3 bytes "
                        "follow"));
        assert_true(bed_has_reason(
                "ros1", "the run is unreliable: gaps in the frames of the front-end: 1, the first"));
        assert_each(count_of, "ros1", front_end_gaps, 1, packets_malformed, 1);
}
