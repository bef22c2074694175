/* What the data paths share: the sender, and the memory between sender, receiver and the process that runs
 * them. Private to src/stream/paths. */
#pragma once

#include <stdatomic.h>
#include <sys/types.h>

#include "protocol/chunk.h"
#include "stream/paths.h"

/* Header and directory with one entry. */
#define PATH_HEADER_MAX_BYTES (FRAGMENTS_HEADER_BYTES + CHUNK_ENTRY_MAX_BYTES)
/* Packets that a path may pass to the kernel in one go, and in the check also those under way. Their skbs of
 * at most two pages fit into the default receive buffer (net.core.rmem_default). */
#define PATH_BATCH_MAX 32u
/* A batch of several packets has at most so many bytes. */
#define PATH_BATCH_BYTES 65536u

/* In memory that all processes of a run share. The sender writes its part, the receiver its own. */
struct path_shared {
        /* The sender is ready, may begin, and has ended. */
        _Atomic enum { PATH_STARTS, PATH_READY, PATH_GO, PATH_SENT } state;
        _Atomic bool stop; /* to the receiver: nothing more will come */
        /* Of the receiver. */
        _Atomic uint64_t received_packets;
        uint64_t received_bytes, checked_bytes;
        bool intact;
        int receive_error;
        /* Of the sender, valid in PATH_SENT. */
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
        uint64_t deadline_ns;       /* take no packet later */
        struct path_shared *shared; /* the receiver's progress, to wait for; NULL: do not wait */

        const char *what;          /* the call that failed */
        uint64_t packets, bytes;   /* taken */
        uint64_t notified, copied; /* zero-copy notifications */
        uint32_t until_look;
        bool ended;
};

/* path_packets.c. */
/* Takes at most `most` packets (at most PATH_BATCH_MAX) for the path to send; fewer at the end of the file or
 * if their bytes are many. 0: the path shall end. */
size_t path_take(struct path_sender *s, struct path_packet *ret, size_t most);
/* The same without packets, for a stream without headers: takes at most `most` bytes. */
size_t path_take_bytes(struct path_sender *s, size_t most, uint64_t *ret_offset);
/* Writes the header of a packet; returns its size, equal for all packets of the same length. */
size_t path_header_encode(const struct path_packet *p, uint8_t to[static PATH_HEADER_MAX_BYTES]);
uint64_t path_cookie(void);
/* The packet that a header announces. False: it is none of path_header_encode(). */
bool path_header_decode(struct chunk_reader *r, struct path_packet *ret);
/* Sets `what` and returns the negative errno. */
int path_failed(struct path_sender *s, const char *what);
/* Returns 0 if a call that must move `size` bytes did so; else a negative errno. */
int path_moved(struct path_sender *s, const char *what, ssize_t n, size_t size);

/* path_check.c. */
struct path_check {
        bool headers;
        uint32_t payload_bytes;
        uint64_t packets, bytes; /* as they should be, in order */
        bool broken;             /* something else came */
        uint32_t left;           /* bytes of the current packet that are still to come; streams only */
};

void path_check_datagram(struct path_check *c, const uint8_t *bytes, size_t n);
/* Returns how many bytes it has used; the rest comes again, with more. */
size_t path_check_stream(struct path_check *c, const uint8_t *bytes, size_t n);

/* path_file.c: the descriptor for a path, borrowed; negative errno if the file system refuses O_DIRECT. */
int path_file_descriptor(const struct path_file *f, enum path_source source, enum path_reads reads);
uint64_t path_file_bytes(const struct path_file *f);
/* Removes the file from the page cache, or brings it there; and the share of it that is there. */
void path_file_empty(const struct path_file *f);
int path_file_warm(const struct path_file *f);
double path_file_cached_share(const struct path_file *f, enum path_source source);

/* path_receive.c: receives until the end, and checks every byte or discards all. */
void path_receive(struct path_shared *shared, int socket, enum path_wire wire, struct path_check *check);

/* path_calls.c: follows a child process, which calls path_calls_mark() before and after what counts and ends
 * then. `begin` lets it begin. Returns negative errno if the process cannot be traced; it runs on. */
int path_calls_count(pid_t pid, void (*begin)(void *ctx), void *ctx, struct path_result *ret);
void path_calls_mark(void);
