/* Draws the progress of a run on standard error, from the DFM's counters. */
#include "progress_line.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/quantity.h"
#include "base/util.h"

/* Returns false for files, and for terminals that cannot return to the start of a line. */
static bool can_redraw(void)
{
        const char *term = getenv("TERM");

        return isatty(STDERR_FILENO) && term && strcmp(term, "dumb") != 0;
}

void progress_draw(struct progress *p, const struct launch *l, uint64_t now_ns)
{
        const struct node_stats *s = launch_dfm(l)->stats;
        uint64_t complete = stats_get(&s->events_complete), bytes = stats_get(&s->payload_bytes),
                 busy_ns = stats_get(&s->busy_ns);
        double seconds = p->last_ns ? (double)(now_ns - p->last_ns) / 1e9 : 0;
        char count[QUANTITY_TEXT_MAX], rate[QUANTITY_TEXT_MAX], throughput[QUANTITY_TEXT_MAX];
        bool redraw = can_redraw();
        char line[200];

        if (seconds > 0 && (redraw || now_ns - p->plain_ns >= NS_PER_S)) {
                snprintf(line, sizeof line,
                         "%s%5.1f s  %s events/s  %s/s  %s complete  %llu partial  %llu lost  busy %.0f %%%s",
                         redraw ? "\r\033[K" : "", (double)(now_ns - l->start_ns) / 1e9,
                         quantity_format_count((uint64_t)((double)(complete - p->complete) / seconds), rate),
                         quantity_format_bytes((uint64_t)((double)(bytes - p->bytes) / seconds), throughput),
                         quantity_format_count(complete, count),
                         (unsigned long long)stats_get(&s->events_partial),
                         (unsigned long long)stats_get(&s->events_lost),
                         MIN(100.0, (double)(busy_ns - p->busy_ns) / 1e7 / seconds), redraw ? "" : "\n");
                log_draw(line);
                p->plain_ns = now_ns;
        }
        if (redraw || p->plain_ns == now_ns || p->last_ns == 0)
                *p = (struct progress){now_ns, complete, bytes, busy_ns, p->plain_ns};
}

void progress_end(void)
{
        if (can_redraw())
                log_draw("\r\033[K");
}
