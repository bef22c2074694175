/* Reads processor times from /proc and measures the lateness of timers, while other code performs a
 * measurement. */
#include "sys/machine_watch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/histogram.h"
#include "base/util.h"
#include "sys/loop.h"
#include "sys/thread.h"

/* At 500 wake-ups per second, a probe uses about 0.2 % of a processor, and detects every delay of at least
 * one period. */
#define PROBE_PERIOD_NS (2 * NS_PER_MS)
/* Reading about 20 threads takes 0.3 ms. */
#define SAMPLE_PERIOD_NS (100 * NS_PER_MS)
#define PROCESSES_MAX 256u
#define PROBES_MAX 64u

struct probe {
        struct machine_watch *watch;
        pthread_t thread;
        bool started;
        struct histogram late_ns; /* written by the thread until it is joined */
};

/* A measured process. */
struct watched {
        pid_t pid;
        struct thread_times begin, last;
};

struct machine_watch {
        struct watched processes[PROCESSES_MAX];
        size_t n_processes;
        bool incomplete; /* more processes were added than fit */
        struct probe *probes;
        size_t n_probes;
        _Atomic bool active, stop;
        _Atomic unsigned n_ready;
        _Atomic bool denied; /* no real-time priority */
        cpu_set_t processors;
        struct machine_times begin, last;
        uint64_t begin_ns, last_ns; /* 0: never active */
};

int machine_times_sum(struct machine_times *ret, const struct processors *all, uint64_t tick_ns,
                      bool (*use)(void *ctx, unsigned processor), void *ctx)
{
        struct machine_times t = {};

        for (size_t i = 0; i < all->n; i++) {
                const struct processor_times *p = &all->each[i];

                if (!use(ctx, p->number))
                        continue;
                t.idle_ns += (p->ticks[PROCESSOR_IDLE] + p->ticks[PROCESSOR_IOWAIT]) * tick_ns;
                t.stolen_ns += p->ticks[PROCESSOR_STEAL] * tick_ns;
                t.processors++;
        }
        if (t.processors == 0)
                return -EBADMSG;
        *ret = t;
        return 0;
}

int thread_times_add(struct thread_times *to, const char *text)
{
        unsigned long long used, waited, turns;

        if (sscanf(text, "%llu %llu %llu", &used, &waited, &turns) != 3)
                return -EBADMSG;
        to->used_ns += used;
        to->waited_ns += waited;
        to->turns += turns;
        return 0;
}

static double since(uint64_t end, uint64_t begin)
{
        return end > begin ? (double)(end - begin) : 0;
}

void machine_view_shares(struct machine_view *ret, const struct machine_times *begin,
                         const struct machine_times *end, const struct thread_times *used,
                         uint64_t elapsed_ns)
{
        double whole = (double)elapsed_ns * end->processors, stolen = since(end->stolen_ns, begin->stolen_ns);
        double others = whole - since(end->idle_ns, begin->idle_ns) - stolen - (double)used->used_ns;

        ret->stolen_share = stolen / whole;
        /* The clocks may differ by a few ticks. */
        ret->others_share = fmax(0, others) / whole;
        ret->waiting_share = (double)used->waited_ns / whole;
        ret->wait_mean_us = used->turns > 0 ? (double)used->waited_ns / (double)used->turns / 1e3 : NAN;
}

static bool read_text(const char *path, char *text, size_t size)
{
        _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t n = fd < 0 ? -1 : read(fd, text, size - 1);

        if (n < 0)
                return false;
        text[n] = '\0';
        return true;
}

static bool is_ours(void *ctx, unsigned processor)
{
        const struct machine_watch *w = ctx;

        return processor < CPU_SETSIZE && CPU_ISSET(processor, &w->processors);
}

static int read_machine(const struct machine_watch *w, struct machine_times *ret)
{
        _cleanup_free_ struct processors *all = calloc(1, sizeof *all);
        long ticks_per_s = sysconf(_SC_CLK_TCK);

        if (!all || ticks_per_s <= 0 || processors_read(all) < 0)
                return -EIO;
        return machine_times_sum(ret, all, NS_PER_S / (uint64_t)ticks_per_s, is_ours, (void *)w);
}

/* Sums the times of the current threads of a process. A process that has ended keeps its last times. */
static void read_process(struct watched *p)
{
        struct thread_times t = {};
        char path[80], text[96];
        struct dirent *e;
        DIR *d;

        snprintf(path, sizeof path, "/proc/%d/task", (int)p->pid);
        d = opendir(path);
        while (d && (e = readdir(d))) {
                snprintf(path, sizeof path, "/proc/%d/task/%.20s/schedstat", (int)p->pid, e->d_name);
                if (e->d_name[0] != '.' && read_text(path, text, sizeof text))
                        (void)thread_times_add(&t, text);
        }
        if (d)
                closedir(d);
        /* The times of a thread that has ended are missing, so sums must not decrease. */
        p->last.used_ns = MAX(p->last.used_ns, t.used_ns);
        p->last.waited_ns = MAX(p->last.waited_ns, t.waited_ns);
        p->last.turns = MAX(p->last.turns, t.turns);
}

static void pause_until(uint64_t at_ns)
{
        struct timespec at = {.tv_sec = (time_t)(at_ns / NS_PER_S), .tv_nsec = (long)(at_ns % NS_PER_S)};

        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR)
                ;
}

static void *probe(void *ctx)
{
        /* Above priority_attend(), whose caller may run for a moment. */
        struct sched_param priority = {.sched_priority = sched_get_priority_min(SCHED_FIFO) + 1};
        struct probe *p = ctx;
        struct machine_watch *w = p->watch;
        uint64_t due_ns = clock_now_ns();

        if (pthread_setschedparam(pthread_self(), SCHED_FIFO, &priority) != 0)
                atomic_store(&w->denied, true);
        atomic_fetch_add(&w->n_ready, 1);
        while (!atomic_load(&w->stop) && !atomic_load(&w->denied)) {
                bool active = atomic_load(&w->active);
                uint64_t now_ns;

                due_ns += PROBE_PERIOD_NS;
                pause_until(due_ns);
                now_ns = clock_now_ns();
                /* A delay counts if it overlaps the active time. */
                if (active || atomic_load(&w->active))
                        histogram_add(&p->late_ns, now_ns - due_ns, 1);
                /* Deadlines that passed during this delay count as part of it. */
                due_ns = MAX(due_ns, now_ns - MIN(now_ns, PROBE_PERIOD_NS));
        }
        return NULL;
}

static int start_probes(struct machine_watch *w)
{
        int r = 0;

        for (unsigned cpu = 0; r >= 0 && cpu < CPU_SETSIZE && w->n_probes < PROBES_MAX; cpu++) {
                struct probe *p = &w->probes[w->n_probes];

                if (!CPU_ISSET(cpu, &w->processors))
                        continue;
                *p = (struct probe){.watch = w};
                histogram_init(&p->late_ns);
                r = thread_start(&p->thread, "evb-probe", &cpu, 1, probe, p);
                p->started = r >= 0;
                w->n_probes += p->started;
        }
        /* This process must not fork while a new thread may hold a lock of the C library. */
        while (r >= 0 && atomic_load(&w->n_ready) < w->n_probes)
                pause_until(clock_now_ns() + NS_PER_MS);
        return r;
}

int machine_watch_new(struct machine_watch **ret)
{
        struct machine_watch *w = calloc(1, sizeof *w);
        int r;

        if (!w)
                return -ENOMEM;
        w->probes = calloc(PROBES_MAX, sizeof *w->probes);
        r = !w->probes                                                       ? -ENOMEM
            : sched_getaffinity(0, sizeof w->processors, &w->processors) < 0 ? -errno
                                                                             : 0;
        if (r >= 0)
                r = start_probes(w);
        if (r < 0) {
                machine_watch_free(w);
                return r;
        }
        w->processes[w->n_processes++].pid = getpid();
        *ret = w;
        return 0;
}

static void stop_probes(struct machine_watch *w)
{
        atomic_store(&w->stop, true);
        for (size_t i = 0; i < w->n_probes; i++) {
                if (w->probes[i].started)
                        pthread_join(w->probes[i].thread, NULL);
                w->probes[i].started = false;
        }
}

struct machine_watch *machine_watch_free(struct machine_watch *w)
{
        if (!w)
                return NULL;
        if (w->probes)
                stop_probes(w);
        free(w->probes);
        free(w);
        return NULL;
}

void machine_watch_add(struct machine_watch *w, pid_t pid)
{
        if (!w)
                return;
        if (w->n_processes < PROCESSES_MAX)
                w->processes[w->n_processes++] = (struct watched){.pid = pid};
        else
                w->incomplete = true;
}

static void sample(struct machine_watch *w, uint64_t now_ns)
{
        for (size_t i = 0; i < w->n_processes; i++)
                read_process(&w->processes[i]);
        if (read_machine(w, &w->last) < 0)
                return;
        /* The clock is read again, because sampling takes time. */
        w->last_ns = MAX(now_ns, clock_now_ns());
        if (w->begin_ns > 0)
                return;
        w->begin = w->last;
        w->begin_ns = w->last_ns;
        for (size_t i = 0; i < w->n_processes; i++)
                w->processes[i].begin = w->processes[i].last;
}

void machine_watch_turn(struct machine_watch *w, uint64_t now_ns, bool active)
{
        if (!w)
                return;
        atomic_store(&w->active, active);
        if (active && now_ns - MIN(now_ns, w->last_ns) >= SAMPLE_PERIOD_NS)
                sample(w, now_ns);
}

void machine_watch_view(struct machine_watch *w, struct machine_view *ret)
{
        struct machine_view v = {0, NAN, NAN, NAN, NAN, NAN, NAN};
        _cleanup_free_ struct histogram *late_ns = malloc(sizeof *late_ns);
        struct thread_times used = {};

        *ret = v;
        if (!w || !late_ns)
                return;
        stop_probes(w);
        for (size_t i = 0; i < w->n_processes; i++) {
                const struct watched *p = &w->processes[i];

                used.used_ns += p->last.used_ns - p->begin.used_ns;
                /* This process is not part of the measurement, and waits at ordinary priority. */
                if (i > 0) {
                        used.waited_ns += p->last.waited_ns - p->begin.waited_ns;
                        used.turns += p->last.turns - p->begin.turns;
                }
        }
        if (w->last_ns > w->begin_ns) {
                v.seconds = (double)(w->last_ns - w->begin_ns) / 1e9;
                machine_view_shares(&v, &w->begin, &w->last, &used, w->last_ns - w->begin_ns);
        }
        if (w->incomplete)
                v.others_share = v.waiting_share = v.wait_mean_us = NAN;
        histogram_init(late_ns);
        for (size_t i = 0; i < w->n_probes; i++)
                histogram_merge(late_ns, &w->probes[i].late_ns);
        if (late_ns->count > 0) {
                v.late_p99_us = (double)histogram_quantile(late_ns, 0.99) / 1e3;
                v.late_max_us = (double)histogram_quantile(late_ns, 1) / 1e3;
        }
        *ret = v;
}

/* The lines of the processors come first. */
#define STAT_MAX_BYTES (UINT32_C(1) << 17)

const char *const processor_use_names[PROCESSOR_USES] = {"user", "system",  "idle", "iowait",
                                                         "irq",  "softirq", "steal"};

int processors_parse(struct processors *ret, const char *text)
{
        size_t n = 0;

        for (const char *line = text; line && *line && n < PROCESSORS_MAX;
             line = strchr(line, '\n'), line += line != NULL) {
                struct processor_times *p = &ret->each[n];
                unsigned long long t[8];
                unsigned number;

                /* The line "cpu" alone is the sum. */
                if (strncmp(line, "cpu", 3) != 0 || line[3] < '0' || line[3] > '9' ||
                    sscanf(line, "cpu%u %llu %llu %llu %llu %llu %llu %llu %llu", &number, &t[0], &t[1],
                           &t[2], &t[3], &t[4], &t[5], &t[6], &t[7]) != 9)
                        continue;
                *p = (struct processor_times){number, {t[0] + t[1], t[2], t[3], t[4], t[5], t[6], t[7]}};
                n++;
        }
        if (n == 0)
                return -EBADMSG;
        ret->n = n;
        return 0;
}

int processors_read(struct processors *ret)
{
        _cleanup_free_ char *text = malloc(STAT_MAX_BYTES);
        _cleanup_close_ int fd = open("/proc/stat", O_RDONLY | O_CLOEXEC);
        ssize_t n;

        if (!text)
                return -ENOMEM;
        if (fd < 0)
                return -errno;
        n = read(fd, text, STAT_MAX_BYTES - 1);
        if (n < 0)
                return -errno;
        text[n] = '\0';
        return processors_parse(ret, text);
}

void processor_shares(const struct processor_times *begin, const struct processor_times *end,
                      double ret_percent[static PROCESSOR_USES])
{
        uint64_t passed[PROCESSOR_USES], all = 0;

        for (size_t i = 0; i < PROCESSOR_USES; i++) {
                /* The iowait count may decrease (proc_stat(5)). */
                passed[i] = end->ticks[i] - MIN(begin->ticks[i], end->ticks[i]);
                all += passed[i];
        }
        for (size_t i = 0; i < PROCESSOR_USES; i++)
                ret_percent[i] = all > 0 ? 100.0 * (double)passed[i] / (double)all : 0;
}
