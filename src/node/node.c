/* Runs one role as a process, from its start to its report. With control.listen, it serves one run after
 * another: sockets for control messages, metrics and run control, and connections to boards, stay open, and
 * everything else is created again for each run. The differences between the roles are in role_dfm.c,
 * role_ros.c and role_sfi.c. */
#include "node/node.h"

#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "conf/digest.h"
#include "core/dfm.h"
#include "data/front_end.h"
#include "data/socket_open.h"
#include "sys/memory.h"
#include "sys/notify.h"
#include "sys/thread.h"
#include "machine.h"
#include "node_internal.h"
#include "node_report.h"
#include "log/run_log.h"
#include "run_control/run_control.h"
#include "shaping.h"

static int prepare_membership(struct node *n)
{
        const struct scenario *s = n->scenario;
        bool has_front_end = n->self->role == ROLE_ROS &&
                             (n->self->source_kind == SOURCE_UDP || n->self->source_kind == SOURCE_TCP);

        n->member = (struct member_config){
                .run = (uint32_t)s->run.number,
                .retry_ns = s->dfm.keep_alive_ns,
                /* Only a ROS that counts its frames must be present from the first frame. */
                .flags = has_front_end && scenario_number_period(s, n->self) == 0 ? JOIN_COUNTS : 0,
        };
        scenario_digest(s, &n->member.keys);
        return node_draw_number(&n->member.incarnation);
}

static int map_stats(struct node *n)
{
        const char *inherited = getenv(NODE_STATS_ENV);
        int r, fd = -1;
        void *memory;

        if (inherited)
                r = memory_share_map(atoi(inherited), sizeof *n->stats, &memory);
        else
                r = memory_share_new("evb-stats", sizeof *n->stats, &fd, &memory);
        if (r < 0)
                return log_error_errno(r, "mapping the counters: %m");
        if (fd >= 0)
                close(fd);
        n->stats = memory;
        stats_begin_run(n->stats);
        n->stats->magic = NODE_STATS_MAGIC;
        return 0;
}

/* Must be called before any socket is opened. */
static void poll_busily(struct node *n)
{
        uint64_t poll_ns = n->scenario->network.busy_poll_ns;

        loop_set_poll(n->loop, poll_ns);
        socket_set_busy_poll(poll_ns);
}

/* Opens the parts that the process keeps for all of its runs. */
static int open_process(struct node *n)
{
        int r;

        /* Then a limit of the size of files is an error instead of a signal, also for the counters. */
        r = loop_new(&n->loop);
        if (r >= 0)
                r = loop_catch_signals(n->loop);
        if (r < 0)
                return log_error_errno(r, "event loop: %m");
        if (n->self->cpus_auto) {
                n->own = *n->self;
                machine_share_processors(n->scenario, &n->own);
                n->self = &n->own;
        }
        r = machine_check(n->self);
        if (r >= 0)
                r = map_stats(n);
        if (r < 0)
                return r;
        r = thread_pin(n->self->cpus, MIN(n->self->n_cpus, (size_t)1));
        if (r < 0)
                log_warning_errno(r, "node.cpus: cannot use processor %u: %m", n->self->cpus[0]);
        poll_busily(n);
        r = control_open(&n->control, n->scenario, n->self, n->stats, n->loop);
        /* Opens run control before the role, which may change the priority of this thread. */
        if (r >= 0)
                r = run_control_open(&n->control_of_runs, n);
        return r < 0 ? r
                     : metrics_open(&n->metrics, n->scenario, n->self, n->stats,
                                    run_control_http(n->control_of_runs), n->check_only);
}

/* The node has a different incarnation in each run, so a late message of one run does not affect the next. */
static int open_run(struct node *n)
{
        const struct scenario *s = n->scenario;
        int r = prepare_membership(n);

        if (r < 0)
                return r;
        n->control.incarnation = n->member.incarnation;
        n->run = 0;
        n->membership = (struct membership){};
        n->is_sealing = n->ended_by_stall = n->ended_by_previous = n->has_begun = n->is_stopped = false;
        n->stop = (struct run_list_stop){};
        n->reasons = (struct reasons){};
        file_list_clear(&n->files);
        memcpy(n->metadata, s->metadata, sizeof n->metadata);
        n->n_metadata = s->n_metadata;
        return n->kind->open(n);
}

static void close_run(struct node *n)
{
        report_free_run_file(n);
        if (n->kind && n->state)
                n->kind->close(n);
        n->state = n->core = NULL;
}

static int node_open(struct node *n)
{
        int r = open_process(n);

        return r < 0 ? r : open_run(n);
}

static void node_close(struct node *n)
{
        n->goes_on = false;
        run_control_shut(n->control_of_runs);
        close_run(n);
        shaping_free(n->shaping);
        front_end_free(n->front_end);
        metrics_close(n->metrics);
        run_control_close(n->control_of_runs);
        control_close(&n->control);
        loop_free(n->loop);
        file_list_clear(&n->files);
        if (n->stats)
                memory_unmap(n->stats, sizeof *n->stats);
}

static const struct node_kind *kind_of(enum node_role role)
{
        return role == ROLE_DFM ? &node_dfm : role == ROLE_ROS ? &node_ros : &node_sfi;
}

int node_check(const struct node_options *options)
{
        struct node n = {
                .scenario = options->scenario,
                .self = scenario_find(options->scenario, options->name),
                .check_only = true,
        };
        int r;

        socket_open_at_once();
        n.kind = kind_of(n.self->role);
        memory_return_large_blocks();
        r = node_open(&n);
        node_close(&n);
        return r < 0 ? machine_exit_status(r) : 0;
}

/* Whether another run follows in this process. A signal or the DFM may prevent this. */
static bool goes_on(const struct node *n, int r)
{
        const struct membership *m = &n->membership;

        return r >= 0 && node_stays(n) && !n->is_stopped && loop_signals(n->loop) == 0 && !m->lost_dfm &&
               !m->rejected;
}

/* If the run that a node waited for did not begin, a node that serves several runs has nothing to report. */
static bool is_run(const struct node *n, int r)
{
        if (n->self->role == ROLE_DFM && dfm_is_in_run(n->core))
                return true;
        return r < 0 || !node_stays(n) || n->has_begun || n->membership.lost_dfm || n->membership.rejected;
}

/* Reports a finished run, in the log and as JSON. */
static void end_run(struct node *n, int r, FILE *json)
{
        if (n->kind->end)
                n->kind->end(n, clock_now_ns());
        node_account(n);
        if (!is_run(n, r))
                return;
        if (r < 0)
                reasons_add(&n->reasons,
                            r == -EINTR ? "a second signal stopped it at once" : "it could not continue: %s",
                            strerror(-r));
        membership_reasons(n, &n->reasons);
        n->kind->reasons(n, &n->reasons);
        run_log_end(n);
        (void)report_write_run_file(n, true);
        /* `evb run` reads the reasons from this node's report. */
        if (!getenv(NODE_STATS_ENV))
                reasons_log(&n->reasons);
        n->runs++;
        n->fell_short |= n->reasons.n > 0;
        run_control_record_end(n->control_of_runs);
        if (json)
                report_write_json(n, json);
}

/* Returns 0 once the next run is open. */
static int turn_to_next_run(struct node *n)
{
        int r;

        n->goes_on = true;
        close_run(n);
        n->goes_on = false;
        metrics_begin_run(n->metrics);
        if (!n->metrics)
                stats_begin_run(n->stats);
        r = open_run(n);
        log_set_run(n->run);
        if (r >= 0) {
                atomic_store(&n->stats->state, NODE_READY);
                notify_status("waiting for the next run");
        }
        return r;
}

static int exit_status(const struct node *n, int r)
{
        /* A DFM that has no number can begin no run. */
        if (r < 0 && r != -EINTR)
                return n->self->role == ROLE_DFM && n->run == 0 ? machine_exit_status(r) : NODE_STATUS_AGAIN;
        if (membership_may_come_back(n) && !getenv(NODE_STATS_ENV))
                return NODE_STATUS_AGAIN;
        return n->fell_short ? 1 : 0;
}

/* The service manager shows this status also after the process has ended. */
static void notify_over(const struct node *n)
{
        char text[REASON_TEXT_MAX + 16];

        snprintf(text, sizeof text, "run over%s%s", n->reasons.n > 0 ? ": " : "",
                 n->reasons.n > 0 ? n->reasons.text[0] : "");
        notify_stopping(text);
}

static int serve_runs(struct node *n, FILE *json)
{
        int r;

        for (;;) {
                r = node_loop(n);
                end_run(n, r, json);
                if (!goes_on(n, r))
                        break;
                r = turn_to_next_run(n);
                /* The node was stopped while the next run waited for its addresses, so the results of the
                 * earlier runs count. */
                if (r < 0)
                        return r == -ECANCELED ? exit_status(n, 0) : machine_exit_status(r);
        }
        notify_over(n);
        /* A second signal ends the node at once. */
        if (r >= 0)
                run_control_linger(n->control_of_runs);
        return exit_status(n, r);
}

int node_run(const struct node_options *options)
{
        struct node n = {
                .scenario = options->scenario,
                .self = scenario_find(options->scenario, options->name),
                .source = options->source,
        };
        int r;

        if (!n.self) {
                log_error("%s has no node \"%s\"", options->scenario->path, options->name);
                return 2;
        }
        n.kind = kind_of(n.self->role);
        memory_return_large_blocks();
        r = node_open(&n);
        log_set_run(n.run);
        if (r < 0) {
                node_close(&n);
                return machine_exit_status(r);
        }
        atomic_store(&n.stats->state, NODE_READY);
        n.has_served = true;
        notify_ready("waiting for the run");
        r = serve_runs(&n, options->json);
        node_close(&n);
        return r;
}
