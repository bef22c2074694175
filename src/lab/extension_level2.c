/* Measurement C11: the trigger rate that level 2 allows, by the share of events that it accepts. */
#include <math.h>
#include <stdio.h>

#include "base/strbuf.h"
#include "publications.h"
#include "query.h"
#include "settings.h"

/* At this share, level 2 must allow so many times the rate of building everything. */
#define FEW_PERCENT 10
#define GAIN 5

/* Appends the gain of a series, and returns it. */
static double gain(struct judging *j, const char *series, struct strbuf *b)
{
        double all = least(between(of(j, series), 100, 100), "trigger_rate_hz"),
               few = least(between(of(j, series), FEW_PERCENT, FEW_PERCENT), "trigger_rate_hz");

        double times = all > 0 ? few / all : 0;

        strbuf_add(b,
                   "%s%s takes %.0f triggers/s if it builds all, and %.1f times as many if it builds %d %%",
                   b->length > 0 ? "; " : "", series, all, times, FEW_PERCENT);
        return times;
}

JUDGE(c11)
{
        struct strbuf b = strbuf_init(why, size);
        double push = gain(j, "push, shaped", &b), pull = gain(j, "pull", &b);
        double lost = sum(of(j, NULL), "events_lost") + sum(of(j, NULL), "events_partial");

        strbuf_add(&b, "; %.0f events are lost or partial", lost);
        return push >= GAIN && pull >= GAIN && lost == 0 ? LAB_BETTER : LAB_DIFFERS;
}

static const struct lab_measurement measurements[] = {
        {
                .id = "C11",
                .title = "6x1 with level 2: trigger rate by accepted share",
                .published = "not published; what does the second level of the trigger gain?",
                .x_label = "accepted events, %",
                .y_label = "triggers/s",
                .y = "trigger_rate_hz",
                .log_x = true,
                .kind = LAB_EVENTS,
                .base = LAB_6X1 " ros.fragment-size=14336 trigger.rate=max",
                .series = {{"push, shaped", LAB_SHAPED}, {"pull", "scenario.mode=pull"}},
                .sweep = LAB_SWEEP(LAB_LIST(5, 10, 20, 50, 100), LAB_LIST(10, 100)),
                .vary = vary_accepted_percent,
                .judge = judge_c11,
        },
};
const struct lab_publication extension_level2 = {measurements, ARRAY_SIZE(measurements)};
