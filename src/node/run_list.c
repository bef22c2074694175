/* Appends to the list of runs, and reads its end. */
#include "run_list.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"
#include "base/util.h"
#include "sys/loop.h"

#define LINE_MAX_BYTES (16u << 10)
/* If the file is longer than this, only its end is read. */
#define READ_MAX_BYTES (4 << 20)
/* Maximum number of reasons per run; the DFM's report has all of them. */
#define LISTED_REASONS_MAX 4

void run_list_path(const char *record_path, char path[static RUN_LIST_PATH_MAX])
{
        snprintf(path, RUN_LIST_PATH_MAX, "%s.runs", record_path);
}

/* O_NONBLOCK prevents the call from blocking if a FIFO is in place of the file. */
static int open_regular(const char *path, int flags)
{
        int fd = open(path, flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644);
        struct stat st;

        if (fd < 0)
                return -errno;
        if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
                return fd;
        close(fd);
        return -EINVAL;
}

/* ---- Appending ---- */

/* A failed write may have left a part of a line. */
static bool ends_within_line(int fd)
{
        off_t end = lseek(fd, 0, SEEK_END);
        char last;

        return end > 0 && pread(fd, &last, 1, end - 1) == 1 && last != '\n';
}

static int append_text(const char *path, const char *json)
{
        _cleanup_close_ int fd = open_regular(path, O_RDWR | O_APPEND | O_CREAT);
        char line[LINE_MAX_BYTES];
        ssize_t written;
        int n;

        if (fd < 0)
                return fd;
        n = snprintf(line, sizeof line, "%s%s\n", ends_within_line(fd) ? "\n" : "", json);
        if (n < 0 || (size_t)n >= sizeof line)
                return -EMSGSIZE;
        written = write(fd, line, (size_t)n);
        return written < 0 ? -errno : written < n ? -ENOSPC : 0;
}

/* Takes ownership of the entry; NULL: out of memory. */
static int append(const char *path, struct run_list_run run, json_t *entry)
{
        _cleanup_free_ char *text = NULL;
        char cookie[24];

        if (!entry)
                return -ENOMEM;
        snprintf(cookie, sizeof cookie, "%016" PRIx64, run.cookie);
        json_object_set_new(entry, "run", json_integer(run.number));
        json_object_set_new(entry, "cookie", json_string(cookie));
        text = json_dumps(entry, JSON_COMPACT | JSON_ENSURE_ASCII);
        json_decref(entry);
        return text ? append_text(path, text) : -ENOMEM;
}

int run_list_add_begin(const char *path, struct run_list_run run, uint64_t began_utc_ns, const char *scenario)
{
        char utc[CLOCK_UTC_TEXT_MAX];

        return append(path, run,
                      json_pack("{s:s, s:o}", "begin", clock_format_utc(began_utc_ns, utc), "scenario",
                                json_text(scenario)));
}

int run_list_add_stop(const char *path, struct run_list_run run, const struct run_list_stop *stop)
{
        return append(path, run,
                      json_pack("{s:s, s:o}", "ended", stop->how, "ended_by", json_text(stop->who)));
}

int run_list_add_end(const char *path, struct run_list_run run, const char *status,
                     const struct dfm_counts *counts, const struct reasons *reasons, const char *files)
{
        json_t *why = json_array(), *names = json_array();
        char utc[CLOCK_UTC_TEXT_MAX];

        for (size_t i = 0; i < MIN(reasons->n, (size_t)LISTED_REASONS_MAX); i++)
                json_array_append_new(why, json_text(reasons->text[i]));
        if (files[0])
                json_array_append_new(names, json_text(files));
        return append(path, run,
                      json_pack("{s:s, s:s, s:{s:I, s:I, s:I, s:I, s:I}, s:o, s:o}", "end",
                                clock_format_utc(clock_utc_ns(), utc), "status", status, "events", "triggers",
                                (json_int_t)counts->triggers, "complete", (json_int_t)counts->complete,
                                "partial", (json_int_t)counts->partial, "lost", (json_int_t)counts->lost,
                                "rejected", (json_int_t)counts->rejected, "reasons", why, "files", names));
}

/* ---- Reading ---- */

static const char *const members[] = {"begin",  "end",     "status", "ended",   "ended_by",
                                      "events", "reasons", "files",  "scenario"};

static bool is_same_run(const json_t *run, const json_t *line)
{
        const char *cookie = json_string_value(json_object_get(line, "cookie"));

        return cookie && strcmp(json_string_value(json_object_get(run, "cookie")), cookie) == 0;
}

/* Returns the run of this line among the last runs. If the line is the first one of a run, adds the run.
 * NULL: the line names no run. */
static json_t *find_run(json_t *runs, const json_t *line)
{
        json_t *run;

        for (size_t i = json_array_size(runs); i-- > 0;) {
                if (is_same_run(json_array_get(runs, i), line))
                        return json_array_get(runs, i);
        }
        if (!json_is_integer(json_object_get(line, "run")) ||
            !json_is_string(json_object_get(line, "cookie")))
                return NULL;
        run = json_pack("{s:O, s:O}", "run", json_object_get(line, "run"), "cookie",
                        json_object_get(line, "cookie"));
        if (json_array_size(runs) == RUN_LIST_MAX)
                json_array_remove(runs, 0);
        return json_array_append_new(runs, run) < 0 ? NULL : run;
}

/* For each member, only the first line counts, because a DFM that resumes a run lists its beginning and its
 * stop again. */
static void add_line(json_t *runs, const char *text)
{
        json_t *line = json_loads(text, 0, NULL), *run = line ? find_run(runs, line) : NULL;

        for (size_t i = 0; run && i < ARRAY_SIZE(members); i++) {
                if (json_object_get(line, members[i]) && !json_object_get(run, members[i]))
                        json_object_set(run, members[i], json_object_get(line, members[i]));
        }
        json_decref(line);
}

static void complete_run(json_t *run, bool is_running)
{
        if (!json_object_get(run, "end"))
                json_object_set_new(run, "status", json_string(is_running ? "running" : "unknown"));
        if (!json_object_get(run, "ended") && !is_running)
                json_object_set_new(run, "ended", json_string("unknown"));
        for (size_t i = 0; i < ARRAY_SIZE(members); i++) {
                if (!json_object_get(run, members[i]))
                        json_object_set_new(run, members[i], json_null());
        }
        json_object_del(run, "cookie");
}

static void read_lines(FILE *f, json_t *runs, bool starts_within_line)
{
        _cleanup_free_ char *text = NULL;
        size_t size_bytes = 0;

        if (starts_within_line && getline(&text, &size_bytes, f) < 0)
                return;
        while (getline(&text, &size_bytes, f) >= 0)
                add_line(runs, text);
}

/* Adds the runs of the file. Returns 0, also if there is no file, or negative errno. */
static int read_file(const char *path, json_t *runs)
{
        int fd = open_regular(path, O_RDONLY);
        off_t from;
        FILE *f;

        if (fd < 0)
                return fd == -ENOENT ? 0 : fd;
        from = lseek(fd, -READ_MAX_BYTES, SEEK_END);
        f = fdopen(fd, "r");
        if (!f) {
                close(fd);
                return 0;
        }
        read_lines(f, runs, from > 0);
        fclose(f);
        return 0;
}

bool run_list_read_last(const char *path, struct run_list_outcome *ret)
{
        json_t *runs = json_array(), *last, *reason;
        const char *status;
        size_t i;

        (void)read_file(path, runs);
        last = json_array_get(runs, json_array_size(runs) - 1);
        status = json_string_value(json_object_get(last, "status"));
        if (status) {
                *ret = (struct run_list_outcome){
                        .run = (uint32_t)json_integer_value(json_object_get(last, "run"))};
                snprintf(ret->status, sizeof ret->status, "%s", status);
                json_array_foreach(json_object_get(last, "reasons"), i, reason)
                {
                        if (json_is_string(reason))
                                reasons_add(&ret->reasons, "%s", json_string_value(reason));
                }
        }
        json_decref(runs);
        return status;
}

int run_list_read(const char *path, bool is_in_run, char **ret)
{
        json_t *o, *runs = json_array(), *run;
        int r = read_file(path, runs);
        size_t i;

        if (r < 0) {
                json_decref(runs);
                return r;
        }
        json_array_foreach(runs, i, run)
        {
                complete_run(run, is_in_run && i + 1 == json_array_size(runs));
        }
        o = json_pack("{s:o}", "runs", runs);
        *ret = o ? json_dumps(o, JSON_COMPACT) : NULL;
        json_decref(o);
        return *ret ? 0 : -ENOMEM;
}
