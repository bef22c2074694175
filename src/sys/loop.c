/* The event loop. It decides which function to call, and when. */
#include "sys/loop.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <time.h>

#include "base/util.h"

#define EVENTS_MAX 64
/* A wait that ends this long after its deadline was held up. */
#define LATE_NS (5 * NS_PER_MS)

struct loop {
        int epoll_fd;
        uint64_t now_ns;
        uint64_t poll_ns;
        unsigned signals, hangups;
        uint64_t signalled_ns; /* time of the last counted signal */
        struct signalfd_siginfo last_signal;
        char last_sender[32]; /* name of its sender, which may exit soon; "": unknown */
        struct loop_io signal_io;
        /* Events of the current wake-up; loop_remove() clears the entry of its descriptor. */
        struct epoll_event ready[EVENTS_MAX];
        int n_ready;
};

static uint64_t clock_read_ns(clockid_t clock)
{
        struct timespec t;

        clock_gettime(clock, &t);
        return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

uint64_t clock_now_ns(void)
{
        return clock_read_ns(CLOCK_MONOTONIC);
}

uint64_t clock_boot_ns(void)
{
        return clock_read_ns(CLOCK_BOOTTIME);
}

uint64_t clock_utc_ns(void)
{
        return clock_read_ns(CLOCK_REALTIME);
}

const char *clock_format_utc(uint64_t utc_ns, char text[static CLOCK_UTC_TEXT_MAX])
{
        time_t seconds = (time_t)(utc_ns / NS_PER_S);
        struct tm tm = {};

        gmtime_r(&seconds, &tm);
        strftime(text, CLOCK_UTC_TEXT_MAX, "%Y-%m-%dT%H:%M:%SZ", &tm);
        return text;
}

int loop_new(struct loop **ret)
{
        struct loop *l = calloc(1, sizeof *l);

        if (!l)
                return -ENOMEM;
        l->signal_io.fd = -1;
        l->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
        if (l->epoll_fd < 0) {
                free(l);
                return -errno;
        }
        l->now_ns = clock_now_ns();
        *ret = l;
        return 0;
}

struct loop *loop_free(struct loop *l)
{
        if (!l)
                return NULL;
        if (l->signal_io.fd >= 0)
                close(l->signal_io.fd);
        close(l->epoll_fd);
        free(l);
        return NULL;
}

static int control(struct loop *l, int operation, struct loop_io *io)
{
        struct epoll_event e = {.events = io->events, .data.ptr = io};

        return epoll_ctl(l->epoll_fd, operation, io->fd, &e) < 0 ? -errno : 0;
}

void loop_set_flag(void *flag, uint32_t events)
{
        (void)events;
        *(bool *)flag = true;
}

int loop_add(struct loop *l, struct loop_io *io)
{
        return control(l, EPOLL_CTL_ADD, io);
}

int loop_modify(struct loop *l, struct loop_io *io, uint32_t events)
{
        if (io->events == events)
                return 0;
        io->events = events;
        return control(l, EPOLL_CTL_MOD, io);
}

void loop_remove(struct loop *l, struct loop_io *io)
{
        if (io->fd < 0)
                return;
        epoll_ctl(l->epoll_fd, EPOLL_CTL_DEL, io->fd, NULL);
        for (int i = 0; i < l->n_ready; i++) {
                if (l->ready[i].data.ptr == io)
                        l->ready[i].data.ptr = NULL;
        }
}

static void record_sender(struct loop *l, const struct signalfd_siginfo *info)
{
        _cleanup_close_ int fd = -1;
        char path[32];
        ssize_t n = 0;

        l->last_signal = *info;
        snprintf(path, sizeof path, "/proc/%u/comm", info->ssi_pid);
        if (info->ssi_pid > 0)
                fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd >= 0)
                n = read(fd, l->last_sender, sizeof l->last_sender - 1);
        l->last_sender[MAX(n, (ssize_t)0)] = '\0';
        l->last_sender[strcspn(l->last_sender, "\n")] = '\0';
        /* Processes choose their names, so control characters are replaced. */
        for (char *c = l->last_sender; *c; c++)
                *c = *c >= ' ' && *c <= '~' ? *c : '?';
}

static void handle_signal(void *ctx, uint32_t events)
{
        struct loop *l = ctx;
        uint64_t now_ns = clock_now_ns();
        bool is_another = l->signals == 0 || now_ns - l->signalled_ns >= LOOP_SIGNAL_APART_NS;
        struct signalfd_siginfo info;

        (void)events;
        while (read(l->signal_io.fd, &info, sizeof info) == sizeof info) {
                if (info.ssi_signo == SIGHUP)
                        l->hangups++;
                else if (is_another) {
                        is_another = false;
                        l->signals++;
                        l->signalled_ns = now_ns;
                }
                /* A later SIGHUP does not hide who stops the process. */
                if (info.ssi_signo != SIGHUP || l->signals == 0)
                        record_sender(l, &info);
        }
}

static sigset_t stop_signals(void)
{
        struct sigaction hangup = {};
        sigset_t set;

        sigemptyset(&set);
        sigaddset(&set, SIGTERM);
        sigaddset(&set, SIGINT);
        /* A blocked SIGHUP would be received here even if it is ignored (nohup). */
        if (sigaction(SIGHUP, NULL, &hangup) < 0 || hangup.sa_handler != SIG_IGN)
                sigaddset(&set, SIGHUP);
        return set;
}

void signals_hold_early(void)
{
        sigset_t set;

        sigemptyset(&set);
        sigaddset(&set, SIGHUP);
        sigaddset(&set, SIGTERM);
        sigprocmask(SIG_BLOCK, &set, NULL);
}

void signals_hold(void)
{
        sigset_t set = stop_signals();

        sigprocmask(SIG_BLOCK, &set, NULL);
}

bool signals_are_waiting(void)
{
        sigset_t set;

        sigemptyset(&set);
        sigpending(&set);
        return sigismember(&set, SIGTERM) || sigismember(&set, SIGINT) || sigismember(&set, SIGHUP);
}

const char *loop_describe_signal(const struct loop *l, char text[static LOOP_SIGNAL_TEXT_MAX])
{
        const struct signalfd_siginfo *i = &l->last_signal;
        const char *name = sigabbrev_np((int)i->ssi_signo), *sender = l->last_sender;
        int n = snprintf(text, LOOP_SIGNAL_TEXT_MAX, "SIG%s from ", name ? name : "NAL");

        if (i->ssi_code == SI_KERNEL)
                snprintf(text + n, LOOP_SIGNAL_TEXT_MAX - (size_t)n, "the terminal");
        else if (i->ssi_pid == 0)
                snprintf(text + n, LOOP_SIGNAL_TEXT_MAX - (size_t)n, "outside this PID namespace, user %u",
                         i->ssi_uid);
        else
                snprintf(text + n, LOOP_SIGNAL_TEXT_MAX - (size_t)n, "process %u%s%s%s, user %u", i->ssi_pid,
                         sender[0] ? " (" : "", sender, sender[0] ? ")" : "", i->ssi_uid);
        return text;
}

static struct timespec timespec_of(uint64_t ns)
{
        return (struct timespec){.tv_sec = (time_t)(ns / NS_PER_S), .tv_nsec = (long)(ns % NS_PER_S)};
}

int signals_wait(uint64_t wait_ns)
{
        struct timespec wait = timespec_of(wait_ns);
        sigset_t set = stop_signals();
        int signal = sigtimedwait(&set, NULL, &wait);

        return MAX(signal, 0);
}

int loop_catch_signals(struct loop *l)
{
        sigset_t set = stop_signals();

        if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
                return -errno;
        /* The calls that fail on broken connections and at file size limits return errors instead. */
        signal(SIGPIPE, SIG_IGN);
        signal(SIGXFSZ, SIG_IGN);
        l->signal_io = (struct loop_io){
                .fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC),
                .events = EPOLLIN,
                .ready = handle_signal,
                .ctx = l,
        };
        return l->signal_io.fd < 0 ? -errno : loop_add(l, &l->signal_io);
}

unsigned loop_signals(const struct loop *l)
{
        return l->signals;
}

unsigned loop_stops(const struct loop *l)
{
        return MAX(l->signals, (unsigned)(l->hangups > 0));
}

unsigned loop_hangups(const struct loop *l)
{
        return l->hangups;
}

static struct timespec wait_time(uint64_t now_ns, uint64_t deadline_ns)
{
        return timespec_of(deadline_ns > now_ns ? deadline_ns - now_ns : 0);
}

void loop_set_poll(struct loop *l, uint64_t poll_ns)
{
        l->poll_ns = poll_ns;
}

/* Polls until a descriptor is ready, the polling time is over, or `deadline_ns` is reached. */
static int poll_for_a_while(struct loop *l, uint64_t deadline_ns)
{
        uint64_t now_ns = clock_now_ns(), until_ns = MIN(now_ns + l->poll_ns, deadline_ns);
        int n = 0;

        for (; n == 0 && now_ns < until_ns; now_ns = clock_now_ns())
                n = epoll_wait(l->epoll_fd, l->ready, EVENTS_MAX, 0);
        return n;
}

static int wait_for_ready(struct loop *l, uint64_t deadline_ns)
{
        int n = l->poll_ns > 0 ? poll_for_a_while(l, deadline_ns) : 0;

        if (n == 0) {
                struct timespec wait = wait_time(clock_now_ns(), deadline_ns);

                n = epoll_pwait2(l->epoll_fd, l->ready, EVENTS_MAX, deadline_ns == NEVER_NS ? NULL : &wait,
                                 NULL);
        }
        return n < 0 ? -errno : n;
}

/* If the process was held up in the wait, something may be due now, although data that cancel it arrived in
 * time. The interrupted wait has not reported them. */
static int look_again(struct loop *l, int r, uint64_t deadline_ns, uint64_t before_ns)
{
        if (l->now_ns < LATE_NS || l->now_ns - LATE_NS <= MAX(deadline_ns, before_ns))
                return r;
        r = epoll_wait(l->epoll_fd, l->ready, EVENTS_MAX, 0);
        return r < 0 ? -errno : r;
}

int loop_wait(struct loop *l, uint64_t deadline_ns)
{
        uint64_t before_ns = l->now_ns;
        int r = wait_for_ready(l, deadline_ns);

        l->now_ns = clock_now_ns();
        r = look_again(l, r, deadline_ns, before_ns);
        l->n_ready = MAX(r, 0);
        if (r < 0)
                return r == -EINTR ? 0 : r;
        for (int i = 0; i < l->n_ready; i++) {
                struct loop_io *io = l->ready[i].data.ptr;

                if (io)
                        io->ready(io->ctx, l->ready[i].events);
        }
        l->n_ready = 0;
        return 0;
}

uint64_t loop_now_ns(const struct loop *l)
{
        return l->now_ns;
}
