/* The datagram that tells a trigger from outside whether the DFM takes triggers. It has no check word and a
 * fixed layout (docs/protocol.md). Little-endian. Pure. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define BUSY_PACKET_BYTES 16
/* `last` if no trigger has been taken yet. */
#define BUSY_NONE UINT64_MAX

/* Why the DFM is busy. */
enum busy_reason {
        BUSY_NOT,
        BUSY_CREDITS, /* few credits of the SFIs are free, or many triggers wait for one */
        BUSY_XOFF,    /* a ROS has little room */
        BUSY_OUTPUT,  /* as BUSY_CREDITS, while the output of an SFI is slow */
        BUSY_STOPPED, /* the run has not begun, or takes no further triggers */
        BUSY_RESET,   /* the counters were reset, and triggers from before are not over */
        BUSY_LEVEL2,  /* many events wait for a decision of level 2 */
        BUSY_FRAMES,  /* many triggers wait, for frames of a board that are counted; or no ROS is present */
        BUSY_PAUSED,  /* an operator paused the run */
};

struct busy_packet {
        bool busy;
        enum busy_reason reason;
        uint64_t last; /* number of the last trigger that the DFM has taken or queued */
};

void busy_packet_encode(const struct busy_packet *p, uint8_t bytes[static BUSY_PACKET_BYTES]);
