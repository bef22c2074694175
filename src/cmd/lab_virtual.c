/* evb lab run --sim: makes the planned points in virtual time, several at once, and appends them to the
 * results file in the order of the plan. */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/strbuf.h"
#include "base/util.h"
#include "lab/point_run.h"
#include "sys/loop.h"
#include "lab.h"
#include "lab_results.h"

/* Each simulation may need a gigabyte of memory. */
#define PROCESSES_MAX 8u
#define LOOK_MS 200

/* A point that a process makes; its figures come through a pipe, as JSON. */
struct worker {
        const struct lab_point *point; /* NULL: idle */
        pid_t pid;
        int fd;
        char *text;
        size_t bytes, size;
};

struct simulating {
        const struct lab_options *options;
        const char *path;
        int fd;
        struct lab_point *points; /* that are missing in the results */
        json_t **figures;         /* of each point; NULL: not made yet */
        bool *ended;              /* with or without figures */
        json_t *results;
        size_t n, next, written, failed;
        struct worker workers[PROCESSES_MAX];
        unsigned n_workers;
        bool full; /* points can no longer be written */
};

static unsigned count_processors(void)
{
        cpu_set_t set;
        int n = sched_getaffinity(0, sizeof set, &set) < 0 ? 1 : CPU_COUNT(&set);

        return MIN((unsigned)MAX(n, 1), PROCESSES_MAX);
}

static _Noreturn void become_worker(const struct lab_point *p, int fd, pid_t parent)
{
        _cleanup_free_ char *text = NULL;
        json_t *figures;
        size_t n, done = 0;

        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
                _exit(1);
        figures = lab_run_point(p);
        text = figures ? json_dumps(figures, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
        n = text ? strlen(text) : 0;
        while (done < n) {
                ssize_t r = write(fd, text + done, n - done);

                if (r < 0)
                        _exit(1);
                done += (size_t)r;
        }
        _exit(text ? 0 : 1);
}

static bool start(struct worker *w, const struct lab_point *p)
{
        pid_t parent = getpid();
        int ends[2];

        if (pipe(ends) < 0)
                return false;
        fflush(NULL);
        w->pid = fork();
        if (w->pid == 0)
                become_worker(p, ends[1], parent);
        close(ends[1]);
        if (w->pid < 0) {
                close(ends[0]);
                return false;
        }
        w->fd = ends[0];
        w->point = p;
        w->bytes = 0;
        return true;
}

static void report_failure(const struct lab_point *p)
{
        fprintf(stderr, "evb lab run: %s: \"%s%s%s\" at %g failed\n", p->measurement->id, p->panel ?: "",
                p->panel ? ", " : "", p->series, p->x);
}

static void end(struct simulating *s, struct worker *w)
{
        size_t i = (size_t)(w->point - s->points);
        int status = 1;

        close(w->fd);
        while (waitpid(w->pid, &status, 0) < 0 && errno == EINTR)
                ;
        s->figures[i] = status == 0 ? json_loadb(w->text, w->bytes, 0, NULL) : NULL;
        s->ended[i] = true;
        if (!s->figures[i]) {
                s->failed++;
                report_failure(w->point);
        }
        w->point = NULL;
}

/* Returns false at the end of the output. */
static bool take_output(struct worker *w)
{
        ssize_t r;

        if (w->bytes == w->size) {
                char *more = realloc(w->text, w->size + 65536);

                if (!more)
                        return false;
                w->text = more;
                w->size += 65536;
        }
        r = read(w->fd, w->text + w->bytes, w->size - w->bytes);
        if (r > 0)
                w->bytes += (size_t)r;
        return r > 0 || (r < 0 && errno == EINTR);
}

static void print_progress(const struct simulating *s)
{
        const struct lab_point *p = &s->points[s->written - 1];

        if (options_wants_progress(&s->options->common))
                fprintf(stderr, "%s%zu/%zu %s, %s%s%s at %g    %s", isatty(STDERR_FILENO) ? "\r" : "",
                        s->written, s->n, p->measurement->id, p->panel ?: "", p->panel ? ", " : "", p->series,
                        p->x, isatty(STDERR_FILENO) ? "" : "\n");
}

/* The file has the same lines in the same order, however many processes made them. */
static void write_ended(struct simulating *s)
{
        while (s->written < s->n && s->ended[s->written] && !s->full) {
                const struct lab_point *p = &s->points[s->written];
                json_t *figures = s->figures[s->written];

                if (figures && !results_append(s->fd, s->path, p, figures)) {
                        s->full = true;
                        return;
                }
                if (figures)
                        json_array_append(s->results, figures);
                s->written++;
                print_progress(s);
        }
}

static bool is_stopped(const struct simulating *s)
{
        return s->full || signals_are_waiting();
}

/* Starts points while processes are idle. Returns how many run. */
static unsigned start_some(struct simulating *s)
{
        unsigned running = 0;

        for (unsigned i = 0; i < s->n_workers; i++) {
                struct worker *w = &s->workers[i];

                if (!w->point && s->next < s->n && !is_stopped(s)) {
                        if (start(w, &s->points[s->next]))
                                s->next++;
                        else if (running == 0) {
                                fprintf(stderr, "evb lab run: cannot start a process: %s\n", strerror(errno));
                                s->full = true;
                        }
                }
                running += w->point != NULL;
        }
        return running;
}

static void wait_for_some(struct simulating *s)
{
        struct pollfd polls[PROCESSES_MAX] = {};

        for (unsigned i = 0; i < s->n_workers; i++)
                polls[i] =
                        (struct pollfd){.fd = s->workers[i].point ? s->workers[i].fd : -1, .events = POLLIN};
        if (poll(polls, s->n_workers, LOOK_MS) <= 0)
                return;
        for (unsigned i = 0; i < s->n_workers; i++) {
                if (polls[i].revents != 0 && !take_output(&s->workers[i]))
                        end(s, &s->workers[i]);
        }
}

static void make_all(struct simulating *s)
{
        while (start_some(s) > 0 && !is_stopped(s)) {
                wait_for_some(s);
                write_ended(s);
        }
        for (unsigned i = 0; i < s->n_workers; i++) {
                struct worker *w = &s->workers[i];

                if (w->point) {
                        kill(w->pid, SIGKILL);
                        waitpid(w->pid, NULL, 0);
                        close(w->fd);
                }
                free(w->text);
        }
        if (s->n > 0 && isatty(STDERR_FILENO) && options_wants_progress(&s->options->common))
                fputc('\n', stderr);
}

/* Keeps the points that the results lack. */
static void drop_made(struct simulating *s)
{
        size_t kept = 0;

        for (size_t i = 0; i < s->n; i++) {
                if (!results_have(s->results, &s->points[i]))
                        s->points[kept++] = s->points[i];
        }
        s->n = kept;
}

static int prepare(struct simulating *s, const char *words, const struct lab_bed *bed, size_t *ret_skipped)
{
        s->points = calloc(LAB_POINTS_MAX, sizeof *s->points);
        s->figures = calloc(LAB_POINTS_MAX, sizeof(json_t *));
        s->ended = calloc(LAB_POINTS_MAX, sizeof *s->ended);
        if (!s->points || !s->figures || !s->ended)
                return 1;
        /* Without the signal, a write beyond the file size limit returns an error. */
        signal(SIGXFSZ, SIG_IGN);
        s->fd = results_open(s->path);
        if (s->fd < 0)
                return s->fd == -EBUSY ? 1 : 2;
        s->results = s->options->again ? json_array() : results_read(&s->path, 1);
        if (!s->results)
                return 2;
        s->n = lab_plan(words, bed, s->options->quick, s->points, LAB_POINTS_MAX, ret_skipped);
        drop_made(s);
        return 0;
}

static int print_end(const struct simulating *s, const char *words, const struct lab_bed *bed, size_t skipped)
{
        const struct lab_made made = {.points = s->written - s->failed};
        int status;

        if (signals_are_waiting() || s->full) {
                fprintf(stderr, "evb lab run: %s; the same command continues after the points in %s\n",
                        s->full ? "stopped because points cannot be written" : "interrupted", s->path);
                return 1;
        }
        status = lab_print_verdicts(s->options, words, bed, s->results, &made);
        return status == 0 && s->failed + skipped > 0 ? 1 : status;
}

/* Returns an exit status. */
static int read_seed(const char *text, uint64_t *seed)
{
        char *end;

        *seed = 1;
        if (!text)
                return 0;
        errno = 0;
        *seed = strtoull(text, &end, 10);
        if (text[0] >= '0' && text[0] <= '9' && !*end && errno == 0 && *seed <= INT64_MAX)
                return 0;
        fprintf(stderr, "evb lab run: --seed: invalid value \"%s\"; expected a whole number up to 2^63 - 1\n",
                text);
        return 2;
}

/* Returns an exit status. */
static int check_model(const char *model)
{
        char bad[64];

        if (!model || lab_virtual_check_model(model, bad, sizeof bad))
                return 0;
        fprintf(stderr,
                "evb lab run: --model: unknown or invalid setting \"%s\"; expected e.g. \"processors=2 "
                "send-time=10us\"\n",
                bad);
        return 2;
}

int lab_run_virtual(const struct lab_options *o, const char *words)
{
        struct lab_virtual virtual = {.model = o->model ?: ""};
        const struct lab_bed bed = {.virtual = &virtual};
        struct simulating s = {
                .options = o, .path = o->results ?: LAB_RESULTS, .fd = -1, .n_workers = count_processors()};
        size_t skipped = 0;
        int status = read_seed(o->seed, &virtual.seed);

        if (status == 0)
                status = check_model(o->model);
        if (status == 0)
                status = prepare(&s, words, &bed, &skipped);
        signals_hold();
        if (status == 0) {
                make_all(&s);
                status = print_end(&s, words, &bed, skipped);
        }
        for (size_t i = 0; s.figures && i < s.n; i++)
                json_decref(s.figures[i]);
        json_decref(s.results);
        free(s.points);
        free(s.figures);
        free(s.ended);
        if (s.fd >= 0)
                close(s.fd);
        return status;
}
