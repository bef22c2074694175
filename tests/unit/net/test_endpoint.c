/* Datagram endpoints on loopback and within the process: bytes and order, super-packets and fallback, groups,
 * limits, injected faults. */
#include "../own_network.h"

#include <errno.h>
#include <linux/net_tstamp.h>
#include <poll.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "base/random.h"
#include "base/util.h"
#include "net/endpoint.h"
#include "net/injected_faults.h"
#include "sys/loop.h"
#include "inproc.h"

DEFINE_FREEP(endpoint)
DEFINE_FREEP(faults)

#define DATAGRAMS 300

static struct net_address address(const char *text)
{
        struct net_address a;

        assert_int_equal(net_address_parse(&a, text, 0), 0);
        return a;
}

static struct endpoint *open_udp(const char *local, const struct net_address *connect,
                                 enum segmentation segmentation)
{
        struct udp_config c = {.local = address(local),
                               .connect = connect,
                               .segmentation = segmentation,
                               .receive_buffer_bytes = 4u << 20,
                               .send_buffer_bytes = 4u << 20};
        struct endpoint *e = NULL;

        assert_int_equal(endpoint_new_udp(&e, &c), 0);
        return e;
}

/* Receives until `n` datagrams have arrived. */
static int receive_all(struct endpoint *e, struct faults *f, int n,
                       void (*take)(const struct datagram *, int))
{
        struct datagram d[64];
        int got = 0;

        while (got < n) {
                struct pollfd p = {.fd = e->fd, .events = POLLIN};
                int k = faults_receive(f, e, d, 8 + (size_t)got % (ARRAY_SIZE(d) - 8));

                assert_true(k >= 0);
                if (k == 0 && !faults_are_holding(f) && poll(&p, 1, 2000) == 0)
                        break;
                for (int i = 0; i < k; i++)
                        take(&d[i], got++);
        }
        return got;
}

static uint8_t bytes[DATAGRAMS][1600];
static uint32_t sizes[DATAGRAMS];

static void expect_in_order(const struct datagram *d, int i)
{
        assert_int_equal(d->size_bytes, sizes[i]);
        assert_memory_equal(d->bytes, bytes[i], sizes[i]);
}

/* Datagrams in runs of equal size, single ones, empty ones. */
static void make_datagrams(struct outgoing *out, struct iovec (*iov)[2], const struct net_address *to)
{
        struct random r;

        random_init(&r, 8);
        for (int i = 0; i < DATAGRAMS; i++) {
                sizes[i] = i % 50 == 49 ? 0 : i < 150 ? 1472 : 1 + (uint32_t)random_below(&r, 1400);
                for (uint32_t k = 0; k < sizes[i]; k++)
                        bytes[i][k] = (uint8_t)random_next(&r);
                iov[i][0] = (struct iovec){bytes[i], sizes[i] / 3};
                iov[i][1] = (struct iovec){bytes[i] + sizes[i] / 3, sizes[i] - sizes[i] / 3};
                out[i] = (struct outgoing){iov[i], 2, sizes[i], to};
        }
}

static void send_and_compare(const char *host, enum segmentation segmentation, bool connected)
{
        static struct iovec iov[DATAGRAMS][2];
        static struct outgoing out[DATAGRAMS];
        _cleanup_(endpoint_freep) struct endpoint *to = open_udp(host, NULL, segmentation);
        _cleanup_(endpoint_freep) struct endpoint *from =
                open_udp(host, connected ? &to->local : NULL, segmentation);

        make_datagrams(out, iov, connected ? NULL : &to->local);
        assert_int_equal(endpoint_send(from, out, DATAGRAMS), DATAGRAMS);
        assert_int_equal(receive_all(to, NULL, DATAGRAMS, expect_in_order), DATAGRAMS);
        assert_int_equal(from->counts.sent, DATAGRAMS);
        assert_int_equal(endpoint_counts(to)->dropped, 0);
        if (segmentation == SEGMENTATION_OFF)
                assert_int_equal(from->counts.super_packets, 0);
        else
                assert_true(from->counts.super_packets > 0 && !from->counts.segmentation_refused);
}

/* A caller that trusts `drained` saves a call, and must not miss a datagram. */
TEST(drained_is_an_endpoint_that_has_returned_all)
{
        _cleanup_(endpoint_freep) struct endpoint *to = open_udp("127.0.0.1", NULL, SEGMENTATION_AUTO);
        _cleanup_(endpoint_freep) struct endpoint *from =
                open_udp("127.0.0.1", &to->local, SEGMENTATION_AUTO);
        struct pollfd p = {.fd = to->fd, .events = POLLIN};
        struct iovec iov = {bytes, 100};
        struct outgoing out[4] = {
                {&iov, 1, 100, NULL}, {&iov, 1, 100, NULL}, {&iov, 1, 100, NULL}, {&iov, 1, 100, NULL}};
        struct datagram d[64];

        assert_false(to->drained);
        assert_int_equal(endpoint_send(from, out, 1), 1);
        assert_int_equal(poll(&p, 1, -1), 1);
        assert_int_equal(endpoint_receive(to, d, ARRAY_SIZE(d)), 1);
        assert_true(to->drained);

        /* They arrive as one message. */
        assert_int_equal(endpoint_send(from, out, 4), 4);
        assert_int_equal(from->counts.super_packets, 1);
        assert_int_equal(poll(&p, 1, -1), 1);
        assert_int_equal(endpoint_receive(to, d, 3), 3);
        assert_false(to->drained);
        assert_int_equal(endpoint_receive(to, d, 3), 1);
        assert_true(to->drained);

        /* A full batch may leave some behind. */
        for (int i = 0; i < 8; i++)
                assert_int_equal(endpoint_send(from, out, 1), 1);
        for (int got = 0, n; got < 8; got += n) {
                assert_int_equal(poll(&p, 1, -1), 1);
                n = endpoint_receive(to, d, ARRAY_SIZE(d));
                assert_in_range(n, 1, 8);
                assert_int_equal(to->drained, n < 8);
        }
}

TEST_EACH(bytes_and_order_are_kept, connected, 2)
{
        send_and_compare("127.0.0.1", SEGMENTATION_AUTO, connected);
        send_and_compare("127.0.0.1", SEGMENTATION_OFF, connected);
        send_and_compare("::1", SEGMENTATION_AUTO, connected);
}

/* Without checksums the kernel refuses to segment (net/ipv4/udp.c: udp_send_skb). */
TEST(a_refusal_only_costs_speed)
{
        static struct iovec iov[DATAGRAMS][2];
        static struct outgoing out[DATAGRAMS];
        _cleanup_(endpoint_freep) struct endpoint *to = open_udp("127.0.0.1", NULL, SEGMENTATION_AUTO);
        _cleanup_(endpoint_freep) struct endpoint *from =
                open_udp("127.0.0.1", &to->local, SEGMENTATION_AUTO);
        int on = 1;

        assert_int_equal(setsockopt(from->fd, SOL_SOCKET, SO_NO_CHECK, &on, sizeof on), 0);
        make_datagrams(out, iov, NULL);
        assert_int_equal(endpoint_send(from, out, DATAGRAMS), DATAGRAMS);
        assert_true(from->counts.segmentation_refused && from->counts.super_packets == 0);
        assert_int_equal(receive_all(to, NULL, DATAGRAMS, expect_in_order), DATAGRAMS);
}

TEST(an_absent_peer_ends_nothing)
{
        struct endpoint *gone = open_udp("127.0.0.1", NULL, SEGMENTATION_AUTO);
        struct net_address to = gone->local;
        _cleanup_(endpoint_freep) struct endpoint *from = open_udp("127.0.0.1", &to, SEGMENTATION_AUTO);
        struct iovec iov = {bytes[0], 100};
        struct outgoing out = {&iov, 1, 100, NULL};
        struct datagram d;

        endpoint_free(gone);
        for (int i = 0; i < 5; i++) {
                assert_int_equal(endpoint_send(from, &out, 1), 1);
                assert_int_equal(endpoint_receive(from, &d, 1), 0);
        }
}

TEST(too_large_is_counted)
{
        static uint8_t large[70000];
        struct endpoint *to = open_udp("127.0.0.1", NULL, SEGMENTATION_AUTO),
                        *from = open_udp("127.0.0.1", NULL, SEGMENTATION_AUTO);
        struct iovec iov[2] = {{large, sizeof large}, {bytes[0], 10}};
        struct outgoing out[2] = {{&iov[0], 1, sizeof large, &to->local}, {&iov[1], 1, 10, &to->local}};

        sizes[0] = 10;
        assert_int_equal(endpoint_send(from, out, 2), 2);
        assert_int_equal(from->counts.send_failed, 1);
        assert_int_equal(receive_all(to, NULL, 1, expect_in_order), 1);
        endpoint_free(from);
        endpoint_free(to);
}

TEST(a_full_buffer_is_counted)
{
        struct udp_config c = {.local = address("127.0.0.1"),
                               .receive_buffer_bytes = 16384,
                               .segmentation = SEGMENTATION_OFF};
        _cleanup_(endpoint_freep) struct endpoint *to, *from = open_udp("127.0.0.1", NULL, SEGMENTATION_OFF);
        struct datagram d[16];
        uint64_t got = 0;
        int n;

        assert_int_equal(endpoint_new_udp(&to, &c), 0);
        assert_true(to->granted_receive_bytes >= 16384);
        for (int i = 0; i < 500; i++) {
                struct iovec iov = {bytes[0], 1000};
                struct outgoing out = {&iov, 1, 1000, &to->local};

                assert_int_equal(endpoint_send(from, &out, 1), 1);
        }
        while ((n = endpoint_receive(to, d, ARRAY_SIZE(d))) > 0)
                got += (uint64_t)n;
        assert_true(got > 0 && got < 500);
        assert_int_equal(endpoint_counts(to)->dropped, 500 - got);
}

/* The datagram that follows those that were dropped says how many they were. */
TEST(drops_have_a_place)
{
        struct udp_config c = {.local = address("127.0.0.1"), .receive_buffer_bytes = 1};
        _cleanup_(endpoint_freep) struct endpoint *to = NULL, *from;
        struct iovec iov = {bytes[0], 100};
        struct outgoing out = {.iov = &iov, .n_iov = 1, .size_bytes = 100};
        struct datagram in;
        uint32_t received = 0;

        assert_int_equal(endpoint_new_udp(&to, &c), 0);
        from = open_udp("127.0.0.1", &to->local, SEGMENTATION_OFF);
        for (size_t i = 0; i < DATAGRAMS; i++)
                assert_int_equal(endpoint_send(from, &out, 1), 1);
        for (; endpoint_receive(to, &in, 1) > 0; received++)
                assert_int_equal(in.dropped_before, 0);
        assert_in_range(received, 1, DATAGRAMS - 1);
        for (uint32_t i = 0; i < 2; i++) {
                assert_int_equal(endpoint_send(from, &out, 1), 1);
                assert_int_equal(endpoint_receive(to, &in, 1), 1);
                assert_int_equal(in.dropped_before, i == 0 ? DATAGRAMS - received : 0);
        }
}

TEST(the_kernel_records_when_datagrams_arrive)
{
        struct udp_config c = {.local = address("127.0.0.1"), .timestamps = true};
        _cleanup_(endpoint_freep) struct endpoint *to = NULL, *from;
        struct iovec iov = {bytes[0], 100};
        struct outgoing out = {.iov = &iov, .n_iov = 1, .size_bytes = 100};
        uint64_t before_ns = clock_utc_ns();
        struct datagram in = {};

        assert_int_equal(endpoint_new_udp(&to, &c), 0);
        from = open_udp("127.0.0.1", &to->local, SEGMENTATION_OFF);
        assert_int_equal(endpoint_send(from, &out, 1), 1);
        assert_int_equal(poll(&(struct pollfd){.fd = to->fd, .events = POLLIN}, 1, 10000), 1);
        assert_int_equal(endpoint_receive(to, &in, 1), 1);
        assert_true(in.arrived_ns >= before_ns && in.arrived_ns <= clock_utc_ns());
}

/* Datagrams with times of their own are not joined, and the kernel takes the times (SO_TXTIME). */
TEST(datagrams_have_times_to_leave)
{
        const struct sock_txtime txtime = {.clockid = CLOCK_MONOTONIC};
        struct endpoint *to = open_udp("127.0.0.1", NULL, SEGMENTATION_OFF),
                        *from = open_udp("127.0.0.1", &to->local, SEGMENTATION_AUTO);
        struct iovec iov[3] = {{bytes[0], 100}, {bytes[1], 100}, {bytes[2], 100}};
        struct outgoing out[3];
        struct datagram in;

        for (size_t i = 0; i < 3; i++)
                out[i] = (struct outgoing){
                        .iov = &iov[i], .n_iov = 1, .size_bytes = 100, .leave_ns = clock_now_ns() + i};
        /* Without the option, the kernel refuses the times: this proves that it gets them. */
        assert_int_equal(endpoint_send(from, out, 3), 3);
        assert_int_equal(endpoint_counts(from)->send_failed, 3);
        assert_int_equal(setsockopt(from->fd, SOL_SOCKET, SO_TXTIME, &txtime, sizeof txtime), 0);
        assert_int_equal(endpoint_send(from, out, 3), 3);
        assert_fields(endpoint_counts(from), sent, 3, super_packets, 0);
        for (size_t i = 0; i < 3; i++) {
                while (endpoint_receive(to, &in, 1) == 0)
                        assert_int_equal(poll(&(struct pollfd){.fd = to->fd, .events = POLLIN}, 1, 10000), 1);
                assert_memory_equal(in.bytes, bytes[i], 100);
        }
        endpoint_free(from);
        endpoint_free(to);
}

TEST(a_group_reaches_all_members)
{
        struct endpoint *from = open_udp("127.0.0.1", NULL, SEGMENTATION_AUTO), *members[2];
        struct net_address group = address("239.255.7.77");
        struct udp_config c = {.local = address("127.0.0.1"), .group = &group};
        struct iovec iov = {bytes[0], 64};
        struct outgoing out = {&iov, 1, 64, &group};

        group.v4.sin_port = from->local.v4.sin_port; /* a free port */
        for (int i = 0; i < 2; i++)
                assert_int_equal(endpoint_new_udp(&members[i], &c), 0);
        sizes[0] = 64;
        assert_int_equal(endpoint_send(from, &out, 1), 1);
        for (int i = 0; i < 2; i++) {
                assert_int_equal(receive_all(members[i], NULL, 1, expect_in_order), 1);
                endpoint_free(members[i]);
        }
        endpoint_free(from);
}

TEST(endpoints_within_the_process)
{
        static struct iovec iov[DATAGRAMS][2];
        static struct outgoing out[DATAGRAMS];
        struct net_address here = address("127.1.1.1"), there = address("127.1.1.2"),
                           nowhere = address("127.1.1.3");
        struct endpoint *to, *from, *same;
        struct datagram d;

        assert_int_equal(endpoint_new_inproc(&to, &there, 250), 0);
        assert_int_equal(endpoint_new_inproc(&same, &there, 1), -EADDRINUSE);
        assert_int_equal(endpoint_new_inproc(&from, &here, 1), 0);
        make_datagrams(out, iov, &to->local);
        assert_int_equal(endpoint_send(from, out, DATAGRAMS), DATAGRAMS);
        assert_int_equal(endpoint_send(from, &(struct outgoing){iov[0], 2, sizes[0], &nowhere}, 1), 1);
        assert_fields(&from->counts, send_failed, 1, sent, DATAGRAMS);
        assert_int_equal(to->counts.dropped, DATAGRAMS - 250);
        assert_int_equal(receive_all(to, NULL, 250, expect_in_order), 250);
        assert_int_equal(endpoint_receive(to, &d, 1), 0);
        endpoint_free(from);
        endpoint_free(to);
}

static uint32_t seen[5000];

static void count_number(const struct datagram *d, int i)
{
        uint32_t number;

        memcpy(&number, d->bytes, sizeof number);
        assert_true(number < ARRAY_SIZE(seen));
        seen[number]++;
}

/* Counts how many of 5000 datagrams arrive once, twice and never. */
static void through_faults(const struct fault_config *config, uint32_t counts[3], bool *in_order)
{
        struct net_address here = address("127.1.1.1"), there = address("127.1.1.2");
        _cleanup_(endpoint_freep) struct endpoint *to, *from;
        _cleanup_(faults_freep) struct faults *f;

        memset(seen, 0, sizeof seen);
        assert_int_equal(endpoint_new_inproc(&to, &there, 5000), 0);
        assert_int_equal(endpoint_new_inproc(&from, &here, 1), 0);
        assert_int_equal(faults_new(&f, config), 0);
        for (uint32_t i = 0; i < 5000; i++) {
                struct iovec iov = {&i, sizeof i};
                struct outgoing out = {&iov, 1, sizeof i, &to->local};

                endpoint_send(from, &out, 1);
        }
        struct datagram d[64];
        uint32_t last = 0;
        int n;

        *in_order = true;
        while ((n = faults_receive(f, to, d, ARRAY_SIZE(d))) > 0 || faults_are_holding(f)) {
                for (int i = 0; i < n; i++) {
                        uint32_t number;

                        memcpy(&number, d[i].bytes, sizeof number);
                        *in_order &= number >= last;
                        last = number;
                        count_number(&d[i], i);
                }
        }
        memset(counts, 0, 3 * sizeof *counts);
        for (size_t i = 0; i < ARRAY_SIZE(seen); i++)
                counts[MIN(seen[i], 2u)]++;
}

TEST(faults_have_the_configured_rates)
{
        uint32_t counts[3];
        bool in_order;

        through_faults(&(struct fault_config){.seed = 1}, counts, &in_order);
        assert_true(counts[1] == 5000 && in_order);
        through_faults(&(struct fault_config){.loss = 0.1, .seed = 1}, counts, &in_order);
        assert_in_range(counts[0], 400, 600);
        assert_true(counts[2] == 0 && in_order);
        through_faults(&(struct fault_config){.reorder = 0.1, .seed = 1}, counts, &in_order);
        assert_true(counts[1] == 5000 && !in_order);
        through_faults(&(struct fault_config){.duplicate = 0.1, .seed = 1}, counts, &in_order);
        assert_in_range(counts[2], 400, 600);
        assert_true(counts[0] == 0);
}

/* 0 means that the endpoint is empty, even if a whole batch was lost: the datagrams behind it would wait
 * unnoticed. */
TEST(a_lost_batch_does_not_look_empty)
{
        struct net_address here = address("127.1.1.1"), there = address("127.1.1.2");
        struct fault_config config = {.loss = 0.9, .reorder = 0.05, .seed = 3};
        _cleanup_(endpoint_freep) struct endpoint *to, *from;
        struct datagram d[4];
        _cleanup_(faults_freep) struct faults *f;

        assert_int_equal(endpoint_new_inproc(&to, &there, 500), 0);
        assert_int_equal(endpoint_new_inproc(&from, &here, 1), 0);
        assert_int_equal(faults_new(&f, &config), 0);
        for (uint32_t i = 0; i < 500; i++) {
                struct iovec iov = {&i, sizeof i};

                endpoint_send(from, &(struct outgoing){&iov, 1, sizeof i, &to->local}, 1);
        }
        while (faults_receive(f, to, d, ARRAY_SIZE(d)) > 0)
                ;
        assert_int_equal(to->counts.received, 500);
        assert_false(faults_are_holding(f));
}

static void send_large(const char *host, bool connected)
{
        static uint8_t large[3][3000];
        _cleanup_(endpoint_freep) struct endpoint *to = open_udp(host, NULL, SEGMENTATION_AUTO);
        _cleanup_(endpoint_freep) struct endpoint *from =
                open_udp(host, connected ? &to->local : NULL, SEGMENTATION_AUTO);
        struct iovec iov[3];
        struct outgoing out[3];

        for (int i = 0; i < 3; i++) {
                memset(large[i], 'a' + i, sizeof large[i]);
                iov[i] = (struct iovec){large[i], sizeof large[i]};
                out[i] = (struct outgoing){&iov[i], 1, sizeof large[i], connected ? NULL : &to->local};
        }
        assert_int_equal(endpoint_send(from, out, 3), 3);
        assert_fields(&from->counts, send_failed, 0, sent, 3);
        assert_true(from->counts.segmentation_refused);
        for (int got = 0; got < 3;) {
                struct pollfd p = {.fd = to->fd, .events = POLLIN};
                struct datagram d[3];
                int n = poll(&p, 1, 2000) == 1 ? endpoint_receive(to, d, 3) : -1;

                assert_true(n > 0);
                for (int i = 0; i < n; i++, got++) {
                        assert_int_equal(d[i].size_bytes, sizeof large[got]);
                        assert_memory_equal(d[i].bytes, large[got], sizeof large[got]);
                }
        }
}

/* A datagram larger than the device's packets is sent in IP fragments, but not within a super-packet. Nothing
 * is lost, whatever error the kernel returns. Needs small packets, so it has its own network namespace. */
TEST(a_large_datagram_is_sent_alone)
{
        if (!own_network_enter(1500))
                skip();
        send_large("127.0.0.1", false);
        send_large("127.0.0.1", true);
        send_large("::1", false);
        send_large("::1", true);
}
