/* Runs one role as a process, from its start to its report. What differs between the roles is in role_dfm.c,
 * role_ros.c and role_sfi.c. */
#include "evb/node/node.h"

#include <errno.h>
#include <string.h>

#include "evb/base/log.h"
#include "evb/base/quantity.h"
#include "evb/base/util.h"
#include "evb/conf/digest.h"
#include "evb/data/socket_open.h"
#include "evb/sys/memory.h"
#include "evb/sys/notify.h"
#include "evb/sys/thread.h"
#include "machine.h"
#include "node_internal.h"
#include "progress/progress.h"
#include "reload/reload.h"
#include "report.h"
#include "log/run_log.h"

/* Intervals at which counters are published and the status is sent to systemd. */
#define ACCOUNT_NS (50 * NS_PER_MS)
#define STATUS_NS NS_PER_S
/* While a node seals its last file, each status asks the service manager for this much more time. */
#define EXTEND_NS (30 * NS_PER_S)
/* Wake-up interval while the fault injector holds datagrams back, because no descriptor announces them. */
#define HOLDING_NS NS_PER_MS

static int prepare_membership(struct node *n)
{
        const struct scenario *s = n->scenario;
        bool has_front_end = n->self->role == ROLE_ROS &&
                             (n->self->source_kind == SOURCE_UDP || n->self->source_kind == SOURCE_TCP);

        n->member = (struct member_config){
                .run = (uint32_t)s->run.number,
                .retry_ns = s->dfm.keep_alive_ns,
                /* Only a ROS that counts its frames must be there from the first one on. */
                .flags = has_front_end && scenario_number_bits(s) == 0 ? JOIN_COUNTS : 0,
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
        histogram_init(&n->stats->latency_ns);
        histogram_init(&n->stats->level2_latency_ns);
        atomic_store(&n->stats->state, NODE_STARTING);
        n->stats->magic = NODE_STATS_MAGIC;
        return 0;
}

static int node_open(struct node *n)
{
        int r;

        r = machine_check(n->self);
        if (r >= 0)
                r = map_stats(n);
        if (r >= 0)
                r = prepare_membership(n);
        if (r < 0)
                return r;
        r = thread_pin(n->self->cpus, MIN(n->self->n_cpus, (size_t)1));
        if (r < 0)
                log_warning_errno(r, "node.cpus: cannot use processor %u: %m", n->self->cpus[0]);
        n->files = calloc(1, sizeof *n->files);
        if (!n->files)
                return log_error_errno(ENOMEM, "node: %m");
        r = loop_new(&n->loop);
        if (r >= 0)
                r = loop_catch_signals(n->loop);
        if (r < 0)
                return log_error_errno(r, "event loop: %m");
        r = control_open(&n->control, n->scenario, n->self, n->member.incarnation, n->stats, n->loop);
        /* Before the role, which may change the priority of this thread. */
        if (r >= 0)
                r = metrics_open(&n->metrics, n->scenario, n->self, n->stats, n->check_only);
        return r < 0 ? r : n->kind->open(n);
}

static void node_close(struct node *n)
{
        if (n->kind && n->state)
                n->kind->close(n);
        metrics_close(n->metrics);
        control_close(&n->control);
        loop_free(n->loop);
        free(n->files);
        if (n->stats)
                memory_unmap(n->stats, sizeof *n->stats);
}

static void account(struct node *n)
{
        static const enum node_state states[] = {
                [RUN_STARTING] = NODE_READY,
                [RUN_RUNNING] = NODE_RUNNING,
                [RUN_DRAINING] = NODE_DRAINING,
                [RUN_ENDED] = NODE_ENDED,
        };

        n->kind->account(n);
        atomic_store_explicit(&n->stats->state, n->is_sealing ? NODE_SEALING : states[n->kind->state(n)],
                              memory_order_relaxed);
}

static void send_status(struct node *n, uint64_t now_ns)
{
        static const char *const prefixes[] = {
                [OBSTACLE_NONE] = "",
                [OBSTACLE_WAIT] = "; waiting: ",
                [OBSTACLE_STALL] = "; stalled: ",
        };
        static const char *const texts[] = {
                [RUN_RUNNING] = "running",
                [RUN_DRAINING] = "draining",
                [RUN_ENDED] = "run over",
        };
        char status[640], why[OBSTACLE_TEXT_MAX + 32];

        progress_text(n, now_ns, why, sizeof why);
        if (n->kind->state(n) == RUN_STARTING) {
                notify_status(why);
                return;
        }
        snprintf(status, sizeof status, "run %u %s: %llu events complete, %llu fragments sent%s%s", n->run,
                 n->is_sealing ? "sealing its last file" : texts[n->kind->state(n)],
                 (unsigned long long)stats_get(&n->stats->events_complete),
                 (unsigned long long)stats_get(&n->stats->fragments_sent), prefixes[n->stall.now.kind], why);
        notify_status(status);
        if (n->is_sealing)
                notify_extend(EXTEND_NS);
}

/* The first signal drains, a second one stops the node immediately. */
static bool stopped_at_once(struct node *n, unsigned *seen, uint64_t now_ns)
{
        unsigned signals = loop_signals(n->loop);

        if (n->hangups < loop_hangups(n->loop)) {
                n->hangups = loop_hangups(n->loop);
                node_reload(n, now_ns, signals > 0);
        }
        if (signals > *seen)
                run_log_signal(n, *seen == 0);
        if (signals > 0 && *seen == 0) {
                n->is_stopped = true;
                notify_stopping("draining");
                n->kind->stop(n, now_ns);
        }
        *seen = signals;
        return signals > 1;
}

static int run_loop(struct node *n)
{
        uint64_t account_ns = 0, status_ns = 0, watchdog_every_ns = notify_watchdog_ns(), watchdog_ns = 0;
        uint64_t now_ns = loop_now_ns(n->loop);
        enum run_state accounted = n->kind->state(n);
        const struct message *m;
        unsigned signals = 0;
        int r;

        progress_init(n, now_ns);
        control_begin_turn(&n->control);
        while (!n->kind->is_done(n, now_ns)) {
                uint64_t deadline_ns = MIN(n->kind->deadline_ns(n), now_ns + STATUS_NS);

                if (watchdog_every_ns != NEVER_NS)
                        deadline_ns = MIN(deadline_ns, watchdog_ns);
                if (control_has_more(&n->control))
                        deadline_ns = 0;
                if (control_is_holding(&n->control))
                        deadline_ns = MIN(deadline_ns, now_ns + HOLDING_NS);
                r = loop_wait(n->loop, deadline_ns);
                if (r < 0)
                        return log_error_errno(r, "waiting for events: %m");
                now_ns = loop_now_ns(n->loop);
                if (stopped_at_once(n, &signals, now_ns))
                        return -EINTR;
                control_begin_turn(&n->control);
                while ((m = control_receive(&n->control)))
                        n->kind->receive(n, now_ns, m);
                r = n->kind->turn(n, now_ns);
                if (r < 0)
                        return r;
                if (membership_watch(n, now_ns)) {
                        n->is_stopped = true;
                        n->kind->stop(n, now_ns);
                }
                /* Publish each change of state: a launcher must see that even a short run has begun. */
                if (now_ns >= account_ns || n->kind->state(n) != accounted) {
                        account(n);
                        progress_watch(n, now_ns);
                        if (n->kind->state(n) != accounted)
                                run_log_state(n, accounted, n->kind->state(n));
                        accounted = n->kind->state(n);
                        account_ns = now_ns + ACCOUNT_NS;
                }
                if (now_ns >= status_ns) {
                        send_status(n, now_ns);
                        log_flush();
                        if (n->ready_unsent)
                                n->ready_unsent = !notify_reloaded();
                        status_ns = now_ns + STATUS_NS;
                }
                if (now_ns >= watchdog_ns && watchdog_every_ns != NEVER_NS) {
                        notify_watchdog();
                        watchdog_ns = now_ns + watchdog_every_ns;
                }
        }
        return 0;
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
        r = node_open(&n);
        node_close(&n);
        return r < 0 ? machine_exit_status(r) : 0;
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
        r = node_open(&n);
        log_set_run(n.run);
        if (r < 0) {
                node_close(&n);
                return machine_exit_status(r);
        }
        atomic_store(&n.stats->state, NODE_READY);
        notify_ready("waiting for the run");
        r = run_loop(&n);
        account(&n);
        if (r < 0)
                reasons_add(&n.reasons,
                            r == -EINTR ? "a second signal stopped it at once" : "it could not continue: %s",
                            strerror(-r));
        membership_reasons(&n, &n.reasons);
        n.kind->reasons(&n, &n.reasons);
        run_log_end(&n);
        /* `evb run` reads the reasons from this node's report, and writes the record of the run. */
        if (!getenv(NODE_STATS_ENV)) {
                report_write_run_file(&n, &n.reasons);
                reasons_log(&n.reasons);
        }
        notify_stopping("run over");
        if (options->json)
                report_write_json(&n, options->json);
        node_close(&n);
        if (r < 0 && r != -EINTR)
                return NODE_STATUS_AGAIN;
        if (membership_may_come_back(&n) && !getenv(NODE_STATS_ENV))
                return NODE_STATUS_AGAIN;
        return n.reasons.n > 0 ? 1 : 0;
}
