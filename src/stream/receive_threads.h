/* The two threads of a receiver: one puts packets into their places in the ring, the other writes them out in
 * order. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "net/endpoint.h"
#include "net/injected_faults.h"
#include "rules/account.h"
#include "rules/timing.h"
#include "rules/vdif_fill.h"
#include "stream/raw.h"
#include "stream/rules/setup.h"
#include "stream/rules/timing.h"
#include "stream/slot_ring.h"

/* sink.c: where the data of a received stream go: a file, standard output, a check of the pattern, or
 * nowhere. One thread at a time. */
struct sink;

/* `text` as in struct stream_receive_config. A file that exists is refused unless `overwrite`. */
int sink_open(struct sink **ret, const char *text, bool overwrite, struct error *e);
/* The data pass by the page cache (O_DIRECT). -EINVAL, -EOPNOTSUPP: not into this output. */
int sink_set_direct(struct sink *s, struct error *e);
/* Removes a file that it made and wrote nothing to. */
struct sink *sink_free(struct sink *s);

bool sink_is_pattern(const struct sink *s);
/* The pattern to expect. */
void sink_set_key(struct sink *s, uint64_t key);
/* Takes the next n bytes. `missing`: they stand for data that were lost. Returns negative errno, or
 * -ECANCELED if *stop was set while a pipe took nothing. */
int sink_put(struct sink *s, const void *bytes, size_t n, bool missing, const _Atomic bool *stop);
/* Ends the output, and makes it durable. */
int sink_finish(struct sink *s, struct error *e);
/* Explains a failure of sink_put(). */
int sink_explain(const struct sink *s, int code, struct error *e);

uint64_t sink_corrupt(const struct sink *s); /* puts that differ from the pattern */
uint64_t sink_bytes(const struct sink *s);   /* that the kernel has */

/* Bit of a slot's size: its packet is missing. */
#define SLOT_MISSING (UINT32_C(1) << 31)
#define PACKETS_UNKNOWN UINT64_MAX

/* The caller fills the first part, calls receive_threads_start(), and reads the rest; all but the atomic
 * members after receive_threads_join(). */
struct receive_threads {
        const struct stream_options *options;
        struct endpoint *endpoint;
        struct faults *faults; /* or NULL */
        struct sink *sink;
        struct net_address from; /* the only sender */
        struct packet_rule rule;
        const struct vdif_plan *plan; /* VDIF */
        uint32_t window_packets;
        uint32_t drop_packets;  /* that one drop of the socket may be, at most */
        bool reports;           /* the sender follows this end */
        struct raw_receive raw; /* raw: then there is no output, and the ring stays empty */

        struct slot_ring ring;
        struct account account; /* the network thread's */
        struct vdif_fill fill;  /* VDIF; likewise */
        int done_fd;           /* readable when a thread has ended or advanced: call receive_threads_look() */
        _Atomic uint64_t seen; /* account.end */
        /* The sum of both ends of receive_threads_progress() that is worth a report; whether one is due. */
        _Atomic uint64_t report_at;
        _Atomic bool report_due;
        pthread_t network, output;
        bool started_network, started_output;
        /* Set by receive_threads_end(): packets and bytes of the whole stream. */
        _Atomic uint64_t total_packets, total_bytes;
        _Atomic bool ending, aborted;
        _Atomic bool decided;                  /* nothing more comes into the ring */
        _Atomic unsigned running;              /* threads */
        _Atomic uint64_t packets, bytes, lost; /* for the live line and statistics */
        uint64_t last;     /* the packet that is shorter, and so the last one; PACKETS_UNKNOWN: none yet */
        uint64_t begin_ns; /* the sender sends nothing before */
        uint64_t most;     /* packets that can have been sent; a higher sequence number is foreign */
        uint64_t taken_bytes;
        uint64_t foreign, short_ones; /* datagrams */
        /* Drops of the socket that no packet has followed yet, and packets that were lost by drops. */
        uint64_t drops_pending, socket_lost;
        /* After the output has failed, the network thread looks at packets, but does not take them: `taken`
         * is the account at that moment. */
        bool takes_none;
        struct account taken;
        bool cut_short;             /* the network thread ended before it knew what became of each packet */
        uint64_t first_ns, last_ns; /* arrival of packets of this stream; 0: none */
        uint64_t last_new_ns;       /* when one that had not arrived before was in its place */
        uint64_t last_arrived_ns;
        uint64_t elapsed_ns;  /* from the first arrival to the last one */
        uint64_t gap, gap_ns; /* the missing packet that all wait for, and since when */
        int network_error;    /* negative errno */
        struct error output_error;
        struct timing between, processing;
        struct intervals intervals;
        struct sleep_interval sleep_interval;
        uint64_t network_used_ns, output_used_ns; /* processor time */
};

enum receive_threads_state {
        RECEIVE_THREADS_RUN,
        RECEIVE_THREADS_FAILED, /* the output failed, see `output_error`; the network thread still counts */
        RECEIVE_THREADS_ENDED,
};

/* Negative errno; then the threads are not running, and receive_threads_fini() is to be called all the same.
 */
int receive_threads_start(struct receive_threads *t);
/* The most packets that the sender can have sent up to now, lost ones included: at the speed of the fastest
 * link, and a ring more. Each missing one costs a packet of output, so more are not believed. */
uint64_t receive_threads_most(const struct receive_threads *t, uint64_t now_ns);
/* Packets that may be on their way, so that the socket's buffer holds them for certain. */
uint64_t receive_threads_window(const struct receive_threads *t);
struct receive_progress {
        uint64_t seen; /* every packet below has arrived, or one after it */
        uint64_t room; /* packets below have a place in the ring */
};
/* How far the threads are. True: the sender should learn of it. Call it for the first report, and when
 * done_fd is readable. */
bool receive_threads_progress(struct receive_threads *t, struct receive_progress *ret);
/* No more than so many packets and bytes come (unknown: UINT64_MAX); the threads end when all have arrived,
 * or the network is silent. */
void receive_threads_end(struct receive_threads *t, uint64_t packets, uint64_t bytes);
/* The state of the threads, once done_fd is readable. */
enum receive_threads_state receive_threads_look(struct receive_threads *t);
/* The account of what went to the output, up to its failure if it failed. After receive_threads_join(). */
const struct account *receive_threads_taken(const struct receive_threads *t);
/* Packets that are not in the output: of the sender's total if it is known, else those given up. After
 * receive_threads_join(). */
uint64_t receive_threads_missing(const struct receive_threads *t);
/* Packets that the receiver did not take because it had failed, or was ended at once. After
 * receive_threads_join(). */
uint64_t receive_threads_untaken(const struct receive_threads *t);
/* Both threads end at once. */
void receive_threads_abort(struct receive_threads *t);
void receive_threads_join(struct receive_threads *t);
/* Ends the threads and frees the ring, but not what the caller provided. Accepts a zeroed structure. */
void receive_threads_fini(struct receive_threads *t);
