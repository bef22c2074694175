/* Publication B: TCP and QoS on Gigabit Ethernet (Yasu et al., about 2000). */
#include <stdio.h>

#include "publications.h"
#include "query.h"
#include "settings.h"

/* Memory copy below the rate of the published gigabit link would limit the throughput. */
#define LINK_MBYTE_PER_S 125.0

JUDGE(b1)
{
        double slowest = least(of(j, NULL), "mbyte_per_s");

        snprintf(why, size, "memory copy runs at %.0f to %.0f Mbyte/s; a gigabit link needs %.0f", slowest,
                 most(of(j, NULL), "mbyte_per_s"), LINK_MBYTE_PER_S);
        return slowest > LINK_MBYTE_PER_S ? LAB_BETTER : LAB_DIFFERS;
}

JUDGE(b2)
{
        (void)j;
        snprintf(why, size,
                 "the lab's virtual devices have no interrupts to coalesce; this needs real network cards, "
                 "where the keys tuning.* set coalescing");
        return LAB_UNKNOWN;
}

JUDGE(b3)
{
        double normal = most(of(j, "MTU 1500"), "received_mbps"),
               jumbo = most(of(j, "MTU 9000"), "received_mbps");

        snprintf(why, size, "peak throughput is %.0f Mbit/s at MTU 1500 and %.0f Mbit/s at MTU 9000", normal,
                 jumbo);
        return jumbo >= 980 && jumbo > normal ? LAB_AGREES : LAB_DIFFERS;
}

/* The lowest measured rate relative to the configured one, of which TCP's payload is 1448 in 1514 bytes. */
static double worst_share(struct judging *j, const char *key, double most_x)
{
        struct query up_to = between(of(j, NULL), 0, most_x);
        double worst = 1;
        size_t at = j->n;

        for (size_t i = 0; i < j->n; i++) {
                double share = figure_of(j, i, key) / (j->points[i].x * 1448 / 1514);

                if (!is_in(&up_to, &j->points[i]) || share >= worst)
                        continue;
                worst = share;
                at = i;
        }
        if (at < j->n)
                j->decisive[at] = true;
        return worst;
}

JUDGE(b4)
{
        double low = worst_share(j, "received_mbps", 600), full = worst_share(j, "received_mbps", NEVER_X);

        snprintf(why, size,
                 "TCP payload reaches at least %.1f %% of its share of the rate up to 600 Mbit/s, and %.1f "
                 "%% up "
                 "to 950 Mbit/s; B3 shows the limit of one TCP connection here",
                 100 * low, 100 * full);
        return low > 0.97 ? LAB_AGREES : LAB_DIFFERS;
}

/* The full rate leaves no time to make up for a late timer: in seven runs on two processors, one of them
 * beside a compile job, the slowest flow reached 84 to 98 %. */
#define RATE_KEPT 0.99

JUDGE(b5)
{
        double low = worst_share(j, "least_mbps", 200), full = worst_share(j, "least_mbps", NEVER_X);

        snprintf(why, size,
                 "the slowest of three flows reaches at least %.1f %% of its rate up to 200 Mbit/s, and "
                 "%.1f %% up to 320 Mbit/s",
                 100 * low, 100 * full);
        return full > RATE_KEPT ? LAB_BETTER : low > 0.95 ? LAB_AGREES : LAB_DIFFERS;
}

/* "Works well". Two processors reach 96 to 98 %, and 94 % in half a second beside a compile job. */
#define WELL_SHARE 0.9

JUDGE(b6)
{
        double share = worst_share(j, "least_mbps", NEVER_X);

        snprintf(why, size, "the slowest of three flows reaches at least %.1f %% of its rate", 100 * share);
        return share > WELL_SHARE ? LAB_AGREES : LAB_DIFFERS;
}

static const struct lab_measurement measurements[] = {
        {
                .id = "B1",
                .title = "Memory copy",
                .published = "the better chipset wins; memory copy limits TCP",
                .x_label = "block size, bytes",
                .y_label = "throughput, Mbyte/s",
                .y = "mbyte_per_s",
                .log_x = true,
                .kind = LAB_COPY,
                .base = "seconds=0.2",
                .series = {{"memcpy", ""}},
                .sweep = LAB_SWEEP(LAB_LIST(64, 1024, 16384, 262144, 4194304, 67108864),
                                   LAB_LIST(1024, 262144, 4194304)),
                .vary = vary_nothing,
                .judge = judge_b1,
        },
        {
                .id = "B2",
                .title = "TCP throughput against interrupt coalescing",
                .published = "best at 996/1000 with MTU 1500 and at 200/300 with MTU 9000",
                .x_label = "MTU, bytes",
                .y_label = "throughput, Mbit/s",
                .y = "received_mbps",
                .kind = LAB_FLOWS,
                .base = "kind=2 message=65536 socket=528288 seconds=1",
                .series = {{"as the device has it", ""}},
                .sweep = LAB_SWEEP(LAB_LIST(1500, 9000), LAB_LIST(1500)),
                .vary = vary_mtu_bytes,
                .judge = judge_b2,
        },
        {
                .id = "B3",
                .title = "TCP throughput against message size and MTU",
                .published = "jumbo frames reach 990 Mbit/s",
                .x_label = "message size, bytes",
                .y_label = "throughput, Mbit/s",
                .y = "received_mbps",
                .log_x = true,
                .kind = LAB_FLOWS,
                .base = "kind=2 socket=528288 seconds=1",
                .series = {{"MTU 1500", "mtu=1500"}, {"MTU 9000", "mtu=9000"}},
                .sweep = LAB_TCP_SIZES,
                .marks = {{"2000: jumbo", 10000, 990}},
                .vary = vary_message_bytes,
                .judge = judge_b3,
        },
        {
                .id = "B4",
                .title = "QoS 1x1: configured and measured rate",
                .published = "allocation works; overhead is near 1 %",
                .x_label = "configured rate, Mbit/s",
                .y_label = "measured rate, Mbit/s",
                .y = "received_mbps",
                .kind = LAB_FLOWS,
                .base = "kind=2 message=65536 seconds=1.5",
                .series = {{"TCP", ""}},
                .sweep = LAB_SWEEP(LAB_LIST(10, 50, 100, 200, 400, 600, 800, 950), LAB_LIST(50, 400, 950)),
                .vary = vary_rate_mbps,
                .judge = judge_b4,
        },
        {
                .id = "B5",
                .title = "QoS 1x3: one source, three destinations",
                .published = "works at low rates, not at full rate; unshaped, each flow gets over 200 Mbit/s",
                .x_label = "configured rate of each flow, Mbit/s",
                .y_label = "slowest flow, Mbit/s",
                .y = "least_mbps",
                .kind = LAB_FLOWS,
                .base = "kind=2 message=65536 receivers=3 seconds=1.5",
                .series = {{"shaped", ""}},
                .sweep = LAB_SWEEP(LAB_LIST(50, 100, 200, 300, 320), LAB_LIST(100, 320)),
                .vary = vary_rate_mbps,
                .judge = judge_b5,
        },
        {
                .id = "B6",
                .title = "QoS 3x1: three sources, one destination",
                .published = "works well",
                .x_label = "configured rate of each flow, Mbit/s",
                .y_label = "slowest flow, Mbit/s",
                .y = "least_mbps",
                .kind = LAB_FLOWS,
                .base = "kind=2 message=65536 senders=3 seconds=1.5",
                .series = {{"shaped", ""}},
                .sweep = LAB_SWEEP(LAB_LIST(50, 100, 200, 300, 320), LAB_LIST(100, 320)),
                .vary = vary_rate_mbps,
                .judge = judge_b6,
        },
};
const struct lab_publication publication_b = {measurements, ARRAY_SIZE(measurements)};
