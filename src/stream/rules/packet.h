/* The header of a stream's data packets, as docs/streams.md describes it; raw ones have none. Pure. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "stream/stream.h"

/* Plain: sequence and cookie. VDIF: the sequence alone (VDIF Transport Protocol); a frame follows. */
#define PACKET_PLAIN_BYTES 16u
#define PACKET_VTP_BYTES 8u

/* What a stream's packets have in common. */
struct packet_rule {
        enum stream_format format;
        uint32_t payload_bytes; /* of each packet; the last one of a plain stream may have less */
        uint64_t cookie;        /* plain only */
};

enum packet_kind { PACKET_OURS, PACKET_SHORT, PACKET_FOREIGN };

uint32_t packet_header_bytes(enum stream_format format);
/* Writes the header. */
void packet_write(const struct packet_rule *rule, void *to, uint64_t sequence);
/* Reads a datagram; sets *ret_sequence if it is one of this stream. A datagram that ends before its header or
 * frame does is short. */
enum packet_kind packet_read(const struct packet_rule *rule, const void *bytes, size_t n,
                             uint64_t *ret_sequence);
/* The most packets that can be sent in this time, by any link. */
uint64_t packet_most(const struct packet_rule *rule, uint64_t elapsed_ns);
