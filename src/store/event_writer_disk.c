/* Writes the buffer of events to the open file. Each write ends with an end record, which the next write
 * overwrites, so even a full disk has room for an end record. Therefore, there is at most one write at a
 * time. */
#include <errno.h>
#include <string.h>

#include "event_record.h"
#include "event_writer_internal.h"

/* ---- Disk errors ---- */

/* Returns the end of the last record up to `limit`, and the number and bytes of the events after it. */
static size_t last_boundary(const uint8_t *records, size_t size_bytes, size_t limit, uint64_t *ret_lost,
                            uint64_t *ret_lost_bytes)
{
        size_t boundary = 0;

        *ret_lost = *ret_lost_bytes = 0;
        for (size_t at = 0; at < size_bytes;) {
                uint32_t event_bytes = eformat_word(records + at, 3);

                at += EVENT_FILE_DATA_BYTES + event_bytes;
                if (at <= limit) {
                        boundary = at;
                } else {
                        ++*ret_lost;
                        *ret_lost_bytes += event_bytes;
                }
        }
        return boundary;
}

static void lose(struct event_writer *w, uint64_t events, uint64_t bytes)
{
        w->events_lost += events;
        w->event_bytes -= bytes;
}

/* Counts as lost the events that never reached the kernel. */
static void lose_buffer(struct event_writer *w)
{
        uint64_t lost, lost_bytes;

        (void)last_boundary(w->buffer, w->filled_bytes, 0, &lost, &lost_bytes);
        lose(w, lost, lost_bytes);
        w->file_events -= lost;
        w->filled_bytes = 0;
}

/* Truncates the file after the last complete event that leaves room for an end record, if the first `written`
 * bytes of the records are in the file. There is always room at the start of the records, because the
 * previous end record is there. */
static int cut_back(struct event_writer *w, const uint8_t *records, size_t size_bytes, size_t written,
                    time_t now)
{
        uint64_t lost, lost_bytes, file_events = w->file_events;
        uint8_t end[EVENT_FILE_END_BYTES];
        size_t boundary = written, ignored;
        int r;

        for (;;) {
                boundary = last_boundary(records, size_bytes, boundary, &lost, &lost_bytes);
                w->file_events = file_events - lost;
                struct iovec iov = event_writer_end_record(w, w->disk_bytes + boundary, 1, now, end);

                r = record_write_all(w->fd, &iov, 1, w->disk_bytes + boundary, &ignored);
                if (r == 0 || boundary == 0)
                        break;
                boundary--;
        }
        lose(w, lost, lost_bytes);
        w->disk_sum = adler_add(w->disk_sum, records, boundary);
        w->disk_bytes += boundary;
        w->disk_events = w->file_events;
        if (r == 0 && ftruncate(w->fd, (off_t)(w->disk_bytes + EVENT_FILE_END_BYTES)) < 0)
                r = -errno;
        return r;
}

/* Closes the file after an error that left `written` bytes of the records in it. Returns `error`. */
static int fail(struct event_writer *w, int error, const uint8_t *records, size_t size_bytes, size_t written,
                time_t now)
{
        w->error = error;
        if (w->direct)
                (void)disk_set_direct(w->fd, false);
        if (cut_back(w, records, size_bytes, written, now) == 0)
                (void)event_writer_seal(w);
        if (w->fd >= 0)
                close(take_fd(&w->fd));
        return error;
}

int event_writer_fail_on_disk(struct event_writer *w, int error)
{
        w->error = error;
        w->events_lost += w->file_events - w->disk_events;
        w->file_events = w->disk_events;
        w->filled_bytes = w->flight.bytes = 0;
        close(take_fd(&w->fd));
        return error;
}

static int write_behind(struct event_writer *w)
{
        int r = disk_write_behind(&w->behind, w->fd, w->disk_bytes);

        return r < 0 ? event_writer_fail_on_disk(w, r) : 0;
}

/* ---- The buffer ---- */

/* Direct writes fill the last block with zeros, which are removed later. */
static void begin_flight(struct event_writer *w)
{
        size_t lead_bytes = w->flight.lead_bytes;
        size_t size_bytes = lead_bytes + w->flight.bytes + EVENT_FILE_END_BYTES, padding = 0;
        uint8_t *begin = w->buffer - lead_bytes;

        if (w->direct)
                padding = ALIGN_UP(size_bytes, (size_t)DISK_BLOCK_BYTES) - size_bytes;
        memset(begin + size_bytes, 0, padding);
        disk_writer_begin(w->disk, w->fd, begin, size_bytes + padding, w->disk_bytes - lead_bytes);
}

int event_writer_begin_buffer(struct event_writer *w, uint32_t status, time_t now)
{
        int r = event_writer_end_buffer(w);
        uint64_t data_bytes;

        if (r < 0)
                return r;
        r = event_writer_begin_write(w, w->direct ? NULL : &w->flight.guard);
        if (r < 0)
                return event_writer_fail_on_disk(w, r);
        data_bytes = w->disk_bytes + w->filled_bytes;
        (void)event_writer_end_record(w, data_bytes, status, now, w->buffer + w->filled_bytes);
        w->flight.begun = true;
        w->flight.records = w->buffer;
        w->flight.bytes = w->filled_bytes;
        w->flight.sum = w->sum;
        w->flight.lead_bytes = (size_t)(w->buffer - w->memory[w->filling]);
        w->flight.events = w->file_events;
        w->flight.begun_at = now;
        begin_flight(w);
        if (!w->memory[1])
                return event_writer_end_buffer(w);
        event_writer_empty_buffer(w, data_bytes, w->flight.records + w->flight.bytes);
        return 0;
}

/* The records of a failed write are still in the same place. */
static int fail_flight(struct event_writer *w, int error, size_t written)
{
        size_t lead_bytes = w->flight.lead_bytes, size_bytes = w->flight.bytes;

        if (w->memory[1])
                lose_buffer(w);
        w->filled_bytes = w->flight.bytes = 0;
        written -= MIN(written, lead_bytes);
        return fail(w, error, w->flight.records, size_bytes, MIN(written, size_bytes), w->flight.begun_at);
}

int event_writer_end_buffer(struct event_writer *w)
{
        uint64_t data_bytes = w->disk_bytes + w->flight.bytes;
        size_t written;
        int r;

        if (!w->flight.begun)
                return 0;
        w->flight.begun = false;
        r = disk_writer_end(w->disk, &written);
        if (r < 0)
                return fail_flight(w, r, written);
        r = w->direct ? event_writer_end_direct(w, data_bytes + EVENT_FILE_END_BYTES)
                      : event_writer_end_write(w, &w->flight.guard);
        if (r < 0)
                return event_writer_fail_on_disk(w, r);
        w->disk_bytes = data_bytes;
        w->disk_sum = w->flight.sum;
        w->disk_events = w->flight.events;
        w->flight.bytes = 0;
        if (!w->memory[1])
                event_writer_empty_buffer(w, data_bytes, w->buffer + w->filled_bytes);
        return write_behind(w);
}

/* ---- Large events ---- */

/* Writes the parts of a large event, which may be unaligned, so the parts pass through the page cache. */
static int write_parts(struct event_writer *w, const uint8_t *record, const struct iovec *iov, size_t n_iov,
                       size_t size_bytes, time_t now)
{
        uint64_t data_bytes = w->disk_bytes + EVENT_FILE_DATA_BYTES + size_bytes;
        uint8_t end[EVENT_FILE_END_BYTES];
        struct iovec head = {.iov_base = (void *)record, .iov_len = EVENT_FILE_DATA_BYTES}, tail;
        size_t written;
        int r;

        w->file_events++;
        tail = event_writer_end_record(w, data_bytes, 0, now, end);
        r = record_write_all(w->fd, &head, 1, w->disk_bytes, &written);
        if (r == 0)
                r = record_write_all(w->fd, iov, n_iov, w->disk_bytes + EVENT_FILE_DATA_BYTES, &written);
        if (r == 0)
                r = record_write_all(w->fd, &tail, 1, data_bytes, &written);
        w->file_events -= r < 0;
        return r < 0 ? fail(w, r, NULL, 0, 0, now) : 0;
}

/* Prepares direct writes after data in the page cache. */
static int read_lead(struct event_writer *w)
{
        uint8_t block[DISK_BLOCK_BYTES];
        size_t n = w->disk_bytes % DISK_BLOCK_BYTES;
        ssize_t r = pread(w->fd, block, n, (off_t)(w->disk_bytes - n));

        if (r < 0)
                return -errno;
        if ((size_t)r < n)
                return -EBADFD;
        event_writer_empty_buffer(w, w->disk_bytes, block + n);
        return disk_set_direct(w->fd, true);
}

int event_writer_write_large(struct event_writer *w, const uint8_t *record, const struct iovec *iov,
                             size_t n_iov, size_t size_bytes, time_t now)
{
        struct write_guard guard;
        int r = w->direct ? disk_set_direct(w->fd, false) : 0;

        if (r == 0)
                r = event_writer_begin_write(w, &guard);
        if (r < 0)
                return event_writer_fail_on_disk(w, r);
        r = write_parts(w, record, iov, n_iov, size_bytes, now);
        if (r < 0)
                return r;
        r = event_writer_end_write(w, &guard);
        if (r < 0) {
                w->file_events--;
                return event_writer_fail_on_disk(w, r);
        }
        w->disk_bytes += EVENT_FILE_DATA_BYTES + size_bytes;
        w->disk_sum = w->sum;
        w->disk_events = w->file_events;
        r = write_behind(w);
        if (r == 0 && w->direct) {
                r = read_lead(w);
                r = r < 0 ? event_writer_fail_on_disk(w, r) : 0;
        }
        if (r < 0) /* the event of a failed call does not count */
                w->file_events = --w->disk_events;
        return r;
}
