/* The producer's and the consumer's side of a ring of live events. */
#include "live_ring.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/util.h"
#include "sys/memory.h"

_Static_assert(sizeof(struct live_record) == LIVE_RECORD_BYTES, "as the header says");
_Static_assert(sizeof(struct live_ring_head) <= LIVE_RING_DATA_AT, "as the header says");

static void point(struct live_ring *r, void *memory, uint64_t data_bytes)
{
        *r = (struct live_ring){
                .head = memory,
                .data = (uint8_t *)memory + LIVE_RING_DATA_AT,
                .data_bytes = data_bytes,
        };
}

int live_ring_new(struct live_ring *ret, uint64_t data_bytes, int *ret_fd)
{
        void *memory;
        int r = memory_share_new("evb-live", LIVE_RING_DATA_AT + data_bytes, ret_fd, &memory);

        if (r < 0)
                return r;
        point(ret, memory, data_bytes);
        ret->head->data_bytes = data_bytes;
        ret->head->magic = LIVE_RING_MAGIC;
        return 0;
}

int live_ring_map(struct live_ring *ret, int fd)
{
        int seals = fcntl(fd, F_GET_SEALS), r;
        struct stat st;
        void *memory;

        if (fstat(fd, &st) < 0)
                return -errno;
        /* If the producer could shrink the memory, SIGBUS would kill this process. A file on a disk has no
         * seals. */
        if (seals < 0 || !(seals & F_SEAL_SHRINK))
                return -EPROTO;
        if (st.st_size <= (off_t)LIVE_RING_DATA_AT || st.st_size % 64 != 0)
                return -EPROTO;
        r = memory_share_map(fd, (size_t)st.st_size, &memory);
        if (r < 0)
                return r;
        point(ret, memory, (uint64_t)st.st_size - LIVE_RING_DATA_AT);
        if (ret->head->magic == LIVE_RING_MAGIC && ret->head->data_bytes == ret->data_bytes)
                return 0;
        live_ring_free(ret);
        return -EPROTO;
}

void live_ring_free(struct live_ring *r)
{
        memory_unmap(r->head, LIVE_RING_DATA_AT + r->data_bytes);
        *r = (struct live_ring){};
}

/* ---- Producer ---- */

int64_t live_ring_unread_bytes(struct live_ring *r)
{
        uint64_t read = atomic_load_explicit(&r->head->read, memory_order_acquire);

        if (read < r->released || read > r->written || read % 64 != 0)
                return -EPROTO;
        r->released = read;
        return (int64_t)(r->written - read);
}

static uint64_t record_bytes(size_t event_bytes)
{
        return LIVE_RECORD_BYTES + ALIGN_UP((uint64_t)event_bytes, (uint64_t)64);
}

/* Bytes up to the end of the ring that an event cannot use. */
static uint64_t filler_bytes(const struct live_ring *r, size_t event_bytes)
{
        uint64_t left = r->data_bytes - r->written % r->data_bytes;

        return left < record_bytes(event_bytes) ? left : 0;
}

bool live_ring_can_hold(const struct live_ring *r, size_t event_bytes)
{
        return record_bytes(event_bytes) <= r->data_bytes / 2;
}

bool live_ring_has_room(const struct live_ring *r, uint64_t unread_bytes, size_t event_bytes)
{
        return live_ring_can_hold(r, event_bytes) &&
               filler_bytes(r, event_bytes) + record_bytes(event_bytes) <= r->data_bytes - unread_bytes;
}

static void write_record(struct live_ring *r, const struct live_record *record)
{
        memcpy(r->data + r->written % r->data_bytes, record, sizeof *record);
}

int live_ring_write(struct live_ring *r, const struct live_record *record, const struct iovec *iov,
                    size_t n_iov, size_t event_bytes)
{
        uint64_t bytes = record_bytes(event_bytes), filler = filler_bytes(r, event_bytes);
        int64_t unread = live_ring_unread_bytes(r);
        struct live_record own = *record;
        uint8_t *to;

        if (unread < 0)
                return (int)unread;
        if (!live_ring_has_room(r, (uint64_t)unread, event_bytes))
                return LIVE_RING_FULL;
        if (filler > 0) {
                write_record(r, &(struct live_record){.record_bytes = filler});
                r->written += filler;
        }
        own.record_bytes = bytes;
        own.event_bytes = event_bytes;
        write_record(r, &own);
        to = r->data + r->written % r->data_bytes + LIVE_RECORD_BYTES;
        for (size_t i = 0; i < n_iov; i++) {
                if (iov[i].iov_len > 0)
                        to = mempcpy(to, iov[i].iov_base, iov[i].iov_len);
        }
        r->written += bytes;
        atomic_store_explicit(&r->head->written, r->written, memory_order_release);
        return LIVE_RING_WRITTEN;
}

bool live_ring_needs_wake(struct live_ring *r)
{
        atomic_thread_fence(memory_order_seq_cst);
        return atomic_exchange(&r->head->sleeping, 0) != 0;
}

/* ---- Consumer ---- */

const uint8_t *live_ring_next(struct live_ring *r, struct live_record *ret, int *ret_error)
{
        uint64_t written = atomic_load_explicit(&r->head->written, memory_order_acquire);

        *ret_error = 0;
        while (r->released != written) {
                uint64_t at = r->released % r->data_bytes;

                memcpy(ret, r->data + at, sizeof *ret);
                if (ret->record_bytes % 64 != 0 || ret->record_bytes < LIVE_RECORD_BYTES ||
                    ret->record_bytes > r->data_bytes - at ||
                    ret->event_bytes > ret->record_bytes - LIVE_RECORD_BYTES ||
                    ret->record_bytes > written - r->released) {
                        *ret_error = -EPROTO;
                        return NULL;
                }
                r->released += ret->record_bytes;
                if (ret->event_bytes > 0)
                        return r->data + at + LIVE_RECORD_BYTES;
        }
        return NULL;
}

void live_ring_release(struct live_ring *r)
{
        atomic_store_explicit(&r->head->read, r->released, memory_order_release);
}

bool live_ring_prepare_sleep(struct live_ring *r)
{
        atomic_store(&r->head->sleeping, 1);
        return atomic_load(&r->head->written) == r->released;
}
