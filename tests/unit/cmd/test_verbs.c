/* The options of all commands and their verbs: each accepts those that its help lists, and refuses those of
 * the others. */
#include "../test.h"

#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"

int program_main(int argc, char **argv);
#define main program_main
#include "../../../src/main.c"
#undef main

#define VERBS_MAX 64
#define OPTIONS_MAX 48
#define ALL_MAX 256
/* Of a screen. */
#define LINES 50
#define COLUMNS 80

/* A command, or a verb of one. */
struct verb {
        const struct command *command;
        char name[32]; /* "qos plan" */
        char help[8192];
        struct option {
                char name[32], value[32];
                bool has_argument;
        } options[OPTIONS_MAX];
        size_t n;
};

static struct verb *verbs;
static size_t n_verbs;
static struct option all[ALL_MAX]; /* the options of all verbs, each once */
static size_t n_all;

/* Runs "VERB WORDS"; `text` receives what it prints. Returns its exit status. */
static int run_by(int (*call)(int argc, char **argv), const char *verb, const char *words, char *text,
                  size_t size)
{
        char line[512], *argv[32], *save = NULL;
        int argc = 0, status, out = dup(STDOUT_FILENO), err = dup(STDERR_FILENO),
            to = memfd_create("text", MFD_CLOEXEC);
        ssize_t n;

        snprintf(line, sizeof line, "%s %s", verb, words);
        for (char *word = strtok_r(line, " ", &save); word; word = strtok_r(NULL, " ", &save))
                argv[argc++] = word;
        argv[argc] = NULL;
        fflush(NULL);
        assert_true(to >= 0 && out >= 0 && err >= 0);
        assert_true(dup2(to, STDOUT_FILENO) >= 0 && dup2(to, STDERR_FILENO) >= 0);
        status = call(argc, argv);
        fflush(NULL);
        assert_true(dup2(out, STDOUT_FILENO) >= 0 && dup2(err, STDERR_FILENO) >= 0);
        n = pread(to, text, size - 1, 0);
        assert_true(n >= 0);
        text[n] = '\0';
        close(to);
        close(out);
        close(err);
        return status;
}

static int run(const struct command *command, const char *verb, const char *words, char *text, size_t size)
{
        return run_by(command->run, verb, words, text, size);
}

static bool has(const struct option *options, size_t n, const char *name)
{
        for (size_t i = 0; i < n; i++) {
                if (strcmp(options[i].name, name) == 0)
                        return true;
        }
        return false;
}

/* "  --node NAME   text"; two blanks after the name: it has no argument. The lines of its parts, with four
 * blanks, follow. */
static void add_option(struct verb *v, const char *line)
{
        struct option o = {.value = "1"};
        const char *next = strstr(line, "\n  --"), *part = strstr(line, "\n    ");

        assert_int_equal(sscanf(line, "  --%31s", o.name), 1);
        o.has_argument = line[strlen("  --") + strlen(o.name) + 1] != ' ';
        for (; part && part < next; part = strstr(part + 1, "\n    ")) {
                if (part[strlen("\n    ")] != ' ') {
                        assert_int_equal(sscanf(part, " %31s", o.value), 1);
                        break;
                }
        }
        assert_true(v->n < OPTIONS_MAX && n_all < ALL_MAX);
        v->options[v->n++] = o;
        if (!has(all, n_all, o.name))
                all[n_all++] = o;
}

static void add_verb(const struct command *command, const char *name)
{
        struct verb *v = &verbs[n_verbs++];

        assert_true(n_verbs <= VERBS_MAX);
        v->command = command;
        snprintf(v->name, sizeof v->name, "%s", name);
        assert_int_equal(run(command, name, "--help", v->help, sizeof v->help), 0);
        for (const char *line = v->help; (line = strstr(line, "\n  --"));)
                add_option(v, ++line);
        assert_true(v->n >= 4);
}

static int find_verbs(void **state)
{
        verbs = calloc(VERBS_MAX, sizeof *verbs);
        assert_non_null(verbs);
        for (size_t i = 0; i < ARRAY_SIZE(commands); i++) {
                char text[8192], name[64], *line;

                assert_int_equal(run(&commands[i], commands[i].name, "--help", text, sizeof text), 0);
                line = strstr(text, "\nVerbs:\n");
                if (!line)
                        add_verb(&commands[i], commands[i].name);
                for (line = line ? line + strlen("\nVerbs:") : NULL; line && strncmp(line, "\n  ", 3) == 0;
                     line = strchr(line + 1, '\n')) {
                        /* The others go on with the text. */
                        if (line[3] != ' ') {
                                snprintf(name, sizeof name, "%s %.*s", commands[i].name,
                                         (int)strcspn(line + 3, " "), line + 3);
                                add_verb(&commands[i], name);
                        }
                }
        }
        return 0;
}

static int forget_verbs(void **state)
{
        free(verbs);
        return 0;
}

/* --help after an option prints the help if the option is accepted. */
static int try(const struct verb *v, const struct option *o, const char *value, char *text, size_t size)
{
        char words[128];

        snprintf(words, sizeof words, "--%.31s%s%.63s --help", o->name, o->has_argument ? "=" : "",
                 o->has_argument ? value : "");
        return run(v->command, v->name, words, text, size);
}

/* Tries the value that the help names, then values of each kind: alone, or after NAME= of the help. */
static int try_values(const struct verb *v, const struct option *o, char *text, size_t size)
{
        static const char *const kinds[] = {"1", "1s", "1500", "1MiB"};
        int n = (int)strcspn(o->value, "="), status = try(v, o, o->value, text, size);
        char value[64];

        for (size_t i = 0; status != 0 && i < ARRAY_SIZE(kinds); i++) {
                snprintf(value, sizeof value, "%.*s%s%s", o->value[n] ? n : 0, o->value,
                         o->value[n] ? "=" : "", kinds[i]);
                status = try(v, o, value, text, size);
        }
        return status;
}

TEST(all_listed_options_are_accepted)
{
        char text[8192];

        /* Each of these names costs every user a line to read: a new one replaces another. */
        assert_true(n_verbs > 30 && n_all > 50 && n_all <= 100);
        for (const struct verb *v = verbs; v < verbs + n_verbs; v++) {
                for (size_t i = 0; i < v->n; i++) {
                        if (try_values(v, &v->options[i], text, sizeof text) != 0)
                                fail_msg("evb %s --%s: %s", v->name, v->options[i].name, text);
                }
        }
        log_set_level(LOG_LEVEL_INFO);
}

TEST(all_options_of_others_are_refused)
{
        char text[8192], named[48];
        int r;

        for (const struct verb *v = verbs; v < verbs + n_verbs; v++) {
                for (size_t i = 0; i < n_all; i++) {
                        /* --key, which evb stream has, is also the old name of --token-file. */
                        if (has(v->options, v->n, all[i].name) ||
                            (strcmp(all[i].name, "key") == 0 && has(v->options, v->n, "token-file")))
                                continue;
                        snprintf(named, sizeof named, "option --%.31s", all[i].name);
                        /* The old name of a part of another option still works. */
                        r = try_values(v, &all[i], text, sizeof text);
                        if (r == 0 && strstr(text, " is now --"))
                                continue;
                        if (r != 2 || !strstr(text, named))
                                fail_msg("evb %s --%s: %s", v->name, all[i].name, text);
                }
        }
}

/* What `evb WORDS` prints, in turns between two texts. */
static const char *evb(const char *words, int status)
{
        static char texts[2][8192];
        static unsigned n;
        char *text = texts[n++ % ARRAY_SIZE(texts)];

        assert_int_equal(run_by(run_command, "evb", words, text, sizeof texts[0]), status);
        return text;
}

TEST(help_groups_all_commands)
{
        const char *text = evb("help", 0), *at = text;

        assert_string_equal(text, evb("--help", 0));
        assert_string_equal(text, evb("-h", 0));
        assert_string_equal(text, evb("", 2));
        for (size_t i = 0; i < ARRAY_SIZE(groups); i++) {
                char heading[64];

                snprintf(heading, sizeof heading, "\n\n%s:\n  %s ", groups[i].title, groups[i].first);
                at = strstr(at, heading);
                assert_non_null(at);
        }
}

TEST(help_describes_a_command_or_verb)
{
        assert_string_equal(evb("help run", 0), evb("run --help", 0));
        assert_string_equal(evb("help qos", 0), evb("qos -h", 0));
        assert_string_equal(evb("help qos plan", 0), evb("qos plan -h", 0));
        assert_string_equal(evb("version", 0), evb("--version", 0));
        assert_non_null(strstr(evb("help fly", 2), "unknown command \"fly\"; see `evb --help`"));
}

TEST(mistyped_commands_get_a_proposal)
{
        static const char *const cases[][2] = {
                {"rnu", "run"},
                {"dmf", "dfm"},
                {"fsi", "sfi"},
                {"stats", "status"},
                {"front-end", "frontend"},
        };

        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                char expected[128];

                snprintf(expected, sizeof expected,
                         "evb: unknown command \"%s\"; did you mean \"%s\"? See `evb --help`\n", cases[i][0],
                         cases[i][1]);
                assert_string_equal(evb(cases[i][0], 2), expected);
        }
        assert_non_null(strstr(evb("qos aply", 2),
                               "unknown verb \"aply\"; did you mean \"apply\"? Expected plan, apply"));
        assert_string_equal(evb("x", 2), "evb: unknown command \"x\"; see `evb --help`\n");
}

TEST(each_help_fits_a_screen)
{
        for (const struct verb *v = verbs; v < verbs + n_verbs; v++) {
                size_t lines = 0;

                for (const char *line = v->help; *line; line += strcspn(line, "\n") + 1) {
                        lines++;
                        if (strcspn(line, "\n") > COLUMNS)
                                fail_msg("evb %s --help: %.*s", v->name, (int)strcspn(line, "\n"), line);
                }
                if (lines > LINES)
                        fail_msg("evb %s --help has %zu lines", v->name, lines);
        }
}

int main(int argc, char **argv)
{
        return test_run(argc, argv, find_verbs, forget_verbs);
}
