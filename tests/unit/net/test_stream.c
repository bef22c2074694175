/* Addresses and TCP connections. */
#include "../test.h"

#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "net/tcp.h"

TEST(addresses_are_parsed_and_formatted)
{
        static const char *const bad[] = {"",     "300.1.1.1", "localhost", "1.2.3",
                                          "[::1", "::g",       "1.2.3.4.5", "fe80::1%nodevice"};
        char text[NET_ADDRESS_TEXT_MAX];
        struct net_address a, b;

        assert_int_equal(net_address_parse(&a, "192.168.1.5", 26800), 0);
        assert_string_equal(net_address_format(&a, text), "192.168.1.5:26800");
        assert_int_equal(net_address_parse_with_port(&b, "192.168.1.5:26800"), 0);
        assert_true(net_address_equal(&a, &b) && !net_address_is_multicast(&a));
        assert_int_equal(net_address_parse_with_port(&b, "[fd00::1]:7"), 0);
        assert_string_equal(net_address_format(&b, text), "[fd00::1]:7");
        assert_false(net_address_equal(&a, &b));
        /* The device is inside the brackets (RFC 6874). */
        assert_int_equal(net_address_parse_with_port(&a, "[fe80::1%lo]:7"), 0);
        assert_true(a.v6.sin6_scope_id > 0 && net_address_port(&a) == 7);
        assert_int_equal(net_address_parse_with_port(&b, "::1:7"), -EINVAL);
        assert_int_equal(net_address_parse(&a, "ff05::1", 1), 0);
        assert_true(net_address_is_multicast(&a));
        for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
                assert_int_equal(net_address_parse(&a, bad[i], 1), -EINVAL);
        assert_int_equal(net_address_parse_with_port(&a, "1.2.3.4"), -EINVAL);
        assert_int_equal(net_address_parse_with_port(&a, "1.2.3.4:0"), -EINVAL);
        assert_int_equal(net_address_parse_with_port(&a, "1.2.3.4:70000"), -EINVAL);
        assert_int_equal(net_address_parse(&a, "127.0.0.1", 0), 0);
        assert_true(net_address_device(&a) > 0);
}

TEST(a_peer_that_answers_without_reading_is_not_silent)
{
        static const struct {
                struct tcp_info info;
                bool silent;
        } cases[] = {
                {{.tcpi_last_ack_recv = 60000}, false},
                {{.tcpi_last_ack_recv = 60000, .tcpi_probes = 1}, false},
                {{.tcpi_last_ack_recv = 1000, .tcpi_probes = 9}, false},
                {{.tcpi_last_ack_recv = 20000, .tcpi_probes = 6}, true},
                {{.tcpi_last_ack_recv = 20000, .tcpi_retransmits = 6}, true},
        };

        for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
                assert_int_equal(tcp_info_is_silent(&cases[i].info), cases[i].silent);
}

struct pair {
        int listener, out, in;
};

static void wait_for(int fd, short events)
{
        struct pollfd p = {.fd = fd, .events = events};

        assert_int_equal(poll(&p, 1, 10000), 1);
}

static struct pair connect_pair(void)
{
        struct net_address local, peer;
        struct pair p;

        assert_int_equal(net_address_parse(&local, "127.0.0.1", 0), 0);
        p.listener = tcp_listen(&local, 1 << 16);
        assert_true(p.listener >= 0);
        peer.size_bytes = sizeof peer.v6;
        assert_int_equal(getsockname(p.listener, &peer.any, &peer.size_bytes), 0);
        p.out = tcp_connect(&local, &peer, 1 << 16);
        assert_true(p.out >= 0);
        wait_for(p.out, POLLOUT);
        assert_int_equal(tcp_connected(p.out), 0);
        wait_for(p.listener, POLLIN);
        p.in = tcp_accept(p.listener, 1 << 16, &peer);
        assert_true(p.in >= 0);
        assert_int_equal(tcp_accept(p.listener, 1 << 16, &peer), -EAGAIN);
        assert_true(tcp_granted_bytes(p.in, false) >= 1 << 16);
        return p;
}

static void close_pair(struct pair *p)
{
        close(p->listener);
        close(p->out);
        close(p->in);
}

/* Reads a stream of numbered bytes in all mixtures of staged and direct reads. */
TEST(streams_keep_every_byte)
{
        enum { BYTES = 1 << 20 };
        static uint8_t sent[BYTES], got[BYTES];
        struct pair p = connect_pair();
        struct tcp_reader r;
        size_t out = 0, in = 0;

        for (size_t i = 0; i < BYTES; i++)
                sent[i] = (uint8_t)(i * 7 + i / 251);
        assert_int_equal(tcp_reader_init(&r, p.in, 4096), 0);
        while (in < BYTES) {
                struct iovec iov[2] = {{sent + out, MIN(BYTES - out, (size_t)777)}, {NULL, 0}};
                ssize_t n = out < BYTES ? tcp_send(p.out, iov, 2) : 0;
                size_t staged, want = 1 + in % 9000;

                assert_true(n >= 0 || n == -EAGAIN);
                out += n > 0 ? (size_t)n : 0;
                if (in % 3 == 0)
                        assert_true(tcp_reader_fill(&r) >= 0);
                const uint8_t *bytes = tcp_reader_bytes(&r, &staged);
                if (in % 2 && staged > 0) {
                        size_t part = MIN(staged, (size_t)13);

                        memcpy(got + in, bytes, part);
                        tcp_reader_consume(&r, part);
                        in += part;
                        continue;
                }
                n = tcp_reader_read(&r, got + in, MIN(want, BYTES - in));
                assert_true(n >= 0);
                in += (size_t)n;
        }
        assert_memory_equal(got, sent, BYTES);
        close(p.out);
        wait_for(p.in, POLLIN);
        assert_int_equal(tcp_reader_fill(&r), -EPIPE);
        tcp_reader_fini(&r);
        p.out = open("/dev/null", 0);
        close_pair(&p);
}

/* A short read shows that nothing is left. After a few bytes, what follows is staged. */
TEST(a_short_read_drains_the_socket)
{
        static uint8_t sent[10000], got[10000];
        struct pair p = connect_pair();
        struct iovec iov = {sent, sizeof sent};
        struct tcp_reader r;
        int arrived = 0;
        size_t staged;

        assert_int_equal(tcp_reader_init(&r, p.in, 4096), 0);
        assert_false(r.drained);
        assert_int_equal(tcp_send(p.out, &iov, 1), sizeof sent);
        while (arrived < (int)sizeof sent)
                assert_int_equal(ioctl(p.in, FIONREAD, &arrived), 0);
        assert_int_equal(tcp_reader_fill(&r), 4096);
        assert_false(r.drained);
        assert_int_equal(tcp_reader_read(&r, got, 4100), 4100);
        assert_false(r.drained);
        tcp_reader_bytes(&r, &staged);
        assert_int_equal(staged, 4096);
        assert_int_equal(tcp_reader_read(&r, got, sizeof got), sizeof sent - 4100);
        assert_true(r.drained);
        tcp_reader_fini(&r);
        close_pair(&p);
}

TEST(the_congestion_control_is_chosen)
{
        struct pair p = connect_pair();
        char name[16] = "";
        socklen_t size = sizeof name;

        /* Every kernel has this one. */
        assert_int_equal(tcp_choose_congestion(p.out, "reno"), 0);
        assert_int_equal(getsockopt(p.out, IPPROTO_TCP, TCP_CONGESTION, name, &size), 0);
        assert_string_equal(name, "reno");
        assert_int_equal(tcp_choose_congestion(p.out, "nosuchone"), -ENOENT);
        close_pair(&p);
}

TEST(a_full_connection_waits)
{
        static uint8_t bytes[65536];
        struct pair p = connect_pair();
        struct iovec iov = {bytes, sizeof bytes};
        ssize_t n = 0;

        for (int i = 0; i < 10000 && n >= 0; i++)
                n = tcp_send(p.out, &iov, 1);
        assert_int_equal(n, -EAGAIN);
        close_pair(&p);
}

TEST(refused_connections_are_reported)
{
        struct pair p = connect_pair();
        struct net_address to, local;
        int fd;

        to.size_bytes = sizeof to.v6;
        assert_int_equal(getsockname(p.listener, &to.any, &to.size_bytes), 0);
        close_pair(&p);
        assert_int_equal(net_address_parse(&local, "127.0.0.1", 0), 0);
        fd = tcp_connect(&local, &to, 0);
        if (fd >= 0) {
                wait_for(fd, POLLOUT);
                assert_int_equal(tcp_connected(fd), -ECONNREFUSED);
                close(fd);
        } else
                assert_int_equal(fd, -ECONNREFUSED);
}

TEST(pauses_grow)
{
        struct tcp_backoff b;
        uint64_t longest = 100 * NS_PER_MS;

        tcp_backoff_init(&b, 5);
        for (int i = 0; i < 40; i++) {
                uint64_t pause = tcp_backoff_next_ns(&b);

                assert_true(pause <= longest && pause >= longest / 4 * 3);
                longest = MIN(2 * longest, 5 * NS_PER_S);
        }
        tcp_backoff_reset(&b);
        assert_true(tcp_backoff_next_ns(&b) <= 100 * NS_PER_MS);
}
