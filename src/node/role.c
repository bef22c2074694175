/* Helpers of role_dfm.c, role_ros.c and role_sfi.c, which node.c runs: the context of the data path, due
 * messages, the time at which a stopped node leaves, and random numbers. */
#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>

#include "base/log.h"
#include "base/util.h"
#include "node_internal.h"

/* If a node is stopped before the run begins, it stays this long, because the run may already be
 * beginning. */
#define LINGER_NS NS_PER_S
/* A node normally has a turn in each keep-alive interval. If it had none in this many of them, it was
 * suspended. */
#define AWAY_KEEP_ALIVES 3

struct data_context node_data_context(const struct node *n)
{
        return (struct data_context){
                .scenario = n->scenario,
                .self = n->self,
                .nodes = &n->control.nodes,
                .stats = n->stats,
                .loop = n->loop,
                .check_only = n->check_only,
        };
}

void node_record_stop(struct node *n, const char *how, const char *who)
{
        if (n->stop.how[0])
                return;
        snprintf(n->stop.how, sizeof n->stop.how, "%s", how);
        snprintf(n->stop.who, sizeof n->stop.who, "%s", who);
}

void node_send_due(struct node *n, void *core, node_step step, uint64_t now_ns)
{
        struct message_to to;

        while (step(core, now_ns, &to, &n->message))
                control_send(&n->control, to, &n->message, n->self->index);
        control_flush(&n->control);
}

uint64_t node_leave_ns(const struct node *n, uint64_t stopped_ns, uint64_t received_dfm_ns,
                       enum run_state run)
{
        const struct scenario *s = n->scenario;

        if (stopped_ns == NEVER_NS || received_dfm_ns == 0)
                return stopped_ns;
        if (run == RUN_STARTING)
                return stopped_ns + LINGER_NS;
        return MAX(stopped_ns,
                   MIN(stopped_ns + s->run.stop_timeout_ns, received_dfm_ns + s->dfm.node_timeout_ns));
}

void node_add_metadata(struct node *n, const struct metadata_set *set)
{
        for (uint16_t i = 0; i < set->n; i++) {
                const struct metadata_entry *e = &set->entries[i];
                const char *why = scenario_metadata_put(n->metadata, &n->n_metadata, e->name, e->value);

                if (why)
                        log_warning("the DFM sent metadata that this node does not take: %s", why);
        }
}

uint64_t node_absence_ns(struct node *n, uint64_t now_ns, const char *timeouts)
{
        static const char *const names[] = {[ROLE_DFM] = "DFM", [ROLE_ROS] = "ROS", [ROLE_SFI] = "SFI"};
        uint64_t away_ns = n->turn_ns > 0 ? now_ns - n->turn_ns : 0;

        n->turn_ns = now_ns;
        if (away_ns < AWAY_KEEP_ALIVES * n->scenario->dfm.keep_alive_ns)
                return 0;
        if (n->membership.dfm_silent_ns > 0)
                n->membership.dfm_silent_ns = MIN(n->membership.dfm_silent_ns + away_ns, now_ns);
        log_warning("this %s was suspended for %.1f s; the timeouts of %s are extended by that",
                    names[n->self->role], (double)away_ns / NS_PER_S, timeouts);
        return away_ns;
}

bool node_stays(const struct node *n)
{
        return n->scenario->control.kind != CONTROL_NONE && !getenv(NODE_STATS_ENV) && !n->check_only;
}

int node_draw_number(uint64_t *ret)
{
        do {
                if (getrandom(ret, sizeof *ret, 0) != sizeof *ret)
                        return log_error_errno(errno, "random numbers: %m");
        } while (*ret == 0);
        return 0;
}
