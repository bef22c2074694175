/* Follows a node's membership in a run: logs it, describes it, and decides when the node gives up. */
#include "membership.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/quantity.h"
#include "base/util.h"
#include "conf/digest.h"
#include "data/network.h"
#include "node_internal.h"

/* The node logs a wait that is longer than this. */
#define WAIT_LOG_NS (5 * NS_PER_S)

static const struct scenario_node *dfm_of(const struct node *n)
{
        return scenario_node_of(n->scenario, ROLE_DFM, 0);
}

static void describe_refusal(const struct node *n, const struct member *m, char *text, size_t size_bytes)
{
        switch (m->refusal) {
        case WELCOME_OTHER_CONFIG:
                snprintf(text, size_bytes, "its scenario differs from ours in %s",
                         scenario_digest_name(m->refused_key));
                break;
        case WELCOME_OTHER_RUN:
                snprintf(text, size_bytes, "its run number is %u, ours is %u", m->refused_run, n->member.run);
                break;
        case WELCOME_OCCUPIED:
                snprintf(text, size_bytes, "another process ran as %s a moment ago", n->self->name);
                break;
        case WELCOME_TWICE:
                snprintf(text, size_bytes, "another process runs as %s", n->self->name);
                break;
        case WELCOME_OVER:
                snprintf(text, size_bytes, "run %u, to which this node belongs, has ended or was abandoned",
                         m->run);
                break;
        case WELCOME_BEGUN:
                snprintf(text, size_bytes,
                         "run %u has begun, and this node must count its front-end's frames from the "
                         "beginning",
                         m->refused_run);
                break;
        case WELCOME_ADDRESS:
                snprintf(text, size_bytes, "its scenario has no node %s at %s", n->self->name,
                         n->self->address);
                break;
        case WELCOME_OK:
        case WELCOME_VERDICTS:
                snprintf(text, size_bytes, "no reason");
                break;
        }
}

static bool is_out_of_reach(const struct node *n)
{
        struct net_address dfm, own;

        return network_node_address(&dfm, dfm_of(n), 0) == 0 && network_node_address(&own, n->self, 0) == 0 &&
               net_address_is_loopback(&dfm) && !net_address_is_loopback(&own);
}

void membership_describe(const struct node *n, char *text, size_t size_bytes)
{
        const struct member *m = n->kind->member(n);
        char why[160];

        if (member_is_joined(m) && m->refusal == WELCOME_OK) {
                snprintf(text, size_bytes, "waiting for run %u to begin", m->run);
                return;
        }
        if (m->refusal == WELCOME_OK) {
                snprintf(text, size_bytes, "waiting for the DFM %s at %s%s", dfm_of(n)->name,
                         dfm_of(n)->address,
                         is_out_of_reach(n) ? ", a loopback address, which other machines cannot reach" : "");
                return;
        }
        describe_refusal(n, m, why, sizeof why);
        snprintf(text, size_bytes, "refused by the DFM %s: %s", dfm_of(n)->name, why);
}

/* Whether waiting is useless. If a run began without this node, another run may still follow. */
static bool is_final(const struct node *n, enum welcome_verdict v)
{
        return v == WELCOME_TWICE || v == WELCOME_ADDRESS || (v == WELCOME_BEGUN && !node_stays(n));
}

static void log_refusal(struct node *n, const struct member *m)
{
        struct membership *s = &n->membership;
        char text[256];

        if (m->refusal == s->logged_refusal || m->refusal == WELCOME_OCCUPIED)
                return;
        s->logged_refusal = m->refusal;
        if (m->refusal == WELCOME_OK)
                return;
        membership_describe(n, text, sizeof text);
        if (is_final(n, m->refusal))
                log_error("%s", text);
        else if (m->refusal == WELCOME_OVER)
                log_warning("%s", text);
        else
                log_error("%s; retrying until this changes", text);
}

static void log_dfm(struct node *n, const struct member *m)
{
        struct membership *s = &n->membership;

        if (m->dfm == s->logged_dfm && m->run == s->logged_run)
                return;
        if (m->run != s->logged_run)
                log_peer(LOG_LEVEL_INFO, LOG_ID_CONNECTED, dfm_of(n)->name, "joined run %u", m->run);
        else
                log_warning("the DFM %s restarted and resumed run %u", dfm_of(n)->name, m->run);
        s->logged_dfm = m->dfm;
        s->logged_run = m->run;
}

/* Logs the beginning and the end of the DFM's silence, once each. */
static void log_silence(struct node *n, uint64_t now_ns, const struct member *m)
{
        uint64_t *silent_ns = &n->membership.dfm_silent_ns;
        const struct scenario_node *dfm = dfm_of(n);
        bool is_group;

        if (*silent_ns > 0 && m->received_ns > *silent_ns) {
                log_peer(LOG_LEVEL_WARNING, LOG_ID_NODE_BACK, dfm->name, "the DFM %s is back after %.1f s",
                         dfm->name, (double)(m->received_ns - *silent_ns) / NS_PER_S);
                *silent_ns = 0;
        }
        if (*silent_ns > 0 || !member_is_joined(m) || n->kind->state(n) == RUN_ENDED ||
            now_ns - m->received_ns < n->scenario->dfm.node_timeout_ns)
                return;
        is_group = n->self->role == ROLE_ROS && strcmp(n->scenario->network.control_group, "none") != 0;
        log_peer(LOG_LEVEL_WARNING, LOG_ID_NODE_LOST, dfm->name,
                 "no message from the DFM %s at %s for %.1f s%s%s; waiting for it", dfm->name, dfm->address,
                 (double)(now_ns - m->received_ns) / NS_PER_S,
                 is_group ? ", neither to this node nor to group " : "",
                 is_group ? n->scenario->network.control_group : "");
        *silent_ns = m->received_ns;
}

static bool has_lost_dfm(struct node *n, uint64_t now_ns, const struct member *m)
{
        enum run_state state = n->kind->state(n);
        uint64_t limit_ns = n->scenario->dfm.lost_after_ns;
        char time[QUANTITY_TEXT_MAX];

        if (!member_is_joined(m) || state == RUN_ENDED)
                return false;
        /* A stopped node leaves earlier, as node_leave_ns() says, and knows of no end of the run. A launcher
         * knows how the DFM ended. */
        if (n->stopped_ns > 0 && state != RUN_STARTING && !getenv(NODE_STATS_ENV) &&
            now_ns - m->received_ns >= n->scenario->dfm.node_timeout_ns)
                return true;
        if (now_ns - m->received_ns < limit_ns)
                return false;
        quantity_format_time(limit_ns, time);
        if (m->refusal != WELCOME_OK)
                log_error("the DFM %s at %s has refused this node for %s (10 times dfm.node-timeout); this "
                          "node exits",
                          dfm_of(n)->name, dfm_of(n)->address, time);
        else
                log_error("the DFM %s at %s has been silent for %s (10 times dfm.node-timeout); this node "
                          "exits",
                          dfm_of(n)->name, dfm_of(n)->address, time);
        return true;
}

static void log_wait(struct node *n, uint64_t now_ns, const struct member *m)
{
        struct membership *s = &n->membership;
        char text[256];

        if (s->remind_ns == 0)
                s->remind_ns = now_ns + WAIT_LOG_NS;
        if (now_ns < s->remind_ns || s->remind_ns == NEVER_NS || m->refusal != WELCOME_OK ||
            member_is_joined(m))
                return;
        membership_describe(n, text, sizeof text);
        log_peer(LOG_LEVEL_INFO, LOG_ID_WAITING, dfm_of(n)->name, "%s", text);
        s->remind_ns = NEVER_NS;
}

bool membership_watch(struct node *n, uint64_t now_ns)
{
        struct membership *s = &n->membership;
        const struct member *m = n->kind->member ? n->kind->member(n) : NULL;

        if (!m || s->lost_dfm || s->rejected)
                return false;
        n->run = m->run;
        log_set_run(n->run);
        log_refusal(n, m);
        log_dfm(n, m);
        log_wait(n, now_ns, m);
        log_silence(n, now_ns, m);
        s->rejected = is_final(n, m->refusal);
        s->lost_dfm = has_lost_dfm(n, now_ns, m);
        s->left_behind = m->refusal == WELCOME_OVER;
        return s->rejected || s->lost_dfm;
}

bool membership_may_come_back(const struct node *n)
{
        return n->membership.lost_dfm || n->membership.left_behind;
}

void membership_reasons(const struct node *n, struct reasons *to)
{
        char text[256];

        if (!n->kind->member)
                return;
        if (n->kind->member(n)->run_stalled)
                reasons_add(to, "the DFM %s ended the run because it made no progress", dfm_of(n)->name);
        if (n->membership.lost_dfm && n->kind->member(n)->refusal == WELCOME_OK) {
                reasons_add(to, "the DFM %s fell silent in run %u", dfm_of(n)->name, n->run);
                return;
        }
        if (!n->membership.rejected && !membership_may_come_back(n))
                return;
        membership_describe(n, text, sizeof text);
        reasons_add(to, "%s", text);
}
