/* Parses the command line of a subcommand by its table of options, and prints the help from it. */
#include "cmd/options.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/quantity.h"
#include "base/strbuf.h"
#include "base/util.h"

/* Columns where the texts of the help begin, and the width of a screen. */
#define HELP_COLUMN 26
#define VERB_COLUMN 11
#define HELP_WIDTH 80
/* A name that differs in this many letters is not suggested, because the names of verbs are short. */
#define SIMILAR_FAR 3u
/* Number of digits of a figure in a report: fewer than a double has, so that 0.1 does not become
 * 0.10000000000000001. */
#define REAL_DIGITS 12

const char *command_prefix = "evb ";

static const struct option_entry common_options[] = {
        {"set", "SECTION.KEY=VALUE", "override a key of the scenario; repeatable", .verbs = OPTION_SET},
        {"json", "[FILE]", "write the report as one JSON object to FILE (default: standard output)",
         .verbs = OPTION_JSON},
        {"progress", NULL, "print progress to standard error even if it is not a terminal",
         .verbs = OPTION_PROGRESS},
        {"verbose", NULL, "also log debug messages (short: -v)"},
        {"quiet", NULL, "log only warnings and errors; no progress (short: -q)"},
        {"help", NULL, "print this help (short: -h)"},
        {"version", NULL, "print the version"},
};

static bool applies(const struct option_entry *e, unsigned verbs)
{
        return e->verbs == 0 || (e->verbs & verbs) != 0;
}

/* Prints words in lines of at most HELP_WIDTH; the first one begins at `column`, the others at `indent`. */
static void print_words(FILE *to, int column, int indent, const char *text)
{
        for (bool first = true; *text; first = false) {
                int n = (int)strcspn(text, " ");

                if (!first && column + 1 + n > HELP_WIDTH)
                        column = fprintf(to, "\n%*s", indent, "") - 1;
                else if (!first)
                        column += fprintf(to, " ");
                column += fprintf(to, "%.*s", n, text);
                text += n;
                text += strspn(text, " ");
        }
        fputc('\n', to);
}

static const char *part_name(const struct option_entry *e)
{
        return e->part ?: e->name;
}

/* Prints the help of one option: as a part (NAME=VALUE) of the option `of`, or as an option of its own
 * (--NAME) if `of` is NULL. */
static void print_option(const struct option_entry *e, const struct option_entry *of)
{
        int column;

        if (of)
                column = printf("    %s%s%s", part_name(e), e->argument ? "=" : "", e->argument ?: "");
        else
                column = printf("  --%s%s%s", e->name, e->argument ? " " : "", e->argument ?: "");
        column += printf("%*s", MAX(1, HELP_COLUMN - column), "");
        print_words(stdout, column, HELP_COLUMN, e->help);
}

static bool is_part(const struct option_entry *e, const struct option_entry *of)
{
        return e->part_of && strcmp(e->part_of, of->name) == 0;
}

static void print_options(const struct option_entry *entries, size_t n, unsigned verbs)
{
        for (const struct option_entry *e = entries; e < entries + n; e++) {
                if (!applies(e, verbs) || e->part_of || e->key || e->now)
                        continue;
                print_option(e, NULL);
                for (const struct option_entry *p = entries; p < entries + n; p++) {
                        if (is_part(p, e) && applies(p, verbs))
                                print_option(p, e);
                }
        }
}

static void print_help(const struct command *c, const struct option_entry *own, size_t n_own)
{
        printf("Usage: %s%s%s%s [OPTION]...\n", command_prefix, c->name, c->arguments[0] ? " " : "",
               c->arguments);
        print_words(stdout, 0, 0, c->help);
        putchar('\n');
        print_options(own, n_own, c->verb);
        print_options(common_options, ARRAY_SIZE(common_options), c->common);
}

static int __attribute__((format(printf, 2, 3))) usage(const struct command *c, const char *format, ...)
{
        va_list args;

        fprintf(stderr, "%s%s: ", command_prefix, c->name);
        va_start(args, format);
        vfprintf(stderr, format, args);
        va_end(args);
        fprintf(stderr, "; see `%s%s --help`\n", command_prefix, c->name);
        return 2;
}

/* Other names of options. */
static const struct {
        const char *other, *name;
} aliases[] = {{"scenario", "config"}, {"key", "token-file"}};

static bool is_name(const char *own, const char *name, size_t length)
{
        return own && strlen(own) == length && strncmp(own, name, length) == 0;
}

static const struct option_entry *find(const struct option_entry *entries, size_t n, const char *name,
                                       size_t length)
{
        for (size_t i = 0; i < n; i++) {
                if (is_name(entries[i].name, name, length))
                        return &entries[i];
        }
        return NULL;
}

/* Finds an option of the command itself, by its name, its earlier name, or another one. */
static const struct option_entry *find_own(const struct option_entry *own, size_t n_own, const char *name,
                                           size_t length)
{
        const struct option_entry *e = find(own, n_own, name, length);

        for (size_t i = 0; !e && i < n_own; i++)
                e = is_name(own[i].was, name, length) ? &own[i] : NULL;
        for (size_t i = 0; !e && i < ARRAY_SIZE(aliases); i++) {
                if (is_name(aliases[i].other, name, length))
                        e = find(own, n_own, aliases[i].name, strlen(aliases[i].name));
        }
        return e;
}

/* Maximum number of positional arguments, given the options read so far. */
static size_t words_max(const struct option_entry *own, size_t n_own, size_t n_words)
{
        const struct option_entry *config = find(own, n_own, "config", strlen("config"));

        if (n_words != OPTIONS_SCENARIO)
                return MIN(n_words, (size_t)OPTIONS_WORDS_MAX);
        return config && *config->value ? 0 : 1;
}

/* Sets the log level; the last of --quiet and --verbose wins. */
static int set_level(struct options *o, bool quiet)
{
        o->quiet = quiet;
        log_set_level(quiet ? LOG_LEVEL_WARNING : LOG_LEVEL_DEBUG);
        return OPTIONS_GO_ON;
}

static int set_json(struct options *o, const char *value, size_t max_words, int argc, char **argv, int *i)
{
        o->json = true;
        if (value)
                o->json_path = value;
        else if (o->n_words == max_words && *i + 1 < argc && argv[*i + 1][0] != '-')
                o->json_path = argv[++*i];
        return OPTIONS_GO_ON;
}

void version_print(void)
{
        bool built_from_git = strcmp(version_commit, "none") != 0;

        printf("evb %s%s%s%s\n", EVB_VERSION, built_from_git ? " (commit " : "",
               built_from_git ? version_commit : "", built_from_git ? ")" : "");
}

/* Handles a common option without an argument. */
static int set_flag_option(struct options *o, const struct command *c, const char *name,
                           const struct option_entry *own, size_t n_own)
{
        if (strcmp(name, "help") == 0) {
                print_help(c, own, n_own);
                return 0;
        }
        if (strcmp(name, "version") == 0) {
                version_print();
                return 0;
        }
        if (strcmp(name, "progress") != 0)
                return set_level(o, strcmp(name, "quiet") == 0);
        o->progress = true;
        return OPTIONS_GO_ON;
}

/* The argument of an option is after '=', or the next word. */
static int find_argument(const struct command *c, const char *option, const char **value, int argc,
                         char **argv, int *i)
{
        if (!*value) {
                if (*i + 1 >= argc)
                        return usage(c, "option %s requires an argument", option);
                *value = argv[++*i];
        }
        return OPTIONS_GO_ON;
}

static bool is_valid(const struct option_entry *e, const char *value)
{
        if (e->fraction)
                return quantity_parse_fraction(value, e->fraction) >= 0;
        return !e->parse ||
               (e->parse(value, e->number) >= 0 && *e->number >= e->least && *e->number <= e->most);
}

static int keep_value(const struct command *c, const struct option_entry *e, const char *value)
{
        if (!is_valid(e, value)) {
                fprintf(stderr, "%s%s: --%s%s%s: invalid value \"%s\"; expected %s\n", command_prefix,
                        c->name, e->part_of ?: "", e->part_of ? " " : "", part_name(e), value, e->expected);
                return 2;
        }
        if (e->value)
                *e->value = value;
        if (!e->list)
                return OPTIONS_GO_ON;
        const char **grown = reallocarray(e->list->values, e->list->n + 1, sizeof *grown);

        if (!grown)
                return usage(c, "out of memory at option %s", e->name);
        grown[e->list->n++] = value;
        e->list->values = grown;
        return OPTIONS_GO_ON;
}

/* Refuses an option that was given by an earlier name and its present one: which argument is meant? */
static int check_names(struct options *o, const struct command *c, const struct option_entry *own,
                       const struct option_entry *e, bool old)
{
        uint64_t bit = UINT64_C(1) << (e - own);

        o->named[old] |= bit;
        if (e->list || e->key || e->now || !(o->named[!old] & bit))
                return OPTIONS_GO_ON;
        return usage(c, "--%s and --%s%s%s exclude each other", e->part_of ? e->name : e->was,
                     e->part_of ?: e->name, e->part_of ? " " : "", e->part_of ? part_name(e) : "");
}

/* NAME=VALUE, or NAME for a part without a value. */
static int keep_part(struct options *o, const struct command *c, const struct option_entry *of,
                     const struct option_entry *own, size_t n_own, const char *text)
{
        const char *value = strchr(text, '=');
        size_t length = value ? (size_t)(value - text) : strlen(text);
        int r;

        for (const struct option_entry *e = own; e < own + n_own; e++) {
                const char *name = part_name(e);

                if (!is_part(e, of) || !applies(e, c->verb) || strlen(name) != length ||
                    strncmp(name, text, length) != 0)
                        continue;
                if (!e->argument != !value)
                        return usage(c, "--%s %s: expected %s%s%s", of->name, text, name,
                                     e->argument ? "=" : "", e->argument ?: "");
                r = check_names(o, c, own, e, false);
                return r != OPTIONS_GO_ON ? r : keep_value(c, e, value ? value + 1 : name);
        }
        return usage(c, "--%s %s: unknown name \"%.*s\"", of->name, text, (int)length, text);
}

/* Refuses the same for an option that --set replaces, or that is now a part of another option's argument,
 * behind ':'. */
static int check_replaced(const struct options *o, const struct command *c, const struct option_entry *own,
                          size_t n_own)
{
        for (const struct option_entry *e = own; e < own + n_own; e++) {
                const struct option_entry *by =
                        e->now ? find(own, n_own, e->now + 2, strcspn(e->now + 2, " ")) : NULL;

                if (!(o->named[true] & UINT64_C(1) << (e - own)))
                        continue;
                if (by && *by->value && strchr(*by->value, ':'))
                        return usage(c, "--%s and --%s %s exclude each other", e->name, by->name, *by->value);
                for (size_t i = 0; e->key && i < o->n_settings; i++) {
                        if (is_name(e->key, o->settings[i], strcspn(o->settings[i], "=")))
                                return usage(c, "--%s and --set %s exclude each other", e->name,
                                             o->settings[i]);
                }
        }
        return OPTIONS_GO_ON;
}

static void warn_of_old_name(const struct option_entry *e, const char *value)
{
        if (e->key)
                log_warning("--%s %s is now --set %s=%s", e->name, value, e->key, value);
        else if (e->now)
                log_warning("--%s is now %s", e->name, e->now);
        else if (e->was)
                log_warning("--%s is now --%s", e->was, e->name);
        else if (e->argument)
                log_warning("--%s %s is now --%s %s=%s", e->name, value, e->part_of, part_name(e), value);
        else
                log_warning("--%s is now --%s %s", e->name, e->part_of, part_name(e));
}

static int add_setting(struct options *o, const struct command *c, const char *value)
{
        if (o->n_settings == OPTIONS_SETTINGS_MAX)
                return usage(c, "too many settings at %s", value);
        o->settings[o->n_settings++] = value;
        return OPTIONS_GO_ON;
}

static int read_option(struct options *o, const struct command *c, const struct option_entry *own,
                       size_t n_own, size_t n_words, int argc, char **argv, int *i)
{
        const char *option = argv[*i], *name = option + 2, *value = strchr(name, '=');
        size_t length = value ? (size_t)(value - name) : strlen(name);
        const struct option_entry *e = find_own(own, n_own, name, length);
        bool is_own = e != NULL, is_old;
        int r = OPTIONS_GO_ON;

        e = e ?: find(common_options, ARRAY_SIZE(common_options), name, length);
        value = value ? value + 1 : NULL;
        if (!e)
                return usage(c, "unknown option %s", option);
        if (!applies(e, is_own ? c->verb : c->common))
                return usage(c, "option --%s does not apply here", e->name);
        if (value && !e->argument)
                return usage(c, "option %s takes no argument", option);
        if (value && !*value)
                return usage(c, "option %s requires an argument", option);
        if (!is_own && strcmp(e->name, "json") == 0)
                return set_json(o, value,
                                n_words == OPTIONS_FILES ? MAX(o->n_words, (size_t)1)
                                                         : words_max(own, n_own, n_words),
                                argc, argv, i);
        if (e->argument)
                r = find_argument(c, option, &value, argc, argv, i);
        if (r != OPTIONS_GO_ON)
                return r;
        if (!is_own)
                return e->argument ? add_setting(o, c, value) : set_flag_option(o, c, e->name, own, n_own);
        if (value && !e->value && !e->list && !e->expected)
                return keep_part(o, c, e, own, n_own, value);
        is_old = e->part_of || e->key || e->now || is_name(e->was, name, length);
        r = check_names(o, c, own, e, is_old);
        if (r != OPTIONS_GO_ON)
                return r;
        if (is_old)
                warn_of_old_name(e, value);
        return keep_value(c, e, e->argument ? value : e->name);
}

/* Uses the argument as the value of --config. */
static int name_scenario(struct options *o, const struct command *c, const struct option_entry *own,
                         size_t n_own)
{
        const char **config = find(own, n_own, "config", strlen("config"))->value;

        if (o->n_words > 0 && *config)
                return usage(c, "--config %s and the argument \"%s\" exclude each other", *config,
                             o->words[0]);
        if (o->n_words > 0)
                *config = o->words[0];
        return OPTIONS_GO_ON;
}

int options_parse(struct options *o, const struct command *command, const struct option_entry *own,
                  size_t n_own, size_t n_words, int argc, char **argv)
{
        bool only_words = false;
        int r;

        assert(n_own <= 64);
        *o = (struct options){};
        for (int i = 1; i < argc; i++) {
                if (!only_words && strcmp(argv[i], "--") == 0) {
                        only_words = true;
                        continue;
                }
                if (!only_words && strncmp(argv[i], "--", 2) == 0) {
                        r = read_option(o, command, own, n_own, n_words, argc, argv, &i);
                        if (r != OPTIONS_GO_ON)
                                return r;
                        continue;
                }
                if (!only_words && (strcmp(argv[i], "-v") == 0 || strcmp(argv[i], "-q") == 0)) {
                        (void)set_level(o, argv[i][1] == 'q');
                        continue;
                }
                if (!only_words && strcmp(argv[i], "-h") == 0) {
                        print_help(command, own, n_own);
                        return 0;
                }
                if (!only_words && argv[i][0] == '-' && argv[i][1])
                        return usage(command, "unknown option %s", argv[i]);
                if (o->n_words == words_max(own, n_own, n_words))
                        return usage(command, "unexpected argument \"%s\"", argv[i]);
                o->words[o->n_words++] = argv[i];
        }
        r = check_replaced(o, command, own, n_own);
        if (r != OPTIONS_GO_ON)
                return r;
        if (n_words == OPTIONS_SCENARIO)
                return name_scenario(o, command, own, n_own);
        if (n_words == OPTIONS_MANY || n_words == OPTIONS_FILES ? o->n_words == 0 : o->n_words < n_words)
                return usage(command, "missing argument %s", command->arguments);
        return OPTIONS_GO_ON;
}

int options_refuse(const char *command, const char *option, const char *text, const char *expected)
{
        fprintf(stderr, "%s%s: --%s: invalid value \"%s\"; expected %s\n", command_prefix, command, option,
                text, expected);
        return 2;
}

bool options_wants_progress(const struct options *o)
{
        return o->progress || (isatty(STDERR_FILENO) && !o->quiet);
}

static const struct command *verb_at(const void *verbs, size_t each_bytes, size_t i)
{
        return (const void *)((const char *)verbs + i * each_bytes);
}

static const char *last_word(const char *name)
{
        const char *blank = strrchr(name, ' ');

        return blank ? blank + 1 : name;
}

static int print_verbs(const char *command, const void *verbs, size_t n, size_t each_bytes, FILE *to)
{
        fprintf(to, "Usage: %s%s VERB [OPTION]...\n\nVerbs:\n", command_prefix, command);
        for (size_t i = 0; i < n; i++) {
                const struct command *c = verb_at(verbs, each_bytes, i);

                print_words(to, fprintf(to, "  %-8s ", last_word(c->name)), VERB_COLUMN, c->help);
        }
        fprintf(to, "\n`%s%s VERB --help` describes a verb.\n", command_prefix, command);
        return to == stdout ? 0 : 2;
}

const char *options_find_similar(const void *verbs, size_t n, size_t each_bytes, const char *name)
{
        const char *best = NULL;
        unsigned least = SIMILAR_FAR;

        for (size_t i = 0; i < n; i++) {
                const char *each = last_word(verb_at(verbs, each_bytes, i)->name);
                unsigned d = text_distance(name, each);

                if (d < least && d < strlen(each)) {
                        least = d;
                        best = each;
                }
        }
        return best;
}

const void *options_find_verb(const void *verbs, size_t n, size_t each_bytes, int argc, char **argv,
                              int *ret_status)
{
        const char *similar;

        if (argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
                *ret_status = print_verbs(argv[0], verbs, n, each_bytes, argc < 2 ? stderr : stdout);
                return NULL;
        }
        if (strcmp(argv[1], "--version") == 0) {
                version_print();
                *ret_status = 0;
                return NULL;
        }
        for (size_t i = 0; i < n; i++) {
                if (strcmp(argv[1], last_word(verb_at(verbs, each_bytes, i)->name)) == 0)
                        return verb_at(verbs, each_bytes, i);
        }
        similar = options_find_similar(verbs, n, each_bytes, argv[1]);
        fprintf(stderr, "%s%s: unknown verb \"%s\"; ", command_prefix, argv[0], argv[1]);
        if (similar)
                fprintf(stderr, "did you mean \"%s\"? Expected ", similar);
        else
                fprintf(stderr, "expected ");
        for (size_t i = 0; i < n; i++)
                fprintf(stderr, "%s%s", last_word(verb_at(verbs, each_bytes, i)->name),
                        i + 2 < n    ? ", "
                        : i + 2 == n ? " or "
                                     : "\n");
        *ret_status = 2;
        return NULL;
}

FILE *options_open_json(const struct options *o)
{
        FILE *f;

        if (!o->json)
                return NULL;
        if (!o->json_path)
                return stdout;
        f = fopen(o->json_path, "we");
        if (!f)
                log_error_errno(errno, "--json %s: %m", o->json_path);
        return f;
}

int options_close_json(const struct options *o, FILE *json, int status)
{
        bool failed;
        int r;

        if (!json || json == stdout)
                return status;
        failed = ferror(json) != 0;
        r = fclose(json) != 0 ? -errno : 0;
        if (r < 0)
                log_error_errno(r, "--json %s: cannot write the report: %m", o->json_path);
        else if (failed)
                log_error("--json %s: cannot write the report: part of it is lost", o->json_path);
        else
                return status;
        return status == 0 ? 1 : status;
}

int options_write_json(const struct options *o, json_t *report, int status)
{
        FILE *to = options_open_json(o);

        if (!to) {
                json_decref(report);
                return status == 0 ? 2 : status;
        }
        /* If a write failed, the stream has an error, which options_close_json() reports. */
        if (json_dumpf(report, to, JSON_INDENT(1) | JSON_REAL_PRECISION(REAL_DIGITS)) < 0 && !ferror(to)) {
                log_error("--json: cannot make the report: out of memory");
                status = status == 0 ? 1 : status;
        }
        fputc('\n', to);
        json_decref(report);
        return options_close_json(o, to, status);
}
