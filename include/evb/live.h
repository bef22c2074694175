/* libevb-live: receive the events of a running event builder (SFI of evb), at the address in its key
 * live.listen. libevb-live(3) has an example.
 *
 * Threads: a connection belongs to one thread at a time; different connections are independent. The library
 * has no threads, no signal handlers and no global state, and prints nothing. A child of fork() must not use
 * a connection of its parent.
 *
 * Memory: what a function returns belongs to the connection, and is valid until the next evb_live_next() or
 * evb_live_close(). Structures may get more members at their end, so do not copy arrays of them by size.
 *
 * Nothing that the builder sends is trusted: each event is copied and its structure checked before it is
 * returned. Checksums are not checked. */
#ifndef EVB_LIVE_H
#define EVB_LIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct evb_live;

struct evb_live_event {
        const uint8_t *data; /* the event as in an event file: little-endian words */
        size_t bytes;
        unsigned format;        /* 3: v3.0; 5: v5.0 */
        bool is_complete;       /* no required fragment is missing */
        bool has_number;        /* false: the builder does not number events, and `number` is the global ID */
        uint64_t number;        /* from 0; never repeats in a run */
        uint64_t global_id;     /* of the trigger, as it came; may repeat after a reset of counters */
        uint64_t time_ns;       /* of the trigger, in ns since 1970, UTC */
        uint64_t given_time_ns; /* when the builder offered the event, in the same unit */
        uint32_t run, l1_id, trigger_type, trigger_flags;
        uint32_t spill;  /* number of spills that had begun, with this one; 0: no spills */
        uint32_t status; /* first status word; 0: nothing is wrong */
        size_t n_fragments;
};

struct evb_live_fragment {
        uint32_t source; /* source ID */
        uint32_t status; /* status word; 0: nothing is wrong */
        bool is_missing; /* the fragment was lost, and has no payload */
        const uint8_t *payload;
        size_t bytes; /* of the payload, without padding */
};

/* Counts of events since the connection began, or, in a group, since its first member connected. `offered`:
 * events built; `given`: events that went to this consumer or group; `skipped`: events that were selected,
 * but did not fit, or came while no consumer was waiting for one. */
struct evb_live_counts {
        uint64_t offered, given, skipped;
};

/* Connects to a builder. `address`: "unix:PATH", or "HOST:PORT" with a numeric address ("[::1]:7000"), where
 * the builder must not require a key. `options`: words NAME=VALUE, separated by blanks, with the
 * names and values of the options of evb-live(1), for example "mode=skip stride=100 group=display"; NULL or
 * "": none. Waits at most 60 s for the answer.
 *
 * Returns 0, or a negative errno with an explanation in error[0] to error[error_bytes - 1], always
 * terminated (error may be NULL if error_bytes is 0): -EINVAL: invalid address or options, or the builder
 * refuses them; -EPROTO: the answer is not that of a builder; otherwise that of the connection, e.g. -ENOENT
 * or -ECONNREFUSED if no builder listens there. */
int evb_live_connect(struct evb_live **ret, const char *address, const char *options, char *error,
                     size_t error_bytes);

/* Releases the last event, and waits for the next one; timeout_ms: in ms, 0: do not wait, negative: without
 * limit. Returns 1 with the event in *ret, 0 at the end of the run, or a negative errno, after which *ret is
 * unchanged:
 * -EAGAIN: no event within the time; -EINTR: a signal was handled; -EBADMSG: the event is damaged, the next
 * call returns the one after it; -ECONNRESET: the connection ended before all events had come (the builder
 * ended before its run, or this program was too slow at the end of the run); -EPROTO: the memory of the
 * connection is damaged; -ENOMEM. After 0, -ECONNRESET and -EPROTO, close the connection. */
int evb_live_next(struct evb_live *live, int timeout_ms, const struct evb_live_event **ret);

/* Returns a fragment of the last event, or NULL if `index` is not below its n_fragments. */
const struct evb_live_fragment *evb_live_fragment(const struct evb_live *live, size_t index);

/* Tells the builder that the last event is processed; its data stay valid. evb_live_next() does this, too. In
 * a group, the events that a consumer has not released when it ends go to the others. */
void evb_live_release(struct evb_live *live);

/* Counts up to and including the last event; after the end of the run, of the whole connection. In mode all,
 * `skipped` is other than 0 at the end if events are missing. */
const struct evb_live_counts *evb_live_counts(const struct evb_live *live);

/* Explains the last error of evb_live_next(); "": none. */
const char *evb_live_error(const struct evb_live *live);

/* Returns a descriptor for poll() and its relatives: after evb_live_next() returned -EAGAIN, it becomes
 * readable when another call is worthwhile. Do not read from it or close it. */
int evb_live_descriptor(const struct evb_live *live);

/* Ends the connection without releasing the last event. Accepts NULL. */
void evb_live_close(struct evb_live *live);

#ifdef __cplusplus
}
#endif

#endif
