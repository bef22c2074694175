/* Streams between namespaces: their processes are started together, and ended whatever happens. What each process does is
 * in flow_ends.c. */
#include "evb/lab/flows.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "evb/base/log.h"
#include "evb/base/util.h"
#include "evb/sys/loop.h"
#include "evb/sys/memory.h"
#include "flow_ends.h"

#define WARM_NS NS_PER_S
#define SETTLE_NS (300 * NS_PER_MS)
#define PATIENCE_NS (8 * NS_PER_S)
#define ENDS_MAX (FLOWS_MAX * (FLOW_RECEIVERS_MAX + 2))

struct ends {
        struct flow_page *page;
        struct {
                pid_t pid;
                struct flow_end *end;
                bool sender;
                unsigned flow;
        } all[ENDS_MAX];
        unsigned n;
};

static int start(struct ends *e, const struct flow *f, unsigned flow, int namespace, void (*run)(const struct flow *, struct flow_page *, struct flow_end *, unsigned),
                 unsigned which, struct flow_end *end)
{
        pid_t parent = getpid(), pid = fork();

        if (pid < 0)
                return -errno;
        if (pid == 0) {
                sigset_t none;

                prctl(PR_SET_PDEATHSIG, SIGKILL);
                sigemptyset(&none);
                sigprocmask(SIG_SETMASK, &none, NULL);
                signal(SIGPIPE, SIG_IGN);
                if (getppid() != parent || netns_enter(namespace) < 0)
                        _exit(1);
                run(f, e->page, end, which);
                _exit(0);
        }
        e->all[e->n].pid = pid;
        e->all[e->n].end = end;
        e->all[e->n].flow = flow;
        e->all[e->n++].sender = run == flow_send;
        return 0;
}

static void wait_ns(uint64_t ns)
{
        struct timespec t = {.tv_sec = (time_t)(ns / NS_PER_S), .tv_nsec = (long)(ns % NS_PER_S)};

        while (nanosleep(&t, &t) < 0 && errno == EINTR)
                ;
}

/* Receivers listen before anyone sends. */
static bool all_ready(const struct ends *e)
{
        uint64_t until_ns = clock_now_ns() + PATIENCE_NS;

        while (atomic_load(&e->page->ready) < e->n) {
                if (clock_now_ns() > until_ns)
                        return false;
                wait_ns(NS_PER_MS);
        }
        return true;
}

static void collect(struct ends *e, struct flow_result *results)
{
        uint64_t until_ns = clock_now_ns() + PATIENCE_NS;

        for (unsigned i = 0; i < e->n; i++) {
                struct flow_result *r = &results[e->all[i].flow];
                struct rusage usage = {};
                double cpu;
                int status;

                while (wait4(e->all[i].pid, &status, WNOHANG, &usage) == 0) {
                        if (clock_now_ns() > until_ns)
                                kill(e->all[i].pid, SIGKILL);
                        wait_ns(NS_PER_MS);
                }
                cpu = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) + (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
                *(e->all[i].sender ? &r->sender_cpu_seconds : &r->receiver_cpu_seconds) += cpu;
        }
}

static int start_all(struct ends *e, const struct flow *flows, unsigned n)
{
        int r = 0;

        for (unsigned i = 0; r >= 0 && i < n; i++) {
                const struct flow *f = &flows[i];

                for (unsigned k = 0; r >= 0 && k < f->n_to; k++)
                        r = start(e, f, i, f->to[k], flow_receive, k, &e->page->receivers[i][k]);
                if (r >= 0 && f->watch_wire)
                        r = start(e, f, i, f->to[0], flow_watch, 0, &e->page->watchers[i]);
                if (r >= 0)
                        r = start(e, f, i, f->from, flow_send, 0, &e->page->senders[i]);
        }
        return r;
}

int flows_run(const struct flow *flows, unsigned n, double seconds, struct flow_result *results)
{
        struct ends e = {.page = memory_map_shared(sizeof *e.page)};
        int r;

        if (!e.page)
                return log_error_errno(ENOMEM, "lab: %m");
        memset(results, 0, n * sizeof *results);
        r = start_all(&e, flows, n);
        if (r >= 0 && !all_ready(&e))
                r = -ETIMEDOUT;
        if (r >= 0) {
                /* What is counted of TCP begins when it is in its stride; of UDP, all that is sent and received. */
                if (flows[0].kind == FLOW_TCP) {
                        atomic_store(&e.page->state, FLOW_WARM);
                        wait_ns(WARM_NS);
                }
                atomic_store(&e.page->state, FLOW_GO);
                wait_ns((uint64_t)(seconds * 1e9));
        }
        atomic_store(&e.page->state, FLOW_STOP_SENDING);
        wait_ns(SETTLE_NS);
        atomic_store(&e.page->state, FLOW_END);
        collect(&e, results);
        for (unsigned i = 0; i < n; i++) {
                results[i].seconds = seconds;
                results[i].sending_seconds = seconds + (flows[0].kind == FLOW_TCP ? (double)WARM_NS / 1e9 : 0);
                results[i].sent_messages = e.page->senders[i].messages;
                results[i].sent_bytes = e.page->senders[i].bytes;
                results[i].gaps_ns = e.page->watchers[i].gaps_ns;
                for (unsigned k = 0; k < flows[i].n_to; k++) {
                        results[i].received_messages[k] = e.page->receivers[i][k].messages;
                        results[i].received_bytes[k] = e.page->receivers[i][k].bytes;
                }
                if (r >= 0 && atomic_load(&e.page->failed))
                        r = -(int)atomic_load(&e.page->failed);
        }
        memory_unmap(e.page, sizeof *e.page);
        return r < 0 ? log_error_errno(r, "lab: a stream could not run: %m") : 0;
}
