/* Queries that verdicts make on points: the planned ones, each with its newest result. A query notes missing
 * points and unknown figures; lab_judge() then makes no verdict. Pure. */
#pragma once

#include "evb/base/strbuf.h"
#include "evb/lab/catalogue.h"

#define NEVER_X 1e18

struct judging {
        const struct lab_measurement *m;
        struct lab_point *points; /* planned */
        const json_t **results;   /* of each point; NULL: not made */
        const char *
                *lacks; /* of each: the figure that is not known, "" where it was not made; NULL: nothing */
        size_t n;
};

struct query {
        struct judging *j;
        const char *series, *panel; /* NULL: any */
        double least_x, most_x;
};

struct query of(struct judging *j, const char *series);
struct query of_panel(struct judging *j, const char *series, const char *panel);
struct query between(struct query q, double least_x, double most_x);
bool is_in(const struct query *q, const struct lab_point *p);
/* A figure of point i; 0, and noted, if it is unknown. */
double figure_of(struct judging *j, size_t i, const char *key);
/* Over all points of a query; NAN if none is planned. */
double most(struct query q, const char *key);
double least(struct query q, const char *key);
double sum(struct query q, const char *key);

/* Plans the points and finds their results. -ENOMEM. */
int judging_init(struct judging *j, const struct lab_measurement *m, const json_t *results,
                 enum lab_extent extent);
void judging_fini(struct judging *j);
/* Whether all queried figures are known. */
bool judging_is_whole(const struct judging *j);
void judging_add_lacks(const struct judging *j, struct strbuf *to);
