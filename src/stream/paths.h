/* Data paths: the ways to move a file to a socket, from read() and send() to io_uring (rows E1 to E13 of the
 * published comparison of download and streaming). Download sends the file unchanged; streaming puts a header
 * before each packet, here the header of evb's data messages (protocol/chunk.h). A run sends a file through
 * one path, checks the received data, counts the system calls, and measures.  The bytes of the file are a
 * pattern (base/pattern.h), so that a receiver can check all of them. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "sys/machine_watch.h"

#define PATH_PAYLOAD_MAX_BYTES 60000u
/* O_DIRECT requires that the address and size of a payload are multiples of this. */
#define PATH_DIRECT_BYTES 512u
/* Maximum number of system calls that a result lists by name. */
#define PATH_CALLS_NAMED 8u

/* PATH_SINK: UDP to a device that discards every packet, so that no receiver disturbs the measurement. Its
 * check uses PATH_UDP. Requires CAP_SYS_ADMIN. */
enum path_wire { PATH_UDP, PATH_TCP, PATH_SINK, PATH_WIRES };
enum path_source { PATH_CACHE, PATH_DISK, PATH_SOURCES };

/* How a path reads from disk. */
enum path_reads {
        PATH_DIRECT,  /* with O_DIRECT, past the page cache */
        PATH_EMPTIED, /* through the page cache, from which the file was removed first, because mmap() has no
                         O_DIRECT */
};

struct path_sender;
struct path_packet;

/* One form of a row. If a row has several forms, one is the published form, and the others are for today's
 * kernel. */
struct path {
        const char *row, *form, *title;
        /* From the publication, for n packets: "2n". */
        const char *published_copies, *published_calls;
        /* Number of copies of the payload that the sending path makes, by wire, starting from the page cache
         * or (PATH_DISK) from the disk's transfer. These numbers are not measured; `reason` explains them. */
        double copies[PATH_SOURCES][PATH_WIRES];
        const char *reason;
        bool headers;
        enum path_reads reads;
        /* Sends packets until path_pop() returns 0. Returns negative errno, and sets `what`. */
        int (*send)(struct path_sender *s);
        /* Sends one packet. Payload NULL: sends the pages of the file, without a buffer of the program. NULL:
         * `send` needs none. */
        int (*send_one)(struct path_sender *s, const struct path_packet *p, const uint8_t *payload);
};

size_t path_count(void);
/* i < path_count(); in the order of the rows. */
const struct path *path_at(size_t i);
/* The form with this number, from 0, of a row (1 to 13); NULL: no such form. */
const struct path *path_find(unsigned row, unsigned form);
const char *path_wire_name(enum path_wire w);
const char *path_source_name(enum path_source s);

/* The file to send. Unless the user named it, the file has no name, so nothing is left of it, however the
 * process ends. */
struct path_file;

/* Makes the file in a directory, once for the page cache and once for the disk, as `want` requests. The data
 * are on disk on return. `size_bytes` is a multiple of 4096. Fails if the disk has too little free space;
 * -EINTR: a signal of signals_hold() is pending. If `place` is a file rather than a directory, this file is
 * used for both, and is filled if it is empty; a file of another size is refused. */
int path_file_new(struct path_file **ret, const char *place, uint64_t size_bytes,
                  const bool want[static PATH_SOURCES], struct error *e);
struct path_file *path_file_free(struct path_file *f);

struct path_run {
        const struct path *path;
        enum path_wire wire;
        enum path_source source;
        uint32_t payload_bytes; /* of a packet, at most PATH_PAYLOAD_MAX_BYTES; PATH_DISK: a multiple of
                                   PATH_DIRECT_BYTES */
        double seconds;         /* the measurement ends after this time, or earlier at the end of the file */
        /* Number of bytes that are sent first, checked and counted; PATH_DISK: a multiple of
         * PATH_DIRECT_BYTES. */
        uint64_t check_bytes;
};

struct path_result {
        /* The call that the kernel refused, with its errno; NULL: none. If this is set, the other members are
         * not. */
        const char *refused;
        int refusal;
        uint32_t header_bytes;
        /* Result of the check: bytes that arrived intact and in order, and bytes sent. */
        uint64_t checked_bytes, sent_bytes;
        bool intact;
        /* System calls of the sender during the check. */
        bool counted;
        int not_counted; /* negative errno that explains why the calls were not counted */
        uint64_t calls, counted_packets;
        struct path_call {
                int number; /* number of the call, as for syscall(2) */
                uint64_t n;
        } by_call[PATH_CALLS_NAMED]; /* the most frequent calls first */
        /* The measurement. */
        double seconds, user_seconds, system_seconds;
        uint64_t bytes, packets, received_bytes; /* nothing is received with PATH_SINK */
        /* MSG_ZEROCOPY and io_uring: number of notifications, and number of notifications which report that
         * the kernel copied the data anyway. */
        uint64_t notified, copied;
        /* Share of the file in the page cache at the beginning of the measurement; NAN: unknown. */
        double cached_share;
};

/* Sends the file over 127.0.0.1 from one process to another, both with raised priority if that is permitted.
 * `watch` observes the measurement; NULL: none. Returns 0, also if the kernel refused a call (see the
 * result); -EINTR if a signal of signals_hold() is pending; or another negative errno, with an error. */
int path_run(const struct path_run *run, const struct path_file *file, struct machine_watch *watch,
             struct path_result *ret, struct error *e);
/* "sendmsg", or NULL for a call that no path uses. */
const char *path_call_name(int number);
