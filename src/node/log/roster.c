/* Logs and describes the DFM's nodes by their names in the scenario. */
#include "roster.h"

#include "base/log.h"
#include "base/strbuf.h"
#include "base/util.h"
#include "conf/digest.h"
#include "../progress/reason_text.h"

static const char *name_of(const struct node *n, enum node_role role, unsigned index)
{
        return scenario_node_of(n->scenario, role, index)->name;
}

/* False: this verdict must not be logged. */
static bool describe_refusal(const struct node *n, const struct dfm_notice *o, const char *name,
                             struct strbuf *b)
{
        switch (o->verdict) {
        case WELCOME_OTHER_CONFIG:
                strbuf_add(b, "refused %s: its scenario differs from ours in %s", name,
                           scenario_digest_name(o->key));
                return true;
        case WELCOME_OTHER_RUN:
                strbuf_add(b, "refused %s: it is configured for run %u, ours is run %u", name, o->run,
                           n->run);
                return true;
        case WELCOME_TWICE:
                strbuf_add(b, "refused a second process that runs as %s", name);
                return true;
        case WELCOME_OVER:
                strbuf_add(b, "refused %s: it is still in run %u, which has ended or was abandoned", name,
                           o->run);
                return true;
        case WELCOME_BEGUN:
                strbuf_add(b,
                           "refused %s: run %u has begun, and this node must count its front-end's frames "
                           "from the beginning",
                           name, n->run);
                return true;
        case WELCOME_OK:
        case WELCOME_OCCUPIED:
        case WELCOME_ADDRESS:
        case WELCOME_VERDICTS:
                break;
        }
        return false;
}

static void log_refusal(const struct node *n, const struct dfm_notice *o)
{
        const char *name = name_of(n, o->role, o->index);
        char text[256];
        struct strbuf b = strbuf_init(text, sizeof text);

        if (describe_refusal(n, o, name, &b))
                log_limited(o->verdict == WELCOME_OVER ? LOG_LEVEL_WARNING : LOG_LEVEL_ERROR,
                            LOG_FIELDS(.id = LOG_ID_NODE_REFUSED, .peer = name), "%s", text);
}

/* Returns the variable for the time since which the node has been lost. */
static uint64_t *lost_ns(struct node *n, const struct dfm_notice *o)
{
        return o->role == ROLE_ROS ? &n->membership.lost_ros_ns[o->index]
                                   : &n->membership.lost_sfi_ns[o->index];
}

static void log_presence(struct node *n, const struct dfm_notice *o)
{
        uint64_t *lost = lost_ns(n, o), now_ns = loop_now_ns(n->loop);
        const char *name = name_of(n, o->role, o->index);

        if (o->kind == NOTICE_RESTARTED)
                log_peer(LOG_LEVEL_WARNING, LOG_ID_NODE_BACK, name, "%s has restarted", name);
        else if (o->kind == NOTICE_JOINED && *lost > 0)
                log_peer(LOG_LEVEL_WARNING, LOG_ID_NODE_BACK, name, "%s is back after %.1f s", name,
                         (double)(now_ns - *lost) / NS_PER_S);
        else if (o->kind == NOTICE_JOINED)
                log_peer(LOG_LEVEL_INFO, LOG_ID_NODE_JOINED, name, "%s has joined", name);
        else if (o->kind == NOTICE_LEFT)
                log_peer(LOG_LEVEL_INFO, LOG_ID_NODE_LEFT, name, "%s has left", name);
        else
                log_peer(LOG_LEVEL_WARNING, LOG_ID_NODE_LOST, name,
                         "no message from %s for dfm.node-timeout; treating it as gone", name);
        *lost = o->kind == NOTICE_SILENT ? now_ns : 0;
}

/* The log mentions nodes that are missing now, because events do not contain their data. */
static void log_begin(const struct node *n, const struct dfm *core, uint32_t run)
{
        char text[512], name[SCENARIO_RUN_MAX];
        struct strbuf b = strbuf_init(text, sizeof text);

        scenario_run_name(n->scenario, run, name);
        if (dfm_live(core, ROLE_ROS) == n->scenario->ros.count &&
            dfm_live(core, ROLE_SFI) == n->scenario->sfi.count) {
                log_info("%s: all nodes are present; triggers begin", name);
                return;
        }
        roster_add_missing(n, "", &b);
        log_warning("%s: triggers begin without all nodes after dfm.start-timeout; still waiting for %s",
                    name, text);
}

const char *roster_describe_failure(const struct scenario *s, const struct dfm *core,
                                    const struct scenario_node *n, char *text, size_t size_bytes)
{
        struct dfm_node_view v = dfm_view(core, ROLE_SFI, (uint16_t)n->index);
        struct strbuf b = strbuf_init(text, size_bytes);
        char what[64];

        strbuf_add(&b, "the output of %s failed", n->name);
        if (reason_is_output(v.reason))
                strbuf_add(&b, " (%s; sfi.directory = %s)", reason_text(s, v.reason, 0, what, sizeof what),
                           s->sfi.directory);
        return text;
}

static void log_failure(const struct node *n, const struct dfm *core, const struct scenario_node *o)
{
        char text[SCENARIO_TEXT_MAX + 128];

        log_peer(LOG_LEVEL_ERROR, LOG_ID_OUTPUT_FAILED, o->name, "%s; stopping the run",
                 roster_describe_failure(n->scenario, core, o, text, sizeof text));
}

const char *roster_describe_apart(const struct scenario *s, const struct dfm *core, char *text,
                                  size_t size_bytes)
{
        struct strbuf b = strbuf_init(text, size_bytes);
        struct dfm_apart a;

        if (!dfm_numbers_apart(core, &a))
                return text;
        const struct scenario_node *ahead = scenario_node_of(s, ROLE_ROS, a.ahead),
                                   *behind = scenario_node_of(s, ROLE_ROS, a.behind);

        if (scenario_has_slices(s))
                strbuf_add(&b,
                           "the times of the frames of %s are %.1f s ahead of those of %s: the clocks of "
                           "their boards differ, or ros.event-time or ros.tick is wrong",
                           ahead->name, (double)a.by * (double)s->trigger.slice_ns / 1e9, behind->name);
        else
                strbuf_add(&b,
                           "the numbers of the frames of %s are %llu ahead of those of %s: their boards do "
                           "not count the same triggers, or ros.event-number is wrong",
                           ahead->name, (unsigned long long)a.by, behind->name);
        return text;
}

static void log_notice(struct node *n, const struct dfm *core, const struct dfm_notice *o)
{
        char text[256];

        switch (o->kind) {
        case NOTICE_JOINED:
        case NOTICE_RESTARTED:
        case NOTICE_LEFT:
        case NOTICE_SILENT:
                log_presence(n, o);
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
                log_failure(n, core, scenario_node_of(n->scenario, o->role, o->index));
                break;
        case NOTICE_LEFT_OUT:
                log_warning("%s gets nothing from its front-end; %s", name_of(n, o->role, o->index),
                            strcmp(n->scenario->trigger.leader, name_of(n, o->role, o->index)) == 0 &&
                                            n->scenario->trigger.source_kind == TRIGGER_FRAMES
                                    ? "it makes the triggers, so there are no events until it returns"
                                    : "events go on without its fragments");
                break;
        case NOTICE_TAKEN_IN:
                log_warning("the front-end of %s is back; events wait for its fragments again",
                            name_of(n, o->role, o->index));
                break;
        case NOTICE_APART:
                if (roster_describe_apart(n->scenario, core, text, sizeof text)[0])
                        log_error("%s", text);
                break;
        case NOTICE_UNRELIABLE:
                log_error("%s %s; events may combine fragments of different triggers",
                          name_of(n, o->role, o->index),
                          scenario_number_period(n->scenario,
                                                 scenario_node_of(n->scenario, o->role, o->index)) > 0
                                  ? "has frames whose numbers or times seem to be those of other triggers"
                                  : "lost frames of its front-end before it counted them");
                break;
        }
}

static void log_foreign_sender(struct node *n)
{
        struct control_foreign_sender *s = &n->control.foreign_sender;
        uint32_t who = (uint32_t)s->role << 16 | s->index;
        char text[NET_ADDRESS_TEXT_MAX];

        if (!s->is_new)
                return;
        s->is_new = false;
        /* The same foreign sender is not logged twice in a row, and all foreign senders are logged at a
         * limited rate. */
        if (s->role == ROLE_DFM || n->membership.logged_foreign_sender == who)
                return;
        n->membership.logged_foreign_sender = who;
        net_address_format(&s->from, text);
        if (!scenario_node_of(n->scenario, s->role, s->index))
                log_limited(LOG_LEVEL_WARNING, NULL,
                            "ignored a message from %s %u at %s: this scenario has fewer nodes of that role",
                            scenario_role_name(s->role), s->index + 1u, text);
        else
                log_limited(
                        LOG_LEVEL_WARNING, NULL,
                        "ignored a message in the name of %s: it came from %s, not from that node's address",
                        name_of(n, s->role, s->index), text);
}

void roster_log(struct node *n, struct dfm *core)
{
        struct dfm_notice o;

        while (dfm_pop_notice(core, &o)) {
                n->run = dfm_run(core);
                log_set_run(n->run);
                log_notice(n, core, &o);
        }
        log_foreign_sender(n);
}

void roster_add_missing(const struct node *n, const char *before, struct strbuf *b)
{
        for (size_t i = 0; i < n->scenario->n_nodes; i++) {
                const struct scenario_node *o = &n->scenario->nodes[i];

                if (o->role == ROLE_DFM || dfm_view(n->core, o->role, (uint16_t)o->index).live)
                        continue;
                strbuf_add(b, "%s%s", before, o->name);
                before = ", ";
        }
}

void roster_describe_reasons(const struct scenario *s, const struct dfm *core, char *text, size_t size_bytes)
{
        struct strbuf b = strbuf_init(text, size_bytes);
        bool first = true;

        for (size_t i = 0; i < s->n_nodes; i++) {
                const struct scenario_node *o = &s->nodes[i];
                struct dfm_node_view v;
                char what[128];

                if (o->role == ROLE_DFM)
                        continue;
                v = dfm_view(core, o->role, (uint16_t)o->index);
                if (!v.live || v.reason == REASON_NONE)
                        continue;
                strbuf_add(&b, "%s%s: %s for %.1f s", first ? "" : "; ", o->name,
                           reason_text(s, v.reason, v.reason_node, what, sizeof what), v.reason_ms / 1e3);
                first = false;
        }
}
