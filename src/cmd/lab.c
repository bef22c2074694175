/* evb lab: lists the published measurements and removes what dead runs left. lab_run.c measures, and
 * lab_report.c makes the report. */
#include "lab.h"

#include <stdio.h>

#include "evb/base/util.h"
#include "evb/cmd/commands.h"
#include "evb/lab/states.h"
#include "evb/launch/netns.h"

static int list(const struct lab_options *o)
{
        json_t *all = json_array();

        for (size_t i = 0; i < lab_count(); i++) {
                const struct lab_measurement *m = lab_at(i);

                if (o->common.json)
                        json_array_append_new(all, json_pack("{s:s, s:s, s:s}", "id", m->id, "title",
                                                             m->title, "published", m->published));
                else
                        printf("%-10s %s\n%-10s published: %s\n", m->id, m->title, "", m->published);
        }
        if (o->common.json)
                return options_write_json(&o->common, json_pack("{s:o}", "measurements", all), 0);
        json_decref(all);
        return 0;
}

static int clean(const struct lab_options *o)
{
        int namespaces = netns_clean(), directories = lab_states_clean();

        (void)o;
        printf("removed %d namespaces and %d directories in /tmp of dead runs\n", namespaces, directories);
        return 0;
}

static const struct verb {
        struct command command;
        int (*run)(const struct lab_options *o);
        size_t n_words;
} verbs[] = {
        {{"lab list", cmd_lab, "", "List the measurements and the published results."}, list, 0},
        {{"lab run", cmd_lab, "ID...|all", "Measure the points that the results file does not contain yet."},
         lab_run,
         OPTIONS_MANY},
        {{"lab report", cmd_lab, "RESULTS...", "Make a report with plots and verdicts from results files."},
         lab_report,
         OPTIONS_MANY},
        {{"lab clean", cmd_lab, "", "Remove namespaces and directories of dead runs."}, clean, 0},
};

static int run_verb(const struct verb *v, int argc, char **argv)
{
        struct lab_options o = {};
        const struct option_entry own[] = {
                {"quick", NULL, "run: measure fewer and shorter points, in less than 6 minutes for all",
                 &o.quick},
                {"results", "FILE", "run: results file (default: " LAB_RESULTS ")", &o.results},
                {"again", NULL, "run: repeat points that the results file already contains", &o.again},
                {"accept-disturbed", NULL,
                 "run: judge points even if other work on this machine disturbed them", &o.accept},
                {"scenario", "FILE",
                 "run: measure on the standby nodes of this scenario, rather than in namespaces",
                 &o.scenario},
                {"output", "DIRECTORY",
                 "report: directory for the report and its plots (default: " LAB_OUTPUT ")", &o.output},
        };
        int r = options_parse(&o.common, &v->command, own, ARRAY_SIZE(own), v->n_words, argc, argv);

        return r == OPTIONS_GO_ON ? v->run(&o) : r;
}

int cmd_lab(int argc, char **argv)
{
        int status;
        const struct verb *v =
                options_find_verb(verbs, ARRAY_SIZE(verbs), sizeof *verbs, argc, argv, &status);

        return v ? run_verb(v, argc - 1, argv + 1) : status;
}
