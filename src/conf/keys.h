/* The only table of keys. The scenario file, --set, `evb check`, the help and the manual page use it. */
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
        /* KEY_CHOICE: all values, separated by '|'. KEY_TEXT: a description of the values. Numbers: a word
         * that stands for word_value, or NULL. */
        const char *words;
        uint64_t word_value;
        const char *other_word; /* a second word for a number, or NULL */
        uint64_t other_value;
        uint64_t least, most; /* bounds of numbers */
        const char *help;
        /* Bits of enum node_role (KEY_OF): the nodes that apply a new value at run time (0: none), and the
         * only nodes that use the key (0: all). */
        unsigned applied_by, used_by;
};

#define KEY_OF(role) (1u << (role))

extern const struct scenario_key scenario_keys[];
extern const size_t n_scenario_keys;

/* A key of an earlier version. It no longer has any effect, or its value is now a part of the value of
 * another key. */
struct removed_key {
        const char *name;    /* SECTION.KEY */
        const char *instead; /* what to do instead: an imperative or a fact; NULL: nothing, or see `key` */
        const char *section, *key; /* the other key; NULL: none, and the removed key has no effect */
        const char *with;          /* the values of the other key to which it belongs; NULL: any */
        const char *without;       /* the value of the other key with which it has no effect; NULL: none */
        const char *after;         /* what its value follows; NULL: a colon */
        const char *first;         /* what else the other key needs if it has no colon; NULL: nothing */
        const char *written;       /* what stands there instead of its value; NULL: the value */
        const char *usual;         /* its default, which changes nothing */
        const char *words;         /* all its values, separated by '|'; NULL: not a choice */
        bool is_time;              /* its values are times in trigger.source */
        const char *whole;         /* the value that the other key then gets; "": OLD-VALUE; NULL:
                                      VALUE:OLD-VALUE */
};

extern const struct removed_key removed_keys[]; /* ends with a row without a name */

/* Finds a key by its name or old name. */
const struct scenario_key *scenario_key_find(const char *section, const char *name);
/* NULL: no such key was removed. */
const struct removed_key *removed_key_find(const char *section, const char *name);
/* Describes the values that a key accepts: "push or pull", "a time from 1ms to 60s"; returns `text`. */
char *scenario_key_allowed(const struct scenario_key *key, char *text, size_t size_bytes);
/* Explains why scenario_key_set() rejected `value`, and what it expects instead; returns `text`. */
char *scenario_key_reject(const struct scenario_key *key, const char *value, char *text, size_t size_bytes);
/* Formats the value in the syntax of the file; returns `text`. */
char *scenario_key_value(const struct scenario *s, const struct scenario_key *key, char *text,
                         size_t size_bytes);
/* 0, or -EINVAL if the key does not accept this value. */
int scenario_key_set(struct scenario *s, const struct scenario_key *key, const char *value);
/* Copies the value of one key. The key must not be KEY_TEXT, because such a key may have a special syntax. */
void scenario_key_copy(struct scenario *to, const struct scenario *from, const struct scenario_key *key);
/* Lists the nodes that apply a new value at run time: "the DFM", "a ROS or an SFI"; "": none. Returns
 * `text`. */
char *scenario_key_appliers(const struct scenario_key *key, char *text, size_t size_bytes);
/* Prints a readable list of all keys, section by section. */
void scenario_keys_print(FILE *to);
/* Prints the sections UNITS and KEYS of a manual page (mdoc). */
void scenario_keys_print_man(FILE *to);
