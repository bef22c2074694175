/* What the files of the conf layer share while a scenario is read. */
#pragma once

#include "evb/conf/keys.h"

#define CONF_KEYS_MAX 128
#define CONF_NODE_KEYS 4
#define CONF_LINE_MAX 1024

struct loading {
        struct scenario *scenario;
        const char *path;
        FILE *file;
        unsigned line;                 /* of the file, the one that is being read */
        const char *setting;           /* the one that is being read */
        unsigned lines[CONF_KEYS_MAX]; /* where a key was set; 0: not in the file */
        const char *from_setting[CONF_KEYS_MAX];
        unsigned (*node_lines)[CONF_NODE_KEYS]; /* of the keys of each node, likewise */
        struct scenario_errors *errors;
};

void conf_error(struct loading *l, unsigned line, const char *what, const char *format, ...)
        __attribute__((format(printf, 4, 5)));
/* An error in a key, told where that was set. */
void conf_key_error(struct loading *l, const char *section, const char *name, const char *format, ...)
        __attribute__((format(printf, 4, 5)));

/* read.c: the file's lines and the command line's settings, each into its place. Negative errno: it cannot be
 * read. */
int conf_read_file(struct loading *l);
void conf_take_setting(struct loading *l, const char *text);

/* nodes.c: `[node NAME]` itself, then each line of it. */
void conf_begin_node(struct loading *l, const char *node);
void conf_set_node(struct loading *l, const char *node, const char *name, const char *value);
void conf_resolve_nodes(struct loading *l);

/* resolve.c: what texts say, and then whether the keys fit each other. */
void conf_resolve_texts(struct loading *l);
void conf_check_fit(struct loading *l);

/* standby.c: checks the lists of what commands of evb lab may do. */
void conf_check_standby(struct loading *l);

/* address.c: a numeric address, IPv6 with or without %device. */
struct conf_address {
        int family; /* AF_INET, AF_INET6 */
        uint8_t bytes[16];
};

bool conf_address_parse(struct conf_address *ret, const char *text);
bool conf_address_is_multicast(const struct conf_address *a);
bool conf_address_is_unset(const struct conf_address *a); /* 0.0.0.0, :: */
