/* Runs a path, and counts its system calls. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/util.h"
#include "sys/loop.h"
#include "sys/memory.h"
#include "sys/thread.h"
#include "path_internal.h"

/* Counts the system calls of a process with ptrace(2). This needs no privilege and includes the calls of the
 * C library, but slows the process down. Threads that the kernel adds to the process (io_uring) make no
 * calls. */

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

/* Uses a call that the C library does not cache, and that no path makes. */
/* The traced process calls this before and after the part to be counted, and then ends. */
static void mark_calls(void)
{
        (void)syscall(SYS_getppid);
}

static void count_call(struct path_result *r, int number)
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

/* Whether a call begins rather than ends; *ret_number is the number of the call. Negative errno before Linux
 * 5.3. */
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
                /* Stops that the tracer causes carry no signal for the process. */
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
                        count_call(ret, number);
        }
        qsort(ret->by_call, PATH_CALLS_NAMED, sizeof ret->by_call[0], compare);
        return 0;
}

/* Traces a child process; `begin` starts its work. Returns negative errno if the process cannot be traced; it
 * then continues untraced. */
static int count_calls(pid_t pid, void (*begin)(void *ctx), void *ctx, struct path_result *ret)
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

/* Runs one path with two processes, a sender and a receiver: first for the check, then for the measurement.
 * Both processes end by themselves after a time, so a path that hangs cannot hang the run. */

#define LOOK_NS (2 * NS_PER_MS)
#define CHECK_SECONDS 20
/* If more than this share of the file is in the page cache after it was removed from the cache, the file is
 * not on a disk. */
#define CACHED_MOST 0.5
/* A process ends itself if it takes longer than a pass and this additional time. */
#define PATIENCE_S 20u
/* A measurement sends the file repeatedly until this time has passed, because the machine is sampled every
 * 0.1 s. */
#define LEAST_NS (300 * NS_PER_MS)

struct pass {
        const struct path_run *run;
        const struct path_file *file;
        int fd; /* of the file */
        enum path_wire wire;
        bool check;
        uint64_t size_bytes;
        double seconds;
        struct path_shared *shared;
        struct path_link link;
        pid_t sender, receiver; /* 0: not started, or reaped */
        struct path_result *result;
};

static void pause_shortly(void)
{
        nanosleep(&(struct timespec){.tv_nsec = LOOK_NS}, NULL);
}

static double seconds_of(struct timeval t)
{
        return (double)t.tv_sec + (double)t.tv_usec / 1e6;
}

static int send_once(const struct pass *p, struct path_sender *s)
{
        int r;

        s->bytes = s->packets = 0;
        s->ended = false;
        r = s->path->send(s);
        p->shared->bytes += s->bytes;
        p->shared->packets += s->packets;
        return r;
}

/* Sends the file; in a measurement, sends it repeatedly. */
static int send_all(const struct pass *p, struct path_sender *s)
{
        uint64_t begin_ns = clock_now_ns(), again_until_ns = p->check ? 0 : begin_ns + LEAST_NS;
        int r;

        s->deadline_ns = begin_ns + (uint64_t)(p->seconds * 1e9);
        r = send_once(p, s);
        while (r >= 0 && clock_now_ns() < MIN(again_until_ns, s->deadline_ns)) {
                if (p->run->source == PATH_DISK)
                        path_file_empty(p->file);
                r = send_once(p, s);
        }
        return r;
}

/* A stream has been sent once the receiver has read all of it and closed its end. */
static void end_stream(const struct pass *p, int r)
{
        char byte;

        if (p->wire != PATH_TCP)
                return;
        (void)shutdown(p->link.sender, SHUT_WR);
        if (r >= 0)
                (void)recv(p->link.sender, &byte, 1, 0);
}

static void send_and_report(const struct pass *p)
{
        struct path_sender s = {
                .path = p->run->path,
                .wire = p->wire == PATH_TCP ? PATH_TCP : PATH_UDP,
                .direct = p->run->source == PATH_DISK && p->run->path->reads == PATH_DIRECT,
                .file = p->fd,
                .socket = p->link.sender,
                .file_bytes = path_file_bytes(p->file),
                .size_bytes = p->size_bytes,
                .payload_bytes = p->run->payload_bytes,
                .shared = p->check && p->wire == PATH_UDP ? p->shared : NULL,
        };
        struct path_shared *shared = p->shared;
        struct rusage before, after;
        uint64_t begin_ns;

        getrusage(RUSAGE_SELF, &before);
        begin_ns = clock_now_ns();
        mark_calls();
        shared->error = send_all(p, &s);
        mark_calls();
        end_stream(p, shared->error);
        shared->seconds = (double)(clock_now_ns() - begin_ns) / 1e9;
        getrusage(RUSAGE_SELF, &after);
        shared->user_seconds = seconds_of(after.ru_utime) - seconds_of(before.ru_utime);
        shared->system_seconds = seconds_of(after.ru_stime) - seconds_of(before.ru_stime);
        shared->what = s.what;
        shared->notified = s.notified;
        shared->copied = s.copied;
}

/* Setup common to both processes. */
static void begin_process(const struct pass *p, pid_t parent)
{
        (void)priority_raise();
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        signal(SIGPIPE, SIG_IGN);
        signal(SIGALRM, SIG_DFL);
        alarm((unsigned)p->seconds + PATIENCE_S);
        if (getppid() != parent)
                _exit(1);
}

static _Noreturn void become_sender(struct pass *p, pid_t parent)
{
        begin_process(p, parent);
        if (p->wire == PATH_SINK)
                p->link.sender = path_sink_open(&p->shared->what);
        else
                close(p->link.receiver);
        atomic_store(&p->shared->state, PATH_READY);
        while (atomic_load(&p->shared->state) != PATH_GO)
                pause_shortly();
        if (p->link.sender >= 0)
                send_and_report(p);
        else
                p->shared->error = p->link.sender;
        atomic_store(&p->shared->state, PATH_SENT);
        /* The machine watch can read the times of existing processes only. */
        while (true)
                pause();
}

static _Noreturn void become_receiver(struct pass *p, pid_t parent)
{
        struct path_check check = {.headers = p->run->path->headers, .payload_bytes = p->run->payload_bytes};

        begin_process(p, parent);
        close(p->link.sender);
        path_receive(p->shared, p->link.receiver, p->wire, p->check ? &check : NULL);
        _exit(0);
}

static int start(struct pass *p)
{
        pid_t parent = getpid();
        bool has_receiver = p->wire != PATH_SINK;
        int r = has_receiver ? path_link_open(&p->link, p->wire) : 0;

        if (r < 0)
                return r;
        p->receiver = has_receiver ? fork() : 0;
        if (has_receiver && p->receiver == 0)
                become_receiver(p, parent);
        p->sender = p->receiver >= 0 ? fork() : -1;
        if (p->sender == 0)
                become_sender(p, parent);
        r = p->sender < 0 ? -errno : 0;
        path_link_close(&p->link);
        return r;
}

/* Waits until the sender has reached a state. -ECHILD: the sender ended before; -EINTR: a signal is
 * pending. */
static int wait_for(struct pass *p, unsigned state, struct machine_watch *watch)
{
        while (atomic_load(&p->shared->state) != state) {
                if (waitpid(p->sender, NULL, WNOHANG) != 0) {
                        p->sender = 0;
                        return -ECHILD;
                }
                if (signals_are_waiting())
                        return -EINTR;
                pause_shortly();
                machine_watch_turn(watch, clock_now_ns(), watch != NULL);
        }
        return 0;
}

static void let_begin(void *ctx)
{
        struct path_shared *shared = ctx;

        atomic_store(&shared->state, PATH_GO);
}

/* Runs the pass itself, between the start and the end of its processes. */
static int follow(struct pass *p, struct machine_watch *watch)
{
        int r = wait_for(p, PATH_READY, NULL);

        if (r < 0)
                return r;
        if (p->check) {
                r = count_calls(p->sender, let_begin, p->shared, p->result);
                p->result->counted = r >= 0;
                p->result->not_counted = r;
                if (r == -ECHILD) {
                        p->sender = 0;
                        return r;
                }
        } else {
                machine_watch_add(watch, p->sender);
                if (p->receiver > 0)
                        machine_watch_add(watch, p->receiver);
                machine_watch_turn(watch, clock_now_ns(), true);
                let_begin(p->shared);
        }
        r = wait_for(p, PATH_SENT, watch);
        machine_watch_turn(watch, clock_now_ns(), false);
        return r;
}

static void reap(pid_t pid, bool at_once)
{
        if (pid <= 0)
                return;
        if (at_once)
                kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
}

static int make_pass(struct pass *p, struct machine_watch *watch)
{
        int r;

        p->shared = memory_map_shared(sizeof *p->shared);
        if (!p->shared)
                return -ENOMEM;
        r = start(p);
        if (r >= 0)
                r = follow(p, watch);
        atomic_store(&p->shared->stop, true);
        reap(p->sender, true);
        reap(p->receiver, r < 0);
        return r;
}

/* Whether the error means that the kernel does not have a feature, or does not permit its use. */
static bool is_refusal(int error)
{
        static const int refusals[] = {EOPNOTSUPP, ENOSYS,      EPERM,  EACCES,
                                       EINVAL,     ENOPROTOOPT, ENOMEM, ENOBUFS};

        for (size_t i = 0; i < ARRAY_SIZE(refusals); i++) {
                if (error == -refusals[i])
                        return true;
        }
        return false;
}

static int refuse(struct path_result *ret, const char *what, int error)
{
        *ret = (struct path_result){.refused = what, .refusal = error, .header_bytes = ret->header_bytes};
        return 0;
}

/* Runs a pass, and evaluates how it ended. */
static int make(struct pass *p, struct machine_watch *watch, struct error *e)
{
        int r;

        if (p->run->source == PATH_DISK)
                path_file_empty(p->file);
        r = make_pass(p, watch);
        if (r == -EINTR)
                return error_set(e, r, "interrupted");
        if (r == -ECHILD)
                return error_set(e, r, "the sending process ended early");
        if (r < 0)
                return error_set(e, r, "cannot start the sender and the receiver: %m");
        if (p->shared->error < 0 && is_refusal(p->shared->error))
                return refuse(p->result, p->shared->what ?: "send", p->shared->error);
        if (p->shared->error < 0)
                return error_set(e, p->shared->error, "%s: %m", p->shared->what ?: "send");
        if (p->shared->receive_error < 0)
                return error_set(e, p->shared->receive_error, "the receiver failed: %m");
        return 0;
}

static int check(const struct path_run *run, const struct path_file *file, int fd, struct path_result *ret,
                 struct error *e)
{
        struct pass p = {.run = run,
                         .file = file,
                         .fd = fd,
                         .wire = run->wire == PATH_TCP ? PATH_TCP : PATH_UDP,
                         .check = true,
                         .size_bytes = MIN(run->check_bytes, path_file_bytes(file)),
                         .seconds = CHECK_SECONDS,
                         .link = {-1, -1},
                         .result = ret};
        int r = make(&p, NULL, e);

        if (r >= 0 && !ret->refused) {
                ret->sent_bytes = p.shared->bytes;
                ret->counted_packets = p.shared->packets;
                ret->checked_bytes = p.shared->checked_bytes;
                /* On a slow machine, the time limit ends the check before its last byte. */
                ret->intact = p.shared->intact && ret->checked_bytes == ret->sent_bytes;
        }
        memory_unmap(p.shared, sizeof *p.shared);
        return r;
}

static int measure(const struct path_run *run, const struct path_file *file, int fd,
                   struct machine_watch *watch, struct path_result *ret, struct error *e)
{
        struct pass p = {.run = run,
                         .file = file,
                         .fd = fd,
                         .wire = run->wire,
                         .size_bytes = path_file_bytes(file),
                         .seconds = run->seconds,
                         .link = {-1, -1},
                         .result = ret};
        int r = make(&p, watch, e);

        if (r >= 0 && !ret->refused) {
                ret->seconds = p.shared->seconds;
                ret->user_seconds = p.shared->user_seconds;
                ret->system_seconds = p.shared->system_seconds;
                ret->bytes = p.shared->bytes;
                ret->packets = p.shared->packets;
                ret->received_bytes = p.shared->received_bytes;
                ret->notified = p.shared->notified;
                ret->copied = p.shared->copied;
        }
        memory_unmap(p.shared, sizeof *p.shared);
        return r;
}

int path_run(const struct path_run *run, const struct path_file *file, struct machine_watch *watch,
             struct path_result *ret, struct error *e)
{
        int fd = path_file_descriptor(file, run->source, run->path->reads), r;
        struct path_packet first = {.length = run->payload_bytes};
        uint8_t header[PATH_HEADER_MAX_BYTES];

        *ret = (struct path_result){
                .header_bytes = run->path->headers ? (uint32_t)path_header_encode(&first, header) : 0};
        if (fd < 0)
                return refuse(ret, "open with O_DIRECT", fd);
        r = run->source == PATH_CACHE ? path_file_warm(file) : 0;
        if (r < 0)
                return error_set(e, r, "cannot read the file into the page cache: %m");
        /* Some file systems keep files only in the page cache. */
        if (run->source == PATH_DISK)
                path_file_empty(file);
        if (run->source == PATH_DISK && path_file_cached_share(file, PATH_DISK) > CACHED_MOST)
                return refuse(ret, "empty the page cache", -EOPNOTSUPP);
        r = check(run, file, fd, ret, e);
        if (r < 0 || ret->refused)
                return r;
        if (run->source == PATH_DISK)
                path_file_empty(file);
        ret->cached_share = path_file_cached_share(file, run->source);
        return measure(run, file, fd, watch, ret, e);
}
