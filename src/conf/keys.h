/* The one table of keys. The scenario file, --set, `evb check`, the help and the manual page use it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "conf/scenario.h"

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
        const char *old_name; /* SECTION.KEY, still accepted; NULL: none */
        enum key_kind kind;
        /* In struct scenario: uint64_t, double (KEY_FRACTION) or char[SCENARIO_TEXT_MAX] (KEY_TEXT). */
        size_t offset;
        const char *standard; /* the default */
        /* KEY_CHOICE: all values, separated by '|'. KEY_TEXT: the values, for people. Numbers: a word that
         * stands for word_value, or NULL. */
        const char *words;
        uint64_t word_value;
        const char *other_word; /* a second word of a number, or NULL */
        uint64_t other_value;
        uint64_t least, most; /* bounds of numbers */
        const char *help;
        /* Bits of enum node_role (KEY_OF): the nodes that apply another value while they run (0: none), and
         * the only nodes that use the key at all (0: any). */
        unsigned applied_by, used_by;
};

#define KEY_OF(role) (1u << (role))

extern const struct scenario_key scenario_keys[];
extern const size_t n_scenario_keys;

/* A key of an earlier version that has no effect any more. */
struct removed_key {
        const char *name;    /* SECTION.KEY */
        const char *instead; /* what the user does instead, as an imperative or a fact */
};

extern const struct removed_key removed_keys[]; /* ends with a row without a name */

/* By name or old name. */
const struct scenario_key *scenario_key_find(const char *section, const char *name);
/* NULL: there was no such key. */
const struct removed_key *removed_key_find(const char *section, const char *name);
/* The values that a key takes: "push or pull", "a time from 1ms to 60s"; returns `text`. */
char *scenario_key_allowed(const struct scenario_key *key, char *text, size_t size_bytes);
/* Why scenario_key_set() rejected `value`, and what it expects instead; returns `text`. */
char *scenario_key_reject(const struct scenario_key *key, const char *value, char *text, size_t size_bytes);
/* The value as a file holds it; returns `text`. */
char *scenario_key_value(const struct scenario *s, const struct scenario_key *key, char *text,
                         size_t size_bytes);
/* 0, or -EINVAL if the key does not take this value. */
int scenario_key_set(struct scenario *s, const struct scenario_key *key, const char *value);
/* Copies the value of one key, which has no syntax of its own (not KEY_TEXT). */
void scenario_key_copy(struct scenario *to, const struct scenario *from, const struct scenario_key *key);
/* The nodes that apply another value at run time, for people: "the DFM", "a ROS or an SFI"; "": none. Returns
 * `text`. */
char *scenario_key_appliers(const struct scenario_key *key, char *text, size_t size_bytes);
/* All keys for people, section by section. */
void scenario_keys_print(FILE *to);
/* The sections UNITS and KEYS of a manual page (mdoc). */
void scenario_keys_print_man(FILE *to);
