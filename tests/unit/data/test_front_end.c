/* Frames of a front-end that the test plays: which frames are counted, which losses are gaps, and that floods
 * and errors do not stall the ROS. */
#include "../test.h"

#include <errno.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>

#include "evb/data/front_end.h"
#include "evb/net/endpoint.h"
#include "evb/net/tcp.h"
#include "data_sample.h"

#define HOST SAMPLE_NET ".2"
#define FRAME_BYTES 100u
#define ENTRIES 256

static bool flood;        /* the sockets deliver endless data */
static unsigned receives; /* calls to the kernel */
static uint64_t received_bytes;
static int fail_adds; /* number of next additions to the loop that fail */
static int last_wakes;

int __real_recvmmsg(int fd, struct mmsghdr *messages, unsigned n, int flags, struct timespec *timeout);
int __wrap_recvmmsg(int fd, struct mmsghdr *messages, unsigned n, int flags, struct timespec *timeout);
ssize_t __real_recv(int fd, void *to, size_t n, int flags);
ssize_t __wrap_recv(int fd, void *to, size_t n, int flags);
int __real_epoll_ctl(int epoll, int operation, int fd, struct epoll_event *event);
int __wrap_epoll_ctl(int epoll, int operation, int fd, struct epoll_event *event);
int __real_epoll_pwait2(int epoll, struct epoll_event *events, int n, const struct timespec *timeout,
                        const sigset_t *mask);
int __wrap_epoll_pwait2(int epoll, struct epoll_event *events, int n, const struct timespec *timeout,
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

ssize_t __wrap_recv(int fd, void *to, size_t n, int flags)
{
        if (!flood)
                return __real_recv(fd, to, n, flags);
        received_bytes += n;
        if (received_bytes > UINT64_C(1) << 30)
                fail_msg("a turn does not end during a flood");
        for (size_t i = 0; i < n; i++)
                ((uint8_t *)to)[i] = i % 4 == 2 ? 8 : 0; /* lengths of 512 KiB */
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

struct bench {
        struct sample sample;
        struct front_end *front_end;
        struct ros *core;
        uint8_t *buffer;
        uint64_t now_ns;
        int listener, stream;    /* TCP */
        struct endpoint *sender; /* UDP */
};

static int listen_at(struct bench *b, char *at, size_t size)
{
        struct net_address local;
        char text[NET_ADDRESS_TEXT_MAX];

        assert_int_equal(net_address_parse(&local, HOST, 0), 0);
        b->listener = tcp_listen(&local, 0);
        assert_true(b->listener >= 0);
        assert_int_equal(getsockname(b->listener, &local.any, &local.size_bytes), 0);
        snprintf(at, size, "%s", net_address_format(&local, text));
        return 0;
}

static void bench_open(struct bench *b, bool tcp)
{
        struct ros_config config = {.member = {.incarnation = SAMPLE_INCARNATION},
                                    .n_sfi = 2,
                                    .entries = ENTRIES,
                                    .buffer_bytes = EVB_FRAGMENT_MAX_BYTES,
                                    .keep_alive_ns = NS_PER_S};
        struct udp_config sender = {.send_buffer_bytes = 1 << 20};
        struct net_address local;
        char at[NET_ADDRESS_TEXT_MAX] = "46912";

        *b = (struct bench){
                .now_ns = NS_PER_S, .listener = -1, .stream = -1, .buffer = calloc(1, config.buffer_bytes)};
        flood = false;
        receives = 0;
        received_bytes = 0;
        sample_open(&b->sample, "ros1", "udp");
        assert_int_equal(ros_new(&b->core, &config, b->now_ns), 0);
        assert_true(ros_receive(b->core, b->now_ns, sample_welcome()));
        assert_int_equal(net_address_parse(&local, HOST, 0), 0);
        if (tcp)
                listen_at(b, at, sizeof at);
        assert_int_equal(front_end_new(&b->front_end, tcp, at, &local, b->sample.loop, b->core, b->buffer,
                                       b->sample.stats),
                         0);
        if (tcp)
                return;
        local.v4.sin_port = htons(46912);
        sender.connect = &local;
        assert_int_equal(net_address_parse(&sender.local, HOST, 0), 0);
        assert_int_equal(endpoint_new_udp(&b->sender, &sender), 0);
}

static void bench_close(struct bench *b)
{
        front_end_free(b->front_end);
        endpoint_free(b->sender);
        ros_free(b->core);
        sample_close(&b->sample);
        free(b->buffer);
        if (b->listener >= 0)
                close(b->listener);
        if (b->stream >= 0)
                close(b->stream);
}

/* One pass of the ROS's loop. */
static void turn(struct bench *b)
{
        assert_int_equal(loop_wait(b->sample.loop, clock_now_ns() + NS_PER_MS), 0);
        front_end_turn(b->front_end, b->now_ns);
}

static void turns_until(struct bench *b, uint64_t frames)
{
        for (int i = 0; i < 20000 && front_end_frames(b->front_end) < frames; i++)
                turn(b);
        assert_int_equal(front_end_frames(b->front_end), frames);
}

static void send_datagram(struct bench *b, uint32_t length, size_t bytes)
{
        uint8_t frame[2000] = {(uint8_t)length, (uint8_t)(length >> 8)};
        struct iovec iov = {frame, bytes};

        assert_int_equal(endpoint_send(b->sender, &(struct outgoing){&iov, 1, (uint32_t)bytes, NULL}, 1), 1);
}

static void accept_stream(struct bench *b)
{
        struct net_address peer;

        if (b->stream >= 0)
                close(b->stream);
        b->stream = -1;
        for (int i = 0; i < 20000 && b->stream < 0; i++) {
                b->now_ns += NS_PER_MS;
                turn(b);
                b->stream = tcp_accept(b->listener, 0, &peer);
        }
        assert_true(b->stream >= 0);
}

static void send_frames(struct bench *b, int n)
{
        static const uint8_t frame[4 + FRAME_BYTES] = {FRAME_BYTES};

        for (int i = 0; i < n; i++)
                assert_int_equal(send(b->stream, frame, sizeof frame, 0), sizeof frame);
}

static void reset_at_close(int fd)
{
        struct linger linger = {.l_onoff = 1};

        assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger), 0);
}

/* The DFM reports that all events below `oldest` have ended, so the ROS releases them. */
static void clear_below(struct bench *b, uint64_t oldest)
{
        static struct message m;

        m.header = (struct message_header){.cookie = SAMPLE_COOKIE,
                                           .sender_role = ROLE_DFM,
                                           .type = MESSAGE_KEEP_ALIVE,
                                           .transaction = (uint32_t)oldest};
        m.dfm = SAMPLE_DFM;
        m.keep_alive.state = RUN_RUNNING;
        m.keep_alive.oldest = m.keep_alive.triggers = oldest;
        assert_true(ros_receive(b->core, b->now_ns, &m));
}

static void datagrams_are_counted(void **state)
{
        struct bench b;

        (void)state;
        bench_open(&b, false);
        for (int i = 0; i < 100; i++)
                send_datagram(&b, FRAME_BYTES, 4 + FRAME_BYTES);
        turns_until(&b, 100);
        assert_false(front_end_is_unreliable(b.front_end));
        assert_false(front_end_is_quiet(b.front_end, b.now_ns));
        b.now_ns += 200 * NS_PER_MS;
        turn(&b);
        assert_true(front_end_is_quiet(b.front_end, b.now_ns));
        /* A frame that does not fit keeps its number, so it is not a gap. */
        for (int i = 0; i < ENTRIES; i++)
                send_datagram(&b, FRAME_BYTES, 4 + FRAME_BYTES);
        turns_until(&b, 100 + ENTRIES);
        assert_int_equal(ros_counts(b.core)->source_lost, 100);
        assert_false(front_end_is_unreliable(b.front_end));
        bench_close(&b);
}

static void a_malformed_datagram_is_a_gap(void **state)
{
        struct bench b;

        (void)state;
        bench_open(&b, false);
        send_datagram(&b, FRAME_BYTES, 4 + FRAME_BYTES);
        send_datagram(&b, FRAME_BYTES, 50);
        send_datagram(&b, FRAME_BYTES, 0);
        send_datagram(&b, FRAME_BYTES, 4 + FRAME_BYTES);
        turns_until(&b, 2);
        assert_true(front_end_is_unreliable(b.front_end));
        assert_int_equal(stats_get(&b.sample.stats->front_end_gaps), 2);
        assert_int_equal(stats_get(&b.sample.stats->packets_malformed), 2);
        bench_close(&b);
}

/* Each datagram that the kernel drops is a gap. A later datagram, or else the socket, reports it. */
static void a_full_socket_is_a_gap(void **state)
{
        struct bench b;
        uint64_t sent = 0;

        (void)state;
        bench_open(&b, false);
        clear_below(&b, 1000000);
        for (int i = 0; i < 60000; i++, sent++)
                send_datagram(&b, 1000, 1004);
        for (int i = 0; i < 20000 && (i == 0 || !front_end_is_quiet(b.front_end, b.now_ns)); i++) {
                b.now_ns += NS_PER_MS;
                turn(&b);
        }
        assert_true(front_end_frames(b.front_end) < sent);
        assert_int_equal(front_end_frames(b.front_end) + stats_get(&b.sample.stats->front_end_gaps), sent);
        assert_int_equal(stats_get(&b.sample.stats->packets_socket_dropped),
                         stats_get(&b.sample.stats->front_end_gaps));
        assert_true(front_end_is_unreliable(b.front_end));
        bench_close(&b);
}

static void a_broken_frame_is_a_gap_but_an_orderly_end_is_not(void **state)
{
        struct bench b;

        (void)state;
        bench_open(&b, true);
        accept_stream(&b);
        send_frames(&b, 10);
        turns_until(&b, 10);
        accept_stream(&b); /* an orderly end between two frames, then a new connection */
        send_frames(&b, 10);
        turns_until(&b, 20);
        assert_false(front_end_is_unreliable(b.front_end));
        assert_int_equal(send(b.stream, "\x05\0\0\0ab", 6, 0), 6);
        accept_stream(&b);
        turns_until(&b, 21); /* the broken frame keeps its number */
        assert_int_equal(stats_get(&b.sample.stats->front_end_gaps), 1);
        send_frames(&b, 10);
        turns_until(&b, 31);
        /* A reset may have lost frames. */
        reset_at_close(b.stream);
        accept_stream(&b);
        assert_int_equal(stats_get(&b.sample.stats->front_end_gaps), 2);
        assert_int_equal(front_end_frames(b.front_end), 31);
        bench_close(&b);
}

/* A connection that cannot be added to the loop is retried. */
static void a_failed_connection_is_retried(void **state)
{
        struct bench b;

        (void)state;
        bench_open(&b, true);
        fail_adds = 3;
        for (int i = 0; i < 10000 && fail_adds > 0; i++) {
                b.now_ns += NS_PER_MS;
                turn(&b);
                assert_true(front_end_deadline_ns(b.front_end) < NEVER_NS || fail_adds == 0);
        }
        assert_int_equal(fail_adds, 0);
        /* Connections without a frame are no gap. */
        accept_stream(&b);
        for (int i = 0; i < 3; i++)
                accept_stream(&b);
        send_frames(&b, 1);
        turns_until(&b, 1);
        assert_false(front_end_is_unreliable(b.front_end));
        bench_close(&b);
}

/* The buffer is full and the front-end has closed the stream: this must not wake the loop until there is
 * room. */
static void a_paused_stream_does_not_wake_the_loop(void **state)
{
        struct bench b;

        (void)state;
        bench_open(&b, true);
        accept_stream(&b);
        send_frames(&b, ENTRIES + 20);
        turns_until(&b, ENTRIES);
        turn(&b);
        reset_at_close(b.stream);
        close(b.stream);
        b.stream = -1;
        for (int i = 0; i < 20; i++) {
                assert_int_equal(loop_wait(b.sample.loop, clock_now_ns() + NS_PER_MS), 0);
                assert_int_equal(last_wakes, 0);
        }
        assert_int_equal(front_end_deadline_ns(b.front_end), b.now_ns + NS_PER_MS);
        assert_false(front_end_is_quiet(b.front_end, b.now_ns + NS_PER_S));
        clear_below(&b, ENTRIES);
        b.now_ns += NS_PER_S;
        turns_until(&b, ENTRIES + 20);
        bench_close(&b);
}

static void a_flood_of_datagrams_does_not_prolong_a_turn(void **state)
{
        struct bench b;

        (void)state;
        bench_open(&b, false);
        send_datagram(&b, FRAME_BYTES, 4 + FRAME_BYTES);
        assert_int_equal(loop_wait(b.sample.loop, clock_now_ns() + NS_PER_S), 0);
        flood = true;
        front_end_turn(b.front_end, b.now_ns);
        assert_in_range(receives, 1, 128);
        assert_true(front_end_frames(b.front_end) > 0);
        assert_int_equal(front_end_deadline_ns(b.front_end), 0); /* the rest follows in the next turn */
        bench_close(&b);
}

static void a_flooding_stream_does_not_prolong_a_turn(void **state)
{
        struct bench b;

        (void)state;
        bench_open(&b, true);
        clear_below(&b, 1000000);
        accept_stream(&b);
        send_frames(&b, 1);
        turns_until(&b, 1);
        send_frames(&b, 1);
        assert_int_equal(loop_wait(b.sample.loop, clock_now_ns() + NS_PER_S), 0);
        flood = true;
        front_end_turn(b.front_end, b.now_ns);
        assert_true(received_bytes <= 8 << 20);
        assert_true(front_end_frames(b.front_end) > 2);
        assert_int_equal(front_end_deadline_ns(b.front_end), 0);
        flood = false;
        bench_close(&b);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(datagrams_are_counted),
                cmocka_unit_test(a_malformed_datagram_is_a_gap),
                cmocka_unit_test(a_full_socket_is_a_gap),
                cmocka_unit_test(a_broken_frame_is_a_gap_but_an_orderly_end_is_not),
                cmocka_unit_test(a_failed_connection_is_retried),
                cmocka_unit_test(a_paused_stream_does_not_wake_the_loop),
                cmocka_unit_test(a_flood_of_datagrams_does_not_prolong_a_turn),
                cmocka_unit_test(a_flooding_stream_does_not_prolong_a_turn),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
