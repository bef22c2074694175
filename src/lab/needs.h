/* What a measurement needs: nodes of a testbed by role, and features of their machines. The points of a full
 * sweep determine both, so they cannot differ from what the points do. Pure. */
#pragma once

#include "base/strbuf.h"
#include "lab/points.h"

#define LAB_FEATURES_MAX 8
#define LAB_FEATURE_TEXT_MAX 96

struct lab_range {
        unsigned least, most;
};

struct lab_needs {
        bool simulator; /* only the simulator can make it */
        bool testbed;   /* standby nodes can make it, commanded by a DFM; false: only this machine can */
        struct lab_range ros, sfi; /* nodes of a testbed: for the smallest point, and for all points */
        char features[LAB_FEATURES_MAX][LAB_FEATURE_TEXT_MAX];
        size_t n_features;
};

/* -ENOMEM. */
int lab_needs_find(const struct lab_measurement *m, struct lab_needs *ret);
/* Appends "1 DFM, 6 ROSs, 1 SFI; shaping", for example. */
void lab_needs_write(const struct lab_needs *needs, struct strbuf *to);
