/* Keeps the counts of two moments at least 5 s apart: what came since the older one is recent. */
#include "losses.h"

/* Of rare events, the window keeps those that ended last while all of them were bad: nothing says that the
 * next ones will be better. */
static bool keeps_window(const struct losses *l, const struct losses_sample *now)
{
        bool ended = now->complete != l->newer.complete || now->partial != l->newer.partial ||
                     now->lost != l->newer.lost;
        bool all_bad = now->complete == l->older.complete &&
                       (now->partial != l->older.partial || now->lost != l->older.lost);

        return !ended && all_bad;
}

bool losses_note(struct losses *l, const struct losses_sample *now)
{
        bool due;

        if (l->newer.now_ns == 0)
                l->older.now_ns = l->newer.now_ns = now->now_ns;
        l->now = *now;
        due = now->now_ns - l->newer.now_ns >= LOSSES_STEP_NS && !keeps_window(l, now);
        if (due) {
                l->older = l->newer;
                l->newer = *now;
        }
        return due;
}

/* Packets that were only late are no longer lost. */
static uint64_t gained(uint64_t before, uint64_t now)
{
        return now > before ? now - before : 0;
}

struct losses_sample losses_recent(const struct losses *l)
{
        const struct losses_sample *a = &l->older, *b = &l->now;

        return (struct losses_sample){
                .now_ns = a->now_ns,
                .complete = gained(a->complete, b->complete),
                .partial = gained(a->partial, b->partial),
                .lost = gained(a->lost, b->lost),
                .not_written = gained(a->not_written, b->not_written),
                .packets_lost = gained(a->packets_lost, b->packets_lost),
                .packets_socket_dropped = gained(a->packets_socket_dropped, b->packets_socket_dropped),
                .packets_source_dropped = gained(a->packets_source_dropped, b->packets_source_dropped),
                .packets_send_failed = gained(a->packets_send_failed, b->packets_send_failed),
        };
}
