/* Datagrams with triggers from outside: a trigger box sends them to the DFM. They have no check word
 * and a fixed layout (docs/protocol.md), so that an FPGA can make them. Little-endian. Pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TRIGGER_PACKET_VERSION 1
#define TRIGGER_PACKET_HEADER_BYTES 16
#define TRIGGER_ENTRY_BYTES 24
/* As many entries as a UDP datagram over IPv4 holds. */
#define TRIGGER_ENTRIES_MAX ((65507 - TRIGGER_PACKET_HEADER_BYTES) / TRIGGER_ENTRY_BYTES)

/* Flags of an entry; an entry with any other flag is malformed. */
#define TRIGGER_SPILL_BEGINS 1u
#define TRIGGER_SPILL_ENDS 2u
/* The boards' counters were reset: `number` starts again with this entry. */
#define TRIGGER_RESET 4u
/* The entry is not a trigger: only its other flags apply. */
#define TRIGGER_MARKER 8u
#define TRIGGER_FLAGS 15u

struct trigger_entry {
        uint64_t number;  /* number of the trigger, as the boards count it */
        uint64_t time_ns; /* since 1970, UTC; 0: the trigger has no clock */
        uint32_t type;    /* type of the trigger, for the event's header */
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
/* Formats what is wrong with bytes that trigger_packet_decode() refused, for a log line. */
void trigger_packet_explain(const uint8_t *bytes, size_t n, char *text, size_t text_bytes);
/* Returns entry k, which must be below p->n. */
struct trigger_entry trigger_packet_entry(const struct trigger_packet *p, unsigned k);

/* The datagram that informs an external trigger source whether the DFM accepts triggers. It has no check word
 * and a fixed layout (docs/protocol.md). Little-endian. Pure. */

#define BUSY_PACKET_BYTES 16
/* Value of `last` if no trigger has been accepted yet. */
#define BUSY_NONE UINT64_MAX

/* Why the DFM is busy. */
enum busy_reason {
        BUSY_NOT,
        BUSY_CREDITS, /* few credits of the SFIs are free, or many triggers wait for one */
        BUSY_XOFF,    /* a ROS has little room */
        BUSY_OUTPUT,  /* as BUSY_CREDITS, while the output of an SFI is slow */
        BUSY_STOPPED, /* the run has not begun, or accepts no further triggers */
        BUSY_RESET,   /* the counters were reset, and events from before the reset have not ended */
        BUSY_LEVEL2,  /* many events wait for a decision of level 2 */
        BUSY_FRAMES,  /* many triggers wait for frames that a ROS counts, or no ROS is present */
        BUSY_PAUSED,  /* an operator paused the run */
};

struct busy_packet {
        bool busy;
        enum busy_reason reason;
        uint64_t last; /* number of the last trigger that the DFM has accepted or queued */
};

void busy_packet_encode(const struct busy_packet *p, uint8_t bytes[static BUSY_PACKET_BYTES]);
