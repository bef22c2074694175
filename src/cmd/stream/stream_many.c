/* Moves several streams at the same time, each in a separate process, so that they do not disturb each
 * other. */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "base/util.h"
#include "sys/loop.h"
#include "stream_verbs.h"

#define LOOK_NS (50 * NS_PER_MS)
#define FAILED 1

struct part {
        pid_t pid; /* 0: it has ended */
        int report_fd;
        int status;
};

static _Noreturn void become_part(const struct part *p, pid_t parent,
                                  int (*one)(void *ctx, size_t i, json_t **ret), void *ctx, size_t i)
{
        json_t *report = NULL;
        int status;

        /* Ctrl-C on a terminal reaches only the parent, which passes the signal on. */
        (void)setpgid(0, 0);
        (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
        if (getppid() != parent)
                _exit(FAILED);
        status = one(ctx, i, &report);
        if (report && json_dumpfd(report, p->report_fd, JSON_COMPACT) < 0)
                status = status ?: FAILED;
        _exit(status);
}

static int start_part(struct part *p, int (*one)(void *ctx, size_t i, json_t **ret), void *ctx, size_t i)
{
        pid_t self = getpid();

        p->report_fd = memfd_create("evb-report", MFD_CLOEXEC);
        p->pid = p->report_fd < 0 ? -1 : fork();
        if (p->pid < 0) {
                int r = -errno;

                p->pid = 0;
                p->status = FAILED;
                return log_error_errno(r, "cannot start stream %zu: %m", i + 1);
        }
        if (p->pid == 0)
                become_part(p, self, one, ctx, i);
        return 0;
}

static void signal_all(const struct part *parts, size_t n, int number)
{
        for (size_t i = 0; i < n; i++) {
                if (parts[i].pid > 0)
                        kill(parts[i].pid, number);
        }
}

/* Reaps processes that have ended, and returns how many are still running. */
static size_t reap(struct part *parts, size_t n)
{
        size_t running = 0;

        for (size_t i = 0; i < n; i++) {
                struct part *p = &parts[i];
                int status;

                if (p->pid > 0 && waitpid(p->pid, &status, WNOHANG) == p->pid) {
                        p->pid = 0;
                        p->status = WIFEXITED(status) ? WEXITSTATUS(status) : FAILED;
                        if (WIFSIGNALED(status))
                                log_error("stream %zu: its process was killed by signal %d", i + 1,
                                          WTERMSIG(status));
                }
                running += p->pid > 0;
        }
        return running;
}

static json_t *receive_report(const struct part *p)
{
        if (p->report_fd < 0 || lseek(p->report_fd, 0, SEEK_SET) < 0)
                return NULL;
        return json_loadfd(p->report_fd, 0, NULL);
}

int stream_many(size_t n, int (*one)(void *ctx, size_t i, json_t **ret), void *ctx, json_t **ret)
{
        struct part parts[STREAMS_MAX] = {};
        json_t *reports = json_array();
        int status = 0;

        signals_hold();
        for (size_t i = 0; i < n; i++) {
                /* Without this part, the streams that are already running are incomplete, so stop them. */
                if (start_part(&parts[i], one, ctx, i) < 0)
                        signal_all(parts, i, SIGTERM);
        }
        while (reap(parts, n) > 0) {
                if (signals_wait(LOOK_NS))
                        signal_all(parts, n, SIGINT);
        }
        for (size_t i = 0; i < n; i++) {
                json_t *report = receive_report(&parts[i]);

                if (report)
                        json_array_append_new(reports, report);
                if (parts[i].report_fd >= 0)
                        close(parts[i].report_fd);
                status = MAX(status, parts[i].status);
        }
        *ret = stream_join_reports(reports);
        return status;
}
