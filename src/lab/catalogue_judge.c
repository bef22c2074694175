/* From points to verdicts. Each says with figures why. */
#include "catalogue_judge.h"

#include <stdio.h>
#include <string.h>

#include "evb/base/strbuf.h"
#include "evb/base/util.h"

/* Loss that a receiver's hiccup makes on a machine with few processors, and that the publications' plots would not show. */
#define SOME_LOSS_PERCENT 0.5
#define NEVER_X 1e18
/* Of the port's payload limit: what issue and users expect of an overloaded port. */
#define FULL_SHARE 0.96
/* Of another throughput: what differs by less is the same. */
#define AS_GOOD_SHARE 0.99

struct points {
        const json_t *results;
        const char *series, *panel; /* NULL: any */
        double least_x, most_x;
};

static struct points of(const json_t *results, const char *series)
{
        return (struct points){results, series, NULL, 0, NEVER_X};
}

static struct points of_panel(const json_t *results, const char *series, const char *panel)
{
        return (struct points){results, series, panel, 0, NEVER_X};
}

static const char *text_of(const json_t *r, const char *key)
{
        return json_string_value(json_object_get(r, key)) ?: "";
}

static double number_of(const json_t *r, const char *key)
{
        return json_number_value(json_object_get(r, key));
}

static bool is_in(const struct points *p, const json_t *r)
{
        double x = number_of(r, "x");

        if (p->series && strcmp(text_of(r, "series"), p->series) != 0)
                return false;
        if (p->panel && strcmp(text_of(r, "panel"), p->panel) != 0)
                return false;
        return x >= p->least_x && x <= p->most_x;
}

static double most(struct points p, const char *key)
{
        double value = -1;
        const json_t *r;
        size_t i;

        json_array_foreach(p.results, i, r)
        {
                if (is_in(&p, r))
                        value = MAX(value, json_number_value(json_object_get(r, key)));
        }
        return value;
}

static double least(struct points p, const char *key)
{
        double value = NEVER_X;
        const json_t *r;
        size_t i;

        json_array_foreach(p.results, i, r)
        {
                if (is_in(&p, r))
                        value = MIN(value, json_number_value(json_object_get(r, key)));
        }
        return value;
}

static double sum(struct points p, const char *key)
{
        double value = 0;
        const json_t *r;
        size_t i;

        json_array_foreach(p.results, i, r)
        {
                if (is_in(&p, r))
                        value += json_number_value(json_object_get(r, key));
        }
        return value;
}

static struct points from(struct points p, double least_x, double most_x)
{
        p.least_x = least_x;
        p.most_x = most_x;
        return p;
}

JUDGE(a1)
{
        double loss = least(of(results, NULL), "loss_percent");

        (void)m;
        snprintf(why, size, "least loss at any size %.1f %%, most %.1f %%; receivers that take 55,000 packets/s, as A3 and A4 tell of the published ones", loss,
                 most(of(results, NULL), "loss_percent"));
        return loss > SOME_LOSS_PERCENT ? LAB_AGREES : LAB_DIFFERS;
}

JUDGE(a2)
{
        double loss = most(of(results, NULL), "loss_percent");

        (void)m;
        snprintf(why, size, "most loss at any size %.2f %%", loss);
        return loss < SOME_LOSS_PERCENT ? LAB_AGREES : LAB_DIFFERS;
}

JUDGE(a3)
{
        double small = most(from(of(results, NULL), 0, 40), "loss_percent"), large = most(from(of(results, NULL), 70, NEVER_X), "loss_percent");

        (void)m;
        snprintf(why, size, "up to 40 bytes %.1f %% lost, from 70 bytes %.2f %%", small, large);
        return small > SOME_LOSS_PERCENT && large < SOME_LOSS_PERCENT ? LAB_AGREES : LAB_DIFFERS;
}

JUDGE(a4)
{
        double small = most(from(of(results, NULL), 0, 100), "loss_percent"), large = most(from(of(results, NULL), 201, NEVER_X), "loss_percent");

        (void)m;
        snprintf(why, size, "up to 100 bytes %.1f %% lost, above 200 bytes %.2f %%", small, large);
        return large < SOME_LOSS_PERCENT ? LAB_AGREES : LAB_DIFFERS;
}

JUDGE(a5)
{
        double none = most(of(results, "no QoS"), "received_mbps"), qos = most(of(results, "QoS at 1000 Mbit/s"), "received_mbps");

        (void)m;
        snprintf(why, size, "%.0f Mbit/s without, %.0f with", none, qos);
        return qos > 0.95 * none ? LAB_AGREES : LAB_DIFFERS;
}

JUDGE(a6)
{
        double none = most(of(results, "no QoS"), "sender_cpu_percent"), qos = most(of(results, "QoS at 1000 Mbit/s"), "sender_cpu_percent");

        (void)m;
        snprintf(why, size, "at most %.0f %% of a processor without, %.0f %% with; the kernel's work behind the queue is not the sender's account", none, qos);
        return qos <= none + 10 ? LAB_BETTER : LAB_AGREES;
}

JUDGE(a7)
{
        double none = most(of(results, "no QoS"), "gap_p50_us"), qos = most(of(results, "QoS at 10 Mbit/s"), "gap_p50_us"),
               tail = most(of(results, "QoS at 10 Mbit/s"), "gap_p99_us");

        (void)m;
        snprintf(why, size, "median gap %.0f us without, %.0f us with QoS, 99 %% below %.0f us: high-resolution timers space packets evenly, no 10 ms tick", none, qos, tail);
        return none < 50 && tail < 5000 ? LAB_BETTER : LAB_DIFFERS;
}

JUDGE(a8)
{
        double none = most(of(results, "no QoS"), "gap_p50_us"), qos = most(of(results, "QoS at 10 Mbit/s"), "gap_p50_us");

        (void)m;
        snprintf(why, size, "median gap %.0f us without, %.0f us with QoS", none, qos);
        return none > 900 && none < 1100 && qos > 900 && qos < 1100 ? LAB_AGREES : LAB_DIFFERS;
}

JUDGE(b1)
{
        (void)m;
        snprintf(why, size, "%.0f to %.0f Mbyte/s: far above any wire here", least(of(results, NULL), "mbyte_per_s"), most(of(results, NULL), "mbyte_per_s"));
        return LAB_BETTER;
}

JUDGE(b2)
{
        (void)m;
        (void)results;
        snprintf(why, size, "the lab's devices have no interrupts to coalesce: to be asked of real network cards, by the keys tuning.*");
        return LAB_UNKNOWN;
}

JUDGE(b3)
{
        double normal = most(of(results, "MTU 1500"), "received_mbps"), jumbo = most(of(results, "MTU 9000"), "received_mbps");

        (void)m;
        snprintf(why, size, "%.0f Mbit/s at MTU 1500, %.0f at MTU 9000", normal, jumbo);
        return jumbo >= 980 && jumbo > normal ? LAB_AGREES : LAB_DIFFERS;
}

/* Of TCP's payload, what a rate of frames leaves: 1448 of 1514 bytes. */
static double worst_share(const json_t *results, const char *key, double most_x)
{
        double worst = 1;
        const json_t *r;
        size_t i;

        json_array_foreach(results, i, r)
        {
                double x = json_number_value(json_object_get(r, "x"));

                if (x <= most_x)
                        worst = MIN(worst, json_number_value(json_object_get(r, key)) / (x * 1448 / 1514));
        }
        return worst;
}

JUDGE(b4)
{
        double low = worst_share(results, "received_mbps", 600), full = worst_share(results, "received_mbps", NEVER_X);

        (void)m;
        snprintf(why, size, "at worst %.1f %% of what the rate leaves to TCP's payload up to 600 Mbit/s, %.1f %% up to 950, where B3 tells what a single TCP reaches here", 100 * low, 100 * full);
        return low > 0.97 ? LAB_AGREES : LAB_DIFFERS;
}

JUDGE(b5)
{
        double low = worst_share(results, "least_mbps", 200), full = worst_share(results, "least_mbps", NEVER_X);

        (void)m;
        snprintf(why, size, "the slowest of three at worst %.1f %% of its rate up to 200 Mbit/s each, %.1f %% up to 320", 100 * low, 100 * full);
        return full > 0.95 ? LAB_BETTER : low > 0.95 ? LAB_AGREES : LAB_DIFFERS;
}

JUDGE(b6)
{
        double share = worst_share(results, "least_mbps", NEVER_X);

        (void)m;
        snprintf(why, size, "the slowest of three at worst %.1f %% of its rate", 100 * share);
        return share > 0.95 ? LAB_AGREES : LAB_DIFFERS;
}

static enum lab_verdict judge_rate(const json_t *results, double push_hz, double pull_hz, char *why, size_t size)
{
        double push = most(of(results, "push"), "whole_events_per_second"), pull = most(of(results, "pull"), "whole_events_per_second");

        snprintf(why, size, "push %.1f kHz (%.1f then), pull %.1f kHz (%.1f then)", push / 1e3, push_hz / 1e3, pull / 1e3, pull_hz / 1e3);
        return push > 1.2 * push_hz && pull > 1.2 * pull_hz ? LAB_BETTER : push > 0.8 * push_hz ? LAB_AGREES : LAB_DIFFERS;
}

JUDGE(c1)
{
        (void)m;
        return judge_rate(results, 20e3, 14e3, why, size);
}

JUDGE(c2)
{
        double push = most(of(results, "push"), "whole_bytes_per_second") / 1e6, pull = most(of(results, "pull"), "whole_bytes_per_second") / 1e6;
        double beyond = most(from(of(results, "push"), 15000, NEVER_X), "whole_bytes_per_second") / 1e6;

        (void)m;
        snprintf(why, size, "push %.0f MB/s, pull %.0f MB/s (52 then); from 15 kB on push builds %.0f MB/s, where it stopped then: the wire is the limit, not the SFI", push, pull, beyond);
        return push > 60 && pull > 60 ? LAB_BETTER : LAB_DIFFERS;
}

JUDGE(c3)
{
        (void)m;
        return judge_rate(results, 5e3, 3.8e3, why, size);
}

JUDGE(c4)
{
        struct points push = of(results, "push"), pull = of(results, "pull"), large = from(push, 5000, NEVER_X);
        double small_mb = most(from(push, 0, 2048), "whole_bytes_per_second") / 1e6, large_mb = most(large, "whole_bytes_per_second") / 1e6;
        double pull_mb = most(pull, "whole_bytes_per_second") / 1e6, whole = most(large, "complete_share");

        (void)m;
        snprintf(why, size, "push %.0f MB/s up to 2 kB (82 then), at most %.0f MB/s from 5 kB on, with %.0f %% of the events whole; pull at most %.0f MB/s (95 then), above 14 kB %.0f",
                 small_mb, large_mb, 100 * whole, pull_mb, most(from(pull, 14337, NEVER_X), "whole_bytes_per_second") / 1e6);
        return large_mb < 0.7 * pull_mb && whole < 0.9 ? LAB_AGREES : LAB_DIFFERS;
}

JUDGE(c5)
{
        double mb20 = most(of(results, "20 Mbit/s"), "whole_bytes_per_second") / 1e6, mb40 = most(of(results, "40 Mbit/s"), "whole_bytes_per_second") / 1e6;
        double mb50 = most(of(results, "50 Mbit/s"), "whole_bytes_per_second") / 1e6, free = most(of(results, "auto"), "whole_bytes_per_second") / 1e6;
        double lost = sum(of(results, NULL), "switch_packets");

        (void)m;
        snprintf(why, size, "%.0f, %.0f and %.0f MB/s at 20, 40 and 50 Mbit/s, %.0f with the plan's own rate; %.0f packets lost at the port", mb20, mb40, mb50, free, lost);
        return mb50 > mb40 && free > 95 && lost == 0 ? LAB_BETTER : mb40 > mb20 ? LAB_AGREES : LAB_DIFFERS;
}

/* Of pulls with any number of requests outstanding, in the same circumstances as `like`. */
static double best_pull(const json_t *results, const json_t *like)
{
        double best = -1;
        const json_t *r;
        size_t i;

        json_array_foreach(results, i, r)
        {
                if (strncmp(text_of(r, "series"), "pull", 4) == 0 && number_of(r, "x") == number_of(like, "x") && strcmp(text_of(r, "panel"), text_of(like, "panel")) == 0)
                        best = MAX(best, number_of(r, "whole_bytes_per_second"));
        }
        return best;
}

struct worst {
        double share;
        const json_t *at; /* NULL: not measured */
};

static void keep_worst(struct worst *w, double share, const json_t *r)
{
        if (!w->at || share < w->share)
                *w = (struct worst){share, r};
}

static void tell_worst(struct strbuf *b, const char *of_what, const struct worst *w)
{
        if (w->at)
                strbuf_add(b, "; at worst %.1f %% of %s (%.0f bytes; %s)", 100 * w->share, of_what, number_of(w->at, "x"), text_of(w->at, "panel"));
}

/* Shaped push loses nothing anywhere, fills an overloaded port, is as good as the best pull, and builds all where there is room. */
JUDGE(c6)
{
        struct points shaped = of(results, "push, shaped");
        double lost = sum(shaped, "events_lost") + sum(shaped, "events_partial");
        double dropped = sum(shaped, "switch_packets") + sum(shaped, "source_packets") + sum(shaped, "socket_packets");
        struct worst full = {}, pull = {}, spare = {};
        struct strbuf b = strbuf_init(why, size);
        const json_t *r;
        size_t i, n = 0;

        (void)m;
        json_array_foreach(results, i, r)
        {
                double best = best_pull(results, r);

                if (!is_in(&shaped, r))
                        continue;
                n++;
                if (number_of(r, "offered_share") <= 1) {
                        keep_worst(&spare, number_of(r, "built_share"), r);
                        continue;
                }
                keep_worst(&full, number_of(r, "port_share"), r);
                if (best > 0)
                        keep_worst(&pull, number_of(r, "whole_bytes_per_second") / best, r);
        }
        strbuf_add(&b, "shaped push: %.0f events and %.0f packets lost at %zu combinations of size, buffer and load", lost, dropped, n);
        tell_worst(&b, "the port's payload limit where overloaded", &full);
        tell_worst(&b, "the best pull there", &pull);
        tell_worst(&b, "what is offered elsewhere", &spare);
        if (!full.at || !pull.at)
                return LAB_UNKNOWN;
        return lost == 0 && dropped == 0 && full.share >= FULL_SHARE && pull.share >= AS_GOOD_SHARE && (!spare.at || spare.share >= AS_GOOD_SHARE) ? LAB_BETTER : LAB_DIFFERS;
}

static double packets_at_ports(const json_t *results, const char *series)
{
        return sum(of(results, series), "switch_packets");
}

JUDGE(c7)
{
        double lost = packets_at_ports(results, "shaped");

        (void)m;
        snprintf(why, size, "packets lost at ports: %.0f shaped, %.0f shaped and not staggered, %.0f unshaped; at most %.0f MB/s shaped with 6x3, %.0f with 8x4", lost,
                 packets_at_ports(results, "shaped, not staggered"), packets_at_ports(results, "push"),
                 most(of_panel(results, "shaped", "6x3"), "whole_bytes_per_second") / 1e6, most(of_panel(results, "shaped", "8x4"), "whole_bytes_per_second") / 1e6);
        return lost == 0 ? LAB_BETTER : LAB_DIFFERS;
}

JUDGE(c8)
{
        double plain = sum(of(results, "TCP"), "switch_packets"), shaped = sum(of(results, "TCP, shaped"), "switch_packets");
        double fast = most(of(results, "TCP, shaped"), "whole_bytes_per_second") / 1e6, slow = most(of(results, "TCP"), "whole_bytes_per_second") / 1e6;

        (void)m;
        snprintf(why, size, "%.0f packets lost at the port unshaped, %.0f shaped; %.0f MB/s and %.0f MB/s", plain, shaped, slow, fast);
        return shaped < plain && fast >= 0.97 * slow ? LAB_BETTER : LAB_DIFFERS;
}

JUDGE(c9)
{
        double one = most(of(results, "one class for all"), "echo_p99_us"), own = most(of(results, "a class for control"), "echo_p99_us");

        (void)m;
        snprintf(why, size, "99 %% of echoes within %.0f us at most in one class with the data, within %.0f us in a class of their own", one, own);
        return own * 5 < one ? LAB_BETTER : LAB_DIFFERS;
}
