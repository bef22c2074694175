/* The two threads of a sender: one reads the source into the ring, the other sends from it. send_setup.c
 * prepares them. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>

#include "base/error.h"
#include "net/endpoint.h"
#include "rules/gaps.h"
#include "rules/setup.h"
#include "rules/timing.h"
#include "stream/raw.h"
#include "stream/rules/setup.h"
#include "stream/rules/timing.h"
#include "stream/rules/vdif_fill.h"
#include "stream/slot_ring.h"
#include "stream/stream.h"

/* source.c: the source of a sent stream: a file, standard input, a pattern that the receiver can check, or
 * zeros. One thread at a time. */
struct stream_source;

/* `text` as in struct stream_send_config; `key` defines the pattern. -EINVAL: not a source. */
int stream_source_open(struct stream_source **ret, const char *text, uint64_t key, struct error *e);
/* The data bypass the page cache (O_DIRECT). Call this before the first read. -EINVAL, -EOPNOTSUPP: this
 * input does not support it. */
int stream_source_set_direct(struct stream_source *s, struct error *e);
struct stream_source *stream_source_free(struct stream_source *s);

bool stream_source_is_pattern(const struct stream_source *s);
/* Reads how the frames follow each other, without consuming them. -EBADMSG: it is not a VDIF recording. */
int stream_source_plan(struct stream_source *s, struct vdif_plan *ret, struct error *e);
/* The same for a source that is sent as plain data, which may also be Mark 5B. `known`: the caller knows the
 * rate, so another format is no error; its frames have 0 bytes. */
int stream_source_rate(struct stream_source *s, struct vdif_plan *ret, bool known, struct error *e);
/* After stream_source_rate(): the format of its frames. */
const char *stream_source_name(const struct stream_source *s);
/* Fills the parts in order, at most 64. Only the last part may stay incomplete, at the end of the source. If
 * a pipe has no more data at the moment, fewer parts are filled, but at least one. *ret_ended: the source has
 * ended, or *stop was set. Returns the number of bytes, or negative errno. */
ssize_t stream_source_fill(struct stream_source *s, const struct iovec *parts, size_t n,
                           const _Atomic bool *stop, bool *ret_ended);
/* Begins at this offset. Only for a source whose data can be read again, before the first read. Returns
 * negative errno. */
int stream_source_skip(struct stream_source *s, uint64_t offset);
/* Whether all data can be read again. */
bool stream_source_is_repeatable(const struct stream_source *s);
/* Reads n bytes of such a source again, from its beginning plus `offset` on. -ENODATA: it has become
 * shorter; -ESTALE: it was changed, at the same size. */
int stream_source_read_again(struct stream_source *s, uint64_t offset, void *bytes, size_t n);

/* The caller sets the first part, calls send_threads_start(), and reads the remaining members. It may read
 * members that are not atomic only after send_threads_join(). */
struct send_threads {
        const struct stream_options *options;
        struct stream_source *source;
        struct endpoint *endpoint; /* connected */
        struct packet_rule rule;
        const struct vdif_plan *plan; /* VDIF */
        struct spacing spacing;
        bool exact; /* spins before each packet, so that it leaves in time */
        /* Packets are passed to the kernel this long before they are due, with their departure time on
         * `leave_clock`; 0: when they are due. */
        uint64_t lead_ns;
        clockid_t leave_clock;
        bool follows; /* only packets below `permitted` may leave; see send_threads_permit() */
        _Atomic uint64_t permitted;
        struct raw_send raw; /* raw streams: there is no input, and the ring stays empty */

        struct slot_ring ring;
        int permit_fd; /* wakes the network thread */
        int done_fd;   /* readable when the network thread has ended */
        pthread_t input, network;
        bool started_input, started_network;
        _Atomic bool stop;               /* a source no longer waits for more data */
        _Atomic bool ended;              /* the input has filled its last slot */
        _Atomic uint64_t packets, bytes; /* sent so far; bytes of payload */
        _Atomic uint64_t last_ns;        /* when the last packet left */
        int input_error, network_error;  /* negative errno */
        /* Bytes at the end of the source that do not fill a frame, and are not sent. */
        uint64_t cut_bytes;
        uint64_t damaged, first_damaged; /* number of frames whose header is damaged; the first one */
        uint64_t begin_ns;
        struct timing between, processing;
        struct intervals intervals;
        uint64_t network_used_ns, input_used_ns; /* processor time */
};

/* Returns negative errno; then the threads are not running, but send_threads_fini() must still be called. */
int send_threads_start(struct send_threads *t);
/* Permits the packets below `until`. */
void send_threads_permit(struct send_threads *t, uint64_t until);
/* Ends both threads at once: packets in the ring are not sent. */
void send_threads_abort(struct send_threads *t);
/* Waits for both threads. */
void send_threads_join(struct send_threads *t);
/* Ends the threads and frees the ring, but not the source and endpoint. Accepts a zeroed structure. */
void send_threads_fini(struct send_threads *t);

/* Passes n packets in the slots from `slot` on to the kernel, the first one to leave at first_ns; adds their
 * data to *ret_bytes. Returns how many the kernel accepted, or negative errno. The network thread must not
 * run. */
int send_threads_pass(struct send_threads *t, uint64_t slot, uint32_t n, uint64_t first_ns,
                      uint64_t *ret_bytes);

/* send_again.c: packets that the receiver misses, after the threads have been joined. */
struct send_again {
        struct packet_range ranges[GAPS_REQUEST_RANGES_MAX];
        size_t n, at;     /* ranges, and the first one that is not sent */
        uint64_t packets; /* sent again so far */
        uint64_t requested;
};

/* Begins to send the packets in the message. -EBADMSG: it is invalid; -EDQUOT: it exceeds what any receiver
 * needs. */
int send_again_begin(struct send_again *a, struct send_threads *t, const json_t *message);
/* Makes the digests of packets that a copy has, as the message requests. `compared`: packets below it were
 * compared before. Returns the answer, which has a reason if that is impossible. */
json_t *send_again_digests(const struct stream_offer *o, struct stream_source *source, const json_t *message,
                           uint64_t *compared);
/* Sends the packets that are due. Returns 1 when all have left, 0 if this function must be called again at
 * *ret_ns, or negative errno. */
int send_again_turn(struct send_again *a, struct send_threads *t, uint64_t *ret_ns);

/* send_setup.c: preparations of a sender before it connects. */

/* Opens the source, and sets the members of the offer and of `threads` that depend on it. This function and
 * the next one log errors, and return the exit status. The caller must release source and endpoint in any
 * case. */
int send_setup_source(const struct stream_send_config *c, struct stream_source **ret,
                      struct stream_offer *offer, struct send_threads *threads);
/* Opens the socket to a receiver, from the address known to the receiver (its port is not used; NULL: the
 * receiver will see the address that routing chooses), and sets the other members. */
int send_setup_path(const struct stream_send_config *c, const struct net_address *local,
                    const struct net_address *to, struct endpoint **ret, struct stream_offer *offer,
                    struct send_threads *threads);
/* Connects the socket to another port of the receiver. Returns negative errno. */
int send_setup_aim(struct endpoint *e, const struct net_address *to, uint16_t port);
