/* Started, watched by the counters, waited for. When they go and stop is told by others. */
#include "evb/traffic/flow_group.h"

#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "evb/base/util.h"
#include "evb/sys/memory.h"

int flow_group_init(struct flow_group *g)
{
        *g = (struct flow_group){.counters = memory_map_shared(sizeof *g->counters)};
        return g->counters ? cpu_meter_new(&g->meter, FLOW_ENDS_MAX, FLOW_ENDS_MAX) : -ENOMEM;
}

void flow_group_fini(struct flow_group *g)
{
        for (unsigned i = 0; i < g->n; i++) {
                if (g->ends[i].pid <= 0)
                        continue;
                kill(g->ends[i].pid, SIGKILL);
                waitpid(g->ends[i].pid, NULL, 0);
        }
        if (g->counters)
                memory_unmap(g->counters, sizeof *g->counters);
        cpu_meter_free(g->meter);
        *g = (struct flow_group){};
}

static _Noreturn void become_end(struct flow_group *g, unsigned i, int namespace, pid_t parent)
{
        sigset_t none;

        prctl(PR_SET_PDEATHSIG, SIGKILL);
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        signal(SIGPIPE, SIG_IGN);
        if (getppid() != parent || (namespace >= 0 && netns_enter(namespace) < 0))
                _exit(1);
        flow_end_run(&g->ends[i].part, g->counters, &g->counters->ends[i]);
        _exit(0);
}

int flow_group_start(struct flow_group *g, const struct flow_part *part, int namespace)
{
        pid_t parent = getpid(), pid;

        if (g->n == FLOW_ENDS_MAX)
                return -E2BIG;
        g->ends[g->n].part = *part;
        pid = fork();
        if (pid < 0)
                return -errno;
        if (pid == 0)
                become_end(g, g->n, namespace, parent);
        (void)cpu_meter_add(g->meter, pid, g->n);
        g->ends[g->n++].pid = pid;
        g->n_senders += part->role == FLOW_SENDER;
        return 0;
}

void flow_group_turn(struct flow_group *g, uint64_t now_ns)
{
        cpu_meter_turn(g->meter, now_ns, atomic_load(&g->counters->state) == FLOW_GO);
}

const struct histogram *flow_group_shares(const struct flow_group *g, unsigned end)
{
        return cpu_meter_shares(g->meter, end);
}

bool flow_group_is_ready(const struct flow_group *g)
{
        return atomic_load(&g->counters->ready) >= g->n;
}

bool flow_group_is_quiet(const struct flow_group *g)
{
        return atomic_load(&g->counters->quiet) >= g->n_senders;
}

void flow_group_set(struct flow_group *g, enum flow_state state)
{
        atomic_store(&g->counters->state, (unsigned)state);
}

bool flow_group_reap(struct flow_group *g)
{
        bool all = true;

        for (unsigned i = 0; i < g->n; i++) {
                struct rusage usage = {};
                int status;

                if (g->ends[i].pid <= 0)
                        continue;
                if (wait4(g->ends[i].pid, &status, WNOHANG, &usage) == 0) {
                        all = false;
                        continue;
                }
                cpu_meter_remove(g->meter, g->ends[i].pid);
                /* Killed by somebody: what it counted is not all. */
                if (WIFSIGNALED(status))
                        atomic_store(&g->counters->failed, (unsigned)EPIPE);
                g->ends[i].pid = 0;
                g->ends[i].cpu_seconds = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                                         (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
        }
        return all;
}

int flow_group_error(const struct flow_group *g)
{
        return -(int)atomic_load(&g->counters->failed);
}
