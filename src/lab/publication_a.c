/* Publication A: measurements of UDP multicast and TCP with QoS at the sender (Yasu et al., CHEP 2001). */
#include <stdio.h>

#include "publications.h"
#include "query.h"
#include "settings.h"

/* One busy receiver on a machine with few processors causes as much; the published plots would not show it.
 */
#define SOME_LOSS_PERCENT 0.5

/* The receivers take 58,000 packets/s. The published ones lost packets at 60 bytes and 50 Mbit/s (A3: 61,275
 * packets/s with 42 bytes of headers), but not at 70 bytes (55,804). */
#define MULTICAST "kind=1 senders=1 receivers=3 receiver_pps=58000 seconds=1"
#define MULTICAST_SIZES                                                                                      \
        LAB_SWEEP(LAB_LIST(10, 20, 40, 60, 80, 100, 200, 400, 800, 1200, 1472), LAB_LIST(40, 100, 1472))

JUDGE(a1)
{
        double loss = least(of(j, NULL), "loss_percent");

        snprintf(why, size,
                 "loss is %.1f %% to %.1f %% over all sizes; each receiver accepts 58,000 packets/s, as A3 "
                 "implies for the published ones",
                 loss, most(of(j, NULL), "loss_percent"));
        return loss > SOME_LOSS_PERCENT ? LAB_AGREES : LAB_DIFFERS;
}

JUDGE(a2)
{
        double loss = most(of(j, NULL), "loss_percent");

        snprintf(why, size, "loss is at most %.2f %% at any size", loss);
        return loss < SOME_LOSS_PERCENT ? LAB_AGREES : LAB_DIFFERS;
}

JUDGE(a3)
{
        double small = most(between(of(j, NULL), 0, 40), "loss_percent"),
               large = most(between(of(j, NULL), 70, NEVER_X), "loss_percent");

        snprintf(why, size, "loss is %.1f %% up to 40 bytes and %.2f %% from 70 bytes", small, large);
        return small > SOME_LOSS_PERCENT && large < SOME_LOSS_PERCENT ? LAB_AGREES : LAB_DIFFERS;
}

JUDGE(a4)
{
        double small = most(between(of(j, NULL), 0, 100), "loss_percent"),
               large = most(between(of(j, NULL), 201, NEVER_X), "loss_percent");

        snprintf(why, size, "loss is %.1f %% up to 100 bytes and %.2f %% above 200 bytes", small, large);
        return large < SOME_LOSS_PERCENT ? LAB_AGREES : LAB_DIFFERS;
}

JUDGE(a5)
{
        double none = most(of(j, "no QoS"), "received_mbps"),
               qos = most(of(j, "QoS at 1000 Mbit/s"), "received_mbps");

        snprintf(why, size, "peak throughput is %.0f Mbit/s without QoS and %.0f Mbit/s with QoS", none, qos);
        return qos > 0.95 * none ? LAB_AGREES : LAB_DIFFERS;
}

JUDGE(a6)
{
        double none = most(of(j, "no QoS"), "sender_cpu_percent"),
               qos = most(of(j, "QoS at 1000 Mbit/s"), "sender_cpu_percent");

        snprintf(why, size,
                 "the sender uses at most %.0f %% of a CPU without QoS and %.0f %% with QoS; this excludes "
                 "the kernel's work after the queue",
                 none, qos);
        if (none <= 0 || qos <= 0)
                return LAB_DIFFERS;
        return qos <= none + 10 ? LAB_BETTER : LAB_AGREES;
}

JUDGE(a7)
{
        double none = most(of(j, "no QoS"), "gap_p50_us"),
               qos = most(of(j, "QoS at 10 Mbit/s"), "gap_p50_us"),
               tail = most(of(j, "QoS at 10 Mbit/s"), "gap_p99_us");

        snprintf(why, size,
                 "the median gap is %.0f us without QoS and %.0f us with QoS, 99 %% of the gaps are below "
                 "%.0f us; high-resolution timers replace the 10 ms tick",
                 none, qos, tail);
        return none > 0 && none < 50 && tail > 0 && tail < 5000 ? LAB_BETTER : LAB_DIFFERS;
}

JUDGE(a8)
{
        double none = most(of(j, "no QoS"), "gap_p50_us"),
               qos = most(of(j, "QoS at 10 Mbit/s"), "gap_p50_us");

        snprintf(why, size, "the median gap is %.0f us without QoS and %.0f us with QoS", none, qos);
        return none > 900 && none < 1100 && qos > 900 && qos < 1100 ? LAB_AGREES : LAB_DIFFERS;
}

static const struct lab_measurement measurements[] = {
        {
                .id = "A1",
                .title = "UDP multicast to 3 receivers, best effort",
                .published = "loss at every size",
                .x_label = "message size, bytes",
                .y_label = "loss, %",
                .y = "loss_percent",
                .log_x = true,
                .kind = LAB_FLOWS,
                .base = MULTICAST,
                .series = {{"best effort", ""}},
                .sweep = MULTICAST_SIZES,
                .vary = vary_message_bytes,
                .judge = judge_a1,
        },
        {
                .id = "A2",
                .title = "UDP multicast to 3 receivers, 10 Mbit/s",
                .published = "no loss at any size",
                .x_label = "message size, bytes",
                .y_label = "loss, %",
                .y = "loss_percent",
                .log_x = true,
                .kind = LAB_FLOWS,
                .base = MULTICAST,
                .series = {{"10 Mbit/s", "rate=10000000"}},
                .sweep = MULTICAST_SIZES,
                .vary = vary_message_bytes,
                .judge = judge_a2,
        },
        {
                .id = "A3",
                .title = "UDP multicast to 3 receivers, 50 Mbit/s",
                .published = "loss at 60 bytes and below only",
                .x_label = "message size, bytes",
                .y_label = "loss, %",
                .y = "loss_percent",
                .log_x = true,
                .kind = LAB_FLOWS,
                .base = MULTICAST,
                .series = {{"50 Mbit/s", "rate=50000000"}},
                .sweep = LAB_SWEEP(LAB_LIST(10, 20, 40, 50, 60, 70, 80, 100), LAB_LIST(10, 40, 100)),
                .vary = vary_message_bytes,
                .judge = judge_a3,
        },
        {
                .id = "A4",
                .title = "UDP multicast to 3 receivers, 100 Mbit/s",
                .published = "no loss above 200 bytes",
                .x_label = "message size, bytes",
                .y_label = "loss, %",
                .y = "loss_percent",
                .log_x = true,
                .kind = LAB_FLOWS,
                .base = MULTICAST,
                .series = {{"100 Mbit/s", "rate=100000000"}},
                .sweep = MULTICAST_SIZES,
                .vary = vary_message_bytes,
                .judge = judge_a4,
        },
        {
                .id = "A5",
                .title = "TCP throughput with QoS that limits nothing",
                .published = "the same peak throughput with and without QoS",
                .x_label = "message size, bytes",
                .y_label = "throughput, Mbit/s",
                .y = "received_mbps",
                .log_x = true,
                .kind = LAB_FLOWS,
                .base = "kind=2 seconds=1",
                .series = {{"no QoS", ""}, {"QoS at 1000 Mbit/s", "rate=1000000000"}},
                .sweep = LAB_TCP_SIZES,
                .vary = vary_message_bytes,
                .judge = judge_a5,
        },
        {
                .id = "A6",
                .title = "CPU usage of a TCP sender, with and without QoS",
                .published =
                        "QoS costs 10 percentage points for small messages; its share grows for large ones",
                .x_label = "message size, bytes",
                .y_label = "CPU usage of the sender, %",
                .y = "sender_cpu_p50_percent",
                .log_x = true,
                .kind = LAB_FLOWS,
                .base = "kind=2 seconds=1",
                .series = {{"no QoS", ""}, {"QoS at 1000 Mbit/s", "rate=1000000000"}},
                .sweep = LAB_TCP_SIZES,
                .vary = vary_message_bytes,
                .judge = judge_a6,
        },
        {
                .id = "A7",
                .title = "Gaps between TCP packets at 10 Mbit/s",
                .published =
                        "with QoS, some packets leave on the 10 ms scheduler tick; without, most gaps are "
                        "some 10 us",
                .x_label = "message size, bytes",
                .y_label = "median gap, us",
                .y = "gap_p50_us",
                .kind = LAB_FLOWS,
                .base = "kind=2 watch=1 seconds=2",
                .series = {{"no QoS", ""}, {"QoS at 10 Mbit/s", "rate=10000000"}},
                .sweep = LAB_SWEEP(LAB_LIST(1448), LAB_LIST(1448)),
                .vary = vary_message_bytes,
                .judge = judge_a7,
        },
        {
                .id = "A8",
                .title = "Gaps between TCP packets with a 1 kHz trigger",
                .published = "most gaps are 1 ms, with and without QoS",
                .x_label = "message size, bytes",
                .y_label = "median gap, us",
                .y = "gap_p50_us",
                .kind = LAB_FLOWS,
                .base = "kind=2 watch=1 messages_per_s=1000 seconds=2",
                .series = {{"no QoS", ""}, {"QoS at 10 Mbit/s", "rate=10000000"}},
                .sweep = LAB_SWEEP(LAB_LIST(1000), LAB_LIST(1000)),
                .vary = vary_message_bytes,
                .judge = judge_a8,
        },
};
const struct lab_publication publication_a = {measurements, ARRAY_SIZE(measurements)};
