/* Datagrams with triggers from outside: a trigger box sends them to the DFM. They have no check word
 * and a fixed layout (docs/protocol.md), so that an FPGA can make them. Little-endian. Pure. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define TRIGGER_PACKET_VERSION 1
#define TRIGGER_PACKET_HEADER_BYTES 16
#define TRIGGER_ENTRY_BYTES 24
/* As many entries as a UDP datagram over IPv4 holds. */
#define TRIGGER_ENTRIES_MAX ((65507 - TRIGGER_PACKET_HEADER_BYTES) / TRIGGER_ENTRY_BYTES)

/* Flags of an entry; others are malformed. */
#define TRIGGER_SPILL_BEGINS 1u
#define TRIGGER_SPILL_ENDS 2u
/* The boards' counters were reset: `number` counts anew from this entry on. */
#define TRIGGER_RESET 4u
/* Only the other flags count: the entry is not a trigger. */
#define TRIGGER_MARKER 8u
#define TRIGGER_FLAGS 15u

struct trigger_entry {
        uint64_t number;  /* as the boards count the trigger */
        uint64_t time_ns; /* since 1970, UTC; 0: the trigger has no clock */
        uint32_t type;    /* for the event's header */
        uint32_t flags;   /* TRIGGER_* */
};

/* Why bytes are not a datagram of triggers. */
enum trigger_verdict {
        TRIGGER_PACKET_OK,
        TRIGGER_PACKET_FOREIGN,   /* wrong magic or version */
        TRIGGER_PACKET_MALFORMED, /* wrong length, or an unknown flag */
};

struct trigger_packet {
        uint32_t sequence; /* counts the datagrams of this sender */
        uint32_t run;      /* 0: any */
        uint16_t n;
        const uint8_t *entries; /* in the received bytes */
};

/* Reads the header and checks all entries; *ret borrows the bytes. */
enum trigger_verdict trigger_packet_decode(struct trigger_packet *ret, const uint8_t *bytes, size_t n);
/* Says what is wrong with bytes that trigger_packet_decode() refused, for a log line. */
void trigger_packet_explain(const uint8_t *bytes, size_t n, char *text, size_t text_bytes);
/* Entry k < p->n. */
struct trigger_entry trigger_packet_entry(const struct trigger_packet *p, unsigned k);
