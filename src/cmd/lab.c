/* evb lab: the published measurements, made again on this machine, judged, and shown. */
#include <errno.h>
#include <jansson.h>
#include <libgen.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "evb/base/log.h"
#include "evb/base/strbuf.h"
#include "evb/base/util.h"
#include "evb/cmd/commands.h"
#include "evb/lab/catalogue.h"
#include "evb/launch/netns.h"
#include "evb/sys/loop.h"
#include "lab_results.h"
#include "lab_states.h"

#define RESULTS "evb-lab.jsonl"
#define SCRIPT "lab-report.py"

struct lab_options {
        struct options common;
        const char *quick, *results, *output, *again, *scenario;
};

static int list(const struct lab_options *o)
{
        json_t *all = json_array();
        FILE *to = options_open_json(&o->common);

        if (o->common.json && !to)
                return 2;
        for (size_t i = 0; i < n_lab_catalogue; i++) {
                const struct lab_measurement *m = &lab_catalogue[i];

                if (to)
                        json_array_append_new(all, json_pack("{s:s, s:s, s:s}", "id", m->id, "title",
                                                             m->title, "published", m->published));
                else
                        printf("%-10s %s\n%-10s then: %s\n", m->id, m->title, "", m->published);
        }
        if (to) {
                json_t *whole = json_pack("{s:O}", "measurements", all);

                json_dumpf(whole, to, JSON_INDENT(1));
                fputc('\n', to);
                json_decref(whole);
        }
        json_decref(all);
        return options_close_json(&o->common, to, 0);
}

/* "all", a letter, an id, or several with commas between. */
static bool is_meant(const struct lab_measurement *m, const char *words)
{
        for (const char *w = words; *w; w += strcspn(w, ","), w += *w == ',') {
                size_t n = strcspn(w, ",");

                if ((n == 3 && strncmp(w, "all", 3) == 0) || (n == 1 && m->id[0] == w[0]) ||
                    (strlen(m->id) == n && strncmp(m->id, w, n) == 0))
                        return true;
        }
        return false;
}

static int refuse_unknown(const char *words)
{
        for (const char *w = words; *w; w += strcspn(w, ","), w += *w == ',') {
                int n = (int)strcspn(w, ",");
                bool known = n == 3 && strncmp(w, "all", 3) == 0;
                char word[64];

                snprintf(word, sizeof word, "%.*s", n, w);
                for (size_t i = 0; i < n_lab_catalogue; i++)
                        known |= is_meant(&lab_catalogue[i], word);
                if (known)
                        continue;
                fprintf(stderr, "evb lab run: there is no measurement \"%s\", allowed: all, a letter, or",
                        word);
                for (size_t i = 0; i < n_lab_catalogue; i++)
                        fprintf(stderr, " %s", lab_catalogue[i].id);
                fprintf(stderr, "; as many as wanted\n");
                return 2;
        }
        return 0;
}

/* Keeps the points that the testbed has nodes and links for. Reports what others lack, each thing once. */
static size_t keep_possible(const struct lab_measurement *m, struct lab_point *points, size_t n)
{
        char lack[160] = "", lacks[600] = "";
        struct strbuf b = strbuf_init(lacks, sizeof lacks);
        size_t kept = 0;

        for (size_t i = 0; i < n; i++) {
                if (lab_can_make(&points[i], lack, sizeof lack))
                        points[kept++] = points[i];
                else if (!strstr(lacks, lack))
                        strbuf_add(&b, "%s%s %s", b.length > 0 ? "; " : "", m->id, lack);
        }
        if (kept < n)
                fprintf(stderr, "evb lab run: %zu of %zu points of %s are skipped: %s\n", n - kept, n, m->id,
                        lacks);
        return kept;
}

static size_t plan(const char *words, const struct lab_bed *bed, bool quick, struct lab_point *points,
                   size_t max, size_t *ret_skipped)
{
        size_t n = 0;

        *ret_skipped = 0;
        for (size_t i = 0; i < n_lab_catalogue; i++) {
                size_t all, kept;

                if (!is_meant(&lab_catalogue[i], words))
                        continue;
                all = lab_points(&lab_catalogue[i], bed, quick, points + n, max - n);
                kept = keep_possible(&lab_catalogue[i], points + n, all);
                n += kept;
                *ret_skipped += all - kept;
        }
        return n;
}

/* The machines of --scenario; none: namespaces, for which root is needed. An exit status. */
static int open_bed(const struct lab_options *o, struct lab_bed *bed)
{
        if (!o->scenario && geteuid() != 0) {
                fprintf(stderr, "evb lab run: network namespaces need root; machines whose nodes stand by "
                                "(--scenario) do not\n");
                return 77;
        }
        if (!o->scenario)
                return 0;
        bed->scenario = command_load(o->scenario, &o->common);
        if (!bed->scenario)
                return 2;
        if (bed->scenario->ros.source_kind != SOURCE_PATTERN) {
                fprintf(stderr, "%s: ros.source: \"%s\" is not allowed for evb lab run, allowed: pattern\n",
                        o->scenario, bed->scenario->ros.source);
                return 2;
        }
        return remote_new(&bed->remote, bed->scenario, o->common.settings, o->common.n_settings) < 0 ? 1 : 0;
}

static void close_bed(struct lab_bed *bed)
{
        remote_free(bed->remote);
        free((struct scenario *)bed->scenario);
}

/* Some measure the same points and look at another figure of them. */
static const json_t *same_point(const json_t *results, const struct lab_point *p)
{
        const json_t *r;
        size_t i;

        json_array_foreach(results, i, r)
        {
                const char *settings = json_string_value(json_object_get(r, "settings"));

                if (settings && strcmp(settings, p->settings) == 0 &&
                    json_number_value(json_object_get(r, "x")) == p->x && results_are_of(r, p->bed) &&
                    !json_object_get(r, "copied") && json_object_get(r, p->measurement->y))
                        return r;
        }
        return NULL;
}

static void draw(const struct lab_options *o, const struct lab_point *p, size_t i, size_t n, double left_s)
{
        if (!o->common.progress && !isatty(STDERR_FILENO))
                return;
        fprintf(stderr, "%s%zu/%zu %s, %s%s%s at %g; some %d min %02d s left    %s",
                isatty(STDERR_FILENO) ? "\r" : "", i + 1, n, p->measurement->id, p->panel ?: "",
                p->panel ? ", " : "", p->series, p->x, (int)left_s / 60, (int)left_s % 60,
                isatty(STDERR_FILENO) ? "" : "\n");
}

enum made { MADE, NOT_MADE, NOT_KEPT };

static enum made make(int fd, const char *path, struct lab_point *p, json_t *results)
{
        const json_t *twin = same_point(results, p);
        json_t *figures = twin ? json_deep_copy(twin) : p->measurement->run(p);
        bool interrupted = signals_are_waiting();

        /* What was interrupted is no point. */
        if (!figures || interrupted) {
                json_decref(figures);
                if (!interrupted)
                        fprintf(stderr, "evb lab run: %s: \"%s%s%s\" at %g could not be made\n",
                                p->measurement->id, p->panel ?: "", p->panel ? ", " : "", p->series, p->x);
                return NOT_MADE;
        }
        if (twin)
                json_object_set_new(figures, "copied", json_true());
        if (!results_append(fd, path, p, figures)) {
                json_decref(figures);
                return NOT_KEPT;
        }
        json_array_append_new(results, figures);
        return MADE;
}

static int tell_verdicts(const struct lab_options *o, const char *words, const struct lab_bed *bed,
                         const json_t *results)
{
        json_t *all = json_array(), *whole;
        FILE *to = options_open_json(&o->common);
        bool differs = false;

        if (o->common.json && !to)
                return 2;
        for (size_t i = 0; i < n_lab_catalogue; i++) {
                const struct lab_measurement *m = &lab_catalogue[i];
                char why[600] = "";
                enum lab_verdict v;
                json_t *mine;

                if (!is_meant(m, words))
                        continue;
                mine = results_of_bed(results, m->id, bed);
                v = lab_judge(m, mine, o->quick ? LAB_QUICK : LAB_WHOLE, why, sizeof why);
                json_decref(mine);
                differs |= v == LAB_DIFFERS;
                if (to != stdout)
                        printf("%-10s %-8s %s\n%-10s %-8s then: %s\n", m->id, lab_verdict_text(v), why, "",
                               "", m->published);
                json_array_append_new(all, json_pack("{s:s, s:s, s:s}", "id", m->id, "verdict",
                                                     lab_verdict_text(v), "why", why));
        }
        whole = json_pack("{s:o}", "verdicts", all);
        if (to) {
                json_dumpf(whole, to, JSON_INDENT(1));
                fputc('\n', to);
        }
        json_decref(whole);
        return options_close_json(&o->common, to, differs ? 1 : 0);
}

/* The work of one `evb lab run`, and its progress. */
struct running {
        const char *path;
        int fd;
        struct lab_point *points;
        json_t *results;
        size_t n, failed, skipped;
        bool full; /* points can no longer be written */
};

static int prepare(const struct lab_options *o, const char *words, const struct lab_bed *bed,
                   struct running *r)
{
        /* Makes a full disk an error of the call that meets it. */
        signal(SIGXFSZ, SIG_IGN);
        r->fd = results_open(r->path);
        if (r->fd < 0)
                return r->fd == -EBUSY ? 1 : 2;
        r->results = o->again ? json_array() : results_read(&r->path, 1);
        if (!r->results)
                return 2;
        r->n = plan(words, bed, o->quick, r->points, LAB_POINTS_MAX, &r->skipped);
        lab_states_warn();
        return 0;
}

static void make_all(const struct lab_options *o, struct running *r)
{
        double left_s = 0;

        for (size_t i = 0; i < r->n; i++)
                left_s += results_have(r->results, &r->points[i]) ? 0 : r->points[i].seconds;
        for (size_t i = 0; i < r->n && !r->full && !signals_are_waiting(); i++) {
                enum made made;

                if (results_have(r->results, &r->points[i]))
                        continue;
                draw(o, &r->points[i], i, r->n, left_s);
                made = make(r->fd, r->path, &r->points[i], r->results);
                r->failed += made == NOT_MADE;
                r->full = made == NOT_KEPT;
                left_s -= r->points[i].seconds;
        }
        if (isatty(STDERR_FILENO))
                fputc('\n', stderr);
}

/* Returns an exit status. */
static int tell_end(const struct lab_options *o, const char *words, const struct lab_bed *bed,
                    const struct running *r)
{
        int status;

        if (signals_are_waiting() || r->full) {
                fprintf(stderr,
                        "evb lab run: %s; the points made so far are in %s, and the same command continues "
                        "from there\n",
                        r->full ? "stopped, as no more points can be written" : "interrupted", r->path);
                return 1;
        }
        status = tell_verdicts(o, words, bed, r->results);
        if (r->failed > 0)
                fprintf(stderr, "evb lab run: %zu points could not be made\n", r->failed);
        return status == 0 && r->failed + r->skipped > 0 ? 1 : status;
}

static int run(const struct lab_options *o)
{
        char states[LAB_STATES_PATH_MAX] = "", words[512];
        struct strbuf b = strbuf_init(words, sizeof words);
        struct running r = {
                .path = o->results ?: RESULTS, .fd = -1, .points = calloc(LAB_POINTS_MAX, sizeof *r.points)};
        struct lab_bed bed = {};
        int status, error;

        for (size_t i = 0; i < o->common.n_words; i++)
                strbuf_add(&b, "%s%s", i > 0 ? "," : "", o->common.words[i]);
        status = r.points ? refuse_unknown(words) : 1;
        if (status == 0)
                status = open_bed(o, &bed);
        if (status == 0)
                status = prepare(o, words, o->scenario ? &bed : NULL, &r);
        signals_hold();
        /* Otherwise shaping of namespaces would mix with the state of the machine's own devices. */
        if (status == 0 && (error = lab_states_make(states)) < 0) {
                fprintf(stderr, "evb lab run: cannot create a folder in /tmp: %s\n", strerror(-error));
                status = 1;
        }
        if (status == 0) {
                make_all(o, &r);
                if (strcmp(getenv("EVB_STATE_DIRECTORY") ?: "", states) == 0)
                        lab_states_remove(states);
                status = tell_end(o, words, o->scenario ? &bed : NULL, &r);
        }
        json_decref(r.results);
        close_bed(&bed);
        free(r.points);
        if (r.fd >= 0)
                close(r.fd);
        return status;
}

/* Beside the program as it was built, or where it was installed. */
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

/* All planned points, so that missing ones show. */
static json_t *planned_of(const struct lab_measurement *m, const json_t *results)
{
        _cleanup_free_ struct lab_point *points = calloc(LAB_POINTS_MAX, sizeof *points);
        bool quick = lab_extent_of(m, results) == LAB_QUICK;
        size_t n = points ? lab_points(m, NULL, quick, points, LAB_POINTS_MAX) : 0;
        json_t *all = json_array();

        for (size_t i = 0; i < n; i++)
                json_array_append_new(all, json_pack("{s:s, s:f, s:s?}", "series", points[i].series, "x",
                                                     points[i].x, "panel", points[i].panel));
        return all;
}

static json_t *describe(const struct lab_measurement *m, const json_t *results)
{
        json_t *points = results_of(results, m->id), *marks = json_array(), *panels = json_array(), *o;
        enum lab_verdict v;
        char why[600] = "";

        v = lab_judge(m, points, LAB_AS_MADE, why, sizeof why);
        for (const struct lab_mark *k = lab_marks; k->id; k++) {
                if (strcmp(k->id, m->id) == 0)
                        json_array_append_new(
                                marks, json_pack("{s:s, s:f, s:f}", "label", k->label, "x", k->x, "y", k->y));
        }
        for (size_t i = 0; i < m->sweep.n_panels; i++)
                json_array_append_new(panels, json_string(m->sweep.panels[i].name));
        o = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:b, s:s, s:s, s:o, s:o, s:o}", "id", m->id, "title",
                      m->title, "published", m->published, "x_label", m->x_label, "y_label", m->y_label, "y",
                      m->y, "log_x", (int)m->log_x, "verdict", lab_verdict_text(v), "why", why, "points",
                      points, "marks", marks, "panels", panels);
        json_object_set_new(o, "planned", planned_of(m, points));
        return o;
}

static int report(const struct lab_options *o)
{
        const char *output = o->output ?: "evb-lab";
        json_t *results = results_read(o->common.words, o->common.n_words), *all = json_array(), *whole;
        char script[PATH_MAX], command[PATH_MAX + 600];
        FILE *to;
        int status;

        if (!results) {
                json_decref(all);
                return 2;
        }
        for (size_t i = 0; i < n_lab_catalogue; i++)
                json_array_append_new(all, describe(&lab_catalogue[i], results));
        whole = json_pack("{s:o, s:s}", "measurements", all, "version", EVB_VERSION);
        json_decref(results);
        if (!find_script(script)) {
                fprintf(stderr,
                        "evb lab report: " SCRIPT " is neither in scripts beside the build nor installed\n");
                json_decref(whole);
                return 77;
        }
        if (strpbrk(output, "'\\\n") || strpbrk(script, "'\\\n")) {
                fprintf(stderr,
                        "evb lab report: --output: \"%s\" is not allowed, allowed: a folder without quotes "
                        "in its name\n",
                        output);
                json_decref(whole);
                return 2;
        }
        /* Debian's matplotlib belongs to Debian's python3, which need not be the first one. */
        snprintf(command, sizeof command,
                 "p=python3; $p -c 'import matplotlib' 2>/dev/null || p=/usr/bin/python3; exec $p '%s' "
                 "'%.500s'",
                 script, output);
        /* If it ends early, its status says so. */
        signal(SIGPIPE, SIG_IGN);
        to = popen(command, "w");
        if (to)
                json_dumpf(whole, to, JSON_COMPACT);
        status = to ? pclose(to) : -1;
        json_decref(whole);
        return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

static int clean(const struct lab_options *o)
{
        int namespaces = netns_clean(), folders = lab_states_clean();

        (void)o;
        printf("%d namespaces and %d folders in /tmp of runs that live no more removed\n", namespaces,
               folders);
        return 0;
}

static const struct verb {
        struct command command;
        int (*run)(const struct lab_options *o);
        size_t n_words;
} verbs[] = {
        {{"lab list", cmd_lab, "", "The measurements, and what was published."}, list, 0},
        {{"lab run", cmd_lab, "ID...|all",
          "Make measurements again (root); what is in the file of results already is not made twice."},
         run,
         OPTIONS_MANY},
        {{"lab report", cmd_lab, "RESULTS...",
          "A page with all pictures and verdicts, from files of results."},
         report,
         OPTIONS_MANY},
        {{"lab clean", cmd_lab, "", "Remove what killed runs have left."}, clean, 0},
};

static int run_verb(const struct verb *v, int argc, char **argv)
{
        struct lab_options o = {};
        const struct option_entry own[] = {
                {"quick", NULL, "fewer and shorter points: all of them in under 5 minutes", &o.quick},
                {"results", "FILE", "where points go, and are looked for; default: " RESULTS, &o.results},
                {"again", NULL, "make points that are there again", &o.again},
                {"scenario", "FILE",
                 "run: measure on its machines, whose nodes stand by (evb ROLE --standby), not in namespaces "
                 "here",
                 &o.scenario},
                {"output", "FOLDER", "report: where pages and pictures go; default: evb-lab", &o.output},
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
