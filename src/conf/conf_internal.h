/* Shared by the files of the conf layer while they read a scenario. */
#pragma once

#include "evb/conf/keys.h"

#define CONF_KEYS_MAX 128
#define CONF_NODE_KEYS 4
#define CONF_LINE_MAX 1024

struct loading {
        struct scenario *scenario;
        const char *path;
        FILE *file;
        unsigned line;                 /* the current line of the file */
        const char *setting;           /* the current --set, or NULL */
        unsigned lines[CONF_KEYS_MAX]; /* where a key is set; 0: not in the file */
        bool by_old_name[CONF_KEYS_MAX];
        const char *from_setting[CONF_KEYS_MAX];
        unsigned (*node_lines)[CONF_NODE_KEYS]; /* where the keys of each node are set */
        struct scenario_errors *errors;
};

/* errors.c: an error makes the load fail. */
void conf_error(struct loading *l, unsigned line, const char *what, const char *format, ...)
        __attribute__((format(printf, 4, 5)));
/* Likewise, but does not fail the load. */
void conf_warn(struct loading *l, unsigned line, const char *format, ...)
        __attribute__((format(printf, 3, 4)));
/* An error in a key, at the line or setting that set it. */
void conf_key_error(struct loading *l, const char *section, const char *name, const char *format, ...)
        __attribute__((format(printf, 4, 5)));

/* read.c: the lines of the file and the settings of the command line. Negative errno: the file cannot be
 * read. */
int conf_read_file(struct loading *l);
void conf_take_setting(struct loading *l, const char *text);

/* nodes.c: a head `[node NAME]`, then each line below it. */
void conf_begin_node(struct loading *l, const char *node);
void conf_set_node(struct loading *l, const char *node, const char *name, const char *value);
void conf_resolve_nodes(struct loading *l);

/* resolve.c: parses text values, then checks keys against each other. */
void conf_resolve_texts(struct loading *l);
void conf_check_fit(struct loading *l);

/* trigger_keys.c: the text values of [trigger], then the fit of its keys. */
void conf_resolve_trigger(struct loading *l);
void conf_check_trigger(struct loading *l);

/* keys.c: a number without its bounds; negative errno: not a number of this kind. */
int conf_parse_number(const struct scenario_key *key, const char *value, uint64_t *ret);
/* Appends a number in the largest unit that is exact. */
struct strbuf;
void conf_add_number(struct strbuf *b, enum key_kind kind, uint64_t v);

/* standby.c: checks the lists of permissions and addresses. */
void conf_check_standby(struct loading *l);

/* address.c: a numeric address, IPv6 with or without %device. */
struct conf_address {
        int family; /* AF_INET, AF_INET6 */
        uint8_t bytes[16];
};

bool conf_address_parse(struct conf_address *ret, const char *text);
bool conf_address_is_multicast(const struct conf_address *a);
bool conf_address_is_unset(const struct conf_address *a); /* 0.0.0.0, :: */
bool conf_is_port(const char *text);                      /* 1 to 65535 */
