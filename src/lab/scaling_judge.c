/* Verdicts of S1 to S9. What shaping promises counts where its bursts fit the port's buffer; at the other
 * points, the buffer is too small for the number of sources, and the plan warns. */
#include "scaling.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "settings.h"
#include "base/util.h"

#define SHAPED "push, shaped"
/* Runs are short, so the last events weigh in. */
#define BUILT_LEAST 0.95

struct shaped {
        size_t n, fit;
        double dropped, least;               /* where bursts fit */
        double others_dropped, others_least; /* where they do not */
};

static bool does_fit(struct judging *j, size_t i)
{
        return figure_of(j, i, "plan_fits") > 0;
}

static double dropped(struct judging *j, size_t i)
{
        return figure_of(j, i, "switch_packets") + figure_of(j, i, "events_lost") +
               figure_of(j, i, "events_partial");
}

static struct shaped look_at_shaped(struct judging *j, const char *figure)
{
        struct query shaped = of(j, SHAPED);
        struct shaped s = {.least = INFINITY, .others_least = INFINITY};

        for (size_t i = 0; i < j->n; i++) {
                double share;

                if (!is_in(&shaped, &j->points[i]))
                        continue;
                share = figure_of(j, i, figure);
                s.n++;
                if (does_fit(j, i)) {
                        s.fit++;
                        s.dropped += dropped(j, i);
                        s.least = fmin(s.least, share);
                } else {
                        s.others_dropped += dropped(j, i);
                        s.others_least = fmin(s.others_least, share);
                }
        }
        return s;
}

static void add_shaped(struct strbuf *b, const struct shaped *s, const char *what)
{
        strbuf_add(b, "by the plan, bursts of shaped push fit the port at %zu of %zu points", s->fit, s->n);
        if (s->fit > 0)
                strbuf_add(b, "; there it loses %.0f packets and events, and builds at least %.1f %% of %s",
                           s->dropped, 100 * s->least, what);
        if (s->fit < s->n)
                strbuf_add(b, "; at the others it loses %.0f and builds at least %.1f %%", s->others_dropped,
                           100 * s->others_least);
}

static void add_unshaped(struct judging *j, struct strbuf *b, const char *series)
{
        strbuf_add(b, "; %s loses %.0f packets and builds at least %.1f %%", series,
                   sum(of(j, series), "switch_packets"), 100 * least(of(j, series), "steady_share"));
}

enum lab_verdict scaling_judge_shares(struct judging *j, char *why, size_t size)
{
        struct shaped s = look_at_shaped(j, "steady_share");
        struct strbuf b = strbuf_init(why, size);

        add_shaped(&b, &s, "the load");
        add_unshaped(j, &b, "push");
        add_unshaped(j, &b, "pull");
        return s.fit > 0 && s.dropped == 0 && s.least >= BUILT_LEAST ? LAB_BETTER : LAB_DIFFERS;
}

/* The greatest trigger rate that a series builds. */
static double most_built(struct judging *j, const char *series, const char *panel)
{
        struct query q = of_panel(j, series, panel);
        double best = 0;

        for (size_t i = 0; i < j->n; i++) {
                if (is_in(&q, &j->points[i]) && figure_of(j, i, "steady_share") >= BUILT_LEAST)
                        best = fmax(best, j->points[i].x);
        }
        return best;
}

enum lab_verdict scaling_judge_rates(struct judging *j, char *why, size_t size)
{
        static const char *const series[] = {"push", "pull", SHAPED};
        struct strbuf b = strbuf_init(why, size);
        bool reached = true;

        strbuf_add(&b, "all triggers are built up to");
        for (size_t k = 0; k < j->m->sweep.n_panels; k++) {
                const char *panel = j->m->sweep.panels[k].name;

                if (isnan(least(of_panel(j, SHAPED, panel), "steady_share")))
                        continue;
                for (size_t i = 0; i < ARRAY_SIZE(series); i++)
                        strbuf_add(&b, "%s %.0f Hz (%s)",
                                   i > 0   ? ","
                                   : k > 0 ? ";"
                                           : "",
                                   most_built(j, series[i], panel), series[i]);
                strbuf_add(&b, " with %s", panel);
                reached &= most_built(j, SHAPED, panel) >= 3000;
        }
        return reached ? LAB_BETTER : LAB_DIFFERS;
}

/* The most sources up to which no point of a series drops packets. */
static double most_sources(struct judging *j, const char *series)
{
        struct query q = of(j, series);
        double most_x = 0;

        for (size_t i = 0; i < j->n; i++) {
                if (!is_in(&q, &j->points[i]))
                        continue;
                if (figure_of(j, i, "switch_packets") > 0)
                        break;
                most_x = j->points[i].x;
        }
        return most_x;
}

enum lab_verdict scaling_judge_buffers(struct judging *j, char *why, size_t size)
{
        static const char shaped[] = "push, shaped, bursts of two frames";
        static const char planned[] = "push, shaped, planned for 256 KiB",
                          pull[] = "pull, planned for 256 KiB";
        double plain_bytes = most(of(j, "push"), "port_most_bytes"),
               shaped_bytes = most(of(j, shaped), "port_most_bytes");
        struct strbuf b = strbuf_init(why, size);

        strbuf_add(
                &b,
                "at the most sources, a port holds up to %.1f MB of unshaped push and %.1f MB of bursts of "
                "two "
                "frames; a port of 256 KiB carries shaped push of up to %.0f sources and pull of up to %.0f",
                plain_bytes / 1e6, shaped_bytes / 1e6, most_sources(j, planned), most_sources(j, pull));
        return shaped_bytes < plain_bytes && most_sources(j, planned) >= 50 ? LAB_BETTER : LAB_DIFFERS;
}

/* "1 Gbit/s, 256 KiB: 300" for each panel: the extreme x at which the share is reached. */
static double add_extremes(struct judging *j, struct strbuf *b, const char *series, bool greatest,
                           const char *unit)
{
        double worst = greatest ? INFINITY : 0;

        for (size_t k = 0; k < j->m->sweep.n_panels; k++) {
                struct query q = of_panel(j, series, j->m->sweep.panels[k].name);
                double x = greatest ? 0 : INFINITY;
                bool planned = false;

                for (size_t i = 0; i < j->n; i++) {
                        if (!is_in(&q, &j->points[i]))
                                continue;
                        planned = true;
                        if (figure_of(j, i, "steady_share") >= BUILT_LEAST)
                                x = greatest ? fmax(x, j->points[i].x) : fmin(x, j->points[i].x);
                }
                if (!planned)
                        continue;
                strbuf_add(b, "%s%s: %g%s", k > 0 ? ", " : " ", j->m->sweep.panels[k].name, x, unit);
                worst = greatest ? fmin(worst, x) : fmax(worst, x);
        }
        return worst;
}

enum lab_verdict scaling_judge_timers(struct judging *j, char *why, size_t size)
{
        struct strbuf b = strbuf_init(why, size);
        double worst;

        strbuf_add(&b, "shaped push builds 95 %% of the port while timers are late by up to");
        worst = add_extremes(j, &b, SHAPED, true, " us");
        return worst >= 10 ? LAB_BETTER : LAB_DIFFERS;
}

enum lab_verdict scaling_judge_credits(struct judging *j, char *why, size_t size)
{
        struct strbuf b = strbuf_init(why, size);
        double push, pull;

        strbuf_add(&b, "95 %% of the load need so many credits with shaped push:");
        push = add_extremes(j, &b, SHAPED, false, "");
        strbuf_add(&b, "; with pull:");
        pull = add_extremes(j, &b, "pull", false, "");
        return push <= 256 && pull <= 256 ? LAB_BETTER : LAB_DIFFERS;
}

enum lab_verdict scaling_judge_latency(struct judging *j, char *why, size_t size)
{
        double push = most(between(of(j, "push"), 90, 90), "latency_p99_us"),
               pull = most(between(of(j, "pull"), 90, 90), "latency_p99_us"),
               shaped = most(between(of(j, SHAPED), 90, 90), "latency_p99_us");

        snprintf(why, size,
                 "at 90 %% of the port, 99 %% of the events are built within %.1f ms by shaped push, %.1f ms "
                 "by pull "
                 "and %.1f ms by unshaped push",
                 shaped / 1e3, pull / 1e3, push / 1e3);
        return shaped < push && shaped < 2 * pull ? LAB_BETTER : LAB_DIFFERS;
}
