/* Checks standby.allow and network.command-from when a scenario is loaded, and looks them up when a command
 * arrives. */
#include "conf/standby_rules.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/util.h"
#include "conf_internal.h"

/* Groups of keys by prefix, so that a new key of a group also needs the permission. */
static const struct {
        const char *permission, *keys;
} permissions[] = {
        {"qos", "qos."},           {"tuning", "tuning."},   {"link-rate", "network.link-rate="},
        {"output", "sfi.output="}, {"output", "sfi.file-"},
};

/* The next word of a list that is separated by commas or blanks; "" at its end. */
static const char *next_word(const char *list, char *word, size_t size)
{
        size_t n;

        list += strspn(list, ", ");
        n = strcspn(list, ", ");
        snprintf(word, size, "%.*s", (int)MIN(n, size - 1), list);
        return list + n;
}

const char *scenario_setting_permission(const char *setting)
{
        for (size_t i = 0; i < ARRAY_SIZE(permissions); i++) {
                if (strncmp(setting, permissions[i].keys, strlen(permissions[i].keys)) == 0)
                        return permissions[i].permission;
        }
        return NULL;
}

bool scenario_allows(const struct scenario *s, const char *permission)
{
        const char *list = s->standby.allow;
        char word[64];

        while (list = next_word(list, word, sizeof word), word[0]) {
                if (strcmp(word, permission) == 0)
                        return true;
        }
        return false;
}

bool scenario_setting_changes(const struct scenario *s, const char *setting)
{
        const char *dot = strchr(setting, '.'), *equals = dot ? strchr(dot, '=') : NULL;
        char section[64], name[64], mine[SCENARIO_TEXT_MAX], theirs[SCENARIO_TEXT_MAX];
        const struct scenario_key *key;
        union {
                uint64_t number;
                double fraction;
                char text[SCENARIO_TEXT_MAX];
        } other;

        if (!equals)
                return true;
        snprintf(section, sizeof section, "%.*s", (int)MIN((size_t)(dot - setting), sizeof section - 1),
                 setting);
        snprintf(name, sizeof name, "%.*s", (int)MIN((size_t)(equals - dot - 1), sizeof name - 1), dot + 1);
        key = scenario_key_find(section, name);
        if (!key || conf_parse_value(key, equals + 1, &other) < 0)
                return true;
        return strcmp(scenario_key_value(s, key, mine, sizeof mine),
                      conf_format_value(key, &other, theirs, sizeof theirs)) != 0;
}

struct range {
        struct conf_address address;
        unsigned bits; /* significant ones */
};

/* ADDRESS or ADDRESS/BITS. */
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

static bool is_permission(const char *word)
{
        for (size_t i = 0; i < ARRAY_SIZE(permissions); i++) {
                if (strcmp(word, permissions[i].permission) == 0)
                        return true;
        }
        return strcmp(word, "none") == 0;
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

void conf_check_standby(struct loading *l)
{
        const char *list = l->scenario->standby.allow;
        char word[64];

        while (list = next_word(list, word, sizeof word), word[0]) {
                if (!is_permission(word))
                        conf_key_error(
                                l, "standby", "allow",
                                "\"%s\" is not a permission; expected qos, tuning, link-rate or output, "
                                "or none",
                                word);
        }
        conf_check_addresses(l, "network", "command-from", l->scenario->network.command_from);
}
