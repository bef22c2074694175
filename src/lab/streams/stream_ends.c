/* Starts the two processes of a stream, waits for both, and reads the receiver's report. */
#include "stream_ends.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/util.h"
#include "run/netns.h"
#include "sys/loop.h"
#include "sys/priority.h"
#include "sys/thread.h"

#define PROGRAM "/proc/self/exe"
#define LOOK_NS (5 * NS_PER_MS)
/* Beyond twice the time of the stream, as a disk may be slow; a stream whose network is gone ends by itself
 * after 20 s. */
#define PATIENCE_NS (30 * NS_PER_S)
#define ERRORS_MAX_BYTES 600

struct end {
        const char *verb;
        pid_t pid;       /* 0: has ended, or was not started */
        int out, errors; /* what it printed */
        int status;
};

void stream_words_add(struct stream_words *w, const char *format, ...)
{
        va_list arguments;

        if (w->n == STREAM_WORDS_MAX)
                return;
        va_start(arguments, format);
        vsnprintf(w->words[w->n++], STREAM_WORD_MAX_BYTES, format, arguments);
        va_end(arguments);
}

static _Noreturn void become_end(const struct end *e, const struct stream_words *w, int namespace,
                                 pid_t parent)
{
        const char *words[STREAM_WORDS_MAX + 4] = {"evb", "stream", e->verb};
        sigset_t none;

        (void)priority_raise();
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent || netns_enter(namespace) < 0)
                _exit(77);
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        for (size_t i = 0; i < w->n; i++)
                words[3 + i] = w->words[i];
        dup2(e->out, STDOUT_FILENO);
        dup2(e->errors, STDERR_FILENO);
        execv(PROGRAM, (char **)(uintptr_t)words);
        _exit(127);
}

/* What it prints goes into memory, so that it never waits for this process. */
static int start_end(struct end *e, const struct stream_words *w, int namespace)
{
        pid_t parent = getpid();

        e->out = memfd_create("evb-stream-report", MFD_CLOEXEC);
        e->errors = memfd_create("evb-stream-errors", MFD_CLOEXEC);
        if (e->out < 0 || e->errors < 0)
                return -errno;
        e->pid = fork();
        if (e->pid == 0)
                become_end(e, w, namespace, parent);
        if (e->pid > 0)
                return 0;
        e->pid = 0;
        return -errno;
}

static bool has_ended(struct end *e)
{
        if (e->pid > 0 && waitpid(e->pid, &e->status, WNOHANG) != 0)
                e->pid = 0;
        return e->pid == 0;
}

static void end_fini(struct end *e)
{
        if (e->pid > 0) {
                kill(e->pid, SIGKILL);
                waitpid(e->pid, NULL, 0);
        }
        if (e->out >= 0)
                close(e->out);
        if (e->errors >= 0)
                close(e->errors);
}

static pid_t start_busy(int processor)
{
        pid_t parent = getpid(), pid = fork();
        unsigned cpu = (unsigned)processor;

        if (pid != 0)
                return pid;
        (void)priority_raise();
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent || thread_pin(&cpu, 1) < 0)
                _exit(1);
        while (true)
                __asm__ volatile("");
}

/* Returns whether both ends have ended by themselves. */
static bool follow(struct end *sender, struct end *receiver, double seconds, struct machine_watch *watch)
{
        uint64_t begin_ns = clock_now_ns(), watched_ns = (uint64_t)(seconds * 1e9), now_ns = begin_ns;
        bool sent = false, received = false;

        while (!(sent && received) && now_ns < begin_ns + 2 * watched_ns + PATIENCE_NS &&
               !signals_are_waiting()) {
                /* While the sender sends: the watch reads the times of living processes. */
                machine_watch_turn(watch, now_ns, now_ns < begin_ns + watched_ns);
                nanosleep(&(struct timespec){.tv_nsec = LOOK_NS}, NULL);
                sent = has_ended(sender);
                received = has_ended(receiver);
                now_ns = clock_now_ns();
        }
        machine_watch_turn(watch, now_ns, false);
        return sent && received;
}

static void log_end(const struct end *e)
{
        char text[ERRORS_MAX_BYTES] = "";
        ssize_t n = pread(e->errors, text, sizeof text - 1, 0);

        text[n > 0 ? n : 0] = '\0';
        text[strcspn(text, "\n")] = '\0';
        log_error("lab: evb stream %s has no report (status %d): %s", e->verb, e->status,
                  text[0] ? text : "it printed nothing");
}

/* A stream that fell short ends with status 1, and has a report all the same. */
static json_t *read_report(const struct end *sender, const struct end *receiver)
{
        json_t *report = NULL;

        if (lseek(receiver->out, 0, SEEK_SET) == 0)
                report = json_loadfd(receiver->out, JSON_DISABLE_EOF_CHECK, NULL);
        if (!report) {
                log_end(sender);
                log_end(receiver);
        }
        return report;
}

json_t *stream_ends_run(const struct stream_run *run, struct machine_watch *watch)
{
        struct end sender = {.verb = "send", .out = -1, .errors = -1},
                   receiver = {.verb = "recv", .out = -1, .errors = -1};
        pid_t busy = run->busy_processor >= 0 ? start_busy(run->busy_processor) : 0;
        json_t *report = NULL;
        int r = start_end(&receiver, &run->receiver, run->receiver_namespace);

        if (r >= 0)
                r = start_end(&sender, &run->sender, run->sender_namespace);
        if (r >= 0) {
                machine_watch_add(watch, sender.pid);
                machine_watch_add(watch, receiver.pid);
                if (busy > 0)
                        machine_watch_add(watch, busy);
                if (follow(&sender, &receiver, run->seconds, watch))
                        report = read_report(&sender, &receiver);
                else if (!signals_are_waiting())
                        log_error("lab: a stream of %g s did not end", run->seconds);
        } else
                log_error_errno(r, "lab: cannot start evb stream: %m");
        if (busy > 0) {
                kill(busy, SIGKILL);
                waitpid(busy, NULL, 0);
        }
        end_fini(&sender);
        end_fini(&receiver);
        return report;
}
