/* Describes what a stopped node waits for. The roles apply the same limits when they decide; see
 * node_leave_ns(). */
#include "run_log.h"

#include "base/util.h"

/* For a DFM, the limit that applied when it was stopped stays in force. */
static uint64_t limit_ns(const struct node *n)
{
        return n->stopped_ns +
               (n->self->role == ROLE_DFM ? n->stop_timeout_ns : n->scenario->run.stop_timeout_ns);
}

/* Returns the verb for a run that continues. */
static const char *verb_of(enum node_role role)
{
        if (role == ROLE_DFM)
                return "finishes the open events of";
        return role == ROLE_SFI ? "takes no new events, and finishes its open ones in" : "serves";
}

const char *stop_text(const struct node *n, uint64_t now_ns, char text[static STOP_TEXT_MAX])
{
        uint64_t limit = limit_ns(n), left_ns = limit - MIN(now_ns, limit);
        enum run_state state = n->kind->state(n);
        char run[SCENARIO_RUN_MAX];

        scenario_run_name(n->scenario, n->run, run);
        if (n->is_sealing)
                snprintf(text, STOP_TEXT_MAX, "stopping: seals its last file of %s", run);
        else if (state == RUN_STARTING)
                snprintf(text, STOP_TEXT_MAX, "stopping: leaves before a run");
        else if (state == RUN_ENDED)
                snprintf(text, STOP_TEXT_MAX, "stopping: %s has ended", run);
        else
                snprintf(text, STOP_TEXT_MAX, "stopping: %s %s%s, at most %llu s longer",
                         verb_of(n->self->role), run, n->self->role == ROLE_ROS ? " until it ends" : "",
                         (unsigned long long)((left_ns + NS_PER_S - 1) / NS_PER_S));
        return text;
}
