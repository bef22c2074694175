/* Boards that send several frames for each trigger, which the test plays: all of them are in the fragment of
 * their event, and every frame is accounted for. */
#include "boards.h"
#include "base/arena.h"

#define PORT 47200
#define TRIGGERS 1000
#define FRAMES_MAX 4
#define LATE_BY 50
#define JOINED                                                                                               \
        "trigger.rate=1kHz", "trigger.events=1000", "ros.wait=2s", "sfi.timeout=8s", "dfm.node-timeout=30s", \
                "ros.event-number=0:32"
#define NODES(fragments)                                                                                     \
        "[node dfm]\nrole = dfm\n[node sfi1]\nrole = sfi\n[node ros1]\nrole = ros\nsource = " BOARDS_SOURCE  \
        "\nfragments = join\n[node ros2]\nrole = ros\nsource = udp:47200\nfragments = " fragments "\n"

static struct {
        struct boards tcp;
        uint64_t done; /* triggers that were read out */
        bool is_ahead; /* the board on TCP sends all at once */
        uint64_t late; /* the trigger that has one more frame on TCP, which is late */
        bool is_held;  /* the boards send no frames */
        uint64_t lost; /* every tenth trigger lacks a frame on UDP: this modulo 10 */
        uint64_t sent[2];
        uint32_t index; /* of the next frame */
        /* Of the written events; a thread of a node fills these. */
        uint64_t wrong, fragments;
} play;

static uint32_t count_of_frames(size_t board, uint64_t n)
{
        return 1 + (uint32_t)(n + board) % FRAMES_MAX;
}

/* Its number, index, the number of frames of the trigger, and whether it is the last one of them. */
static void send_frame(size_t board, uint64_t n, uint32_t index)
{
        uint32_t count = count_of_frames(board, n), size = 20 + (uint32_t)n % 50;
        uint32_t frame[40] = {size, (uint32_t)n, index, count, index + 1 == count};
        struct iovec v = {frame, 4 + size};

        play.sent[board]++;
        if (board == 0)
                assert_int_equal(tcp_send(play.tcp.boards[0].fd, &v, 1), v.iov_len);
        else
                bed_send_datagram("ros2", PORT, frame, v.iov_len);
}

static void send_tcp(uint64_t n)
{
        for (uint32_t i = 0; i < count_of_frames(0, n); i++)
                send_frame(0, n, i);
        if (play.late > 0 && n == play.late + LATE_BY)
                send_frame(0, play.late, 0);
}

/* The frames of these triggers in turn, from the last one to the first. */
static void send_udp(uint64_t first, uint64_t last)
{
        for (uint32_t i = FRAMES_MAX; i-- > 0;) {
                for (uint64_t k = first; k <= last; k++) {
                        if (i < count_of_frames(1, k) && !(k % 10 == play.lost && i == 0))
                                send_frame(1, k, i);
                }
        }
}

static void read_out(void *ctx)
{
        uint64_t until = count_of("dfm", triggers);

        boards_accept(&play.tcp);
        for (; play.done < until && !play.is_held; play.done++) {
                for (uint64_t n = 0; play.is_ahead && play.done == 0 && n < TRIGGERS; n++)
                        send_tcp(n);
                if (!play.is_ahead)
                        send_tcp(play.done);
                if (play.done % 2 == 1)
                        send_udp(play.done - 1, play.done);
        }
}

/* Whether the fragment has all frames of this trigger, by their index. */
static bool is_right(size_t board, uint32_t n, const uint8_t *bytes, size_t size)
{
        uint32_t frame[5], i = board == 1 && n % 10 == play.lost, count = count_of_frames(board, n);

        for (; i < count; i++) {
                if (size < sizeof frame)
                        return false;
                memcpy(frame, bytes, sizeof frame);
                if (frame[0] != 20 + n % 50 || frame[1] != n || frame[2] != i || frame[3] != count)
                        return false;
                bytes += 4 + frame[0];
                size -= 4 + frame[0];
        }
        return size == 0;
}

static void look(void *ctx, const struct sfi_built *built, const uint8_t *buffer)
{
        for (size_t i = 0; i < 2; i++) {
                const struct sfi_fragment *f = &built->fragments[i];

                if (!f->whole || f->bytes == 0 || f->at == ARENA_NONE)
                        continue;
                play.fragments++;
                play.wrong += !is_right(i, built->info.l1_id, buffer + f->at, f->bytes);
        }
}

static void all_frames_come(void)
{
        memset(&play, 0, sizeof play);
        play.lost = UINT64_MAX;
}

/* The boards send by this function, which is called each millisecond. */
static void begin_with(void (*sends)(void *ctx))
{
        bed_each_event(look, NULL);
        boards_begin(&play.tcp, 0, NULL);
        bed_each_ms(sends, NULL);
}

static void begin(void)
{
        begin_with(read_out);
        bed_start_all();
}

#define NODE(rule)                                                                                           \
        "[node dfm]\nrole = dfm\n[node sfi1]\nrole = sfi\n[node ros1]\nrole = ros\nsource "                  \
        "= " BOARDS_SOURCE "\nfragments = " rule "\n"

static void end(int status)
{
        bed_ends("dfm", status);
        for (size_t i = 0; i < 2; i++) {
                const char *ros = bed_name(ROLE_ROS, i);

                bed_until(bed_has_ended(ros));
                assert_int_equal(count_of(ros, slice_frames), play.sent[i]);
                assert_int_equal(play.sent[i], count_of(ros, slice_frames_used) +
                                                       count_of(ros, slice_frames_late) +
                                                       count_of(ros, slice_frames_dropped) +
                                                       count_of(ros, slice_frames_left_over));
                assert_int_equal(count_of(ros, front_end_used), play.done);
        }
        bed_check_accounts();
        assert_fields(&play, wrong, 0, fragments, 2 * play.done);
        assert_int_equal(count_of("dfm", events_complete), play.done);
}

/* On TCP until the next number, on UDP in any order. */
TEST_EACH(all_frames_of_a_trigger_are_in_its_event, i, 4)
{
        static const char *const nodes[] = {NODES("join count 8:32 index 4:32"),
                                            NODES("join last 12:1 index 4:32")};

        all_frames_come();
        BED(1, JOINED, bed_mode((int)i % 2), nodes[i / 2]);
        begin();
        end(0);
        assert_int_equal(count_sum(ROLE_ROS, front_end_incomplete), 0);
}

/* The buffer holds fewer fragments than it sends: the stream waits. */
TEST(a_joining_board_is_held_back)
{
        all_frames_come();
        play.is_ahead = true;
        BED(1, JOINED, "test.buffer-events=64", "ros.buffer-size=4MiB", NODES("join count 8:32 index 4:32"));
        begin();
        end(0);
}

TEST(a_missing_datagram_makes_a_fragment_incomplete)
{
        memset(&play, 0, sizeof play);
        play.lost = 4; /* these triggers have 2 or 4 frames */
        BED(1, JOINED, NODES("join count 8:32 index 4:32 within 50ms"));
        begin();
        end(1);
        assert_int_equal(count_of("ros2", front_end_incomplete), TRIGGERS / 10);
        assert_true(bed_has_reason("ros2", "fragments in events lack some of their frames: 100, the last"));
}

TEST(a_late_frame_of_a_joined_trigger_is_counted)
{
        all_frames_come();
        play.late = 500;
        BED(1, JOINED, NODES("join count 8:32 index 4:32"));
        begin();
        end(1);
        assert_each(count_of, "ros1", front_end_duplicate, 1, slice_frames_dropped, 1);
        assert_true(bed_logged("ros1", "500, and is discarded: its fragment had ended"));
        assert_true(bed_has_reason("ros1", "same number as an earlier one"));
}

#define BEFORE_STOP 100

/* The board has sent these triggers, and sends no more. */
static void send_before_stop(void *ctx)
{
        boards_accept(&play.tcp);
        for (; play.tcp.boards[0].is_connected && play.done < BEFORE_STOP; play.done++)
                send_tcp(play.done);
}

/* Frames make the triggers: also the last one, whose fragment nothing has ended yet when the run is stopped.
 */
TEST_EACH(frames_that_came_before_a_stop_become_events, mode, 2)
{
        all_frames_come();
        BED(1, "trigger.source=frames", "ros.event-number=0:32", bed_mode((int)mode), NODE("join within 1s"));
        begin_with(send_before_stop);
        bed_start_all();
        bed_until(play.done == BEFORE_STOP);
        bed_until(count_of("ros1", slice_frames) == play.sent[0]);
        bed_stop_run(0);
        assert_int_equal(count_of("dfm", events_complete), BEFORE_STOP);
        assert_int_equal(count_sum(ROLE_ROS, slice_frames_left_over), 0);
        bed_check_accounts();
}

/* The fragment that began before the stop ends after others that began later. */
TEST_EACH(a_fragment_from_before_a_stop_may_end_out_of_order, mode, 2)
{
        const uint64_t last = BEFORE_STOP + 1;

        all_frames_come();
        BED(1, "trigger.source=frames", "ros.event-number=0:32", bed_mode((int)mode),
            NODE("join count 8:32 index 4:32 within 1s"));
        begin_with(send_before_stop);
        bed_start_all();
        bed_until(play.done == BEFORE_STOP);
        send_tcp(BEFORE_STOP);
        send_frame(0, last, 0);
        bed_until(count_of("dfm", events_complete) == last);
        bed_signal("dfm", SIGTERM);
        bed_until(bed_logged("ros1", "stops run 1"));
        send_tcp(last + 1);
        send_tcp(last + 2);
        bed_pass(20 * NS_PER_MS);
        send_frame(0, last, 1);
        bed_all_end(0);
        assert_int_equal(count_of("dfm", events_complete), last + 1);
        assert_int_equal(count_of("ros1", slice_frames), play.sent[0]);
        assert_int_equal(count_of("ros1", slice_frames_left_over),
                         count_of_frames(0, last + 1) + count_of_frames(0, last + 2));
        bed_check_accounts();
}

/* The board sends a frame each millisecond, whether or not anybody is connected. */
static void send_always(void *ctx)
{
        uint64_t n = play.done;
        uint32_t count = count_of_frames(0, n), size = 20 + (uint32_t)n % 50;
        uint32_t frame[40] = {size, (uint32_t)n, play.index, count, play.index + 1 == count};
        struct iovec v = {frame, 4 + size};

        boards_accept(&play.tcp);
        if (play.tcp.boards[0].is_connected)
                (void)tcp_send(play.tcp.boards[0].fd, &v, 1);
        play.index = (play.index + 1) % count;
        play.done += play.index == 0;
}

/* Frames make the triggers: those of the first trigger of a run that came before the run make no event. */
TEST_EACH(no_run_begins_within_a_fragment, i, 3)
{
        static const char *const nodes[] = {NODE("join"), NODE("join count 8:32 index 4:32"),
                                            NODE("join last 12:1 index 4:32")};

        all_frames_come();
        BED(1 + i, CONTROL, "test.keep-alive=50ms", "trigger.source=frames", "trigger.events=0",
            "run.start=auto", "ros.event-number=0:32", nodes[i]);
        begin_with(send_always);
        bed_start_all();
        for (unsigned run = 0; run < 8; run++) {
                bed_until(count_of("dfm", events_complete) > 20 + run);
                assert_int_equal(bed_ctl(run < 7 ? "next-run" : "stop", "100s"), 0);
        }
        for (size_t k = 0; k < bed_scenario()->n_nodes; k++)
                bed_signal(bed_scenario()->nodes[k].name, SIGTERM);
        bed_all_end(0);
        assert_true(play.fragments > 200);
        assert_int_equal(play.wrong, 0);
}

/* A ROS starts while its board sends the frames of a trigger. */
TEST_EACH(the_first_run_begins_within_no_fragment, i, 8)
{
        all_frames_come();
        BED(1 + i, "test.keep-alive=50ms", "trigger.source=frames", "trigger.events=100",
            "ros.event-number=0:32", NODE("join"));
        begin_with(send_always);
        bed_pass((50 + i) * NS_PER_MS);
        bed_start_all();
        bed_all_end(0);
        assert_fields(&play, fragments, 100, wrong, 0);
}

/* A stop waits for this fragment no longer than an event would, although frames of it arrive without end. */
static void send_without_end(void *ctx)
{
        send_before_stop(ctx);
        if (play.done == BEFORE_STOP)
                send_frame(0, BEFORE_STOP + 1, 0);
}

TEST(a_fragment_without_end_does_not_delay_a_stop)
{
        uint64_t stopped_ns;

        memset(&play, 0, sizeof play);
        BED(1, "trigger.source=frames", "ros.event-number=0:32", "ros.wait=200ms", NODE("join last 12:1"));
        begin_with(send_without_end);
        bed_start_all();
        bed_until(count_of("dfm", events_complete) == BEFORE_STOP);
        bed_signal("dfm", SIGTERM);
        stopped_ns = turns_now_ns();
        bed_ends("dfm", 1);
        assert_in_range(turns_now_ns() - stopped_ns, 0, NS_PER_S);
        bed_ends("ros1", 1);
        assert_int_equal(count_of("ros1", front_end_incomplete), 1);
        assert_true(bed_has_reason("ros1", "fragments in events lack some of their frames: 1, the last"));
        assert_false(bed_has_reason("dfm", "which frames came before the stop"));
        bed_check_accounts();
}

/* The boards send the frames of the last triggers after the stop. The run waits until no fragment is open. */
TEST_EACH(a_stop_waits_for_open_fragments, i, 4)
{
        bool incomplete = i % 2;

        all_frames_come();
        BED(1, JOINED, bed_mode((int)i / 2), "trigger.events=0",
            NODES("join count 8:32 index 4:32 within 50ms"));
        begin();
        bed_until(play.done > 300);
        play.is_held = true;
        bed_until(count_of("dfm", triggers) > play.done + 20);
        bed_signal("dfm", SIGTERM);
        bed_pass(20 * NS_PER_MS);
        play.lost = incomplete ? 4 : UINT64_MAX;
        play.is_held = false;
        bed_until(play.done == count_of("dfm", triggers));
        if (play.done % 2 == 1)
                send_udp(play.done - 1, play.done - 1);
        end(incomplete);
        assert_int_equal(count_of("dfm", triggers), play.done);
        assert_int_equal(count_sum(ROLE_ROS, front_end_left_over), 0);
        assert_int_equal(count_of("ros1", front_end_incomplete), 0);
        if (incomplete)
                assert_true(count_of("ros2", front_end_incomplete) > 0);
}
