/* Converts numeric addresses to socket addresses and back. It does not resolve names. */
#include "net/address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"

static const uint8_t v6_mapped[12] = {[10] = 0xff, [11] = 0xff};

static int parse_v6(struct net_address *ret, const char *text, uint16_t port)
{
        char host[INET6_ADDRSTRLEN + 1];
        char device[IF_NAMESIZE] = "";
        size_t all = strlen(text), n;

        if (all >= 2 && text[0] == '[' && text[all - 1] == ']')
                text++, all -= 2;
        n = strcspn(text, "%");
        n = MIN(n, all);
        if (n >= sizeof host || all - n > sizeof device)
                return -EINVAL;
        memcpy(host, text, n);
        host[n] = '\0';
        if (n < all)
                memcpy(device, text + n + 1, all - n - 1);
        *ret = (struct net_address){
                .v6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)},
                .size_bytes = sizeof(struct sockaddr_in6),
        };
        if (inet_pton(AF_INET6, host, &ret->v6.sin6_addr) != 1)
                return -EINVAL;
        if (n < all && !(ret->v6.sin6_scope_id = if_nametoindex(device)))
                return -EINVAL;
        return 0;
}

int net_address_parse(struct net_address *ret, const char *text, uint16_t port)
{
        struct net_address a = {
                .v4 = {.sin_family = AF_INET, .sin_port = htons(port)},
                .size_bytes = sizeof(struct sockaddr_in),
        };

        if (inet_pton(AF_INET, text, &a.v4.sin_addr) != 1) {
                int r = parse_v6(&a, text, port);

                if (r < 0)
                        return r;
                /* Packets to an IPv4-mapped address are IPv4. */
                if (memcmp(&a.v6.sin6_addr, v6_mapped, sizeof v6_mapped) == 0)
                        net_address_of_v6(&a, a.v6.sin6_addr.s6_addr, port);
        }
        *ret = a;
        return 0;
}

int net_address_parse_with_port(struct net_address *ret, const char *text)
{
        const char *colon = strrchr(text, ':');
        char host[NET_ADDRESS_TEXT_MAX], *end;
        unsigned long port;

        if (!colon || (size_t)(colon - text) >= sizeof host || colon[1] < '0' || colon[1] > '9')
                return -EINVAL;
        port = strtoul(colon + 1, &end, 10);
        if (*end || port == 0 || port > UINT16_MAX)
                return -EINVAL;
        memcpy(host, text, (size_t)(colon - text));
        host[colon - text] = '\0';
        /* Without brackets the port could be the last group of the address. */
        if (strchr(host, ':') && host[0] != '[')
                return -EINVAL;
        return net_address_parse(ret, host, (uint16_t)port);
}

void net_address_to_v6(const struct net_address *a, uint8_t ret[static 16])
{
        bool v6 = a->any.sa_family == AF_INET6;

        memcpy(ret, v6_mapped, sizeof v6_mapped);
        memcpy(ret + (v6 ? 0 : sizeof v6_mapped), v6 ? (const void *)&a->v6.sin6_addr : &a->v4.sin_addr,
               v6 ? 16 : 4);
}

void net_address_of_v6(struct net_address *ret, const uint8_t bytes[static 16], uint16_t port)
{
        bool v6 = memcmp(bytes, v6_mapped, sizeof v6_mapped) != 0;

        *ret = (struct net_address){.size_bytes = v6 ? sizeof ret->v6 : sizeof ret->v4};
        if (v6) {
                ret->v6 = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = htons(port)};
                memcpy(&ret->v6.sin6_addr, bytes, 16);
                return;
        }
        ret->v4 = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(port)};
        memcpy(&ret->v4.sin_addr, bytes + sizeof v6_mapped, 4);
}

void net_address_set_port(struct net_address *a, uint16_t port)
{
        if (a->any.sa_family == AF_INET6)
                a->v6.sin6_port = htons(port);
        else
                a->v4.sin_port = htons(port);
}

uint16_t net_address_port(const struct net_address *a)
{
        return ntohs(a->any.sa_family == AF_INET6 ? a->v6.sin6_port : a->v4.sin_port);
}

char *net_address_format(const struct net_address *a, char text[static NET_ADDRESS_TEXT_MAX])
{
        char host[INET6_ADDRSTRLEN] = "?";
        bool v6 = a->any.sa_family == AF_INET6;

        inet_ntop(a->any.sa_family, v6 ? (const void *)&a->v6.sin6_addr : &a->v4.sin_addr, host, sizeof host);
        snprintf(text, NET_ADDRESS_TEXT_MAX, v6 ? "[%s]:%u" : "%s:%u", host, net_address_port(a));
        return text;
}

static bool same_host(const struct sockaddr *a, const struct sockaddr *b)
{
        if (a->sa_family != b->sa_family)
                return false;
        if (a->sa_family == AF_INET6)
                return memcmp(&((const struct sockaddr_in6 *)a)->sin6_addr,
                              &((const struct sockaddr_in6 *)b)->sin6_addr, sizeof(struct in6_addr)) == 0;
        return ((const struct sockaddr_in *)a)->sin_addr.s_addr ==
               ((const struct sockaddr_in *)b)->sin_addr.s_addr;
}

bool net_address_same_host(const struct net_address *a, const struct net_address *b)
{
        return same_host(&a->any, &b->any);
}

bool net_address_equal(const struct net_address *a, const struct net_address *b)
{
        return net_address_same_host(a, b) && net_address_port(a) == net_address_port(b);
}

bool net_address_is_multicast(const struct net_address *a)
{
        if (a->any.sa_family == AF_INET6)
                return IN6_IS_ADDR_MULTICAST(&a->v6.sin6_addr);
        return IN_MULTICAST(ntohl(a->v4.sin_addr.s_addr));
}

bool net_address_is_loopback(const struct net_address *a)
{
        return a->any.sa_family == AF_INET6 ? IN6_IS_ADDR_LOOPBACK(&a->v6.sin6_addr)
                                            : ntohl(a->v4.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
}

unsigned net_address_device(const struct net_address *a)
{
        struct ifaddrs *all, *i;
        unsigned index = 0;

        if (a->any.sa_family == AF_INET && ntohl(a->v4.sin_addr.s_addr) >> 24 == 127)
                return if_nametoindex("lo");
        if (getifaddrs(&all) < 0)
                return 0;
        for (i = all; i && index == 0; i = i->ifa_next) {
                if (i->ifa_addr && same_host(i->ifa_addr, &a->any))
                        index = if_nametoindex(i->ifa_name);
        }
        freeifaddrs(all);
        return index;
}
