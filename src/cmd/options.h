/* The options of a subcommand or of one of its verbs. One table feeds the parser, the help and the manual
 * page. An option that the verb does not use is an error. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* A measurement sets most keys of a scenario. */
#define OPTIONS_SETTINGS_MAX 128
#define OPTIONS_WORDS_MAX 1024
#define OPTIONS_MANY SIZE_MAX /* one or more positional arguments */
/* At most one positional argument, a scenario, which is a shorter form of the command's own --config. */
#define OPTIONS_SCENARIO (SIZE_MAX - 1)
/* Like OPTIONS_MANY, but the word after `--json` is its FILE if a positional argument comes before it. */
#define OPTIONS_FILES (SIZE_MAX - 2)

/* The arguments of a repeatable option. */
struct option_list {
        const char **values; /* the caller frees it */
        size_t n;
};

/* The common options that not every verb uses. */
enum common_option { OPTION_SET = 1, OPTION_JSON = 2, OPTION_PROGRESS = 4 };

/* One option of a subcommand. */
struct option_entry {
        const char *name;     /* "node" is --node */
        const char *argument; /* its argument in the help, "NAME"; NULL: a flag */
        const char *help;
        const char **value; /* receives the argument; for a flag, its name; NULL: only its number is read */
        struct option_list *list; /* instead of value, if repeatable */
        unsigned verbs;           /* bits of the verbs that use it; 0: all */
        /* The own option that sets this one: "fault" if --fault NAME=VALUE does, once for each NAME. Such an
         * option has neither value nor list. The name alone is the spelling of earlier versions, which still
         * works, with a warning. */
        const char *part_of;
        const char *part; /* NAME; NULL: `name` */
        const char *key;  /* SECTION.KEY that --set sets instead; the option still works, with a warning */
        const char *now;  /* what replaces it, "--rate poisson:FREQUENCY"; it still works, with a warning */
        const char *was;  /* its name in earlier versions, which still works, with a warning; NULL: none */
        /* See OPTION_NUMBER() and OPTION_FRACTION(). `expected` ends the error about an invalid argument. */
        int (*parse)(const char *text, uint64_t *ret);
        uint64_t *number, least, most;
        double *fraction;
        const char *expected;
};

/* The end of an entry whose argument is a number, which `parse_`, e.g. quantity_parse_time(), stores in *to.
 * Without the option, *to remains unchanged. */
#define OPTION_NUMBER(parse_, to, least_, most_, expected_)                                                  \
        .parse = parse_, .number = to, .least = least_, .most = most_, .expected = expected_
#define OPTION_FRACTION(to, expected_) .fraction = to, .expected = expected_

struct command {
        const char *name;
        int (*run)(int argc, char **argv);
        const char *arguments; /* positional arguments: "FILE" or "" */
        const char *help;      /* help text of one line */
        unsigned common;       /* bits of enum common_option for the options that it uses */
        unsigned verb;         /* its bit in option_entry.verbs */
};

struct options {
        const char *settings[OPTIONS_SETTINGS_MAX]; /* --set */
        size_t n_settings;
        bool json;
        const char *json_path; /* NULL: standard output */
        bool progress;
        bool quiet; /* --quiet; options_parse() has set the level of the log, as for --verbose */
        const char *words[OPTIONS_WORDS_MAX]; /* positional */
        size_t n_words;
        uint64_t named[2]; /* bits of the own options given by their present name, and by an earlier one */
};

/* The commit that the program was built from, with "-dirty" if files had been changed; "none": it was not
 * built from a git repository, but e.g. from a released archive. */
extern const char version_commit[];

/* Prints "evb 0.3.0 (commit 9aea2bba0b1f)" on standard output. */
void version_print(void);

/* Before the name of a command, where help and messages name it: "evb " makes "evb qos plan", and "evb-", in
 * the program evb-qos, "evb-qos plan". */
extern const char *command_prefix;

/* Any other result of options_parse() is the exit status. */
enum options_result { OPTIONS_GO_ON = -1 };

/* argv[0] is the subcommand, and n_words the number of its positional arguments. The word after `--json` is
 * its FILE only if all positional arguments come before it; `--json=FILE` is never ambiguous. At most 64 own
 * options. Refuses an option with its earlier name and its present one. Prints errors, which give exit
 * status 2. */
int options_parse(struct options *o, const struct command *command, const struct option_entry *own,
                  size_t n_own, size_t n_words, int argc, char **argv);
/* Prints that the argument of an option is invalid, e.g. of the command "stream send". Returns 2. */
int options_refuse(const char *command, const char *option, const char *text, const char *expected);
/* Whether to print progress: on a terminal unless --quiet, elsewhere with --progress. */
bool options_wants_progress(const struct options *o);
/* Finds the verb that argv[1] names, e.g. `evb qos plan`, in n structures of each_bytes bytes that begin with
 * a struct command, whose name is "qos plan". NULL: help or an error was printed, and *ret_status is the exit
 * status. */
const void *options_find_verb(const void *verbs, size_t n, size_t each_bytes, int argc, char **argv,
                              int *ret_status);
/* The command or verb among such structures that `name` may misspell; NULL: none. */
const char *options_find_similar(const void *verbs, size_t n, size_t each_bytes, const char *name);
/* The file for --json. NULL: no --json, or it cannot be opened, which is logged. */
FILE *options_open_json(const struct options *o);
/* Closes the file; NULL is allowed. Returns `status`. If `status` is 0 and the file does not contain
 * everything that was written, returns 1. main() checks standard output. */
int options_close_json(const struct options *o, FILE *json, int status);
/* Writes the report of a command with --json, and releases it; NULL: out of memory. Returns `status`. If
 * `status` is 0, returns 2 if the file cannot be opened, and 1 if it does not contain the whole report. Logs
 * the error. */
int options_write_json(const struct options *o, json_t *report, int status);
