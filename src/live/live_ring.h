/* A ring of events in memory that an SFI (the producer) shares with one consumer: a memfd of fixed size,
 * sealed against changes of its size, which disappears with its last process.
 *
 * Layout, in the byte order of the machine: struct live_ring_head, then from LIVE_RING_DATA_AT on
 * `data_bytes` of records. A record begins at a multiple of 64 bytes: struct live_record, then the event as
 * in an event file. A record with event_bytes = 0 fills the end of the ring, because no event wraps around.
 *
 * Positions count bytes since the start; a position modulo data_bytes is the place in the ring. The producer
 * writes records, then `written` (release). The consumer loads `written` (acquire) before it reads records,
 * and stores `read` (release) when it no longer uses the records before that position. To sleep, it sets
 * `sleeping` and loads `written` again, both sequentially consistent. After one or more records, the producer
 * exchanges `sleeping` behind a fence, so one side sees the other's write; a fence for each record would wait
 * until all its bytes have left the processor's store buffer. python/evb/live_events.py has no fences, and
 * checks again after 50 ms.
 *
 * The consumer can write to all of this memory. The producer reads only `read` and `sleeping`: it keeps its
 * own positions, and a `read` that goes back, or beyond the written position, ends the connection. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#define LIVE_RING_MAGIC UINT64_C(0x314556494c425645) /* "EVBLIVE1" */
#define LIVE_RING_DATA_AT 4096u
#define LIVE_RECORD_BYTES 64u

struct live_ring_head {
        uint64_t magic, data_bytes;
        /* Stored by the producer. `ended`: the SFI has built all its events, and the connection ends. The
         * counts are valid then: those of the last record, with what was offered since. */
        _Alignas(64) _Atomic uint64_t written;
        _Atomic uint32_t ended;
        uint64_t offered, given, skipped;
        /* Stored by the consumer. */
        _Alignas(64) _Atomic uint64_t read;
        _Atomic uint32_t sleeping;
};

struct live_record {
        uint64_t record_bytes; /* distance to the next record: a multiple of 64 */
        uint64_t event_bytes;
        uint64_t offered, given, skipped; /* as in struct live_counts, including this event */
        uint64_t utc_ns;                  /* when the event was given */
        uint64_t reserved[2];
};

/* State of either side. The producer uses `written` and `released`. The consumer uses `released`, the last
 * `read` that it stored. */
struct live_ring {
        struct live_ring_head *head;
        uint8_t *data;
        uint64_t data_bytes, written, released;
};

/* Producer: creates the memory, and returns its descriptor for the consumer. Negative errno. */
int live_ring_new(struct live_ring *ret, uint64_t data_bytes, int *ret_fd);
/* Consumer: maps the memory of a descriptor, which may be closed afterwards. -EPROTO: it is not a ring. */
int live_ring_map(struct live_ring *ret, int fd);
void live_ring_free(struct live_ring *r);

/* Producer: returns the bytes that the consumer has not released; -EPROTO: its `read` is invalid. */
int64_t live_ring_unread_bytes(struct live_ring *r);
/* Producer: whether an event of this size fits while so many bytes are unread. An event larger than half the
 * ring never fits: depending on the position, it might not fit even into an empty ring. */
bool live_ring_can_hold(const struct live_ring *r, size_t event_bytes);
bool live_ring_has_room(const struct live_ring *r, uint64_t unread_bytes, size_t event_bytes);
enum live_ring_result { LIVE_RING_WRITTEN, LIVE_RING_FULL };
/* Producer: writes an event; `record` contains the counts and the time. -EPROTO: the consumer's `read` is
 * invalid. */
int live_ring_write(struct live_ring *r, const struct live_record *record, const struct iovec *iov,
                    size_t n_iov, size_t event_bytes);
/* Producer: whether the consumer sleeps and must be woken. */
bool live_ring_needs_wake(struct live_ring *r);

/* Consumer: returns the next event, which is valid until live_ring_release(); NULL: there is none now.
 * -EPROTO in *ret_error: the ring is damaged. */
const uint8_t *live_ring_next(struct live_ring *r, struct live_record *ret, int *ret_error);
void live_ring_release(struct live_ring *r);
/* Consumer: call this before sleeping. False: an event is available, so do not sleep. */
bool live_ring_prepare_sleep(struct live_ring *r);
