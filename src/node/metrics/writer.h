/* Writes metrics as text: OpenMetrics 1.0, or the format 0.0.4 of Prometheus. It does not depend on
 * particular metrics. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum metrics_type { METRICS_COUNTER, METRICS_GAUGE, METRICS_HISTOGRAM, METRICS_INFO };

struct metrics_label {
        const char *name, *value;
};

struct metrics_writer {
        FILE *to;
        bool open_metrics; /* otherwise 0.0.4 */
        struct metrics_label common[2];
        /* The current family. */
        const char *name;
        enum metrics_type type;
};

/* Number of buckets of histograms, without infinity. */
#define METRICS_BOUNDS 18
extern const uint64_t metrics_bounds_ns[METRICS_BOUNDS];

struct metrics_histogram {
        uint64_t count, sum_ns;
        uint64_t below[METRICS_BOUNDS]; /* number of values up to each bound */
};

/* Begins a family. `name` has no suffix for its type, ends with `unit` (NULL: none), and must live until the
 * next call. `help` is a phrase without a full stop. */
void metrics_family(struct metrics_writer *w, enum metrics_type type, const char *name, const char *unit,
                    const char *help);
/* Write samples of the current family. `label` NULL: only the common labels. */
void metrics_count(struct metrics_writer *w, const struct metrics_label *label, uint64_t value);
void metrics_real(struct metrics_writer *w, const struct metrics_label *label, double value);
/* Writes a time in seconds, without loss. */
void metrics_time(struct metrics_writer *w, const struct metrics_label *label, uint64_t ns);
/* Writes a sample with several labels. */
void metrics_labeled(struct metrics_writer *w, const struct metrics_label *labels, size_t n, uint64_t value);
void metrics_info(struct metrics_writer *w, const struct metrics_label *labels, size_t n);
void metrics_buckets(struct metrics_writer *w, const struct metrics_histogram *h);
/* Ends the text. */
void metrics_end(struct metrics_writer *w);
