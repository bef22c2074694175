/* Starts, meters and reaps endpoint processes. flow_phases.c decides when they send and stop. */
#include "traffic/flow_group.h"

#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "base/util.h"
#include "run/netns.h"
#include "sys/loop.h"
#include "sys/memory.h"
#include "sys/priority.h"
#include "traffic/flow_process.h"

int flow_group_init(struct flow_group *g)
{
        *g = (struct flow_group){.shared = memory_map_shared(sizeof *g->shared)};
        return g->shared ? cpu_meter_new(&g->meter, FLOW_ENDPOINTS_MAX, FLOW_ENDPOINTS_MAX) : -ENOMEM;
}

void flow_group_fini(struct flow_group *g)
{
        for (unsigned i = 0; i < g->n; i++) {
                if (g->endpoints[i].pid <= 0)
                        continue;
                kill(g->endpoints[i].pid, SIGKILL);
                waitpid(g->endpoints[i].pid, NULL, 0);
        }
        if (g->shared)
                memory_unmap(g->shared, sizeof *g->shared);
        cpu_meter_free(g->meter);
        *g = (struct flow_group){};
}

static _Noreturn void become_endpoint(struct flow_group *g, unsigned i, int namespace, pid_t parent)
{
        sigset_t none;

        if (g->raised)
                (void)priority_raise();
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        signal(SIGPIPE, SIG_IGN);
        if (getppid() != parent || (namespace >= 0 && netns_enter(namespace) < 0))
                _exit(1);
        flow_process_run(&g->endpoints[i].endpoint, g->shared, &g->shared->counters[i]);
        _exit(0);
}

int flow_group_start(struct flow_group *g, const struct flow_endpoint *endpoint, int namespace)
{
        pid_t parent = getpid(), pid;

        if (g->n == FLOW_ENDPOINTS_MAX)
                return -E2BIG;
        g->endpoints[g->n].endpoint = *endpoint;
        pid = fork();
        if (pid < 0)
                return -errno;
        if (pid == 0)
                become_endpoint(g, g->n, namespace, parent);
        (void)cpu_meter_add(g->meter, pid, g->n);
        machine_watch_add(g->watch, pid);
        g->endpoints[g->n++].pid = pid;
        g->n_senders += endpoint->role == FLOW_SENDER;
        return 0;
}

void flow_group_turn(struct flow_group *g, uint64_t now_ns)
{
        bool active = atomic_load(&g->shared->state) == FLOW_GO;

        cpu_meter_turn(g->meter, now_ns, active);
        machine_watch_turn(g->watch, now_ns, active);
}

const struct histogram *flow_group_shares(const struct flow_group *g, unsigned endpoint)
{
        return cpu_meter_shares(g->meter, endpoint);
}

bool flow_group_is_ready(const struct flow_group *g)
{
        return atomic_load(&g->shared->ready) >= g->n;
}

bool flow_group_is_quiet(const struct flow_group *g)
{
        return atomic_load(&g->shared->quiet) >= g->n_senders;
}

void flow_group_set(struct flow_group *g, enum flow_state state)
{
        atomic_store(&g->shared->state, (unsigned)state);
        if (state == FLOW_GO)
                g->go_ns = clock_now_ns();
        if (state == FLOW_STOP_SENDING)
                g->stop_ns = clock_now_ns();
}

bool flow_group_reap(struct flow_group *g)
{
        bool all = true;

        for (unsigned i = 0; i < g->n; i++) {
                struct rusage usage = {};
                int status;

                if (g->endpoints[i].pid <= 0)
                        continue;
                if (wait4(g->endpoints[i].pid, &status, WNOHANG, &usage) == 0) {
                        all = false;
                        continue;
                }
                cpu_meter_remove(g->meter, g->endpoints[i].pid);
                /* The counters of a killed process are incomplete. */
                if (WIFSIGNALED(status))
                        atomic_store(&g->shared->failed, (unsigned)EPIPE);
                g->endpoints[i].pid = 0;
                g->endpoints[i].cpu_seconds = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                                              (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
        }
        return all;
}

int flow_group_error(const struct flow_group *g)
{
        return -(int)atomic_load(&g->shared->failed);
}
