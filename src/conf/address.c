/* Parses and classifies the numeric addresses of a scenario. The net layer opens sockets from them. */
#include <arpa/inet.h>
#include <string.h>

#include "evb/base/quantity.h"
#include "conf_internal.h"

bool conf_address_parse(struct conf_address *ret, const char *text)
{
        size_t n = strcspn(text, "%");
        char host[INET6_ADDRSTRLEN];

        *ret = (struct conf_address){.family = strchr(text, ':') ? AF_INET6 : AF_INET};
        if (n >= sizeof host || (text[n] && (ret->family == AF_INET || !text[n + 1])))
                return false;
        memcpy(host, text, n);
        host[n] = '\0';
        return inet_pton(ret->family, host, ret->bytes) == 1;
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

bool conf_is_port(const char *text)
{
        uint64_t port;

        return text[0] >= '0' && text[0] <= '9' && strspn(text, "0123456789") == strlen(text) &&
               quantity_parse_count(text, &port) == 0 && port >= 1 && port <= 65535;
}
