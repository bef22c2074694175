/* Counts the system calls of a process with ptrace(2), which sees those of the C library, too, and needs no
 * privilege. The process is slow meanwhile. Threads that the kernel adds to it (io_uring) make no calls. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/util.h"
#include "sys/loop.h"
#include "path_internal.h"

/* The stop at a system call, with PTRACE_O_TRACESYSGOOD. */
#define SYSTEM_CALL_STOP (SIGTRAP | 0x80)

static const struct {
        int number;
        const char *name;
} names[] = {
        {SYS_read, "read"},
        {SYS_pread64, "pread"},
        {SYS_write, "write"},
        {SYS_writev, "writev"},
        {SYS_sendto, "send"},
        {SYS_sendmsg, "sendmsg"},
        {SYS_sendmmsg, "sendmmsg"},
        {SYS_sendfile, "sendfile"},
        {SYS_splice, "splice"},
        {SYS_vmsplice, "vmsplice"},
        {SYS_setsockopt, "setsockopt"},
        {SYS_recvmsg, "recvmsg"},
#ifdef SYS_poll /* not on newer architectures */
        {SYS_poll, "poll"},
#endif
        {SYS_ppoll, "ppoll"},
        {SYS_mmap, "mmap"},
        {SYS_munmap, "munmap"},
        {SYS_brk, "brk"},
        {SYS_madvise, "madvise"},
        {SYS_pipe2, "pipe2"},
        {SYS_fcntl, "fcntl"},
        {SYS_close, "close"},
        {SYS_io_uring_setup, "io_uring_setup"},
        {SYS_io_uring_register, "io_uring_register"},
        {SYS_io_uring_enter, "io_uring_enter"},
};

const char *path_call_name(int number)
{
        for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
                if (names[i].number == number)
                        return names[i].name;
        }
        return NULL;
}

/* The C library caches nothing of it, and nothing else of a path calls it. */
void path_calls_mark(void)
{
        (void)syscall(SYS_getppid);
}

static void note(struct path_result *r, int number)
{
        size_t i = 0;

        r->calls++;
        while (i < PATH_CALLS_NAMED && r->by_call[i].n > 0 && r->by_call[i].number != number)
                i++;
        if (i == PATH_CALLS_NAMED)
                return;
        r->by_call[i].number = number;
        r->by_call[i].n++;
}

static int compare(const void *a, const void *b)
{
        const struct path_call *x = a, *y = b;

        return (x->n < y->n) - (x->n > y->n);
}

/* Whether a call begins rather than ends, and its number; negative errno before Linux 5.3. */
static int call_that_begins(pid_t pid, int *ret_number)
{
        struct __ptrace_syscall_info info;

        if (ptrace(PTRACE_GET_SYSCALL_INFO, pid, sizeof info, &info) < 0)
                return -errno;
        *ret_number = (int)info.entry.nr;
        return info.op == PTRACE_SYSCALL_INFO_ENTRY;
}

/* Runs the stopped process to its next stop at a call. Returns -ECHILD if it has ended. */
static int run_to_call(pid_t pid)
{
        int status = 0, signal = 0;

        do {
                if (ptrace(PTRACE_SYSCALL, pid, NULL, (long)signal) < 0 ||
                    waitpid(pid, &status, __WALL) != pid)
                        return -errno;
                if (!WIFSTOPPED(status))
                        return -ECHILD;
                /* A stop of the tracer's own making carries no signal for the process. */
                signal = status >> 16 == 0 && WSTOPSIG(status) != SYSTEM_CALL_STOP ? WSTOPSIG(status) : 0;
        } while (WSTOPSIG(status) != SYSTEM_CALL_STOP);
        return 0;
}

/* The clock is read without a system call on most machines, and by no path. */
static int count(pid_t pid, struct path_result *ret)
{
        unsigned marks = 0;

        while (marks < 2) {
                int number = -1, r = signals_are_waiting() ? -EINTR : run_to_call(pid);

                if (r >= 0)
                        r = call_that_begins(pid, &number);
                if (r < 0)
                        return r;
                if (r > 0 && number == SYS_getppid)
                        marks++;
                else if (r > 0 && marks == 1 && number != SYS_clock_gettime)
                        note(ret, number);
        }
        qsort(ret->by_call, PATH_CALLS_NAMED, sizeof ret->by_call[0], compare);
        return 0;
}

int path_calls_count(pid_t pid, void (*begin)(void *ctx), void *ctx, struct path_result *ret)
{
        int r = ptrace(PTRACE_SEIZE, pid, NULL, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL) < 0 ? -errno : 0;
        bool traced = r >= 0;

        if (r >= 0 && (ptrace(PTRACE_INTERRUPT, pid, NULL, NULL) < 0 || waitpid(pid, NULL, __WALL) != pid))
                r = -errno;
        begin(ctx);
        if (r >= 0)
                r = count(pid, ret);
        if (traced && r != -ECHILD)
                (void)ptrace(PTRACE_DETACH, pid, NULL, NULL);
        return r;
}
