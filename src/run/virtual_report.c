/* Presents a simulation as a run: its nodes take the place of child processes. */
#include "run/virtual_report.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>

#include "base/log.h"
#include "run/summary.h"

/* Reports a process that crashed and did not restart as killed. */
static struct child *make_children(const struct sim *sim, const struct scenario *s)
{
        struct child *children = calloc(s->n_nodes, sizeof *children);

        for (uint32_t i = 0; children && i < s->n_nodes; i++) {
                struct sim_node_end end = sim_node_end(sim, i);

                children[i].node = &s->nodes[i];
                children[i].stats = (struct node_stats *)end.stats;
                children[i].status = end.is_dead ? SIGKILL : 0;
        }
        return children;
}

int virtual_report_write(const struct sim *sim, const struct sim_config *config,
                         const struct launch_options *options)
{
        const struct sim_result r = sim_result(sim);
        const struct virtual_run run = {config->seed, r.digest,    r.run,
                                        r.violation,  r.plan_fits, r.port_most_bytes};
        struct launch launch = {
                .options = options,
                .scenario = config->scenario,
                .children = make_children(sim, config->scenario),
                .n_children = config->scenario->n_nodes,
                .end_ns = r.end_ns,
                .has_switch = r.has_switch,
                .at_switch = {.is_exact = true,
                              .dropped_packets = r.port_drops,
                              .lost_packets = r.link_drops},
                .virtual_run = &run,
        };
        int status;

        if (!launch.children) {
                log_error_errno(ENOMEM, "report: %m");
                return 1;
        }
        status = summary_write(&launch);
        free(launch.children);
        return status;
}
