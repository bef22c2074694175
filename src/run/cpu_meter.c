/* Samples processor time as differences of other processes' CPU clocks. */
#include "run/cpu_meter.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "base/util.h"
#include "sys/loop.h"

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
        struct reading begin; /* of the interval */
};

struct cpu_meter {
        struct metered *processes;
        struct histogram *shares;
        size_t n, n_max, n_groups;
        uint64_t end_ns; /* of the interval */
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

/* Reads both clocks close together. A preemption between the two readings would falsify the share. */
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
