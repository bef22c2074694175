/* Plans the points of a measurement, finds their results, and computes figures over them for the verdicts. */
#include "query.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "lab/valid.h"

/* Names at most this many missing points. */
#define NAMED_MAX 4u

struct query of(struct judging *j, const char *series)
{
        return (struct query){j, series, NULL, 0, NEVER_X};
}

struct query of_panel(struct judging *j, const char *series, const char *panel)
{
        return (struct query){j, series, panel, 0, NEVER_X};
}

struct query between(struct query q, double least_x, double most_x)
{
        q.least_x = least_x;
        q.most_x = most_x;
        return q;
}

bool is_in(const struct query *q, const struct lab_point *p)
{
        if (q->series && strcmp(p->series, q->series) != 0)
                return false;
        if (q->panel && strcmp(p->panel ?: "", q->panel) != 0)
                return false;
        return p->x >= q->least_x && p->x <= q->most_x;
}

double figure_of(struct judging *j, size_t i, const char *key)
{
        const json_t *figure = json_object_get(j->results[i], key);

        if (json_is_number(figure))
                return json_number_value(figure);
        j->lacks[i] = j->lacks[i] ?: j->results[i] ? key : j->reasons[i] ? LACK_VALID : LACK_POINT;
        return 0;
}

static double add(double a, double b)
{
        return a + b;
}

static double fold(struct query q, const char *key, double (*with)(double a, double b))
{
        double value = NAN;
        size_t at = q.j->n;

        for (size_t i = 0; i < q.j->n; i++) {
                double figure, before = value;

                if (!is_in(&q, &q.j->points[i]))
                        continue;
                figure = figure_of(q.j, i, key);
                value = isnan(value) ? figure : with(value, figure);
                at = isnan(before) || value != before ? i : at;
        }
        if (at < q.j->n && with != add)
                q.j->decisive[at] = true;
        return value;
}

double most(struct query q, const char *key)
{
        return fold(q, key, fmax);
}

double least(struct query q, const char *key)
{
        return fold(q, key, fmin);
}

double sum(struct query q, const char *key)
{
        return fold(q, key, add);
}

/* The point to which a result belongs; read once for all points. */
struct place {
        const char *series, *panel; /* "": none */
        double x;
};

static struct place place_of(const json_t *r)
{
        return (struct place){
                .series = json_string_value(json_object_get(r, "series")) ?: "",
                .panel = json_string_value(json_object_get(r, "panel")) ?: "",
                .x = json_number_value(json_object_get(r, "x")),
        };
}

static bool is_of(const struct place *a, const struct lab_point *p)
{
        return a->x == p->x && strcmp(a->series, p->series) == 0 && strcmp(a->panel, p->panel ?: "") == 0;
}

/* Whether the results belong to a quick run, which has fewer and shorter points. */
static bool is_quick(const struct lab_measurement *m, const json_t *results, struct lab_point *scratch,
                     size_t max)
{
        size_t n = lab_points(m, NULL, true, scratch, max), k;
        const json_t *r;

        json_array_foreach(results, k, r)
        {
                const char *settings = json_string_value(json_object_get(r, "settings")) ?: "";
                const struct place place = place_of(r);
                size_t i = 0;

                while (i < n && !is_of(&place, &scratch[i]))
                        i++;
                if (i == n || !strstr(settings, lab_quick_setting(m)))
                        return false;
        }
        return true;
}

enum lab_extent lab_extent_of(const struct lab_measurement *m, const json_t *results)
{
        size_t n = lab_points_count(m, true);
        _cleanup_free_ struct lab_point *scratch = calloc(MAX(n, (size_t)1), sizeof *scratch);

        return scratch && is_quick(m, results, scratch, n) ? LAB_QUICK : LAB_WHOLE;
}

/* The newest valid result of a point wins, because the user repeated the point for a reason. */
static void find_results(struct judging *j, const json_t *results)
{
        const json_t *r;
        size_t k;

        json_array_foreach(results, k, r)
        {
                const struct place place = place_of(r);

                for (size_t i = 0; i < j->n; i++) {
                        if (!is_of(&place, &j->points[i]))
                                continue;
                        if (lab_valid_reason(r))
                                j->reasons[i] = lab_valid_reason(r);
                        else
                                j->results[i] = r;
                }
        }
}

/* The call that the kernel refused, and why; NULL: none. */
static const char *refusal_of(const struct judging *j, size_t i)
{
        return json_string_value(json_object_get(j->results[i], "refused"));
}

bool is_dispensable(const struct judging *j, size_t i)
{
        return lab_is_optional(&j->points[i]) && (!j->results[i] || refusal_of(j, i));
}

/* Simulated results need no points that the simulator's model does not cover. */
static void keep_simulated(struct judging *j)
{
        const struct lab_virtual virtual = {.model = ""};
        const struct lab_bed bed = {.virtual = &virtual};
        char lack[160];
        size_t kept = 0;

        for (size_t i = 0; i < j->n; i++) {
                struct lab_point p = j->points[i];

                p.bed = &bed;
                if (lab_can_make(&p, lack, sizeof lack))
                        j->points[kept++] = j->points[i];
        }
        j->n = kept;
}

int judging_init(struct judging *j, const struct lab_measurement *m, const json_t *results,
                 enum lab_extent extent)
{
        size_t max;

        *j = (struct judging){.m = m};
        if (extent == LAB_AS_MADE)
                extent = lab_extent_of(m, results);
        max = MAX(lab_points_count(m, extent == LAB_QUICK), (size_t)1);
        j->points = calloc(max, sizeof *j->points);
        j->results = calloc(max, sizeof *j->results);
        j->reasons = calloc(max, sizeof *j->reasons);
        j->lacks = calloc(max, sizeof *j->lacks);
        j->decisive = calloc(max, sizeof *j->decisive);
        if (!j->points || !j->results || !j->reasons || !j->lacks || !j->decisive)
                return -ENOMEM;
        j->n = lab_points(m, NULL, extent == LAB_QUICK, j->points, max);
        if (json_is_true(json_object_get(json_array_get(results, 0), "simulated")))
                keep_simulated(j);
        find_results(j, results);
        /* Every point is required, even if the verdict's queries do not match it. */
        for (size_t i = 0; i < j->n; i++) {
                if (!is_dispensable(j, i))
                        (void)figure_of(j, i, m->y);
        }
        return 0;
}

void judging_fini(struct judging *j)
{
        free(j->points);
        free(j->results);
        free(j->reasons);
        free(j->lacks);
        free(j->decisive);
        *j = (struct judging){};
}

/* "push at 1024 (6x3), pull at 1024 (6x3), and 7 more". */
static void add_names(const struct judging *j, const char *lack, size_t n, struct strbuf *to)
{
        size_t named = 0;

        for (size_t i = 0; i < j->n && named < NAMED_MAX; i++) {
                const struct lab_point *p = &j->points[i];

                if (!j->lacks[i] || strcmp(j->lacks[i], lack) != 0)
                        continue;
                strbuf_add(to, "%s%s at %g%s%s%s", named++ > 0 ? ", " : "", p->series, p->x,
                           p->panel ? " (" : "", p->panel ?: "", p->panel ? ")" : "");
                if (strcmp(lack, LACK_VALID) == 0)
                        strbuf_add(to, " (%s)", j->reasons[i]);
                else if (refusal_of(j, i))
                        strbuf_add(to, " (refused: %s)", refusal_of(j, i));
        }
        if (n > named)
                strbuf_add(to, ", and %zu more", n - named);
}

static size_t count(const struct judging *j, const char *lack, size_t begin)
{
        size_t n = 0;

        for (size_t i = begin; i < j->n; i++)
                n += j->lacks[i] && strcmp(j->lacks[i], lack) == 0;
        return n;
}

bool judging_is_whole(const struct judging *j)
{
        bool whole = true;

        for (size_t i = 0; i < j->n; i++)
                whole &= j->lacks[i] == NULL;
        return whole;
}

void judging_add_lacks(const struct judging *j, struct strbuf *to)
{
        const char *separator = "";

        for (size_t i = 0; i < j->n; i++) {
                const char *lack = j->lacks[i];
                size_t n = lack ? count(j, lack, i) : 0;

                /* The first point with the same lack reports it for all. */
                if (n == 0 || n < count(j, lack, 0))
                        continue;
                if (lack[0] && strcmp(lack, LACK_VALID) != 0)
                        strbuf_add(to, "%s%s is unknown at %zu of %zu points: ", separator, lack, n, j->n);
                else
                        strbuf_add(to, "%s%zu of %zu points %s %s: ", separator, n, j->n,
                                   n == 1 ? "is" : "are", lack[0] ? LACK_VALID : "missing");
                add_names(j, lack, n, to);
                separator = "; ";
        }
}
