/* A front-end that the test plays, with the ROS's core and buffer behind it. */
#pragma once

#include "../test.h"

#include <sys/socket.h>

#include "data/front_end.h"
#include "net/endpoint.h"
#include "net/tcp.h"
#include "data_sample.h"

#define HOST sample_at(2)
#define FRAME_BYTES 100u
#define ENTRIES 256

static struct bench {
        struct sample sample;
        struct front_end *front_end;
        struct ros *core;
        uint8_t *buffer;
        struct ros_config config;
        struct front_end_layout layout;
        struct net_address local;
        char at[NET_ADDRESS_TEXT_MAX];
        bool tcp;
        uint64_t now_ns;
        int listener, stream;    /* TCP */
        struct endpoint *sender; /* UDP */
} b;

static bool bench_announces; /* frames make the triggers */
static bool bench_follows = true;
static bool bench_joins = true; /* the ROS joins a run before it opens its front-end */

static inline void listen_at(char at[static NET_ADDRESS_TEXT_MAX])
{
        struct net_address local = b.local;

        b.listener = tcp_listen(&local, 0);
        assert_true(b.listener >= 0);
        assert_int_equal(getsockname(b.listener, &local.any, &local.size_bytes), 0);
        net_address_format(&local, at);
}

/* Opens the core and the front-end of a run, which takes over the socket that `from` kept. Returns whether
 * frames wait in it. */
static inline bool begin_run(struct front_end *from)
{
        int r;

        assert_int_equal(ros_new(&b.core, &b.config, b.now_ns), 0);
        if (bench_joins)
                assert_true(ros_receive(b.core, b.now_ns, sample_welcome()));
        assert_int_equal(front_end_new(&b.front_end, b.tcp, &b.layout, &b.local, b.sample.loop, b.core,
                                       b.buffer, b.sample.stats),
                         0);
        r = from ? front_end_go_on(b.front_end, from, true, bench_follows, b.now_ns)
                 : front_end_open(b.front_end, b.at, true);
        assert_true(r >= 0);
        return r > 0;
}

static inline void bench_open_as(bool tcp, const char *frame, const struct number_field *number)
{
        struct udp_config sender = {.send_buffer_bytes = 1 << 20};
        struct net_address local;

        b = (struct bench){.now_ns = NS_PER_S,
                           .listener = -1,
                           .stream = -1,
                           .buffer = calloc(1, EVB_FRAGMENT_MAX_BYTES),
                           .layout = {.number = *number},
                           .config = {.number_period = number_field_period(number),
                                      .member = {.incarnation = SAMPLE_INCARNATION},
                                      .n_sfi = 2,
                                      .entries = ENTRIES,
                                      .buffer_bytes = EVB_FRAGMENT_MAX_BYTES,
                                      .keep_alive_ns = NS_PER_S,
                                      .announces = bench_announces,
                                      .leads = bench_announces,
                                      .message_bytes = 1400},
                           .at = "46912",
                           .tcp = tcp};
        assert_null(frame_rule_parse(&b.layout.frame, frame));
        sample_open(&b.sample, "ros1", "udp");
        assert_int_equal(net_address_parse(&b.local, HOST, 0), 0);
        if (tcp)
                listen_at(b.at);
        (void)begin_run(NULL);
        if (tcp)
                return;
        local = b.local;
        local.v4.sin_port = htons(46912);
        sender.connect = &local;
        assert_int_equal(net_address_parse(&sender.local, HOST, 0), 0);
        assert_int_equal(endpoint_new_udp(&b.sender, &sender), 0);
}

static inline void bench_open_numbered(bool tcp, const struct number_field *number)
{
        bench_open_as(tcp, FRAME_STANDARD, number);
}

static inline void close_stream(void)
{
        if (b.stream >= 0)
                close(b.stream);
        b.stream = -1;
}

static inline int bench_close(void **state)
{
        front_end_free(b.front_end);
        endpoint_free(b.sender);
        ros_free(b.core);
        sample_close(&b.sample);
        free(b.buffer);
        if (b.listener >= 0)
                close(b.listener);
        close_stream();
        return 0;
}

/* Tests of a front-end by TCP or UDP, for each `i` below `n` or once, with frames by this rule. The last
 * arguments are the fields of their numbers. */
#define FRONT_END_TEST_EACH(name, i, n, tcp, rule, ...)                                                      \
        TEST_EACH_BETWEEN(name, i, n, bench_open_as(tcp, rule, &(struct number_field){__VA_ARGS__}),         \
                          bench_close(NULL))
#define FRONT_END_TEST(name, tcp, rule, ...) FRONT_END_TEST_EACH(name, once, 1, tcp, rule, ##__VA_ARGS__)
#define UDP_TEST(name) FRONT_END_TEST(name, false, FRAME_STANDARD)
#define TCP_TEST(name) FRONT_END_TEST(name, true, FRAME_STANDARD)

/* One pass of the ROS's loop. */
static inline void turn(void)
{
        assert_int_equal(loop_wait(b.sample.loop, clock_now_ns() + NS_PER_MS), 0);
        front_end_turn(b.front_end, b.now_ns);
}

static inline void turns_until(uint64_t frames)
{
        for (int i = 0; i < 20000 && front_end_frames(b.front_end) < frames; i++)
                turn();
        assert_int_equal(front_end_frames(b.front_end), frames);
}

/* Sends as a datagram, or by the stream if there is one. */
static inline void send_bytes(const void *bytes, size_t n)
{
        struct iovec iov = {(void *)(uintptr_t)bytes, n};

        if (b.stream >= 0)
                assert_int_equal(send(b.stream, bytes, n, 0), n);
        else
                assert_int_equal(endpoint_send(b.sender, &(struct outgoing){&iov, 1, (uint32_t)n, NULL}, 1),
                                 1);
}

static inline void send_datagram(uint32_t length, size_t bytes)
{
        uint8_t frame[2000] = {(uint8_t)length, (uint8_t)(length >> 8)};

        send_bytes(frame, bytes);
}

static inline void accept_stream(void)
{
        struct net_address peer;

        close_stream();
        for (int i = 0; i < 20000 && b.stream < 0; i++) {
                b.now_ns += NS_PER_MS;
                turn();
                b.stream = tcp_accept(b.listener, 0, &peer);
        }
        assert_true(b.stream >= 0);
}

static inline void send_frames(int n)
{
        static const uint8_t frame[4 + FRAME_BYTES] = {FRAME_BYTES};

        for (int i = 0; i < n; i++)
                send_bytes(frame, sizeof frame);
}

static inline void reset_at_close(int fd)
{
        struct linger linger = {.l_onoff = 1};

        assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger), 0);
}

/* Turns until the front-end has found that its stream ended. */
static inline void turns_until_down(void)
{
        for (int i = 0; i < 20000 && front_end_down_since_ns(b.front_end) == 0; i++)
                turn();
        assert_true(front_end_down_since_ns(b.front_end) > 0);
}

/* The DFM reports that all events below `oldest` have ended, so the ROS releases them. */
static inline void clear_below(uint64_t oldest)
{
        static struct message m;

        m.header = (struct message_header){.cookie = SAMPLE_COOKIE,
                                           .sender_role = ROLE_DFM,
                                           .type = MESSAGE_KEEP_ALIVE,
                                           .transaction = (uint32_t)oldest};
        m.dfm = SAMPLE_DFM;
        m.keep_alive.state = RUN_RUNNING;
        m.keep_alive.oldest = m.keep_alive.triggers = oldest;
        assert_true(ros_receive(b.core, b.now_ns, &m));
}
