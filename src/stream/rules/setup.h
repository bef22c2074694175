/* What both ends of a stream must encode alike: the header of data packets (raw ones have none), and the
 * first message of the control connection, which offers a stream. docs/streams.md describes both. Pure. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "net/address.h"
#include "stream/stream.h"
#include "vdif_fill.h"

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

#define SETUP_PROTOCOL 1

struct stream_offer {
        struct packet_rule rule;
        uint64_t key;      /* of the pattern, if `pattern` */
        uint16_t udp_port; /* the packets come from it */
        bool pattern;
        bool spaced;           /* packets leave one by one */
        bool follows;          /* the sender keeps no rate, and follows the receiver's progress */
        struct vdif_plan plan; /* VDIF */
        struct stream_raw raw; /* raw */
};

/* "plain", "vdif" or "raw". */
const char *setup_format_name(enum stream_format format);
bool setup_format_parse(enum stream_format *ret, const char *text);
json_t *setup_encode(const struct stream_offer *o);
/* Returns a negative errno with an explanation for the sender: -EPROTO, another version; -EBADMSG. */
int setup_decode(struct stream_offer *ret, const json_t *message, struct error *e);
