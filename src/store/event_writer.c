/* Appends events to the buffer, writes the buffer to the open file, and starts the next file when it is full.
 * Each write ends with an end record that the next write overwrites, so that even a full disk has room for
 * one. */
#include "evb/store/event_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "event_record.h"
#include "event_writer_internal.h"

#define BUFFER_BYTES ((size_t)4 << 20)

/* ---- Disk errors ---- */

/* Returns the end of the last buffered record up to `limit`, and the number and bytes of the events after it.
 */
static size_t last_boundary(const struct event_writer *w, size_t limit, uint64_t *ret_lost,
                            uint64_t *ret_lost_bytes)
{
        size_t boundary = 0;

        *ret_lost = *ret_lost_bytes = 0;
        for (size_t at = 0; at < w->filled_bytes;) {
                uint32_t size_bytes = eformat_word(w->buffer + at, 3);

                at += EVENT_FILE_DATA_BYTES + size_bytes;
                if (at <= limit) {
                        boundary = at;
                } else {
                        ++*ret_lost;
                        *ret_lost_bytes += size_bytes;
                }
        }
        return boundary;
}

/* Truncates the file after the last complete event that leaves room for an end record. The start of the
 * buffer always has room, since the previous end record is there. */
static int cut_back(struct event_writer *w, size_t written, time_t now)
{
        uint64_t lost, lost_bytes, file_events = w->file_events;
        uint8_t end[EVENT_FILE_END_BYTES];
        size_t boundary = written, ignored;
        int r;

        for (;;) {
                boundary = last_boundary(w, boundary, &lost, &lost_bytes);
                w->file_events = file_events - lost;
                struct iovec iov = event_writer_end_record(w, w->disk_bytes + boundary, 1, now, end);

                r = record_write_all(w->fd, &iov, 1, w->disk_bytes + boundary, &ignored);
                if (r == 0 || boundary == 0)
                        break;
                boundary--;
        }
        w->events_lost += lost;
        w->event_bytes -= lost_bytes;
        w->disk_bytes += boundary;
        w->disk_events = w->file_events;
        w->filled_bytes = 0;
        if (r == 0 && ftruncate(w->fd, (off_t)(w->disk_bytes + EVENT_FILE_END_BYTES)) < 0)
                r = -errno;
        return r;
}

/* Closes the file after an error that left `written` bytes of the buffer in it. Returns `error`. */
static int fail(struct event_writer *w, int error, size_t written, time_t now)
{
        w->error = error;
        if (w->fd >= 0 && cut_back(w, written, now) == 0)
                (void)event_writer_seal(w);
        if (w->fd >= 0)
                close(take_fd(&w->fd));
        return error;
}

/* Closes a file whose accepted data the disk lost; it keeps the name NAME.writing. Returns `error`. */
static int fail_on_disk(struct event_writer *w, int error)
{
        w->error = error;
        w->events_lost += w->file_events - w->disk_events;
        w->file_events = w->disk_events;
        w->filled_bytes = 0;
        close(take_fd(&w->fd));
        return error;
}

/* ---- Writing ---- */

static int write_back(struct event_writer *w)
{
        int r = event_writer_write_back(w);

        return r < 0 ? fail_on_disk(w, r) : 0;
}

static int write_buffer(struct event_writer *w, uint32_t status, time_t now)
{
        uint8_t end[EVENT_FILE_END_BYTES];
        struct iovec iov[] = {
                {.iov_base = w->buffer, .iov_len = w->filled_bytes},
                event_writer_end_record(w, w->disk_bytes + w->filled_bytes, status, now, end),
        };
        struct write_guard guard;
        size_t written;
        int r = event_writer_begin_write(w, &guard);

        if (r < 0)
                return fail_on_disk(w, r);
        r = record_write_all(w->fd, iov, ARRAY_SIZE(iov), w->disk_bytes, &written);
        if (r < 0)
                return fail(w, r, MIN(written, w->filled_bytes), now);
        r = event_writer_end_write(w, &guard);
        if (r < 0)
                return fail_on_disk(w, r);
        w->disk_bytes += w->filled_bytes;
        w->disk_events = w->file_events;
        w->filled_bytes = 0;
        return write_back(w);
}

static int write_large(struct event_writer *w, const uint8_t *record, const struct iovec *iov, size_t n_iov,
                       size_t size_bytes, time_t now)
{
        uint64_t data_bytes = w->disk_bytes + EVENT_FILE_DATA_BYTES + size_bytes;
        uint8_t end[EVENT_FILE_END_BYTES];
        struct iovec head = {.iov_base = (void *)record, .iov_len = EVENT_FILE_DATA_BYTES}, tail;
        struct write_guard guard;
        size_t written;
        int r = event_writer_begin_write(w, &guard);

        if (r < 0)
                return fail_on_disk(w, r);
        w->file_events++;
        tail = event_writer_end_record(w, data_bytes, 0, now, end);
        r = record_write_all(w->fd, &head, 1, w->disk_bytes, &written);
        if (r == 0)
                r = record_write_all(w->fd, iov, n_iov, w->disk_bytes + EVENT_FILE_DATA_BYTES, &written);
        if (r == 0)
                r = record_write_all(w->fd, &tail, 1, data_bytes, &written);
        if (r < 0) {
                w->file_events--;
                return fail(w, r, 0, now);
        }
        r = event_writer_end_write(w, &guard);
        if (r < 0) {
                w->file_events--;
                return fail_on_disk(w, r);
        }
        w->disk_bytes = data_bytes;
        w->disk_events = w->file_events;
        r = write_back(w);
        if (r < 0) /* the event of a failed call does not count */
                w->file_events = --w->disk_events;
        return r;
}

static void append(struct event_writer *w, const void *bytes, size_t size_bytes)
{
        memcpy(w->buffer + w->filled_bytes, bytes, size_bytes);
        w->filled_bytes += size_bytes;
}

static bool is_full(const struct event_writer *w, size_t size_bytes)
{
        uint64_t then =
                w->disk_bytes + w->filled_bytes + EVENT_FILE_DATA_BYTES + size_bytes + EVENT_FILE_END_BYTES;

        return w->file_events > 0 &&
               ((w->max_events && w->file_events >= w->max_events) || (w->max_bytes && then > w->max_bytes));
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

/* Makes room in the file and, for a small event, in the buffer. */
static int make_room(struct event_writer *w, size_t size_bytes, bool large, time_t now)
{
        int r = 0;

        if (is_full(w, size_bytes)) {
                r = finish(w, 0, now);
                if (r == 0)
                        r = w->error = event_writer_open_next(w, now);
        } else if (w->filled_bytes > 0 &&
                   (large || EVENT_FILE_DATA_BYTES + size_bytes > w->buffer_bytes - w->filled_bytes)) {
                r = write_buffer(w, 0, now);
        }
        return r;
}

static size_t iov_bytes(const struct iovec *iov, size_t n_iov)
{
        size_t n = 0;

        for (size_t i = 0; i < n_iov; i++)
                n += iov[i].iov_len;
        return n;
}

int event_writer_write(struct event_writer *w, const struct iovec *iov, size_t n_iov, size_t size_bytes,
                       time_t now)
{
        bool large = EVENT_FILE_DATA_BYTES + size_bytes > w->buffer_bytes / 4;
        uint8_t record[EVENT_FILE_DATA_BYTES];
        int r;

        if (w->error < 0)
                return w->error;
        if (size_bytes == 0 || size_bytes % 4 != 0 || size_bytes > UINT32_MAX ||
            iov_bytes(iov, n_iov) != size_bytes)
                return -EMSGSIZE;
        r = make_room(w, size_bytes, large, now);
        if (r < 0)
                return r;
        record_put_data(record, (uint32_t)(w->closed_events + w->file_events + 1), (uint32_t)size_bytes);
        if (large) {
                r = write_large(w, record, iov, n_iov, size_bytes, now);
        } else {
                append(w, record, sizeof record);
                for (size_t i = 0; i < n_iov; i++)
                        if (iov[i].iov_len > 0)
                                append(w, iov[i].iov_base, iov[i].iov_len);
                w->file_events++;
        }
        if (r == 0)
                w->event_bytes += size_bytes;
        return r;
}

int event_writer_flush(struct event_writer *w, time_t now)
{
        if (w->error < 0 || w->filled_bytes == 0)
                return w->error;
        return write_buffer(w, 0, now);
}

int event_writer_sync(struct event_writer *w, time_t now)
{
        int r = event_writer_flush(w, now);

        if (r < 0 || w->closed_events + w->disk_events == w->events_synced)
                return r;
        if (fdatasync(w->fd) < 0)
                return fail_on_disk(w, -errno);
        if (!w->entry_is_synced && fsync(w->directory_fd) < 0)
                return fail_on_disk(w, -errno);
        w->entry_is_synced = true;
        w->events_synced = w->closed_events + w->disk_events;
        return 0;
}

int event_writer_close(struct event_writer *w, time_t now)
{
        if (w->error < 0 || w->fd < 0)
                return w->error;
        return finish(w, 1, now);
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
        w->max_events = s->file_events;
        w->max_bytes = s->file_bytes;
        w->closed = s->closed;
        w->sealing = s->sealing;
        w->userdata = s->userdata;
        w->buffer_bytes = s->buffer_bytes ? s->buffer_bytes : BUFFER_BYTES;
        if (posix_memalign((void **)&w->buffer, 4096, w->buffer_bytes) != 0)
                return -ENOMEM;
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
        cleanup_close(&w->fd);
        cleanup_close(&w->directory_fd);
        free(w->buffer);
        free(w);
        return NULL;
}

const char *event_writer_describe_error(int error)
{
        return error == -EBADFD ? "another program changed the size of the file" : strerror(-error);
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
                .file_bytes = w->closed_bytes +
                              (w->fd >= 0 ? w->disk_bytes + w->filled_bytes + EVENT_FILE_END_BYTES : 0),
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
