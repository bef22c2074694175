/* Watches a node's progress, and records it in the log, the counters and the report. */
#include "progress.h"

#include <stdio.h>

#include "base/json.h"
#include "base/log.h"
#include "base/strbuf.h"
#include "base/util.h"
#include "../log/run_log.h"

/* If no trigger comes for this time, a DFM logs it. */
#define IDLE_LOG_NS (60 * NS_PER_S)

void progress_init(struct node *n, uint64_t now_ns)
{
        uint64_t timeout_ns = n->scenario->run.stall_timeout_ns;
        const struct stall_settings settings = {
                .stall_ns = timeout_ns > 0 ? MIN(timeout_ns, STALL_LONG_NS) : STALL_LONG_NS,
                .idle_ns = n->self->role == ROLE_DFM ? IDLE_LOG_NS : NEVER_NS,
        };

        stall_init(&n->stall, &settings, now_ns);
}

static void explain(void *ctx, uint64_t now_ns, struct obstacle *ret)
{
        const struct node *n = ctx;

        n->kind->explain(n, now_ns, ret);
}

static void log_begin(const struct node *n, uint64_t now_ns, bool changed)
{
        const struct stall *s = &n->stall;
        double quiet_s = (double)(now_ns - s->moved_ns) / NS_PER_S;
        char text[OBSTACLE_TEXT_MAX + 32], more[64] = "";

        obstacle_format(&s->now, now_ns, text, sizeof text);
        if (s->now.kind == OBSTACLE_WAIT) {
                log_info("%s", text);
                return;
        }
        if (!changed && s->folded > 0)
                snprintf(more, sizeof more, " (%u earlier stall%s not logged)", s->folded,
                         s->folded == 1 ? "" : "s");
        log_id(LOG_LEVEL_WARNING, LOG_ID_HELD_BACK, "%s progress for %.0f s: %s%s",
               changed ? "still no" : "no", quiet_s, text, more);
}

static void log_news(const struct node *n, uint64_t now_ns, enum stall_news news)
{
        const struct stall *s = &n->stall;

        switch (news) {
        case STALL_NOTHING:
                break;
        case STALL_BEGAN:
        case STALL_CHANGED:
                log_begin(n, now_ns, news == STALL_CHANGED);
                break;
        case STALL_ENDED:
                if (n->kind->state(n) == RUN_RUNNING)
                        log_id(LOG_LEVEL_INFO, LOG_ID_RESUMED, "%s after %.1f s",
                               s->ended.kind == OBSTACLE_STALL ? "progress again" : "work again",
                               (double)s->ended_after_ns / NS_PER_S);
                break;
        }
}

/* Publishes the text in /status. A node that is stopping says so, unless it is stalled. */
static void publish(struct node *n, uint64_t now_ns)
{
        struct obstacle stopping = {.kind = OBSTACLE_WAIT, .since_ns = n->stopped_ns};
        char text[STOP_TEXT_MAX], why[OBSTACLE_TEXT_MAX + 32];
        bool stops = n->stopped_ns > 0 && n->stall.now.kind != OBSTACLE_STALL;

        if (stops) {
                struct strbuf b = strbuf_init(stopping.text, sizeof stopping.text);

                progress_text(n, now_ns, why, sizeof why);
                strbuf_add(&b, "%s%s%s", stop_text(n, now_ns, text), why[0] ? "; " : "", why);
        }
        obstacle_publish(&n->stats->obstacle, stops ? &stopping : &n->stall.now);
}

void progress_watch(struct node *n, uint64_t now_ns)
{
        const struct work w = n->kind->work(n, now_ns);
        enum stall_news news = stall_turn(&n->stall, now_ns, &w, explain, n);

        stats_set(&n->stats->stalls, n->stall.stalls);
        stats_set(&n->stats->stalled_ns, n->stall.stalled_ns);
        publish(n, now_ns);
        obstacle_publish(&n->stats->last_stall, &n->stall.last);
        log_news(n, now_ns, news);
}

void progress_text(const struct node *n, uint64_t now_ns, char *text, size_t size_bytes)
{
        obstacle_format(&n->stall.now, now_ns, text, size_bytes);
}

void progress_report(const struct node *n, json_t *o)
{
        const struct stall *s = &n->stall;
        bool member_stalled = n->kind->member && n->kind->member(n)->run_stalled;

        json_object_set_new(o, "stalled_seconds", json_real((double)s->stalled_ns / NS_PER_S));
        json_object_set_new(o, "stall_reason", json_text(s->stalls > 0 ? s->last.text : ""));
        json_object_set_new(o, "ended_by_stall", json_boolean(member_stalled || n->ended_by_stall));
}
