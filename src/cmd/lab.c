/* evb lab: checks the command line, and runs the Python package of the lab with it. The package is in the
 * source tree beside the build, or installed beside the program. */
#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/util.h"
#include "cmd/commands.h"
#include "cmd/options.h"

#define PACKAGE "evb/lab/__main__.py"
/* Exit status: something that the lab needs is not installed. */
#define NOT_INSTALLED 77

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

static const char *quick, *results, *again, *accept_disturbed, *config, *ssh, *program, *simulate, *seed,
        *model, *output;
static const struct option_entry own[] = {
        {"quick", NULL, "measure fewer and shorter points, in about 7 minutes for all", &quick,
         .verbs = LAB_RUN},
        {"results", "FILE", "results file (default: evb-lab.jsonl)", &results, .verbs = LAB_RUN},
        {"again", NULL, "repeat points that the results file already contains", &again, .verbs = LAB_RUN},
        {"accept-disturbed", NULL, "judge points even if other work on this machine disturbed them",
         &accept_disturbed, .verbs = LAB_RUN},
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

/* Writes each option in the one form that is never ambiguous. */
static void add_options(struct words *w, const struct options *o)
{
        for (size_t i = 0; i < ARRAY_SIZE(own); i++) {
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

/* Names the program and its package to Python. */
static bool find_package(void)
{
        static const char *const places[] = {"../../python", "../share/evb/python"};
        char self[PATH_MAX], path[2 * PATH_MAX], file[2 * PATH_MAX + sizeof PACKAGE];
        ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);

        if (n < 0)
                return false;
        self[n] = '\0';
        setenv("EVB_PROGRAM", self, 1);
        dirname(self);
        for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
                snprintf(path, sizeof path, "%s/%s", self, places[i]);
                snprintf(file, sizeof file, "%s/" PACKAGE, path);
                if (access(file, R_OK) == 0)
                        return setenv("PYTHONPATH", path, 1) == 0;
        }
        return false;
}

/* Returns only if Python cannot be run. */
static int run_package(const struct verb *v, const struct options *o)
{
        struct words w = {};

        if (!find_package()) {
                fprintf(stderr, "evb lab: its Python package is not installed; expected " PACKAGE
                                " in ../../python or ../share/evb/python of the program's directory\n");
                return NOT_INSTALLED;
        }
        /* The package may lie in a folder of the system, where it leaves no compiled files. */
        add(&w, "python3");
        add(&w, "-B");
        add(&w, "-m");
        add(&w, "evb.lab");
        add(&w, "%s", strchr(v->command.name, ' ') + 1);
        add_options(&w, o);
        if (!w.failed)
                execvp(w.words[0], w.words);
        fprintf(stderr, "evb lab: cannot run python3: %s; install it, e.g. with: apt-get install python3\n",
                strerror(w.failed ? ENOMEM : errno));
        for (size_t i = 0; i < w.n; i++)
                free(w.words[i]);
        return NOT_INSTALLED;
}

int cmd_lab(int argc, char **argv)
{
        struct options o;
        int status;
        const struct verb *v =
                options_find_verb(verbs, ARRAY_SIZE(verbs), sizeof *verbs, argc, argv, &status);

        if (!v)
                return status;
        status = options_parse(&o, &v->command, own, ARRAY_SIZE(own), v->n_words, argc - 1, argv + 1);
        return status == OPTIONS_GO_ON ? run_package(v, &o) : status;
}
