/* Passes encoded events to store/event_writer. Events become stored in the order in which the
 * writer accepted them, so the writer's counts determine which slots are free. */
#include "event_output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/util.h"
#include "format/eformat.h"
#include "store/event_writer.h"
#include "sys/disk_writer.h"
#include "disk_space.h"
#include "event_encoder.h"
#include "run_file.h"

/* sfi.durability = none, written: maximum time of an event in the writer's buffer. */
#define FLUSH_NONE_NS (500 * NS_PER_MS)
#define FLUSH_NS (100 * NS_PER_MS)
/* sfi.durability = synced: maximum time and number of events between two syncs. */
#define SYNC_NS (20 * NS_PER_MS)
#define SYNC_EVENTS 256
/* Maximum number of unclosed files that are logged at each start; an SFI that keeps crashing leaves many. */
#define LEFT_LOGGED 3

_Static_assert(SCENARIO_METADATA_MAX <= EVENT_FILE_METADATA_FREE, "a file holds all metadata");

struct event_output {
        struct data_context context;
        struct file_list *files;
        void (*stored)(void *ctx);
        void *ctx;
        struct event_writer *writer;
        uint64_t durability; /* enum scenario_durability */
        int error;
        /* Slots of accepted events that are not stored yet; the first is the writer's event `settled`. */
        uint32_t *waiting;
        uint32_t waiting_mask, waiting_head, waiting_tail;
        uint64_t settled;
        uint64_t reported;  /* of these, those that were reported as stored */
        unsigned left;      /* number of files that earlier SFIs did not close */
        uint64_t oldest_ns; /* arrival of the first event since the last flush or sync; NEVER_NS: none */
        struct disk_trend disk;
        uint64_t disk_look_ns; /* time of the next reading of the free space */
};

static time_t utc_now(void)
{
        return (time_t)(clock_utc_ns() / NS_PER_S);
}

/* ---- Creation and end ---- */

static int check_direct(const char *path)
{
        int r = disk_check_direct(path);

        if (r == 0)
                return 0;
        (void)log_error_errno(r,
                              "sfi.page-cache = bypass: the file system of %s cannot write past the page "
                              "cache (O_DIRECT): %m; expected no, or another sfi.directory",
                              path);
        return -EINVAL;
}

/* With ProtectSystem=, a service may see a directory as read-only although other processes can write to
 * it. */
static void log_unusable(int r, const char *path)
{
        const struct log_fields *fields = LOG_FIELDS(.id = LOG_ID_OUTPUT_UNUSABLE);

        if (r == -EROFS && getenv("INVOCATION_ID"))
                (void)log_with(LOG_LEVEL_ERROR, r, fields,
                               "sfi.directory: %s is read-only: add it to ReadWritePaths= of this service",
                               path);
        else
                (void)log_with(LOG_LEVEL_ERROR, r, fields, "sfi.directory: cannot write to %s: %m", path);
}

int event_output_check(const struct scenario *s)
{
        const char *path = s->sfi.directory;
        struct stat st;
        int r = 0;

        if (stat(path, &st) < 0)
                r = -errno;
        else if (!S_ISDIR(st.st_mode))
                r = -ENOTDIR;
        else if (faccessat(AT_FDCWD, path, W_OK | X_OK, AT_EACCESS) < 0)
                r = -errno;
        if (r == 0)
                return s->sfi.page_cache == PAGE_CACHE_BYPASS ? check_direct(path) : 0;
        log_unusable(r, path);
        return r == -EIO || r == -ESTALE || r == -ENOMEM ? r : -EINVAL;
}

int event_output_new(struct event_output **ret, const struct data_context *context, struct file_list *files,
                     uint32_t slots, void (*stored)(void *ctx), void *ctx)
{
        const struct scenario *s = context->scenario;
        uint32_t waiting = power_of_two_at_least(slots);
        struct event_output *o = calloc(1, sizeof *o);

        if (!o)
                return log_error_errno(ENOMEM, "sfi.output: %m");
        *o = (struct event_output){
                .context = *context,
                .files = files,
                .stored = stored,
                .ctx = ctx,
                .durability = s->sfi.durability,
                .waiting_mask = waiting - 1,
                .oldest_ns = NEVER_NS,
        };
        o->waiting = calloc(waiting, sizeof *o->waiting);
        if (!o->waiting) {
                event_output_free(o);
                return log_error_errno(ENOMEM, "sfi.output: %m");
        }
        *ret = o;
        return 0;
}

struct event_output *event_output_free(struct event_output *o)
{
        if (!o)
                return NULL;
        event_writer_free(o->writer);
        free(o->waiting);
        free(o);
        return NULL;
}

static void record_file(void *ctx, const struct event_writer_file *file)
{
        struct event_output *o = ctx;
        struct file_list *l = o->files;
        char *path = strdup(file->path);

        if (l->n == l->room) {
                size_t room = MAX(2 * l->room, (size_t)64);
                struct event_writer_file *files = realloc(l->files, room * sizeof *files);

                if (files) {
                        l->files = files;
                        l->room = room;
                }
        }
        if (l->n < l->room && path) {
                l->files[l->n] = *file;
                l->files[l->n++].path = path;
        } else {
                log_error_errno(-ENOMEM, "%s: not in the report: %m", file->path);
                free(path);
        }
        stats_add(&o->context.stats->events_stored, file->events);
}

static void record_sealing(void *ctx)
{
        struct event_output *o = ctx;

        o->stored(o->ctx);
}

static void log_unindexed(void *ctx, const char *path, int error)
{
        (void)ctx;
        log_warning("cannot write %s: %s; no event is lost, but this file and the following files of the run "
                    "have no index; to make one, run: evb dump --index FILE.data",
                    path, strerror(-error));
}

static void record_left(void *ctx, const char *path, pid_t writer)
{
        struct event_output *o = ctx;

        if (o->left++ >= LEFT_LOGGED)
                return;
        if (writer > 0)
                log_warning("%s: process %d is writing this file; skipping it", path, (int)writer);
        else
                log_warning("%s: an earlier SFI did not close this file; to repair it, run: evb dump "
                            "--repair %s --output %.*s.data",
                            path, path, (int)(strlen(path) - strlen(".writing")), path);
}

/* An SFI that was killed in this run left files, but no record. It is rare that one left it in good order,
 * with a record. */
static void log_earlier_files(const struct event_output *o, uint32_t run)
{
        const struct scenario *s = o->context.scenario;
        const char *directory = s->sfi.directory;
        unsigned number = event_writer_file_number(o->writer), sfi = o->context.self->index + 1;
        char core[RUN_FILE_PATH_MAX - 16], record[RUN_FILE_PATH_MAX];

        run_file_make_core(s, o->context.self, run, core, sizeof core);
        run_file_name(core, 1, record);
        if (access(record, F_OK) == 0)
                log_warning("sfi.directory: %s has files of run %u of SFI-%u and their record, %s: another "
                            "run may have had this number; continuing with number %04u",
                            directory, run, sfi, record, number);
        else
                log_warning("sfi.directory: %s has files of run %u of SFI-%u; continuing with number %04u",
                            directory, run, sfi, number);
}

int event_output_open(struct event_output *o, uint32_t run, const struct scenario_metadata *metadata,
                      size_t n)
{
        const struct scenario *s = o->context.scenario;
        char application[32], core_name[EVENT_FILE_TEXT_MAX],
                texts[SCENARIO_METADATA_MAX][EVENT_FILE_TEXT_MAX];
        struct event_writer_settings settings = {
                .directory = s->sfi.directory,
                .core_name = core_name,
                .separator = run_file_separator(s),
                .application = application,
                .version = event_encoder_format(s)->storage_version,
                .file_events = s->sfi.file_events,
                .file_bytes = s->sfi.file_size_bytes,
                .background = s->sfi.page_cache == PAGE_CACHE_BYPASS,
                .direct = s->sfi.page_cache == PAGE_CACHE_BYPASS,
                .keeps_cached = s->sfi.page_cache == PAGE_CACHE_KEEP,
                .run = run,
                .metadata = texts,
                .n_metadata = n,
                .stamped = true,
                .has_seed = scenario_all_from(s, SOURCE_PATTERN),
                .seed = s->run.seed,
                .indexed = true,
                .closed = record_file,
                .unindexed = log_unindexed,
                .sealing = record_sealing,
                .left = record_left,
                .userdata = o,
        };
        int r;

        for (size_t i = 0; i < n; i++)
                snprintf(texts[i], sizeof texts[i], "%.63s=%.191s", metadata[i].name, metadata[i].value);
        snprintf(application, sizeof application, "SFI-%u", o->context.self->index + 1);
        run_file_core_name(s, o->context.self, run, utc_now(), core_name, sizeof core_name);
        r = event_writer_new(&o->writer, &settings, utc_now());
        if (r < 0) {
                log_unusable(r, s->sfi.directory);
                return r;
        }
        if (o->left > LEFT_LOGGED)
                log_warning("sfi.directory: %s has %u more files that earlier SFIs did not close",
                            s->sfi.directory, o->left - LEFT_LOGGED);
        if (event_writer_file_number(o->writer) > 1)
                log_earlier_files(o, run);
        return 0;
}

/* ---- Events ---- */

/* Bytes in the writer's buffer do not count, because they are lost if the process dies. */
static void account(struct event_output *o)
{
        struct event_writer_counts counts;

        event_writer_counts(o->writer, &counts);
        stats_set(&o->context.stats->file_bytes, counts.written_bytes);
}

static const char *describe_rest(int error)
{
        switch (error) {
        case -EBADFD:
                return "";
        case -ENOENT:
                return "; another program removed or moved the file";
        }
        return "; events written so far stay readable";
}

/* Closes the file, so that the events written so far stay readable. */
static void fail(struct event_output *o, int error)
{
        o->error = error;
        log_id(LOG_LEVEL_ERROR, LOG_ID_OUTPUT_FAILED, "writing %s: %s; stopping the run%s%s",
               event_writer_path(o->writer), event_writer_describe_error(error), describe_rest(error),
               event_writer_is_full(error) ? "; free space there, or set sfi.directory" : "");
        (void)event_writer_close(o->writer, utc_now());
        o->oldest_ns = NEVER_NS;
        account(o);
}

bool event_output_write(struct event_output *o, uint64_t now_ns, uint32_t slot,
                        const struct eformat_encoding *e, int error)
{
        int r = error;

        if (o->error < 0)
                return false;
        if (r >= 0)
                r = event_writer_write(o->writer, e->iov, e->n_iov, e->size_bytes, e->sum, &e->info,
                                       utc_now());
        if (r < 0) {
                fail(o, r);
                return false;
        }
        o->waiting[o->waiting_head++ & o->waiting_mask] = slot;
        o->oldest_ns = MIN(o->oldest_ns, now_ns);
        account(o);
        return true;
}

/* ---- Stored ---- */

static uint64_t count_stored(const struct event_output *o)
{
        struct event_writer_counts counts;

        event_writer_counts(o->writer, &counts);
        switch (o->durability) {
        case DURABILITY_NONE:
                return counts.events + counts.events_lost;
        case DURABILITY_SYNCED:
                return counts.events_synced;
        }
        return counts.events_written;
}

size_t event_output_collect(struct event_output *o, struct builder_done *done, size_t n)
{
        uint64_t until = o->waiting_head == o->waiting_tail ? 0 : count_stored(o);
        size_t k = 0;

        while (k < n && o->waiting_tail != o->waiting_head && (o->settled < until || o->error < 0)) {
                bool failed = o->settled++ >= until;

                o->reported += !failed;
                done[k++] = (struct builder_done){
                        .slot = o->waiting[o->waiting_tail++ & o->waiting_mask],
                        .failed = failed,
                };
        }
        return k;
}

static uint64_t flush_deadline_ns(const struct event_output *o)
{
        static const uint64_t waits_ns[] = {
                [DURABILITY_NONE] = FLUSH_NONE_NS,
                [DURABILITY_WRITTEN] = FLUSH_NS,
                [DURABILITY_SYNCED] = SYNC_NS,
        };

        return o->oldest_ns == NEVER_NS ? NEVER_NS : o->oldest_ns + waits_ns[o->durability];
}

uint64_t event_output_deadline_ns(const struct event_output *o)
{
        return MIN(flush_deadline_ns(o), o->disk_look_ns);
}

static void look_at_disk(struct event_output *o, uint64_t now_ns)
{
        const char *directory = o->context.scenario->sfi.directory;
        struct disk_space space;
        char text[DISK_TEXT_MAX];

        if (now_ns < o->disk_look_ns)
                return;
        o->disk_look_ns = now_ns + DISK_LOOK_NS;
        disk_space_read(&space, directory);
        if (disk_trend_add(&o->disk, now_ns, &space))
                log_warning("sfi.directory: the file system of %s has %s; move closed event files away",
                            directory, disk_space_format(&space, o->disk.left_s, text));
        stats_set(&o->context.stats->output_left_s, o->disk.left_s);
}

static bool is_due(const struct event_output *o, uint64_t now_ns, bool idle)
{
        if (o->oldest_ns == NEVER_NS)
                return false;
        if (now_ns >= flush_deadline_ns(o))
                return true;
        return o->durability == DURABILITY_WRITTEN ? idle
                                                   : o->durability == DURABILITY_SYNCED &&
                                                             o->waiting_head - o->waiting_tail >= SYNC_EVENTS;
}

void event_output_turn(struct event_output *o, uint64_t now_ns, bool idle)
{
        bool sync = o->durability == DURABILITY_SYNCED;
        int r;

        look_at_disk(o, now_ns);
        if (is_due(o, now_ns, idle)) {
                o->oldest_ns = NEVER_NS;
                r = sync ? event_writer_sync(o->writer, utc_now()) : event_writer_flush(o->writer, utc_now());
        } else
                r = o->error < 0 ? 0 : event_writer_poll(o->writer);
        if (r < 0)
                fail(o, r);
        else if (o->error == 0)
                account(o);
}

void event_output_flush(struct event_output *o)
{
        if (o->writer && o->error == 0)
                (void)event_writer_flush(o->writer, utc_now());
}

int event_output_close(struct event_output *o)
{
        int r;

        if (!o->writer || o->error < 0)
                return o->error;
        r = event_writer_close(o->writer, utc_now());
        account(o);
        if (r < 0) {
                log_error("closing %s: %s", event_writer_path(o->writer), event_writer_describe_error(r));
                o->error = r;
        }
        return r;
}

int event_output_error(const struct event_output *o)
{
        return o->error;
}

void event_output_reasons(const struct event_output *o, struct reasons *to)
{
        struct event_writer_counts counts;
        unsigned long long missing;

        if (!o->writer || o->error == 0)
                return;
        event_writer_counts(o->writer, &counts);
        missing = o->reported - MIN(o->reported, counts.events);
        if (missing > 0)
                reasons_add(to,
                            "%llu event%s that it reported as built %s not written, because sfi.durability "
                            "is none",
                            missing, missing == 1 ? "" : "s", missing == 1 ? "was" : "were");
}
