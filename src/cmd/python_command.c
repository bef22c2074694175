/* evb convert and evb lab: check the command line, and run a module of the Python package `evb` with it. */
#include "cmd/commands.h"

#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/util.h"

/* Exit status: something that the command needs is not installed. */
#define NOT_INSTALLED 77

/* The command line of Python. */
struct words {
        char *words[OPTIONS_SETTINGS_MAX + OPTIONS_WORDS_MAX + 32];
        size_t n;
        bool failed; /* out of memory */
};

static void __attribute__((format(printf, 2, 3))) add(struct words *w, const char *format, ...)
{
        va_list args;

        va_start(args, format);
        if (vasprintf(&w->words[w->n], format, args) < 0) {
                w->words[w->n] = NULL;
                w->failed = true;
        } else
                w->n++;
        va_end(args);
}

/* Writes each option in the only form that is never ambiguous. */
static void add_options(struct words *w, const struct option_entry *own, size_t n_own,
                        const struct options *o)
{
        for (size_t i = 0; i < n_own; i++) {
                if (*own[i].value && own[i].argument)
                        add(w, "--%s=%s", own[i].name, *own[i].value);
                else if (*own[i].value)
                        add(w, "--%s", own[i].name);
        }
        for (size_t i = 0; i < o->n_settings; i++)
                add(w, "--set=%s", o->settings[i]);
        if (o->json)
                add(w, "--json=%s", o->json_path ?: "-");
        if (o->progress)
                add(w, "--progress");
        if (o->quiet)
                add(w, "--quiet");
        if (o->n_words > 0)
                add(w, "--");
        for (size_t i = 0; i < o->n_words; i++)
                add(w, "%s", o->words[i]);
}

/* The user's own modules come after those of the package. */
static bool set_path(const char *folder)
{
        const char *theirs = getenv("PYTHONPATH");
        _cleanup_free_ char *path = NULL;

        if (asprintf(&path, "%s%s%s", folder, theirs && *theirs ? ":" : "", theirs ?: "") < 0)
                path = NULL;
        return path && setenv("PYTHONPATH", path, 1) == 0;
}

/* Whether a folder has a module: "evb.lab" is evb/lab/__init__.py or evb/lab.py. */
static bool has_module(const char *folder, const char *module)
{
        static const char *const ends[] = {"/__init__.py", ".py"};

        for (size_t i = 0; i < ARRAY_SIZE(ends); i++) {
                _cleanup_free_ char *file = NULL;

                if (asprintf(&file, "%s/%s%s", folder, module, ends[i]) < 0) {
                        file = NULL;
                        return false;
                }
                for (char *c = file + strlen(folder); c < file + strlen(file) - strlen(ends[i]); c++)
                        *c = *c == '.' ? '/' : *c;
                if (access(file, R_OK) == 0)
                        return true;
        }
        return false;
}

/* Passes the paths of the program and its package to Python. */
static bool find_package(const char *module)
{
        static const char *const places[] = {"../../python", "../share/evb/python",
                                             "../lib/python3/dist-packages"};
        char self[PATH_MAX], path[2 * PATH_MAX];
        ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);

        if (n < 0)
                return false;
        self[n] = '\0';
        setenv("EVB_PROGRAM", self, 1);
        setenv("EVB_VERSION", EVB_VERSION, 1);
        dirname(self);
        for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
                snprintf(path, sizeof path, "%s/%s", self, places[i]);
                if (has_module(path, module))
                        return set_path(path);
        }
        return false;
}

/* Runs a module of the Python package `evb`, which is in the source tree of the build, or installed with the
 * program: `python3 -m MODULE [VERB] OPTIONS -- WORDS`. `command` names the command in messages; `verb` may
 * be NULL. The options are those in `o`, and those of the n_own options in `own` that are set. EVB_PROGRAM
 * and EVB_VERSION in the environment are the path and version of the program. Returns only if Python cannot
 * be run: the exit status, after an error message. */
static int run_module(const char *command, const char *module, const char *verb,
                      const struct option_entry *own, size_t n_own, const struct options *o)
{
        struct words w = {};
        sigset_t interrupt;

        if (!find_package(module)) {
                fprintf(stderr,
                        "evb %s: its Python module %s is not installed; install the package %s, or put the "
                        "module into ../share/evb/python of the program's directory\n",
                        command, module, strcmp(module, "evb.lab") == 0 ? "evb-lab" : "python3-evb");
                return NOT_INSTALLED;
        }
        /* -B: the package may be in a system directory, where Python must not write compiled files. */
        add(&w, "python3");
        add(&w, "-B");
        add(&w, "-m");
        add(&w, "%s", module);
        if (verb)
                add(&w, "%s", verb);
        add_options(&w, own, n_own, o);
        /* While Python starts, it may lose the exception that a signal raises. The module unblocks the
         * signal. */
        sigemptyset(&interrupt);
        sigaddset(&interrupt, SIGINT);
        sigprocmask(SIG_BLOCK, &interrupt, NULL);
        if (!w.failed)
                execvp(w.words[0], w.words);
        fprintf(stderr, "evb %s: cannot run python3: %s; install it, e.g. with: apt-get install python3\n",
                command, strerror(w.failed ? ENOMEM : errno));
        for (size_t i = 0; i < w.n; i++)
                free(w.words[i]);
        return NOT_INSTALLED;
}

int cmd_convert(int argc, char **argv)
{
        static const struct command command = {"convert", cmd_convert, "RUN...",
                                               "Convert the event files of a run to columns for analysis.",
                                               OPTION_JSON | OPTION_PROGRESS};
        const char *output = NULL, *run = NULL, *decode = NULL, *compress = NULL;
        const struct option_entry own[] = {
                {"output", "FILE", "the new file: FILE.h5 for HDF5, FILE.root for an RNTuple of ROOT",
                 &output},
                {"run", "N", "run number, if the files are of several runs", &run},
                {"decode", "MODULE:FUNCTION",
                 "Python function that makes an array of the bytes of a fragment; its fields become columns",
                 &decode},
                {"compress", "LEVEL", "level of compression from 1 to 9, or 0 for none (default: 4)",
                 &compress},
        };
        struct options o;
        int status = options_parse(&o, &command, own, ARRAY_SIZE(own), OPTIONS_MANY, argc, argv);

        if (status != OPTIONS_GO_ON)
                return status;
        return run_module("convert", "evb.convert", NULL, own, ARRAY_SIZE(own), &o);
}

/* Bits of the verbs that use an option. */
enum lab_verb { LAB_RUN = 1, LAB_REPORT = 2 };

static const struct verb {
        struct command command;
        size_t n_words;
} verbs[] = {
        {{"lab list", cmd_lab, "",
          "List the measurements, the published results, and the nodes that each needs.", OPTION_JSON},
         0},
        {{"lab run", cmd_lab, "ID...|all", "Measure the points that the results file does not contain yet.",
          OPTION_SET | OPTION_JSON | OPTION_PROGRESS, LAB_RUN},
         OPTIONS_MANY},
        {{"lab report", cmd_lab, "RESULTS...", "Make a report with plots and verdicts from results files.",
          OPTION_JSON, LAB_REPORT},
         OPTIONS_MANY},
        {{"lab clean", cmd_lab, "", "Remove namespaces and directories of dead runs.", OPTION_JSON}, 0},
};

static const char *quick, *results, *again, *force, *config, *ssh, *program, *simulate, *seed, *model,
        *output;
static const struct option_entry own[] = {
        {"quick", NULL, "measure fewer and shorter points, in about 7 minutes for all", &quick,
         .verbs = LAB_RUN},
        {"results", "FILE", "results file (default: evb-lab.jsonl)", &results, .verbs = LAB_RUN},
        {"again", NULL, "repeat points that the results file already contains", &again, .verbs = LAB_RUN},
        {"force", NULL, "judge points even if other work on this machine disturbed them", &force,
         .was = "accept-disturbed", .verbs = LAB_RUN},
        {"config", "FILE", "measure on the machines of this scenario by ssh, rather than in namespaces",
         &config, .verbs = LAB_RUN},
        {"ssh", "COMMAND", "with --config, what reaches a machine (default: ssh -o BatchMode=yes)", &ssh,
         .verbs = LAB_RUN},
        {"program", "FILE", "with --config, evb on the machines (default: evb)", &program, .verbs = LAB_RUN},
        {"sim", NULL,
         "make the points in virtual time, without privileges; several at once, if there are several "
         "processors",
         &simulate, .verbs = LAB_RUN},
        {"seed", "N", "seed of the simulations (default: 1)", &seed, .verbs = LAB_RUN},
        {"model", "SETTINGS",
         "processors and cables of the simulations, as options of evb sim without dashes, e.g. "
         "\"processors=2 send-time=10us\"",
         &model, .verbs = LAB_RUN},
        {"output", "DIRECTORY", "directory for the report and its plots (default: evb-lab)", &output,
         .verbs = LAB_REPORT},
};

int cmd_lab(int argc, char **argv)
{
        struct options o;
        int status;
        const struct verb *v =
                options_find_verb(verbs, ARRAY_SIZE(verbs), sizeof *verbs, argc, argv, &status);

        if (!v)
                return status;
        status = options_parse(&o, &v->command, own, ARRAY_SIZE(own), v->n_words, argc - 1, argv + 1);
        if (status != OPTIONS_GO_ON)
                return status;
        return run_module("lab", "evb.lab", strchr(v->command.name, ' ') + 1, own, ARRAY_SIZE(own), &o);
}
