/* From points to verdicts. Each says with figures why. */
#include "catalogue_judge.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "evb/base/strbuf.h"
#include "evb/base/util.h"
#include "catalogue_query.h"

/* Loss that a receiver's hiccup makes on a machine with few processors, and that the publications' plots
 * would not show. */
#define SOME_LOSS_PERCENT 0.5
/* Of the port's payload limit: what issue and users expect of an overloaded port. */
#define FULL_SHARE 0.96
/* Of another throughput: what differs by less is the same. */
#define AS_GOOD_SHARE 0.99
/* The publications' gigabit wire in Mbyte/s: memory copy must be faster, or it would limit the wire. */
#define WIRE_MBYTE_PER_S 125.0

JUDGE(a1)
{
        double loss = least(of(j, NULL), "loss_percent");

        snprintf(why, size,
                 "loss %.1f %% to %.1f %% over all sizes; receivers that take 55,000 packets/s, as A3 "
                 "and A4 imply for the published ones",
                 loss, most(of(j, NULL), "loss_percent"));
        return loss > SOME_LOSS_PERCENT ? LAB_AGREES : LAB_DIFFERS;
}

JUDGE(a2)
{
        double loss = most(of(j, NULL), "loss_percent");

        snprintf(why, size, "most loss at any size %.2f %%", loss);
        return loss < SOME_LOSS_PERCENT ? LAB_AGREES : LAB_DIFFERS;
}

JUDGE(a3)
{
        double small = most(between(of(j, NULL), 0, 40), "loss_percent"),
               large = most(between(of(j, NULL), 70, NEVER_X), "loss_percent");

        snprintf(why, size, "up to 40 bytes %.1f %% lost, from 70 bytes %.2f %%", small, large);
        return small > SOME_LOSS_PERCENT && large < SOME_LOSS_PERCENT ? LAB_AGREES : LAB_DIFFERS;
}

JUDGE(a4)
{
        double small = most(between(of(j, NULL), 0, 100), "loss_percent"),
               large = most(between(of(j, NULL), 201, NEVER_X), "loss_percent");

        snprintf(why, size, "up to 100 bytes %.1f %% lost, above 200 bytes %.2f %%", small, large);
        return large < SOME_LOSS_PERCENT ? LAB_AGREES : LAB_DIFFERS;
}

JUDGE(a5)
{
        double none = most(of(j, "no QoS"), "received_mbps"),
               qos = most(of(j, "QoS at 1000 Mbit/s"), "received_mbps");

        snprintf(why, size, "%.0f Mbit/s without, %.0f with", none, qos);
        return qos > 0.95 * none ? LAB_AGREES : LAB_DIFFERS;
}

JUDGE(a6)
{
        double none = most(of(j, "no QoS"), "sender_cpu_percent"),
               qos = most(of(j, "QoS at 1000 Mbit/s"), "sender_cpu_percent");

        snprintf(why, size,
                 "at most %.0f %% of a processor without, %.0f %% with; the kernel's work behind the queue "
                 "is not the sender's account",
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
                 "median gap %.0f us without, %.0f us with QoS, 99 %% below %.0f us: high-resolution timers "
                 "space packets evenly, no 10 ms tick",
                 none, qos, tail);
        return none > 0 && none < 50 && tail > 0 && tail < 5000 ? LAB_BETTER : LAB_DIFFERS;
}

JUDGE(a8)
{
        double none = most(of(j, "no QoS"), "gap_p50_us"),
               qos = most(of(j, "QoS at 10 Mbit/s"), "gap_p50_us");

        snprintf(why, size, "median gap %.0f us without, %.0f us with QoS", none, qos);
        return none > 900 && none < 1100 && qos > 900 && qos < 1100 ? LAB_AGREES : LAB_DIFFERS;
}

JUDGE(b1)
{
        double slowest = least(of(j, NULL), "mbyte_per_s");

        snprintf(why, size, "%.0f to %.0f Mbyte/s, beside the %.0f of a gigabit wire", slowest,
                 most(of(j, NULL), "mbyte_per_s"), WIRE_MBYTE_PER_S);
        return slowest > WIRE_MBYTE_PER_S ? LAB_BETTER : LAB_DIFFERS;
}

JUDGE(b2)
{
        (void)j;
        snprintf(why, size,
                 "the lab's devices have no interrupts to coalesce; real network cards have, and the keys "
                 "tuning.* set them");
        return LAB_UNKNOWN;
}

JUDGE(b3)
{
        double normal = most(of(j, "MTU 1500"), "received_mbps"),
               jumbo = most(of(j, "MTU 9000"), "received_mbps");

        snprintf(why, size, "%.0f Mbit/s at MTU 1500, %.0f at MTU 9000", normal, jumbo);
        return jumbo >= 980 && jumbo > normal ? LAB_AGREES : LAB_DIFFERS;
}

/* Of TCP's payload, what a rate of frames leaves: 1448 of 1514 bytes. */
static double worst_share(struct judging *j, const char *key, double most_x)
{
        struct query up_to = between(of(j, NULL), 0, most_x);
        double worst = 1;

        for (size_t i = 0; i < j->n; i++) {
                if (is_in(&up_to, &j->points[i]))
                        worst = MIN(worst, figure_of(j, i, key) / (j->points[i].x * 1448 / 1514));
        }
        return worst;
}

JUDGE(b4)
{
        double low = worst_share(j, "received_mbps", 600), full = worst_share(j, "received_mbps", NEVER_X);

        snprintf(why, size,
                 "at worst %.1f %% of what the rate leaves to TCP's payload up to 600 Mbit/s, %.1f %% up to "
                 "950, where B3 tells what a single TCP reaches here",
                 100 * low, 100 * full);
        return low > 0.97 ? LAB_AGREES : LAB_DIFFERS;
}

JUDGE(b5)
{
        double low = worst_share(j, "least_mbps", 200), full = worst_share(j, "least_mbps", NEVER_X);

        snprintf(why, size,
                 "the slowest of three at worst %.1f %% of its rate up to 200 Mbit/s each, %.1f %% up to 320",
                 100 * low, 100 * full);
        return full > 0.95 ? LAB_BETTER : low > 0.95 ? LAB_AGREES : LAB_DIFFERS;
}

JUDGE(b6)
{
        double share = worst_share(j, "least_mbps", NEVER_X);

        snprintf(why, size, "the slowest of three at worst %.1f %% of its rate", 100 * share);
        return share > 0.95 ? LAB_AGREES : LAB_DIFFERS;
}

static enum lab_verdict judge_rate(struct judging *j, double push_hz, double pull_hz, char *why, size_t size)
{
        double push = most(of(j, "push"), "whole_events_per_second"),
               pull = most(of(j, "pull"), "whole_events_per_second");

        snprintf(why, size, "push %.1f kHz (%.1f then), pull %.1f kHz (%.1f then)", push / 1e3, push_hz / 1e3,
                 pull / 1e3, pull_hz / 1e3);
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
        double push = most(of(j, "push"), "whole_bytes_per_second") / 1e6,
               pull = most(of(j, "pull"), "whole_bytes_per_second") / 1e6;
        double beyond = most(between(of(j, "push"), 15000, NEVER_X), "whole_bytes_per_second") / 1e6;

        snprintf(why, size,
                 "push %.0f MB/s, pull %.0f MB/s (52 then); from 15 kB on push builds %.0f MB/s, where it "
                 "stopped then: the wire is the limit, not the SFI",
                 push, pull, beyond);
        return push > 60 && pull > 60 ? LAB_BETTER : LAB_DIFFERS;
}

JUDGE(c3)
{
        return judge_rate(j, 5e3, 3.8e3, why, size);
}

JUDGE(c4)
{
        struct query push = of(j, "push"), pull = of(j, "pull"), large = between(push, 5000, NEVER_X);
        double small_mb = most(between(push, 0, 2048), "whole_bytes_per_second") / 1e6;
        double large_mb = most(large, "whole_bytes_per_second") / 1e6, whole = most(large, "complete_share");
        double pull_mb = most(pull, "whole_bytes_per_second") / 1e6;
        double beyond = most(between(pull, 14337, NEVER_X), "whole_bytes_per_second") / 1e6;
        struct strbuf b = strbuf_init(why, size);

        strbuf_add(&b,
                   "push %.0f MB/s up to 2 kB (82 then), at most %.0f MB/s from 5 kB on, with %.0f %% of the "
                   "events whole; ",
                   small_mb, large_mb, 100 * whole);
        strbuf_add(&b, "pull at most %.0f MB/s (95 then)", pull_mb);
        /* A quick sweep ends earlier. */
        if (!isnan(beyond))
                strbuf_add(&b, ", above 14 kB %.0f", beyond);
        return large_mb < 0.7 * pull_mb && whole < 0.9 ? LAB_AGREES : LAB_DIFFERS;
}

JUDGE(c5)
{
        double mb20 = most(of(j, "20 Mbit/s"), "whole_bytes_per_second") / 1e6,
               mb40 = most(of(j, "40 Mbit/s"), "whole_bytes_per_second") / 1e6;
        double mb50 = most(of(j, "50 Mbit/s"), "whole_bytes_per_second") / 1e6,
               free = most(of(j, "auto"), "whole_bytes_per_second") / 1e6;
        double lost = sum(of(j, NULL), "switch_packets");

        snprintf(why, size,
                 "%.0f, %.0f and %.0f MB/s at 20, 40 and 50 Mbit/s, %.0f with the plan's own rate; %.0f "
                 "packets lost at the port",
                 mb20, mb40, mb50, free, lost);
        return mb50 > mb40 && free > 95 && lost == 0 ? LAB_BETTER : mb40 > mb20 ? LAB_AGREES : LAB_DIFFERS;
}

static bool is_same_place(const struct lab_point *a, const struct lab_point *b)
{
        return a->x == b->x && strcmp(a->panel ?: "", b->panel ?: "") == 0;
}

/* The best of all pulls in the same circumstances as point `like`, with any number of requests
 * outstanding. */
static double best_pull(struct judging *j, size_t like)
{
        double best = 0;

        for (size_t i = 0; i < j->n; i++) {
                if (strncmp(j->points[i].series, "pull", 4) == 0 &&
                    is_same_place(&j->points[i], &j->points[like]))
                        best = MAX(best, figure_of(j, i, "whole_bytes_per_second"));
        }
        return best;
}

struct worst {
        double share;
        const struct lab_point *at; /* NULL: not measured */
};

static void keep_worst(struct worst *w, double share, const struct lab_point *p)
{
        if (!w->at || share < w->share)
                *w = (struct worst){share, p};
}

static void tell_worst(struct strbuf *b, const char *of_what, const struct worst *w)
{
        if (w->at)
                strbuf_add(b, "; at worst %.1f %% of %s (%.0f bytes; %s)", 100 * w->share, of_what, w->at->x,
                           w->at->panel ?: "");
}

static bool is_at_least(const struct worst *w, double share)
{
        return !w->at || w->share >= share;
}

/* Shaped push loses nothing anywhere, fills an overloaded port, is as good as the best pull, and builds all
 * where there is room. */
JUDGE(c6)
{
        struct query shaped = of(j, "push, shaped");
        double lost = sum(shaped, "events_lost") + sum(shaped, "events_partial");
        double dropped =
                sum(shaped, "switch_packets") + sum(shaped, "source_packets") + sum(shaped, "socket_packets");
        struct worst full = {}, pull = {}, spare = {};
        struct strbuf b = strbuf_init(why, size);
        size_t n = 0;

        for (size_t i = 0; i < j->n; i++) {
                const struct lab_point *p = &j->points[i];
                double best;

                if (!is_in(&shaped, p))
                        continue;
                n++;
                if (figure_of(j, i, "offered_share") <= 1) {
                        keep_worst(&spare, figure_of(j, i, "built_share"), p);
                        continue;
                }
                best = best_pull(j, i);
                keep_worst(&full, figure_of(j, i, "port_share"), p);
                if (best > 0)
                        keep_worst(&pull, figure_of(j, i, "whole_bytes_per_second") / best, p);
        }
        strbuf_add(
                &b,
                "shaped push: %.0f events and %.0f packets lost at %zu combinations of size, buffer and load",
                lost, dropped, n);
        tell_worst(&b, "the port's payload limit where overloaded", &full);
        tell_worst(&b, "the best pull there", &pull);
        tell_worst(&b, "what is offered elsewhere", &spare);
        if (!full.at || !is_at_least(&full, FULL_SHARE) || !is_at_least(&pull, AS_GOOD_SHARE) ||
            !is_at_least(&spare, AS_GOOD_SHARE))
                return LAB_DIFFERS;
        return lost == 0 && dropped == 0 ? LAB_BETTER : LAB_DIFFERS;
}

static double packets_at_ports(struct judging *j, const char *series)
{
        return sum(of(j, series), "switch_packets");
}

/* The maximum throughput of shaped runs, for each system. */
static double slowest_system(struct judging *j, struct strbuf *b)
{
        double slowest = INFINITY;

        for (size_t i = 0; i < j->m->sweep.n_panels; i++) {
                const char *panel = j->m->sweep.panels[i].name;
                double fast = most(of_panel(j, "shaped", panel), "whole_bytes_per_second");

                /* A quick run does not have every system. */
                if (isnan(fast))
                        continue;
                strbuf_add(b, "%s %.0f MB/s shaped with %s", isinf(slowest) ? "; at most" : ",", fast / 1e6,
                           panel);
                slowest = MIN(slowest, fast);
        }
        return slowest;
}

JUDGE(c7)
{
        double lost = packets_at_ports(j, "shaped");
        struct strbuf b = strbuf_init(why, size);

        strbuf_add(&b, "packets lost at ports: %.0f shaped, %.0f shaped and not staggered, %.0f unshaped",
                   lost, packets_at_ports(j, "shaped, not staggered"), packets_at_ports(j, "push"));
        return slowest_system(j, &b) > 0 && lost == 0 ? LAB_BETTER : LAB_DIFFERS;
}

JUDGE(c8)
{
        double plain = sum(of(j, "TCP"), "switch_packets"),
               shaped = sum(of(j, "TCP, shaped"), "switch_packets");
        double fast = most(of(j, "TCP, shaped"), "whole_bytes_per_second") / 1e6,
               slow = most(of(j, "TCP"), "whole_bytes_per_second") / 1e6;

        snprintf(why, size, "%.0f packets lost at the port unshaped, %.0f shaped; %.0f MB/s and %.0f MB/s",
                 plain, shaped, slow, fast);
        return shaped < plain && fast >= 0.97 * slow ? LAB_BETTER : LAB_DIFFERS;
}

JUDGE(c9)
{
        double one = most(of(j, "one class for all"), "echo_p99_us"),
               own = most(of(j, "a class for control"), "echo_p99_us");

        snprintf(why, size,
                 "99 %% of echoes within %.0f us at most in one class with the data, within %.0f us in a "
                 "class of their own",
                 one, own);
        return own > 0 && own * 5 < one ? LAB_BETTER : LAB_DIFFERS;
}

/* "-0.0 %" is not a figure: what rounds to zero has no sign. */
static void drop_signs_of_zero(char *text)
{
        for (char *at = text; (at = strchr(at, '-')) != NULL; at++) {
                size_t n = strspn(at + 1, "0.");
                bool zero = n > 0 && at[1] == '0' && strspn(at + 1, "0123456789.") == n;

                if (zero && (at == text || strchr(" (", at[-1])))
                        memmove(at, at + 1, strlen(at));
        }
}

enum lab_verdict lab_judge(const struct lab_measurement *m, const json_t *results, enum lab_extent extent,
                           char *why, size_t size)
{
        enum lab_verdict verdict = LAB_UNKNOWN;
        struct strbuf b = strbuf_init(why, size);
        struct judging j;

        if (json_array_size(results) == 0) {
                strbuf_add(&b, "not measured");
                return LAB_UNKNOWN;
        }
        if (judging_init(&j, m, results, extent) < 0) {
                strbuf_add(&b, "%s", strerror(ENOMEM));
        } else {
                verdict = m->judge(&j, why, size);
                drop_signs_of_zero(why);
                if (!judging_is_whole(&j)) {
                        verdict = LAB_UNKNOWN;
                        b = strbuf_init(why, size);
                        judging_add_lacks(&j, &b);
                }
        }
        judging_fini(&j);
        return verdict;
}
