/* Shared by the data paths: the sender, the memory between sender, receiver and the process that runs them,
 * and the functions of each file. Private to src/stream/paths. */
#pragma once

#include <stdatomic.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "protocol/chunk.h"
#include "stream/paths.h"

/* A header, and a directory with one entry. */
#define PATH_HEADER_MAX_BYTES (FRAGMENTS_HEADER_BYTES + CHUNK_ENTRY_MAX_BYTES)
/* Maximum number of packets in one call to the kernel; in the check, also of packets in flight. Their skbs of
 * at most two pages fit into the default receive buffer (net.core.rmem_default). */
#define PATH_BATCH_MAX 32u
/* Maximum size of a batch of several packets. */
#define PATH_BATCH_BYTES 65536u

/* In memory that all processes of a run share. The sender writes its part, and the receiver writes its
 * own. */
struct path_shared {
        /* The last three states: the sender is ready, may begin, has ended. */
        _Atomic enum { PATH_STARTS, PATH_READY, PATH_GO, PATH_SENT } state;
        _Atomic bool stop; /* informs the receiver that no more data will come */
        /* Written by the receiver. */
        _Atomic uint64_t received_packets;
        uint64_t received_bytes, checked_bytes;
        bool intact;
        int receive_error;
        /* Written by the sender, valid in PATH_SENT. */
        int error; /* negative errno of `what` */
        const char *what;
        double seconds, user_seconds, system_seconds;
        uint64_t bytes, packets, notified, copied;
};

struct path_packet {
        uint64_t number, offset;
        uint32_t length;
};

struct path_sender {
        /* Set by the caller. */
        const struct path *path;
        enum path_wire wire;
        bool direct;                /* `file` was opened with O_DIRECT */
        int file, socket;           /* borrowed */
        uint64_t file_bytes;        /* of the whole file */
        uint64_t size_bytes;        /* to send */
        uint32_t payload_bytes;     /* of a packet */
        uint64_t deadline_ns;       /* after this time, pop only the first packet */
        struct path_shared *shared; /* the receiver's progress, to wait for; NULL: do not wait */

        const char *what;          /* name of the call that failed */
        uint64_t packets, bytes;   /* popped so far */
        uint64_t notified, copied; /* zero-copy notifications */
        uint32_t until_look;
        bool ended;
};

/* path_packets.c. */
/* Pops at most `most` packets (at most PATH_BATCH_MAX) for the path to send; fewer at the end of the file, or
 * if they are too large for one batch. 0: the path must end. */
size_t path_pop(struct path_sender *s, struct path_packet *ret, size_t most);
/* Like path_pop(), for a stream without headers: pops at most `most` bytes. */
size_t path_pop_bytes(struct path_sender *s, size_t most, uint64_t *ret_offset);
/* Writes the header of a packet; returns its size, equal for all packets of the same length. */
size_t path_header_encode(const struct path_packet *p, uint8_t to[static PATH_HEADER_MAX_BYTES]);
uint64_t path_cookie(void);
/* Decodes the packet that a header announces. False: path_header_encode() never writes a header like this. */
bool path_header_decode(struct chunk_reader *r, struct path_packet *ret);
/* Sets `what` and returns the negative errno. */
int path_failed(struct path_sender *s, const char *what);
/* Returns 0 if a call that must move `size` bytes moved all of them; otherwise, a negative errno. */
int path_moved(struct path_sender *s, const char *what, ssize_t n, size_t size);

/* Compares received with sent data. */
struct path_check {
        bool headers;
        uint32_t payload_bytes;
        uint64_t packets, bytes; /* intact and in order */
        bool broken;             /* other data have arrived */
        uint32_t left;           /* bytes of the current packet that are still missing; streams only */
};

void path_check_datagram(struct path_check *c, const uint8_t *bytes, size_t n);
/* Returns how many bytes it consumed. The caller passes the rest again, followed by new bytes. */
size_t path_check_stream(struct path_check *c, const uint8_t *bytes, size_t n);

/* path_ends.c: the descriptor for a path, borrowed; negative errno if the file system refuses O_DIRECT. */
int path_file_descriptor(const struct path_file *f, enum path_source source, enum path_reads reads);
uint64_t path_file_bytes(const struct path_file *f);
/* These functions remove the file from the page cache, read it into the cache, and return the share of it
 * that is in the cache. */
void path_file_empty(const struct path_file *f);
int path_file_warm(const struct path_file *f);
double path_file_cached_share(const struct path_file *f, enum path_source source);

/* Receives until the end; checks every byte, or discards all. */
void path_receive(struct path_shared *shared, int socket, enum path_wire wire, struct path_check *check);

/* The two ends of a connection over 127.0.0.1. */
struct path_link {
        int sender, receiver; /* -1: closed */
};

/* Both sockets are connected on return. Negative errno. */
int path_link_open(struct path_link *l, enum path_wire wire);
void path_link_close(struct path_link *l);

/* The mapped file, batches of packets from it, and calls that several paths make. */
/* Maps the whole file; NULL: this failed, with errno and `what`. */
const uint8_t *path_map(struct path_sender *s);
/* Unmaps it; NULL is allowed. Returns r. */
int path_unmap(const struct path_sender *s, const uint8_t *map, int r);
/* Sends the rest of the parts after a call that returned n. On a stream, a call that waits for room returns
 * early if a signal arrives, also SIGSTOP or SIGTSTP. Changes the parts. Negative errno. */
int path_sent(struct path_sender *s, const char *what, ssize_t n, struct iovec *iov, size_t n_iov);
/* Sends bytes in one call, or in more calls if signals arrive. */
int path_send_bytes(struct path_sender *s, const uint8_t *bytes, size_t n, int flags);
int path_set_option(struct path_sender *s, int level, int option, int value, const char *what);

/* If a header crossed a page boundary, it would be two uncopied parts of a super-packet, and the number of
 * parts is limited. */
#define PATH_HEADER_PLACE_BYTES 64u

/* Packets and their headers: iov[2k] is the header of packet k, and iov[2k + 1] its payload. */
struct path_batch {
        struct path_packet packets[PATH_BATCH_MAX];
        _Alignas(PATH_HEADER_PLACE_BYTES) uint8_t headers[PATH_BATCH_MAX][PATH_HEADER_PLACE_BYTES];
        struct iovec iov[2 * PATH_BATCH_MAX];
        size_t n, bytes;
};

/* Pops at most `most` packets, with payload from `map` (NULL: the caller sets it); returns their number. */
size_t path_batch_pop(struct path_batch *b, struct path_sender *s, const uint8_t *map, size_t most);

/* A pipe between the file and the socket. */
/* Opens a pipe with room for a packet of any size. Call path_pipe_close() even after a failure. */
int path_pipe_open(struct path_sender *s, int pipe[static 2]);
void path_pipe_close(const int pipe[static 2]);
/* Writes the header into the pipe, if the path sends headers. */
int path_pipe_header(struct path_sender *s, int pipe, const struct path_packet *p);
/* Moves a packet, with its header, from the pipe to the socket. */
int path_pipe_send(struct path_sender *s, int pipe, const struct path_packet *p);

/* The send functions of all paths. */
/* These call the path's `send_one` for each packet until it fails: with the payload in a buffer of the
 * program, in the mapped file, or with NULL. */
int path_read_each(struct path_sender *s); /* E1, E4, E5 */
int path_map_each(struct path_sender *s);  /* E2, E6, E7 */
int path_file_each(struct path_sender *s); /* E8 */
int path_send_alone(struct path_sender *s, const struct path_packet *p, const uint8_t *payload);
int path_send_at_once(struct path_sender *s, const struct path_packet *p, const uint8_t *payload);
int path_send_corked(struct path_sender *s, const struct path_packet *p, const uint8_t *payload);
int path_send_gathered(struct path_sender *s, const struct path_packet *p, const uint8_t *payload);
int path_send_more(struct path_sender *s, const struct path_packet *p, const uint8_t *payload);
int path_map_batch(struct path_sender *s);   /* E7 */
int path_file_stream(struct path_sender *s); /* E3 */
int path_file_splice(struct path_sender *s); /* E3, E12 */
/* path_zerocopy.c: from the mapped file with MSG_ZEROCOPY, or with vmsplice(). */
int path_zerocopy_more(struct path_sender *s);    /* E9 */
int path_zerocopy_sendmsg(struct path_sender *s); /* E10 */
int path_map_vmsplice(struct path_sender *s);
int path_zerocopy_batch(struct path_sender *s); /* E11 */
/* Paths that send batches of linked requests. */
int path_uring_map(struct path_sender *s);    /* E11 */
int path_uring_splice(struct path_sender *s); /* E12 */
int path_uring_read(struct path_sender *s);   /* E13 */

/* A device that discards every packet. */
/* Moves the calling thread into a new network namespace, which ends with the process, and makes a UDP socket
 * there. The socket is connected to an address behind a device that discards every packet. Returns the
 * socket, or a negative errno with the call that the kernel refused. Requires CAP_SYS_ADMIN. */
int path_sink_open(const char **ret_what);
