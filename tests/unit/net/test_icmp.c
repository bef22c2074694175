/* ICMP and ICMPv6 errors of earlier datagrams: no code ends an endpoint or stops its super-packets. Uses raw
 * sockets in its own network namespace. */
#include "../own_network.h"

#include <netinet/icmp6.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <netinet/ip_icmp.h>
#include <netinet/udp.h>
#include <poll.h>
#include <unistd.h>

#include "base/util.h"
#include "net/endpoint.h"

#define SEGMENTS 3

static struct endpoint *to, *from;
static int raw;

static uint16_t sum16(const uint8_t *bytes, size_t n)
{
        uint32_t sum = 0;

        for (size_t i = 0; i + 1 < n; i += 2)
                sum += (uint32_t)bytes[i] << 8 | bytes[i + 1];
        sum = (sum >> 16) + (sum & 0xffff);
        return htons((uint16_t) ~(sum + (sum >> 16)));
}

static struct udphdr udp_of(const struct net_address *source, const struct net_address *destination)
{
        return (struct udphdr){
                .source = htons(net_address_port(source)),
                .dest = htons(net_address_port(destination)),
                .len = htons(sizeof(struct udphdr)),
        };
}

/* Sends the error of a router that has dropped a datagram of `from`. */
static void send_error_v4(uint8_t type, uint8_t code)
{
        struct {
                struct icmphdr icmp;
                struct iphdr ip;
                struct udphdr udp;
        } __attribute__((packed)) p = {
                .icmp = {.type = type, .code = code},
                .ip = {.version = 4, .ihl = 5, .ttl = 1, .protocol = IPPROTO_UDP, .tot_len = htons(28)},
                .udp = udp_of(&from->local, &to->local),
        };

        p.ip.saddr = from->local.v4.sin_addr.s_addr;
        p.ip.daddr = to->local.v4.sin_addr.s_addr;
        p.icmp.checksum = sum16((const uint8_t *)&p, sizeof p);
        assert_int_equal(sendto(raw, &p, sizeof p, 0, &from->local.any, from->local.size_bytes), sizeof p);
}

static void send_error_v6(uint8_t type, uint8_t code)
{
        struct {
                struct icmp6_hdr icmp;
                struct ip6_hdr ip;
                struct udphdr udp;
        } __attribute__((packed)) p = {
                .icmp = {.icmp6_type = type, .icmp6_code = code},
                .udp = udp_of(&from->local, &to->local),
        };
        struct sockaddr_in6 there = from->local.v6;

        p.ip.ip6_vfc = 6 << 4;
        p.ip.ip6_plen = htons(sizeof p.udp);
        p.ip.ip6_nxt = IPPROTO_UDP;
        p.ip.ip6_src = from->local.v6.sin6_addr;
        p.ip.ip6_dst = to->local.v6.sin6_addr;
        there.sin6_port = 0;
        assert_int_equal(sendto(raw, &p, sizeof p, 0, (struct sockaddr *)&there, sizeof there), sizeof p);
}

static struct endpoint *open_udp(const char *host, const struct net_address *connect)
{
        struct udp_config c = {.connect = connect};
        struct endpoint *e = NULL;

        assert_int_equal(net_address_parse(&c.local, host, 0), 0);
        assert_int_equal(endpoint_new_udp(&e, &c), 0);
        return e;
}

static void open_pair(const char *host, int family, int protocol)
{
        to = open_udp(host, NULL);
        from = open_udp(host, &to->local);
        raw = socket(family, SOCK_RAW, protocol);
        assert_true(raw >= 0);
}

static void close_pair(void)
{
        close(raw);
        endpoint_free(from);
        endpoint_free(to);
}

static void wait_for_error(void)
{
        struct pollfd p = {.fd = from->fd, .events = 0};

        poll(&p, 1, 50); /* some codes cause no error */
}

/* After the error a super-packet is sent, and its datagrams are received one by one. */
static void expect_unharmed(void (*send_error)(uint8_t, uint8_t), uint8_t type, uint8_t code)
{
        static const uint8_t bytes[SEGMENTS][100];
        struct iovec iov[SEGMENTS];
        struct outgoing out[SEGMENTS];
        struct datagram d[8];
        int got = 0;

        for (int i = 0; i < SEGMENTS; i++) {
                iov[i] = (struct iovec){(void *)bytes[i], sizeof bytes[i]};
                out[i] = (struct outgoing){&iov[i], 1, sizeof bytes[i], NULL};
        }
        send_error(type, code);
        wait_for_error();
        assert_int_equal(endpoint_send(from, out, SEGMENTS), SEGMENTS);
        assert_int_equal(from->counts.send_failed, 0);
        assert_false(from->counts.segmentation_refused);
        while (got < SEGMENTS) {
                struct pollfd p = {.fd = to->fd, .events = POLLIN};

                assert_int_equal(poll(&p, 1, 5000), 1);
                got += endpoint_receive(to, d, ARRAY_SIZE(d));
        }
        send_error(type, code);
        wait_for_error();
        assert_int_equal(endpoint_receive(from, d, ARRAY_SIZE(d)), 0);
}

TEST(no_icmp_code_ends_an_endpoint)
{
        open_pair("127.0.0.1", AF_INET, IPPROTO_ICMP);
        for (int code = 0; code <= NR_ICMP_UNREACH; code++) {
                if (code != ICMP_FRAG_NEEDED)
                        expect_unharmed(send_error_v4, ICMP_DEST_UNREACH, (uint8_t)code);
        }
        expect_unharmed(send_error_v4, ICMP_TIME_EXCEEDED, 0);
        expect_unharmed(send_error_v4, ICMP_PARAMETERPROB, 0);
        expect_unharmed(send_error_v4, ICMP_DEST_UNREACH, ICMP_FRAG_NEEDED);
        close_pair();
}

TEST(no_code_of_icmp6_ends_it)
{
        open_pair("::1", AF_INET6, IPPROTO_ICMPV6);
        for (int code = 0; code <= 7; code++)
                expect_unharmed(send_error_v6, ICMP6_DST_UNREACH, (uint8_t)code);
        expect_unharmed(send_error_v6, ICMP6_TIME_EXCEEDED, 0);
        for (int code = 0; code <= 2; code++)
                expect_unharmed(send_error_v6, ICMP6_PARAM_PROB, (uint8_t)code);
        close_pair();
}

int main(int argc, char **argv)
{
        if (!own_network_enter(0))
                return 77;
        return test_run(argc, argv, NULL, NULL);
}
