/* The data message (type Fragments): a header, a directory with an entry for each chunk, and the chunks'
 * bytes. A chunk is a contiguous part of one fragment. Divides fragments into messages and reads them back.
 * docs/protocol.md describes the bytes. Pure; payload is referenced, not copied.
 *
 * An entry consists of flags and of the fields that differ from their expected values, which follow from the
 * entry before it, so most entries take a few bytes. A chunk starts at a multiple of EVB_BLOCK_BYTES, and its
 * length is a multiple too unless it ends its fragment. A datagram that is not the last of its batch is
 * padded with zeros to the full size, by at most CHUNK_PADDING_MAX_BYTES, so that the kernel can split one
 * super-packet (UDP_SEGMENT). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/cursor.h"
#include "protocol/message.h"

/* The first byte of a data message. All other messages begin with 0x45 (MESSAGE_MAGIC). */
#define FRAGMENTS_MAGIC 0xEB
#define FRAGMENTS_HEADER_BYTES 20
/* The lower bits of the sender are the index of the ROS. */
#define FRAGMENTS_INDEX_BITS 12
/* Maximum number of chunks in a message, and bytes of an entry. */
#define CHUNKS_MAX 256u
#define CHUNK_ENTRY_MAX_BYTES 32
/* Header and directory. */
#define FRAGMENTS_HEAD_MAX_BYTES (FRAGMENTS_HEADER_BYTES + CHUNKS_MAX * CHUNK_ENTRY_MAX_BYTES)
#define CHUNK_PADDING_MAX_BYTES (CHUNK_ENTRY_MAX_BYTES + EVB_BLOCK_BYTES)

/* X(constant, value, name of the field that the entry contains). Without a flag, the field has its expected
 * value. */
#define CHUNK_FLAGS(X)                                                                                       \
        X(CHUNK_HAS_EVENT, 0x01, "event")                                                                    \
        X(CHUNK_HAS_L1_ID, 0x02, "l1_id")                                                                    \
        X(CHUNK_HAS_SIZE, 0x04, "fragment_bytes")                                                            \
        X(CHUNK_HAS_OFFSET, 0x08, "offset")                                                                  \
        X(CHUNK_HAS_LENGTH, 0x10, "length")                                                                  \
        X(CHUNK_HAS_KIND, 0x20, "kind")                                                                      \
        X(CHUNK_IS_LAST, 0x80, "last")

/* Must be 0. */
#define CHUNK_RESERVED 0x40

enum chunk_flags {
#define X(constant, value, name) constant = value,
        CHUNK_FLAGS(X)
#undef X
};

struct chunk {
        uint64_t event;
        uint32_t l1_id;
        uint32_t fragment_bytes; /* of the whole fragment */
        uint32_t offset, length; /* of this chunk */
        uint16_t order;          /* position of the fragment in the event, if the source knows it */
        uint8_t form;            /* enum fragment_form */
        uint8_t status;          /* enum fragment_status */
};

/* The state to which the next entry of a directory is relative. */
struct chunk_context {
        struct chunk last;
        uint64_t stride; /* expected difference of event numbers */
        uint32_t n;      /* entries so far */
};

/* The context before the first entry of a message from this ROS. */
struct chunk_context chunk_context_begin(uint16_t ros);
/* Writes the entry of a chunk and updates the context; returns its size, at most CHUNK_ENTRY_MAX_BYTES. */
size_t chunk_encode(struct chunk_context *k, const struct chunk *c,
                    uint8_t bytes[static CHUNK_ENTRY_MAX_BYTES]);
/* Like chunk_encode(), for a chunk that may be too long: shortens it so that it fits into `room` together
 * with its entry. Returns 0, and does not change the context, if nothing fits; then *c is undefined. */
size_t chunk_encode_fit(struct chunk_context *k, struct chunk *c, size_t room,
                        uint8_t bytes[static CHUNK_ENTRY_MAX_BYTES]);
/* MESSAGE_SHORT: more bytes are needed; MESSAGE_MALFORMED: the fields contradict each other, or exceed a
 * limit. */
enum message_verdict chunk_decode(struct chunk_context *k, struct reader *r, struct chunk *ret,
                                  bool *ret_last);

/* Reads one message. After MESSAGE_OK, all entries are valid and decoded; call chunk_reader_next() until it
 * returns false. */
struct chunk_reader {
        struct message_header header; /* payload_bytes: sum of all chunks */
        size_t head_bytes;            /* header and directory */
        const uint8_t *payload;       /* of the next chunk; NULL after chunk_reader_begin() */
        uint32_t n, next;             /* number of chunks; the one that is read next */
        struct chunk chunks[CHUNKS_MAX];
};

/* Reads header and directory, from a stream that may contain only a part of the message. MESSAGE_SHORT: some
 * of these bytes have not arrived. The reader does not refer to `bytes` afterwards. */
enum message_verdict chunk_reader_begin(struct chunk_reader *r, const uint8_t *bytes, size_t n,
                                        uint64_t cookie);
/* Like chunk_reader_begin(), for a whole datagram; MESSAGE_SHORT: bytes are missing. */
enum message_verdict chunk_reader_init(struct chunk_reader *r, const uint8_t *bytes, size_t n,
                                       uint64_t cookie);
/* *ret_payload: NULL after chunk_reader_begin(). */
bool chunk_reader_next(struct chunk_reader *r, struct chunk *ret, const uint8_t **ret_payload);

/* Completes a message: writes the header before a directory of `directory_bytes`. */
void fragments_header_encode(const struct message_header *h, uint8_t *bytes, size_t directory_bytes);

/* A fragment to send, or the rest of one. */
struct chunk_job {
        struct chunk chunk;     /* offset: where to continue; length is ignored */
        uint32_t to_bytes;      /* send [chunk.offset, to_bytes) */
        const uint8_t *payload; /* of the whole fragment */
};

/* One datagram as a gather list; iov[0] holds header and directory. After this datagram, `jobs_done` jobs of
 * the batch are sent, and the next job continues at `next_offset`, so that an interrupted sender can
 * continue. */
struct chunk_datagram {
        struct iovec *iov;
        uint32_t n_iov;
        uint32_t size_bytes;
        uint32_t jobs_done;
        uint32_t next_offset;
        bool full; /* there is no room for more, whatever follows */
};

/* Memory for one batch of datagrams, allocated once. */
struct chunk_packer;

int chunk_packer_new(struct chunk_packer **ret, size_t datagram_bytes, size_t datagrams_max);
/* For byte streams: messages are not padded. */
void chunk_packer_set_stream(struct chunk_packer *p);
/* The size of the datagrams of later batches, at least as large as the smallest that chunk_packer_new()
 * accepts. */
void chunk_packer_set_datagram(struct chunk_packer *p, size_t bytes);
/* Limits each later batch to this many datagrams. The size given at creation stays the maximum. */
void chunk_packer_set_limit(struct chunk_packer *p, size_t datagrams);
struct chunk_packer *chunk_packer_free(struct chunk_packer *p);

/* Divides jobs into datagrams with `header`, until no job or no datagram of the packer is left. The header's
 * transaction applies to the first datagram and increases by one with each datagram; its queued_bytes are the
 * bytes that are queued before the first datagram is sent. Returns the number of datagrams, which stay valid
 * until the next call. */
size_t chunk_pack(struct chunk_packer *p, const struct message_header *header, const struct chunk_job *jobs,
                  size_t n_jobs, const struct chunk_datagram **ret);
