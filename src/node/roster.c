/* Logs and describes the DFM's nodes by their names in the scenario. */
#include "roster.h"

#include "evb/base/log.h"
#include "evb/base/strbuf.h"
#include "evb/base/util.h"
#include "evb/conf/digest.h"

/* Minimum interval between two log lines about strangers. */
#define STRANGER_LOG_NS (10 * NS_PER_S)

static const char *name_of(const struct node *n, enum node_role role, unsigned index)
{
        return scenario_node_of(n->scenario, role, index)->name;
}

static void log_refusal(const struct node *n, const struct dfm_notice *o)
{
        const char *name = name_of(n, o->role, o->index);

        switch (o->verdict) {
        case WELCOME_OTHER_CONFIG:
                log_error("refused %s: its scenario differs from ours in %s", name,
                          scenario_digest_name(o->key));
                break;
        case WELCOME_OTHER_RUN:
                log_error("refused %s: it is configured for run %u, ours is run %u", name, o->run, n->run);
                break;
        case WELCOME_TWICE:
                log_error("refused a second process that runs as %s", name);
                break;
        case WELCOME_OVER:
                log_warning("refused %s: it is still in run %u, which has ended or was abandoned", name,
                            o->run);
                break;
        case WELCOME_BEGUN:
                log_error("refused %s: run %u has begun, and this node must count its front-end's frames "
                          "from the beginning",
                          name, n->run);
                break;
        case WELCOME_OK:
        case WELCOME_OCCUPIED:
        case WELCOME_ADDRESS:
        case WELCOME_VERDICTS:
                break;
        }
}

/* A node that is missing now costs events, so the log must mention it. */
static void log_begin(const struct node *n, const struct dfm *core, uint32_t run)
{
        char text[512];

        if (dfm_live(core, ROLE_ROS) == n->scenario->ros.count &&
            dfm_live(core, ROLE_SFI) == n->scenario->sfi.count) {
                log_info("run %u: all nodes are present; triggers begin", run);
                return;
        }
        roster_describe_missing(n, core, text, sizeof text);
        log_warning("run %u: triggers begin without all nodes after dfm.start-timeout; still %s", run, text);
}

static void log_notice(const struct node *n, const struct dfm *core, const struct dfm_notice *o)
{
        switch (o->kind) {
        case NOTICE_JOINED:
                log_info("%s has joined", name_of(n, o->role, o->index));
                break;
        case NOTICE_RESTARTED:
                log_warning("%s has restarted", name_of(n, o->role, o->index));
                break;
        case NOTICE_LEFT:
                log_info("%s has left", name_of(n, o->role, o->index));
                break;
        case NOTICE_SILENT:
                log_warning("no message from %s for dfm.node-timeout; treating it as gone",
                            name_of(n, o->role, o->index));
                break;
        case NOTICE_REFUSED:
                log_refusal(n, o);
                break;
        case NOTICE_RESUMED:
                log_warning("resumed run %u of an earlier DFM", o->run);
                break;
        case NOTICE_OVERDUE:
                log_warning("run %u ends at once: scenario.duration had passed when this DFM resumed it",
                            o->run);
                break;
        case NOTICE_BEGUN:
                log_begin(n, core, o->run);
                break;
        case NOTICE_FAILED:
                log_error("the output of %s failed; stopping the run", name_of(n, o->role, o->index));
                break;
        case NOTICE_LEFT_OUT:
                log_warning("%s gets nothing from its front-end; %s", name_of(n, o->role, o->index),
                            strcmp(n->scenario->trigger.leader, name_of(n, o->role, o->index)) == 0 &&
                                            n->scenario->trigger.source_kind == TRIGGER_FRAMES
                                    ? "it makes the triggers, so there are no events until it returns"
                                    : "events go on without its fragments");
                break;
        case NOTICE_TAKEN_IN:
                log_warning("%s gets frames from its front-end again; events wait for its fragments",
                            name_of(n, o->role, o->index));
                break;
        case NOTICE_UNRELIABLE:
                log_error("%s lost frames of its front-end before it counted them; events may combine "
                          "fragments of different triggers",
                          name_of(n, o->role, o->index));
                break;
        }
}

static void log_stranger(struct node *n)
{
        struct control_stranger *s = &n->control.stranger;
        uint32_t who = (uint32_t)s->role << 16 | s->index;
        uint64_t now_ns = loop_now_ns(n->loop);
        char text[NET_ADDRESS_TEXT_MAX];

        if (!s->is_new)
                return;
        s->is_new = false;
        /* Strangers must not fill the log: none is logged twice in a row, and all at limited rate. */
        if (s->role == ROLE_DFM || n->membership.logged_stranger == who || now_ns < n->membership.stranger_ns)
                return;
        n->membership.logged_stranger = who;
        n->membership.stranger_ns = now_ns + STRANGER_LOG_NS;
        net_address_format(&s->from, text);
        if (!scenario_node_of(n->scenario, s->role, s->index))
                log_warning("ignored a message from %s %u at %s: this scenario has fewer nodes of that role",
                            scenario_role_name(s->role), s->index + 1u, text);
        else
                log_warning(
                        "ignored a message in the name of %s: it came from %s, not from that node's address",
                        name_of(n, s->role, s->index), text);
}

void roster_log(struct node *n, struct dfm *core)
{
        struct dfm_notice o;

        while (dfm_take_notice(core, &o)) {
                n->run = dfm_run(core);
                log_notice(n, core, &o);
        }
        log_stranger(n);
}

void roster_describe_missing(const struct node *n, const struct dfm *core, char *text, size_t size_bytes)
{
        struct strbuf b = strbuf_init(text, size_bytes);
        unsigned missing = 0;

        for (size_t i = 0; i < n->scenario->n_nodes; i++) {
                const struct scenario_node *o = &n->scenario->nodes[i];

                if (o->role == ROLE_DFM || dfm_view(core, o->role, (uint16_t)o->index).live)
                        continue;
                strbuf_add(&b, "%s%s", missing++ ? ", " : "waiting for ", o->name);
        }
        if (missing == 0)
                strbuf_add(&b, "all nodes are present");
}

static const char *reason_text(enum node_reason reason)
{
        static const char *const texts[NODE_REASONS] = {
                [REASON_NO_FRONT_END] = "no front-end",
                [REASON_BUFFER_FULL] = "buffer full",
                [REASON_SLOW_OUTPUT] = "slow disk",
                [REASON_OUT_OF_STEP] = "front-end out of step with the triggers",
                [REASON_SILENT] = "silent front-end",
        };

        return texts[reason];
}

void roster_describe_reasons(const struct scenario *s, const struct dfm *core, char *text, size_t size_bytes)
{
        struct strbuf b = strbuf_init(text, size_bytes);
        bool first = true;

        for (size_t i = 0; i < s->n_nodes; i++) {
                const struct scenario_node *o = &s->nodes[i];
                struct dfm_node_view v;

                if (o->role == ROLE_DFM)
                        continue;
                v = dfm_view(core, o->role, (uint16_t)o->index);
                if (!v.live || v.reason == REASON_NONE)
                        continue;
                strbuf_add(&b, "%s%s: %s for %.1f s", first ? "" : "; ", o->name, reason_text(v.reason),
                           v.reason_ms / 1e3);
                first = false;
        }
}
