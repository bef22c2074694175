/* Forks and executes a node, reaps it and collects its report. launch.c decides when it stops. */
#include "run/child.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/util.h"
#include "run/testbed.h"
#include "sys/loop.h"
#include "sys/memory.h"
#include "sys/thread.h"

#define REPORT_MAX_BYTES (4u << 20)
/* Program, role, --config FILE, --node NAME, --json and the terminating NULL. */
#define WORDS_BESIDE_SETTINGS 8

enum node_state child_state(const struct child *c)
{
        return (enum node_state)atomic_load(&c->stats->state);
}

double child_cpu_seconds(const struct child *c)
{
        return (double)(c->usage.ru_utime.tv_sec + c->usage.ru_stime.tv_sec) +
               (double)(c->usage.ru_utime.tv_usec + c->usage.ru_stime.tv_usec) / 1e6;
}

/* Reads the report. The limit protects the launcher's memory from a faulty node. */
static void report_is_ready(void *ctx, uint32_t events)
{
        struct child *c = ctx;
        char buffer[4096];
        ssize_t n;

        (void)events;
        while ((n = read(c->report_io.fd, buffer, sizeof buffer)) > 0) {
                if (c->report_bytes + (size_t)n > REPORT_MAX_BYTES)
                        continue;
                if (c->report_bytes + (size_t)n > c->report_size) {
                        char *grown = realloc(c->report, 2 * (c->report_bytes + (size_t)n));

                        if (!grown)
                                continue;
                        c->report = grown;
                        c->report_size = 2 * (c->report_bytes + (size_t)n);
                }
                memcpy(c->report + c->report_bytes, buffer, (size_t)n);
                c->report_bytes += (size_t)n;
        }
        if (n == 0)
                loop_remove(c->loop, &c->report_io);
}

static void exit_is_ready(void *ctx, uint32_t events)
{
        struct child *c = ctx;

        (void)events;
        if (wait4(c->pid, &c->status, WNOHANG, &c->usage) != c->pid)
                return;
        loop_remove(c->loop, &c->exit_io);
        c->running = false;
        /* The pipe may still contain data. */
        report_is_ready(c, 0);
        c->ended(c->ctx, c);
}

/* Runs in the child between fork and exec. */
static _Noreturn void become_node(const struct child *c, const struct child_command *command,
                                  const char **words, int out, pid_t parent)
{
        char stats[16];
        sigset_t stops;

        if (command->raised)
                (void)priority_raise();
        setpgid(0, 0);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
                _exit(1);
        if (command->namespace >= 0 && netns_enter(command->namespace) < 0)
                _exit(77);
        /* Keeps a stop signal pending until the node can drain. */
        sigemptyset(&stops);
        sigaddset(&stops, SIGTERM);
        sigaddset(&stops, SIGINT);
        sigaddset(&stops, SIGHUP);
        sigprocmask(SIG_SETMASK, &stops, NULL);
        signal(SIGPIPE, SIG_DFL);
        /* The child's process group is not in the foreground. Without this, the child would be suspended when
         * it logs after `stty tostop`. */
        signal(SIGTTOU, SIG_IGN);
        dup2(out, STDOUT_FILENO);
        fcntl(c->stats_fd, F_SETFD, 0);
        snprintf(stats, sizeof stats, "%d", c->stats_fd);
        setenv(NODE_STATS_ENV, stats, 1);
        if (log_level_for_children())
                setenv("EVB_LOG", log_level_for_children(), 1);
        else
                setenv("EVB_LOG", "warning", 0);
        unsetenv("NOTIFY_SOCKET");
        unsetenv("WATCHDOG_USEC");
        execv(command->program, (char **)(uintptr_t)words);
        fprintf(stderr, "%s: cannot start %s: %s\n", c->node->name, command->program, strerror(errno));
        _exit(127);
}

/* Builds "evb ros --config FILE --node NAME --set KEY=VALUE... --json". */
static const char **command_line(const struct child *c, const struct child_command *command)
{
        const char **words = calloc(WORDS_BESIDE_SETTINGS + 2 * command->n_settings, sizeof *words);
        const char *const first[] = {"evb",      scenario_role_name(c->node->role),
                                     "--config", command->config,
                                     "--node",   c->node->name};
        size_t n = ARRAY_SIZE(first);

        if (!words)
                return NULL;
        memcpy(words, first, sizeof first);
        for (size_t i = 0; i < command->n_settings; i++) {
                words[n++] = "--set";
                words[n++] = command->settings[i];
        }
        words[n] = "--json";
        return words;
}

/* Only the reading end is non-blocking. A node that writes waits until its whole report is read. */
static int make_pipe(int ret[static 2])
{
        if (pipe2(ret, O_CLOEXEC) < 0)
                return -errno;
        return fcntl(ret[0], F_SETFL, O_NONBLOCK) < 0 ? -errno : 0;
}

static int watch(struct child *c)
{
        int r;

        c->running = true;
        c->exit_io = (struct loop_io){
                .fd = pidfd_open(c->pid, 0), .events = EPOLLIN, .ready = exit_is_ready, .ctx = c};
        r = c->exit_io.fd < 0 ? -errno : loop_add(c->loop, &c->exit_io);
        if (r >= 0)
                r = loop_add(c->loop, &c->report_io);
        return r < 0 ? log_error_errno(r, "cannot watch %s: %m", c->node->name) : 0;
}

int child_start(struct child *c, const struct child_command *command)
{
        _cleanup_free_ const char **words = command_line(c, command);
        pid_t parent = getpid();
        int out[2], r;
        void *shared;

        c->exit_io.fd = c->report_io.fd = c->stats_fd = -1;
        if (!words)
                return log_error_errno(ENOMEM, "cannot start %s: %m", c->node->name);
        r = memory_share_new(c->node->name, sizeof *c->stats, &c->stats_fd, &shared);
        if (r < 0)
                return log_error_errno(r, "%s: cannot make shared memory for counters: %m", c->node->name);
        c->stats = shared;
        r = make_pipe(out);
        if (r < 0)
                return log_error_errno(r, "%s: cannot make a pipe: %m", c->node->name);
        c->pid = fork();
        if (c->pid == 0)
                become_node(c, command, words, out[1], parent);
        r = c->pid < 0 ? -errno : 0;
        close(out[1]);
        c->report_io = (struct loop_io){.fd = out[0], .events = EPOLLIN, .ready = report_is_ready, .ctx = c};
        return r < 0 ? log_error_errno(r, "cannot start %s: %m", c->node->name) : watch(c);
}

void child_fini(struct child *c)
{
        if (c->running) {
                kill(c->pid, SIGKILL);
                waitpid(c->pid, NULL, 0);
                loop_remove(c->loop, &c->exit_io);
                loop_remove(c->loop, &c->report_io);
        }
        if (c->exit_io.fd > 0)
                close(c->exit_io.fd);
        if (c->report_io.fd > 0)
                close(c->report_io.fd);
        if (c->stats) {
                memory_unmap(c->stats, sizeof *c->stats);
                if (c->stats_fd >= 0)
                        close(c->stats_fd);
        }
        free(c->report);
        *c = (struct child){.exit_io.fd = -1, .report_io.fd = -1, .stats_fd = -1};
}

bool child_lived(const struct child *c)
{
        return WIFEXITED(c->status) && WEXITSTATUS(c->status) <= 1;
}

#define QUANTILES 1000u
#define READINGS_MAX 5
#define APART_NS (50 * NS_PER_US)

struct reading {
        uint64_t used_ns, at_ns; /* at 0: the process has exited */
};

struct metered {
        pid_t pid;
        clockid_t clock;
        size_t group;
        struct reading begin; /* start of the interval */
};

struct cpu_meter {
        struct metered *processes;
        struct histogram *shares;
        size_t n, n_max, n_groups;
        uint64_t end_ns; /* end of the interval */
        bool was_active;
};

int cpu_meter_new(struct cpu_meter **ret, size_t processes, size_t groups)
{
        struct cpu_meter *m = calloc(1, sizeof *m);

        if (m) {
                m->processes = calloc(processes, sizeof *m->processes);
                m->shares = calloc(groups, sizeof *m->shares);
                m->n_max = processes;
                m->n_groups = groups;
        }
        if (!m || !m->processes || !m->shares) {
                cpu_meter_free(m);
                return -ENOMEM;
        }
        for (size_t i = 0; i < groups; i++)
                histogram_init(&m->shares[i]);
        *ret = m;
        return 0;
}

struct cpu_meter *cpu_meter_free(struct cpu_meter *m)
{
        if (!m)
                return NULL;
        free(m->processes);
        free(m->shares);
        free(m);
        return NULL;
}

/* Reads both clocks close together. A preemption between the two readings would distort the share. */
static struct reading read_clocks(clockid_t clock)
{
        struct reading r = {};

        for (unsigned i = 0; i < READINGS_MAX; i++) {
                uint64_t before_ns = clock_now_ns();
                struct timespec t;

                if (clock_gettime(clock, &t) < 0)
                        return (struct reading){};
                r = (struct reading){(uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec, clock_now_ns()};
                if (r.at_ns - before_ns <= APART_NS)
                        break;
        }
        return r;
}

int cpu_meter_add(struct cpu_meter *m, pid_t pid, size_t group)
{
        struct metered p = {.pid = pid, .group = group};
        int r = clock_getcpuclockid(pid, &p.clock);

        assert(group < m->n_groups);
        if (r != 0)
                return -r;
        if (m->n == m->n_max)
                return -ENOSPC;
        p.begin = read_clocks(p.clock);
        m->processes[m->n++] = p;
        return 0;
}

void cpu_meter_remove(struct cpu_meter *m, pid_t pid)
{
        for (size_t i = 0; i < m->n; i++) {
                if (m->processes[i].pid == pid)
                        m->processes[i--] = m->processes[--m->n];
        }
}

void cpu_meter_restart(struct cpu_meter *m)
{
        for (size_t i = 0; i < m->n; i++)
                m->processes[i].begin = read_clocks(m->processes[i].clock);
}

void cpu_meter_sample(struct cpu_meter *m)
{
        for (size_t i = 0; i < m->n; i++) {
                struct metered *p = &m->processes[i];
                struct reading begin = p->begin, end = read_clocks(p->clock);

                p->begin = end;
                if (begin.at_ns > 0 && end.at_ns > begin.at_ns && end.used_ns >= begin.used_ns)
                        histogram_add(&m->shares[p->group],
                                      (end.used_ns - begin.used_ns) * CPU_METER_WHOLE /
                                              (end.at_ns - begin.at_ns),
                                      1);
        }
}

void cpu_meter_turn(struct cpu_meter *m, uint64_t now_ns, bool active)
{
        if (now_ns < m->end_ns && active == m->was_active)
                return;
        if (active && m->was_active)
                cpu_meter_sample(m);
        else
                cpu_meter_restart(m);
        m->was_active = active;
        m->end_ns = now_ns + CPU_METER_INTERVAL_NS;
}

uint64_t cpu_meter_deadline_ns(const struct cpu_meter *m)
{
        return m->end_ns;
}

const struct histogram *cpu_meter_shares(const struct cpu_meter *m, size_t group)
{
        assert(group < m->n_groups);
        return &m->shares[group];
}

static double quantile_percent(const struct histogram *shares, double q)
{
        return 100.0 * (double)histogram_quantile(shares, q) / CPU_METER_WHOLE;
}

json_t *cpu_meter_describe(const struct histogram *shares)
{
        static const double edges_percent[] = {1,  2,  5,  10, 20,  30,  40,  50, 60,
                                               70, 80, 90, 95, 100, 110, 150, 200};
        json_t *edges = json_array(), *below = json_array();
        unsigned k = 1;

        if (shares->count == 0) {
                json_decref(edges);
                json_decref(below);
                return json_null();
        }
        for (size_t i = 0; i < ARRAY_SIZE(edges_percent); i++) {
                while (k < QUANTILES && quantile_percent(shares, (double)k / QUANTILES) <= edges_percent[i])
                        k++;
                json_array_append_new(edges, json_real(edges_percent[i]));
                json_array_append_new(below, json_real((double)(k - 1) / (QUANTILES - 1)));
        }
        return json_pack("{s:f, s:f, s:f, s:f, s:o, s:o}", "p10", quantile_percent(shares, 0.1), "p50",
                         quantile_percent(shares, 0.5), "p90", quantile_percent(shares, 0.9), "p99",
                         quantile_percent(shares, 0.99), "edges", edges, "below", below);
}
