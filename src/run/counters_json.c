/* Converts counters by the names in their table, and histograms bucket by bucket. */
#include "run/counters_json.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "node/metrics/counters.h"
#include "shape/model/plan.h"

/* Further fields that a report needs. */
#define REPORT_FIELDS(X)                                                                                     \
        X(first_trigger_ns)                                                                                  \
        X(first_complete_ns)                                                                                 \
        X(last_complete_ns)                                                                                  \
        X(qos_backend)                                                                                       \
        X(qos_rate_bps)

static bool get(const json_t *o, const char *name, uint64_t *ret)
{
        const json_t *v = json_object_get(o, name);

        if (!json_is_integer(v) || json_integer_value(v) < 0)
                return false;
        *ret = (uint64_t)json_integer_value(v);
        return true;
}

json_t *histogram_to_json(const struct histogram *h)
{
        json_t *buckets = json_array();

        for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
                if (h->buckets[i] > 0)
                        json_array_append_new(buckets,
                                              json_pack("[i, I]", (int)i, (json_int_t)h->buckets[i]));
        }
        return json_pack("{s:I, s:I, s:I, s:o}", "sum", (json_int_t)h->sum, "min",
                         (json_int_t)(h->count > 0 ? h->min : 0), "max", (json_int_t)h->max, "buckets",
                         buckets);
}

int histogram_from_json(struct histogram *ret, const json_t *o)
{
        const json_t *buckets = json_object_get(o, "buckets"), *b;
        struct histogram h;
        size_t i;

        histogram_init(&h);
        if (!json_is_array(buckets) || !get(o, "sum", &h.sum) || !get(o, "max", &h.max))
                return -EBADMSG;
        json_array_foreach(buckets, i, b)
        {
                json_int_t bucket = json_integer_value(json_array_get(b, 0)),
                           n = json_integer_value(json_array_get(b, 1));

                if (bucket < 0 || bucket >= HISTOGRAM_BUCKETS || n <= 0)
                        return -EBADMSG;
                h.buckets[bucket] = (uint64_t)n;
                h.count += (uint64_t)n;
        }
        if (h.count > 0 && !get(o, "min", &h.min))
                return -EBADMSG;
        *ret = h;
        return 0;
}

json_t *counters_to_json(const struct node_stats *s)
{
        json_t *o = json_object();

        counters_set_all(o, s);
#define X(name) json_object_set_new(o, #name, json_integer((json_int_t)stats_get(&s->name)));
        REPORT_FIELDS(X)
#undef X
        json_object_set_new(o, "state", json_integer((json_int_t)atomic_load(&s->state)));
        json_object_set_new(o, "latency_ns", histogram_to_json(&s->latency_ns));
        json_object_set_new(o, "level2_latency_ns", histogram_to_json(&s->level2_latency_ns));
        return o;
}

int counters_from_json(struct node_stats *ret, const json_t *counters)
{
        uint64_t state = 0, v;

        memset(ret, 0, sizeof *ret);
        if (!json_is_object(counters) || !get(counters, "state", &state) || state > NODE_ENDED)
                return -EBADMSG;
        for (size_t i = 0; i < COUNTERS; i++) {
                if (!get(counters, stats_table[i].name, &v))
                        return -EBADMSG;
                stats_set(stats_counter(ret, i), v);
        }
#define X(name)                                                                                              \
        if (!get(counters, #name, &v))                                                                       \
                return -EBADMSG;                                                                             \
        stats_set(&ret->name, v);
        REPORT_FIELDS(X)
#undef X
        if (stats_get(&ret->qos_backend) > TC_BACKEND_CBQ_TBF)
                return -EBADMSG;
        atomic_store(&ret->state, (uint32_t)state);
        ret->magic = NODE_STATS_MAGIC;
        if (histogram_from_json(&ret->level2_latency_ns, json_object_get(counters, "level2_latency_ns")) < 0)
                return -EBADMSG;
        return histogram_from_json(&ret->latency_ns, json_object_get(counters, "latency_ns"));
}
