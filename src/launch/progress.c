/* A line on the terminal that tells how the run goes, from the nodes' pages. */
#include <stdlib.h>
#include <string.h>

#include "evb/base/quantity.h"
#include "evb/base/util.h"
#include "evb/launch/run.h"

/* A terminal that can go back to the start of a line. */
static bool can_redraw(void)
{
        const char *term = getenv("TERM");

        return isatty(STDERR_FILENO) && term && strcmp(term, "dumb") != 0;
}

void progress_draw(const struct launch *l, uint64_t now_ns)
{
        static uint64_t last_ns, last_complete, last_bytes, last_busy, plain_ns;
        const struct node_stats *s = launch_dfm(l)->stats;
        uint64_t complete = stats_get(&s->events_complete), bytes = stats_get(&s->payload_bytes),
                 busy = stats_get(&s->busy_ns);
        double seconds = last_ns ? (double)(now_ns - last_ns) / 1e9 : 0;
        char count[QUANTITY_TEXT_MAX], rate[QUANTITY_TEXT_MAX], throughput[QUANTITY_TEXT_MAX];
        bool redraw = can_redraw();

        if (seconds > 0 && (redraw || now_ns - plain_ns >= NS_PER_S)) {
                fprintf(stderr,
                        "%s%5.1f s  %s events/s  %s/s  %s complete  %llu partial  %llu lost  busy %.0f %%%s",
                        redraw ? "\r\033[K" : "", (double)(now_ns - l->start_ns) / 1e9,
                        quantity_format_count((uint64_t)((double)(complete - last_complete) / seconds), rate),
                        quantity_format_bytes((uint64_t)((double)(bytes - last_bytes) / seconds), throughput),
                        quantity_format_count(complete, count),
                        (unsigned long long)stats_get(&s->events_partial),
                        (unsigned long long)stats_get(&s->events_lost),
                        MIN(100.0, (double)(busy - last_busy) / 1e7 / seconds), redraw ? "" : "\n");
                fflush(stderr);
                plain_ns = now_ns;
        }
        if (redraw || plain_ns == now_ns || last_ns == 0) {
                last_ns = now_ns;
                last_complete = complete;
                last_bytes = bytes;
                last_busy = busy;
        }
}

void progress_end(const struct launch *l)
{
        (void)l;
        if (can_redraw())
                fprintf(stderr, "\r\033[K");
}
