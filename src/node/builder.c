/* Checks, encodes and writes built events. */
#include "builder.h"

#include <errno.h>
#include <string.h>

#include "evb/base/log.h"
#include "evb/base/ring.h"
#include "evb/base/util.h"
#include "evb/core/eformat.h"
#include "evb/core/pattern.h"
#include "evb/node/source.h"
#include "evb/store/event_writer.h"
#include "evb/store/replay.h"
#include "evb/sys/thread.h"
#include "machine.h"

#define BATCH 64
/* An event that nothing follows is on the disk after this. */
#define FLUSH_MS 1000

struct builder {
        struct node *node;
        const struct sfi *core;
        const uint8_t *buffer;
        bool verify;
        uint32_t n_ros;
        uint32_t *source_ids;
        /* Files: a thread between two rings; `failed` is its own. */
        bool threaded;
        pthread_t thread;
        struct ring to_write, done;
        struct waker wake_thread, wake_owner;
        _Atomic bool end;
        bool failed;
        int error;
        uint64_t corrupt_fragments, corrupt_events;
        char first_corrupt[REASON_TEXT_MAX / 2]; /* where the first of them is wrong */
        struct event_writer *writer;
        const struct eformat *format;
        struct eformat_settings settings;
        struct eformat_encoding *encoding;
        struct built_event event;
        struct built_fragment *fragments;
};

/* The first is described and logged at once; how many there are is said at the end. */
static void note_corrupt(struct builder *b, const struct sfi_built *built, uint32_t ros, uint64_t key,
                         size_t at)
{
        const struct scenario_node *source = scenario_node_of(b->node->scenario, ROLE_ROS, ros);
        const uint8_t *found = b->buffer + built->fragments[ros].at + at;
        uint8_t expected;

        if (b->corrupt_fragments++ > 0)
                return;
        pattern_fill(key, &expected, at, 1);
        snprintf(b->first_corrupt, sizeof b->first_corrupt,
                 "event %llu of %s, byte %zu is 0x%02x, expected 0x%02x", (unsigned long long)built->event,
                 source ? source->name : "an unknown ROS", at, *found, expected);
        log_error("corrupt fragment: %s; check that run.seed is the same on all nodes",
                  b->first_corrupt);
}

static bool is_corrupt(struct builder *b, const struct sfi_built *built, uint32_t ros)
{
        const struct sfi_fragment *f = &built->fragments[ros];
        uint64_t key;
        size_t at;

        if (!f->whole || f->form != FORM_RAW || f->bytes == 0 || f->at == ARENA_NONE)
                return false;
        key = pattern_key(b->node->scenario->run.seed, ros, built->event);
        at = pattern_check(key, b->buffer + f->at, 0, f->bytes);
        if (at < f->bytes)
                note_corrupt(b, built, ros, key, at);
        return at < f->bytes;
}

/* Counts fragments whose bytes are not what the source made. */
static uint32_t verify(struct builder *b, const struct sfi_built *built)
{
        uint32_t corrupt = 0;

        for (uint32_t i = 0; i < b->n_ros; i++)
                corrupt += is_corrupt(b, built, i);
        if (corrupt > 0) {
                stats_add(&b->node->stats->fragments_corrupt, corrupt);
                b->corrupt_events++;
        }
        return corrupt;
}

static void describe(struct builder *b, const struct sfi_built *built)
{
        b->event.info = built->info;
        b->event.status = built->assigned_again ? EFORMAT_EVENT_DUPLICATE_DFM : 0;
        b->event.n_fragments = b->n_ros;
        for (uint32_t i = 0; i < b->n_ros; i++) {
                const struct sfi_fragment *f = &built->fragments[i];
                bool bytes = f->whole && f->at != ARENA_NONE;

                b->event.fragments[i] = (struct built_fragment){
                        .data = bytes ? b->buffer + f->at : NULL,
                        .size_bytes = bytes ? f->bytes : 0,
                        .source_id = b->source_ids[i],
                        .order = f->whole ? f->order : (uint16_t)i,
                        .form = f->form,
                        .status = f->whole ? f->status : FRAGMENT_LOST,
                };
        }
}

static int write_event(struct builder *b, const struct sfi_built *built, uint32_t corrupt)
{
        struct event_writer_counts counts;
        int r;

        describe(b, built);
        if (corrupt > 0)
                b->event.status |= EFORMAT_CORRUPT;
        r = b->format->encode(&b->event, &b->settings, b->encoding);
        if (r >= 0)
                r = event_writer_write(b->writer, b->encoding->iov, b->encoding->n_iov, b->encoding->size_bytes,
                                       (time_t)(clock_utc_ns() / NS_PER_S));
        event_writer_counts(b->writer, &counts);
        stats_set(&b->node->stats->file_bytes, counts.file_bytes);
        return r;
}

/* Whether the event could be written. */
static bool build(struct builder *b, uint32_t slot)
{
        struct sfi_built built;
        uint32_t corrupt;
        int r;

        sfi_built_event(b->core, slot, &built);
        if (built.end == EVENT_LOST)
                return true;
        corrupt = b->verify ? verify(b, &built) : 0;
        if (!b->writer)
                return true;
        if (b->failed)
                return false;
        r = write_event(b, &built, corrupt);
        if (r < 0) {
                b->error = r;
                b->failed = true;
                log_error_errno(r, "writing %s: %m; the run is stopped, what was written stays readable",
                                event_writer_path(b->writer));
        }
        return r >= 0;
}

static void *run_thread(void *ctx)
{
        struct builder *b = ctx;
        uint32_t slots[BATCH];

        for (;;) {
                size_t n = ring_pop(&b->to_write, slots, ARRAY_SIZE(slots));

                for (size_t i = 0; i < n; i++) {
                        struct builder_done done = {slots[i], !build(b, slots[i])};

                        (void)ring_push(&b->done, &done);
                }
                if (n > 0) {
                        waker_wake(&b->wake_owner);
                        continue;
                }
                waker_prepare(&b->wake_thread);
                if (ring_count(&b->to_write) == 0) {
                        if (atomic_load(&b->end))
                                return NULL;
                        waker_wait(&b->wake_thread, FLUSH_MS);
                        if (ring_count(&b->to_write) == 0 && !b->failed)
                                (void)event_writer_flush(b->writer, (time_t)(clock_utc_ns() / NS_PER_S));
                }
                waker_done(&b->wake_thread);
        }
}

static void note_file(void *ctx, const char *path, uint64_t events, uint64_t size_bytes)
{
        struct node *n = ctx;

        (void)events;
        (void)size_bytes;
        if (n->n_files < NODE_FILES_MAX)
                snprintf(n->files[n->n_files], sizeof *n->files, "%s", path);
        n->n_files++;
}

static int cannot_write(const char *directory, int r)
{
        return machine_path_error(log_error_errno(r, "sfi.directory: cannot write to %s: %m", directory));
}

static int open_writer(struct builder *b)
{
        const struct scenario *s = b->node->scenario;
        time_t now = (time_t)(clock_utc_ns() / NS_PER_S);
        char application[32], core_name[128];
        struct event_writer_settings settings = {
                .directory = s->sfi.directory,
                .core_name = core_name,
                .application = application,
                .version = b->format->storage_version,
                .file_events = s->sfi.file_events,
                .file_bytes = s->sfi.file_size_bytes,
                .run = b->node->run,
                .has_seed = s->ros.source_kind == SOURCE_PATTERN,
                .seed = s->run.seed,
                .closed = note_file,
                .userdata = b->node,
        };
        int r = access(s->sfi.directory, W_OK | X_OK) < 0 ? -errno : 0;

        if (r < 0 || b->node->check_only)
                return r < 0 ? cannot_write(s->sfi.directory, r) : 0;
        snprintf(application, sizeof application, "SFI-%u", b->node->self->index + 1);
        event_writer_core_name(core_name, sizeof core_name, now, b->node->run, 0, application);
        r = event_writer_new(&b->writer, &settings, now);
        if (r == -EEXIST)
                return log_error_errno(r, "sfi.directory: %s has files of run %u of %s already, and none is overwritten: move them, or set run.number",
                                       s->sfi.directory, b->node->run, application);
        return r < 0 ? cannot_write(s->sfi.directory, r) : 0;
}

/* The source ids that stand for fragments which did not come. */
static void find_source_ids(struct builder *b)
{
        const struct scenario *s = b->node->scenario;
        struct replay *replay = NULL;
        char why[256];

        for (uint32_t i = 0; i < b->n_ros; i++)
                b->source_ids[i] = eformat_source_id(i);
        /* The file need not be on the SFI's machine: then dummies carry numbers of our own. */
        if (s->ros.source_kind != SOURCE_FILE || replay_open(&replay, s->ros.source_at, why, sizeof why) < 0)
                return;
        for (uint32_t i = 0; i < b->n_ros && i < replay_sources(replay); i++)
                b->source_ids[i] = replay_source_id(replay, i);
        replay_free(replay);
}

static int open_files(struct builder *b, uint32_t slots)
{
        const struct scenario_node *self = b->node->self;
        int r;

        b->format = b->node->scenario->sfi.format == FORMAT_EFORMAT5 ? &eformat_5 : &eformat_3;
        b->settings = (struct eformat_settings){
                .sfi_source_id = eformat_sfi_id(self->index + 1),
                .checksum = EFORMAT_CHECKSUM_ADLER32,
        };
        b->encoding = malloc(sizeof *b->encoding);
        b->fragments = calloc(b->n_ros, sizeof *b->fragments);
        b->event.fragments = b->fragments;
        if (!b->encoding || !b->fragments || ring_init(&b->to_write, slots, sizeof(uint32_t)) < 0)
                return log_error_errno(ENOMEM, "builder: %m");
        find_source_ids(b);
        r = open_writer(b);
        if (r < 0 || b->node->check_only)
                return r;
        r = waker_init(&b->wake_thread);
        if (r >= 0)
                r = waker_init(&b->wake_owner);
        if (r >= 0)
                r = thread_start(&b->thread, "evb-writer", self->cpus + 1, self->n_cpus > 1 ? self->n_cpus - 1 : 0, run_thread, b);
        b->threaded = r >= 0;
        return r < 0 ? log_error_errno(r, "thread that writes events: %m") : 0;
}

int builder_new(struct builder **ret, struct node *n, const struct sfi *core, const uint8_t *buffer, uint32_t slots)
{
        const struct scenario *s = n->scenario;
        struct builder *b = calloc(1, sizeof *b);
        int r = 0;

        if (!b)
                return log_error_errno(ENOMEM, "builder: %m");
        *b = (struct builder){
                .node = n,
                .core = core,
                .buffer = buffer,
                .verify = s->sfi.verify && s->ros.source_kind == SOURCE_PATTERN,
                .n_ros = (uint32_t)s->ros.count,
                .wake_thread.fd = -1,
                .wake_owner.fd = -1,
        };
        b->source_ids = calloc(b->n_ros, sizeof *b->source_ids);
        if (!b->source_ids || ring_init(&b->done, slots, sizeof(struct builder_done)) < 0)
                r = log_error_errno(ENOMEM, "builder: %m");
        else if (s->sfi.output == OUTPUT_FILE)
                r = open_files(b, slots);
        if (r < 0) {
                builder_free(b);
                return r;
        }
        *ret = b;
        return 0;
}

static void end_thread(struct builder *b)
{
        if (!b->threaded)
                return;
        atomic_store(&b->end, true);
        waker_wake(&b->wake_thread);
        pthread_join(b->thread, NULL);
        b->threaded = false;
}

struct builder *builder_free(struct builder *b)
{
        if (!b)
                return NULL;
        end_thread(b);
        event_writer_free(b->writer);
        waker_fini(&b->wake_thread);
        waker_fini(&b->wake_owner);
        ring_fini(&b->to_write);
        ring_fini(&b->done);
        free(b->encoding);
        free(b->fragments);
        free(b->source_ids);
        free(b);
        return NULL;
}

void builder_take(struct builder *b, uint32_t slot)
{
        if (b->threaded) {
                (void)ring_push(&b->to_write, &slot);
                return;
        }
        struct builder_done done = {slot, !build(b, slot)};

        (void)ring_push(&b->done, &done);
}

void builder_kick(struct builder *b)
{
        if (b->threaded)
                waker_wake(&b->wake_thread);
}

size_t builder_collect(struct builder *b, struct builder_done *done, size_t n)
{
        return ring_pop(&b->done, done, n);
}

int builder_fd(const struct builder *b)
{
        return b->threaded ? b->wake_owner.fd : -1;
}

void builder_prepare_wait(struct builder *b)
{
        if (b->threaded)
                waker_prepare(&b->wake_owner);
}

bool builder_has_done(const struct builder *b)
{
        return ring_count(&b->done) > 0;
}

void builder_woken(struct builder *b)
{
        if (b->threaded)
                waker_done(&b->wake_owner);
}

int builder_close(struct builder *b)
{
        struct event_writer_counts counts;
        int r;

        end_thread(b);
        if (!b->writer || b->failed)
                return b->error;
        r = event_writer_close(b->writer, (time_t)(clock_utc_ns() / NS_PER_S));
        event_writer_counts(b->writer, &counts);
        stats_set(&b->node->stats->file_bytes, counts.file_bytes);
        if (r < 0) {
                b->failed = true;
                b->error = log_error_errno(r, "closing %s: %m", event_writer_path(b->writer));
        }
        return r;
}

void builder_reasons(struct builder *b, struct reasons *to)
{
        end_thread(b);
        if (b->error < 0)
                reasons_add(to, "its output failed: %s", strerror(-b->error));
        if (b->corrupt_fragments > 0)
                reasons_add(to, "%llu fragments of %llu events are corrupt; the first: %s",
                            (unsigned long long)b->corrupt_fragments, (unsigned long long)b->corrupt_events,
                            b->first_corrupt);
}
