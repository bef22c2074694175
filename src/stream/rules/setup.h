/* The first message of a stream's control connection: what the sender is going to send. docs/streams.md
 * describes all messages. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "net/address.h"
#include "packet.h"
#include "vdif_fill.h"

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
