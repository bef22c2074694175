/* The one table of keys. The scenario file, --set, `evb check`, the help and the man page are made from it.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "evb/conf/scenario.h"

enum key_kind {
        KEY_TEXT,
        KEY_CHOICE, /* index into `words` */
        KEY_COUNT,
        KEY_BYTES,
        KEY_RATE,
        KEY_TIME,
        KEY_FREQUENCY,
        KEY_FRACTION,
};

struct scenario_key {
        const char *section, *name;
        enum key_kind kind;
        size_t offset; /* in struct scenario: uint64_t, double (KEY_FRACTION) or char[SCENARIO_TEXT_MAX]
                          (KEY_TEXT) */
        const char *standard; /* value where nothing is said */
        const char *
                words; /* KEY_CHOICE: all values, separated by '|'; else one word with a meaning of its own */
        uint64_t word_value;  /* of that word */
        uint64_t least, most; /* of numbers */
        const char *help;
        bool local; /* paths here, and where nodes find each other: not to be set by an order from elsewhere
                     */
};

extern const struct scenario_key scenario_keys[];
extern const size_t n_scenario_keys;

const struct scenario_key *scenario_key_find(const char *section, const char *name);
/* What a key allows, in words: "push|pull", "a time (ns, us, ms, s, min, h)"; returns `text`. */
char *scenario_key_allowed(const struct scenario_key *key, char *text, size_t size_bytes);
/* The value as it would be written in a file; returns `text`. */
char *scenario_key_value(const struct scenario *s, const struct scenario_key *key, char *text,
                         size_t size_bytes);
/* 0, or -EINVAL: not such a value. */
int scenario_key_set(struct scenario *s, const struct scenario_key *key, const char *value);
/* "SECTION.KEY=VALUE" sets a local key, or a node's: nobody but who starts the program may. */
bool scenario_setting_is_local(const char *setting);
/* The keys as text for people: one section after the other, with meaning, values and default. */
void scenario_keys_print(FILE *to);
/* The same as the body of a man page (mdoc). */
void scenario_keys_print_man(FILE *to);
