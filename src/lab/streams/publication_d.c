/* Publication D: throughput and stability of vlbi_udp (Hughes-Jones, 2006), with evb stream. D6 to D8 are the
 * next steps that its author named; D9 is what the program was for, from disk to disk. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/strbuf.h"
#include "../publications.h"
#include "../query.h"
#include "../settings.h"

/* Headers of 42 bytes; a link of 1 Gbit/s carries a packet in 12.1 us, so that 12 us fill it. */
#define BASE "link=1e9 packet=1472 seconds=8.1 interval=1"
#define LINK_MBPS 1000
#define PACKET_BITS (8 * (1472 + 42))
/* "Within 1 Mbit/s". */
#define SPREAD_MBPS 1
/* Of what the spacing or the link permit. */
#define RATE_SHARE 0.99
#define SHARED_RATE_SHARE 0.95
/* A sender that spins, both threads of the receiver, and the links and ports of the testbed: with fewer, some
 * wait for each other, and the differences between seconds say how long. */
#define PROCESSORS_TO_BE_STEADY 4
/* A thread that waits for others less than that takes a processor. */
#define WHOLE_PROCESSOR_PERCENT 90
/* One that looks without pause takes what others leave: so many times what a sleeping one takes. */
#define SPINS_TIMES 10
#define SPINS_LEAST_PERCENT 25
#define PROCESSING_MOST_US 0.12
#define PROCESSING_LEAST_US 0.10
/* Of a spacing, and of a rate. */
#define ERROR_SHARE 0.01
#define LONG_LOSS_PERCENT 0.01

#define FUTEX "futex (default)"

/* What a verdict says about some points. */
struct outcome {
        double least_share; /* of the expected rate */
        double least_mbps, spread_mbps, lost_percent, socket_packets;
};

/* The rate on the wire that a spacing in us permits. */
static double expected_mbps(double spacing_us)
{
        return fmin(PACKET_BITS / spacing_us, LINK_MBPS);
}

static struct outcome outcome_of(struct query q)
{
        return (struct outcome){
                .least_share = least(q, "wire_mbps") / expected_mbps(q.least_x),
                .least_mbps = least(q, "wire_mbps"),
                .spread_mbps = most(q, "spread_mbps"),
                .lost_percent = most(q, "lost_percent"),
                .socket_packets = sum(q, "socket_packets"),
        };
}

/* The points of a series at one spacing. */
static struct outcome at(struct judging *j, const char *series, const char *panel, double spacing_us)
{
        return outcome_of(between(of_panel(j, series, panel), spacing_us, spacing_us));
}

/* It has the rate, within the share that the processors permit. */
static bool is_whole(const struct outcome *o, double share)
{
        return o->least_share >= share && o->lost_percent <= 0;
}

static bool is_steady(const struct outcome *o)
{
        return is_whole(o, RATE_SHARE) && o->spread_mbps <= SPREAD_MBPS;
}

static void add_outcome(struct strbuf *b, const struct outcome *o)
{
        strbuf_add(b, "%.1f Mbit/s within %.1f Mbit/s, %.2g %% lost", o->least_mbps, o->spread_mbps,
                   o->lost_percent);
}

static struct outcome worse(const struct outcome *a, const struct outcome *b)
{
        return (struct outcome){
                .least_share = fmin(a->least_share, b->least_share),
                .least_mbps = fmin(a->least_mbps, b->least_mbps),
                .spread_mbps = fmax(a->spread_mbps, b->spread_mbps),
                .lost_percent = fmax(a->lost_percent, b->lost_percent),
                .socket_packets = a->socket_packets + b->socket_packets,
        };
}

/* Both semaphores, in one panel at one spacing. */
static struct outcome signalled(struct judging *j, const char *panel, double spacing_us)
{
        struct outcome a = at(j, "signal=100", panel, spacing_us), b = at(j, "signal=200", panel, spacing_us);

        return worse(&a, &b);
}

#define FREE_LARGE "free processors, socket of 8 MiB"
#define BUSY_LARGE "busy processor, socket of 8 MiB"
#define FREE_SMALL "free processors, socket of 128 KiB"
#define BUSY_SMALL "busy processor, socket of 128 KiB"

static const struct lab_panel sockets[] = {
        {FREE_LARGE, "socket=8388608", true},
        {FREE_SMALL, "socket=131072", false},
        {BUSY_LARGE, "pin=1 busy=1 socket=8388608", true},
        {BUSY_SMALL, "pin=1 busy=1 socket=131072", true},
};

/* Linux 2.6.9 was stable; with too few processors, only the rate and losses are judged. The panels show what
 * made 2.6.6 unstable: a thread that is away for longer than the socket's buffer lasts. */
JUDGE(signal)
{
        struct outcome now = signalled(j, FREE_LARGE, 12), small = signalled(j, BUSY_SMALL, 12),
                       large = signalled(j, BUSY_LARGE, 12), futex = at(j, FUTEX, FREE_LARGE, 12);
        struct strbuf b = strbuf_init(why, size);
        double processors = least(of(j, NULL), "processors");
        bool enough = processors >= PROCESSORS_TO_BE_STEADY;

        strbuf_add(&b, "at 12 us ");
        add_outcome(&b, &now);
        if (!enough)
                strbuf_add(&b, " (with %g processors, steadiness is not judged)", processors);
        strbuf_add(&b, ", with futex ");
        add_outcome(&b, &futex);
        strbuf_add(&b, "; beside a busy process, which takes the receiver's processor in turns, ");
        add_outcome(&b, &small);
        strbuf_add(&b, " with a socket of 128 KiB, and ");
        add_outcome(&b, &large);
        strbuf_add(&b, " with 8 MiB");
        return (enough ? is_steady(&now) : is_whole(&now, SHARED_RATE_SHARE)) ? LAB_AGREES : LAB_DIFFERS;
}

/* Both spacings of a waking, which takes a processor or not. */
static enum lab_verdict judge_spinning(struct judging *j, const char *series, char *why, size_t size)
{
        struct outcome slow = at(j, series, NULL, 20), fast = at(j, series, NULL, 12);
        double output = least(of(j, series), "output_cpu_percent"),
               futex = most(of(j, FUTEX), "output_cpu_percent");
        struct strbuf b = strbuf_init(why, size);
        bool takes = output >= WHOLE_PROCESSOR_PERCENT;

        strbuf_add(&b, "at 20 us ");
        add_outcome(&b, &slow);
        strbuf_add(&b, "; at 12 us ");
        add_outcome(&b, &fast);
        strbuf_add(&b, "; the output thread takes %.0f %% of a processor%s, with futex %.1f %%", output,
                   takes ? "" : ", as others need it", futex);
        return is_steady(&slow) && is_steady(&fast) && takes ? LAB_AGREES : LAB_DIFFERS;
}

JUDGE(yield)
{
        return judge_spinning(j, "yield", why, size);
}

JUDGE(poll)
{
        double output = least(of(j, "poll"), "output_cpu_percent"),
               futex = most(of(j, FUTEX), "output_cpu_percent"), lost = most(of(j, "poll"), "lost_percent");

        snprintf(why, size,
                 "the output thread takes %.0f %% of a processor%s, with futex %.1f %%; %.2g %% lost", output,
                 output < WHOLE_PROCESSOR_PERCENT ? ", as others need it" : "", futex, lost);
        return output >= fmax(SPINS_LEAST_PERCENT, SPINS_TIMES * futex) ? LAB_AGREES : LAB_DIFFERS;
}

static const struct lab_panel buffers[] = {
        {"socket of 8 MiB", "socket=8388608", true},
        {"socket of 128 KiB", "socket=131072", true},
};

#define SHARED "the interface's processor"
#define OTHER "another processor"

JUDGE(interface)
{
        double shared = most(of_panel(j, SHARED, buffers[1].name), "lost_percent"),
               other = most(of_panel(j, OTHER, buffers[1].name), "lost_percent"),
               shared_large = most(of_panel(j, SHARED, buffers[0].name), "lost_percent"),
               other_large = most(of_panel(j, OTHER, buffers[0].name), "lost_percent");

        snprintf(
                why, size,
                "with a socket of 128 KiB, %.2g %% lost on the interface's processor and %.2g %% on another; "
                "with 8 MiB, %.2g %% and %.2g %%",
                shared, other, shared_large, other_large);
        return fmax(shared, shared_large) > fmax(other, other_large) ? LAB_AGREES : LAB_DIFFERS;
}

JUDGE(times)
{
        struct query q = of(j, FUTEX);
        double processing = most(q, "processing_mean_us"), sigma = most(q, "processing_sigma_us"),
               between_sigma = most(q, "inter_packet_sigma_us"), off = 0;

        for (size_t i = 0; i < j->n; i++) {
                double mean = figure_of(j, i, "inter_packet_mean_us"),
                       wanted = fmax(j->points[i].x, (double)PACKET_BITS / LINK_MBPS);

                off = fmax(off, fabs(mean / wanted - 1));
        }
        snprintf(why, size,
                 "processing takes %.2f us per packet (sigma %.2f us); the mean time between packets is %.2f "
                 "%% "
                 "off, its sigma is up to %.1f us",
                 processing, sigma, 100 * off, between_sigma);
        if (off > ERROR_SHARE || processing > PROCESSING_MOST_US)
                return LAB_DIFFERS;
        return processing < PROCESSING_LEAST_US ? LAB_BETTER : LAB_AGREES;
}

/* The smallest spacing from which on all larger ones are kept, too; NEVER_X: none. */
static double least_kept_us(struct judging *j, double *ret_sigma_us)
{
        double kept_us = NEVER_X;

        for (size_t i = j->n; i-- > 0;) {
                double mean = figure_of(j, i, "sent_inter_packet_mean_us");

                if (fabs(mean / j->points[i].x - 1) > ERROR_SHARE)
                        break;
                kept_us = j->points[i].x;
                *ret_sigma_us = figure_of(j, i, "sent_inter_packet_sigma_us");
        }
        return kept_us;
}

JUDGE(precision)
{
        double sigma_us = 0, kept_us = least_kept_us(j, &sigma_us), finest_us = j->points[0].x,
               mean_us = least(between(of(j, NULL), finest_us, finest_us), "sent_inter_packet_mean_us");

        if (kept_us == NEVER_X)
                snprintf(why, size, "no spacing is kept within 1 %%; %g us become %.2f us", finest_us,
                         mean_us);
        else
                snprintf(why, size,
                         "spacings down to %g us are kept within 1 %%, there with a sigma of %.2f us; %g us "
                         "become %.2f us",
                         kept_us, sigma_us, finest_us, mean_us);
        return kept_us <= finest_us ? LAB_BETTER : LAB_DIFFERS;
}

/* With the default waking: threads that yield or are signalled late may lose packets, which is a subject of
 * D1 to D3. */
JUDGE(fast)
{
        struct query futex = of(j, FUTEX);
        double short_of = 0, lost = most(futex, "lost_percent"), carried = 0;
        struct strbuf b = strbuf_init(why, size);

        for (size_t i = 0; i < j->n; i++) {
                double gbps = figure_of(j, i, "mbps") / 1e3;

                if (strcmp(j->points[i].series, FUTEX) != 0)
                        continue;
                short_of = fmax(short_of, 1 - gbps / j->points[i].x);
                if (gbps >= (1 - ERROR_SHARE) * j->points[i].x && figure_of(j, i, "lost_packets") <= 0)
                        carried = fmax(carried, j->points[i].x);
        }
        strbuf_add(&b,
                   "carries up to %g Gbit/s without loss; at worst %.1f %% less than asked for and %.2g %% "
                   "lost; with signal=200 %.2g %% lost, with yield %.2g %%",
                   carried, 100 * fmax(short_of, 0), lost, most(of(j, "signal=200"), "lost_percent"),
                   most(of(j, "yield"), "lost_percent"));
        return short_of <= ERROR_SHARE && lost <= 0 ? LAB_BETTER : LAB_DIFFERS;
}

/* What the stream reports as lost in the network is what the path did lose. */
JUDGE(far)
{
        double told = sum(of(j, NULL), "network_packets"), lost = sum(of(j, NULL), "path_lost_packets"),
               elsewhere = sum(of(j, NULL), "lost_packets") - told, short_of = 0,
               clean = most(of(j, "no loss"), "lost_packets"), bad = sum(of(j, NULL), "corrupt");

        for (size_t i = 0; i < j->n; i++)
                short_of = fmax(short_of, 1 - figure_of(j, i, "mbps") / j->points[i].x);
        snprintf(why, size,
                 "the path lost %.0f packets on purpose, and the report says %.0f in the network and %.0f "
                 "elsewhere (%.0f without loss); at worst %.2f %% less than asked for",
                 lost, told, elsewhere, clean, 100 * fmax(short_of, 0));
        return told == lost && elsewhere <= 0 && bad <= 0 && short_of <= ERROR_SHARE ? LAB_BETTER
                                                                                     : LAB_DIFFERS;
}

#define MEMORY "memory"
#define CACHE "disk to disk"
#define DIRECT "disk, direct"

static void add_minute(struct strbuf *b, struct judging *j, const char *series)
{
        struct query q = of(j, series);
        double steady = sum(q, "steady_intervals");

        strbuf_add(b, "%s%s: %.0f packets lost, %.0f of %.0f s within 0.1 %% of %.2f Mbit/s (%.2f to %.2f)%s",
                   b->length > 0 ? "; " : "", series, sum(q, "lost_packets"), steady,
                   steady + sum(q, "unsteady_intervals"), least(q, "mean_mbps"), least(q, "least_mbps"),
                   most(q, "most_mbps"), sum(q, "corrupt") > 0 ? ", corrupt" : "");
}

JUDGE(minute)
{
        struct query all = of(j, NULL);
        double lost = sum(all, "lost_packets"), unsteady = most(all, "unsteady_intervals"),
               bad = sum(all, "corrupt"), short_of = 0;
        struct strbuf b = strbuf_init(why, size);

        for (size_t i = 0; i < j->n; i++)
                short_of = fmax(short_of, 1 - figure_of(j, i, "mbps") / j->points[i].x);
        add_minute(&b, j, MEMORY);
        add_minute(&b, j, CACHE);
        add_minute(&b, j, DIRECT);
        if (short_of > ERROR_SHARE)
                strbuf_add(&b, "; at worst %.2f %% less than asked for", 100 * short_of);
        return lost <= 0 && unsteady <= 0 && bad <= 0 && short_of <= ERROR_SHARE ? LAB_BETTER : LAB_DIFFERS;
}

#define SPACINGS LAB_LIST(12, 15, 20)
#define SPACING_LABEL "time from packet to packet, us"
#define WIRE_LABEL "on the wire, Mbit/s"

static const struct lab_measurement measurements[] = {
        {
                .id = "D1",
                .title = "Receiver that signals its output thread every N packets",
                .published =
                        "Linux 2.6.6, 15 us: 815 Mbit/s, unstable, 0.05 % lost at the top of the IP stack; "
                        "2.6.9, 12 us: 999 Mbit/s within 1 Mbit/s, no loss",
                .x_label = SPACING_LABEL,
                .y_label = WIRE_LABEL,
                .y = "wire_mbps",
                .kind = LAB_STREAMS,
                .base = BASE,
                .series = {{"signal=100", "wake=1 every=100"},
                           {"signal=200", "wake=1 every=200"},
                           {FUTEX, "wake=0"}},
                .sweep = LAB_SWEEP(LAB_LIST(12, 15), LAB_LIST(12), LAB_PANELS(sockets)),
                .vary = vary_spacing_us,
                .judge = judge_signal,
        },
        {
                .id = "D2",
                .title = "Receiver whose output thread yields",
                .published =
                        "20 us: 612.5 Mbit/s, 12 us: 999 Mbit/s, each within 1 Mbit/s and without loss, but "
                        "one processor at 100 %",
                .x_label = SPACING_LABEL,
                .y_label = WIRE_LABEL,
                .y = "wire_mbps",
                .kind = LAB_STREAMS,
                .base = BASE " socket=8388608",
                .series = {{"yield", "wake=2"}, {FUTEX, "wake=0"}},
                .sweep = LAB_SWEEP(LAB_LIST(12, 20), LAB_LIST(12, 20)),
                .marks = {{"20 us", 20, 612.5}, {"12 us", 12, 999}},
                .vary = vary_spacing_us,
                .judge = judge_yield,
        },
        {
                .id = "D3",
                .title = "Receiver whose output thread polls",
                .published = "takes a processor",
                .x_label = SPACING_LABEL,
                .y_label = "output thread, % of a processor",
                .y = "output_cpu_percent",
                .kind = LAB_STREAMS,
                .base = BASE " socket=8388608",
                .series = {{"poll", "wake=3"}, {FUTEX, "wake=0"}},
                .sweep = LAB_SWEEP(SPACINGS, LAB_LIST(12)),
                .vary = vary_spacing_us,
                .judge = judge_poll,
        },
        {
                .id = "D4",
                .title = "Receive thread on the processor that serves the interface, or another",
                .published = "loss if it shares that processor",
                .x_label = SPACING_LABEL,
                .y_label = "lost, %",
                .y = "lost_percent",
                .kind = LAB_STREAMS,
                .base = BASE " wake=0 pin=1",
                .series = {{SHARED, "interface=1"}, {OTHER, "interface=2"}},
                .sweep = LAB_SWEEP(SPACINGS, LAB_LIST(12), LAB_PANELS(buffers)),
                .vary = vary_spacing_us,
                .judge = judge_interface,
        },
        {
                .id = "D5",
                .title = "Time between packets, and to process one",
                .published = "processing takes 0.10 to 0.12 us on average",
                .x_label = SPACING_LABEL,
                .y_label = "processing, us per packet",
                .y = "processing_mean_us",
                .kind = LAB_STREAMS,
                .base = BASE " socket=8388608",
                .series = {{FUTEX, "wake=0"}},
                .sweep = LAB_SWEEP(SPACINGS, LAB_LIST(12, 20)),
                .vary = vary_spacing_us,
                .judge = judge_times,
        },
        {
                .id = "D6",
                .title = "Precision of the spacing down to 1 us",
                .published = "not published; named as a next step",
                .x_label = "requested time from packet to packet, us",
                .y_label = "mean time from packet to packet, us",
                .y = "sent_inter_packet_mean_us",
                .log_x = true,
                .kind = LAB_STREAMS,
                .base = "link=0 packet=64 seconds=4.1 interval=1",
                .series = {{"sender", "wake=0"}},
                .sweep = LAB_SWEEP(LAB_LIST(1, 2, 5, 10, 20, 50), LAB_LIST(1, 10)),
                .vary = vary_spacing_us,
                .judge = judge_precision,
        },
        {
                .id = "D7",
                .title = "4 to 8 Gbit/s on a wire that carries it",
                .published = "not published; named as a next step",
                .x_label = "requested rate, Gbit/s",
                .y_label = "received, Mbit/s",
                .y = "mbps",
                .kind = LAB_STREAMS,
                .base = "link=0 mtu=9000 packet=8972 seconds=4.1 interval=1",
                .series = {{FUTEX, "wake=0"}, {"signal=200", "wake=1 every=200"}, {"yield", "wake=2"}},
                .sweep = LAB_SWEEP(LAB_LIST(4, 6, 8), LAB_LIST(4, 8)),
                .vary = vary_rate_gbps,
                .judge = judge_fast,
        },
        {
                .id = "D8",
                .title = "Path with a round trip of 100 ms that loses packets",
                .published = "not published; named as a next step: 0.01 % lost on a long path",
                .x_label = "requested rate, Mbit/s",
                .y_label = "lost, %",
                .y = "lost_percent",
                .kind = LAB_STREAMS,
                .base = "round_trip_ms=100 packet=1472 pattern=1 wake=0 seconds=4.1 interval=1",
                .series = {{"no loss", "loss_percent=0"}, {"0.01 % lost by the path", "loss_percent=0.01"}},
                .sweep = LAB_SWEEP(LAB_LIST(100, 300, 600), LAB_LIST(300)),
                .vary = vary_stream_mbps,
                .judge = judge_far,
        },
        {
                .id = "D9",
                .title = "A minute at 940 Mbit/s from memory and from disk to disk",
                .published = "not published; expected: no packet lost, each second within 0.1 % of the mean",
                .x_label = "requested rate, Mbit/s",
                .y_label = "on the wire, Mbit/s",
                .y = "mean_mbps",
                .kind = LAB_STREAMS,
                /* 60 whole intervals, which begin with the first packet. */
                .base = "link=1e9 packet=1472 socket=8388608 wake=0 quiet=1 seconds=60.1 interval=1",
                .quick = " seconds=5.1",
                .series = {{MEMORY, "pattern=1"}, {CACHE, "disk=1"}, {DIRECT, "disk=1 direct=1"}},
                .sweep = LAB_SWEEP(LAB_LIST(940), LAB_LIST(940)),
                .vary = vary_stream_mbps,
                .judge = judge_minute,
        },
};
const struct lab_publication publication_d = {measurements, ARRAY_SIZE(measurements)};
