/* Measurements S1 to S9: does event building scale? Only the simulator can make them: up to 1000 sources,
 * links of up to 400 Gbit/s, and the buffers of real switches. docs/scaling.md discusses them. */
#include "scaling.h"

#include <stdio.h>
#include <string.h>

#include "publications.h"
#include "settings.h"
#include "lab/event_figures.h"

#define OPEN "not published; open question of 2003: does it scale?"
/* The processors are not in question here: they carry the fastest link. Small tables of events keep 1000
 * sources in a gigabyte of memory. */
#define BASE "ros.buffer-events=1024 wake-time=2us packet-time=20ns send-time=20ns fragment-time=5ns "
#define QUICK " scenario.duration=50ms"
/* A switch port as it is in practice: the memory of a switch divided by its ports, if all are congested. 12
 * MB for 48 ports of 10 Gbit/s, 16 MB for 32 of 100 Gbit/s, 64 MB for 32 of 400 Gbit/s. Fragments are about a
 * frame. Durations give each panel about as many packets. */
#define PORT_1                                                                                               \
        "network.link-rate=1Gbit network.switch-buffer=256KiB ros.fragment-size=1024 scenario.duration=1s"
#define PORT_10                                                                                              \
        "network.link-rate=10Gbit network.switch-buffer=256KiB ros.fragment-size=1024 "                      \
        "scenario.duration=300ms"
#define PORT_100                                                                                             \
        "network.link-rate=100Gbit network.switch-buffer=512KiB network.mtu=9000 ros.fragment-size=8192 "    \
        "scenario.duration=200ms"
#define PORT_400                                                                                             \
        "network.link-rate=400Gbit network.switch-buffer=2MiB network.mtu=9000 ros.fragment-size=8192 "      \
        "scenario.duration=50ms"
#define TRANSPORTS                                                                                           \
        {                                                                                                    \
                {"push", ""}, {"pull", "scenario.mode=pull"},                                                \
                {                                                                                            \
                        "push, shaped", LAB_SHAPED                                                           \
                }                                                                                            \
        }

static const struct lab_panel ports[] = {
        {"1 Gbit/s with 256 KiB", PORT_1, true},
        {"10 Gbit/s with 256 KiB", PORT_10, false},
        {"100 Gbit/s with 512 KiB", PORT_100, true},
        {"400 Gbit/s with 2 MiB", PORT_400, false},
};

/* Enough packets for a steady rate at each of the many ports. */
static const struct lab_panel systems[] = {
        {"1 Gbit/s with 256 KiB", PORT_1 " scenario.duration=300ms", true},
        {"10 Gbit/s with 256 KiB", PORT_10 " scenario.duration=30ms", false},
        {"10 Gbit/s with 2 MiB", PORT_10 " network.switch-buffer=2MiB scenario.duration=30ms", false},
        {"100 Gbit/s with 512 KiB", PORT_100 " scenario.duration=15ms", false},
};

/* The least buffer of a switch that a port may get, a usual one, and deep ones. */
static const struct lab_panel depths[] = {
        {"buffer 64 KiB", "network.switch-buffer=64KiB", false},
        {"buffer 256 KiB", "network.switch-buffer=256KiB", true},
        {"buffer 2 MiB", "network.switch-buffer=2MiB", false},
        {"buffer 64 MiB", "network.switch-buffer=64MiB", false},
};

static const struct lab_panel two_depths[] = {
        {"buffer 256 KiB", "network.switch-buffer=256KiB", true},
        {"buffer 2 MiB", "network.switch-buffer=2MiB", false},
};

static const struct lab_panel atlas[] = {
        {"fragments of 1 kB", "ros.fragment-size=1000", true},
        {"fragments of 10 kB", "ros.fragment-size=10000", false},
};

static double link_bps(const struct lab_point *p)
{
        return setting_of(p, "network.link-rate", 1) * 1e9;
}

/* The trigger rate at `load` percent of what the ports, or the sources' links if these are fewer, carry. */
static void write_rate(const struct lab_point *p, double ros, double sfi, double bytes, double load, char *to,
                       size_t size)
{
        double limit = lab_payload_limit(link_bps(p), setting_of(p, "network.mtu", 1500), bytes);

        snprintf(to, size, " ros.count=%.0f sfi.count=%.0f ros.fragment-size=%.0f trigger.rate=%.0fmHz", ros,
                 sfi, bytes, load / 100 * limit * (ros < sfi ? ros : sfi) / (ros * bytes) * 1000);
}

static double bytes_of(const struct lab_point *p)
{
        return setting_of(p, "ros.fragment-size", 1024);
}

static double load_of(const struct lab_point *p)
{
        return setting_of(p, "load", 90);
}

#define VARY_HERE(name) static void vary_##name(const struct lab_point *p, double x, char *to, size_t size)

VARY_HERE(sources_of_one)
{
        write_rate(p, x, 1, bytes_of(p), load_of(p), to, size);
}

VARY_HERE(both)
{
        write_rate(p, x, x, bytes_of(p), load_of(p), to, size);
}

VARY_HERE(destinations)
{
        write_rate(p, setting_of(p, "ros.count", 16), x, bytes_of(p), load_of(p), to, size);
}

VARY_HERE(bytes)
{
        write_rate(p, setting_of(p, "ros.count", 50), 1, x, load_of(p), to, size);
}

VARY_HERE(load)
{
        write_rate(p, setting_of(p, "ros.count", 24), 1, bytes_of(p), x, to, size);
}

VARY_HERE(lateness_us)
{
        size_t n;

        write_rate(p, setting_of(p, "ros.count", 24), 1, bytes_of(p), load_of(p), to, size);
        n = strlen(to);
        snprintf(to + n, size - n, " timer-time=%.0fns", x * 1e3);
}

VARY_HERE(credits)
{
        size_t n;

        write_rate(p, setting_of(p, "ros.count", 24), 1, bytes_of(p), load_of(p), to, size);
        n = strlen(to);
        snprintf(to + n, size - n, " sfi.credits=%.0f", x);
}

static const struct lab_measurement measurements[] = {
        {
                .id = "S1",
                .title = "Sources of one SFI, load 90 % of the port",
                .published = OPEN,
                .x_label = "sources",
                .y_label = "built share of the load, %",
                .y = "steady_share",
                .log_x = true,
                .virtual_only = true,
                .kind = LAB_EVENTS,
                .base = BASE,
                .quick = QUICK,
                .series = TRANSPORTS,
                .sweep = LAB_SWEEP(LAB_LIST(6, 12, 25, 50, 100, 200, 400, 1000), LAB_LIST(6, 100),
                                   LAB_PANELS(ports)),
                .vary = vary_sources_of_one,
                .judge = scaling_judge_shares,
        },
        {
                .id = "S2",
                .title = "Fragment size, 50 sources of one SFI at 10 Gbit/s, load 90 % of the port",
                .published = OPEN,
                .x_label = "fragment size, bytes",
                .y_label = "built share of the load, %",
                .y = "steady_share",
                .log_x = true,
                .virtual_only = true,
                .kind = LAB_EVENTS,
                .base = BASE "ros.count=50 network.link-rate=10Gbit scenario.duration=300ms",
                .quick = QUICK,
                .series = TRANSPORTS,
                .sweep = LAB_SWEEP(LAB_LIST(256, 1024, 4096, 14336, 65536), LAB_LIST(1024),
                                   LAB_PANELS(depths)),
                .vary = vary_bytes,
                .judge = scaling_judge_shares,
        },
        {
                .id = "S3",
                .title = "What a port's buffer has to hold, fragments of 14 KiB at 10 Gbit/s, load 90 %",
                .published = OPEN,
                .x_label = "sources",
                .y_label = "most bytes in the port of an SFI",
                .y = "port_most_bytes",
                .log_x = true,
                .virtual_only = true,
                .kind = LAB_EVENTS,
                .base = BASE "network.link-rate=10Gbit network.switch-buffer=1GiB ros.fragment-size=14336 "
                             "scenario.duration=200ms",
                .quick = QUICK,
                .series = {{"push", ""},
                           {"push, shaped, bursts of two frames", LAB_SHAPED " qos.burst=3028"},
                           {"pull, planned for 256 KiB", "scenario.mode=pull network.switch-buffer=256KiB"},
                           {"push, shaped, planned for 256 KiB", LAB_SHAPED " network.switch-buffer=256KiB"}},
                .sweep = LAB_SWEEP(LAB_LIST(6, 12, 25, 50, 75, 100, 200, 400, 1000), LAB_LIST(12, 50)),
                .vary = vary_sources_of_one,
                .judge = scaling_judge_buffers,
        },
        {
                .id = "S4",
                .title = "Systems of as many SFIs as sources, load 90 % of all ports",
                .published = OPEN,
                .x_label = "sources, and as many SFIs",
                .y_label = "built share of the load, %",
                .y = "steady_share",
                .log_x = true,
                .virtual_only = true,
                .kind = LAB_EVENTS,
                .base = BASE,
                .quick = " scenario.duration=20ms",
                .series = TRANSPORTS,
                .sweep = LAB_SWEEP(LAB_LIST(6, 12, 24, 48, 96), LAB_LIST(6, 12), LAB_PANELS(systems)),
                .vary = vary_both,
                .judge = scaling_judge_shares,
        },
        {
                .id = "S5",
                .title = "ATLAS in 2008: 150 sources, 100 SFIs, 1 Gbit/s, ports of 256 KiB",
                .published = "not published; planned: 3 kHz",
                .x_label = "trigger rate, Hz",
                .y_label = "complete events/s",
                .y = "event_rate_hz",
                .log_x = true,
                .virtual_only = true,
                .kind = LAB_EVENTS,
                .base = BASE "ros.count=150 sfi.count=100 network.link-rate=1Gbit "
                             "network.switch-buffer=256KiB scenario.duration=1500ms",
                .quick = " scenario.duration=600ms",
                .series = TRANSPORTS,
                .sweep = LAB_SWEEP(LAB_LIST(1000, 3000, 6000), LAB_LIST(3000), LAB_PANELS(atlas)),
                .vary = vary_trigger_hz,
                .judge = scaling_judge_rates,
        },
        {
                .id = "S6",
                .title = "Destinations of 16 sources at 10 Gbit/s, load 90 %",
                .published = OPEN,
                .x_label = "SFIs",
                .y_label = "built share of the load, %",
                .y = "steady_share",
                .log_x = true,
                .virtual_only = true,
                .kind = LAB_EVENTS,
                .base = BASE "ros.count=16 network.link-rate=10Gbit ros.fragment-size=4096 "
                             "scenario.duration=50ms",
                .quick = " scenario.duration=20ms",
                .series = TRANSPORTS,
                .sweep =
                        LAB_SWEEP(LAB_LIST(1, 2, 4, 8, 16, 32, 64, 128), LAB_LIST(4), LAB_PANELS(two_depths)),
                .vary = vary_destinations,
                .judge = scaling_judge_shares,
        },
        {
                .id = "S7",
                .title = "Late timers of the shaping, 24 sources, load 150 % of the port",
                .published = OPEN,
                .x_label = "mean lateness of a timer, us",
                .y_label = "built share of the port, %",
                .y = "steady_share",
                .log_x = true,
                .virtual_only = true,
                .kind = LAB_EVENTS,
                .base = BASE "ros.count=24 load=150 " LAB_SHAPED,
                .quick = QUICK,
                .series = {{"push, shaped", ""}},
                .sweep = LAB_SWEEP(LAB_LIST(1, 3, 10, 30, 100, 300, 1000), LAB_LIST(10, 100),
                                   LAB_PANELS(ports)),
                .vary = vary_lateness_us,
                .judge = scaling_judge_timers,
        },
        {
                .id = "S8",
                .title = "Latency by load, 24 sources of one SFI at 10 Gbit/s, fragments of 14 KiB, port of "
                         "512 KiB",
                .published = OPEN,
                .x_label = "offered load, % of the port",
                .y_label = "99 % of events built within, us",
                .y = "latency_p99_us",
                .virtual_only = true,
                .kind = LAB_EVENTS,
                .base = BASE "ros.count=24 network.link-rate=10Gbit network.switch-buffer=512KiB "
                             "ros.fragment-size=14336 trigger.kind=poisson scenario.duration=500ms",
                .quick = QUICK,
                .series = TRANSPORTS,
                .sweep = LAB_SWEEP(LAB_LIST(10, 30, 50, 70, 80, 90, 95), LAB_LIST(50, 90)),
                .vary = vary_load,
                .judge = scaling_judge_latency,
        },
        {
                .id = "S9",
                .title = "Credits of an SFI, 24 sources, load 90 % of the port",
                .published = OPEN,
                .x_label = "credits",
                .y_label = "built share of the load, %",
                .y = "steady_share",
                .log_x = true,
                .virtual_only = true,
                .kind = LAB_EVENTS,
                .base = BASE "ros.count=24",
                .quick = QUICK,
                .series = {{"pull", "scenario.mode=pull"}, {"push, shaped", LAB_SHAPED}},
                .sweep = LAB_SWEEP(LAB_LIST(1, 2, 4, 16, 64), LAB_LIST(4, 64), LAB_PANELS(ports)),
                .vary = vary_credits,
                .judge = scaling_judge_credits,
        },
};
const struct lab_publication extension_scaling = {measurements, ARRAY_SIZE(measurements)};
