/* Parses and classifies the numeric addresses of a scenario. The net layer opens sockets from them. */
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "base/quantity.h"
#include "conf_internal.h"

bool conf_address_parse(struct conf_address *ret, const char *text)
{
        static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
        size_t n = strcspn(text, "%");
        char host[INET6_ADDRSTRLEN];

        *ret = (struct conf_address){.family = strchr(text, ':') ? AF_INET6 : AF_INET};
        if (n >= sizeof host || (text[n] && (ret->family == AF_INET || !text[n + 1])))
                return false;
        memcpy(host, text, n);
        host[n] = '\0';
        if (inet_pton(ret->family, host, ret->bytes) != 1)
                return false;
        /* Packets to an IPv4-mapped address are IPv4. */
        if (ret->family == AF_INET6 && memcmp(ret->bytes, mapped, sizeof mapped) == 0) {
                ret->family = AF_INET;
                memmove(ret->bytes, ret->bytes + sizeof mapped, 4);
        }
        return true;
}

bool conf_port_parse(uint16_t *ret, const char *text)
{
        uint64_t port;

        if (text[0] < '0' || text[0] > '9' || strspn(text, "0123456789") != strlen(text) ||
            quantity_parse_count(text, &port) < 0 || port < 1 || port > UINT16_MAX)
                return false;
        *ret = (uint16_t)port;
        return true;
}

bool conf_endpoint_parse(struct conf_address *ret, uint16_t *ret_port, const char *text)
{
        const char *colon = strrchr(text, ':');
        size_t n = colon ? (size_t)(colon - text) : 0;
        bool bracketed = n >= 2 && text[0] == '[' && text[n - 1] == ']';
        char host[64];

        if (n == 0 || n >= sizeof host || !conf_port_parse(ret_port, colon + 1))
                return false;
        snprintf(host, sizeof host, "%.*s", (int)(n - 2 * bracketed), text + bracketed);
        /* Without brackets, the port could be the last group of the address. */
        return bracketed == (strchr(host, ':') != NULL) && conf_address_parse(ret, host);
}

bool conf_address_is_multicast(const struct conf_address *a)
{
        return a->family == AF_INET6 ? a->bytes[0] == 0xff : (a->bytes[0] & 0xf0) == 0xe0;
}

bool conf_address_is_unset(const struct conf_address *a)
{
        static const uint8_t nothing[sizeof a->bytes];

        return memcmp(a->bytes, nothing, sizeof nothing) == 0;
}

bool conf_address_is_broadcast(const struct conf_address *a)
{
        return a->family == AF_INET && memcmp(a->bytes, "\xff\xff\xff\xff", 4) == 0;
}

bool conf_is_loopback(int family, const uint8_t *address)
{
        static const uint8_t v6[16] = {[15] = 1};

        return family == AF_INET6 ? memcmp(address, v6, sizeof v6) == 0 : address[0] == 127;
}

bool conf_is_port(const char *text)
{
        uint16_t port;

        return conf_port_parse(&port, text);
}
