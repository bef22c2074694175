/* Measurements, and the points that each consists of. A point is one run with fixed settings; its result is a
 * flat JSON object of figures, so that an interrupted measurement can continue later. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "remote/coordinator.h"

#define LAB_SETTINGS_MAX 1024
#define LAB_POINTS_MAX 4096
#define LAB_SERIES_MAX 8
#define LAB_MARKS_MAX 2

struct lab_measurement;
struct judging;

/* Runs in virtual time (sim/sim.h). The same point, seed and version give the same result. */
struct lab_virtual {
        uint64_t seed;
        const char *model; /* settings of processors and cables for each point, "NAME=VALUE ..."; "": none */
};

/* Where points are made, if not in namespaces of this machine: on standby nodes, or in the simulator. */
struct lab_bed {
        const struct scenario *scenario; /* of standby nodes; NULL: the simulator */
        struct coordinator *coordinator;
        const struct lab_virtual *virtual; /* NULL: standby nodes */
};

struct lab_point {
        const struct lab_measurement *measurement;
        const struct lab_bed *bed; /* NULL: this machine */
        const char *panel;         /* NULL: the measurement has no panels */
        const char *series;
        double x;
        double seconds;                  /* expected duration */
        char settings[LAB_SETTINGS_MAX]; /* "KEY=VALUE KEY=VALUE"; keys of a scenario or of the kind */
};

/* One curve: the settings that its points add to the measurement's base. */
struct lab_series {
        const char *name, *settings;
        bool optional; /* needs a feature that not every kernel has; a verdict does not */
};

/* One small plot with all series over all x. Its settings precede those of the series. */
struct lab_panel {
        const char *name; /* "ROW, COLUMN" or "COLUMN": the position in the grid of plots */
        const char *settings;
        bool quick; /* part of a --quick run */
};

struct lab_sweep {
        const double *values, *quick;
        size_t n_values, n_quick;
        const struct lab_panel *panels;
        size_t n_panels;
};

/* A published figure, drawn into the plot of the measurement. */
struct lab_mark {
        const char *label;
        double x, y;
};

enum lab_kind {
        LAB_EVENTS,  /* a complete event building run */
        LAB_FLOWS,   /* plain flows, and echoes beside data */
        LAB_COPY,    /* memory to memory */
        LAB_PATHS,   /* a file to a socket, on this machine only */
        LAB_STREAMS, /* one stream of evb stream, on this machine only */
};

enum lab_verdict { LAB_AGREES, LAB_DIFFERS, LAB_BETTER, LAB_UNKNOWN };

struct lab_measurement {
        const char *id, *title;
        const char *published; /* the published outcome */
        const char *x_label, *y_label;
        const char *y; /* the plotted figure of the points */
        bool log_x;
        bool virtual_only; /* no lab of ours could make it, only the simulator */
        enum lab_kind kind;
        const char *base;  /* settings of all points */
        const char *quick; /* what shortens the points of a --quick run; NULL: as usual for the kind */
        struct lab_series series[LAB_SERIES_MAX];
        struct lab_sweep sweep;
        struct lab_mark marks[LAB_MARKS_MAX];
        /* Writes the settings that depend on x. */
        void (*vary)(const struct lab_point *p, double x, char *settings, size_t size);
        /* Judges all points and writes the reason; called by lab_judge() only. */
        enum lab_verdict (*judge)(struct judging *j, char *why, size_t size);
};

/* The number of points of a measurement; at most LAB_POINTS_MAX. */
size_t lab_points_count(const struct lab_measurement *m, bool quick);
/* Writes the points of a measurement and returns their number. */
size_t lab_points(const struct lab_measurement *m, const struct lab_bed *bed, bool quick,
                  struct lab_point *ret, size_t max);
/* The setting that shortens the points of a --quick run. */
const char *lab_quick_setting(const struct lab_measurement *m);
/* Whether the testbed has enough nodes and the MTU and buffer that a point needs; if not, `lack` names the
 * missing resource. Without a testbed, whether this machine's kernel has the congestion control that it
 * needs. In the simulator, whether its model covers the point. */
bool lab_can_make(const struct lab_point *p, char *lack, size_t size);
/* Whether the point belongs to an optional series. */
bool lab_is_optional(const struct lab_point *p);
/* The bed's name in results; "" for this machine and the simulator. */
/* Whether all words are settings of the simulator's model: the options of evb sim without dashes. If not,
 * `bad` holds the first one that is not. */
bool lab_virtual_check_model(const char *settings, char *bad, size_t size);
bool lab_is_virtual(const struct lab_bed *bed);
const char *lab_bed_name(const struct lab_bed *bed);
