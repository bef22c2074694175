/* The options of a subcommand: one table feeds the parser and the help. The common ones are the same
 * everywhere. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define OPTIONS_SETTINGS_MAX 64
#define OPTIONS_WORDS_MAX 16
#define OPTIONS_MANY SIZE_MAX /* of positional arguments: one or more */

/* The arguments of an option that may be given more than once. */
struct option_list {
        const char **values; /* grows; freed by the caller */
        size_t n;
};

/* An option of one subcommand's own. */
struct option_entry {
        const char *name;     /* "node" is --node */
        const char *argument; /* what it takes, "NAME"; NULL: a flag */
        const char *help;
        const char **value;       /* where its argument goes (flags: their own name) */
        struct option_list *list; /* instead, for one that may be repeated */
};

struct command {
        const char *name;
        int (*run)(int argc, char **argv);
        const char *arguments; /* positional ones: "FILE" or "" */
        const char *help;      /* one line */
};

struct options {
        const char *settings[OPTIONS_SETTINGS_MAX]; /* --set */
        size_t n_settings;
        bool json;
        const char *json_path; /* NULL: standard output */
        bool progress;
        const char *words[OPTIONS_WORDS_MAX]; /* positional */
        size_t n_words;
};

/* What parsing ends in when it is not to go on: the exit status. */
enum options_result { OPTIONS_GO_ON = -1 };

/* argv[0] is the subcommand. `json` alone means standard output; a word after it is its file only where it is
 * written
 * --json=FILE or where all positional arguments (`n_words`) have been given before it. Mistakes are told on
 * standard error: exit status 2. */
int options_parse(struct options *o, const struct command *command, const struct option_entry *own,
                  size_t n_own, size_t n_words, int argc, char **argv);
/* The verb that argv[1] names, as in `evb qos plan`: one of n structures of each_bytes that begin with a
 * struct command, whose name is "qos plan". NULL: *ret_status is the exit status, and what there is has been
 * told. */
const void *options_find_verb(const void *verbs, size_t n, size_t each_bytes, int argc, char **argv,
                              int *ret_status);
/* Where --json goes; NULL where it is not asked for, or (the error has been told) cannot be opened. */
FILE *options_open_json(const struct options *o);
/* Closes it; NULL is allowed. Returns `status`, or 1 if the file does not hold all that was written and
 * `status` is 0. main() checks standard output. */
int options_close_json(const struct options *o, FILE *json, int status);
