/* Reads the results file, and appends points to it. */
#include "lab_results.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "base/util.h"
#include "lab/valid.h"

#define LINE_MAX_BYTES 65536
/* Names the first lines that are not results. A file with more than SPOILT_MAX is not a results file. */
#define SPOILT_NAMED_MAX 5u
#define SPOILT_MAX 1000u
#define LOCK_TRIES 10
#define LOCK_PAUSE_NS 100000000

static bool is_text(const json_t *r, const char *key, const char *value)
{
        const char *text = json_string_value(json_object_get(r, key));

        return text && strcmp(text, value) == 0;
}

/* Another version may have other measurements, or other figures of a measurement. */
static bool is_of_the_catalogue(const json_t *r)
{
        const struct lab_measurement *m = lab_find(json_string_value(json_object_get(r, "id")));
        bool has_place = m && m->sweep.n_panels == 0 && !json_object_get(r, "panel");

        for (size_t i = 0; m && i < m->sweep.n_panels; i++)
                has_place |= is_text(r, "panel", m->sweep.panels[i].name);
        return has_place && json_object_get(r, m->y);
}

/* Whether the line has all members that readers rely on. A simulated point has no machine and no time. */
static bool is_result(const json_t *r)
{
        static const char *const texts[] = {"id",   "series", "settings", "version",
                                            "time", "kernel", "processor"};
        const json_t *panel = json_object_get(r, "panel"), *bed = json_object_get(r, "testbed");
        bool simulated = json_is_true(json_object_get(r, "simulated"));
        bool is = json_is_object(r) && json_is_number(json_object_get(r, "x")) &&
                  json_is_integer(json_object_get(r, simulated ? "seed" : "processors"));

        for (size_t i = 0; i < (simulated ? 4 : ARRAY_SIZE(texts)); i++)
                is &= json_is_string(json_object_get(r, texts[i]));
        return is && (!panel || json_is_string(panel)) && (!bed || json_is_string(bed));
}

/* Appends the results of a file to an array, and reports other lines. */
static int read_lines(FILE *f, const char *path, json_t *to)
{
        static char line[LINE_MAX_BYTES];
        unsigned foreign = 0, bad = 0;

        for (unsigned number = 1; fgets(line, sizeof line, f); number++) {
                json_error_t e;
                json_t *j = json_loads(line, 0, &e);

                if (!is_result(j)) {
                        if (bad++ < SPOILT_NAMED_MAX)
                                fprintf(stderr, "%s:%u: not a result; skipped\n", path, number);
                } else if (is_of_the_catalogue(j))
                        json_array_append(to, j);
                else
                        foreign++;
                json_decref(j);
                if (bad > SPOILT_MAX) {
                        fprintf(stderr, "%s: not a results file\n", path);
                        return -EBADMSG;
                }
        }
        if (bad > SPOILT_NAMED_MAX)
                fprintf(stderr, "%s: %u lines are not results\n", path, bad);
        if (foreign > 0)
                fprintf(stderr, "%s: skipped %u point%s of another version of the catalogue\n", path, foreign,
                        foreign == 1 ? "" : "s");
        if (ferror(f)) {
                fprintf(stderr, "%s: %s\n", path, strerror(errno));
                return -EIO;
        }
        return 0;
}

json_t *results_read(const char *const *paths, size_t n)
{
        json_t *all = json_array();

        for (size_t i = 0; i < n; i++) {
                FILE *f = fopen(paths[i], "re");
                int r = f ? read_lines(f, paths[i], all) : -errno;

                if (!f)
                        fprintf(stderr, "%s: %s\n", paths[i], strerror(errno));
                else
                        fclose(f);
                if (r < 0) {
                        json_decref(all);
                        return NULL;
                }
        }
        return all;
}

bool results_are_simulated(const json_t *result)
{
        return json_is_true(json_object_get(result, "simulated"));
}

bool results_are_of(const json_t *result, const struct lab_bed *bed)
{
        if (lab_is_virtual(bed) != results_are_simulated(result))
                return false;
        if (lab_is_virtual(bed))
                return json_integer_value(json_object_get(result, "seed")) == (json_int_t)bed->virtual->seed;
        return strcmp(json_string_value(json_object_get(result, "testbed")) ?: "", lab_bed_name(bed)) == 0;
}

bool results_are_same(const json_t *r, const struct lab_point *p)
{
        return is_text(r, "id", p->measurement->id) && (!p->panel || is_text(r, "panel", p->panel)) &&
               is_text(r, "series", p->series) && is_text(r, "settings", p->settings) &&
               json_number_value(json_object_get(r, "x")) == p->x && results_are_of(r, p->bed);
}

bool results_have(const json_t *results, const struct lab_point *p)
{
        const json_t *r;
        size_t i;

        json_array_foreach(results, i, r)
        {
                if (results_are_same(r, p) && !lab_valid_reason(r))
                        return true;
        }
        return false;
}

json_t *results_of(const json_t *results, const char *id)
{
        json_t *some = json_array(), *r;
        size_t i;

        json_array_foreach((json_t *)results, i, r)
        {
                if (is_text(r, "id", id))
                        json_array_append(some, r);
        }
        return some;
}

json_t *results_of_bed(const json_t *results, const char *id, const struct lab_bed *bed)
{
        json_t *all = results_of(results, id), *some = json_array(), *r;
        size_t i;

        json_array_foreach(all, i, r)
        {
                if (results_are_of(r, bed))
                        json_array_append(some, r);
        }
        json_decref(all);
        return some;
}

/* Forked flow processes hold the lock of a killed run until the kernel has ended them, a moment later. */
static bool is_locked_by_another(int fd)
{
        for (int i = 0; flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK; i++) {
                if (i == LOCK_TRIES)
                        return true;
                nanosleep(&(struct timespec){.tv_nsec = LOCK_PAUSE_NS}, NULL);
        }
        return false;
}

int results_open(const char *path)
{
        _cleanup_close_ int fd = open(path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0666);

        if (fd < 0) {
                fprintf(stderr, "%s: %s\n", path, strerror(errno));
                return -errno;
        }
        if (is_locked_by_another(fd)) {
                fprintf(stderr,
                        "%s: another evb lab run writes to this file; wait until it ends, or use another "
                        "file "
                        "(--results)\n",
                        path);
                return -EBUSY;
        }
        return take_fd(&fd);
}

/* Ends a line that a crash or a full disk truncated. */
static size_t newline_due(int fd, off_t size)
{
        char last = '\n';

        return size > 0 && pread(fd, &last, 1, size - 1) == 1 && last != '\n';
}

static bool write_line(int fd, const char *path, const json_t *figures)
{
        _cleanup_free_ char *text = json_dumps(figures, JSON_COMPACT | JSON_REAL_PRECISION(9));
        size_t n = text ? strlen(text) : 0, due;
        struct iovec parts[] = {{(char *)"\n", 0}, {text, n}, {(char *)"\n", 1}};
        struct stat before = {};
        ssize_t done;

        if (!text || fstat(fd, &before) < 0) {
                fprintf(stderr, "%s: %s\n", path, strerror(text ? errno : ENOMEM));
                return false;
        }
        if (before.st_nlink == 0) {
                fprintf(stderr, "%s: the file was removed or replaced during the run\n", path);
                return false;
        }
        due = parts[0].iov_len = newline_due(fd, before.st_size);
        done = writev(fd, parts, ARRAY_SIZE(parts));
        if (done == (ssize_t)(due + n + 1))
                return true;
        fprintf(stderr, "%s: %s\n", path, done < 0 ? strerror(errno) : "no space left for a complete point");
        /* Removes a partial line. */
        if (done > 0 && ftruncate(fd, before.st_size) < 0)
                fprintf(stderr, "%s: the last line is an incomplete point: %s\n", path, strerror(errno));
        return false;
}

static void name_processor(char *text, size_t size)
{
        FILE *f = fopen("/proc/cpuinfo", "re");
        char line[256];

        snprintf(text, size, "unknown");
        while (f && fgets(line, sizeof line, f)) {
                const char *colon = strchr(line, ':');

                if (strncmp(line, "model name", 10) != 0 || !colon)
                        continue;
                snprintf(text, size, "%.*s", (int)strcspn(colon + 2, "\n"), colon + 2);
                break;
        }
        if (f)
                fclose(f);
}

/* Where and when a point was measured. */
static void add_circumstances(json_t *figures)
{
        char when[32], processor[128];
        time_t now = time(NULL);
        struct utsname u;
        struct tm utc;

        uname(&u);
        name_processor(processor, sizeof processor);
        strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
        json_object_set_new(figures, "time", json_string(when));
        json_object_set_new(figures, "kernel", json_string(u.release));
        json_object_set_new(figures, "processor", json_string(processor));
        json_object_set_new(figures, "processors", json_integer(sysconf(_SC_NPROCESSORS_ONLN)));
}

bool results_append(int fd, const char *path, const struct lab_point *p, json_t *figures)
{
        json_object_set_new(figures, "id", json_string(p->measurement->id));
        /* A copy still has the panel of its original. */
        json_object_del(figures, "panel");
        if (p->panel)
                json_object_set_new(figures, "panel", json_string(p->panel));
        json_object_set_new(figures, "series", json_string(p->series));
        json_object_set_new(figures, "x", json_real(p->x));
        json_object_set_new(figures, "settings", json_string(p->settings));
        if (lab_is_virtual(p->bed)) {
                json_object_set_new(figures, "simulated", json_true());
                json_object_set_new(figures, "seed", json_integer((json_int_t)p->bed->virtual->seed));
        } else if (p->bed)
                json_object_set_new(figures, "testbed", json_string(lab_bed_name(p->bed)));
        if (!lab_is_virtual(p->bed))
                add_circumstances(figures);
        json_object_set_new(figures, "version", json_string(EVB_VERSION));
        return write_line(fd, path, figures);
}
