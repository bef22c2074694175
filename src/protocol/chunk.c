/* Encodes and decodes data messages: the header and the directory of chunks. Divides fragments into such
 * messages. */
#include "protocol/chunk.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/util.h"

#define CHECK_AT 16
/* The byte "kind": form in the lower half, status in the upper one. */
#define STATUS_SHIFT 4

struct chunk_context chunk_context_begin(uint16_t ros)
{
        return (struct chunk_context){.last.order = ros, .stride = 1};
}

/* These functions return the values that an entry without flags stands for: the whole next fragment, of the
 * same size and kind. */
static uint64_t expected_event(const struct chunk_context *k)
{
        return k->last.event + k->stride;
}

/* L1 ids advance with the events. */
static uint32_t expected_l1_id(const struct chunk_context *k, uint64_t event)
{
        return k->last.l1_id + (uint32_t)(event - k->last.event);
}

static void remember(struct chunk_context *k, const struct chunk *c)
{
        /* The first event number does not show how far the next numbers are apart. */
        if (k->n++ > 0)
                k->stride = c->event - k->last.event;
        k->last = *c;
}

/* All fields of an entry together fit into CHUNK_ENTRY_MAX_BYTES. */
static uint8_t *put_varint(uint8_t *at, uint64_t v)
{
        for (; v >= 0x80; v >>= 7)
                *at++ = (uint8_t)(v | 0x80);
        *at++ = (uint8_t)v;
        return at;
}

static size_t varint_bytes(uint64_t v)
{
        size_t n = 1;

        while (v >>= 7)
                n++;
        return n;
}

/* Whether the entry needs no field. */
static _always_inline_ bool is_expected(const struct chunk_context *k, const struct chunk *c)
{
        return c->event == expected_event(k) && c->l1_id == expected_l1_id(k, c->event) &&
               c->fragment_bytes == k->last.fragment_bytes && c->length == c->fragment_bytes &&
               c->order == k->last.order && c->form == k->last.form && c->status == k->last.status;
}

/* Writes flags and fields up to the offset; returns where the next field begins. */
static _always_inline_ uint8_t *put_begin(const struct chunk_context *k, const struct chunk *c,
                                          uint8_t *bytes)
{
        uint8_t *at = bytes + 1;
        uint32_t l1_id = expected_l1_id(k, c->event);
        uint8_t flags = 0;

        assert(c->offset % EVB_BLOCK_BYTES == 0);
        if (c->event != expected_event(k)) {
                flags |= CHUNK_HAS_EVENT;
                at = put_varint(at, zigzag((int64_t)(c->event - k->last.event)));
        }
        if (c->l1_id != l1_id) {
                flags |= CHUNK_HAS_L1_ID;
                at = put_varint(at, zigzag((int32_t)(c->l1_id - l1_id)));
        }
        if (c->fragment_bytes != k->last.fragment_bytes) {
                flags |= CHUNK_HAS_SIZE;
                at = put_varint(at, c->fragment_bytes);
        }
        if (c->offset > 0) {
                flags |= CHUNK_HAS_OFFSET;
                at = put_varint(at, c->offset / EVB_BLOCK_BYTES);
        }
        bytes[0] = flags;
        return at;
}

/* Writes the fields from the length on, at `at`; returns the size of the whole entry. */
static _always_inline_ size_t put_end(const struct chunk_context *k, const struct chunk *c, uint8_t *bytes,
                                      uint8_t *at)
{
        assert(c->offset + c->length == c->fragment_bytes || c->length % EVB_BLOCK_BYTES == 0);
        if (c->offset + c->length != c->fragment_bytes) {
                bytes[0] |= CHUNK_HAS_LENGTH;
                at = put_varint(at, c->length / EVB_BLOCK_BYTES);
        }
        if (c->order != k->last.order || c->form != k->last.form || c->status != k->last.status) {
                bytes[0] |= CHUNK_HAS_KIND;
                at = put_varint(at, c->order);
                *at++ = (uint8_t)(c->form | c->status << STATUS_SHIFT);
        }
        assert(at - bytes <= CHUNK_ENTRY_MAX_BYTES);
        return (size_t)(at - bytes);
}

size_t chunk_encode(struct chunk_context *k, const struct chunk *c,
                    uint8_t bytes[static CHUNK_ENTRY_MAX_BYTES])
{
        size_t n = put_end(k, c, bytes, put_begin(k, c, bytes));

        remember(k, c);
        return n;
}

/* Maximum number of blocks that fit into `room` bytes, the encoded number included. */
static size_t blocks_that_fit(size_t room)
{
        size_t blocks = (room - 1) / EVB_BLOCK_BYTES;

        return (room - varint_bytes(blocks)) / EVB_BLOCK_BYTES;
}

/* Encodes the part of a chunk that fits into the room. */
static size_t encode_part(struct chunk_context *k, struct chunk *c, size_t room, uint8_t *bytes)
{
        uint8_t *at = put_begin(k, c, bytes);
        size_t n = put_end(k, c, bytes, at);

        if (n + c->length > room) {
                if (bytes[0] & CHUNK_HAS_LENGTH)
                        n -= varint_bytes(c->length / EVB_BLOCK_BYTES);
                if (c->length <= EVB_BLOCK_BYTES || room < n + 1 + EVB_BLOCK_BYTES)
                        return 0;
                c->length = (uint32_t)blocks_that_fit(room - n) * EVB_BLOCK_BYTES;
                n = put_end(k, c, bytes, at);
        }
        remember(k, c);
        return n;
}

size_t chunk_encode_fit(struct chunk_context *k, struct chunk *c, size_t room,
                        uint8_t bytes[static CHUNK_ENTRY_MAX_BYTES])
{
        if (1 + (size_t)c->length > room || !is_expected(k, c))
                return encode_part(k, c, room, bytes);
        bytes[0] = 0;
        remember(k, c);
        return 1;
}

static _always_inline_ bool chunk_is_possible(const struct chunk *c)
{
        if (c->event == UINT64_MAX || c->fragment_bytes > EVB_FRAGMENT_MAX_BYTES || c->form > FORM_ROS3 ||
            c->status >= FRAGMENT_STATUSES)
                return false;
        if (c->offset > c->fragment_bytes || c->length > c->fragment_bytes - c->offset)
                return false;
        return c->length > 0 || c->fragment_bytes == 0;
}

/* Converts a number of blocks to bytes; a number that is too large stays too large. */
static uint32_t bytes_of_blocks(uint64_t blocks)
{
        return (uint32_t)MIN(blocks, UINT64_C(2) * EVB_FRAGMENT_MAX_BYTES / EVB_BLOCK_BYTES) *
               EVB_BLOCK_BYTES;
}

/* Decodes an entry without fields. The values that it repeats were checked with the previous entry. */
static _always_inline_ enum message_verdict decode_plain(struct chunk_context *k, struct chunk *ret)
{
        struct chunk c = k->last;

        c.event = expected_event(k);
        c.l1_id = expected_l1_id(k, c.event);
        c.offset = 0;
        c.length = c.fragment_bytes;
        if (c.event == UINT64_MAX || k->n == CHUNKS_MAX)
                return MESSAGE_MALFORMED;
        remember(k, &c);
        *ret = c;
        return MESSAGE_OK;
}

static _always_inline_ enum message_verdict decode_fields(struct chunk_context *k, struct reader *r,
                                                          struct chunk *ret)
{
        const uint8_t *begin = r->at;
        size_t left = reader_left(r);
        uint8_t flags = reader_u8(r), kind;
        uint64_t size = k->last.fragment_bytes, order = k->last.order, l1_more = 0;
        struct chunk c = {.event = expected_event(k), .form = k->last.form, .status = k->last.status};

        if (flags & CHUNK_HAS_EVENT)
                c.event = k->last.event + (uint64_t)unzigzag(reader_varint(r));
        if (flags & CHUNK_HAS_L1_ID)
                l1_more = reader_varint(r);
        c.l1_id = expected_l1_id(k, c.event) + (uint32_t)unzigzag(l1_more);
        if (flags & CHUNK_HAS_SIZE)
                size = reader_varint(r);
        c.fragment_bytes = (uint32_t)MIN(size, (uint64_t)UINT32_MAX);
        if (flags & CHUNK_HAS_OFFSET)
                c.offset = bytes_of_blocks(reader_varint(r));
        c.length = c.fragment_bytes - c.offset;
        if (flags & CHUNK_HAS_LENGTH)
                c.length = bytes_of_blocks(reader_varint(r));
        if (flags & CHUNK_HAS_KIND) {
                order = reader_varint(r);
                kind = reader_u8(r);
                c.form = kind & ((1u << STATUS_SHIFT) - 1);
                c.status = kind >> STATUS_SHIFT;
        }
        c.order = (uint16_t)order;
        /* If an entry fails although as many bytes as the longest entry has were available, more bytes cannot
         * make it valid. */
        if (r->failed)
                return left < CHUNK_ENTRY_MAX_BYTES ? MESSAGE_SHORT : MESSAGE_MALFORMED;
        if (flags & CHUNK_RESERVED || r->at - begin > CHUNK_ENTRY_MAX_BYTES || order > UINT16_MAX ||
            l1_more > UINT32_MAX || !chunk_is_possible(&c) || k->n == CHUNKS_MAX)
                return MESSAGE_MALFORMED;
        remember(k, &c);
        *ret = c;
        return MESSAGE_OK;
}

/* Inlined into each caller, so that cursor and context stay in registers. */
static _always_inline_ enum message_verdict decode_entry(struct chunk_context *k, struct reader *r,
                                                         struct chunk *ret, bool *ret_last)
{
        uint8_t flags;

        if (reader_left(r) == 0)
                return MESSAGE_SHORT;
        flags = *r->at;
        *ret_last = flags & CHUNK_IS_LAST;
        if (flags & (uint8_t)~CHUNK_IS_LAST)
                return decode_fields(k, r, ret);
        r->at++;
        return decode_plain(k, ret);
}

enum message_verdict chunk_decode(struct chunk_context *k, struct reader *r, struct chunk *ret,
                                  bool *ret_last)
{
        return decode_entry(k, r, ret, ret_last);
}

/* The header contains the low half of the cookie, and the check word covers the high half: both must
 * match. */
static uint32_t check_of(const uint8_t *bytes, size_t directory_bytes, uint64_t cookie)
{
        return message_check(bytes, CHECK_AT) ^
               message_check(bytes + FRAGMENTS_HEADER_BYTES, directory_bytes) ^ (uint32_t)(cookie >> 32);
}

void fragments_header_encode(const struct message_header *h, uint8_t *bytes, size_t directory_bytes)
{
        uint32_t sender = (uint32_t)h->sender_role << FRAGMENTS_INDEX_BITS | h->sender_index;
        uint32_t words[CHECK_AT / 4] = {
                htole32(FRAGMENTS_MAGIC | MESSAGE_VERSION << 8 | sender << 16),
                htole32((uint32_t)h->cookie),
                htole32(h->transaction),
                htole32(h->queued_bytes),
        };
        uint32_t check;

        memcpy(bytes, words, sizeof words);
        check = htole32(check_of(bytes, directory_bytes, h->cookie));
        memcpy(bytes + CHECK_AT, &check, sizeof check);
}

/* A datagram that is not a data message comes from another program or version, or was sent to the wrong
 * node. */
static enum message_verdict refuse(const uint8_t *bytes, size_t n, uint64_t cookie)
{
        struct message_header h;
        uint32_t check;
        enum message_verdict v = message_header_decode(&h, bytes, n, &check);

        if (v != MESSAGE_OK)
                return v;
        return h.cookie == cookie ? MESSAGE_MALFORMED : MESSAGE_OTHER_RUN;
}

static enum message_verdict decode_header(struct message_header *ret, const uint8_t *bytes, size_t n,
                                          uint64_t cookie, uint32_t *ret_check)
{
        struct reader r = reader_init(bytes, n);
        uint16_t sender;

        if (reader_u8(&r) != FRAGMENTS_MAGIC)
                return refuse(bytes, n, cookie);
        if (reader_u8(&r) != MESSAGE_VERSION && !r.failed)
                return MESSAGE_OTHER_VERSION;
        sender = reader_u16(&r);
        *ret = (struct message_header){
                .cookie = cookie,
                .sender_role = (enum node_role)(sender >> FRAGMENTS_INDEX_BITS),
                .sender_index = sender & ((1u << FRAGMENTS_INDEX_BITS) - 1),
                .type = MESSAGE_FRAGMENTS,
        };
        if (reader_u32(&r) != (uint32_t)cookie && !r.failed)
                return MESSAGE_OTHER_RUN;
        ret->transaction = reader_u32(&r);
        ret->queued_bytes = reader_u32(&r);
        *ret_check = reader_u32(&r);
        if (r.failed)
                return MESSAGE_SHORT;
        return ret->sender_role == ROLE_ROS && ret->sender_index < EVB_ROS_MAX ? MESSAGE_OK
                                                                               : MESSAGE_MALFORMED;
}

enum message_verdict chunk_reader_begin(struct chunk_reader *r, const uint8_t *bytes, size_t n,
                                        uint64_t cookie)
{
        uint32_t check;
        enum message_verdict v = decode_header(&r->header, bytes, n, cookie, &check);
        uint64_t payload_bytes = 0;
        struct chunk_context k;
        struct reader directory;
        bool last = false;

        if (v != MESSAGE_OK)
                return v;
        k = chunk_context_begin(r->header.sender_index);
        directory = reader_init(bytes + FRAGMENTS_HEADER_BYTES, n - FRAGMENTS_HEADER_BYTES);
        while (!last) {
                struct chunk *c = &r->chunks[k.n];

                v = decode_entry(&k, &directory, c, &last);
                if (v != MESSAGE_OK)
                        return v;
                payload_bytes += c->length;
        }
        r->head_bytes = (size_t)(directory.at - bytes);
        if (check != check_of(bytes, r->head_bytes - FRAGMENTS_HEADER_BYTES, cookie))
                return MESSAGE_MALFORMED;
        /* CHUNKS_MAX times EVB_FRAGMENT_MAX_BYTES fit. */
        r->header.payload_bytes = (uint32_t)payload_bytes;
        r->n = k.n;
        r->next = 0;
        r->payload = NULL;
        return MESSAGE_OK;
}

enum message_verdict chunk_reader_init(struct chunk_reader *r, const uint8_t *bytes, size_t n,
                                       uint64_t cookie)
{
        enum message_verdict v = chunk_reader_begin(r, bytes, n, cookie);

        if (v != MESSAGE_OK)
                return v;
        if (r->header.payload_bytes > n - r->head_bytes)
                return MESSAGE_SHORT;
        r->payload = bytes + r->head_bytes;
        return MESSAGE_OK;
}

bool chunk_reader_next(struct chunk_reader *r, struct chunk *ret, const uint8_t **ret_payload)
{
        if (r->next == r->n)
                return false;
        *ret = r->chunks[r->next++];
        *ret_payload = r->payload;
        if (r->payload)
                r->payload += ret->length;
        return true;
}

/* Divides fragments into data messages. Each datagram is filled to the last block while there are bytes to
 * send. Payload is referenced, never copied. */

static const uint8_t zeros[CHUNK_PADDING_MAX_BYTES];

/* Gather list of one datagram: head, chunks, padding. */
#define IOV_MAX_ONE (CHUNKS_MAX + 2)
/* Memory for each further datagram. Datagrams with many small chunks need more, so a batch may hold fewer. */
#define IOV_EACH 16u
#define HEAD_EACH_BYTES 64u

struct chunk_packer {
        size_t datagram_bytes, datagrams_max, limit;
        bool stream;
        struct chunk_datagram *datagrams;
        struct iovec *iov;
        uint8_t *heads; /* header and directory of each datagram */
        size_t n_iov, heads_bytes;
};

int chunk_packer_new(struct chunk_packer **ret, size_t datagram_bytes, size_t datagrams_max)
{
        _cleanup_free_ struct chunk_packer *p = NULL;

        if (datagram_bytes < FRAGMENTS_HEADER_BYTES + CHUNK_PADDING_MAX_BYTES || datagrams_max == 0)
                return -EINVAL;
        p = calloc(1, sizeof *p);
        if (!p)
                return -ENOMEM;
        p->n_iov = IOV_MAX_ONE + datagrams_max * IOV_EACH;
        p->heads_bytes = FRAGMENTS_HEAD_MAX_BYTES + datagrams_max * HEAD_EACH_BYTES;
        p->datagram_bytes = datagram_bytes;
        p->datagrams_max = p->limit = datagrams_max;
        p->datagrams = calloc(datagrams_max, sizeof *p->datagrams);
        p->iov = calloc(p->n_iov, sizeof *p->iov);
        p->heads = calloc(p->heads_bytes, 1);
        if (!p->datagrams || !p->iov || !p->heads) {
                chunk_packer_free(take_ptr(p));
                return -ENOMEM;
        }
        *ret = take_ptr(p);
        return 0;
}

void chunk_packer_set_stream(struct chunk_packer *p)
{
        p->stream = true;
}

void chunk_packer_set_datagram(struct chunk_packer *p, size_t bytes)
{
        p->datagram_bytes = bytes;
}

void chunk_packer_set_limit(struct chunk_packer *p, size_t datagrams)
{
        p->limit = MIN(datagrams, p->datagrams_max);
}

struct chunk_packer *chunk_packer_free(struct chunk_packer *p)
{
        if (!p)
                return NULL;
        free(p->datagrams);
        free(p->iov);
        free(p->heads);
        free(p);
        return NULL;
}

static void add(struct chunk_datagram *d, const void *bytes, size_t n)
{
        d->iov[d->n_iov++] = (struct iovec){.iov_base = (void *)bytes, .iov_len = n};
        d->size_bytes += (uint32_t)n;
}

/* Fills one datagram from job *job, whose bytes below *offset are already sent. Returns the payload bytes. */
static uint64_t fill(struct chunk_packer *p, struct chunk_datagram *d, const struct message_header *header,
                     const struct chunk_job *jobs, size_t n_jobs, size_t *job, uint32_t *offset)
{
        struct chunk_context k = chunk_context_begin(header->sender_index);
        struct iovec *head = &d->iov[0];
        uint64_t payload_bytes = 0;
        uint8_t *last = NULL;

        while (*job < n_jobs && k.n < CHUNKS_MAX) {
                const struct chunk_job *j = &jobs[*job];
                uint8_t *next = (uint8_t *)head->iov_base + head->iov_len;
                struct chunk c = j->chunk;
                size_t entry;

                c.offset = *offset;
                c.length = j->to_bytes - *offset;
                entry = chunk_encode_fit(&k, &c, p->datagram_bytes - d->size_bytes, next);
                if (entry == 0)
                        break;
                last = next;
                head->iov_len += entry;
                d->size_bytes += (uint32_t)entry;
                if (c.length > 0)
                        add(d, j->payload + *offset, c.length);
                payload_bytes += c.length;
                *offset += c.length;
                if (*offset < j->to_bytes)
                        break;
                (*job)++;
                *offset = *job < n_jobs ? jobs[*job].chunk.offset : 0;
        }
        assert(last);
        *last |= CHUNK_IS_LAST;
        d->jobs_done = (uint32_t)*job;
        d->next_offset = *offset;
        d->full = *job < n_jobs || d->size_bytes + CHUNK_PADDING_MAX_BYTES > p->datagram_bytes;
        return payload_bytes;
}

static bool has_memory(const struct chunk_packer *p, const struct iovec *iov, const uint8_t *head)
{
        return (size_t)(p->iov + p->n_iov - iov) >= IOV_MAX_ONE &&
               (size_t)(p->heads + p->heads_bytes - head) >= FRAGMENTS_HEAD_MAX_BYTES;
}

size_t chunk_pack(struct chunk_packer *p, const struct message_header *header, const struct chunk_job *jobs,
                  size_t n_jobs, const struct chunk_datagram **ret)
{
        size_t job = 0, n = 0;
        uint32_t offset = n_jobs > 0 ? jobs[0].chunk.offset : 0;
        uint64_t queued_bytes = header->queued_bytes;
        struct message_header h = *header;
        struct iovec *iov = p->iov;
        uint8_t *head = p->heads;

        for (; job < n_jobs && n < p->limit && has_memory(p, iov, head); n++) {
                struct chunk_datagram *d = &p->datagrams[n];
                uint64_t payload_bytes;
                size_t padding;

                *d = (struct chunk_datagram){.iov = iov};
                add(d, head, FRAGMENTS_HEADER_BYTES);
                payload_bytes = fill(p, d, &h, jobs, n_jobs, &job, &offset);
                queued_bytes -= MIN(payload_bytes, queued_bytes);
                h.queued_bytes = (uint32_t)queued_bytes;
                fragments_header_encode(&h, head, d->iov[0].iov_len - FRAGMENTS_HEADER_BYTES);
                h.transaction++;
                padding = p->datagram_bytes - d->size_bytes;
                if (!p->stream && job < n_jobs && padding > 0 && padding <= CHUNK_PADDING_MAX_BYTES)
                        add(d, zeros, padding);
                iov += d->n_iov;
                head += d->iov[0].iov_len;
        }
        *ret = p->datagrams;
        return n;
}
