/* Computes the figures of a point from the counts of its senders and receivers. An unknown figure is null,
 * never 0. */
#include "flow_figures.h"

#include "base/util.h"
#include "run/cpu_meter.h"

static void set(json_t *o, const char *name, double v)
{
        json_object_set_new(o, name, json_real(v));
}

static void set_known(json_t *o, const char *name, double v, bool known)
{
        json_object_set_new(o, name, known ? json_real(v) : json_null());
}

/* In microseconds; null without samples. */
static void set_quantile(json_t *o, const char *name, const struct histogram *h, double q)
{
        set_known(o, name, h->count > 0 ? (double)histogram_quantile(h, q) / 1e3 : 0, h->count > 0);
}

/* Ten bins per decade, from 100 ns to 1 s. */
static void add_gap_bins(json_t *o, const struct histogram *gaps)
{
        json_t *edges = json_array(), *counts = json_array();

        for (int bin = 0; bin <= 70; bin++) {
                uint64_t upper = (uint64_t)__builtin_pow(10, 2 + bin / 10.0);
                double below = 0;

                for (int q = 1; q < 1000; q++)
                        below += histogram_quantile(gaps, q / 1000.0) <= upper;
                json_array_append_new(edges, json_real((double)upper / 1e3));
                json_array_append_new(counts, json_real(below / 999));
        }
        json_object_set_new(o, "gap_edges_us", edges);
        json_object_set_new(o, "gap_below", counts);
}

static void add_gaps(json_t *o, const struct histogram *gaps)
{
        static const struct {
                const char *name;
                double q;
        } quantiles[] = {
                {"gap_p1_us", 0.01},  {"gap_p25_us", 0.25}, {"gap_p50_us", 0.5},
                {"gap_p75_us", 0.75}, {"gap_p99_us", 0.99}, {"gap_max_us", 1},
        };

        for (size_t i = 0; i < ARRAY_SIZE(quantiles); i++)
                set_quantile(o, quantiles[i].name, gaps, quantiles[i].q);
        if (gaps->count > 0)
                add_gap_bins(o, gaps);
}

json_t *flow_figures(const struct flow *flows, const struct flow_result *results, unsigned n)
{
        double sent = 0, received = 0, messages = 0, expected = 0, least = -1, sender_cpu = 0,
               receiver_cpu = 0;
        double seconds = results[0].seconds, sending = results[0].sending_seconds;
        json_t *o = json_object();

        for (unsigned i = 0; i < n; i++) {
                sent += (double)results[i].sent_bytes;
                sender_cpu += results[i].sender_cpu_seconds;
                receiver_cpu += results[i].receiver_cpu_seconds;
                for (unsigned k = 0; k < flows[i].n_to; k++) {
                        double mbps = (double)results[i].received_bytes[k] * 8 / seconds / 1e6;

                        received += (double)results[i].received_bytes[k];
                        messages += (double)results[i].received_messages[k];
                        expected += (double)results[i].sent_messages;
                        least = least < 0 || mbps < least ? mbps : least;
                }
        }
        set(o, "sent_mbps", sent * 8 / seconds / 1e6);
        set(o, "received_mbps", received * 8 / seconds / 1e6);
        set(o, "least_mbps", least);
        if (flows[0].kind != FLOW_TCP) {
                set_known(o, "loss_percent", 100 * (1 - messages / expected), expected > 0);
                set_known(o, "lost_messages", expected - messages, expected > 0);
        }
        set(o, "sender_cpu_percent", 100 * sender_cpu / sending);
        set(o, "receiver_cpu_percent", 100 * receiver_cpu / sending);
        if (flows[0].watch_wire)
                add_gaps(o, &results[0].gaps_ns);
        return o;
}

json_t *flow_figures_echo(const struct flow_result *result)
{
        const struct histogram *h = &result->gaps_ns;
        json_t *o = json_object();

        set(o, "echoes", (double)h->count);
        set_quantile(o, "echo_p50_us", h, 0.5);
        set_quantile(o, "echo_p99_us", h, 0.99);
        set_quantile(o, "echo_max_us", h, 1);
        return o;
}

/* Merges the samples of all senders, and those of all receivers; each sample covers one interval. */
void flow_figures_add_shares(json_t *o, struct flow_result *results, unsigned n)
{
        for (unsigned i = 1; i < n; i++) {
                histogram_merge(&results[0].sender_shares, &results[i].sender_shares);
                histogram_merge(&results[0].receiver_shares, &results[i].receiver_shares);
        }
        json_object_set_new(o, "sender_cpu", cpu_meter_describe(&results[0].sender_shares));
        json_object_set_new(o, "receiver_cpu", cpu_meter_describe(&results[0].receiver_shares));
        json_object_set(o, "sender_cpu_p50_percent",
                        json_object_get(json_object_get(o, "sender_cpu"), "p50") ?: json_null());
}

static void set_packets(json_t *o, const char *name, uint64_t packets, bool known)
{
        json_object_set_new(o, name, known ? json_integer((json_int_t)packets) : json_null());
}

/* Reports drops by location; null if the location does not exist or does not count. */
void flow_figures_add_losses(json_t *o, const struct flow_result *results, unsigned n, enum flow_kind kind,
                             bool shaped)
{
        uint64_t at_sources = 0, at_sockets = 0;

        for (unsigned i = 0; i < n; i++) {
                at_sockets += results[i].socket_drops;
                at_sources += results[i].source_drops;
                shaped &= !results[i].source_drops_unknown;
        }
        set_packets(o, "source_packets", at_sources, shaped);
        set_packets(o, "switch_packets", 0, false);
        set_packets(o, "testbed_lost_packets", 0, false);
        json_object_set_new(o, "port", json_null());
        set_packets(o, "socket_packets", at_sockets, kind != FLOW_TCP);
}

void flow_figures_add_switch(json_t *o, const struct testbed_counts *counts)
{
        set_packets(o, "switch_packets", counts->dropped_packets, true);
        set_packets(o, "testbed_lost_packets", counts->lost_packets, true);
        json_object_set_new(o, "port", json_string(testbed_port_name(counts)));
}
