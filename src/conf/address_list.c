/* Parses and classifies the numeric addresses of a scenario, and lists of them. The net layer opens sockets
 * from them. */
#include "conf/address_list.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/quantity.h"
#include "base/util.h"
#include "conf_internal.h"

/* Returns the next word of a list that is separated by commas or blanks; "" at the end of the list. */
static const char *next_word(const char *list, char *word, size_t size)
{
        size_t n;

        list += strspn(list, ", ");
        n = strcspn(list, ", ");
        snprintf(word, size, "%.*s", (int)MIN(n, size - 1), list);
        return list + n;
}

struct range {
        struct conf_address address;
        unsigned bits; /* number of significant bits */
};

/* Parses ADDRESS or ADDRESS/BITS. */
static bool parse_range(struct range *ret, const char *word)
{
        size_t n = strcspn(word, "/");
        char address[64], *end;
        unsigned long bits, most;

        if (n >= sizeof address)
                return false;
        memcpy(address, word, n);
        address[n] = '\0';
        if (strchr(address, '%') || !conf_address_parse(&ret->address, address))
                return false;
        most = ret->address.family == AF_INET6 ? 128 : 32;
        ret->bits = (unsigned)most;
        if (!word[n])
                return true;
        errno = 0;
        bits = strtoul(word + n + 1, &end, 10);
        ret->bits = (unsigned)bits;
        return word[n + 1] >= '0' && word[n + 1] <= '9' && *end == '\0' && errno == 0 && bits <= most;
}

static bool is_in(const struct range *r, int family, const uint8_t *address)
{
        size_t whole = r->bits / 8;
        unsigned left = r->bits % 8;

        if (r->address.family != family || memcmp(r->address.bytes, address, whole) != 0)
                return false;
        return left == 0 || (r->address.bytes[whole] ^ address[whole]) >> (8 - left) == 0;
}

static bool is_of_node(const struct scenario *s, int family, const uint8_t *address)
{
        struct conf_address a;

        for (size_t i = 0; i < s->n_nodes; i++) {
                if (conf_address_parse(&a, s->nodes[i].address) && a.family == family &&
                    memcmp(a.bytes, address, family == AF_INET6 ? 16 : 4) == 0)
                        return true;
        }
        return false;
}

bool scenario_list_has(const struct scenario *s, const char *list, int family, const uint8_t *address)
{
        struct range r;
        char word[64];

        if (conf_is_loopback(family, address))
                return true;
        while (list = next_word(list, word, sizeof word), word[0]) {
                if (strcmp(word, "nodes") == 0 ? is_of_node(s, family, address)
                                               : parse_range(&r, word) && is_in(&r, family, address))
                        return true;
        }
        return false;
}

void conf_check_addresses(struct loading *l, const char *section, const char *name, const char *list)
{
        struct range r;
        char word[64];

        while (list = next_word(list, word, sizeof word), word[0]) {
                if (strcmp(word, "nodes") != 0 && !parse_range(&r, word))
                        conf_key_error(l, section, name,
                                       "\"%s\" is not an address; expected nodes, ADDRESS or ADDRESS/BITS, "
                                       "separated by commas",
                                       word);
        }
}

/* ---- A single address ---- */

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
