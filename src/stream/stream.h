/* A point-to-point stream over UDP: one end sends, the other receives, and a TCP connection controls both.
 * Each end has a thread for the network and one for its file, with a ring of packets between them.
 * docs/streams.md describes the protocol. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/fault.h"
#include "net/address.h"
#include "protocol/auth.h"
#include "stream/slot_ring.h"

/* STREAM_RAW: messages that are only counted, see raw.h. */
enum stream_format { STREAM_PLAIN, STREAM_VDIF, STREAM_RAW };
enum stream_pacing {
        STREAM_PACING_THREAD,
        STREAM_PACING_KERNEL, /* the kernel applies the rate (SO_MAX_PACING_RATE) */
        STREAM_PACING_TXTIME, /* the kernel applies the time of each packet (SO_TXTIME) */
};

#define STREAM_BYTES_UNKNOWN UINT64_MAX
#define STREAM_CPUS_MAX 64u

struct stream_cpus {
        unsigned cpus[STREAM_CPUS_MAX];
        size_t n; /* 0: any */
};

/* Figures for a live display. */
struct stream_progress {
        unsigned stream; /* its number among several streams; 0: the only one */
        double seconds;
        uint64_t packets, bytes, lost; /* so far; lost = UINT64_MAX: unknown */
        uint64_t ring_percent;         /* percentage of the ring in use */
};

/* Options of both ends. */
struct stream_options {
        struct wake wake; /* how the ring's consumer is woken */
        uint64_t ring_bytes, socket_buffer_bytes;
        struct stream_cpus network_cpus, file_cpus;
        bool has_key; /* the control connection is authenticated with `key` */
        struct auth_key key;
        unsigned stream; /* for `progress` */
        /* Called each second, with `last` at the end; may be NULL. */
        void (*progress)(const struct stream_progress *p, bool last);
};

/* Properties of a raw stream. */
struct stream_raw {
        bool tcp, echo; /* neither is set: UDP */
        bool grouped;
        struct net_address group;         /* address with port; valid if `grouped` */
        uint64_t warm_up_ns, duration_ns; /* duration 0: to the end */
};

/* Maximum number of receivers of a group. */
#define STREAM_RECEIVERS_MAX 16u

struct stream_send_config {
        struct stream_options common;
        /* Control ports of the receivers (more than one only for a group), or the local port if this end
         * listens. */
        struct net_address at[STREAM_RECEIVERS_MAX];
        size_t n_receivers;
        bool listens;
        bool without_control; /* VDIF to a program that reports nothing, at the port in at[0] */
        const char *input;    /* a path, "pattern:SIZE", "null:SIZE" or "-"; raw: NULL */
        bool direct;          /* the file bypasses the page cache (O_DIRECT) */
        enum stream_format format;
        struct stream_raw raw;
        uint64_t packets_max;  /* raw; 0: no limit */
        uint32_t batch;        /* raw: messages per system call */
        uint32_t packet_bytes; /* UDP payload; 0: maximum for the path */
        /* At most one is not 0: the time between packets, or the rate of data without headers. If both are 0:
         * VDIF at its recorded rate, unless `full_speed`; plain at full speed. */
        uint64_t spacing_ns, rate_bps;
        bool full_speed;
        bool recorded; /* plain: at the rate of the recording, or with `frames_per_second` */
        enum stream_pacing pacing;
        uint32_t frames_per_second; /* number of frames of one VDIF thread; 0: find it */
        uint64_t duration_ns;       /* 0: until the input ends; raw: without the warm-up */
        uint64_t wait_ns;           /* time to wait for a receiver that does not listen yet */
};

#define STREAM_NEXT_SECOND (-1)

struct stream_receive_config {
        struct stream_options common;
        struct net_address at; /* the local control port, or the sender's control port if this end dials */
        bool dials;
        /* The sender is another program without a control connection: `at` is the port of the packets, or a
         * multicast group. The stream begins with its first packet, which must show `format` (plain or VDIF).
         * It ends with a signal, and after this time, with this size, or after this silence (0: none). */
        bool without_control;
        /* Unix time of the first frame, or of the clock for plain data; STREAM_NEXT_SECOND: the next frame
         * with number 0; 0: now. VDIF: each file has this number of seconds (0: one file). */
        int64_t begin_s, scan_s;
        struct net_address device; /* address of the device of the group; size 0: as the routes say */
        enum stream_format format;
        uint64_t duration_ns, bytes, silence_ns;
        uint64_t wait_ns;   /* time to wait for a sender that does not listen yet */
        const char *output; /* a path, "pattern", "null" or "-" */
        bool overwrite;
        bool resumes; /* continues a file that has the beginning of the stream */
        bool direct;  /* the file bypasses the page cache (O_DIRECT) */
        /* A missing packet is given up after this many later packets have arrived. */
        uint32_t window_packets;
        uint64_t repair_ns; /* maximum time for sending missing packets again; 0: they stay missing */
        struct fault_config faults;
        /* Raw streams: maximum number of messages received per second (0: no limit), and whether to capture
         * the packets on the wire. */
        uint64_t packets_per_s;
        bool watches_wire;
};

/* Number of locations in the lost_at member of a report. */
#define STREAM_PLACES 5u
extern const struct stream_place {
        const char *name; /* name of the member */
        const char *label;
} stream_places[STREAM_PLACES];

/* Runs one stream; logs errors. Returns the exit status; *ret is the report, or NULL without a stream. */
int stream_send(const struct stream_send_config *c, json_t **ret);
int stream_receive(const struct stream_receive_config *c, json_t **ret);
/* Combines the reports of several streams: sums, and the individual reports in "streams". Consumes the array;
 * NULL if it is empty. */
json_t *stream_join_reports(json_t *reports);
