/* The table of published measurements. What they came to is judged in catalogue_judge.c; how points are made,
 * in run_*.c. */
#include "evb/lab/catalogue.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "evb/base/util.h"
#include "evb/traffic/flows.h"
#include "catalogue_judge.h"

#define SWEEP(all, few, ...)                                                                                 \
        {                                                                                                    \
                .values = (const double[])all, .quick = (const double[])few,                                 \
                .n_values = sizeof((double[])all) / sizeof(double),                                          \
                .n_quick = sizeof((double[])few) / sizeof(double), __VA_ARGS__                               \
        }
#define PANELS(table) .panels = table, .n_panels = ARRAY_SIZE(table)
#define LIST(...)                                                                                            \
        {                                                                                                    \
                __VA_ARGS__                                                                                  \
        }

/* clang-format off */
#define SIZES_A SWEEP(LIST(10, 20, 40, 60, 80, 100, 200, 400, 800, 1200, 1472), LIST(40, 100, 1472))
#define SIZES_TCP SWEEP(LIST(10, 30, 100, 300, 1000, 3000, 10000), LIST(100, 1000, 10000))
#define SIZES_C SWEEP(LIST(1024, 2048, 5120, 8192, 14336, 16384, 32768), LIST(1024, 5120, 14336))
#define SIZES_C6 SWEEP(LIST(256, 1024, 4096, 14336, 32768, 65536), LIST(1024, 65536), PANELS(buffers_and_loads))

#define MULTICAST "kind=1 senders=1 receivers=3 receiver_pps=55000 seconds=1"
#define BUILD "ros.count=6 sfi.count=1 network.link-rate=1Gbit network.switch-buffer=256KiB scenario.duration=3s"
/* The builders of 2003 asked for nothing again, and held no trigger back. */
#define BUILD_2003 BUILD " sfi.re-ask=0 sfi.timeout=300ms dfm.event-timeout=1s sfi.credits=4000 sfi.buffer-size=1GiB ros.buffer-size=512MiB"
#define SHAPED "qos.backend=auto qos.rate=auto"
/* As a careful user would set it by hand: all sources together have this much of the port, in %. */
#define PACED "paced=98.4"

#define PANEL(buffer, load, seconds) {"buffer " #buffer " KiB, offered " #load " %", "network.switch-buffer=" #buffer "KiB load=" #load " scenario.duration=" #seconds "s", IS_QUICK(buffer, load)}
#define IS_QUICK(buffer, load) ((load) == 50 || (load) == 150) && (buffer) <= 256
static const struct lab_panel buffers_and_loads[] = {
        PANEL(128, 10, 1), PANEL(128, 50, 1), PANEL(128, 90, 1), PANEL(128, 110, 1), PANEL(128, 150, 1),
        PANEL(256, 10, 1), PANEL(256, 50, 1), PANEL(256, 90, 1), PANEL(256, 110, 1), PANEL(256, 150, 3),
        PANEL(512, 10, 1), PANEL(512, 50, 1), PANEL(512, 90, 1), PANEL(512, 110, 1), PANEL(512, 150, 1),
};
static const struct lab_panel systems[] = {{"6x3", "ros.count=6 sfi.count=3", true}, {"8x4", "ros.count=8 sfi.count=4", true}};

static void by_message(const struct lab_point *p, double x, char *to, size_t size);
static void by_rate(const struct lab_point *p, double x, char *to, size_t size);
static void by_link(const struct lab_point *p, double x, char *to, size_t size);
static void by_trigger(const struct lab_point *p, double x, char *to, size_t size);
static void by_fragment(const struct lab_point *p, double x, char *to, size_t size);
static void by_fragment_25_khz(const struct lab_point *p, double x, char *to, size_t size);
static void by_nothing(const struct lab_point *p, double x, char *to, size_t size);

const struct lab_measurement lab_catalogue[] = {
        {"A1", "UDP multicast to 3 receivers, best effort", "loss at every size", "message, bytes", "loss, %", "loss_percent", true, MULTICAST,
         {{"best effort", ""}}, SIZES_A, by_message, lab_run_streams, judge_a1},
        {"A2", "UDP multicast to 3 receivers, 10 Mbit/s", "no loss at any size", "message, bytes", "loss, %", "loss_percent", true, MULTICAST,
         {{"10 Mbit/s", "rate=10000000"}}, SIZES_A, by_message, lab_run_streams, judge_a2},
        {"A3", "UDP multicast to 3 receivers, 50 Mbit/s", "loss at 60 bytes and below only", "message, bytes", "loss, %", "loss_percent", true, MULTICAST,
         {{"50 Mbit/s", "rate=50000000"}}, SWEEP(LIST(10, 20, 40, 50, 60, 70, 80, 100), LIST(10, 40, 100)), by_message, lab_run_streams, judge_a3},
        {"A4", "UDP multicast to 3 receivers, 100 Mbit/s", "no loss above 200 bytes", "message, bytes", "loss, %", "loss_percent", true, MULTICAST,
         {{"100 Mbit/s", "rate=100000000"}}, SIZES_A, by_message, lab_run_streams, judge_a4},
        {"A5", "TCP with QoS that limits nothing", "the same peak speed with and without", "message, bytes", "speed, Mbit/s", "received_mbps", true, "kind=2 seconds=1",
         {{"no QoS", ""}, {"QoS at 1000 Mbit/s", "rate=1000000000"}}, SIZES_TCP, by_message, lab_run_streams, judge_a5},
        {"A6", "Processor time of a TCP sender, with and without QoS", "small messages 10 points worse; large ones: the share grows", "message, bytes", "sender's processor, %", "sender_cpu_p50_percent", true, "kind=2 seconds=1",
         {{"no QoS", ""}, {"QoS at 1000 Mbit/s", "rate=1000000000"}}, SIZES_TCP, by_message, lab_run_streams, judge_a6},
        {"A7", "Gaps between packets of TCP at 10 Mbit/s", "with QoS some leave on the 10 ms tick of the scheduler; without, mostly some 10 us apart", "message, bytes", "median gap, us", "gap_p50_us", false, "kind=2 watch=1 seconds=2",
         {{"no QoS", ""}, {"QoS at 10 Mbit/s", "rate=10000000"}}, SWEEP(LIST(1448), LIST(1448)), by_message, lab_run_streams, judge_a7},
        {"A8", "Gaps between packets of TCP with a 1 kHz trigger", "mostly 1 ms apart, with and without QoS", "message, bytes", "median gap, us", "gap_p50_us", false, "kind=2 watch=1 messages_per_s=1000 seconds=2",
         {{"no QoS", ""}, {"QoS at 10 Mbit/s", "rate=10000000"}}, SWEEP(LIST(1000), LIST(1000)), by_message, lab_run_streams, judge_a8},

        {"B1", "Memory copy", "the better chipset wins; memory copy bounds TCP", "block, bytes", "speed, Mbyte/s", "mbyte_per_s", true, "seconds=0.2",
         {{"memcpy", ""}}, SWEEP(LIST(64, 1024, 16384, 262144, 4194304, 67108864), LIST(1024, 262144, 4194304)), by_nothing, lab_run_copy, judge_b1},
        {"B2", "TCP against interrupt coalescing", "best 996/1000 at MTU 1500, 200/300 at MTU 9000", "MTU, bytes", "speed, Mbit/s", "received_mbps", false, "kind=2 message=65536 socket=528288 seconds=1",
         {{"as the device has it", ""}}, SWEEP(LIST(1500, 9000), LIST(1500)), by_link, lab_run_streams, judge_b2},
        {"B3", "TCP against message size and MTU", "jumbo frames reach 990 Mbit/s", "message, bytes", "speed, Mbit/s", "received_mbps", true, "kind=2 socket=528288 seconds=1",
         {{"MTU 1500", "mtu=1500"}, {"MTU 9000", "mtu=9000"}}, SIZES_TCP, by_message, lab_run_streams, judge_b3},
        {"B4", "QoS 1x1: rate asked and measured", "allocation works; overhead near 1 %", "rate asked, Mbit/s", "measured, Mbit/s", "received_mbps", false, "kind=2 message=65536 seconds=1.5",
         {{"TCP", ""}}, SWEEP(LIST(10, 50, 100, 200, 400, 600, 800, 950), LIST(50, 400, 950)), by_rate, lab_run_streams, judge_b4},
        {"B5", "QoS 1x3: one source, three destinations", "works at low rates, not at full rate; unshaped each gets over 200 Mbit/s, equally", "rate asked for each, Mbit/s", "the slowest, Mbit/s", "least_mbps", false, "kind=2 message=65536 receivers=3 seconds=1.5",
         {{"shaped", ""}}, SWEEP(LIST(50, 100, 200, 300, 320), LIST(100, 320)), by_rate, lab_run_streams, judge_b5},
        {"B6", "QoS 3x1: three sources, one destination", "works well", "rate asked for each, Mbit/s", "the slowest, Mbit/s", "least_mbps", false, "kind=2 message=65536 senders=3 seconds=1.5",
         {{"shaped", ""}}, SWEEP(LIST(50, 100, 200, 300, 320), LIST(100, 320)), by_rate, lab_run_streams, judge_b6},

        {"C1", "1x1, 1 kB, no QoS: event rate", "push 20 kHz, pull 14 kHz, SFI CPU bound; above 40 kHz building stops", "trigger rate, Hz", "complete events/s", "whole_events_per_second", true, "ros.count=1 sfi.count=1 ros.fragment-size=1000 network.link-rate=1Gbit scenario.duration=2s",
         {{"push", ""}, {"pull", "scenario.mode=pull"}}, SWEEP(LIST(5000, 10000, 20000, 40000, 80000, 160000), LIST(20000, 80000)), by_trigger, lab_run_events, judge_c1},
        {"C2", "1x1, 25 kHz, no QoS: throughput", "52 MB/s at 14 kB, push and pull; from 15 kB building stops", "fragment, bytes", "MB/s of complete events", "whole_bytes_per_second", true, "ros.count=1 sfi.count=1 network.link-rate=1Gbit scenario.duration=2s",
         {{"push", ""}, {"pull", "scenario.mode=pull"}}, SWEEP(LIST(1000, 2000, 4000, 8000, 14000, 15000, 20000), LIST(2000, 15000)), by_fragment_25_khz, lab_run_events, judge_c2},
        {"C3", "6x1, 1 kB, no QoS: event rate", "push 5 kHz, pull 3.8 kHz, SFI CPU bound", "trigger rate, Hz", "complete events/s", "whole_events_per_second", true, BUILD " ros.fragment-size=1000",
         {{"push", ""}, {"pull", "scenario.mode=pull"}}, SWEEP(LIST(2000, 5000, 10000, 15000, 20000, 30000), LIST(5000, 20000)), by_trigger, lab_run_events, judge_c3},
        {"C4", "6x1, no QoS: throughput, offered 150 % of the port", "push cannot build above 5 kB, at most 82 MB/s; pull 95 MB/s, and degrades above 14 kB", "fragment, bytes", "MB/s of complete events", "whole_bytes_per_second", true, BUILD_2003 " load=150",
         {{"push", ""}, {"pull", "scenario.mode=pull sfi.outstanding=4"}}, SIZES_C, by_fragment, lab_run_events, judge_c4},
        {"C5", "6x1 push with QoS: throughput, offered 110 % of the port", "20 and 40 Mbit/s build at 5 kB and above, 18 and some 40 MB/s; 50: congestion; never as good as pull", "fragment, bytes", "MB/s of complete events", "whole_bytes_per_second", true, BUILD " load=110 qos.backend=auto",
         {{"20 Mbit/s", "qos.rate=20Mbit"}, {"40 Mbit/s", "qos.rate=40Mbit"}, {"50 Mbit/s", "qos.rate=50Mbit"}, {"auto", "qos.rate=auto"}}, SIZES_C, by_fragment, lab_run_events, judge_c5},
        {"C6", "6x1: every size, buffer of the port and offered load", "not done then: is shaped push as good as pull?", "fragment, bytes", "built, % of the offer or of the port's limit", "built_share", true, BUILD,
         {{"push", ""}, {"pull, 2 outstanding", "scenario.mode=pull sfi.outstanding=2"}, {"pull, 4", "scenario.mode=pull sfi.outstanding=4"}, {"pull, 16", "scenario.mode=pull sfi.outstanding=16"},
          {"pull, auto", "scenario.mode=pull"}, {"push, paced by the program", PACED}, {"push, shaped", SHAPED}}, SIZES_C6, by_fragment, lab_run_events, judge_c6},
        {"C7", "Several SFIs, offered 120 % of all ports", "not done then", "fragment, bytes", "MB/s of complete events", "whole_bytes_per_second", true, BUILD " load=120",
         {{"push", ""}, {"pull", "scenario.mode=pull sfi.outstanding=4"}, {"shaped", SHAPED}, {"shaped, not staggered", "ros.stagger=no " SHAPED}},
         SWEEP(LIST(1024, 5120, 14336, 32768), LIST(14336), PANELS(systems)), by_fragment, lab_run_events, judge_c7},
        {"C8", "6x1 push over TCP, offered 150 % of the port", "not done then", "fragment, bytes", "MB/s of complete events", "whole_bytes_per_second", true, BUILD " load=150 scenario.transport=tcp",
         {{"TCP", ""}, {"TCP, shaped", SHAPED}}, SWEEP(LIST(1024, 5120, 14336, 32768, 65536), LIST(14336)), by_fragment, lab_run_events, judge_c8},
        {"C9", "Latency of control messages beside data that fill the link", "not done then: control in a class of its own", "link, Mbit/s", "99 % of echoes, us", "echo_p99_us", true, "kind=3 socket=1048576 seconds=2",
         {{"without data", "socket=0"}, {"one class for all", ""}, {"a class for control", "control=1"}}, SWEEP(LIST(10, 100, 1000), LIST(100)), by_link, lab_run_streams, judge_c9},
};
/* clang-format on */
const size_t n_lab_catalogue = ARRAY_SIZE(lab_catalogue);

/* Read from the text of the publications. */
const struct lab_mark lab_marks[] = {
        {"B3", "2000: jumbo", 10000, 990},
        {"C1", "2003: push", 20000, 20000},
        {"C1", "2003: pull", 14000, 14000},
        {"C2", "2003: push and pull", 14000, 52e6},
        {"C3", "2003: push", 5000, 5000},
        {"C3", "2003: pull", 3800, 3800},
        {"C4", "2003: push at most", 5000, 82e6},
        {"C4", "2003: pull at most", 14000, 95e6},
        {"C5", "2003: 20 Mbit/s", 5000, 18e6},
        {"C5", "2003: 40 Mbit/s", 5000, 40e6},
        {NULL, NULL, 0, 0},
};

static void by_message(const struct lab_point *p, double x, char *to, size_t size)
{
        (void)p;
        snprintf(to, size, " message=%.0f", x);
}

static void by_rate(const struct lab_point *p, double x, char *to, size_t size)
{
        (void)p;
        snprintf(to, size, " rate=%.0f", x * 1e6);
}

/* B2 varies the MTU, C9 the link's rate. */
static void by_link(const struct lab_point *p, double x, char *to, size_t size)
{
        if (lab_setting(p, "kind", 0) == FLOW_ECHO)
                snprintf(to, size, " link=%.0f rate=%.0f", x * 1e6, 2 * x * 1e6);
        else
                snprintf(to, size, " mtu=%.0f", x);
}

static void by_trigger(const struct lab_point *p, double x, char *to, size_t size)
{
        (void)p;
        snprintf(to, size, " trigger.rate=%.0fHz", x);
}

/* What this machine's lab is built with, where the catalogue does not say otherwise. */
static double link_bps(const struct lab_point *p)
{
        return p->bed && p->bed->scenario->network.link_rate_bps > 0
                       ? (double)p->bed->scenario->network.link_rate_bps
                       : 1e9;
}

static double mtu_bytes(const struct lab_point *p)
{
        return p->bed ? (double)p->bed->scenario->network.mtu_bytes : 1500;
}

/* The trigger rate that offers a share of what the SFIs' ports take. */
static void offer(const struct lab_point *p, double fragment_bytes, double load, char *to, size_t size)
{
        double limit =
                lab_payload_limit(link_bps(p), mtu_bytes(p), fragment_bytes) * lab_setting(p, "sfi.count", 1);

        size_t n = (size_t)snprintf(to, size, " ros.fragment-size=%.0f trigger.rate=%.0fmHz", fragment_bytes,
                                    load / 100 * limit / (fragment_bytes * lab_setting(p, "ros.count", 1)) *
                                            1000);

        if (lab_setting(p, "paced", 0) > 0 && n < size)
                snprintf(to + n, size - n, " ros.pacing=%.0fbit",
                         lab_setting(p, "paced", 0) / 100 * link_bps(p) / lab_setting(p, "ros.count", 1));
}

static void by_fragment(const struct lab_point *p, double x, char *to, size_t size)
{
        offer(p, x, lab_setting(p, "load", 100), to, size);
}

static void by_fragment_25_khz(const struct lab_point *p, double x, char *to, size_t size)
{
        (void)p;
        snprintf(to, size, " ros.fragment-size=%.0f trigger.rate=25kHz", x);
}

static void by_nothing(const struct lab_point *p, double x, char *to, size_t size)
{
        (void)p;
        (void)x;
        (void)size;
        to[0] = '\0';
}

double lab_setting(const struct lab_point *p, const char *key, double otherwise)
{
        size_t n = strlen(key);
        double value = otherwise;

        /* The last one wins. */
        for (const char *at = p->settings; (at = strstr(at, key)); at += n) {
                if ((at == p->settings || at[-1] == ' ') && at[n] == '=')
                        value = strtod(at + n + 1, NULL);
        }
        return value;
}

const struct lab_measurement *lab_find(const char *id)
{
        for (size_t i = 0; i < n_lab_catalogue; i++) {
                if (strcmp(lab_catalogue[i].id, id) == 0)
                        return &lab_catalogue[i];
        }
        return NULL;
}

/* `load` and `paced` are for set_x() alone, and no keys of a scenario. */
static void drop_setting(char *settings, const char *key)
{
        for (char *at = settings; (at = strstr(at, key));) {
                if (at != settings && at[-1] != ' ') {
                        at++;
                        continue;
                }
                memmove(at, at + strcspn(at, " "), strlen(at + strcspn(at, " ")) + 1);
        }
}

const char *lab_quick_setting(const struct lab_measurement *m)
{
        return m->run == lab_run_events ? " scenario.duration=1s" : " seconds=0.5";
}

static void make_point(struct lab_point *p, const struct lab_measurement *m, const struct lab_panel *panel,
                       const struct lab_series *s, const struct lab_bed *bed, double x, bool quick)
{
        bool events = m->run == lab_run_events;
        size_t n;

        *p = (struct lab_point){
                .measurement = m, .bed = bed, .panel = panel ? panel->name : NULL, .series = s->name, .x = x};
        n = (size_t)snprintf(p->settings, sizeof p->settings, "%s %s%s%s%s", m->base,
                             panel ? panel->settings : "", panel ? " " : "", s->settings,
                             quick ? lab_quick_setting(m) : "");
        m->set_x(p, x, p->settings + n, sizeof p->settings - n);
        p->seconds = events ? lab_setting(p, "scenario.duration", 2) + 0.7
                            : lab_setting(p, "seconds", 1) + (lab_setting(p, "kind", 0) == 2 ? 1.5 : 0.6);
        if (events) {
                drop_setting(p->settings, "load=");
                drop_setting(p->settings, "paced=");
        }
}

static size_t points_of_panel(const struct lab_measurement *m, const struct lab_panel *panel,
                              const struct lab_bed *bed, bool quick, struct lab_point *ret, size_t max)
{
        const double *xs = quick ? m->sweep.quick : m->sweep.values;
        size_t n_xs = quick ? m->sweep.n_quick : m->sweep.n_values, n = 0;

        for (size_t k = 0; k < n_xs; k++) {
                for (size_t i = 0; i < ARRAY_SIZE(m->series) && m->series[i].name && n < max; i++)
                        make_point(&ret[n++], m, panel, &m->series[i], bed, xs[k], quick);
        }
        return n;
}

size_t lab_points(const struct lab_measurement *m, const struct lab_bed *bed, bool quick,
                  struct lab_point *ret, size_t max)
{
        size_t n = 0;

        if (m->sweep.n_panels == 0)
                return points_of_panel(m, NULL, bed, quick, ret, max);
        for (size_t i = 0; i < m->sweep.n_panels; i++) {
                if (!quick || m->sweep.panels[i].quick)
                        n += points_of_panel(m, &m->sweep.panels[i], bed, quick, ret + n, max - n);
        }
        return n;
}

/* Panels differ in it. */
static bool is_varied(const struct lab_point *p, const char *key)
{
        return p->measurement->sweep.n_panels > 0 && strstr(p->measurement->sweep.panels[0].settings, key);
}

/* Whether the scenario has as many as a point needs. */
static bool is_enough(double needed, double there, const char *what, char *lack, size_t size)
{
        if (needed <= there)
                return true;
        snprintf(lack, size, "needs %.0f %s%s, the scenario has %.0f", needed, what, needed > 1 ? "s" : "",
                 there);
        return false;
}

bool lab_can_make(const struct lab_point *p, char *lack, size_t size)
{
        bool events = p->measurement->run == lab_run_events;
        const struct scenario *s = p->bed ? p->bed->scenario : NULL;
        double buffer_kib, mtu;

        if (!s)
                return true;
        if (!is_enough(lab_setting(p, events ? "ros.count" : "senders", 1), (double)s->ros.count, "ROS", lack,
                       size) ||
            !is_enough(lab_setting(p, events ? "sfi.count" : "receivers", 1), (double)s->sfi.count, "SFI",
                       lack, size))
                return false;
        buffer_kib = lab_setting(p, "network.switch-buffer", 0);
        if (is_varied(p, "network.switch-buffer") &&
            buffer_kib * 1024 != (double)s->network.switch_buffer_bytes) {
                snprintf(lack, size, "needs network.switch-buffer = %.0fKiB, the scenario has %g KiB",
                         buffer_kib, (double)s->network.switch_buffer_bytes / 1024);
                return false;
        }
        mtu = lab_setting(p, "mtu", (double)s->network.mtu_bytes);
        if (mtu == (double)s->network.mtu_bytes)
                return true;
        snprintf(lack, size, "needs network.mtu = %.0f, the scenario has %.0f", mtu,
                 (double)s->network.mtu_bytes);
        return false;
}

const char *lab_bed_name(const struct lab_bed *bed)
{
        return bed ? bed->scenario->scenario.name : "";
}

const char *lab_verdict_text(enum lab_verdict v)
{
        static const char *const texts[] = {[LAB_AGREES] = "agrees",
                                            [LAB_DIFFERS] = "differs",
                                            [LAB_BETTER] = "better",
                                            [LAB_UNKNOWN] = "unknown"};

        return texts[v];
}
