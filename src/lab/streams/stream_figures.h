/* Figures of a point from the report of its stream. Pure. */
#pragma once

#include <jansson.h>

struct stream_shape {
        double packet_bytes; /* UDP payload */
        double interval_s;   /* that the throughput is compared in */
};

/* Reads the report of the receiver. An unknown figure is null, never 0:
 *   mbps, wire_mbps: payload, and frames with Ethernet header, as the testbed's links count them
 *   throughput_mbps: wire_mbps in each interval of interval_seconds
 *   spread_mbps, sigma_mbps: the most less the least of them, and their standard deviation
 *   mean_mbps, least_mbps, most_mbps: of them
 *   steady_intervals, unsteady_intervals: how many are within 0.1 % of the mean, and how many are not
 *   lost_percent, lost_packets; by place: source_packets, network_packets, nic_packets, socket_packets,
 *     receiver_packets, late_packets
 *   inter_packet, processing, sent_inter_packet: times in us, with histogram, as in the report; the mean,
 *     sigma and 99.9 % quantile of each also by itself, as in inter_packet_mean_us
 *   receive_cpu_percent, output_cpu_percent, send_cpu_percent, input_cpu_percent: of one processor, by the
 *     threads of receiver and sender
 *   cpu_percent: what each processor of the machine did */
json_t *stream_figures(const json_t *report, const struct stream_shape *shape);
