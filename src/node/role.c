/* Helpers of role_dfm.c, role_ros.c and role_sfi.c, which node.c runs: the data path's context, due messages,
 * a node's stop, and random numbers. */
#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>

#include "evb/base/log.h"
#include "evb/base/util.h"
#include "node_internal.h"

/* A node that is stopped before the run stays this long, because the run may be beginning. */
#define LINGER_NS NS_PER_S

struct data_context node_data_context(const struct node *n)
{
        return (struct data_context){
                .scenario = n->scenario,
                .self = n->self,
                .nodes = &n->control.nodes,
                .stats = n->stats,
                .loop = n->loop,
        };
}

void node_ros_rules(const struct scenario *s, struct ros_rule rules[static EVB_ROS_MAX])
{
        for (const struct scenario_node *n = s->nodes; n < s->nodes + s->n_nodes; n++) {
                if (n->role == ROLE_ROS)
                        rules[n->index] = (struct ros_rule){
                                .optional = !n->required,
                                .wait_ns = n->wait_ns,
                                .frames = scenario_has_front_end(n),
                                .leads = scenario_leads(s, n),
                        };
        }
}

uint64_t node_ros_wait_ns(const struct scenario *s, const struct scenario_node *n)
{
        return n->wait_ns > 0 ? n->wait_ns : s->ros.wait_ns > 0 ? s->ros.wait_ns : s->sfi.timeout_ns / 4 * 3;
}

uint64_t node_frame_wait_ns(const struct scenario *s)
{
        uint64_t longest_ns = 0;

        if (!scenario_has_front_ends(s))
                return 0;
        for (const struct scenario_node *n = s->nodes; n < s->nodes + s->n_nodes; n++) {
                if (n->role == ROLE_ROS)
                        longest_ns = MAX(longest_ns, node_ros_wait_ns(s, n));
        }
        return longest_ns;
}

void node_send_due(struct node *n, void *core, node_step step, uint64_t now_ns)
{
        struct message_to to;

        while (step(core, now_ns, &to, &n->message))
                control_send(&n->control, to, &n->message, n->self->index);
        control_flush(&n->control);
}

void node_log_stop(uint64_t heard_dfm_ns)
{
        if (heard_dfm_ns > 0)
                log_info("stopping: serving until the DFM has ended the run; a second signal stops at "
                         "once");
}

uint64_t node_leave_ns(const struct node *n, uint64_t stopped_ns, uint64_t heard_dfm_ns, enum run_state run)
{
        const struct scenario *s = n->scenario;

        if (stopped_ns == NEVER_NS || heard_dfm_ns == 0)
                return stopped_ns;
        if (run == RUN_STARTING)
                return stopped_ns + LINGER_NS;
        return MAX(stopped_ns,
                   MIN(stopped_ns + s->run.stop_timeout_ns, heard_dfm_ns + s->dfm.node_timeout_ns));
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
