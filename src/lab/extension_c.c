/* Measurements that publication C left open: shaped push against pull, more builders, TCP, and control
 * messages beside data. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/strbuf.h"
#include "publications.h"
#include "query.h"
#include "settings.h"

/* Required share of the payload limit of an overloaded port. */
#define FULL_SHARE 0.96
/* Throughputs that differ by less count as equal. */
#define EQUAL_SHARE 0.99
/* At the start of a run, the first events wait for nodes that have just joined. Measured: triggers are held
 * back for up to 8 ms on an idle machine, and for up to 26 ms beside a compile job. */
#define START_S 0.03
#define IS_QUICK(buffer, load) ((load) == 50 || (load) == 150) && (buffer) <= 256
#define PANEL(buffer, load, seconds)                                                                         \
        {                                                                                                    \
                "buffer " #buffer " KiB, offered " #load " %",                                               \
                        "network.switch-buffer=" #buffer "KiB load=" #load " scenario.duration=" #seconds    \
                        "s",                                                                                 \
                        IS_QUICK(buffer, load)                                                               \
        }
static const struct lab_panel buffers_and_loads[] = {
        PANEL(128, 10, 1), PANEL(128, 50, 1), PANEL(128, 90, 1), PANEL(128, 110, 1), PANEL(128, 150, 1),
        PANEL(256, 10, 1), PANEL(256, 50, 1), PANEL(256, 90, 1), PANEL(256, 110, 1), PANEL(256, 150, 3),
        PANEL(512, 10, 1), PANEL(512, 50, 1), PANEL(512, 90, 1), PANEL(512, 110, 1), PANEL(512, 150, 1),
};
static const struct lab_panel systems[] = {
        {"6x3", "ros.count=6 sfi.count=3", true},
        {"8x4", "ros.count=8 sfi.count=4", true},
};

static bool is_same_place(const struct lab_point *a, const struct lab_point *b)
{
        return a->x == b->x && strcmp(a->panel ?: "", b->panel ?: "") == 0;
}

/* The best pull at the x and panel of point `like`, with any number of outstanding requests. If it is better
 * than `like` by more than `equal`, the verdict rests on both. */
static double best_pull(struct judging *j, size_t like, double equal)
{
        double best = 0;
        size_t at = like;

        for (size_t i = 0; i < j->n; i++) {
                double bytes;

                if (strncmp(j->points[i].series, "pull", 4) != 0 ||
                    !is_same_place(&j->points[i], &j->points[like]))
                        continue;
                bytes = figure_of(j, i, "whole_bytes_per_second");
                at = bytes > best ? i : at;
                best = MAX(best, bytes);
        }
        if (figure_of(j, like, "whole_bytes_per_second") < equal * best)
                j->decisive[at] = j->decisive[like] = true;
        return best;
}

struct worst {
        double share;
        const struct lab_point *at; /* NULL: not measured */
};

/* A share below `required` is decisive. */
static void keep_worst(struct judging *j, struct worst *w, double share, double required,
                       const struct lab_point *p)
{
        if (share < required)
                j->decisive[p - j->points] = true;
        if (!w->at || share < w->share)
                *w = (struct worst){share, p};
}

static void add_worst(struct strbuf *b, const char *begin, const char *reference, const struct worst *w)
{
        if (w->at)
                strbuf_add(b, "%s at least %.1f %% of %s (%.0f bytes; %s)", begin, 100 * w->share, reference,
                           w->at->x, w->at->panel ?: "");
}

static bool is_at_least(const struct worst *w, double share)
{
        return !w->at || w->share >= share;
}

/* What shaped push builds, at worst. */
struct shaped_push {
        struct worst full, pull; /* of an overloaded port, and of the best pull there */
        struct worst spare;      /* of the load of other ports */
        size_t n;
};

/* The built share of the load, if nothing of it was due at the start. */
static double share_after_start(struct judging *j, size_t i)
{
        double seconds = setting_of(&j->points[i], "scenario.duration", 2);

        return figure_of(j, i, "built_share") / (1 - START_S / seconds);
}

static void look_at(struct judging *j, struct shaped_push *s, size_t i)
{
        const struct lab_point *p = &j->points[i];
        double best;

        s->n++;
        if (figure_of(j, i, "offered_share") <= 1) {
                keep_worst(j, &s->spare, MIN(share_after_start(j, i), 1), EQUAL_SHARE, p);
                return;
        }
        best = best_pull(j, i, EQUAL_SHARE);
        keep_worst(j, &s->full, figure_of(j, i, "port_share"), FULL_SHARE, p);
        if (best > 0)
                keep_worst(j, &s->pull, figure_of(j, i, "whole_bytes_per_second") / best, EQUAL_SHARE, p);
}

/* Shaped push must lose nothing, fill an overloaded port, match the best pull, and build the whole load of a
 * port that is not overloaded. */
JUDGE(c6)
{
        struct query shaped = of(j, "push, shaped");
        double lost = sum(shaped, "events_lost") + sum(shaped, "events_partial");
        double dropped =
                sum(shaped, "switch_packets") + sum(shaped, "source_packets") + sum(shaped, "socket_packets");
        struct strbuf b = strbuf_init(why, size);
        struct shaped_push s = {};

        for (size_t i = 0; i < j->n; i++) {
                if (is_in(&shaped, &j->points[i]))
                        look_at(j, &s, i);
        }
        strbuf_add(&b,
                   "shaped push loses %.0f events and %.0f packets at %zu combinations of size, buffer and "
                   "load",
                   lost, dropped, s.n);
        add_worst(&b, "; under overload it builds", "the port's payload limit", &s.full);
        add_worst(&b, " and", "the best pull", &s.pull);
        add_worst(&b, "; otherwise it builds", "the load that is offered after the first 30 ms", &s.spare);
        if (!s.full.at || !is_at_least(&s.full, FULL_SHARE) || !is_at_least(&s.pull, EQUAL_SHARE) ||
            !is_at_least(&s.spare, EQUAL_SHARE))
                return LAB_DIFFERS;
        return lost == 0 && dropped == 0 ? LAB_BETTER : LAB_DIFFERS;
}

static double packets_at_ports(struct judging *j, const char *series)
{
        return sum(of(j, series), "switch_packets");
}

/* Appends the maximum throughput of shaped push for each system, and returns the lowest of these. */
static double slowest_system(struct judging *j, struct strbuf *b)
{
        double slowest = INFINITY;

        for (size_t i = 0; i < j->m->sweep.n_panels; i++) {
                const char *panel = j->m->sweep.panels[i].name;
                double fast = most(of_panel(j, "shaped", panel), "whole_bytes_per_second");

                /* A quick run may lack a system. */
                if (isnan(fast))
                        continue;
                strbuf_add(b, "%s %.0f MB/s with %s", isinf(slowest) ? "; shaped push builds at most" : ",",
                           fast / 1e6, panel);
                slowest = MIN(slowest, fast);
        }
        return slowest;
}

JUDGE(c7)
{
        double lost = packets_at_ports(j, "shaped");
        struct strbuf b = strbuf_init(why, size);

        strbuf_add(&b,
                   "the ports drop %.0f packets with shaping, %.0f with shaping but no staggering, and "
                   "%.0f without shaping",
                   lost, packets_at_ports(j, "shaped, not staggered"), packets_at_ports(j, "push"));
        return slowest_system(j, &b) > 0 && lost == 0 ? LAB_BETTER : LAB_DIFFERS;
}

JUDGE(c8)
{
        double plain = sum(of(j, "TCP"), "switch_packets"),
               shaped = sum(of(j, "TCP, shaped"), "switch_packets");
        double shaped_mb = most(of(j, "TCP, shaped"), "whole_bytes_per_second") / 1e6,
               plain_mb = most(of(j, "TCP"), "whole_bytes_per_second") / 1e6;

        snprintf(why, size,
                 "the port drops %.0f packets without shaping and %.0f with shaping, at %.0f MB/s and %.0f "
                 "MB/s",
                 plain, shaped, plain_mb, shaped_mb);
        return shaped < plain && shaped_mb >= 0.97 * plain_mb ? LAB_BETTER : LAB_DIFFERS;
}

JUDGE(c9)
{
        double shared = most(of(j, "one class for all"), "echo_p99_us"),
               own = most(of(j, "a class for control"), "echo_p99_us");

        snprintf(why, size,
                 "99 %% of the echoes return within %.0f us if they share a class with data, and within %.0f "
                 "us "
                 "in their own class",
                 shared, own);
        return own > 0 && own * 5 < shared ? LAB_BETTER : LAB_DIFFERS;
}

static const struct lab_measurement measurements[] = {
        {
                .id = "C6",
                .title = "6x1 at each fragment size, port buffer and offered load",
                .published = "not published; open question: is shaped push as good as pull?",
                .x_label = "fragment size, bytes",
                .y_label = "built share of the load or the port's limit, %",
                .y = "built_share",
                .log_x = true,
                .kind = LAB_EVENTS,
                .base = LAB_6X1,
                .series = {{"push", ""},
                           {"pull, 2 outstanding", "scenario.mode=pull sfi.outstanding=2"},
                           {"pull, 4", "scenario.mode=pull sfi.outstanding=4"},
                           {"pull, 16", "scenario.mode=pull sfi.outstanding=16"},
                           {"pull, auto", "scenario.mode=pull"},
                           /* All sources together use this share of the port, in %. */
                           {"push, paced by the program", "paced=98.4"},
                           {"push, shaped", LAB_SHAPED}},
                .sweep = LAB_SWEEP(LAB_LIST(256, 1024, 4096, 14336, 32768, 65536), LAB_LIST(1024, 65536),
                                   LAB_PANELS(buffers_and_loads)),
                .vary = vary_fragment_bytes,
                .judge = judge_c6,
        },
        {
                .id = "C7",
                .title = "Several SFIs, load 120 % of all ports",
                .published = "not published",
                .x_label = "fragment size, bytes",
                .y_label = "complete events, MB/s",
                .y = "whole_bytes_per_second",
                .log_x = true,
                .kind = LAB_EVENTS,
                .base = LAB_6X1 " load=120",
                .series = {{"push", ""},
                           {"pull", "scenario.mode=pull sfi.outstanding=4"},
                           {"shaped", LAB_SHAPED},
                           {"shaped, not staggered", "ros.stagger=no " LAB_SHAPED}},
                .sweep = LAB_SWEEP(LAB_LIST(1024, 5120, 14336, 32768), LAB_LIST(14336), LAB_PANELS(systems)),
                .vary = vary_fragment_bytes,
                .judge = judge_c7,
        },
        {
                .id = "C8",
                .title = "6x1 push over TCP, load 150 % of the port",
                .published = "not published",
                .x_label = "fragment size, bytes",
                .y_label = "complete events, MB/s",
                .y = "whole_bytes_per_second",
                .log_x = true,
                .kind = LAB_EVENTS,
                .base = LAB_6X1 " load=150 scenario.transport=tcp",
                .series = {{"TCP", ""}, {"TCP, shaped", LAB_SHAPED}},
                .sweep = LAB_SWEEP(LAB_LIST(1024, 5120, 14336, 32768, 65536), LAB_LIST(14336)),
                .vary = vary_fragment_bytes,
                .judge = judge_c8,
        },
        {
                .id = "C9",
                .title = "Latency of control messages beside data that fill the link",
                .published = "not published; proposed: a separate class for control messages",
                .x_label = "link rate, Mbit/s",
                .y_label = "99 % of echoes within, us",
                .y = "echo_p99_us",
                .log_x = true,
                .kind = LAB_FLOWS,
                .base = "kind=3 socket=1048576 seconds=2",
                .series = {{"without data", "socket=0"},
                           {"one class for all", ""},
                           {"a class for control", "control=1"}},
                .sweep = LAB_SWEEP(LAB_LIST(10, 100, 1000), LAB_LIST(100)),
                .vary = vary_link_mbps,
                .judge = judge_c9,
        },
};
const struct lab_publication extension_c = {measurements, ARRAY_SIZE(measurements)};
