/* evb lab report: judges results files, and passes them to the script that draws the plots, or with --json
 * writes them. */
#include "lab/judge.h"
#include "lab/valid.h"
#include "lab.h"

#include <libgen.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/util.h"
#include "lab_results.h"

#define SCRIPT "lab-report.py"

/* In the source tree beside the build, or installed. */
static bool find_script(char path[static PATH_MAX])
{
        char self[PATH_MAX];
        ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
        const char *const places[] = {"../../scripts", "../share/evb"};

        if (n < 0)
                return false;
        self[n] = '\0';
        dirname(self);
        for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
                snprintf(path, PATH_MAX, "%.3000s/%s/" SCRIPT, self, places[i]);
                if (access(path, R_OK) == 0)
                        return true;
        }
        return false;
}

/* All planned points, so that the report can show missing ones. */
static json_t *planned_of(const struct lab_measurement *m, const json_t *results, const struct lab_bed *bed)
{
        _cleanup_free_ struct lab_point *points = calloc(LAB_POINTS_MAX, sizeof *points);
        bool quick = lab_extent_of(m, results) == LAB_QUICK;
        size_t n = points ? lab_points(m, bed, quick, points, LAB_POINTS_MAX) : 0;
        json_t *all = json_array();
        char lack[160];

        for (size_t i = 0; i < n; i++) {
                if (lab_is_virtual(bed) && !lab_can_make(&points[i], lack, sizeof lack))
                        continue;
                json_array_append_new(all, json_pack("{s:s, s:f, s:s?}", "series", points[i].series, "x",
                                                     points[i].x, "panel", points[i].panel));
        }
        return all;
}

/* The results that the verdict is about: those of labs, or without any, those of the simulator. */
static json_t *judged_of(const json_t *points, bool *ret_simulated)
{
        json_t *some = json_array(), *r;
        size_t i, labs = 0;

        json_array_foreach((json_t *)points, i, r)
        {
                labs += !results_are_simulated(r);
        }
        *ret_simulated = labs == 0 && json_array_size(points) > 0;
        json_array_foreach((json_t *)points, i, r)
        {
                if (results_are_simulated(r) == *ret_simulated)
                        json_array_append(some, r);
        }
        return some;
}

static json_t *describe(const struct lab_measurement *m, const json_t *results)
{
        const struct lab_virtual virtual = {.model = ""};
        const struct lab_bed bed = {.virtual = &virtual};
        json_t *points = results_of(results, m->id), *marks = json_array(), *panels = json_array(), *o,
               *judged;
        enum lab_verdict v;
        bool simulated;
        char why[600] = "";

        judged = judged_of(points, &simulated);
        v = lab_judge(m, judged, LAB_AS_MADE, why, sizeof why);
        for (const struct lab_mark *k = m->marks; k < m->marks + LAB_MARKS_MAX && k->label; k++)
                json_array_append_new(marks,
                                      json_pack("{s:s, s:f, s:f}", "label", k->label, "x", k->x, "y", k->y));
        for (size_t i = 0; i < m->sweep.n_panels; i++)
                json_array_append_new(panels, json_string(m->sweep.panels[i].name));
        o = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:b, s:s, s:s, s:o, s:o, s:o}", "id", m->id, "title",
                      m->title, "published", m->published, "x_label", m->x_label, "y_label", m->y_label, "y",
                      m->y, "log_x", (int)m->log_x, "verdict", lab_verdict_text(v), "why", why, "points",
                      points, "marks", marks, "panels", panels);
        json_object_set_new(o, "planned", planned_of(m, judged, simulated ? &bed : NULL));
        json_object_set_new(o, "crowded_share", json_real(LAB_CROWDED_SHARE));
        json_decref(judged);
        return o;
}

int lab_report(const struct lab_options *o)
{
        const char *output = o->output ?: LAB_OUTPUT;
        json_t *results = results_read(o->common.words, o->common.n_words), *all = json_array(), *whole;
        char script[PATH_MAX], command[PATH_MAX + 600];
        FILE *to;
        int status;

        if (!results) {
                json_decref(all);
                return 2;
        }
        for (size_t i = 0; i < lab_count(); i++)
                json_array_append_new(all, describe(lab_at(i), results));
        whole = json_pack("{s:o, s:s}", "measurements", all, "version", EVB_VERSION);
        json_decref(results);
        if (o->common.json)
                return options_write_json(&o->common, whole, 0);
        if (!find_script(script)) {
                fprintf(stderr,
                        "evb lab report: " SCRIPT " is not installed; expected it in ../../scripts or "
                        "../share/evb of the program's directory\n");
                json_decref(whole);
                return 77;
        }
        if (strpbrk(output, "'\\\n") || strpbrk(script, "'\\\n")) {
                fprintf(stderr,
                        "evb lab report: --output: invalid directory \"%s\"; expected a name without quotes, "
                        "backslashes and newlines\n",
                        output);
                json_decref(whole);
                return 2;
        }
        /* The first python3 in PATH may lack matplotlib, which Debian installs for /usr/bin/python3. */
        snprintf(command, sizeof command,
                 "p=python3; $p -c 'import matplotlib' 2>/dev/null || p=/usr/bin/python3; exec $p '%s' "
                 "'%.500s'",
                 script, output);
        /* If the script ends early, its exit status reports the failure. */
        signal(SIGPIPE, SIG_IGN);
        to = popen(command, "w");
        if (to)
                json_dumpf(whole, to, JSON_COMPACT);
        status = to ? pclose(to) : -1;
        json_decref(whole);
        return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
