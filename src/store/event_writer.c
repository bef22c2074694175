/* Appends events to the buffer, and starts the next file when the open one is full. */
#include "store/event_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "event_record.h"
#include "event_writer_internal.h"

#define BUFFER_BYTES ((size_t)4 << 20)
/* At this size, bytes are copied to the page cache: the processor's cache still contains them, and their
 * events return their credits while other events arrive. Background writes wait for a full buffer. */
#define COPY_BYTES ((size_t)1 << 20)

/* ---- Writing ---- */

static void append(struct event_writer *w, const void *bytes, size_t size_bytes)
{
        memcpy(w->buffer + w->filled_bytes, bytes, size_bytes);
        w->filled_bytes += size_bytes;
}

static bool is_full(const struct event_writer *w, size_t size_bytes)
{
        uint64_t then = w->disk_bytes + w->flight.bytes + w->filled_bytes + EVENT_FILE_DATA_BYTES +
                        size_bytes + EVENT_FILE_END_BYTES;

        return w->file_events > 0 &&
               ((w->max_events && w->file_events >= w->max_events) || (w->max_bytes && then > w->max_bytes));
}

static int write_buffer(struct event_writer *w, uint32_t status, time_t now)
{
        int r = event_writer_begin_buffer(w, status, now);

        return r < 0 ? r : event_writer_end_buffer(w);
}

static int finish(struct event_writer *w, uint32_t status, time_t now)
{
        int r = write_buffer(w, status, now);

        if (r < 0)
                return r;
        if (w->sealing)
                w->sealing(w->userdata);
        r = event_writer_seal(w);
        if (r < 0)
                w->error = r;
        return r;
}

static bool needs_write(const struct event_writer *w, size_t size_bytes)
{
        return EVENT_FILE_DATA_BYTES + size_bytes > w->buffer_bytes - w->filled_bytes ||
               (!w->memory[1] && w->filled_bytes >= COPY_BYTES);
}

/* Makes room in the file and, for a small event, also in the buffer. */
static int make_room(struct event_writer *w, size_t size_bytes, bool large, time_t now)
{
        int r = 0;

        if (is_full(w, size_bytes)) {
                r = finish(w, 0, now);
                if (r == 0)
                        r = w->error = event_writer_open_next(w, now);
        } else if (large)
                r = event_writer_flush(w, now);
        else if (w->filled_bytes > 0 && needs_write(w, size_bytes))
                r = event_writer_begin_buffer(w, 0, now);
        return r;
}

static size_t iov_bytes(const struct iovec *iov, size_t n_iov)
{
        size_t n = 0;

        for (size_t i = 0; i < n_iov; i++)
                n += iov[i].iov_len;
        return n;
}

/* It is worth copying a large event to the buffer only if the buffer can then be written directly, or in the
 * background. */
static bool is_large(const struct event_writer *w, size_t size_bytes)
{
        size_t most = w->direct || w->memory[1] ? w->buffer_bytes : w->buffer_bytes / 4;

        return EVENT_FILE_DATA_BYTES + size_bytes > most;
}

static uint32_t sum_parts(const struct iovec *iov, size_t n_iov)
{
        uint32_t sum = ADLER_BEGIN;

        for (size_t i = 0; i < n_iov; i++)
                sum = adler_add(sum, iov[i].iov_base, iov[i].iov_len);
        return sum;
}

int event_writer_write(struct event_writer *w, const struct iovec *iov, size_t n_iov, size_t size_bytes,
                       uint32_t sum, const struct event_info *info, time_t now)
{
        bool large = is_large(w, size_bytes);
        uint8_t record[EVENT_FILE_DATA_BYTES];
        uint64_t at;
        int r;

        if (w->error < 0)
                return w->error;
        if (size_bytes == 0 || size_bytes % 4 != 0 || size_bytes > UINT32_MAX ||
            iov_bytes(iov, n_iov) != size_bytes)
                return -EMSGSIZE;
        r = make_room(w, size_bytes, large, now);
        if (r < 0)
                return r;
        at = w->disk_bytes + w->flight.bytes + w->filled_bytes + EVENT_FILE_DATA_BYTES;
        record_put_data(record, (uint32_t)(w->closed_events + w->file_events + 1), (uint32_t)size_bytes);
        w->sum = adler_add(w->sum, record, sizeof record);
        w->sum = adler_join(w->sum, sum ? sum : sum_parts(iov, n_iov), size_bytes);
        if (large) {
                r = event_writer_write_large(w, record, iov, n_iov, size_bytes, now);
        } else {
                append(w, record, sizeof record);
                for (size_t i = 0; i < n_iov; i++)
                        if (iov[i].iov_len > 0)
                                append(w, iov[i].iov_base, iov[i].iov_len);
                w->file_events++;
        }
        if (r < 0)
                return r;
        w->event_bytes += size_bytes;
        if (w->index)
                event_writer_check_index(w, event_index_add(w->index, at, size_bytes, info));
        return 0;
}

int event_writer_poll(struct event_writer *w)
{
        if (w->error < 0 || !w->flight.begun || !disk_writer_is_done(w->disk))
                return w->error;
        return event_writer_end_buffer(w);
}

int event_writer_flush(struct event_writer *w, time_t now)
{
        if (w->error < 0)
                return w->error;
        return w->filled_bytes > 0 ? write_buffer(w, 0, now) : event_writer_end_buffer(w);
}

int event_writer_sync(struct event_writer *w, time_t now)
{
        int r = event_writer_flush(w, now);

        if (r < 0 || w->closed_events + w->disk_events == w->events_synced)
                return r;
        if (fdatasync(w->fd) < 0)
                return event_writer_fail_on_disk(w, -errno);
        if (!w->entry_is_synced && fsync(w->directory_fd) < 0)
                return event_writer_fail_on_disk(w, -errno);
        w->entry_is_synced = true;
        w->events_synced = w->closed_events + w->disk_events;
        return 0;
}

/* Files are written through the descriptor of their directory, and found by its name. */
static bool is_in_place(const struct event_writer *w)
{
        struct stat ours, named;

        return fstat(w->directory_fd, &ours) == 0 && stat(w->directory, &named) == 0 &&
               named.st_dev == ours.st_dev && named.st_ino == ours.st_ino;
}

int event_writer_close(struct event_writer *w, time_t now)
{
        int r;

        if (w->error < 0 || w->fd < 0)
                return w->error;
        r = finish(w, 1, now);
        return r < 0 || is_in_place(w) ? r : -ESTALE;
}

/* ---- Lifetime ---- */

char *event_writer_core_name(char *text, size_t size_bytes, time_t time, uint32_t run, uint32_t lumi_block,
                             const char *application)
{
        struct tm tm = {0};

        localtime_r(&time, &tm);
        snprintf(text, size_bytes, "data%02d_evb.%08u.physics_Main.daq.RAW._lb%04u._%s", tm.tm_year % 100,
                 run, lumi_block, application);
        return text;
}

static int set_front(struct event_file_front *front, const struct event_writer_settings *s)
{
        if ((s->version != 2 && s->version != 6) || s->n_metadata > EVENT_FILE_METADATA_FREE)
                return -EINVAL;
        if (strlen(s->core_name) >= EVENT_FILE_TEXT_MAX || strlen(s->application) >= EVENT_FILE_TEXT_MAX)
                return -ENAMETOOLONG;
        *front = (struct event_file_front){
                .version = s->version,
                .max_events = (uint32_t)MIN(s->file_events, UINT32_MAX),
                .max_megabytes = (uint32_t)MIN(s->file_bytes >> 20, UINT32_MAX),
                .n_metadata = 3,
                .metadata = {"Stream=physics_Main", "Project=evb"},
                .run = s->run,
                .recording = 1,
                .trigger_type = s->trigger_type,
                .detector_mask = {s->detector_mask},
                .has_seed = s->has_seed,
                .seed = s->seed,
        };
        strcpy(front->core_name, s->core_name);
        strcpy(front->application, s->application);
        snprintf(front->metadata[2], EVENT_FILE_TEXT_MAX, "LumiBlock=%u", s->lumi_block);
        for (size_t i = 0; i < s->n_metadata; i++)
                snprintf(front->metadata[front->n_metadata++], EVENT_FILE_TEXT_MAX, "%s", s->metadata[i]);
        return 0;
}

/* A buffer has a part of a block in front of it, and room for an end record and padding behind it. */
static int allocate(struct event_writer *w, bool background)
{
        size_t size_bytes = ALIGN_UP(w->buffer_bytes, (size_t)DISK_BLOCK_BYTES) + 2 * DISK_BLOCK_BYTES;

        for (int i = 0; i < (background ? 2 : 1); i++)
                if (posix_memalign((void **)&w->memory[i], DISK_BLOCK_BYTES, size_bytes) != 0)
                        return -ENOMEM;
        return disk_writer_new(&w->disk, background);
}

static void event_writer_freep(struct event_writer **w)
{
        event_writer_free(*w);
}

int event_writer_new(struct event_writer **ret, const struct event_writer_settings *s, time_t now)
{
        _cleanup_(event_writer_freep) struct event_writer *w = calloc(1, sizeof *w);
        int r;

        if (!w)
                return -ENOMEM;
        w->fd = w->directory_fd = -1;
        r = set_front(&w->front, s);
        if (r < 0)
                return r;
        if (strlen(s->directory) >= sizeof w->directory)
                return -ENAMETOOLONG;
        strcpy(w->directory, s->directory);
        snprintf(w->separator, sizeof w->separator, "%s", s->separator ? s->separator : "._");
        w->stamped = s->stamped;
        w->max_events = s->file_events;
        w->max_bytes = s->file_bytes;
        w->closed = s->closed;
        w->sealing = s->sealing;
        w->unindexed = s->unindexed;
        w->userdata = s->userdata;
        w->direct = s->direct;
        w->keeps_cached = s->keeps_cached;
        w->buffer_bytes = s->buffer_bytes ? s->buffer_bytes : BUFFER_BYTES;
        w->index = s->indexed ? event_index_new() : NULL;
        r = s->indexed && !w->index ? -ENOMEM : allocate(w, s->background);
        if (r < 0)
                return r;
        w->directory_fd = open(w->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (w->directory_fd < 0)
                return -errno;
        r = event_writer_find_number(w, s->left, s->userdata);
        if (r == 0)
                r = event_writer_open_next(w, now);
        if (r < 0)
                return r;
        *ret = take_ptr(w);
        return 0;
}

struct event_writer *event_writer_free(struct event_writer *w)
{
        if (!w)
                return NULL;
        if (w->flight.begun)
                (void)event_writer_end_buffer(w);
        disk_writer_free(w->disk);
        event_index_free(w->index);
        cleanup_close(&w->fd);
        cleanup_close(&w->directory_fd);
        free(w->memory[0]);
        free(w->memory[1]);
        free(w);
        return NULL;
}

const char *event_writer_describe_error(int error)
{
        if (error == -EBADFD)
                return "another program changed or replaced the file";
        if (error == -ESTALE)
                return "another program moved or replaced the directory of the files";
        return strerror(-error);
}

bool event_writer_is_full(int error)
{
        return error == -ENOSPC || error == -EDQUOT;
}

void event_writer_counts(const struct event_writer *w, struct event_writer_counts *ret)
{
        *ret = (struct event_writer_counts){
                .events = w->closed_events + w->file_events,
                .event_bytes = w->event_bytes,
                .events_lost = w->events_lost,
                .events_written = w->closed_events + w->disk_events,
                .events_synced = w->events_synced,
                .events_closed = w->closed_events,
                .file_bytes = w->closed_bytes + (w->fd >= 0 ? w->disk_bytes + w->flight.bytes +
                                                                      w->filled_bytes + EVENT_FILE_END_BYTES
                                                            : 0),
                .written_bytes = w->closed_bytes + (w->fd >= 0 ? w->disk_bytes : 0),
                .files = w->files,
        };
}

unsigned event_writer_file_number(const struct event_writer *w)
{
        return w->front.file_number;
}

const char *event_writer_path(const struct event_writer *w)
{
        return w->path;
}
