/* Figures of a stream, from reports as evb stream recv --json writes them. */
#include "../test.h"

#include <math.h>

#include "base/util.h"
#include "lab/streams/stream_figures.h"

static const struct stream_shape shape = {.packet_bytes = 1472, .interval_s = 0.2};

static json_t *times(double mean)
{
        return json_pack("{s:f, s:f, s:f, s:[[f, i]]}", "mean", mean, "sigma", 2.0, "p999", 30.0, "histogram",
                         mean, 99);
}

/* 1000 packets of a stream of half a second, in intervals of 0.1 s. */
static json_t *report_of(void)
{
        return json_pack(
                "{s:i, s:i, s:i, s:f, s:i, s:i, s:{s:i, s:i, s:n, s:i, s:i}, s:{s:f, s:[i, i, i, i, i]}, "
                "s:o, s:o, s:f, s:f, s:n, s:[{s:i, s:f}], s:{s:o, s:f, s:f}}",
                "packets_sent", 1000, "packets_received", 900, "packets_lost", 100, "seconds", 0.5, "bytes",
                900 * 1456, "packets_late", 10, "lost_at", "source", 20, "network", 30, "nic", "socket", 34,
                "receiver", 6, "intervals", "seconds", 0.1, "packets", 100, 300, 200, 200, 100,
                "inter_packet_us", times(12), "processing_us", times(0.25), "network_cpu_seconds", 0.25,
                "file_cpu_seconds", 0.05, "corrupt", "cpu_percent", "cpu", 0, "user", 25.0, "peer",
                "inter_packet_us", times(11), "network_cpu_seconds", 0.5, "file_cpu_seconds", 0.1);
}

static double number(const json_t *o, const char *name)
{
        assert_true(json_is_number(json_object_get(o, name)));
        return json_number_value(json_object_get(o, name));
}

static void assert_near(double value, double expected)
{
        if (fabs(value - expected) > 1e-9 * fmax(1, fabs(expected)))
                fail_msg("%.12g, not %.12g", value, expected);
}

TEST(figures_follow_from_the_report)
{
        json_auto_t *report = report_of(), *o = stream_figures(report, &shape);

        assert_near(number(o, "wire_mbps"), 900 * 1514 * 8 / 0.5 / 1e6);
        assert_near(number(o, "mbps"), 900 * 1456 * 8 / 0.5 / 1e6);
        assert_near(number(o, "lost_percent"), 10);
        assert_near(number(o, "lost_packets"), 100);
        assert_near(number(o, "source_packets"), 20);
        assert_near(number(o, "network_packets"), 30);
        assert_near(number(o, "socket_packets"), 34);
        assert_near(number(o, "receiver_packets"), 6);
        assert_near(number(o, "late_packets"), 10);
        assert_true(json_is_null(json_object_get(o, "nic_packets")));
        assert_true(json_is_null(json_object_get(o, "corrupt")));
        assert_near(number(o, "inter_packet_mean_us"), 12);
        assert_near(number(o, "sent_inter_packet_mean_us"), 11);
        assert_near(number(o, "processing_sigma_us"), 2);
        assert_near(number(o, "receive_cpu_percent"), 50);
        assert_near(number(o, "output_cpu_percent"), 10);
        assert_near(number(o, "send_cpu_percent"), 100);
        assert_near(number(o, "input_cpu_percent"), 20);
        assert_int_equal(json_array_size(json_object_get(json_object_get(o, "processing"), "histogram")), 1);
        assert_int_equal(json_array_size(json_object_get(o, "cpu_percent")), 1);
}

/* Two intervals of 0.2 s have 400 packets each; the rest is too short for a third one. */
TEST(throughput_is_compared_in_whole_intervals)
{
        const struct stream_shape shorter = {.packet_bytes = 1472, .interval_s = 0.01};
        json_t *report = report_of(), *o = stream_figures(report, &shape);

        assert_int_equal(json_array_size(json_object_get(o, "throughput_mbps")), 2);
        assert_near(number(o, "interval_seconds"), 0.2);
        assert_near(number(o, "spread_mbps"), 0);
        assert_near(number(o, "sigma_mbps"), 0);
        assert_near(number(o, "mean_mbps"), 400 * 1514 * 8 / 0.2 / 1e6);
        assert_near(number(o, "steady_intervals"), 2);
        assert_near(number(o, "unsteady_intervals"), 0);
        json_decref(o);
        o = stream_figures(report, &shorter);
        assert_int_equal(json_array_size(json_object_get(o, "throughput_mbps")), 5);
        assert_near(number(o, "spread_mbps"), 200 * 1514 * 8 / 0.1 / 1e6);
        /* The mean is 180 packets: sqrt((2 * 80^2 + 120^2 + 2 * 20^2) / 5). */
        assert_near(number(o, "sigma_mbps"), sqrt(28000 / 5.0) * 1514 * 8 / 0.1 / 1e6);
        assert_near(number(o, "least_mbps"), 100 * 1514 * 8 / 0.1 / 1e6);
        assert_near(number(o, "most_mbps"), 300 * 1514 * 8 / 0.1 / 1e6);
        assert_near(number(o, "unsteady_intervals"), 5);
        json_decref(o);
        json_decref(report);
}

/* A sender that is gone reports nothing. */
TEST(what_is_not_known_is_null)
{
        static const char *const names[] = {
                "lost_percent",     "source_packets",      "socket_packets",
                "spread_mbps",      "sigma_mbps",          "sent_inter_packet_mean_us",
                "send_cpu_percent", "receive_cpu_percent", "wire_mbps",
                "interval_seconds", "mean_mbps",           "least_mbps",
                "most_mbps",        "steady_intervals",    "unsteady_intervals"};
        json_t *report = json_pack("{s:n, s:n, s:n, s:n, s:n}", "packets_sent", "packets_lost", "lost_at",
                                   "peer", "seconds"),
               *o = stream_figures(report, &shape);

        for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
                if (!json_is_null(json_object_get(o, names[i])))
                        fail_msg("%s is not null", names[i]);
        }
        json_decref(o);
        json_decref(report);
}
