/* evb lab run: measures the planned points one by one, and appends each to the results file. */
#include "lab.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lab/judge.h"
#include "lab/point_run.h"
#include "lab/states.h"
#include "lab/valid.h"
#include "base/strbuf.h"
#include "base/util.h"
#include "cmd/commands.h"
#include "sys/awake.h"
#include "sys/loop.h"
#include "sys/priority.h"
#include "lab_results.h"

/* Of one measurement; bounds the time that confirming a verdict takes. */
#define CONFIRMED_MAX 12u

/* A measurement chooses sizes and rates. */
static bool has_patterns(const struct scenario *s, const char *path)
{
        char source[SCENARIO_TEXT_MAX];

        for (const struct scenario_node *n = s->nodes; n < s->nodes + s->n_nodes; n++) {
                if (n->role != ROLE_ROS || n->source_kind == SOURCE_PATTERN)
                        continue;
                if (n->has_source)
                        fprintf(stderr, "%s:%u: node %s.source", path, n->line, n->name);
                else
                        fprintf(stderr, "%s: ros.source", path);
                fprintf(stderr, ": evb lab run cannot measure with \"%s\"; expected pattern\n",
                        scenario_source_text(n, source));
                return false;
        }
        return true;
}

/* The testbed: the machines of --config, or else namespaces, which require root. Returns an exit status. */
static int open_bed(const struct lab_options *o, struct lab_bed *bed)
{
        if (!o->scenario && geteuid() != 0) {
                fprintf(stderr,
                        "evb lab run: network namespaces require root; run it as root, or use standby "
                        "nodes (--config)\n");
                return 77;
        }
        if (!o->scenario)
                return 0;
        bed->scenario = command_load(o->scenario, &o->common);
        if (!bed->scenario)
                return 2;
        if (!has_patterns(bed->scenario, o->scenario))
                return 2;
        return coordinator_new(&bed->coordinator, bed->scenario, o->common.settings, o->common.n_settings) < 0
                       ? 1
                       : 0;
}

static void close_bed(struct lab_bed *bed)
{
        coordinator_free(bed->coordinator);
        free((struct scenario *)bed->scenario);
}

/* Some measurements share points, and differ in the figure that they use. */
static const json_t *same_point(const json_t *results, const struct lab_point *p)
{
        const json_t *r;
        size_t i;

        json_array_foreach(results, i, r)
        {
                const char *settings = json_string_value(json_object_get(r, "settings"));

                if (settings && strcmp(settings, p->settings) == 0 &&
                    json_number_value(json_object_get(r, "x")) == p->x && results_are_of(r, p->bed) &&
                    !json_object_get(r, "copied") && !lab_valid_reason(r) &&
                    json_object_get(r, p->measurement->y))
                        return r;
        }
        return NULL;
}

static void print_progress(const struct lab_options *o, const struct lab_point *p, size_t i, size_t n,
                           double left_s)
{
        if (!options_wants_progress(&o->common))
                return;
        fprintf(stderr, "%s%zu/%zu %s, %s%s%s at %g; about %d min %02d s left    %s",
                isatty(STDERR_FILENO) ? "\r" : "", i + 1, n, p->measurement->id, p->panel ?: "",
                p->panel ? ", " : "", p->series, p->x, (int)left_s / 60, (int)left_s % 60,
                isatty(STDERR_FILENO) ? "" : "\n");
}

enum made { MADE, FAILED, NOT_WRITTEN };

/* A user may accept a disturbed point, which then counts; its reason remains on record. */
static void accept(json_t *figures)
{
        json_object_set(figures, "accepted", json_object_get(figures, "disturbed"));
        json_object_set_new(figures, "disturbed", json_null());
}

static json_t *run_point(const void *point)
{
        return lab_run_point(point);
}

/* The state of one `evb lab run`. */
struct running {
        const struct lab_options *options;
        const char *path;
        int fd;
        struct lab_point *points;
        json_t *results;
        size_t n, failed, skipped;
        struct lab_made made;
        int awake;  /* descriptor of awake_request(), or negative */
        bool full;  /* points can no longer be written */
        bool again; /* at the end of the run: only disturbed points are made */
};

static json_t *measure(const struct running *r, const struct lab_point *p, unsigned repeats_max)
{
        bool accepts = r->options->accept;
        json_t *figures = lab_valid_make(run_point, p, signals_are_waiting, accepts ? 0 : repeats_max);

        if (figures && lab_valid_reason(figures) && accepts)
                accept(figures);
        if (figures)
                json_object_set_new(figures, "kept_awake", json_boolean(r->awake >= 0));
        return figures;
}

static void note_made(struct running *r, const struct lab_point *p, const json_t *figures)
{
        const char *reason = lab_valid_reason(figures);

        if (r->again) {
                if (reason)
                        fprintf(stderr, "evb lab run: %s: \"%s%s%s\" at %g is disturbed: %s\n",
                                p->measurement->id, p->panel ?: "", p->panel ? ", " : "", p->series, p->x,
                                reason);
                return;
        }
        r->made.points++;
        r->made.repeated += json_integer_value(json_object_get(figures, "repeats")) > 0;
}

/* Counts the earlier attempts as well, of which the first is not a repeat. */
static json_t *measure_again(const struct running *r, const struct lab_point *p)
{
        json_t *figures = measure(r, p, LAB_REPEATS_MAX - LAB_REPEATS_AT_ONCE - 1);
        json_int_t repeats = json_integer_value(json_object_get(figures, "repeats"));

        if (figures)
                json_object_set_new(figures, "repeats", json_integer(repeats + LAB_REPEATS_AT_ONCE + 1));
        return figures;
}

static enum made make(struct running *r, struct lab_point *p)
{
        const json_t *twin = same_point(r->results, p);
        json_t *figures = twin       ? json_deep_copy(twin)
                          : r->again ? measure_again(r, p)
                                     : measure(r, p, LAB_REPEATS_AT_ONCE);
        bool interrupted = signals_are_waiting();

        /* The figures of an interrupted point are invalid. */
        if (!figures || interrupted) {
                json_decref(figures);
                if (!interrupted)
                        fprintf(stderr, "evb lab run: %s: \"%s%s%s\" at %g failed\n", p->measurement->id,
                                p->panel ?: "", p->panel ? ", " : "", p->series, p->x);
                return FAILED;
        }
        if (twin)
                json_object_set_new(figures, "copied", json_true());
        if (!results_append(r->fd, r->path, p, figures)) {
                json_decref(figures);
                return NOT_WRITTEN;
        }
        if (!twin || r->again)
                note_made(r, p, figures);
        json_array_append_new(r->results, figures);
        return MADE;
}

static void warn_of_others(void)
{
        enum { OTHERS_MAX = 16 };
        pid_t others[OTHERS_MAX];
        size_t n = lab_states_others(others, OTHERS_MAX);

        for (size_t i = 0; i < n; i++)
                fprintf(stderr,
                        "evb lab run: process %d also measures on this machine; each disturbs the results of "
                        "the other\n",
                        (int)others[i]);
}

static int prepare(const char *words, const struct lab_bed *bed, struct running *r)
{
        const struct lab_options *o = r->options;

        /* Without the signal, a write beyond the file size limit returns an error. */
        signal(SIGXFSZ, SIG_IGN);
        r->fd = results_open(r->path);
        if (r->fd < 0)
                return r->fd == -EBUSY ? 1 : 2;
        r->results = o->again ? json_array() : results_read(&r->path, 1);
        if (!r->results)
                return 2;
        r->n = lab_plan(words, bed, o->quick, r->points, LAB_POINTS_MAX, &r->skipped);
        warn_of_others();
        return 0;
}

static void make_all(struct running *r)
{
        double left_s = 0;

        for (size_t i = 0; i < r->n; i++)
                left_s += results_have(r->results, &r->points[i]) ? 0 : r->points[i].seconds;
        for (size_t i = 0; i < r->n && !r->full && !signals_are_waiting(); i++) {
                enum made made;

                if (results_have(r->results, &r->points[i]))
                        continue;
                print_progress(r->options, &r->points[i], i, r->n, left_s);
                made = make(r, &r->points[i]);
                r->failed += made == FAILED;
                r->full = made == NOT_WRITTEN;
                left_s -= r->points[i].seconds;
        }
        if (isatty(STDERR_FILENO))
                fputc('\n', stderr);
}

static bool is_disturbed(const struct running *r, const struct lab_point *p)
{
        bool disturbed = false;
        const json_t *result;
        size_t i;

        json_array_foreach(r->results, i, result) disturbed |=
                results_are_same(result, p) && lab_valid_reason(result);
        return disturbed && !results_have(r->results, p);
}

static void make_disturbed_again(struct running *r)
{
        r->again = true;
        for (size_t i = 0; i < r->n && !r->full && !signals_are_waiting(); i++) {
                enum made made;

                if (!is_disturbed(r, &r->points[i]))
                        continue;
                print_progress(r->options, &r->points[i], i, r->n, r->points[i].seconds);
                made = make(r, &r->points[i]);
                r->failed += made == FAILED;
                r->full = made == NOT_WRITTEN;
        }
}

/* Earlier runs may have left disturbed points, too. */
static size_t count_disturbed(const struct running *r)
{
        size_t n = 0;

        for (size_t i = 0; i < r->n; i++)
                n += is_disturbed(r, &r->points[i]);
        return n;
}

/* The newest valid result of a point, or NULL. */
static json_t *result_of(const struct running *r, const struct lab_point *p)
{
        for (size_t i = json_array_size(r->results); i-- > 0;) {
                json_t *result = json_array_get(r->results, i);

                if (results_are_same(result, p) && !lab_valid_reason(result))
                        return result;
        }
        return NULL;
}

/* Makes a point that decides a verdict more often. Returns whether it has appended the median. */
static bool confirm(struct running *r, const struct lab_point *p)
{
        json_t *samples[LAB_SAMPLES] = {json_incref(result_of(r, p))}, *median = NULL;
        size_t n = samples[0] != NULL;
        bool appended;

        while (n > 0 && n < LAB_SAMPLES && !signals_are_waiting()) {
                json_t *figures = measure(r, p, LAB_REPEATS_MAX);

                if (!figures || lab_valid_reason(figures)) {
                        json_decref(figures);
                        break;
                }
                samples[n++] = figures;
        }
        if (n == LAB_SAMPLES && !signals_are_waiting())
                median = lab_valid_median(samples, n, p->measurement->y);
        for (size_t i = 0; i < n; i++)
                json_decref(samples[i]);
        appended = median && results_append(r->fd, r->path, p, median);
        r->full = median && !appended;
        if (appended)
                json_array_append(r->results, median);
        r->made.confirmed += appended;
        json_decref(median);
        return appended;
}

/* The verdict "differs" must not rest on chance: the points that decide it are made more often. */
static void confirm_measurement(struct running *r, const struct lab_measurement *m, const struct lab_bed *bed)
{
        static struct lab_point decisive[CONFIRMED_MAX];
        enum lab_extent extent = r->options->quick ? LAB_QUICK : LAB_WHOLE;
        size_t left = CONFIRMED_MAX;
        bool confirmed = true;

        /* Once a point counts with its median, the verdict may rest on another one. */
        while (confirmed && left > 0) {
                json_t *mine = results_of_bed(r->results, m->id, bed);
                char why[1000];
                size_t n = 0;

                if (lab_judge(m, mine, extent, why, sizeof why) == LAB_DIFFERS)
                        n = lab_judge_decisive(m, mine, extent, decisive, CONFIRMED_MAX);
                json_decref(mine);
                confirmed = false;
                for (size_t i = 0; i < n && left > 0 && !r->full && !signals_are_waiting(); i++) {
                        const json_t *result;

                        decisive[i].bed = bed;
                        result = result_of(r, &decisive[i]);
                        if (!result || json_object_get(result, "samples"))
                                continue;
                        print_progress(r->options, &decisive[i], i, n,
                                       (double)(n - i) * 2 * decisive[i].seconds);
                        confirmed |= confirm(r, &decisive[i]);
                        left--;
                }
        }
}

static void confirm_all(struct running *r, const char *words, const struct lab_bed *bed)
{
        for (size_t i = 0; i < lab_count() && !r->full && !signals_are_waiting(); i++) {
                if (lab_is_selected(lab_at(i), words))
                        confirm_measurement(r, lab_at(i), bed);
        }
}

/* Returns an exit status. */
static int print_end(const char *words, const struct lab_bed *bed, const struct running *r)
{
        int status;

        if (signals_are_waiting() || r->full) {
                fprintf(stderr, "evb lab run: %s; the same command continues after the points in %s\n",
                        r->full ? "stopped because points cannot be written" : "interrupted", r->path);
                return 1;
        }
        status = lab_print_verdicts(r->options, words, bed, r->results, &r->made);
        if (r->failed > 0)
                fprintf(stderr, "evb lab run: %zu point%s failed\n", r->failed, r->failed == 1 ? "" : "s");
        if (r->made.disturbed > 0)
                fprintf(stderr, "evb lab run: the same command makes disturbed points again\n");
        return status == 0 && r->failed + r->skipped + r->made.disturbed > 0 ? 1 : status;
}

/* Returns an exit status. */
static int check_simulation(const struct lab_options *o)
{
        if (o->simulate && !o->scenario && !o->accept)
                return 0;
        fprintf(stderr, "evb lab run: %s\n",
                !o->simulate  ? "--seed and --model are for simulations; add --sim"
                : o->scenario ? "--sim and --config exclude each other"
                              : "nothing disturbs simulated points; leave out --accept-disturbed");
        return 2;
}

int lab_run(const struct lab_options *o)
{
        char states[LAB_STATES_PATH_MAX] = "", words[512];
        struct strbuf b = strbuf_init(words, sizeof words);
        struct running r = {.options = o,
                            .path = o->results ?: LAB_RESULTS,
                            .fd = -1,
                            .awake = -1,
                            .points = calloc(LAB_POINTS_MAX, sizeof *r.points)};
        struct lab_bed bed = {};
        int status, error;

        for (size_t i = 0; i < o->common.n_words; i++)
                strbuf_add(&b, "%s%s", i > 0 ? "," : "", o->common.words[i]);
        status = r.points ? lab_check_words(words) : 1;
        if (status == 0 && (o->simulate || o->seed || o->model))
                status = check_simulation(o);
        if (status == 0 && o->simulate) {
                free(r.points);
                return lab_run_virtual(o, words);
        }
        if (status == 0)
                status = open_bed(o, &bed);
        if (status == 0)
                status = prepare(words, o->scenario ? &bed : NULL, &r);
        signals_hold();
        /* Keeps the shaping state of namespaces apart from that of the machine's devices. */
        if (status == 0 && (error = lab_states_make(states)) < 0) {
                fprintf(stderr, "evb lab run: cannot create a directory in /tmp: %s\n", strerror(-error));
                status = 1;
        }
        /* Without permission, points are watched all the same. */
        if (status == 0 && !o->scenario) {
                (void)priority_attend();
                r.awake = awake_request();
        }
        if (status == 0) {
                make_all(&r);
                make_disturbed_again(&r);
                if (!o->accept)
                        confirm_all(&r, words, o->scenario ? &bed : NULL);
                r.made.disturbed = count_disturbed(&r);
                if (strcmp(getenv("EVB_STATE_DIRECTORY") ?: "", states) == 0)
                        lab_states_remove(states);
                status = print_end(words, o->scenario ? &bed : NULL, &r);
        }
        json_decref(r.results);
        close_bed(&bed);
        free(r.points);
        if (r.fd >= 0)
                close(r.fd);
        if (r.awake >= 0)
                close(r.awake);
        return status;
}
