/* Divides fragments into data messages. Each datagram is filled to the last block while there are bytes to
 * send. Payload is referenced, never copied. */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/util.h"
#include "protocol/chunk.h"

static const uint8_t zeros[CHUNK_PADDING_MAX_BYTES];

/* Gather list of one datagram: head, chunks, padding. */
#define IOV_MAX_ONE (CHUNKS_MAX + 2)
/* Memory for each further datagram. Those of many small chunks take more, so a batch may have fewer. */
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
