/* Explains what a ROS or an SFI waits for, in this order: the DFM, the nodes upstream, its own queues and
 * disk, the nodes downstream. */
#include "progress.h"

#include <errno.h>
#include <stdio.h>

#include "base/util.h"
#include "store/event_writer.h"
#include "reason_text.h"

/* The DFM counts as silent after it missed this number of keep-alives, and after at least SILENT_LEAST_NS. */
#define SILENT_KEEP_ALIVES 3
#define SILENT_LEAST_NS NS_PER_S

static bool is_in_run(enum run_state state)
{
        return state == RUN_RUNNING || state == RUN_DRAINING;
}

static bool is_dfm_silent(const struct node *n, const struct member *m, uint64_t now_ns)
{
        uint64_t limit_ns = MAX(SILENT_KEEP_ALIVES * n->scenario->dfm.keep_alive_ns, SILENT_LEAST_NS);

        return member_is_joined(m) && is_in_run(n->kind->state(n)) && m->received_ns + limit_ns <= now_ns;
}

static struct work work_of(const struct node *n, const struct member *m, uint64_t now_ns, uint64_t progress,
                           bool waits)
{
        enum run_state state = n->kind->state(n);
        bool silent = is_dfm_silent(n, m, now_ns);

        return (struct work){
                /* A node that no longer receives the DFM's messages will leave the run, even if it still
                 * works. */
                .progress = silent ? m->received_ns : progress,
                .waits = is_in_run(state) && (waits || silent),
                .before_run = state == RUN_STARTING || m->refusal != WELCOME_OK,
        };
}

/* Explains the waits that all roles have in common. False: the node does not wait for any of these. */
static bool explain_run(const struct node *n, const struct member *m, uint64_t now_ns, struct obstacle *ret)
{
        if (n->kind->state(n) == RUN_STARTING || m->refusal != WELCOME_OK)
                membership_describe(n, ret->text, sizeof ret->text);
        else if (is_dfm_silent(n, m, now_ns)) {
                snprintf(ret->text, sizeof ret->text, "%s silent",
                         scenario_node_of(n->scenario, ROLE_DFM, 0)->name);
                ret->since_ns = m->received_ns;
                ret->timed = true;
        } else
                return !is_in_run(n->kind->state(n)) && !n->is_sealing;
        return true;
}

static void say(struct obstacle *ret, uint64_t since_ns, const char *text)
{
        snprintf(ret->text, sizeof ret->text, "%s", text);
        ret->since_ns = since_ns;
        ret->timed = true;
}

/* ---- ROS ---- */

/* Finds the SFI whose queue has been full for the longest time. */
static struct node_obstacle full_queue(const struct data_sender *sender, uint64_t now_ns)
{
        struct node_obstacle o = {.since_ns = now_ns};

        for (uint32_t i = 0; i < sender->context.scenario->sfi.count; i++) {
                uint64_t since_ns = sender->ops->blocked_since_ns(sender, i);

                if (since_ns == 0 || now_ns - MIN(since_ns, now_ns) < SILENT_LEAST_NS ||
                    since_ns >= o.since_ns)
                        continue;
                o = (struct node_obstacle){
                        .reason = REASON_QUEUE_FULL, .node = (uint16_t)i, .since_ns = since_ns};
        }
        return o;
}

bool ros_blames_front_end(enum node_reason reason)
{
        return reason == REASON_NO_FRONT_END || reason == REASON_OUT_OF_STEP || reason == REASON_SILENT;
}

void ros_record_obstacle(struct ros *core, const struct data_sender *sender, uint64_t now_ns)
{
        struct node_obstacle before = ros_obstacle(core), o;

        if (ros_blames_front_end(before.reason))
                return;
        o = full_queue(sender, now_ns);
        if (o.reason == REASON_NONE && ros_is_off(core))
                o = (struct node_obstacle){
                        .reason = REASON_BUFFER_FULL,
                        .since_ns = before.reason == REASON_BUFFER_FULL ? before.since_ns : now_ns,
                };
        ros_set_obstacle(core, &o);
}

static bool has_jobs(const struct ros *core)
{
        return ros_next_with_jobs(core, 0) != UINT32_MAX;
}

struct work ros_work(const struct node *n, uint64_t now_ns)
{
        const struct ros *core = n->core;
        const struct ros_counts *c = ros_counts(core);
        const struct node_stats *s = n->stats;
        uint64_t progress = c->fragments_sent + stats_get(&s->packets_sent) + stats_get(&s->bytes_sent) +
                            stats_get(&s->front_end_frames) + stats_get(&s->regions_sent) + c->used +
                            c->absent - ros_triggered(core);
        bool waits = has_jobs(core) || ros_triggered(core) > 0 || ros_is_off(core) ||
                     ros_obstacle(core).reason != REASON_NONE;

        return work_of(n, ros_member(core), now_ns, progress, waits);
}

void ros_explain(const struct node *n, uint64_t now_ns, struct obstacle *ret)
{
        const struct ros *core = n->core;
        struct node_obstacle o = ros_obstacle(core);
        char text[OBSTACLE_TEXT_MAX];

        if (explain_run(n, ros_member(core), now_ns, ret))
                return;
        if (o.reason != REASON_NONE && o.reason != REASON_BUFFER_FULL)
                say(ret, o.since_ns, reason_text(n->scenario, o.reason, o.node, text, sizeof text));
        else if (has_jobs(core))
                say(ret, 0, "fragments not sent");
        else if (ros_triggered(core) > 0) {
                snprintf(text, sizeof text, "%s%u fragment%s held, no Clear of the DFM",
                         o.reason == REASON_BUFFER_FULL ? "buffer full: " : "", ros_triggered(core),
                         ros_triggered(core) == 1 ? "" : "s");
                say(ret, 0, text);
        } else if (o.reason == REASON_BUFFER_FULL)
                say(ret, o.since_ns, "buffer full");
        else
                say(ret, 0,
                    n->scenario->scenario.mode == MODE_PUSH ? "no assignment from the DFM"
                                                            : "no request from an SFI");
}

/* ---- SFI ---- */

void sfi_record_failure(struct sfi *core, uint64_t now_ns, int error)
{
        enum node_reason why = REASON_NONE;

        if (event_writer_is_full(error))
                why = REASON_DISK_FULL;
        else if (error == -ENOENT || error == -ENOTDIR || error == -ESTALE)
                why = REASON_OUTPUT_MISSING;
        else if (error == -EROFS || error == -EACCES || error == -EPERM)
                why = REASON_OUTPUT_DENIED;
        sfi_set_failed(core, now_ns, why);
}

struct work sfi_work(const struct node *n, uint64_t now_ns)
{
        const struct sfi *core = n->core;
        const struct sfi_counts *c = sfi_event_counts(core);
        /* Received fragments do not count as progress, because they may belong to other events than the one
         * that waits. */
        uint64_t progress = c->complete + c->partial + c->lost + stats_get(&n->stats->file_bytes);
        struct work w = work_of(n, sfi_member(core), now_ns, progress, sfi_open_events(core) > 0);

        w.waits |= n->is_sealing;
        return w;
}

/* Describes "waits for fragments of ros4 and 2 more". */
static void explain_fragments(const struct node *n, const struct node_obstacle *o, struct obstacle *ret)
{
        char text[OBSTACLE_TEXT_MAX - 32], more[32] = "";

        (void)reason_text(n->scenario, o->reason, o->node, text, sizeof text);
        if (o->n_nodes > 1)
                snprintf(more, sizeof more, " and %u more", o->n_nodes - 1);
        snprintf(ret->text, sizeof ret->text, "%s%s", text, more);
        ret->since_ns = o->since_ns;
        ret->timed = true;
}

static void explain_disk(const struct node *n, const char *what, uint64_t since_ns, struct obstacle *ret)
{
        char text[OBSTACLE_TEXT_MAX];

        snprintf(text, sizeof text, "%s: %.160s", what, n->scenario->sfi.directory);
        say(ret, since_ns, text);
}

void sfi_explain(const struct node *n, uint64_t now_ns, struct obstacle *ret)
{
        const struct sfi *core = n->core;
        struct node_obstacle o = sfi_obstacle(core, now_ns);
        char what[64];

        if (explain_run(n, sfi_member(core), now_ns, ret))
                return;
        if (reason_is_output(o.reason))
                explain_disk(n, reason_text(n->scenario, o.reason, 0, what, sizeof what), o.since_ns, ret);
        else if (n->is_sealing)
                explain_disk(n, "closing its last file", 0, ret);
        else if (o.reason == REASON_SLOW_OUTPUT && n->scenario->live.all)
                say(ret, o.since_ns, reason_text(n->scenario, o.reason, 0, what, sizeof what));
        else if (o.reason == REASON_SLOW_OUTPUT)
                explain_disk(n, "slow disk", o.since_ns, ret);
        else if (o.reason == REASON_WAITS_FOR)
                explain_fragments(n, &o, ret);
        else if (sfi_open_events(core) > 0)
                say(ret, 0, "events are open");
        else
                say(ret, 0, "no event assigned");
}
