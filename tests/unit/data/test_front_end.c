/* Frames of a front-end that the test plays: which frames are counted, which losses are gaps, and that floods
 * and errors do not stall the ROS. */
#include "busy_sockets.h"
#include "front_end_bench.h"
#include "log_lines.h"

#include <linux/sockios.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <time.h>

static bool flood;        /* the sockets deliver endless data */
static unsigned receives; /* calls to the kernel */
static uint64_t received_bytes;
static int fail_adds; /* number of next additions to the loop that fail */
static int last_wakes;

int __real_recvmmsg(int fd, struct mmsghdr *messages, unsigned n, int flags, struct timespec *timeout);
ssize_t __real_recvmsg(int fd, struct msghdr *h, int flags);
int __real_epoll_ctl(int epoll, int operation, int fd, struct epoll_event *event);
int __real_epoll_pwait2(int epoll, struct epoll_event *events, int n, const struct timespec *timeout,
                        const sigset_t *mask);

int __wrap_recvmmsg(int fd, struct mmsghdr *messages, unsigned n, int flags, struct timespec *timeout)
{
        static const uint8_t frame[4 + FRAME_BYTES] = {FRAME_BYTES};

        if (!flood)
                return __real_recvmmsg(fd, messages, n, flags, timeout);
        if (++receives > 10000)
                fail_msg("a turn does not end during a flood");
        for (unsigned i = 0; i < n; i++) {
                memcpy(messages[i].msg_hdr.msg_iov->iov_base, frame, sizeof frame);
                messages[i].msg_len = sizeof frame;
                messages[i].msg_hdr.msg_controllen = 0;
        }
        return (int)n;
}

ssize_t __wrap_recvmsg(int fd, struct msghdr *h, int flags)
{
        size_t n = 0;

        if (!flood)
                return __real_recvmsg(fd, h, flags);
        for (size_t i = 0; i < h->msg_iovlen; i++) {
                for (size_t k = 0; k < h->msg_iov[i].iov_len; k++, n++)
                        ((uint8_t *)h->msg_iov[i].iov_base)[k] = n % 4 == 2 ? 8 : 0; /* lengths of 512 KiB */
        }
        received_bytes += n;
        if (received_bytes > UINT64_C(1) << 30)
                fail_msg("a turn does not end during a flood");
        return (ssize_t)n;
}

int __wrap_epoll_ctl(int epoll, int operation, int fd, struct epoll_event *event)
{
        if (operation == EPOLL_CTL_ADD && fail_adds > 0) {
                fail_adds--;
                errno = ENOMEM;
                return -1;
        }
        return __real_epoll_ctl(epoll, operation, fd, event);
}

int __wrap_epoll_pwait2(int epoll, struct epoll_event *events, int n, const struct timespec *timeout,
                        const sigset_t *mask)
{
        return last_wakes = __real_epoll_pwait2(epoll, events, n, timeout, mask);
}

UDP_TEST(datagrams_are_counted)
{
        send_frames(100);
        turns_until(100);
        assert_false(front_end_is_unreliable(b.front_end));
        assert_false(front_end_is_quiet(b.front_end, b.now_ns));
        b.now_ns += 200 * NS_PER_MS;
        turn();
        assert_true(front_end_is_quiet(b.front_end, b.now_ns));
        /* A frame that does not fit keeps its number, so it is not a gap. */
        send_frames(ENTRIES);
        turns_until(100 + ENTRIES);
        assert_int_equal(ros_counts(b.core)->source_lost, 100);
        assert_false(front_end_is_unreliable(b.front_end));
}

/* The process is held up, and its loop has not looked at the socket since: frames that wait there come first.
 */
FRONT_END_TEST_EACH(a_front_end_is_not_silent_while_frames_wait, tcp, 2, tcp, FRAME_STANDARD)
{
        if (tcp)
                accept_stream();
        send_frames(1);
        turns_until(1);
        b.now_ns += NS_PER_MS;
        front_end_turn(b.front_end, b.now_ns);
        send_frames(1);
        b.now_ns += NS_PER_S;
        front_end_turn(b.front_end, b.now_ns);
        assert_false(front_end_is_quiet(b.front_end, b.now_ns));
        assert_int_equal(front_end_frames(b.front_end), 2);
        b.now_ns += NS_PER_S;
        front_end_turn(b.front_end, b.now_ns);
        assert_true(front_end_is_quiet(b.front_end, b.now_ns));
}

UDP_TEST(a_malformed_datagram_is_a_gap)
{
        send_frames(1);
        send_datagram(FRAME_BYTES, 50);
        send_datagram(FRAME_BYTES, 0);
        send_frames(1);
        turns_until(2);
        assert_true(front_end_is_unreliable(b.front_end));
        assert_stats(b.sample.stats, front_end_gaps, 2, packets_malformed, 2);
}

/* Each datagram that the kernel drops is a gap. A later datagram, or else the socket, reports it. */
UDP_TEST(a_full_socket_is_a_gap)
{
        uint64_t sent = 0;

        clear_below(1000000);
        for (int i = 0; i < 60000; i++, sent++)
                send_datagram(1000, 1004);
        for (int i = 0; i < 20000 && (i == 0 || !front_end_is_quiet(b.front_end, b.now_ns)); i++) {
                b.now_ns += NS_PER_MS;
                turn();
        }
        assert_true(front_end_frames(b.front_end) < sent);
        assert_int_equal(front_end_frames(b.front_end) + stats_get(&b.sample.stats->front_end_gaps), sent);
        assert_int_equal(stats_get(&b.sample.stats->packets_socket_dropped),
                         stats_get(&b.sample.stats->front_end_gaps));
        assert_true(front_end_is_unreliable(b.front_end));
}

TCP_TEST(a_broken_frame_is_a_gap_but_an_orderly_end_is_not)
{
        accept_stream();
        send_frames(10);
        turns_until(10);
        accept_stream(); /* an orderly end between two frames, then a new connection */
        send_frames(10);
        turns_until(20);
        assert_false(front_end_is_unreliable(b.front_end));
        assert_int_equal(send(b.stream, "\x05\0\0\0ab", 6, 0), 6);
        accept_stream();
        turns_until(21); /* the broken frame keeps its number */
        assert_int_equal(stats_get(&b.sample.stats->front_end_gaps), 1);
        send_frames(10);
        turns_until(31);
        /* A reset may have lost frames. */
        reset_at_close(b.stream);
        accept_stream();
        assert_int_equal(stats_get(&b.sample.stats->front_end_gaps), 2);
        assert_int_equal(front_end_frames(b.front_end), 31);
}

/* Waits until the ROS's socket has all that was sent. */
static void wait_for_bytes(void)
{
        int n = 1;

        for (int i = 0; i < 20000 && n > 0; i++) {
                nanosleep(&(struct timespec){.tv_nsec = NS_PER_MS}, NULL);
                assert_int_equal(ioctl(b.stream, SIOCOUTQ, &n), 0);
        }
        assert_int_equal(n, 0);
}

/* As close_role() and open_front_end() of a ROS. Returns whether frames waited. */
static bool begin_next_run(const uint8_t *waiting, size_t n)
{
        struct front_end *from = front_end_rest(b.front_end);

        assert_non_null(from);
        ros_free(b.core);
        if (n > 0)
                send_bytes(waiting, n);
        wait_for_bytes();
        return begin_run(from);
}

#define WAITING (3 * (4 + FRAME_BYTES))

/* The connection stays. Of the bytes of three frames, `read` are read in a run, and `waiting` have come when
 * the next run begins. The frames that begin in them are in no run, and count once. */
FRONT_END_TEST_EACH(a_connection_stays_between_runs, i, 14, true, FRAME_STANDARD, .bits = i % 2 ? 32 : 0)
{
        static const size_t ends[][2] = {{0, 0},  {2, 0},     {50, 0},        {0, 2},
                                         {50, 4}, {104, 104}, {104 + 50, 158}};
        uint8_t frames[WAITING] = {};
        size_t read = ends[i / 2][0], waiting = ends[i / 2][1];
        uint64_t whole = read / 104, begun;
        struct net_address peer;

        for (size_t k = 0; k < WAITING; k += 4 + FRAME_BYTES)
                frames[k] = FRAME_BYTES;
        accept_stream();
        if (read > 0)
                send_bytes(frames, read);
        wait_for_bytes();
        turn();
        assert_int_equal(front_end_frames(b.front_end), whole);
        begun = DIV_ROUND_UP(read + waiting, 104) - whole;
        assert_int_equal(begin_next_run(frames + read, waiting), waiting > 0);
        if (waiting > 0)
                front_end_miss_frames(b.front_end, b.now_ns);
        turn();
        assert_false(front_end_is_between(b.front_end));
        send_bytes(frames + read + waiting, WAITING - read - waiting);
        wait_for_bytes();
        turn();
        assert_int_equal(front_end_frames(b.front_end), 3 - whole - begun);
        assert_int_equal(tcp_accept(b.listener, 0, &peer), -EAGAIN);
        assert_int_equal(stats_get(&b.sample.stats->front_end_gaps), begun);
        assert_int_equal(stats_get(&b.sample.stats->front_end_frames), 3 - begun);
        assert_int_equal(front_end_is_unreliable(b.front_end), waiting > 0 && i % 2 == 0);
}

/* The buffer was full at the end of a run, so frames of the board still waited. All that it sends until it is
 * silent is in no run; if it never is (`on`), all that it sends for a second. */
FRONT_END_TEST_EACH(a_full_stream_is_read_before_the_next_run, on, 2, true, FRAME_STANDARD)
{
        uint64_t begin_ns, sent = 0;

        accept_stream();
        send_frames(ENTRIES + 50);
        wait_for_bytes();
        turns_until(ENTRIES);
        turn();
        (void)begin_next_run(NULL, 0);
        begin_ns = b.now_ns;
        log_lines = 0;
        for (; front_end_is_between(b.front_end); b.now_ns += 100 * NS_PER_MS) {
                if (on || sent < 3) {
                        send_frames(1);
                        sent++;
                }
                wait_for_bytes();
                turn();
                assert_true(b.now_ns <= begin_ns + NS_PER_S);
                if (front_end_is_between(b.front_end))
                        assert_true(front_end_deadline_ns(b.front_end) <= b.now_ns + 200 * NS_PER_MS);
        }
        assert_int_equal(b.now_ns - begin_ns, (on ? 11 : 5) * 100 * NS_PER_MS);
        assert_int_equal(front_end_frames(b.front_end), 0);
        assert_int_equal(stats_get(&b.sample.stats->front_end_gaps), 50 + sent);
        assert_true(front_end_is_unreliable(b.front_end));
        assert_int_equal(log_lines, 1 + on);
        send_frames(5);
        turns_until(5);
}

/* If frames make the triggers, the boards must not run apart, so only what waits is discarded. */
TCP_TEST(a_full_stream_goes_on_if_frames_make_the_triggers)
{
        bench_follows = false;
        accept_stream();
        send_frames(ENTRIES + 50);
        wait_for_bytes();
        turns_until(ENTRIES);
        turn();
        (void)begin_next_run(NULL, 0);
        bench_follows = true;
        turn();
        assert_false(front_end_is_between(b.front_end));
        assert_int_equal(stats_get(&b.sample.stats->front_end_gaps), 50);
        send_frames(5);
        turns_until(5);
}

/* This process is held up, and the frames come meanwhile. */
TCP_TEST(a_pause_of_the_process_does_not_end_the_wait)
{
        accept_stream();
        send_frames(ENTRIES + 50);
        wait_for_bytes();
        turns_until(ENTRIES);
        turn();
        (void)begin_next_run(NULL, 0);
        turn();
        send_frames(5);
        wait_for_bytes();
        b.now_ns += 3 * NS_PER_S;
        turn();
        assert_true(front_end_is_between(b.front_end));
        assert_int_equal(stats_get(&b.sample.stats->front_end_gaps), 55);
        b.now_ns += 200 * NS_PER_MS;
        turn();
        assert_false(front_end_is_between(b.front_end));
}

/* The socket stays, with what comes between the runs: two frames in a datagram, a malformed datagram. */
FRONT_END_TEST_EACH(a_socket_for_datagrams_stays_between_runs, i, 4, false, FRAME_STANDARD,
                    .bits = i % 2 ? 32 : 0)
{
        static const uint8_t two[2 * (4 + FRAME_BYTES)] = {FRAME_BYTES, [4 + FRAME_BYTES] = FRAME_BYTES};
        bool waiting = i / 2;
        struct front_end *from;

        send_frames(3);
        turns_until(3);
        from = front_end_rest(b.front_end);
        assert_non_null(from);
        ros_free(b.core);
        if (waiting) {
                send_bytes(two, sizeof two);
                send_datagram(FRAME_BYTES, 50);
        }
        assert_int_equal(begin_run(from), waiting);
        turn();
        assert_false(front_end_is_between(b.front_end));
        assert_int_equal(front_end_frames(b.front_end), 0);
        send_frames(4);
        turns_until(4);
        assert_int_equal(stats_get(&b.sample.stats->front_end_gaps), waiting ? 3 : 0);
        assert_int_equal(front_end_is_unreliable(b.front_end), waiting && i % 2 == 0);
}

static void join_run(uint32_t progress)
{
        static struct message welcome;

        welcome = *sample_welcome();
        welcome.header.transaction = progress;
        assert_true(ros_receive(b.core, b.now_ns, &welcome));
}

static void open_unjoined(bool tcp, unsigned bits)
{
        bench_joins = false;
        bench_open_as(tcp, FRAME_STANDARD, &(struct number_field){.bits = (uint8_t)bits});
        bench_joins = true;
}

/* Of two frames, `early` bytes come before the ROS joins a later run, and are read before that (`read`) or
 * with the Welcome. The run is unreliable if they begin a frame that it counts. */
TEST_EACH_BETWEEN(a_frame_that_begins_before_a_later_run_is_a_gap, i, 32, open_unjoined(true, i % 2 ? 32 : 0),
                  bench_close(NULL))
{
        static const size_t ends[] = {0, 2, 50, 104};
        uint8_t frames[2 * (4 + FRAME_BYTES)] = {FRAME_BYTES, [4 + FRAME_BYTES] = FRAME_BYTES};
        bool numbered = i % 2, read = i / 2 % 2, later = i / 4 % 2;
        size_t early = ends[i / 8];

        accept_stream();
        turn();
        if (early > 0)
                send_bytes(frames, early);
        wait_for_bytes();
        if (read)
                turn();
        join_run(later ? WELCOME_FOLLOWS : 0);
        front_end_turn(b.front_end, b.now_ns);
        send_bytes(frames + early, sizeof frames - early);
        turns_until(2);
        assert_int_equal(front_end_is_unreliable(b.front_end), early > 0 && later && !numbered);
}

TEST_EACH_BETWEEN(a_datagram_that_comes_before_a_later_run_is_a_gap, i, 8,
                  open_unjoined(false, i % 2 ? 32 : 0), bench_close(NULL))
{
        bool numbered = i % 2, early = i / 2 % 2, later = i / 4;

        turn();
        send_frames(early);
        join_run(later ? WELCOME_FOLLOWS : 0);
        front_end_turn(b.front_end, b.now_ns);
        send_frames(2 - early);
        turns_until(2);
        assert_int_equal(front_end_is_unreliable(b.front_end), early && later && !numbered);
}

/* Before the run begins, a board sends no frame, so none is lost with its connection. */
FRONT_END_TEST_EACH(a_connection_may_break_before_the_run, i, 4, true, FRAME_STANDARD, .bits = i % 2 ? 32 : 0)
{
        bool sends = i / 2;

        accept_stream();
        turn();
        assert_false(begin_next_run(NULL, 0));
        turn();
        if (sends)
                send_frames(1);
        turns_until(sends);
        reset_at_close(b.stream);
        accept_stream();
        assert_int_equal(stats_get(&b.sample.stats->front_end_gaps), sends);
        assert_int_equal(front_end_is_unreliable(b.front_end), sends && i % 2 == 0);
}

/* The last frame came together with the end of the connection. */
TCP_TEST(a_board_that_refuses_connections_is_quiet)
{
        accept_stream();
        send_frames(1);
        close_stream();
        close(b.listener);
        b.listener = -1;
        turns_until(1);
        for (int i = 0; i < 40; i++) {
                b.now_ns += 500 * NS_PER_MS;
                for (int k = 0; k < 3; k++)
                        turn();
                assert_true(front_end_is_quiet(b.front_end, b.now_ns));
        }
}

/* It ends in a frame of the previous run, which this run has not lost. */
TCP_TEST(a_connection_ends_between_runs)
{
        accept_stream();
        send_bytes("\x64\0\0\0frame", 9);
        wait_for_bytes();
        turn();
        assert_false(begin_next_run(NULL, 0));
        accept_stream();
        send_frames(1);
        turns_until(1);
        assert_false(front_end_is_unreliable(b.front_end));
        assert_int_equal(stats_get(&b.sample.stats->front_end_gaps), 1);
}

TEST(a_connection_is_polled_if_configured)
{
        busy_sockets_begin();
        bench_open_numbered(true, &(struct number_field){});
        accept_stream();
        assert_int_equal(busy_sockets(), 1);
        bench_close(NULL);
        socket_set_busy_poll(0);
}

/* A connection that cannot be added to the loop is retried. */
TCP_TEST(a_failed_connection_is_retried)
{
        fail_adds = 3;
        for (int i = 0; i < 10000 && fail_adds > 0; i++) {
                b.now_ns += NS_PER_MS;
                turn();
                assert_true(front_end_deadline_ns(b.front_end) < NEVER_NS || fail_adds == 0);
        }
        assert_int_equal(fail_adds, 0);
        /* Connections without a frame are no gap. */
        accept_stream();
        for (int i = 0; i < 3; i++)
                accept_stream();
        send_frames(1);
        turns_until(1);
        assert_false(front_end_is_unreliable(b.front_end));
}

/* The buffer is full and the front-end has closed the stream: this must not wake the loop until there is
 * room. */
TCP_TEST(a_paused_stream_does_not_wake_the_loop)
{
        accept_stream();
        send_frames(ENTRIES + 20);
        turns_until(ENTRIES);
        turn();
        reset_at_close(b.stream);
        close_stream();
        for (int i = 0; i < 20; i++) {
                assert_int_equal(loop_wait(b.sample.loop, clock_now_ns() + NS_PER_MS), 0);
                assert_int_equal(last_wakes, 0);
        }
        assert_int_equal(front_end_deadline_ns(b.front_end), b.now_ns + NS_PER_MS);
        assert_false(front_end_is_quiet(b.front_end, b.now_ns + NS_PER_S));
        clear_below(ENTRIES);
        b.now_ns += NS_PER_S;
        turns_until(ENTRIES + 20);
}

/* A frame that finds no room and a malformed datagram have a line each, and another one after a pause. */
UDP_TEST(each_fault_is_logged)
{
        static const struct {
                unsigned at_s, lines;
        } times[] = {{1, 2}, {6, 2}, {15, 2}, {25, 4}, {26, 4}};

        for (uint64_t i = 0; i < ENTRIES; i++) {
                send_frames(1);
                turns_until(i + 1);
        }
        log_lines = 0;
        for (uint64_t i = 0; i < ARRAY_SIZE(times); i++) {
                b.now_ns = times[i].at_s * NS_PER_S;
                send_datagram(FRAME_BYTES, 50);
                send_frames(1);
                turns_until(ENTRIES + i + 1);
                assert_int_equal(log_lines, times[i].lines);
        }
}

UDP_TEST(a_flood_of_datagrams_does_not_prolong_a_turn)
{
        send_frames(1);
        assert_int_equal(loop_wait(b.sample.loop, clock_now_ns() + NS_PER_S), 0);
        receives = 0;
        flood = true;
        front_end_turn(b.front_end, b.now_ns);
        flood = false;
        assert_in_range(receives, 1, 128);
        assert_true(front_end_frames(b.front_end) > 0);
        assert_int_equal(front_end_deadline_ns(b.front_end), 0); /* the rest follows in the next turn */
}

TCP_TEST(a_flooding_stream_does_not_prolong_a_turn)
{
        clear_below(1000000);
        accept_stream();
        send_frames(1);
        turns_until(1);
        send_frames(1);
        assert_int_equal(loop_wait(b.sample.loop, clock_now_ns() + NS_PER_S), 0);
        flood = true;
        front_end_turn(b.front_end, b.now_ns);
        assert_true(received_bytes <= 8 << 20);
        assert_true(front_end_frames(b.front_end) > 2);
        assert_int_equal(front_end_deadline_ns(b.front_end), 0);
        flood = false;
}
