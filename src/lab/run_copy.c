/* Runs a memory copy point: a process with a point's priority copies blocks of x bytes for a fixed time. */
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

#include "base/log.h"
#include "base/util.h"
#include "sys/loop.h"
#include "sys/memory.h"
#include "sys/priority.h"
#include "run_internal.h"
#include "settings.h"

/* The clock is read once per batch, as a read costs as much as the copy of a small block. */
#define BATCH_BYTES (1u << 20)
#define LOOK_NS (5 * NS_PER_MS)

/* Shared with the copying process, which waits for COPY_GO before it copies, and for its end afterwards. */
struct copying {
        _Atomic enum { COPY_STARTS, COPY_READY, COPY_GO, COPY_DONE } state;
        double mbyte_per_s;
};

static void pause_shortly(void)
{
        nanosleep(&(struct timespec){.tv_nsec = LOOK_NS}, NULL);
}

static double copy(char *to, const char *from, size_t size_bytes, double seconds)
{
        uint64_t begin_ns = clock_now_ns(), until_ns = begin_ns + (uint64_t)(seconds * 1e9);
        size_t rounds = 0;

        while (clock_now_ns() < until_ns) {
                for (size_t done = 0; done < BATCH_BYTES; done += size_bytes) {
                        memcpy(to, from, size_bytes);
                        /* Keeps the compiler from removing the copy. */
                        __asm__ volatile("" : : "r"(to) : "memory");
                        rounds++;
                }
        }
        return (double)rounds * (double)size_bytes * 1e3 / (double)(clock_now_ns() - begin_ns);
}

static _Noreturn void become_copier(struct copying *c, size_t size_bytes, double seconds, pid_t parent)
{
        char *from = malloc(size_bytes), *to = malloc(size_bytes);

        (void)priority_raise();
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent || !from || !to)
                _exit(1);
        memset(from, 1, size_bytes);
        memset(to, 2, size_bytes);
        atomic_store(&c->state, COPY_READY);
        while (atomic_load(&c->state) != COPY_GO)
                pause_shortly();
        c->mbyte_per_s = copy(to, from, size_bytes, seconds);
        atomic_store(&c->state, COPY_DONE);
        /* The watch reads the times of living processes. */
        while (true)
                pause();
}

/* Returns whether the process has copied to the end. */
static bool follow(struct copying *c, pid_t pid, struct machine_watch *watch)
{
        while (atomic_load(&c->state) != COPY_DONE) {
                if (waitpid(pid, NULL, WNOHANG) != 0)
                        return false;
                if (atomic_load(&c->state) == COPY_READY) {
                        machine_watch_turn(watch, clock_now_ns(), true);
                        atomic_store(&c->state, COPY_GO);
                }
                pause_shortly();
                machine_watch_turn(watch, clock_now_ns(), atomic_load(&c->state) >= COPY_GO);
        }
        kill(pid, SIGKILL);
        return waitpid(pid, NULL, 0) == pid;
}

json_t *run_copy(const struct lab_point *p, struct machine_watch *watch)
{
        struct copying *c = memory_map_shared(sizeof *c);
        pid_t parent = getpid(), pid = c ? fork() : -1;
        json_t *figures = NULL;

        if (pid == 0)
                become_copier(c, (size_t)p->x, setting_of(p, "seconds", 0.2), parent);
        if (pid < 0)
                log_error_errno(errno, "lab: cannot start a process that copies: %m");
        else {
                machine_watch_add(watch, pid);
                if (follow(c, pid, watch))
                        figures = json_pack("{s:f}", "mbyte_per_s", c->mbyte_per_s);
        }
        if (c)
                memory_unmap(c, sizeof *c);
        return figures;
}
