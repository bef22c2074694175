/* Frames that carry the number of their trigger, in datagrams and in streams. */
#include "front_end_bench.h"

#include <sys/ioctl.h>

/* Announces that SFI 0 builds the event of this trigger, and returns what the ROS sends it. */
static size_t trigger_jobs(uint64_t event, uint32_t number, struct ros_job *job)
{
        static struct message m;
        size_t n;

        m.header = (struct message_header){
                .cookie = SAMPLE_COOKIE, .sender_role = ROLE_DFM, .type = MESSAGE_ASSIGN};
        m.dfm = SAMPLE_DFM;
        m.n = 1;
        m.assign.announces = true;
        m.assign.entries[0] = (struct assign_entry){.event = event, .l1_id = number};
        assert_true(ros_receive(b.core, b.now_ns, &m));
        n = ros_jobs(b.core, 0, job, 1);
        ros_sent(b.core, 0, n, 0);
        return n;
}

/* Frames of every size, whose number may arrive in pieces: each is stored under its number. */
FRONT_END_TEST_EACH(frames_are_stored_by_their_numbers, tcp, 2, tcp, FRAME_STANDARD, .offset_bytes = 5,
                    .bits = 24, .big_endian = true)
{
        struct ros_job job;

        if (tcp)
                accept_stream();
        for (uint8_t k = 0; k < 50; k++) {
                uint8_t n = (uint8_t)(8 + k), frame[100] = {n};

                frame[4 + 5 + 2] = (uint8_t)(k ^ 1); /* pairs arrive in reverse order */
                frame[4 + n - 1] = (uint8_t)(n == 8 ? frame[11] : 200);
                if (tcp) {
                        assert_int_equal(send(b.stream, frame, 6, 0), 6);
                        turn();
                        assert_int_equal(send(b.stream, frame + 6, (size_t)n - 2, 0), n - 2);
                } else
                        send_bytes(frame, (size_t)n + 4);
                turns_until((uint64_t)k + 1);
        }
        for (uint32_t k = 0; k < 48; k++) { /* the last frame is not believed yet */
                assert_int_equal(trigger_jobs(k, k, &job), 1);
                assert_int_equal(job.job.chunk.fragment_bytes, 8 + (k ^ 1));
                assert_int_equal(b.buffer[job.at + 7], k);
        }
        assert_int_equal(stats_get(&b.sample.stats->front_end_frames), 50);
}

static void run_has_resets(enum run_state state, uint32_t resets)
{
        static struct message m;
        static uint32_t transaction;

        m = (struct message){.header = {.cookie = SAMPLE_COOKIE,
                                        .sender_role = ROLE_DFM,
                                        .type = MESSAGE_KEEP_ALIVE,
                                        .transaction = transaction++},
                             .dfm = SAMPLE_DFM};
        m.keep_alive.state = state;
        m.keep_alive.resets = resets;
        assert_true(ros_receive(b.core, b.now_ns, &m));
}

static void run_is(enum run_state state)
{
        run_has_resets(state, 1);
}

/* The DFM opens the stream of numbers. */
static void acknowledges(void)
{
        static struct message m;

        m = (struct message){
                .header = {.cookie = SAMPLE_COOKIE, .sender_role = ROLE_DFM, .type = MESSAGE_NUMBERS_ACK},
                .dfm = SAMPLE_DFM};
        m.numbers_ack.incarnation = (uint32_t)SAMPLE_INCARNATION;
        m.numbers_ack.resets = 1;
        assert_true(ros_receive(b.core, b.now_ns, &m));
}

static void send_number(uint8_t number)
{
        const uint8_t frame[8] = {4, [4] = number};

        send_bytes(frame, sizeof frame);
}

static void wait_for_delivery(void)
{
        int unacknowledged = 1;

        while (unacknowledged > 0)
                assert_int_equal(ioctl(b.stream, TIOCOUTQ, &unacknowledged), 0);
}

/* Frames without a number: more than one turn reads. */
static void send_unnumbered(bool tcp)
{
        static const uint8_t empty[4 * 5000];

        if (tcp)
                assert_int_equal(send(b.stream, empty, sizeof empty, 0), sizeof empty);
        for (int k = 0; !tcp && k < 40; k++)
                send_datagram(0, 1400);
}

/* Frames make the triggers, and number 0 has come. */
static void begin_announcing(bool tcp)
{
        bench_announces = true;
        bench_open_numbered(tcp, &(struct number_field){.bits = 32});
        bench_announces = false;
        if (tcp)
                accept_stream();
        run_is(RUN_RUNNING);
        acknowledges();
        send_number(0);
        turns_until(1);
        b.now_ns += NS_PER_MS;
        front_end_turn(b.front_end, b.now_ns);
}

/* Returns the number after the last one that the ROS announces. */
static uint64_t announced_end(void)
{
        static struct message m;
        bool last = false;

        for (int k = 0; k < 100 && !last; k++) {
                b.now_ns += 50 * NS_PER_MS;
                while (!last && ros_step(b.core, b.now_ns, &(struct message_to){}, &m))
                        last = m.header.type == MESSAGE_NUMBERS && m.announced.last;
        }
        assert_true(last);
        return m.header.transaction + m.n;
}

/* The process is held up, and its socket has frames from before a stop: the number of the last of them is the
 * last one, also if reading them needs several turns and more time. */
TEST_EACH(frames_that_wait_at_a_stop_are_announced, i, 4)
{
        bool tcp = i % 2 == 1;

        begin_announcing(tcp);
        if (i >= 2)
                send_unnumbered(tcp);
        for (uint8_t k = 1; k < 4; k++)
                send_number(k);
        if (tcp)
                wait_for_delivery();
        b.now_ns += NS_PER_MS;
        run_is(RUN_DRAINING);
        for (int k = 0; k < 10; k++) {
                front_end_turn(b.front_end, b.now_ns);
                b.now_ns += 200 * NS_PER_MS;
        }
        assert_int_equal(announced_end(), 4);
        bench_close(NULL);
}

/* The process is held up, and its socket contains frames from before a reset of the counters. The reset takes
 * effect when all of them are read, even if this takes several turns. */
FRONT_END_TEST_EACH(frames_that_wait_at_a_reset_are_read_before_it, tcp, 2, tcp, FRAME_STANDARD, .bits = 32)
{
        int turns = 0;

        if (tcp)
                accept_stream();
        run_is(RUN_RUNNING);
        send_number(0);
        turns_until(1);
        send_unnumbered(tcp);
        send_number(7);
        if (tcp)
                wait_for_delivery();
        b.now_ns += NS_PER_MS;
        run_has_resets(RUN_RUNNING, 2);
        assert_int_equal(ros_breaks(b.core), 0);
        for (; turns < 10 && ros_breaks(b.core) == 0; turns++) {
                front_end_turn(b.front_end, b.now_ns);
                ros_expire(b.core, b.now_ns);
                b.now_ns += 2 * NS_PER_MS;
        }
        assert_int_equal(front_end_frames(b.front_end), tcp ? 5002 : 40 * 350 + 2);
        assert_in_range(turns, 2, 9);
        /* Another one, before the next turn. */
        run_has_resets(RUN_RUNNING, 3);
        ros_expire(b.core, b.now_ns);
        assert_int_equal(ros_breaks(b.core), 1);
}

/* The process is held up until the connection has no room, so the board still holds frames from before a
 * reset when all that has arrived is read. */
FRONT_END_TEST(a_board_that_waits_for_room_is_read_before_a_reset, true, FRAME_STANDARD, .bits = 32)
{
        static const uint8_t empty[4000];
        const int bytes = 4096;
        size_t sent = 0;
        uint64_t frames;

        accept_stream();
        run_is(RUN_RUNNING);
        send_number(0);
        turns_until(1);
        assert_int_equal(setsockopt(b.stream, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes), 0);
        for (ssize_t n; (n = send(b.stream, empty, sizeof empty - sent % 4, MSG_DONTWAIT)) > 0;)
                sent += (size_t)n;
        frames = 1 + sent / 4;
        b.now_ns += NS_PER_MS;
        run_has_resets(RUN_RUNNING, 2);
        turns_until(frames);
        for (int k = 0; k < 9; k++) {
                turn();
                ros_expire(b.core, b.now_ns);
                assert_int_equal(ros_breaks(b.core), 0);
                b.now_ns += NS_PER_MS;
        }
        assert_int_equal(send(b.stream, empty, 4 - sent % 4, 0), 4 - sent % 4);
        send_number(7);
        wait_for_delivery();
        b.now_ns += NS_PER_MS;
        turns_until(frames + 2);
        ros_expire(b.core, b.now_ns);
        assert_int_equal(ros_breaks(b.core), 1);
}

/* A board that sends more in each turn than is read does not prolong a stop without end. */
static const uint8_t empty[4 * 5000];

TEST_EACH(a_board_that_sends_on_does_not_hold_a_stop, tcp, 2)
{
        begin_announcing(tcp);
        run_is(RUN_DRAINING);
        for (int k = 0; k < (tcp ? 700 : 300); k++) {
                for (int j = 0; !tcp && j < 140; j++)
                        send_datagram(FRAME_BYTES, 50);
                if (tcp)
                        (void)!send(b.stream, empty, sizeof empty, 0);
                b.now_ns += NS_PER_MS;
                front_end_turn(b.front_end, b.now_ns);
        }
        assert_int_equal(announced_end(), 1);
        bench_close(NULL);
}

/* Only the events of triggers 0 and 2 were built. Another DFM may have had trigger 1. */
TEST(late_frames_have_a_reason_that_is_true)
{
        static const uint8_t numbers[] = {0, 2, 1};

        bench_announces = true;
        for (int resumed = 0; resumed < 2; resumed++) {
                struct message welcome = *sample_welcome();
                struct reasons r = {};
                struct ros_job job;

                bench_open_numbered(false, &(struct number_field){.bits = 32});
                run_is(RUN_RUNNING);
                acknowledges();
                for (uint8_t k = 0; k < ARRAY_SIZE(numbers); k++) {
                        send_number(numbers[k]);
                        turns_until(k + 1u);
                        if (k < 2)
                                assert_int_equal(trigger_jobs(k, numbers[k], &job), 1);
                }
                run_is(RUN_ENDED);
                if (resumed) {
                        welcome.dfm++;
                        welcome.header.type = MESSAGE_KEEP_ALIVE; /* leads to a Join */
                        assert_true(ros_receive(b.core, b.now_ns, &welcome));
                        welcome.header.type = MESSAGE_WELCOME;
                        assert_true(ros_receive(b.core, b.now_ns, &welcome));
                }
                front_end_discard_reasons(b.core, &r);
                assert_int_equal(r.n, 1);
                assert_string_equal(r.text[0],
                                    resumed ? "frames of its front-end that came after newer ones had made "
                                              "their events, or whose triggers only an earlier DFM had, and "
                                              "are in no event: 1"
                                            : "frames of its front-end that came after newer ones had made "
                                              "their events, and are in no event: 1");
                bench_close(NULL);
        }
        bench_announces = false;
}

/* A frame that ends before its number fits no trigger; gaps do not matter to the others. */
TEST_EACH(short_frames_and_gaps_do_not_spoil_the_numbers, tcp, 2)
{
        static const struct number_field field = {.offset_bytes = FRAME_BYTES - 2, .bits = 16};

        bench_open_numbered(tcp, &field);
        if (tcp) {
                accept_stream();
                assert_int_equal(send(b.stream, "\x02\0\0\0ab\0\0\0\0", 10, 0), 10);
                send_frames(1);
                turns_until(3);
                reset_at_close(b.stream);
                accept_stream();
        } else {
                send_datagram(2, 6);
                send_datagram(0, 4);
                send_datagram(FRAME_BYTES, 50);
                send_datagram(FRAME_BYTES, 4 + FRAME_BYTES);
                turns_until(3);
        }
        assert_fields(ros_counts(b.core), impossible, 2, left_over, 1);
        assert_stats(b.sample.stats, front_end_gaps, 1, front_end_frames, 3);
        assert_false(front_end_is_unreliable(b.front_end));
        bench_close(NULL);
}

/* Bytes before the first frame are no gap, others are, once for each time. */
FRONT_END_TEST(a_marker_finds_the_next_frame, true, "length 2:8 marker 4142", .offset_bytes = 3, .bits = 16)
{
        accept_stream();
        send_bytes("xxAB\6\0\0z", 8);
        turns_until(1);
        assert_int_equal(stats_get(&b.sample.stats->front_end_gaps), 0);
        send_bytes("AB\2AB\1xyzAB\6\1\0y", 15);
        turns_until(2);
        assert_stats(b.sample.stats, front_end_gaps, 1, packets_malformed, 1);
        assert_int_equal(ros_counts(b.core)->impossible, 0);
}

/* The end of a stream ends the last frame. */
FRONT_END_TEST(marked_frames_last_until_the_next_one, true, "marker 4142 skip 1")
{
        accept_stream();
        send_bytes("ABxABABxyA", 10);
        turns_until(2);
        close_stream();
        turns_until(3);
        assert_memory_equal(b.buffer, "Bx", 2);
        assert_stats(b.sample.stats, front_end_gaps, 0, front_end_frames, 3);
}

/* Without a marker, the connection ends. */
FRONT_END_TEST(an_impossible_length_ends_the_connection, true, "length 0:8 plus 0")
{
        accept_stream();
        send_bytes("\2a\0", 3);
        turns_until(1);
        turns_until_down();
        assert_int_equal(stats_get(&b.sample.stats->packets_malformed), 1);
}

/* A datagram is used as a whole or not at all. */
FRONT_END_TEST(a_datagram_has_whole_frames, false, "length 0:8 skip 1")
{
        send_bytes("\3ab\2c", 5);
        turns_until(2);
        send_bytes("\3ab\3c", 5);
        send_bytes("\0", 1);
        send_bytes("\1", 1);
        turns_until(3);
        assert_stats(b.sample.stats, front_end_gaps, 2, packets_malformed, 2);
        assert_memory_equal(b.buffer, "ab", 2);
}

/* The board closed the connection: the ROS does not wait for its return. */
TEST_WITH(the_last_slice_of_a_stream_closes, NULL, bench_close)
{
        struct slicer_config c = {
                .slice_ns = NS_PER_MS,
                .window_ns = NS_PER_MS,
                .tick_ns = 1000,
                .bits = 64,
                .frames_max = 10,
                .buffer_bytes = 2 * (uint64_t)EVB_FRAGMENT_MAX_BYTES,
                .idle_max_ns = NS_PER_MS,
        };
        static const uint8_t frame[12] = {8};
        struct slicer *slicer;

        bench_open_numbered(true, &(struct number_field){.bits = 64});
        assert_int_equal(slicer_new(&slicer, &c), 0);
        front_end_collect(b.front_end, slicer, NULL, NULL);
        accept_stream();
        assert_int_equal(send(b.stream, frame, sizeof frame, 0), sizeof frame);
        turns_until(1);
        close_stream();
        turns_until_down();
        assert_int_equal(stats_get(&b.sample.stats->front_end_frames), 0);
        assert_int_equal(front_end_deadline_ns(b.front_end), b.now_ns + 2 * NS_PER_MS);
        b.now_ns += 2 * NS_PER_MS;
        turn();
        assert_int_equal(stats_get(&b.sample.stats->front_end_frames), 1);
}
