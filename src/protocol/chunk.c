/* Divides fragments into chunks and data datagrams, and reads them back. Payload is referenced, never
 * copied. */
#include "evb/protocol/chunk.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "evb/base/cursor.h"
#include "evb/base/util.h"

#define CHECK_BYTES_AT 28
/* The shortest part of a fragment that is worth a chunk header. A datagram with less room is closed. */
#define CHUNK_MIN_BYTES EVB_BLOCK_BYTES
#define PADDING_MAX_BYTES (CHUNK_HEADER_BYTES + EVB_BLOCK_BYTES)

static const uint8_t zeros[PADDING_MAX_BYTES];

void chunk_encode(const struct chunk *c, uint8_t bytes[static CHUNK_HEADER_BYTES])
{
        struct writer w = writer_init(bytes, CHUNK_HEADER_BYTES);

        writer_u64(&w, c->event);
        writer_u32(&w, c->l1_id);
        writer_u32(&w, c->fragment_bytes);
        writer_u32(&w, c->offset);
        writer_u32(&w, c->length);
        writer_u16(&w, c->order);
        writer_u8(&w, c->form);
        writer_u8(&w, c->status);
        writer_u32(&w, message_check(bytes, CHECK_BYTES_AT));
}

static bool chunk_is_possible(const struct chunk *c)
{
        if (c->event == UINT64_MAX || c->fragment_bytes > EVB_FRAGMENT_MAX_BYTES || c->form > FORM_ROS3 ||
            c->status >= FRAGMENT_STATUSES)
                return false;
        if (c->offset > c->fragment_bytes || c->length > c->fragment_bytes - c->offset)
                return false;
        if (c->length == 0)
                return c->fragment_bytes == 0;
        return c->offset % EVB_BLOCK_BYTES == 0 &&
               (c->length % EVB_BLOCK_BYTES == 0 || c->offset + c->length == c->fragment_bytes);
}

bool chunk_decode(struct chunk *ret, const uint8_t bytes[static CHUNK_HEADER_BYTES])
{
        struct reader r = reader_init(bytes, CHUNK_HEADER_BYTES);

        ret->event = reader_u64(&r);
        ret->l1_id = reader_u32(&r);
        ret->fragment_bytes = reader_u32(&r);
        ret->offset = reader_u32(&r);
        ret->length = reader_u32(&r);
        ret->order = reader_u16(&r);
        ret->form = reader_u8(&r);
        ret->status = reader_u8(&r);
        return reader_u32(&r) == message_check(bytes, CHECK_BYTES_AT) && chunk_is_possible(ret);
}

enum message_verdict chunk_reader_init(struct chunk_reader *r, const uint8_t *bytes, size_t n,
                                       uint64_t cookie)
{
        uint32_t check;
        enum message_verdict v = message_header_decode(&r->header, bytes, n, &check);

        if (v != MESSAGE_OK)
                return v;
        if (r->header.cookie != cookie)
                return MESSAGE_OTHER_RUN;
        if (r->header.type != MESSAGE_FRAGMENTS || r->header.sender_role != ROLE_ROS || check != 0)
                return MESSAGE_MALFORMED;
        if (r->header.payload_bytes > n - MESSAGE_HEADER_BYTES)
                return MESSAGE_SHORT;
        r->at = bytes + MESSAGE_HEADER_BYTES;
        r->end = r->at + r->header.payload_bytes;
        r->malformed = false;
        return MESSAGE_OK;
}

bool chunk_reader_next(struct chunk_reader *r, struct chunk *ret, const uint8_t **ret_payload)
{
        size_t left = (size_t)(r->end - r->at);

        if (left == 0)
                return false;
        if (left < CHUNK_HEADER_BYTES || !chunk_decode(ret, r->at) ||
            ret->length > left - CHUNK_HEADER_BYTES) {
                r->malformed = true;
                r->at = r->end;
                return false;
        }
        *ret_payload = r->at + CHUNK_HEADER_BYTES;
        r->at += CHUNK_HEADER_BYTES + ret->length;
        return true;
}

struct chunk_packer {
        size_t datagram_bytes, datagrams_max, limit;
        bool stream;
        size_t iov_max; /* entries for one datagram: header, two per chunk, padding */
        struct chunk_datagram *datagrams;
        struct iovec *iov;
        uint8_t *headers; /* all headers of a datagram in sequence */
        size_t headers_bytes;
};

int chunk_packer_new(struct chunk_packer **ret, size_t datagram_bytes, size_t datagrams_max)
{
        _cleanup_free_ struct chunk_packer *p = NULL;

        if (datagram_bytes < MESSAGE_HEADER_BYTES + CHUNK_HEADER_BYTES + EVB_BLOCK_BYTES ||
            datagrams_max == 0)
                return -EINVAL;
        p = calloc(1, sizeof *p);
        if (!p)
                return -ENOMEM;
        size_t chunks_max = (datagram_bytes - MESSAGE_HEADER_BYTES) / CHUNK_HEADER_BYTES;

        /* A fragment without bytes is a chunk header alone, but the gather list of a system call is bounded.
         */
        p->iov_max = 2 * MIN(chunks_max, (size_t)255) + 2;
        p->headers_bytes = MESSAGE_HEADER_BYTES + p->iov_max / 2 * CHUNK_HEADER_BYTES;
        p->datagram_bytes = datagram_bytes;
        p->datagrams_max = p->limit = datagrams_max;
        p->datagrams = calloc(datagrams_max, sizeof *p->datagrams);
        p->iov = calloc(datagrams_max * p->iov_max, sizeof *p->iov);
        p->headers = calloc(datagrams_max, p->headers_bytes);
        if (!p->datagrams || !p->iov || !p->headers) {
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
        free(p->headers);
        free(p);
        return NULL;
}

/* How many bytes of `wanted` fit into `room` after the chunk header. SIZE_MAX: none; close the datagram. */
static size_t chunk_bytes(size_t wanted, size_t room)
{
        if (room < CHUNK_HEADER_BYTES)
                return SIZE_MAX;
        room -= CHUNK_HEADER_BYTES;
        if (wanted <= room)
                return wanted;
        room -= room % EVB_BLOCK_BYTES;
        return room >= CHUNK_MIN_BYTES ? room : SIZE_MAX;
}

static void add(struct chunk_datagram *d, const void *bytes, size_t n)
{
        d->iov[d->n_iov++] = (struct iovec){.iov_base = (void *)bytes, .iov_len = n};
        d->size_bytes += (uint32_t)n;
}

/* The chunk header follows the other headers of the datagram. If only headers precede it, one iovec holds
 * both. */
static void add_header(struct chunk_datagram *d, const struct chunk *c, uint8_t *at)
{
        struct iovec *last = &d->iov[d->n_iov - 1];

        chunk_encode(c, at);
        if ((uint8_t *)last->iov_base + last->iov_len == at) {
                last->iov_len += CHUNK_HEADER_BYTES;
                d->size_bytes += CHUNK_HEADER_BYTES;
        } else
                add(d, at, CHUNK_HEADER_BYTES);
}

/* Fills one datagram from job *job, whose bytes below *offset are already sent. */
static void fill(struct chunk_packer *p, struct chunk_datagram *d, const struct chunk_job *jobs,
                 size_t n_jobs, size_t *job, uint32_t *offset)
{
        uint8_t *headers = d->iov[0].iov_base, *at = headers + MESSAGE_HEADER_BYTES;

        while (*job < n_jobs && d->n_iov + 3 <= p->iov_max) {
                const struct chunk_job *j = &jobs[*job];
                size_t n = chunk_bytes(j->to_bytes - *offset, p->datagram_bytes - d->size_bytes);

                if (n == SIZE_MAX)
                        break;
                struct chunk c = j->chunk;
                c.offset = *offset;
                c.length = (uint32_t)n;
                add_header(d, &c, at);
                at += CHUNK_HEADER_BYTES;
                if (n > 0)
                        add(d, j->payload + *offset, n);
                *offset += (uint32_t)n;
                if (*offset < j->to_bytes)
                        break;
                (*job)++;
                *offset = *job < n_jobs ? jobs[*job].chunk.offset : 0;
        }
        d->jobs_done = (uint32_t)*job;
        d->next_offset = *offset;
}

size_t chunk_pack(struct chunk_packer *p, const struct message_header *header, const struct chunk_job *jobs,
                  size_t n_jobs, const struct chunk_datagram **ret)
{
        size_t job = 0, n = 0;
        uint32_t offset = n_jobs > 0 ? jobs[0].chunk.offset : 0;
        struct message_header h = *header;

        for (; job < n_jobs && n < p->limit; n++) {
                struct chunk_datagram *d = &p->datagrams[n];

                *d = (struct chunk_datagram){.iov = p->iov + n * p->iov_max};
                add(d, p->headers + n * p->headers_bytes, MESSAGE_HEADER_BYTES);
                fill(p, d, jobs, n_jobs, &job, &offset);
                assert(d->size_bytes > MESSAGE_HEADER_BYTES);

                h.payload_bytes = d->size_bytes - MESSAGE_HEADER_BYTES;
                message_header_encode(&h, d->iov[0].iov_base, 0);
                h.transaction++;
                size_t padding = p->datagram_bytes - d->size_bytes;
                if (!p->stream && job < n_jobs && padding > 0 && padding <= PADDING_MAX_BYTES)
                        add(d, zeros, padding);
        }
        *ret = p->datagrams;
        return n;
}
