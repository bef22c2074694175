/* Computes rates and latencies of events. */
#include "node/event_rates.h"

#include "base/util.h"

static double between(uint64_t begin_ns, uint64_t end_ns)
{
        return end_ns > begin_ns ? (double)(end_ns - begin_ns) / 1e9 : 0;
}

double event_rates_span_seconds(const struct node_stats *dfm)
{
        return between(stats_get(&dfm->first_complete_ns), stats_get(&dfm->last_complete_ns));
}

double event_rates_hz(const struct node_stats *dfm)
{
        double span = event_rates_span_seconds(dfm);

        return span > 0 ? (double)(stats_get(&dfm->events_complete) - 1) / span : 0;
}

double event_rates_bytes_per_second(const struct node_stats *dfm)
{
        double complete = (double)stats_get(&dfm->events_complete);

        return complete > 0 ? (double)stats_get(&dfm->payload_bytes) / complete * event_rates_hz(dfm) : 0;
}

json_t *event_rates_latency(const struct histogram *latency_ns)
{
        static const struct {
                const char *name;
                double q;
        } quantiles[] = {{"p50", 0.5}, {"p99", 0.99}, {"p999", 0.999}, {"max", 1.0}};
        json_t *o = json_object();

        for (size_t i = 0; i < ARRAY_SIZE(quantiles); i++)
                json_object_set_new(
                        o, quantiles[i].name,
                        latency_ns->count == 0
                                ? json_null()
                                : json_real((double)histogram_quantile(latency_ns, quantiles[i].q) / 1e3));
        return o;
}

static void set_known(json_t *o, const char *name, double value, bool known)
{
        json_object_set_new(o, name, known ? json_real(value) : json_null());
}

void event_rates_add(json_t *report, const struct node_stats *dfm)
{
        bool known = event_rates_span_seconds(dfm) > 0;
        uint64_t last_ns = stats_get(&dfm->last_complete_ns);

        set_known(report, "event_rate_hz", event_rates_hz(dfm), known);
        set_known(report, "throughput_bytes_per_second", event_rates_bytes_per_second(dfm), known);
        set_known(report, "building_seconds", between(stats_get(&dfm->first_trigger_ns), last_ns),
                  last_ns > 0);
        json_object_set_new(report, "latency_us", event_rates_latency(&dfm->latency_ns));
}
