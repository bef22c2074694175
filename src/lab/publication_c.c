/* Publication C: event building without and with QoS (Hasegawa et al., JPS 2003). Its open questions are in
 * extension_c.c. */
#include <math.h>
#include <stdio.h>

#include "base/strbuf.h"
#include "publications.h"
#include "query.h"
#include "settings.h"

#define SIZES LAB_SWEEP(LAB_LIST(1024, 2048, 5120, 8192, 14336, 16384, 32768), LAB_LIST(1024, 5120, 14336))
/* The builders of 2003 neither repeated requests nor held triggers back. Results files made before sfi.re-ask
 * became sfi.retries contain these settings, and only points of equal settings are compared. */
#define BUILDERS_OF_2003                                                                                     \
        " sfi.re-ask=0 sfi.timeout=300ms dfm.event-timeout=1s sfi.credits=4000 sfi.buffer-size=1GiB "        \
        "ros.buffer-size=512MiB"

static double megabytes_per_s(struct query q)
{
        return most(q, "whole_bytes_per_second") / 1e6;
}

static enum lab_verdict judge_rate(struct judging *j, double push_hz, double pull_hz, char *why, size_t size)
{
        double push = most(of(j, "push"), "whole_events_per_second"),
               pull = most(of(j, "pull"), "whole_events_per_second");

        snprintf(why, size, "push builds %.1f kHz (published: %.1f), pull %.1f kHz (published: %.1f)",
                 push / 1e3, push_hz / 1e3, pull / 1e3, pull_hz / 1e3);
        return push > 1.2 * push_hz && pull > 1.2 * pull_hz ? LAB_BETTER
               : push > 0.8 * push_hz                       ? LAB_AGREES
                                                            : LAB_DIFFERS;
}

JUDGE(c1)
{
        return judge_rate(j, 20e3, 14e3, why, size);
}

JUDGE(c2)
{
        double push = megabytes_per_s(of(j, "push")), pull = megabytes_per_s(of(j, "pull"));
        double large = megabytes_per_s(between(of(j, "push"), 15000, NEVER_X));

        snprintf(why, size,
                 "push builds %.0f MB/s, pull %.0f MB/s (published: 52); from 15 kB, where building stopped "
                 "in "
                 "2003, push builds %.0f MB/s: the link is the limit, not the SFI",
                 push, pull, large);
        return push > 60 && pull > 60 ? LAB_BETTER : LAB_DIFFERS;
}

JUDGE(c3)
{
        return judge_rate(j, 5e3, 3.8e3, why, size);
}

JUDGE(c4)
{
        struct query push = of(j, "push"), pull = of(j, "pull"), large = between(push, 5000, NEVER_X);
        double small_mb = megabytes_per_s(between(push, 0, 2048)), large_mb = megabytes_per_s(large);
        double complete = most(large, "complete_share"), pull_mb = megabytes_per_s(pull);
        double pull_large_mb = megabytes_per_s(between(pull, 14337, NEVER_X));
        struct strbuf b = strbuf_init(why, size);

        strbuf_add(&b,
                   "push builds %.0f MB/s up to 2 kB (published: 82) and at most %.0f MB/s from 5 kB, with "
                   "%.0f %% of the events complete; ",
                   small_mb, large_mb, 100 * complete);
        strbuf_add(&b, "pull builds at most %.0f MB/s (published: 95)", pull_mb);
        /* A quick sweep has no such points. */
        if (!isnan(pull_large_mb))
                strbuf_add(&b, ", and %.0f MB/s above 14 kB", pull_large_mb);
        /* It collapses with time, so a quick run sees less of it. */
        return large_mb < 0.9 * pull_mb && complete < 0.9 ? LAB_AGREES : LAB_DIFFERS;
}

JUDGE(c5)
{
        double mb20 = megabytes_per_s(of(j, "20 Mbit/s")), mb40 = megabytes_per_s(of(j, "40 Mbit/s"));
        double mb50 = megabytes_per_s(of(j, "50 Mbit/s")), automatic = megabytes_per_s(of(j, "auto"));
        double lost = sum(of(j, NULL), "switch_packets");

        snprintf(why, size,
                 "push builds %.0f, %.0f and %.0f MB/s at 20, 40 and 50 Mbit/s, and %.0f MB/s at the planned "
                 "rate; the port drops %.0f packets",
                 mb20, mb40, mb50, automatic, lost);
        return mb50 > mb40 && automatic > 95 && lost == 0 ? LAB_BETTER
               : mb40 > mb20                              ? LAB_AGREES
                                                          : LAB_DIFFERS;
}

static const struct lab_measurement measurements[] = {
        {
                .id = "C1",
                .title = "Event rate of 1x1, 1 kB fragments, no QoS",
                .published =
                        "push 20 kHz, pull 14 kHz, limited by the SFI's CPU; building stops above 40 kHz",
                .x_label = "trigger rate, Hz",
                .y_label = "complete events/s",
                .y = "whole_events_per_second",
                .log_x = true,
                .kind = LAB_EVENTS,
                .base = "ros.count=1 sfi.count=1 ros.fragment-size=1000 network.link-rate=1Gbit "
                        "scenario.duration=2s",
                .series = {{"push", ""}, {"pull", "scenario.mode=pull"}},
                .sweep =
                        LAB_SWEEP(LAB_LIST(5000, 10000, 20000, 40000, 80000, 160000), LAB_LIST(20000, 80000)),
                .marks = {{"2003: push", 20000, 20000}, {"2003: pull", 14000, 14000}},
                .vary = vary_trigger_hz,
                .judge = judge_c1,
        },
        {
                .id = "C2",
                .title = "Throughput of 1x1 at 25 kHz, no QoS",
                .published = "52 MB/s at 14 kB, push and pull; building stops from 15 kB",
                .x_label = "fragment size, bytes",
                .y_label = "complete events, MB/s",
                .y = "whole_bytes_per_second",
                .log_x = true,
                .kind = LAB_EVENTS,
                .base = "ros.count=1 sfi.count=1 network.link-rate=1Gbit scenario.duration=2s",
                .series = {{"push", ""}, {"pull", "scenario.mode=pull"}},
                .sweep = LAB_SWEEP(LAB_LIST(1000, 2000, 4000, 8000, 14000, 15000, 20000),
                                   LAB_LIST(2000, 15000)),
                .marks = {{"2003: push and pull", 14000, 52e6}},
                .vary = vary_fragment_bytes_at_25_khz,
                .judge = judge_c2,
        },
        {
                .id = "C3",
                .title = "Event rate of 6x1, 1 kB fragments, no QoS",
                .published = "push 5 kHz, pull 3.8 kHz, limited by the SFI's CPU",
                .x_label = "trigger rate, Hz",
                .y_label = "complete events/s",
                .y = "whole_events_per_second",
                .log_x = true,
                .kind = LAB_EVENTS,
                .base = LAB_6X1 " ros.fragment-size=1000",
                .series = {{"push", ""}, {"pull", "scenario.mode=pull"}},
                .sweep = LAB_SWEEP(LAB_LIST(2000, 5000, 10000, 15000, 20000, 30000), LAB_LIST(5000, 20000)),
                .marks = {{"2003: push", 5000, 5000}, {"2003: pull", 3800, 3800}},
                .vary = vary_trigger_hz,
                .judge = judge_c3,
        },
        {
                .id = "C4",
                .title = "Throughput of 6x1, no QoS, load 150 % of the port",
                .published =
                        "push at most 82 MB/s, cannot build above 5 kB; pull 95 MB/s, degrades above 14 kB",
                .x_label = "fragment size, bytes",
                .y_label = "complete events, MB/s",
                .y = "whole_bytes_per_second",
                .log_x = true,
                .kind = LAB_EVENTS,
                .base = LAB_6X1 BUILDERS_OF_2003 " load=150",
                .series = {{"push", ""}, {"pull", "scenario.mode=pull sfi.outstanding=4"}},
                .sweep = SIZES,
                .marks = {{"2003: push, maximum", 5000, 82e6}, {"2003: pull, maximum", 14000, 95e6}},
                .vary = vary_fragment_bytes,
                .judge = judge_c4,
        },
        {
                .id = "C5",
                .title = "Throughput of 6x1 push with QoS, load 110 % of the port",
                .published =
                        "18 MB/s at 20 Mbit/s and some 40 MB/s at 40 Mbit/s, from 5 kB; congestion at 50 "
                        "Mbit/s; never as good as pull",
                .x_label = "fragment size, bytes",
                .y_label = "complete events, MB/s",
                .y = "whole_bytes_per_second",
                .log_x = true,
                .kind = LAB_EVENTS,
                .base = LAB_6X1 " load=110 qos.backend=auto",
                .series = {{"20 Mbit/s", "qos.rate=20Mbit"},
                           {"40 Mbit/s", "qos.rate=40Mbit"},
                           {"50 Mbit/s", "qos.rate=50Mbit"},
                           {"auto", "qos.rate=auto"}},
                .sweep = SIZES,
                .marks = {{"2003: 20 Mbit/s", 5000, 18e6}, {"2003: 40 Mbit/s", 5000, 40e6}},
                .vary = vary_fragment_bytes,
                .judge = judge_c5,
        },
};
const struct lab_publication publication_c = {measurements, ARRAY_SIZE(measurements)};
