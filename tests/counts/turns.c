/* Virtual time, epoll, and whose turn it is: a node runs until it waits for events. Then the next one runs
 * that has an event, or a deadline that has passed, and time goes on by a fixed step. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <semaphore.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "counted.h"
#include "base/util.h"

/* What a turn takes in virtual time. */
#define TURN_NS 10000
#define UTC_OFFSET_NS (UINT64_C(1700000000) * NS_PER_S)
#define WATCHED_MAX 64
#define TURNS_MAX 8192

/* An epoll instance, by its descriptor. */
static struct epoll {
        int n, fds[WATCHED_MAX];
        struct epoll_event events[WATCHED_MAX];
} epolls[COUNTED_FDS];

static struct turn {
        sem_t may_run;
        int epoll_fd; /* of the wait; -1: not begun */
        uint64_t deadline_ns;
        bool ended, frozen;
} turns[TURNS_MAX];

static unsigned first_turn, n_turns;
static uint64_t now_ns = NS_PER_S;
static _Thread_local unsigned self;
static _Thread_local int self_role = -1;

uint64_t counted_calls[ROLE_SFI + 1][CALLS];

void turns_count(enum counted_call call)
{
        if (self_role >= 0)
                counted_calls[self_role][call]++;
}

uint64_t turns_now_ns(void)
{
        return now_ns;
}

int __wrap_clock_gettime(clockid_t clock, struct timespec *ret)
{
        uint64_t t_ns = now_ns + (clock == CLOCK_REALTIME ? UTC_OFFSET_NS : 0);

        *ret = (struct timespec){(time_t)(t_ns / NS_PER_S), (long)(t_ns % NS_PER_S)};
        return 0;
}

static uint64_t random_state;

/* Different in each call, and the same in each run. */
ssize_t __wrap_getrandom(void *buffer, size_t n, unsigned flags)
{
        uint8_t *to = buffer;

        for (size_t i = 0; i < n; i++) {
                random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
                to[i] = (uint8_t)(random_state >> 56);
        }
        return (ssize_t)n;
}

int __wrap_epoll_create1(int flags)
{
        int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

        assert(fd >= 0 && fd < COUNTED_FDS);
        epolls[fd].n = 0;
        return fd;
}

static void remove_watched(struct epoll *e, int i)
{
        e->n--;
        memmove(e->fds + i, e->fds + i + 1, (size_t)(e->n - i) * sizeof *e->fds);
        memmove(e->events + i, e->events + i + 1, (size_t)(e->n - i) * sizeof *e->events);
}

int __wrap_epoll_ctl(int epoll_fd, int operation, int fd, struct epoll_event *event)
{
        struct epoll *e = &epolls[epoll_fd];
        int i = 0;

        turns_count(CALL_EPOLL_CTL);
        while (i < e->n && e->fds[i] != fd)
                i++;
        if (operation == EPOLL_CTL_DEL) {
                if (i < e->n)
                        remove_watched(e, i);
                return 0;
        }
        assert(i < WATCHED_MAX);
        e->n += i == e->n;
        e->fds[i] = fd;
        e->events[i] = *event;
        return 0;
}

void turns_closed(int fd)
{
        for (int i = 0; i < COUNTED_FDS; i++) {
                for (int k = 0; k < epolls[i].n; k++) {
                        if (epolls[i].fds[k] == fd)
                                remove_watched(&epolls[i], k);
                }
        }
        if (fd >= 0 && fd < COUNTED_FDS)
                epolls[fd].n = 0;
}

static uint32_t ready_events(const struct epoll *e, int i)
{
        return sockets_ready(e->fds[i]) & (e->events[i].events | EPOLLHUP | EPOLLERR);
}

static bool is_due(const struct turn *t)
{
        if (t->ended || t->frozen)
                return false;
        if (t->deadline_ns <= now_ns)
                return true;
        for (int i = 0; t->epoll_fd >= 0 && i < epolls[t->epoll_fd].n; i++) {
                if (ready_events(&epolls[t->epoll_fd], i))
                        return true;
        }
        return false;
}

/* Whose turn is next, after that of this node. */
static unsigned choose_next(void)
{
        uint64_t earliest_ns = NEVER_NS;

        now_ns += TURN_NS;
        for (unsigned i = first_turn; i < n_turns; i++) {
                if (!turns[i].ended && !turns[i].frozen)
                        earliest_ns = MIN(earliest_ns, turns[i].deadline_ns);
        }
        for (int round = 0; round < 2; round++) {
                for (unsigned i = 1; i <= n_turns - first_turn; i++) {
                        unsigned next = first_turn + (self - first_turn + i) % (n_turns - first_turn);

                        if (is_due(&turns[next]))
                                return next;
                }
                now_ns = MAX(now_ns, earliest_ns);
        }
        return self;
}

static void await_turn(void)
{
        while (sem_wait(&turns[self].may_run) < 0)
                assert(errno == EINTR);
}

/* Returns in the next turn of this node. */
static void pass_on(void)
{
        unsigned next = choose_next();

        if (next == self)
                return;
        sem_post(&turns[next].may_run);
        await_turn();
}

int __wrap_epoll_pwait2(int epoll_fd, struct epoll_event *events, int n, const struct timespec *timeout,
                        const sigset_t *mask)
{
        const struct epoll *e = &epolls[epoll_fd];
        uint64_t wait_ns = timeout ? (uint64_t)timeout->tv_sec * NS_PER_S + (uint64_t)timeout->tv_nsec : 0;
        int k = 0;

        turns_count(CALL_EPOLL_WAIT);
        turns[self].epoll_fd = epoll_fd;
        turns[self].deadline_ns = timeout ? now_ns + wait_ns : NEVER_NS;
        pass_on();
        for (int i = 0; i < e->n && k < n; i++) {
                events[k] = e->events[i];
                events[k].events = ready_events(e, i);
                k += events[k].events != 0;
        }
        return k;
}

/* The product calls it to look without waiting. */
int __wrap_epoll_wait(int epoll_fd, struct epoll_event *events, int n, int timeout_ms)
{
        const struct timespec none = {};

        assert(timeout_ms == 0);
        return __wrap_epoll_pwait2(epoll_fd, events, n, &none, NULL);
}

unsigned turns_self(void)
{
        return self;
}

unsigned turns_add(void)
{
        assert(n_turns < TURNS_MAX);
        turns[n_turns] = (struct turn){.epoll_fd = -1};
        sem_init(&turns[n_turns].may_run, 0, 0);
        return n_turns++;
}

void turns_init(unsigned n)
{
        for (unsigned i = 0; i < n; i++)
                (void)turns_add();
        sem_post(&turns[0].may_run);
}

void turns_restart(uint64_t seed)
{
        for (unsigned i = first_turn; i < n_turns; i++) {
                turns[i].ended = true;
                sockets_close_of(i);
        }
        sockets_mend();
        now_ns = NS_PER_S;
        random_state = seed;
        self = first_turn = turns_add();
}

void turns_pass(uint64_t ns)
{
        turns[self].deadline_ns = now_ns + ns;
        pass_on();
}

void turns_kill(unsigned node)
{
        turns[node].ended = true;
        sockets_close_of(node);
}

void turns_freeze(unsigned node, bool frozen)
{
        turns[node].frozen = frozen;
}

void turns_begin(unsigned node, enum node_role role)
{
        self = node;
        await_turn();
        self_role = (int)role;
}

void turns_end(void)
{
        self_role = -1;
        turns[self].ended = true;
        sem_post(&turns[choose_next()].may_run);
}
