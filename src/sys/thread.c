/* Starts, pins and wakes threads. The caller provides the queue between them; see base/ring.h. */
#include "sys/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/util.h"

int thread_pin(const unsigned *cpus, size_t n_cpus)
{
        cpu_set_t set;

        if (n_cpus == 0)
                return 0;
        CPU_ZERO(&set);
        for (size_t i = 0; i < n_cpus; i++)
                CPU_SET(cpus[i], &set);
        return sched_setaffinity(0, sizeof set, &set) < 0 ? -errno : 0;
}

uint64_t thread_used_ns(void)
{
        struct timespec used;

        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
        return (uint64_t)used.tv_sec * NS_PER_S + (uint64_t)used.tv_nsec;
}

int thread_start(pthread_t *ret, const char *name, const unsigned *cpus, size_t n_cpus, void *(*run)(void *),
                 void *ctx)
{
        pthread_attr_t attributes;
        cpu_set_t set;
        int r;

        pthread_attr_init(&attributes);
        if (n_cpus > 0) {
                CPU_ZERO(&set);
                for (size_t i = 0; i < n_cpus; i++)
                        CPU_SET(cpus[i], &set);
                pthread_attr_setaffinity_np(&attributes, sizeof set, &set);
        }
        r = pthread_create(ret, &attributes, run, ctx);
        pthread_attr_destroy(&attributes);
        if (r == 0)
                pthread_setname_np(*ret, name);
        return -r;
}

int waker_init(struct waker *w)
{
        atomic_init(&w->sleeping, false);
        w->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
        return w->fd < 0 ? -errno : 0;
}

void waker_fini(struct waker *w)
{
        if (w && w->fd >= 0)
                close(w->fd);
}

void waker_wake(struct waker *w)
{
        uint64_t one = 1;

        atomic_thread_fence(memory_order_seq_cst);
        if (atomic_load_explicit(&w->sleeping, memory_order_relaxed) &&
            atomic_exchange_explicit(&w->sleeping, false, memory_order_relaxed))
                (void)!write(w->fd, &one, sizeof one);
}

void waker_prepare(struct waker *w)
{
        atomic_store_explicit(&w->sleeping, true, memory_order_relaxed);
        atomic_thread_fence(memory_order_seq_cst);
}

void waker_wait(struct waker *w, int timeout_ms)
{
        struct pollfd p = {.fd = w->fd, .events = POLLIN};

        (void)poll(&p, 1, timeout_ms);
}

void waker_done(struct waker *w)
{
        uint64_t n;

        atomic_store_explicit(&w->sleeping, false, memory_order_relaxed);
        (void)!read(w->fd, &n, sizeof n);
}

#define HIGHEST_NICE (-20)
#define AUTOGROUP "/proc/self/autogroup"

/* If the kernel has no autogroups, the nice value is enough. */
static int raise_autogroup(void)
{
        static const char value[] = "-20";
        _cleanup_close_ int fd = open(AUTOGROUP, O_WRONLY | O_CLOEXEC);

        if (fd < 0)
                return errno == ENOENT ? 0 : -errno;
        return write(fd, value, sizeof value - 1) < 0 ? -errno : 0;
}

int priority_prefer(void)
{
        return setpriority(PRIO_PROCESS, 0, HIGHEST_NICE) < 0 ? -errno : 0;
}

int priority_raise(void)
{
        /* A process that already leads a group, such as a foreground job of a shell, keeps its session. */
        bool alone = setsid() >= 0;
        int r = priority_prefer();

        return r < 0 || !alone ? r : raise_autogroup();
}

int priority_attend(void)
{
        struct sched_param p = {.sched_priority = sched_get_priority_min(SCHED_FIFO)};

        return sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &p) < 0 ? -errno : 0;
}

bool priority_may_raise(void)
{
        int now;

        errno = 0;
        now = getpriority(PRIO_PROCESS, 0);
        if ((now == -1 && errno != 0) || setpriority(PRIO_PROCESS, 0, HIGHEST_NICE) < 0)
                return false;
        /* A process may always lower its priority. */
        (void)setpriority(PRIO_PROCESS, 0, now);
        return true;
}
