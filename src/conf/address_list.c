/* Lists of addresses, such as control.allow: checks them when a scenario is loaded, and looks up an
 * address. */
#include "conf/address_list.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

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
