/* UDP endpoints that share an address: who may, and which of them a datagram reaches. */
#include "../test.h"

#include <errno.h>
#include <linux/filter.h>
#include <poll.h>
#include <stdio.h>

#include "base/util.h"
#include "net/endpoint.h"

#define SHARING 3

static int open_at(struct endpoint **ret, const struct net_address *local, struct endpoint *beside)
{
        struct udp_config c = {.local = *local, .beside = beside};

        return endpoint_new_udp(ret, &c);
}

static void send_byte(struct endpoint *from, const struct net_address *to, uint8_t byte)
{
        struct iovec iov = {&byte, sizeof byte};

        assert_int_equal(endpoint_send(from, &(struct outgoing){&iov, 1, 1, to, 0}, 1), 1);
}

static uint8_t receive_byte(struct endpoint *e)
{
        struct pollfd p = {.fd = e->fd, .events = POLLIN};
        struct datagram d;

        assert_int_equal(poll(&p, 1, 60000), 1);
        assert_int_equal(endpoint_receive(e, &d, 1), 1);
        assert_int_equal(d.size_bytes, 1);
        return *d.bytes;
}

/* Whoever opens an address beside another endpoint shares it, and nobody else does. */
static void the_program_divides_datagrams(const char *host)
{
        const struct sock_filter program[] = {
                BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 0),
                BPF_STMT(BPF_ALU | BPF_MOD | BPF_K, SHARING),
                BPF_STMT(BPF_RET | BPF_A, 0),
        };
        struct endpoint *sharing[SHARING], *other = NULL, *from;
        struct net_address local;
        struct datagram d;

        assert_int_equal(net_address_parse(&local, host, 0), 0);
        assert_int_equal(open_at(&from, &local, NULL), 0);
        assert_int_equal(open_at(&sharing[0], &local, NULL), 0);
        for (int i = 1; i < SHARING; i++) {
                assert_int_equal(open_at(&sharing[i], &local, sharing[0]), 0);
                assert_true(net_address_equal(&sharing[i]->local, &sharing[0]->local));
        }
        assert_int_equal(open_at(&other, &sharing[0]->local, NULL), -EADDRINUSE);
        assert_null(other);
        assert_int_equal(endpoint_divide(sharing[0], program, ARRAY_SIZE(program)), 0);
        for (uint8_t byte = 0; byte < 100; byte++) {
                send_byte(from, &sharing[0]->local, byte);
                assert_int_equal(receive_byte(sharing[byte % SHARING]), byte);
        }
        for (int i = 0; i < SHARING; i++) {
                assert_int_equal(endpoint_receive(sharing[i], &d, 1), 0);
                endpoint_free(sharing[i]);
        }
        endpoint_free(from);
}

TEST(endpoints_share_an_address_v4)
{
        the_program_divides_datagrams("127.0.0.1");
}

TEST(endpoints_share_an_address_v6)
{
        struct net_address local;
        struct endpoint *e;

        assert_int_equal(net_address_parse(&local, "::1", 0), 0);
        if (open_at(&e, &local, NULL) < 0) {
                print_message("skipped: this machine has no ::1\n");
                skip();
        }
        endpoint_free(e);
        the_program_divides_datagrams("::1");
}

/* Datagrams stay valid in the memory of their system call while the endpoint receives into another one. */
TEST(datagrams_arrive_in_memory_of_the_caller)
{
        uint8_t *memory[2] = {malloc(ENDPOINT_MEMORY_BYTES), malloc(ENDPOINT_MEMORY_BYTES)};
        struct datagram d[2][4];
        struct endpoint *to, *from;
        struct net_address local;
        uint8_t byte = 0;

        assert_true(memory[0] && memory[1]);
        assert_int_equal(net_address_parse(&local, "127.0.0.1", 0), 0);
        assert_int_equal(open_at(&to, &local, NULL), 0);
        assert_int_equal(open_at(&from, &local, NULL), 0);
        for (int i = 0; i < 2; i++) {
                struct pollfd p = {.fd = to->fd, .events = POLLIN};

                endpoint_receive_into(to, memory[i]);
                for (int k = 0; k < 4; k++)
                        send_byte(from, &to->local, byte++);
                assert_int_equal(poll(&p, 1, 60000), 1);
                assert_false(endpoint_has_more(to));
                assert_int_equal(endpoint_receive(to, &d[i][0], 1), 1);
                assert_true(endpoint_has_more(to));
                assert_int_equal(endpoint_receive(to, &d[i][1], 3), 3);
                assert_false(endpoint_has_more(to));
        }
        for (int i = 0; i < 8; i++) {
                const struct datagram *one = &d[i / 4][i % 4];

                assert_int_equal(*one->bytes, i);
                assert_in_range((uintptr_t)one->bytes, (uintptr_t)memory[i / 4],
                                (uintptr_t)memory[i / 4] + ENDPOINT_MEMORY_BYTES - 1);
        }
        endpoint_free(from);
        endpoint_free(to);
        free(memory[0]);
        free(memory[1]);
}
