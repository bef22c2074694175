/* The event loop of a node during one run: messages, the role's turn, signals, and the publication of its
 * state. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/log.h"
#include "base/strbuf.h"
#include "base/util.h"
#include "sys/notify.h"
#include "log/roster.h"
#include "log/run_log.h"
#include "node_internal.h"
#include "progress/progress.h"
#include "reload.h"
#include "run_control/run_control.h"

/* Intervals at which counters are published and the status is sent to systemd. */
#define ACCOUNT_NS (50 * NS_PER_MS)
#define STATUS_NS NS_PER_S
/* While a node seals its last file, or waits for nodes that do so, each status requests this extension from
 * the service manager. */
#define EXTEND_NS (30 * NS_PER_S)
/* Wake-up interval while the fault injector holds datagrams back, because no descriptor reports them. */
#define HOLDING_NS NS_PER_MS
#define STOP_STATUS_MAX (STOP_TEXT_MAX + 32)

void node_account(struct node *n)
{
        static const enum node_state states[] = {
                [RUN_STARTING] = NODE_READY,
                [RUN_RUNNING] = NODE_RUNNING,
                [RUN_DRAINING] = NODE_DRAINING,
                [RUN_ENDED] = NODE_ENDED,
        };

        n->kind->account(n);
        run_control_publish(n->control_of_runs, loop_now_ns(n->loop));
        /* Released after the counters: whoever reads the end of the run reads its last counts. */
        atomic_store_explicit(&n->stats->state, n->is_sealing ? NODE_SEALING : states[n->kind->state(n)],
                              memory_order_release);
}

/* Includes the signal that stopped the node: "stopping: ... (SIGTERM)". */
static void describe_stop(const struct node *n, uint64_t now_ns, char status[static STOP_STATUS_MAX])
{
        char text[STOP_TEXT_MAX], signal[LOOP_SIGNAL_TEXT_MAX];

        loop_describe_signal(n->loop, signal);
        snprintf(status, STOP_STATUS_MAX, "%s (%.*s)", stop_text(n, now_ns, text), (int)strcspn(signal, " "),
                 signal);
}

/* Adds "81234 events complete, 12 partial, 3 lost", or of a ROS "81234 fragments sent". */
static void add_work(const struct node *n, struct strbuf *b)
{
        const struct node_stats *s = n->stats;
        uint64_t fragments = stats_get(&s->fragments_sent), complete = stats_get(&s->events_complete),
                 partial = stats_get(&s->events_partial), lost = stats_get(&s->events_lost);

        if (n->self->role == ROLE_ROS) {
                strbuf_add(b, "%" PRIu64 " fragment%s sent", fragments, fragments == 1 ? "" : "s");
                return;
        }
        strbuf_add(b, "%" PRIu64 " event%s complete", complete, complete == 1 ? "" : "s");
        if (partial > 0)
                strbuf_add(b, ", %" PRIu64 " partial", partial);
        if (lost > 0)
                strbuf_add(b, ", %" PRIu64 " lost", lost);
        if (n->self->role == ROLE_DFM && n->kind->state(n) == RUN_RUNNING)
                roster_add_missing(n, "; without ", b);
}

/* Adds the node at fault, unless the status already says why this DFM is stalled. */
static void add_fault(const struct node *n, struct strbuf *b)
{
        if (n->fault.node[0] && n->stall.now.kind != OBSTACLE_STALL)
                strbuf_add(b, "; %s", n->fault.text);
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
        char status[640 + RUN_REASON_MAX], doing[STOP_STATUS_MAX], why[OBSTACLE_TEXT_MAX + 32];
        struct strbuf b = strbuf_init(status, sizeof status);

        progress_text(n, now_ns, why, sizeof why);
        if (n->stopped_ns > 0)
                describe_stop(n, now_ns, doing);
        if (n->kind->state(n) == RUN_STARTING) {
                strbuf_add(&b, "%s", n->stopped_ns > 0 ? doing : why);
                add_fault(n, &b);
                notify_status(status);
                return;
        }
        if (n->stopped_ns == 0)
                snprintf(doing, sizeof doing, "run %u of %.60s %s", n->run, n->scenario->scenario.name,
                         n->is_sealing ? "sealing its last file" : texts[n->kind->state(n)]);
        strbuf_add(&b, "%s: ", doing);
        add_work(n, &b);
        strbuf_add(&b, "%s%s", prefixes[n->stall.now.kind], why);
        add_fault(n, &b);
        notify_status(status);
        if (n->is_sealing || n->kind->state(n) == RUN_ENDED)
                notify_extend(EXTEND_NS);
}

/* Begins to stop the node. If the run continues, the node may stay in the run for a while. */
static void begin_stop(struct node *n, uint64_t now_ns)
{
        char status[STOP_STATUS_MAX], text[STOP_TEXT_MAX], signal[LOOP_SIGNAL_TEXT_MAX];
        enum run_state state = n->kind->state(n);

        n->is_stopped = true;
        node_record_stop(n, "signal", loop_describe_signal(n->loop, signal));
        n->stopped_ns = now_ns;
        n->stop_timeout_ns = n->scenario->run.stop_timeout_ns;
        n->kind->stop(n, now_ns);
        run_log_signal(n, true);
        describe_stop(n, now_ns, status);
        notify_stopping(status);
        if (state != RUN_STARTING)
                log_info("%s; a second signal stops it at once", stop_text(n, now_ns, text));
}

/* The first signal drains the node; a second one stops it immediately. */
static bool stopped_at_once(struct node *n, unsigned *seen, uint64_t now_ns)
{
        unsigned signals = loop_signals(n->loop);

        if (n->hangups < loop_hangups(n->loop)) {
                n->hangups = loop_hangups(n->loop);
                node_reload(n, now_ns, signals > 0);
        }
        if (signals > 0 && *seen == 0)
                begin_stop(n, now_ns);
        else if (signals > *seen)
                run_log_signal(n, false);
        *seen = signals;
        return signals > 1;
}

/* Reads the fault that the thread of the page has found. */
static bool reads_another_fault(struct node *n)
{
        struct run_fault before = n->fault;

        metrics_read_fault(n->metrics, &n->fault);
        return !run_fault_is_same(&before, &n->fault);
}

int node_loop(struct node *n)
{
        uint64_t account_ns = 0, status_ns = 0, watchdog_every_ns = notify_watchdog_ns(), watchdog_ns = 0;
        uint64_t now_ns = loop_now_ns(n->loop);
        enum run_state accounted = n->kind->state(n);
        const struct message *m;
        unsigned signals = 0;
        int r;

        n->turn_ns = 0;
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
                run_control_turn(n->control_of_runs, now_ns);
                r = n->kind->turn(n, now_ns);
                if (r < 0)
                        return r;
                if (membership_watch(n, now_ns)) {
                        n->is_stopped = true;
                        n->kind->stop(n, now_ns);
                }
                /* Each change of state is published, so that a launcher notices that even a short run has
                 * begun. */
                if (now_ns >= account_ns || n->kind->state(n) != accounted) {
                        node_account(n);
                        progress_watch(n, now_ns);
                        if (n->kind->state(n) != accounted)
                                run_log_state(n, accounted, n->kind->state(n));
                        accounted = n->kind->state(n);
                        account_ns = now_ns + ACCOUNT_NS;
                        if (reads_another_fault(n))
                                status_ns = now_ns;
                }
                if (now_ns >= status_ns) {
                        run_log_fault(n);
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
