/* What the verbs of `evb bench` share: the time of a measurement, the figures that say what else the machine
 * did, and the median of several rounds. Pure. */
#include "bench.h"

#include <math.h>
#include <stdio.h>

#include "base/json.h"
#include "base/quantity.h"
#include "base/util.h"

int bench_parse_time(const char *text, uint64_t *ret_ns)
{
        char seconds[32];

        if (quantity_parse_time(text, ret_ns) >= 0)
                return 0;
        snprintf(seconds, sizeof seconds, "%ss", text);
        return quantity_parse_time(seconds, ret_ns);
}

void bench_record_machine(json_t *figures, const struct machine_view *v)
{
        static const struct machine_view unknown = {NAN, NAN, NAN, NAN, NAN, NAN, NAN};

        v = v ?: &unknown;
        json_object_set_new(figures, "watched_seconds", json_figure(v->seconds));
        json_object_set_new(figures, "stolen_share", json_figure(v->stolen_share));
        json_object_set_new(figures, "others_share", json_figure(v->others_share));
        json_object_set_new(figures, "waiting_share", json_figure(v->waiting_share));
        json_object_set_new(figures, "wait_mean_us", json_figure(v->wait_mean_us));
        json_object_set_new(figures, "timer_late_p99_us", json_figure(v->late_p99_us));
        json_object_set_new(figures, "timer_late_max_us", json_figure(v->late_max_us));
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
        static const char *const losses[] = {"lost_percent", "corrupt"};

        for (size_t k = 0; k < ARRAY_SIZE(losses); k++) {
                for (size_t i = 0; i < n; i++) {
                        if (number(results[i], losses[k]) > number(to, losses[k]))
                                json_object_set(to, losses[k], json_object_get(results[i], losses[k]));
                }
        }
}

json_t *bench_median_round(json_t *const *results, size_t n, const char *y)
{
        json_t *median = NULL;

        for (size_t i = 0; i < n && !median; i++) {
                if (rank(results, n, y, i) == n / 2)
                        median = json_deep_copy(results[i]);
        }
        if (!median)
                return NULL;
        keep_losses(median, results, n);
        json_put_count(median, "samples", n);
        return median;
}
