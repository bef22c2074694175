/* evb lab: lists the published measurements and removes what dead runs left. lab_run.c measures, and
 * lab_report.c makes the report. */
#include "lab.h"

#include <stdio.h>
#include <string.h>

#include "base/strbuf.h"
#include "base/util.h"
#include "cmd/commands.h"
#include "lab/needs.h"
#include "lab/states.h"
#include "run/netns.h"

static json_t *range_json(const struct lab_needs *needs, const struct lab_range *range)
{
        return needs->testbed ? json_pack("{s:i, s:i}", "least", (int)range->least, "most", (int)range->most)
                              : json_null();
}

/* "needs" has the text for people; "dfm", "ros" and "sfi" have the nodes, null for this machine alone. */
static json_t *describe(const struct lab_measurement *m, const struct lab_needs *needs, const char *text)
{
        json_t *features = json_array();

        for (size_t i = 0; i < needs->n_features; i++)
                json_array_append_new(features, json_string(needs->features[i]));
        return json_pack(
                "{s:s, s:s, s:s, s:s, s:o, s:o, s:o, s:o}", "id", m->id, "title", m->title, "published",
                m->published, "needs", text, "dfm", needs->testbed ? json_integer(1) : json_null(), "ros",
                range_json(needs, &needs->ros), "sfi", range_json(needs, &needs->sfi), "features", features);
}

static int list(const struct lab_options *o)
{
        json_t *all = json_array();
        int r = 0;

        for (size_t i = 0; i < lab_count() && r >= 0; i++) {
                const struct lab_measurement *m = lab_at(i);
                struct lab_needs needs = {};
                char text[512];
                struct strbuf b = strbuf_init(text, sizeof text);

                r = lab_needs_find(m, &needs);
                lab_needs_write(&needs, &b);
                if (o->common.json)
                        json_array_append_new(all, describe(m, &needs, text));
                else if (r >= 0)
                        printf("%-10s %s\n%-10s published: %s\n%-10s needs: %s\n", m->id, m->title, "",
                               m->published, "", text);
        }
        if (r < 0)
                fprintf(stderr, "evb lab list: %s\n", strerror(-r));
        else if (o->common.json)
                return options_write_json(&o->common, json_pack("{s:o}", "measurements", all), 0);
        json_decref(all);
        return r < 0 ? 1 : 0;
}

static int clean(const struct lab_options *o)
{
        int namespaces = netns_clean(), directories = lab_states_clean();

        if (o->common.json)
                return options_write_json(
                        &o->common,
                        json_pack("{s:i, s:i}", "namespaces", namespaces, "directories", directories), 0);
        printf("removed %d namespaces and %d directories in /tmp of dead runs\n", namespaces, directories);
        return 0;
}

/* Bits of the verbs that use an option. */
enum lab_verb { LAB_RUN = 1, LAB_REPORT = 2 };

static const struct verb {
        struct command command;
        int (*run)(const struct lab_options *o);
        size_t n_words;
} verbs[] = {
        {{"lab list", cmd_lab, "",
          "List the measurements, the published results, and the nodes that each needs.", OPTION_JSON},
         list,
         0},
        {{"lab run", cmd_lab, "ID...|all", "Measure the points that the results file does not contain yet.",
          OPTION_SET | OPTION_JSON | OPTION_PROGRESS, LAB_RUN},
         lab_run,
         OPTIONS_MANY},
        {{"lab report", cmd_lab, "RESULTS...", "Make a report with plots and verdicts from results files.",
          OPTION_JSON, LAB_REPORT},
         lab_report,
         OPTIONS_MANY},
        {{"lab clean", cmd_lab, "", "Remove namespaces and directories of dead runs.", OPTION_JSON},
         clean,
         0},
};

static int run_verb(const struct verb *v, int argc, char **argv)
{
        struct lab_options o = {};
        const struct option_entry own[] = {
                {"quick", NULL, "measure fewer and shorter points, in about 7 minutes for all", &o.quick,
                 .verbs = LAB_RUN},
                {"results", "FILE", "results file (default: " LAB_RESULTS ")", &o.results, .verbs = LAB_RUN},
                {"again", NULL, "repeat points that the results file already contains", &o.again,
                 .verbs = LAB_RUN},
                {"accept-disturbed", NULL, "judge points even if other work on this machine disturbed them",
                 &o.accept, .verbs = LAB_RUN},
                {"config", "FILE", "measure on the standby nodes of this scenario, rather than in namespaces",
                 &o.scenario, .verbs = LAB_RUN},
                {"sim", NULL,
                 "make the points in virtual time, without privileges; several at once, if there are "
                 "several processors",
                 &o.simulate, .verbs = LAB_RUN},
                {"seed", "N", "seed of the simulations (default: 1)", &o.seed, .verbs = LAB_RUN},
                {"model", "SETTINGS",
                 "processors and cables of the simulations, as options of evb sim without dashes, e.g. "
                 "\"processors=2 send-time=10us\"",
                 &o.model, .verbs = LAB_RUN},
                {"output", "DIRECTORY", "directory for the report and its plots (default: " LAB_OUTPUT ")",
                 &o.output, .verbs = LAB_REPORT},
        };
        int r = options_parse(&o.common, &v->command, own, ARRAY_SIZE(own), v->n_words, argc, argv);

        if (r == OPTIONS_GO_ON && o.common.n_settings > 0 && !o.scenario) {
                fprintf(stderr, "evb lab run: --set needs --config FILE\n");
                return 2;
        }
        return r == OPTIONS_GO_ON ? v->run(&o) : r;
}

int cmd_lab(int argc, char **argv)
{
        int status;
        const struct verb *v =
                options_find_verb(verbs, ARRAY_SIZE(verbs), sizeof *verbs, argc, argv, &status);

        return v ? run_verb(v, argc - 1, argv + 1) : status;
}
