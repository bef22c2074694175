/* Queries of verdict functions over the planned points of a measurement and the newest result of each. A
 * query records missing points and unknown figures; lab_judge() then refuses a verdict. A disturbed result
 * (lab/valid.h) does not count. Pure. */
#pragma once

#include "base/strbuf.h"
#include "lab/judge.h"

#define NEVER_X 1e18
/* In place of a figure: the point has no result; it has only disturbed ones. */
#define LACK_POINT ""
#define LACK_VALID "disturbed"

struct judging {
        const struct lab_measurement *m;
        struct lab_point *points; /* planned */
        /* For each point: */
        const json_t **results; /* NULL: missing */
        const char **reasons;   /* why its only results are disturbed; NULL: they are not */
        const char **lacks;     /* the unknown figure, LACK_POINT or LACK_VALID; NULL: nothing is missing */
        bool *decisive;         /* the verdict rests on this point */
        size_t n;
};

/* A verdict function, for lab_measurement.judge. */
#define JUDGE(name) static enum lab_verdict judge_##name(struct judging *j, char *why, size_t size)

struct query {
        struct judging *j;
        const char *series, *panel; /* NULL: any */
        double least_x, most_x;
};

struct query of(struct judging *j, const char *series);
struct query of_panel(struct judging *j, const char *series, const char *panel);
struct query between(struct query q, double least_x, double most_x);
bool is_in(const struct query *q, const struct lab_point *p);
/* Whether a verdict does without point i: its series is optional, and it is missing or the kernel refused it.
 */
bool is_dispensable(const struct judging *j, size_t i);
/* A figure of point i. An unknown figure is recorded, and 0 returned. */
double figure_of(struct judging *j, size_t i, const char *key);
/* Over all points of a query; NAN if the query matches no planned point. A verdict that uses the most or the
 * least rests on that point. */
double most(struct query q, const char *key);
double least(struct query q, const char *key);
double sum(struct query q, const char *key);

/* Plans the points and finds their results. Returns 0 or -ENOMEM. */
int judging_init(struct judging *j, const struct lab_measurement *m, const json_t *results,
                 enum lab_extent extent);
void judging_fini(struct judging *j);
/* Whether all queried figures are known. */
bool judging_is_whole(const struct judging *j);
/* Names the missing points, the disturbed ones with the reason, and unknown figures. */
void judging_add_lacks(const struct judging *j, struct strbuf *to);
