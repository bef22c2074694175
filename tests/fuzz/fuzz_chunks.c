/* Data messages: as a datagram, and as a byte stream of which only a part has arrived. The input is tried as
 * it is, and with a correct header before its directory. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/chunk.h"
#include "fuzz.h"

#define COOKIE UINT64_C(0x0123456789ABCDEF)

static void check_chunk(const struct chunk *c)
{
        assert(c->fragment_bytes <= EVB_FRAGMENT_MAX_BYTES && c->offset <= c->fragment_bytes);
        assert(c->length <= c->fragment_bytes - c->offset && c->offset % EVB_BLOCK_BYTES == 0);
        assert(c->length > 0 || c->fragment_bytes == 0);
        assert(c->status < FRAGMENT_STATUSES && c->event != UINT64_MAX);
}

static bool chunks_equal(const struct chunk *a, const struct chunk *b)
{
        return a->event == b->event && a->l1_id == b->l1_id && a->fragment_bytes == b->fragment_bytes &&
               a->offset == b->offset && a->length == b->length && a->order == b->order &&
               a->form == b->form && a->status == b->status;
}

/* Encodes the chunk as the next one of a message, and reads it back. */
static void check_entry(struct chunk_context *writes, struct chunk_context *reads, const struct chunk *c)
{
        uint8_t entry[CHUNK_ENTRY_MAX_BYTES];
        size_t n = chunk_encode(writes, c, entry);
        struct reader r = reader_init(entry, n);
        struct chunk again;
        bool last;

        assert(chunk_decode(reads, &r, &again, &last) == MESSAGE_OK);
        assert(reader_left(&r) == 0 && chunks_equal(c, &again));
}

static void check_message(struct chunk_reader *r, const uint8_t *bytes, size_t n)
{
        struct chunk_context writes = chunk_context_begin(r->header.sender_index), reads = writes;
        size_t at = r->head_bytes, chunks = 0;
        const uint8_t *payload;
        struct chunk c;

        while (chunk_reader_next(r, &c, &payload)) {
                assert(payload == bytes + at && c.length <= n - at);
                at += c.length;
                chunks++;
                check_chunk(&c);
                check_entry(&writes, &reads, &c);
        }
        assert(chunks > 0 && chunks <= CHUNKS_MAX && at - r->head_bytes == r->header.payload_bytes);
}

/* However much of a stream has arrived, the verdict can only change from "more is needed". */
static void check_stream(const uint8_t *bytes, size_t n, enum message_verdict whole)
{
        struct chunk_reader r;

        for (size_t part = n / 4; part < n; part += 1 + n / 4) {
                enum message_verdict v = chunk_reader_begin(&r, bytes, part, COOKIE);

                assert(v == whole || v == MESSAGE_SHORT);
        }
}

static bool accepts(const uint8_t *bytes, size_t n)
{
        struct chunk_reader r;
        enum message_verdict v = chunk_reader_begin(&r, bytes, n, COOKIE);

        check_stream(bytes, n, v);
        if (v != MESSAGE_OK)
                return false;
        assert(r.head_bytes <= n && !r.payload);
        v = chunk_reader_begin(&r, bytes, r.head_bytes - 1, COOKIE);
        assert(v == MESSAGE_SHORT);
        if (chunk_reader_init(&r, bytes, n, COOKIE) != MESSAGE_OK)
                return false;
        check_message(&r, bytes, n);
        return true;
}

/* Finds the end of the directory and writes the header of a ROS before it. */
static bool seal(uint8_t *bytes, size_t n)
{
        struct message_header h = {
                .cookie = COOKIE, .sender_role = ROLE_ROS, .sender_index = bytes[2], .transaction = bytes[8]};
        struct chunk_context k = chunk_context_begin(h.sender_index);
        struct reader r = reader_init(bytes + FRAGMENTS_HEADER_BYTES, n - FRAGMENTS_HEADER_BYTES);
        bool last = false;
        struct chunk c;

        while (!last) {
                if (chunk_decode(&k, &r, &c, &last) != MESSAGE_OK)
                        return false;
        }
        fragments_header_encode(&h, bytes, (size_t)(r.at - bytes) - FRAGMENTS_HEADER_BYTES);
        return true;
}

bool fuzz_accepts(const uint8_t *bytes, size_t size_bytes)
{
        bool accepted = accepts(bytes, size_bytes);
        uint8_t *sealed;

        if (size_bytes < FRAGMENTS_HEADER_BYTES)
                return accepted;
        sealed = malloc(size_bytes);
        memcpy(sealed, bytes, size_bytes);
        if (seal(sealed, size_bytes))
                accepted |= accepts(sealed, size_bytes);
        free(sealed);
        return accepted;
}
