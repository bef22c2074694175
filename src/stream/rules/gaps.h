/* The packets that are missing in the output of a stream, until the sender has sent them again. A receiver
 * requests them in messages with a limited number of ranges, which a sender does not trust. Pure. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Maximum number of gaps that are remembered. A gap is a packet, or a VDIF frame of several packets. */
#define GAPS_MAX (UINT32_C(1) << 20)
/* Limits of a request. */
#define GAPS_REQUEST_RANGES_MAX 4096u
#define GAPS_REQUEST_PACKETS_MAX 65536u

struct packet_range {
        uint64_t first, n;
};

struct gap {
        uint64_t unit;    /* number of the packet, or of the frame */
        uint64_t lost;    /* a bit for each part that was lost */
        uint64_t missing; /* these, and the first part of a frame, until they arrive again */
        uint32_t word;    /* the first word of a frame, while other parts are missing */
};

struct gaps {
        struct gap *list;  /* ascending */
        size_t n, begin;   /* all before `begin` are closed */
        uint32_t parts;    /* of a frame */
        uint64_t left;     /* number of missing packets in the list */
        uint64_t repaired; /* number of packets that were lost and have arrived */
        /* Packets before `first` are those of an earlier copy; number of these that have arrived. */
        uint64_t first, first_repaired;
        uint64_t closed_frames; /* number of gaps without missing packets */
};

/* -ENOMEM. */
int gaps_init(struct gaps *g, uint32_t parts);
/* Accepts a zeroed structure. */
void gaps_fini(struct gaps *g);
/* Adds a packet that was given up, in ascending order. If the list is full, the packet stays missing. */
void gaps_add(struct gaps *g, uint64_t sequence);
/* Returns the gap of a packet; NULL: the packet is not missing. */
struct gap *gaps_find(const struct gaps *g, uint64_t sequence);
/* The packet has arrived. */
void gaps_close(struct gaps *g, struct gap *gap, uint64_t sequence);

/* Returns the first missing packets as an array of [first, number], and their number. `most` is limited by
 * GAPS_REQUEST_PACKETS_MAX. */
json_t *gaps_encode(struct gaps *g, uint64_t most, uint64_t *ret_packets);
/* Reads such an array, whose packets must be below `total`. Returns -EBADMSG. */
int gaps_decode(const json_t *ranges, uint64_t total, struct packet_range ret[static GAPS_REQUEST_RANGES_MAX],
                size_t *ret_n, uint64_t *ret_packets);
