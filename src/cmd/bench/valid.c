/* Judges whether a point is valid, by other activity of the machine and losses of the testbed. Pure. */
#include "bench.h"

#include <math.h>
#include <stdio.h>

#include "base/strbuf.h"
#include "base/util.h"

#define REASON_MAX_BYTES 300

static void set(json_t *o, const char *name, double value)
{
        json_object_set_new(o, name, isnan(value) ? json_null() : json_real(value));
}

/* "A" or "; B". */
static const char *separator(const struct strbuf *b)
{
        return b->length > 0 ? "; " : "";
}

/* Comparisons with an unknown figure are false. */
static void add_reasons(struct strbuf *b, const struct machine_view *v, bool raised)
{
        bool waits = raised ? v->wait_mean_us > VALID_WAIT_MEAN_US
                            : v->waiting_share > VALID_WAITING_SHARE_EQUAL_MAX;

        if (v->seconds <= 0)
                strbuf_add(b, "the lab itself was not scheduled in time to watch the machine");
        if (v->stolen_share > VALID_STOLEN_SHARE_MAX)
                strbuf_add(b, "the hypervisor took %.1f %% of the processor time, more than %g %%",
                           100 * v->stolen_share, 100 * VALID_STOLEN_SHARE_MAX);
        if (v->late_max_us > VALID_LATE_MAX_US)
                strbuf_add(b, "%sa timer was %.1f ms late, more than %g ms", separator(b),
                           v->late_max_us / 1e3, VALID_LATE_MAX_US / 1e3);
        if (v->late_p99_us > VALID_LATE_P99_US)
                strbuf_add(b, "%s1 %% of the timers were %.1f ms late or more, more than %g ms", separator(b),
                           v->late_p99_us / 1e3, VALID_LATE_P99_US / 1e3);
        if (v->others_share > VALID_OTHERS_SHARE_MAX && waits)
                strbuf_add(b, "%sother processes used %.0f %% of the processors while the point's waited %s",
                           separator(b), 100 * v->others_share,
                           raised ? "long for their turns" : "at equal priority");
}

static void add_lost(struct strbuf *b, const json_t *figures)
{
        json_int_t lost = json_integer_value(json_object_get(figures, "testbed_lost_packets"));

        if (lost > 0)
                strbuf_add(b,
                           "%sthe testbed itself lost %" JSON_INTEGER_FORMAT
                           " packet%s, which real links and ports would have carried",
                           separator(b), lost, lost == 1 ? "" : "s");
}

void bench_valid_describe(json_t *figures, const struct machine_view *v, bool raised)
{
        static const struct machine_view unknown = {0, NAN, NAN, NAN, NAN, NAN, NAN};
        char reason[REASON_MAX_BYTES] = "";
        struct strbuf b = strbuf_init(reason, sizeof reason);
        bool watched = v != NULL;

        v = v ?: &unknown;

        json_object_set_new(figures, "watched_seconds", watched ? json_real(v->seconds) : json_null());
        set(figures, "stolen_share", v->stolen_share);
        set(figures, "others_share", v->others_share);
        set(figures, "waiting_share", v->waiting_share);
        set(figures, "wait_mean_us", v->wait_mean_us);
        set(figures, "timer_late_p99_us", v->late_p99_us);
        set(figures, "timer_late_max_us", v->late_max_us);
        if (watched)
                add_reasons(&b, v, raised);
        add_lost(&b, figures);
        json_object_set_new(figures, "disturbed", reason[0] ? json_string(reason) : json_null());
}

const char *bench_valid_reason(const json_t *result)
{
        return json_string_value(json_object_get(result, "disturbed"));
}

json_t *bench_valid_make(json_t *(*make)(const void *ctx), const void *ctx, bool (*stop)(void),
                         unsigned repeats_max)
{
        json_t *figures = make(ctx);
        unsigned repeats = 0;

        while (figures && bench_valid_reason(figures) && repeats < repeats_max && !stop()) {
                json_decref(figures);
                figures = make(ctx);
                repeats++;
        }
        if (figures)
                json_object_set_new(figures, "repeats", json_integer(repeats));
        return figures;
}

static double number(const json_t *result, const char *key)
{
        return json_number_value(json_object_get(result, key));
}

/* Returns how many results rank below result i; among equal results, the first one ranks lower. */
static size_t rank(json_t *const *results, size_t n, const char *y, size_t i)
{
        double value = number(results[i], y);
        size_t below = 0;

        for (size_t k = 0; k < n; k++)
                below += number(results[k], y) < value || (k < i && number(results[k], y) == value);
        return below;
}

static void keep_losses(json_t *to, json_t *const *results, size_t n)
{
        static const char *const losses[] = {"switch_packets",  "source_packets", "socket_packets",
                                             "events_lost",     "events_partial", "lost_messages",
                                             "network_packets", "nic_packets",    "path_lost_packets",
                                             "lost_packets",    "lost_percent",   "corrupt"};

        for (size_t k = 0; k < ARRAY_SIZE(losses); k++) {
                for (size_t i = 0; i < n; i++) {
                        if (number(results[i], losses[k]) > number(to, losses[k]))
                                json_object_set(to, losses[k], json_object_get(results[i], losses[k]));
                }
        }
}

json_t *bench_valid_median(json_t *const *results, size_t n, const char *y)
{
        json_t *median = NULL;

        for (size_t i = 0; i < n && !median; i++) {
                if (rank(results, n, y, i) == n / 2)
                        median = json_deep_copy(results[i]);
        }
        if (!median)
                return NULL;
        keep_losses(median, results, n);
        json_object_set_new(median, "samples", json_integer((json_int_t)n));
        return median;
}
