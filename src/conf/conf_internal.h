/* What the files of the conf layer share while a scenario is read. */
#pragma once

#include "evb/conf/scenario.h"

#define CONF_KEYS_MAX 128

struct loading {
        struct scenario *scenario;
        const char *path;
        FILE *file;
        unsigned line;       /* of the file, the one that is being read */
        const char *setting; /* the one that is being read */
        unsigned lines[CONF_KEYS_MAX];            /* where a key was set; 0: not in the file */
        const char *from_setting[CONF_KEYS_MAX];
        struct scenario_errors *errors;
};

void conf_error(struct loading *l, unsigned line, const char *what, const char *format, ...)
        __attribute__((format(printf, 4, 5)));

/* nodes.c: a line of a [node NAME] section. */
void conf_set_node(struct loading *l, unsigned line, const char *node, const char *name, const char *value);
void conf_resolve_nodes(struct loading *l);
/* resolve.c: what follows from the keys, and whether they fit each other. */
void conf_resolve(struct loading *l);
/* An error in a key, told where that was set. */
void conf_key_error(struct loading *l, const char *section, const char *name, const char *format, ...)
        __attribute__((format(printf, 4, 5)));
