/* Writes the records of a run: one in each folder with files of an SFI, because the files may be separated
 * later. Each record is written by a child process, because a process that waits for a disk cannot be
 * interrupted. */
#include "summary.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#include "base/log.h"
#include "base/util.h"
#include "data/run_file.h"
#include "sys/loop.h"

/* If the disk takes longer than this, a warning is logged. */
#define PATIENCE_NS NS_PER_S
#define LOOK_MS 50

/* The result that the child reports. */
struct outcome {
        int result; /* result of run_file_write() */
        char path[RUN_FILE_PATH_MAX];
};

/* The child may outlive the run, so it must not keep the output of the run open. */
static _Noreturn void write_as_child(const struct run_file *f, int to)
{
        struct outcome outcome = {};
        int null = open("/dev/null", O_RDWR | O_CLOEXEC);

        for (int fd = STDIN_FILENO; null >= 0 && fd <= STDERR_FILENO; fd++)
                (void)dup2(null, fd);
        outcome.result = run_file_write(f, outcome.path);
        _exit(write(to, &outcome, sizeof outcome) == sizeof outcome ? 0 : 1);
}

/* Discards signals that arrived before this message, because they stopped the run and are not an answer to
 * the message. */
static void warn_that_it_waits(const char *path)
{
        while (signals_wait(0))
                ;
        log_warning("waiting for the disk to take %s; a signal (Ctrl-C) ends the run without it", path);
}

/* False: a signal arrived first. */
static bool await_child(int from, const char *path)
{
        uint64_t patience_ns = clock_now_ns() + PATIENCE_NS;
        struct pollfd end = {.fd = from, .events = POLLIN};
        bool warned = false;

        while (poll(&end, 1, LOOK_MS) <= 0) {
                if (warned && signals_wait(0))
                        return false;
                if (warned || clock_now_ns() < patience_ns)
                        continue;
                warn_that_it_waits(path);
                warned = true;
        }
        return true;
}

/* As run_file_write(), with the expected path. -EINTR: a signal arrived while the disk was not ready. */
static int write_record(const struct run_file *f, char path[static RUN_FILE_PATH_MAX])
{
        _cleanup_close_ int from = -1, to = -1;
        struct outcome outcome;
        int ends[2];
        pid_t child;

        if (pipe2(ends, O_CLOEXEC) < 0)
                return -errno;
        from = ends[0];
        to = ends[1];
        fflush(NULL);
        child = fork();
        if (child < 0)
                return -errno;
        if (child == 0)
                write_as_child(f, to);
        close(take_fd(&to));
        if (!await_child(from, path)) {
                /* The kernel ends the child once the disk responds. */
                kill(child, SIGKILL);
                return -EINTR;
        }
        if (read(from, &outcome, sizeof outcome) != sizeof outcome)
                outcome = (struct outcome){.result = -EIO};
        else
                memcpy(path, outcome.path, RUN_FILE_PATH_MAX);
        waitpid(child, NULL, 0);
        return outcome.result;
}

/* All nodes that joined the run report its number; other nodes report none. */
static uint32_t run_number(const json_t *nodes)
{
        json_int_t number = 0;
        const json_t *node;
        size_t i;

        json_array_foreach(nodes, i, node)
        {
                number = MAX(number, json_integer_value(json_object_get(node, "run")));
        }
        return (uint32_t)number;
}

/* Returns this node's report; NULL: there is none. */
static const json_t *report_of(const json_t *nodes, const struct child *c)
{
        const json_t *node;
        size_t i;

        json_array_foreach(nodes, i, node)
        {
                const char *name = json_string_value(json_object_get(node, "name"));

                if (name && strcmp(name, c->node->name) == 0)
                        return node;
        }
        return NULL;
}

void run_files_write(const struct launch *l, const json_t *report, json_t *written, struct reasons *to)
{
        const json_t *nodes = json_object_get(report, "nodes");
        char core[RUN_FILE_PATH_MAX - 16], path[RUN_FILE_PATH_MAX];
        struct run_file f = {
                .scenario = l->scenario, .run = run_number(nodes), .core = core, .accounts = report};
        int r = 0;

        if (!l->options->keep_records || l->scenario->sfi.output != OUTPUT_FILE || f.run == 0)
                return;
        for (size_t i = 0; i < l->n_children; i++) {
                const struct child *c = &l->children[i];
                const json_t *own = report_of(nodes, c);
                const char *file = json_string_value(json_array_get(json_object_get(own, "files"), 0));

                if (c->node->role != ROLE_SFI)
                        continue;
                /* An SFI that was killed leaves no report, but its files have this name. */
                if (!file || !run_file_core(file, core, sizeof core))
                        run_file_make_core(l->scenario, c->node, f.run, core, sizeof core);
                if (stats_get(&launch_dfm(l)->stats->triggers) == 0) {
                        run_file_remove_begun(core);
                        continue;
                }
                f.metadata = json_object_get(own, "metadata");
                f.files = json_object_get(own, "file_records");
                snprintf(path, sizeof path, "%s.run.json", core);
                /* A signal skips all remaining records. */
                if (r != -EINTR)
                        r = write_record(&f, path);
                if (r == -EINTR)
                        reasons_add(to, "a signal came before the disk had taken %s", path);
                else if (r < 0)
                        reasons_add(to, "cannot write %s: %s", path, strerror(-r));
                else
                        json_array_append_new(written, json_string(path));
        }
}

/* Prints only the first paths, because a run may have many of them. */
static void write_paths(const char *what, const json_t *paths)
{
        const json_t *path;
        size_t i;

        json_array_foreach(paths, i, path)
        {
                if (i == 5) {
                        printf("  %-10s ... and %zu more\n", what, json_array_size(paths) - 5);
                        break;
                }
                printf("  %-10s %s\n", what, json_string_value(path));
        }
}

void run_files_print(const json_t *report, const json_t *records)
{
        write_paths("file", json_object_get(report, "files"));
        write_paths("record", records);
}
