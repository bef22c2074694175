/* IPv4 and IPv6 addresses with a port. */
#pragma once

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

struct net_address {
        union {
                struct sockaddr any;
                struct sockaddr_in v4;
                struct sockaddr_in6 v6;
        };
        socklen_t size_bytes;
};

#define NET_ADDRESS_TEXT_MAX 64

/* Parses a numeric address; IPv6 with or without brackets and %device. -EINVAL. */
int net_address_parse(struct net_address *ret, const char *text, uint16_t port);
/* Parses "HOST:PORT", host as above (IPv6 in brackets). -EINVAL. */
int net_address_parse_with_port(struct net_address *ret, const char *text);
/* Formats "192.168.1.5:26800" or "[::1]:26800". Returns text. */
char *net_address_format(const struct net_address *a, char text[static NET_ADDRESS_TEXT_MAX]);
bool net_address_equal(const struct net_address *a, const struct net_address *b);
/* Compares without the ports. */
bool net_address_same_host(const struct net_address *a, const struct net_address *b);
bool net_address_is_multicast(const struct net_address *a);
bool net_address_is_loopback(const struct net_address *a);
/* Converts an address to IPv6 in network order, mapping an IPv4 one (RFC 4291, 2.5.5.2), and back. */
void net_address_to_v6(const struct net_address *a, uint8_t ret[static 16]);
void net_address_of_v6(struct net_address *ret, const uint8_t bytes[static 16], uint16_t port);
void net_address_set_port(struct net_address *a, uint16_t port);
uint16_t net_address_port(const struct net_address *a);
/* The index of the device with this address; 0: none. */
unsigned net_address_device(const struct net_address *a);
