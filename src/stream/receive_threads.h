/* The two threads of a receiver: one stores packets in their places in the ring, the other writes them out in
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
#include "rules/gaps.h"
#include "rules/timing.h"
#include "rules/vdif_fill.h"
#include "stream/raw.h"
#include "stream/rules/setup.h"
#include "stream/rules/timing.h"
#include "stream/slot_ring.h"

/* sink.c: the destination of a received stream: a file, standard output, a check of the pattern, or none. One
 * thread at a time. */
struct sink;

/* `text` as in struct stream_receive_config. -EEXIST: the file exists, and is not to be
 * overwritten. -EBUSY: another receiver writes it. Other errors as for open(2). */
int sink_open(struct sink **ret, const char *text, bool overwrite, struct error *e);
/* As sink_open(), of files for the scans of a recording: sink_next() opens the first one. */
int sink_open_scans(struct sink **ret, const char *text, bool overwrite, struct error *e);
/* Ends the present file, and begins one whose name has this Unix time: "copy-20261130T120000.vdif" for the
 * text "copy.vdif". An ended file becomes durable when the file after it ends. If another file has the name
 * of a later scan, the scan gets a name with "-2" and so on after the time. */
int sink_next(struct sink *s, int64_t unix_s, struct error *e);
/* Prepares to continue the file, which sink_open() has opened with `overwrite`, and returns its size.
 * -EINVAL: it is not a file. */
int sink_resume(struct sink *s, uint64_t *ret_bytes, struct error *e);
/* After sink_resume(): reads bytes of the file, and keeps its first bytes. Both return negative errno. */
int sink_read(const struct sink *s, uint64_t offset, void *bytes, size_t n);
int sink_keep(struct sink *s, uint64_t bytes);
/* The data bypass the page cache (O_DIRECT). -EINVAL, -EOPNOTSUPP: this output does not support it. */
int sink_set_direct(struct sink *s, struct error *e);
/* Also removes the file if the sink created it and wrote nothing to it. */
struct sink *sink_free(struct sink *s);

bool sink_is_pattern(const struct sink *s);
/* Sets the key of the expected pattern. */
void sink_set_key(struct sink *s, uint64_t key);
/* Writes the next n bytes. `missing`: they replace data that were lost. Returns negative errno; -ECANCELED:
 * *stop was set while a pipe was full. */
int sink_put(struct sink *s, const void *bytes, size_t n, bool missing, const _Atomic bool *stop);
/* Ends the output, and makes it durable. */
int sink_finish(struct sink *s, struct error *e);
/* Whether data may be written again at any place. */
bool sink_can_repair(const struct sink *s);
/* Writes n bytes again, after sink_finish() and sink_begin_repair(); then sink_finish() is due again. Both
 * return negative errno. */
int sink_begin_repair(struct sink *s);
int sink_repair(struct sink *s, uint64_t offset, const void *bytes, size_t n);
/* Explains a failure of sink_put() or sink_repair(). */
int sink_explain(const struct sink *s, int code, struct error *e);

uint64_t sink_corrupt(const struct sink *s); /* writes that differ from the pattern */
uint64_t sink_bytes(const struct sink *s);   /* bytes that the kernel has accepted, without kept ones */
uint64_t sink_files(const struct sink *s);   /* number of files that sink_next() began */
uint64_t sink_renamed(const struct sink *s); /* number of these whose names other files had */

/* Bit of a slot's size that marks its packet as missing. */
#define SLOT_MISSING (UINT32_C(1) << 31)
#define PACKETS_UNKNOWN UINT64_MAX

/* The caller sets the first part, calls receive_threads_start(), and reads the remaining members. It may read
 * members that are not atomic only after receive_threads_join(). */
struct receive_threads {
        const struct stream_options *options;
        struct endpoint *endpoint;
        struct faults *faults; /* NULL: none */
        struct sink *sink;
        struct net_address from; /* the only sender */
        struct packet_rule rule;
        const struct vdif_plan *plan; /* VDIF */
        uint32_t window_packets;
        uint32_t drop_packets; /* maximum number of packets in one drop of the socket */
        uint64_t first;        /* number of the first packet: the output has the packets before it */
        uint64_t holes;        /* number of these that were missing in the output */
        bool reports;          /* the sender follows the progress of this end */
        bool repairs;          /* the sender sends missing packets again; see receive_threads_repair() */
        /* The sender announces nothing: the stream ends where receive_threads_end() is called, or with this
         * number of packets, or with the packet that completes this number of bytes (0: no limit). */
        bool without_control;
        uint64_t limit_packets, limit_bytes;
        struct raw_receive raw; /* raw streams: there is no output, and the ring stays empty */

        struct slot_ring ring;
        struct account account; /* used by the network thread */
        struct vdif_fill fill;  /* VDIF; used by the network thread */
        struct vdif_scan scan;  /* VDIF; used by the output thread */
        /* VDIF: whether any part, and the first part, of the frame at account.base is missing; number of
         * frames that are marked invalid for this reason. */
        bool frame_incomplete, frame_without_header;
        uint64_t invalid_frames;
        struct gaps gaps;      /* if `repairs` is set; used by the network thread */
        int done_fd;           /* readable if a thread has ended or advanced: call receive_threads_look() */
        _Atomic uint64_t seen; /* value of account.end */
        /* report_at: the progress (sum of both ends of receive_threads_progress()) at which a report is due;
         * report_due: whether a report is due. */
        _Atomic uint64_t report_at;
        _Atomic bool report_due;
        pthread_t network, output;
        bool started_network, started_output;
        /* Set by receive_threads_end(): packets and bytes of the complete stream. */
        _Atomic uint64_t total_packets, total_bytes;
        _Atomic bool ending, aborted;
        _Atomic bool decided;                  /* no more packets enter the ring */
        _Atomic unsigned running;              /* number of threads */
        _Atomic uint64_t packets, bytes, lost; /* for the live line and statistics */
        /* Number of the packet that is shorter than the others, and therefore the last one; PACKETS_UNKNOWN:
         * none yet. */
        uint64_t last;
        uint64_t begin_ns; /* the sender sends nothing before this time */
        uint64_t most;     /* packets that the sender can have sent; a higher sequence number is foreign */
        uint64_t taken_bytes;
        uint64_t foreign, short_ones; /* datagrams */
        /* Without control: datagrams of others, and those of the sender that are not of its stream; for how
         * long nothing had arrived when the socket was last read; missing frames without sequence numbers;
         * while ending, a number of packets that ends the stream although packets still come. */
        uint64_t others, end_at;
        _Atomic uint64_t unfit, quiet_ns;
        struct vdif_missing missing;
        /* Number of drops of the socket since the last packet, and number of packets that these drops
         * lost. */
        uint64_t drops_pending, socket_lost;
        /* If the output has failed, the network thread counts packets without storing them; `taken` is the
         * account at the time of the failure. */
        bool takes_none;
        struct account taken;
        bool cut_short;             /* the network thread ended before all packets were decided */
        uint64_t asked_ns;          /* time of the last look at the socket */
        uint64_t first_ns, last_ns; /* arrival times of packets of this stream; 0: none */
        uint64_t last_new_ns; /* time at which the last packet arrived that had not been received before */
        struct stamps stamps;
        uint64_t read_ns;     /* UTC: when the packets of the last look were read */
        uint64_t elapsed_ns;  /* from the first arrival to the last one */
        uint64_t gap, gap_ns; /* the first missing packet, and since when it has been missing */
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

/* Negative errno: the threads are not running, but receive_threads_fini() must still be called. */
int receive_threads_start(struct receive_threads *t);
/* Maximum number of packets that the sender can have sent by now, including lost packets: what the fastest
 * link carries, and one ring more. A higher number is not accepted, because each missing packet adds a packet
 * to the output. */
uint64_t receive_threads_most(const struct receive_threads *t, uint64_t now_ns);
/* Maximum number of packets in flight that the socket's buffer is sure to hold. */
uint64_t receive_threads_window(const struct receive_threads *t);
struct receive_progress {
        uint64_t seen; /* every packet below has arrived or been overtaken */
        uint64_t room; /* packets below have a place in the ring */
};
/* Returns the progress of the threads. True: a report to the sender is due. Call this for the first report,
 * and whenever done_fd is readable. */
bool receive_threads_progress(struct receive_threads *t, struct receive_progress *ret);
/* Sets the final number of packets and bytes (unknown: UINT64_MAX, always without control). The threads end
 * when all packets have arrived, or no more arrive. */
void receive_threads_end(struct receive_threads *t, uint64_t packets, uint64_t bytes);
/* Returns the state of the threads. Call this when done_fd is readable. */
enum receive_threads_state receive_threads_look(struct receive_threads *t);
/* The account of the packets that were passed to the output; if the output failed, until then. Call this
 * after receive_threads_join(). */
const struct account *receive_threads_taken(const struct receive_threads *t);
/* Number of packets missing in the output: compared with the sender's total if that is known, otherwise the
 * packets that were given up. Call this after receive_threads_join(). */
uint64_t receive_threads_missing(const struct receive_threads *t);
/* Number of packets that the receiver did not store because it had failed or was aborted. Call this after
 * receive_threads_join(). */
uint64_t receive_threads_untaken(const struct receive_threads *t);
/* After receive_threads_join(), if the output did not fail: receives packets that the sender sends again, and
 * writes those in `gaps`. Returns the number of datagrams, or negative errno; then output_error explains it
 * if the output failed. */
int receive_threads_repair(struct receive_threads *t);
/* After the last packet of a repair: makes the output durable in a thread, because a disk may take long.
 * Returns negative errno. When receive_threads_look() returns RECEIVE_THREADS_ENDED, call
 * receive_threads_join() again. */
int receive_threads_finish(struct receive_threads *t);
/* Ends both threads at once. */
void receive_threads_abort(struct receive_threads *t);
void receive_threads_join(struct receive_threads *t);
/* Ends the threads and frees the ring, but not the members set by the caller. Accepts a zeroed structure. */
void receive_threads_fini(struct receive_threads *t);

/* receive_setup.c: preparations of a receiver. */

/* Opens output, socket and faults, which the caller must release in any case; *ret_copy is the size of a file
 * to resume. Logs errors, and returns the exit status. */
int receive_setup_open(const struct stream_receive_config *c, struct receive_threads *t, uint64_t *ret_copy);
/* Sets the members of `t` that depend on the offer, which must exist as long as `t`. `local` is the address
 * that the sender reaches; *ret_port is the port for its packets. Returns negative errno. */
int receive_setup_threads(const struct stream_receive_config *c, const struct stream_offer *o,
                          const struct net_address *local, struct receive_threads *t, uint16_t *ret_port);

/* Without control: whether the stream begins later than the packet of the offer, which is the first one in
 * the socket. *seen_s is the time of the previous such packet, initially 0. If the time is not near that, the
 * frame after this one must confirm it; this function waits for that frame for at most a second. */
bool receive_setup_is_early(const struct stream_receive_config *c, const struct stream_offer *o,
                            const struct receive_threads *t, int64_t *seen_s);
/* Whether the packet with this number begins a file of the scans; if so, *ret_s is its time. */
bool receive_threads_begins_file(struct receive_threads *t, uint64_t sequence, int64_t *ret_s);
/* Output thread: number of packets to write at once, from `done` on and below `filled`, and at most `most`. A
 * frame that needs the next one to show whether it begins a scan waits for it. */
uint64_t receive_threads_ready(struct receive_threads *t, uint64_t done, uint64_t filled, uint64_t most);
/* Begins a file with a frame of this time: the first one before the threads start. Returns negative errno;
 * then output_error explains it. */
int receive_threads_begin_file(struct receive_threads *t, int64_t now_s);

/* The comparison of a copy with the sender's file, before the threads start. */
struct resume {
        uint64_t packets; /* whole packets of the copy, and of VDIF whole frames */
        uint64_t requested, compared;
};

/* `bytes` is the size of the copy. False: it has nothing to compare. */
bool resume_begin(struct resume *u, const struct stream_offer *o, uint64_t bytes);
/* Returns the next request, or NULL: answers are due first. */
json_t *resume_request(struct resume *u, const struct stream_offer *o);
/* Compares the next packets with the sender's digests. Packets that were lost become gaps. Returns 1 if this
 * was the last one, and `t` begins after the copy; 0: request more. -EBADMSG: this is not an answer; -ESTALE:
 * packet number `compared` is not of the sender's file. */
int resume_compare(struct resume *u, const struct stream_offer *o, struct receive_threads *t,
                   const json_t *digests);
