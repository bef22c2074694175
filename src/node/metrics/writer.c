/* Writes families and samples. The formats differ in family names, in units and at the end. */
#include "writer.h"

#include <ctype.h>

#include "base/util.h"

/* Bounds from 50 us to 10 s. */
const uint64_t metrics_bounds_ns[METRICS_BOUNDS] = {
        50 * NS_PER_US,   100 * NS_PER_US, 250 * NS_PER_US, 500 * NS_PER_US, 1 * NS_PER_MS,
        2500 * NS_PER_US, 5 * NS_PER_MS,   10 * NS_PER_MS,  25 * NS_PER_MS,  50 * NS_PER_MS,
        100 * NS_PER_MS,  250 * NS_PER_MS, 500 * NS_PER_MS, 1 * NS_PER_S,    2500 * NS_PER_MS,
        5 * NS_PER_S,     10 * NS_PER_S,   60 * NS_PER_S,
};

static const char *suffix_of(enum metrics_type type)
{
        return type == METRICS_COUNTER ? "_total" : type == METRICS_INFO ? "_info" : "";
}

static const char *type_name(const struct metrics_writer *w, enum metrics_type type)
{
        switch (type) {
        case METRICS_COUNTER:
                return "counter";
        case METRICS_GAUGE:
                return "gauge";
        case METRICS_HISTOGRAM:
                return "histogram";
        case METRICS_INFO:
                return w->open_metrics ? "info" : "gauge";
        }
        return "unknown";
}

/* Both formats escape a backslash, a line feed, and in labels a quote; OpenMetrics also in help. */
static void write_escaped(struct metrics_writer *w, const char *text, bool quotes)
{
        for (; *text; text++) {
                if (*text == '\n')
                        fputs("\\n", w->to);
                else if (*text == '\\' || (*text == '"' && quotes))
                        fprintf(w->to, "\\%c", *text);
                else
                        fputc(*text, w->to);
        }
}

void metrics_family(struct metrics_writer *w, enum metrics_type type, const char *name, const char *unit,
                    const char *help)
{
        const char *suffix = w->open_metrics ? "" : suffix_of(type);

        w->name = name;
        w->type = type;
        fprintf(w->to, "# TYPE %s%s %s\n", name, suffix, type_name(w, type));
        if (unit && w->open_metrics)
                fprintf(w->to, "# UNIT %s %s\n", name, unit);
        fprintf(w->to, "# HELP %s%s %c", name, suffix, toupper((unsigned char)help[0]));
        write_escaped(w, help + 1, w->open_metrics);
        fputs(".\n", w->to);
}

static void write_labels(struct metrics_writer *w, const struct metrics_label *labels, size_t n, bool *first)
{
        for (size_t i = 0; i < n; i++) {
                fprintf(w->to, "%c%s=\"", *first ? '{' : ',', labels[i].name);
                write_escaped(w, labels[i].value, true);
                fputc('"', w->to);
                *first = false;
        }
}

/* Writes the name and the labels of a sample. */
static void begin_sample(struct metrics_writer *w, const char *suffix, const struct metrics_label *labels,
                         size_t n)
{
        bool first = true;

        fprintf(w->to, "%s%s", w->name, suffix);
        write_labels(w, w->common, ARRAY_SIZE(w->common), &first);
        write_labels(w, labels, n, &first);
        fputs("} ", w->to);
}

static void write_time(struct metrics_writer *w, uint64_t ns)
{
        fprintf(w->to, "%llu.%09llu\n", (unsigned long long)(ns / NS_PER_S),
                (unsigned long long)(ns % NS_PER_S));
}

void metrics_labeled(struct metrics_writer *w, const struct metrics_label *labels, size_t n, uint64_t value)
{
        begin_sample(w, suffix_of(w->type), labels, n);
        fprintf(w->to, "%llu\n", (unsigned long long)value);
}

void metrics_count(struct metrics_writer *w, const struct metrics_label *label, uint64_t value)
{
        metrics_labeled(w, label, label ? 1 : 0, value);
}

void metrics_real(struct metrics_writer *w, const struct metrics_label *label, double value)
{
        begin_sample(w, suffix_of(w->type), label, label ? 1 : 0);
        fprintf(w->to, "%.15g\n", value);
}

void metrics_time(struct metrics_writer *w, const struct metrics_label *label, uint64_t ns)
{
        begin_sample(w, suffix_of(w->type), label, label ? 1 : 0);
        write_time(w, ns);
}

void metrics_info(struct metrics_writer *w, const struct metrics_label *labels, size_t n)
{
        metrics_labeled(w, labels, n, 1);
}

/* Formats a bound as the shortest text with a decimal point: "0.0025", "10.0". */
static void format_bound(char *text, size_t size_bytes, uint64_t ns)
{
        int n = snprintf(text, size_bytes, "%llu.%09llu", (unsigned long long)(ns / NS_PER_S),
                         (unsigned long long)(ns % NS_PER_S));

        while (text[n - 1] == '0' && text[n - 2] != '.')
                text[--n] = '\0';
}

void metrics_buckets(struct metrics_writer *w, const struct metrics_histogram *h)
{
        char bound[32];
        struct metrics_label le = {"le", bound};

        for (size_t i = 0; i < METRICS_BOUNDS; i++) {
                format_bound(bound, sizeof bound, metrics_bounds_ns[i]);
                begin_sample(w, "_bucket", &le, 1);
                fprintf(w->to, "%llu\n", (unsigned long long)h->below[i]);
        }
        le.value = "+Inf";
        begin_sample(w, "_bucket", &le, 1);
        fprintf(w->to, "%llu\n", (unsigned long long)h->count);
        begin_sample(w, "_count", NULL, 0);
        fprintf(w->to, "%llu\n", (unsigned long long)h->count);
        begin_sample(w, "_sum", NULL, 0);
        write_time(w, h->sum_ns);
}

void metrics_end(struct metrics_writer *w)
{
        if (w->open_metrics)
                fputs("# EOF\n", w->to);
}
