/* The datagrams between trigger box and DFM as bytes, little-endian. Pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FRONTEND_ENTRIES_MAX 60u /* as many as a packet of 1500 bytes holds */
#define FRONTEND_PACKET_MAX_BYTES (16u + 24u * FRONTEND_ENTRIES_MAX)

/* Flag of an entry: the counters were reset, and its number is the first one after that. */
#define FRONTEND_ENTRY_RESET 4u
/* The entry is not a trigger: its number is that of the next one, and only its other flags count. */
#define FRONTEND_ENTRY_MARKER 8u

struct frontend_entry {
        uint64_t number, time_ns; /* time since 1970 */
        uint32_t type, flags;
};

/* Reason of a DFM without a run, that takes no triggers. */
#define FRONTEND_BUSY_STOPPED 4u
/* Reason of a DFM that finishes what came before a reset of the counters, and tells the ROSs of it. */
#define FRONTEND_BUSY_RESET 5u

struct frontend_busy {
        bool busy;
        uint8_t reason; /* one of FRONTEND_BUSY_*, or another */
        uint64_t last;  /* number of the last trigger that the DFM has */
};

/* n is at most FRONTEND_ENTRIES_MAX. Returns the number of bytes. */
size_t frontend_packet_encode(uint32_t sequence, uint32_t run, const struct frontend_entry *entries, size_t n,
                              uint8_t to[static FRONTEND_PACKET_MAX_BYTES]);
/* False: not a busy datagram. */
bool frontend_packet_decode_busy(const uint8_t *bytes, size_t n, struct frontend_busy *ret);
