/* The data message (type Fragments): a header, then chunks, each a chunk header and a part of one
 * fragment. Divides fragments into datagrams and reads them back. Pure; payload is referenced, not copied.
 *
 * A chunk starts at a multiple of EVB_BLOCK_BYTES, and its length is a multiple too unless it ends its
 * fragment. Fragments share a datagram. A datagram that is not the last of its batch is padded with zeros to
 * the full size (by at most EVB_BLOCK_BYTES + CHUNK_HEADER_BYTES), so that the kernel can split one
 * super-packet (UDP_SEGMENT). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "evb/protocol/message.h"

#define CHUNK_HEADER_BYTES 32

struct chunk {
        uint64_t event;
        uint32_t l1_id;
        uint32_t fragment_bytes; /* of the whole fragment */
        uint32_t offset, length; /* of this chunk */
        uint16_t order;          /* position of the fragment in the event, if the source knows it */
        uint8_t form;            /* enum fragment_form */
        uint8_t status;          /* enum fragment_status */
};

void chunk_encode(const struct chunk *c, uint8_t bytes[static CHUNK_HEADER_BYTES]);
/* False: fields contradict each other, a bound or the check word. */
bool chunk_decode(struct chunk *ret, const uint8_t bytes[static CHUNK_HEADER_BYTES]);

/* Reads the chunks of one datagram. After MESSAGE_OK, call next until it returns false; `malformed` then
 * shows whether the rest was invalid. */
struct chunk_reader {
        struct message_header header;
        const uint8_t *at, *end;
        bool malformed;
};

enum message_verdict chunk_reader_init(struct chunk_reader *r, const uint8_t *bytes, size_t n,
                                       uint64_t cookie);
bool chunk_reader_next(struct chunk_reader *r, struct chunk *ret, const uint8_t **ret_payload);

/* A fragment to send, or the rest of one. */
struct chunk_job {
        struct chunk chunk;     /* offset: where to continue; length is ignored */
        uint32_t to_bytes;      /* send [chunk.offset, to_bytes) */
        const uint8_t *payload; /* of the whole fragment */
};

/* One datagram as a gather list; iov[0] is the header. After it, `jobs_done` jobs of the batch are sent,
 * and the next one continues at `next_offset`, so a sender that is interrupted knows the rest. */
struct chunk_datagram {
        struct iovec *iov;
        uint32_t n_iov;
        uint32_t size_bytes;
        uint32_t jobs_done;
        uint32_t next_offset;
};

/* Memory for one batch of datagrams, allocated once. */
struct chunk_packer;

int chunk_packer_new(struct chunk_packer **ret, size_t datagram_bytes, size_t datagrams_max);
/* For byte streams: messages are not padded. */
void chunk_packer_set_stream(struct chunk_packer *p);
/* Limits each later batch to this many datagrams. The size given at creation stays the maximum. */
void chunk_packer_set_limit(struct chunk_packer *p, size_t datagrams);
struct chunk_packer *chunk_packer_free(struct chunk_packer *p);

/* Divides jobs into datagrams of `header`, whose transaction is that of the first datagram and grows by
 * one each, until the jobs or the packer's datagrams are used up. Returns the number of datagrams; valid
 * until the next call. */
size_t chunk_pack(struct chunk_packer *p, const struct message_header *header, const struct chunk_job *jobs,
                  size_t n_jobs, const struct chunk_datagram **ret);
