/* Decides whether a node waits or is stalled, and limits the number of log lines about it. */
#include "stall.h"

#include <string.h>

#include "base/strbuf.h"
#include "base/util.h"

/* A longer pause between two checks means that the process was suspended, because even an idle process checks
 * once a second. */
#define AWAY_NS (3 * NS_PER_S)

void stall_init(struct stall *s, const struct stall_settings *settings, uint64_t now_ns)
{
        *s = (struct stall){.settings = *settings, .moved_ns = now_ns, .turn_ns = now_ns};
        if (s->settings.stall_ns == 0)
                s->settings.stall_ns = STALL_LONG_NS;
}

static enum obstacle_kind kind_of(const struct stall *s, uint64_t now_ns)
{
        uint64_t quiet_ns = now_ns - s->moved_ns;

        if (s->work.before_run)
                return OBSTACLE_WAIT;
        if (s->work.waits && quiet_ns >= s->settings.stall_ns)
                return OBSTACLE_STALL;
        return quiet_ns >= MIN(STALL_SHORT_NS, s->settings.stall_ns) ? OBSTACLE_WAIT : OBSTACLE_NONE;
}

static bool differs(const struct work *a, const struct work *b)
{
        return a->progress != b->progress || a->waits != b->waits || a->before_run != b->before_run;
}

/* Ends a time without progress. Returns whether this time was logged. */
static bool end_phase(struct stall *s, uint64_t now_ns, const struct work *w)
{
        bool is_logged = s->logged.kind != OBSTACLE_NONE;

        s->unlogged += s->now.kind == OBSTACLE_STALL && !is_logged;
        s->ended = s->logged;
        s->ended_after_ns = now_ns - s->moved_ns;
        s->logged.kind = OBSTACLE_NONE;
        s->work = *w;
        s->moved_ns = now_ns;
        return is_logged;
}

/* A reason counts only if it lasts for some time, because it may disappear with the next message. */
static bool is_steady(const struct stall *s, uint64_t now_ns)
{
        return now_ns - s->text_ns >= STALL_SHORT_NS;
}

static void explain_now(struct stall *s, uint64_t now_ns, stall_explain *explain, void *ctx)
{
        const struct obstacle before = s->now;
        enum obstacle_kind kind = kind_of(s, now_ns);

        s->now = (struct obstacle){};
        if (kind == OBSTACLE_NONE)
                return;
        explain(ctx, now_ns, &s->now);
        text_make_printable(s->now.text);
        s->now.kind = kind == OBSTACLE_WAIT && !s->now.text[0] ? OBSTACLE_NONE : kind;
        s->now.since_ns = s->now.since_ns ?: s->moved_ns;
        if (strcmp(s->now.text, before.text) != 0)
                s->text_ns = now_ns;
        if (kind == OBSTACLE_STALL && before.kind != OBSTACLE_STALL)
                s->stalls++;
        else if (kind != OBSTACLE_STALL || !is_steady(s, now_ns))
                return;
        s->last = s->now;
}

static bool is_worth_a_line(const struct stall *s, uint64_t now_ns)
{
        return s->now.kind == OBSTACLE_STALL || (s->now.kind == OBSTACLE_WAIT && !s->work.before_run &&
                                                 now_ns - s->moved_ns >= s->settings.idle_ns);
}

/* Decides what to log. A new stall is logged at once, unless the last log line named the same reason less
 * than STALL_LOG_NS ago. A changed reason is logged once it is steady and STALL_LOG_NS has passed since that
 * line. */
static enum stall_news tell(struct stall *s, uint64_t now_ns)
{
        bool is_logged = s->logged.kind != OBSTACLE_NONE, is_same = strcmp(s->now.text, s->logged.text) == 0;

        if (!is_worth_a_line(s, now_ns) || (now_ns < s->quiet_until_ns && (is_logged || is_same)) ||
            (is_logged && (is_same || !is_steady(s, now_ns))))
                return STALL_NOTHING;
        s->logged = s->now;
        s->quiet_until_ns = now_ns + STALL_LOG_NS;
        s->folded = s->unlogged;
        s->unlogged = 0;
        return is_logged ? STALL_CHANGED : STALL_BEGAN;
}

enum stall_news stall_turn(struct stall *s, uint64_t now_ns, const struct work *w, stall_explain *explain,
                           void *ctx)
{
        uint64_t passed_ns = now_ns - s->turn_ns, before_ns = stall_age_ns(s, s->turn_ns);
        bool was_logged = false;

        s->turn_ns = now_ns;
        if (passed_ns > AWAY_NS)
                s->moved_ns = MIN(s->moved_ns + passed_ns, now_ns);
        if (differs(&s->work, w))
                was_logged = end_phase(s, now_ns, w);
        explain_now(s, now_ns, explain, ctx);
        s->stalled_ns += MAX(stall_age_ns(s, now_ns), before_ns) - before_ns;
        return was_logged ? STALL_ENDED : tell(s, now_ns);
}

uint64_t stall_age_ns(const struct stall *s, uint64_t now_ns)
{
        return s->now.kind == OBSTACLE_STALL ? now_ns - s->moved_ns : 0;
}
