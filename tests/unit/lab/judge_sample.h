/* Results of a measurement at all of its points, as a test wants them, and the verdict on them. */
#pragma once

#include "../test.h"

#include "base/util.h"
#include "lab/catalogue.h"
#include "lab/judge.h"

static struct lab_point points[LAB_POINTS_MAX];
static char why[600]; /* of the last verdict */

/* Each test file makes the result of a point in its own way. */
static json_t *result_of(const struct lab_point *p);

static inline json_t *results_of(const char *id, bool quick)
{
        size_t n = lab_points(lab_find(id), NULL, quick, points, LAB_POINTS_MAX);
        json_t *all = json_array();

        for (size_t i = 0; i < n; i++)
                json_array_append_new(all, result_of(&points[i]));
        return all;
}

static inline bool is_or_any(const json_t *r, const char *name, const char *wanted)
{
        return !wanted[0] || strcmp(json_string_value(json_object_get(r, name)) ?: "", wanted) == 0;
}

/* Changes a figure at all points of a series ("": any), a panel ("": any) and an x (0: any). */
static inline void change_at(json_t *results, const char *series, const char *panel, double x,
                             const char *key, json_t *value)
{
        json_t *r;
        size_t i;

        json_array_foreach(results, i, r)
        {
                if (is_or_any(r, "series", series) && is_or_any(r, "panel", panel) &&
                    (x == 0 || json_number_value(json_object_get(r, "x")) == x))
                        json_object_set(r, key, value);
        }
        json_decref(value);
}

static inline enum lab_verdict judge_as(const char *id, const json_t *results, enum lab_extent extent)
{
        enum lab_verdict v = lab_judge(lab_find(id), results, extent, why, sizeof why);

        assert_true(strlen(why) > 10 && strlen(why) < sizeof why - 1);
        /* A zero has no sign. */
        for (const char *at = why; (at = strstr(at, "-0")); at++)
                assert_true(at[strspn(at + 1, "0.") + 1] >= '1' && at[strspn(at + 1, "0.") + 1] <= '9');
        return v;
}

static inline enum lab_verdict judge(const char *id, const json_t *results)
{
        return judge_as(id, results, LAB_AS_MADE);
}
