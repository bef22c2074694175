/* Computes the figures of a stream from its report. */
#include "stream_figures.h"

#include <math.h>
#include <stdio.h>

#include "base/util.h"
#include "stream/stream.h"

/* Bytes of a frame beside the UDP payload: Ethernet, IP and UDP headers. */
#define FRAME_HEADERS_BYTES (14 + 20 + 8)
/* A steady interval has the mean rate within this share. */
#define STEADY_SHARE 0.001

static void set(json_t *o, const char *name, double value, bool known)
{
        json_object_set_new(o, name, known ? json_real(value) : json_null());
}

static double number(const json_t *o, const char *name)
{
        return json_number_value(json_object_get(o, name));
}

static bool is_known(const json_t *o, const char *name)
{
        return json_is_number(json_object_get(o, name));
}

static void copy(json_t *to, const char *name, const json_t *value)
{
        json_object_set_new(to, name, value ? json_deep_copy(value) : json_null());
}

static double to_mbps(double packets, double packet_bytes, double seconds)
{
        return packets * packet_bytes * 8 / seconds / 1e6;
}

static void add_spread(json_t *o, const json_t *throughput)
{
        double least = INFINITY, most = -INFINITY, sum = 0, squares = 0, steady = 0;
        size_t n = json_array_size(throughput), i;
        const json_t *each;

        json_array_foreach(throughput, i, each)
        {
                least = fmin(least, json_number_value(each));
                most = fmax(most, json_number_value(each));
                sum += json_number_value(each);
        }
        json_array_foreach(throughput, i, each)
        {
                double off = json_number_value(each) - sum / (double)n;

                squares += off * off;
                steady += fabs(off) <= STEADY_SHARE * sum / (double)n;
        }
        set(o, "spread_mbps", most - least, n > 1);
        set(o, "sigma_mbps", sqrt(squares / (double)n), n > 1);
        set(o, "mean_mbps", sum / (double)n, n > 0);
        set(o, "least_mbps", least, n > 0);
        set(o, "most_mbps", most, n > 0);
        set(o, "steady_intervals", steady, n > 1);
        set(o, "unsteady_intervals", (double)n - steady, n > 1);
}

/* The throughput on the wire in each whole interval of the shape. */
static void add_throughput(json_t *o, const json_t *report, const struct stream_shape *shape)
{
        const json_t *intervals = json_object_get(report, "intervals"),
                     *packets = json_object_get(intervals, "packets");
        double length_s = number(intervals, "seconds"), joined = 1;
        json_t *all = json_array();

        if (length_s > 0)
                joined = fmax(round(shape->interval_s / length_s), 1);
        for (size_t i = 0; i + (size_t)joined <= json_array_size(packets); i += (size_t)joined) {
                double sum = 0;

                for (size_t k = i; k < i + (size_t)joined; k++)
                        sum += json_number_value(json_array_get(packets, k));
                json_array_append_new(all, json_real(to_mbps(sum, shape->packet_bytes + FRAME_HEADERS_BYTES,
                                                             length_s * joined)));
        }
        set(o, "interval_seconds", length_s * joined, length_s > 0);
        add_spread(o, all);
        json_object_set_new(o, "throughput_mbps", all);
}

static void add_losses(json_t *o, const json_t *report)
{
        const json_t *at = json_object_get(report, "lost_at");
        double sent = number(report, "packets_sent");

        copy(o, "packets_sent", json_object_get(report, "packets_sent"));
        copy(o, "lost_packets", json_object_get(report, "packets_lost"));
        set(o, "lost_percent", 100 * number(report, "packets_lost") / sent,
            sent > 0 && is_known(report, "packets_lost"));
        for (size_t i = 0; i < STREAM_PLACES; i++) {
                char name[32];

                snprintf(name, sizeof name, "%s_packets", stream_places[i].name);
                copy(o, name, json_object_get(at, stream_places[i].name));
        }
        copy(o, "late_packets", json_object_get(report, "packets_late"));
        copy(o, "corrupt", json_object_get(report, "corrupt"));
}

static void add_times(json_t *o, const char *name, const json_t *times)
{
        static const char *const parts[] = {"mean", "sigma", "p999"};
        char text[64];

        copy(o, name, times);
        for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
                snprintf(text, sizeof text, "%.40s_%s_us", name, parts[i]);
                copy(o, text, json_object_get(times, parts[i]));
        }
}

static void add_share(json_t *o, const char *name, const json_t *end, const char *used, double seconds)
{
        set(o, name, 100 * number(end, used) / seconds, seconds > 0 && is_known(end, used));
}

json_t *stream_figures(const json_t *report, const struct stream_shape *shape)
{
        const json_t *peer = json_object_get(report, "peer");
        double seconds = number(report, "seconds"), packets = number(report, "packets_received");
        bool known = seconds > 0 && is_known(report, "packets_received");
        json_t *o = json_object();

        copy(o, "seconds", json_object_get(report, "seconds"));
        copy(o, "packets_received", json_object_get(report, "packets_received"));
        copy(o, "wake", json_object_get(report, "wake"));
        set(o, "mbps", number(report, "bytes") * 8 / seconds / 1e6, known);
        set(o, "wire_mbps", to_mbps(packets, shape->packet_bytes + FRAME_HEADERS_BYTES, seconds), known);
        add_throughput(o, report, shape);
        add_losses(o, report);
        add_times(o, "inter_packet", json_object_get(report, "inter_packet_us"));
        add_times(o, "processing", json_object_get(report, "processing_us"));
        add_times(o, "sent_inter_packet", json_object_get(peer, "inter_packet_us"));
        add_share(o, "receive_cpu_percent", report, "network_cpu_seconds", seconds);
        add_share(o, "output_cpu_percent", report, "file_cpu_seconds", seconds);
        add_share(o, "send_cpu_percent", peer, "network_cpu_seconds", seconds);
        add_share(o, "input_cpu_percent", peer, "file_cpu_seconds", seconds);
        copy(o, "cpu_percent", json_object_get(report, "cpu_percent"));
        return o;
}
