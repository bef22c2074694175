/* The published measurements, to be made again: one table of them. A measurement is a set of points; each is
 * made by itself and gives a flat JSON object of figures, so that a run can be interrupted and gone on with.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "evb/remote/coordinator.h"

#define LAB_SETTINGS_MAX 1024
#define LAB_POINTS_MAX 2048

struct lab_measurement;
struct judging;

/* Machines to measure on, whose nodes stand by. Where there are none, each point has namespaces of this
 * machine to itself. */
struct lab_bed {
        const struct scenario *scenario;
        struct coordinator *coordinator;
};

/* One point: what is varied, and all settings by which it is made. */
struct lab_point {
        const struct lab_measurement *measurement;
        const struct lab_bed *bed; /* NULL: this machine */
        const char *panel;         /* NULL: the measurement has none */
        const char *series;
        double x;
        double seconds;                  /* that it is expected to take */
        char settings[LAB_SETTINGS_MAX]; /* "KEY=VALUE KEY=VALUE"; scenario keys, or those of the kind */
};

/* A curve: what its points have in common beyond the measurement's base. */
struct lab_series {
        const char *name, *settings;
};

/* A small picture of its own, with all series over all x: what is varied besides. Its settings go before
 * those of the series. */
struct lab_panel {
        const char *name; /* "ROW, COLUMN" or "COLUMN": its place in the whole picture */
        const char *settings;
        bool quick; /* is among the few */
};

struct lab_sweep {
        const double *values, *quick;
        size_t n_values, n_quick;
        const struct lab_panel *panels;
        size_t n_panels;
};

enum lab_verdict { LAB_AGREES, LAB_DIFFERS, LAB_BETTER, LAB_UNKNOWN };

struct lab_measurement {
        const char *id, *title;
        const char *published;             /* what came out then */
        const char *x_label, *y_label, *y; /* y: which figure of the points is plotted */
        bool log_x;
        const char *base; /* settings of all points */
        struct lab_series series[8];
        struct lab_sweep sweep;
        /* Adds what follows from x to the settings. */
        void (*set_x)(const struct lab_point *p, double x, char *settings, size_t size);
        /* Makes a point; NULL: it could not be made, logged. */
        json_t *(*run)(const struct lab_point *p);
        /* Makes a verdict with its reason from all points; called by lab_judge() alone. */
        enum lab_verdict (*judge)(struct judging *j, char *why, size_t size);
};

/* The points that a verdict needs: those of a full sweep, of a quick one, or (LAB_AS_MADE) of the kind that
 * the results show. */
enum lab_extent { LAB_AS_MADE, LAB_QUICK, LAB_WHOLE };

extern const struct lab_measurement lab_catalogue[];
extern const size_t n_lab_catalogue;

const struct lab_measurement *lab_find(const char *id);
/* The points of a measurement; how many. */
size_t lab_points(const struct lab_measurement *m, const struct lab_bed *bed, bool quick,
                  struct lab_point *ret, size_t max);
/* The setting that shortens the points of a --quick run. */
const char *lab_quick_setting(const struct lab_measurement *m);
/* Whether the testbed has enough nodes for a point, and the MTU and buffer that it needs; if not, `lack` says
 * what is missing. */
bool lab_can_make(const struct lab_point *p, char *lack, size_t size);
/* LAB_QUICK or LAB_WHOLE, judged by the results. */
enum lab_extent lab_extent_of(const struct lab_measurement *m, const json_t *results);
/* A verdict on the results of one measurement. LAB_UNKNOWN if a point or one of its figures is missing: `why`
 * names them. */
enum lab_verdict lab_judge(const struct lab_measurement *m, const json_t *results, enum lab_extent extent,
                           char *why, size_t size);
/* The bed's name in results; "": this machine. */
const char *lab_bed_name(const struct lab_bed *bed);
/* Published figures that can be put into the same picture; ends with an empty label. */
struct lab_mark {
        const char *id, *label;
        double x, y;
};

extern const struct lab_mark lab_marks[];

/* The value of a setting of a point, or `otherwise`. */
double lab_setting(const struct lab_point *p, const char *key, double otherwise);

/* Kinds of points. */
json_t *lab_run_events(const struct lab_point *p);  /* a whole run of event building */
json_t *lab_run_streams(const struct lab_point *p); /* plain streams, and echoes beside data */
json_t *lab_run_copy(const struct lab_point *p);    /* memory to memory */

/* What a port passes of fragments of a size, in bytes of payload per second. */
double lab_payload_limit(double link_bps, double mtu_bytes, double fragment_bytes);
const char *lab_verdict_text(enum lab_verdict v);
