/* evb lab: checks the command line, and runs the Python package of the lab with it. */
#include <string.h>

#include "base/util.h"
#include "cmd/commands.h"
#include "cmd/options.h"

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
        return python_command_run("lab", "evb.lab", strchr(v->command.name, ' ') + 1, own, ARRAY_SIZE(own),
                                  &o);
}
