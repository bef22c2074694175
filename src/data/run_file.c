/* Writes the record of a run to a temporary file, and renames that file once it is on disk. */
#include "data/run_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/strbuf.h"
#include "base/util.h"
#include "conf/scenario.h"
#include "format/eformat.h"
#include "protocol/message.h"
#include "sys/loop.h"

/* Maximum number of records of one CORE. If the run number is configured, it is used repeatedly. */
#define NUMBER_MAX 10000
/* Maximum number of files of one CORE that processes are writing, or left when they were killed. */
#define WRITING_MAX 100

static bool is_atlas(const struct scenario *s)
{
        return strcmp(s->sfi.file_name, "atlas") == 0;
}

const char *run_file_separator(const struct scenario *s)
{
        return is_atlas(s) ? "._" : "_";
}

static void name_by_pattern(const struct scenario *s, const char *sfi, uint32_t run, struct strbuf *to)
{
        const char *at = s->sfi.file_name, *end = at + strlen(at) - strlen(SCENARIO_SEQUENCE);

        while (at < end) {
                if (strncmp(at, "{run}", 5) == 0)
                        strbuf_add(to, "%06u", run);
                else if (strncmp(at, "{sfi}", 5) == 0)
                        strbuf_add(to, "%s", sfi);
                else
                        strbuf_add(to, "%c", *at);
                at += *at == '{' ? 5 : 1;
        }
        if (s->sfi.count > 1 && !strstr(s->sfi.file_name, "{sfi}") && sfi[0] != '*')
                strbuf_add(to, "_%s", sfi);
}

void run_file_core_name(const struct scenario *s, const struct scenario_node *self, uint32_t run, time_t time,
                        char *name, size_t size_bytes)
{
        char application[32] = "*";
        struct strbuf b = strbuf_init(name, size_bytes);

        if (self)
                snprintf(application, sizeof application, "SFI-%u", self->index + 1);
        if (is_atlas(s))
                event_writer_core_name(name, size_bytes, time, run, 0, application);
        else
                name_by_pattern(s, self ? self->name : "*", run, &b);
}

void run_file_make_core(const struct scenario *s, const struct scenario_node *self, uint32_t run, char *core,
                        size_t size_bytes)
{
        char name[EVENT_FILE_TEXT_MAX];

        run_file_core_name(s, self, run, (time_t)(clock_utc_ns() / NS_PER_S), name, sizeof name);
        snprintf(core, size_bytes, "%s/%s", s->sfi.directory, name);
}

bool run_file_core(const char *event_file, char *core, size_t size_bytes)
{
        size_t n = strlen(event_file);
        int length;

        if (n < 5 || strcmp(event_file + n - 5, ".data") != 0)
                return false;
        for (n -= 5; n > 0 && event_file[n - 1] >= '0' && event_file[n - 1] <= '9'; n--)
                ;
        if (n < 2 || event_file[n - 1] != '_')
                return false;
        n -= event_file[n - 2] == '.' ? 2 : 1;
        length = snprintf(core, size_bytes, "%.*s", (int)n, event_file);
        return length > 0 && (size_t)length < size_bytes;
}

static json_t *versions(const struct scenario *s)
{
        const struct eformat *format = s->sfi.format == FORMAT_EFORMAT5 ? &eformat_5 : &eformat_3;
        struct utsname system = {};
        char kernel[160];

        uname(&system);
        snprintf(kernel, sizeof kernel, "%.60s %.80s", system.sysname, system.release);
        return json_pack("{s:s, s:i, s:s, s:i, s:s}", "evb", EVB_VERSION, "protocol", MESSAGE_VERSION,
                         "format", format->name, "event_storage", (int)format->storage_version, "kernel",
                         kernel);
}

static json_t *time_to_json(time_t time)
{
        char utc[CLOCK_UTC_TEXT_MAX];

        return json_string(clock_format_utc((uint64_t)time * NS_PER_S, utc));
}

json_t *run_file_list_files(const struct event_writer_file *files, size_t n)
{
        json_t *list = json_array();

        for (const struct event_writer_file *f = files; f < files + n; f++) {
                const char *slash = strrchr(f->path, '/');

                json_array_append_new(
                        list, json_pack("{s:s, s:I, s:I, s:o, s:o, s:o}", "name", slash ? slash + 1 : f->path,
                                        "events", (json_int_t)f->events, "size_bytes",
                                        (json_int_t)f->size_bytes, "adler32", json_sprintf("%08x", f->sum),
                                        "begun", time_to_json(f->begun), "ended", time_to_json(f->ended)));
        }
        return list;
}

/* The time from the start of the first file to the end of the last. */
static void add_files(json_t *o, const json_t *files)
{
        size_t n = json_array_size(files);

        json_object_set(o, "begun", json_object_get(json_array_get(files, 0), "begun"));
        json_object_set(o, "ended", json_object_get(json_array_get(files, n - 1), "ended"));
        json_object_set(o, "files", (json_t *)files);
}

char *run_file_text(const struct run_file *f)
{
        json_t *o = json_object();
        char utc[CLOCK_UTC_TEXT_MAX], *text;

        json_object_set_new(o, "run", json_integer(f->run));
        json_object_set_new(o, "written", json_string(clock_format_utc(clock_utc_ns(), utc)));
        json_object_set_new(o, "versions", versions(f->scenario));
        json_object_set_new(
                o, "metadata",
                f->metadata ? json_incref((json_t *)f->metadata)
                            : scenario_metadata_to_json(f->scenario->metadata, f->scenario->n_metadata));
        json_object_set_new(o, "scenario", scenario_to_json(f->scenario));
        if (json_array_size(f->files) > 0)
                add_files(o, f->files);
        if (f->accounts)
                json_object_set(o, "accounts", (json_t *)f->accounts);
        text = json_dumps(o, JSON_INDENT(1) | JSON_REAL_PRECISION(12));
        json_decref(o);
        return text;
}

static int write_all(int fd, const char *text)
{
        size_t left = strlen(text);

        while (left > 0) {
                ssize_t n = write(fd, text, left);

                if (n < 0 && errno == EINTR)
                        continue;
                if (n <= 0)
                        return n < 0 ? -errno : -EIO;
                text += n;
                left -= (size_t)n;
        }
        return 0;
}

/* `flags`: O_TRUNC, or O_EXCL, which also syncs the file to disk. If a write fails, the file is removed. */
static int write_text(const char *path, const char *text, int flags)
{
        _cleanup_close_ int fd = open(path, O_WRONLY | O_CREAT | flags | O_CLOEXEC | O_NOFOLLOW, 0666);
        int r;

        if (fd < 0)
                return -errno;
        r = write_all(fd, text);
        if (r >= 0 && flags == O_EXCL && fsync(fd) < 0)
                r = -errno;
        if (r < 0)
                unlink(path);
        return r;
}

static void name_begun(const char *core, char path[static RUN_FILE_PATH_MAX])
{
        snprintf(path, RUN_FILE_PATH_MAX, "%s.begun.json", core);
}

void run_file_remove_begun(const char *core)
{
        char path[RUN_FILE_PATH_MAX];

        name_begun(core, path);
        (void)unlink(path);
}

int run_file_begin(const struct run_file *f, char path[static RUN_FILE_PATH_MAX])
{
        _cleanup_free_ char *text = run_file_text(f);

        name_begun(f->core, path);
        return text ? write_text(path, text, O_TRUNC) : -ENOMEM;
}

void run_file_name(const char *core, int number, char path[static RUN_FILE_PATH_MAX])
{
        if (number == 1)
                snprintf(path, RUN_FILE_PATH_MAX, "%s.run.json", core);
        else
                snprintf(path, RUN_FILE_PATH_MAX, "%s.run.%d.json", core, number);
}

static int name_it(const char *temporary, const char *core, char path[static RUN_FILE_PATH_MAX])
{
        for (int number = 1; number < NUMBER_MAX; number++) {
                run_file_name(core, number, path);
                /* link() never replaces a file, on any file system that supports links. */
                if (link(temporary, path) == 0)
                        return unlink(temporary) < 0 ? -errno : 0;
                if (errno != EEXIST)
                        return -errno;
        }
        return -EEXIST;
}

static int sync_entry(const char *core)
{
        char directory[RUN_FILE_PATH_MAX];
        const char *slash = strrchr(core, '/');
        _cleanup_close_ int fd = -1;

        snprintf(directory, sizeof directory, "%.*s/", (int)(slash ? slash - core : 1), slash ? core : ".");
        fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        return fd < 0 || fsync(fd) < 0 ? -errno : 0;
}

/* Another process may write a record of the same CORE at the same time, so each writes its own file. */
static int write_temporary(const char *core, const char *text, char path[static RUN_FILE_PATH_MAX])
{
        static const char writing[] = ".writing";
        int r = -EEXIST;

        for (int number = 1; r == -EEXIST && number <= WRITING_MAX; number++) {
                size_t n;

                run_file_name(core, number, path);
                n = strlen(path);
                if (n + sizeof writing > RUN_FILE_PATH_MAX)
                        return -ENAMETOOLONG;
                memcpy(path + n, writing, sizeof writing);
                r = write_text(path, text, O_EXCL);
        }
        return r;
}

int run_file_store(const char *core, const char *text, char path[static RUN_FILE_PATH_MAX])
{
        char temporary[RUN_FILE_PATH_MAX];
        int r;

        run_file_name(core, 1, path);
        r = text ? write_temporary(core, text, temporary) : -ENOMEM;
        if (r < 0)
                return r;
        r = name_it(temporary, core, path);
        if (r < 0) {
                unlink(temporary);
                return r;
        }
        run_file_remove_begun(core);
        return sync_entry(core);
}

int run_file_write(const struct run_file *f, char path[static RUN_FILE_PATH_MAX])
{
        _cleanup_free_ char *text = run_file_text(f);

        return run_file_store(f->core, text, path);
}
