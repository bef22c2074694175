/* The data that both ends of a stream must encode alike: the header of data packets (raw packets have none),
 * and the first message of the control connection, which offers a stream. docs/streams.md describes both.
 * Pure. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "net/address.h"
#include "stream/stream.h"
#include "vdif_fill.h"

/* Maximum payload of a UDP datagram over IPv4. */
#define PACKET_MAX_BYTES 65507u
/* Plain: sequence number and cookie. VDIF: only the sequence number (VDIF Transport Protocol); a frame, or a
 * part of a frame, follows. */
#define PACKET_PLAIN_BYTES 16u
#define PACKET_VTP_BYTES 8u

/* Properties that all packets of a stream share. */
struct packet_rule {
        enum stream_format format;
        uint32_t payload_bytes; /* of each packet; the last packet of a plain stream may be shorter */
        uint64_t cookie;        /* plain only */
        /* VDIF: number of packets of a frame, which are its parts of `payload_bytes`; 0 counts as 1. */
        uint32_t parts;
        bool unnumbered; /* packets of another program: they have no header, and are numbered on arrival */
        uint64_t first;  /* number of the first packet: of another program, or of a sender that resumes */
};

/* Maximum number of parts of a frame. Each part has room for the header of a frame. */
#define PACKET_PARTS_MAX 64u

static inline uint32_t packet_parts(const struct packet_rule *rule)
{
        return rule->parts > 1 ? rule->parts : 1;
}
/* Returns the smallest number of equal parts of a frame that are at most `most_bytes` each; 0: there is
 * none. */
uint32_t packet_cut(uint32_t frame_bytes, uint32_t most_bytes);

enum packet_kind { PACKET_OURS, PACKET_SHORT, PACKET_FOREIGN };

uint32_t packet_header_bytes(const struct packet_rule *rule);
/* Writes the header of a packet; `sequence` counts from the first packet of the stream. */
void packet_write(const struct packet_rule *rule, void *to, uint64_t sequence);
/* Decodes a datagram; sets *ret_sequence if the datagram belongs to this stream. A datagram is short if it
 * ends before its header or frame does. An unnumbered packet gets the number 0. */
enum packet_kind packet_read(const struct packet_rule *rule, const void *bytes, size_t n,
                             uint64_t *ret_sequence);
/* Maximum number of packets that any link can carry in this time. */
uint64_t packet_most(const struct packet_rule *rule, uint64_t elapsed_ns);

#define SETUP_PROTOCOL 1

struct stream_offer {
        struct packet_rule rule;
        uint64_t key;      /* of the pattern, if `pattern` is set */
        uint16_t udp_port; /* source port of the packets */
        bool pattern;
        bool spaced;           /* packets are sent one by one */
        bool repairs;          /* the sender sends missing packets again at the end */
        bool resumes;          /* the sender can continue a copy that was interrupted */
        bool follows;          /* the sender has no rate limit, and follows the receiver's progress */
        struct vdif_plan plan; /* VDIF */
        struct stream_raw raw; /* raw */
};

/* Limits of a request to compare packets of a copy with the file. */
#define SETUP_COMPARED_PACKETS_MAX 4096u
#define SETUP_COMPARED_BYTES_MAX (4u << 20)
/* Returns the digest of the data of a packet, with the keys of the stream. */
json_t *setup_digest(const struct stream_offer *o, const void *bytes, size_t n);

/* "plain", "vdif" or "raw". */
const char *setup_format_name(enum stream_format format);
bool setup_format_parse(enum stream_format *ret, const char *text);
json_t *setup_encode(const struct stream_offer *o);
/* Returns negative errno with an explanation for the sender: -EPROTO: another version; -EBADMSG: invalid. */
int setup_decode(struct stream_offer *ret, const json_t *message, struct error *e);

/* Bytes at the beginning of a datagram that setup_of_packet() examines. */
#define SETUP_PACKET_BYTES (PACKET_VTP_BYTES + VDIF_HEADER_BYTES)
/* Derives an offer from a datagram of a program that has no control connection: VDIF, a frame with or without
 * a sequence number before it, or the numbered first part of a frame; plain, any datagram. `bytes` are its
 * first bytes, `n` is its size. False: the datagram shows no such packet. */
bool setup_of_packet(struct stream_offer *ret, enum stream_format format,
                     const uint8_t bytes[static SETUP_PACKET_BYTES], size_t n);
