/* A ROS that sends pattern fragments to the data socket of an SFI, and an SFI's socket, for tests. */
#pragma once

#include "../test.h"

#include "base/pattern.h"
#include "base/util.h"
#include "net/endpoint.h"
#include "protocol/chunk.h"

#define FRAGMENT_SEED 5
#define FRAGMENT_MAX_BYTES 65536u
/* Of all jobs of one call. */
#define FRAGMENT_DATAGRAMS 64

struct fragment_sender {
        struct endpoint *endpoint;
        struct chunk_packer *packer;
        struct message_header header;
        struct net_address to;
        uint8_t payload[FRAGMENT_MAX_BYTES];
};

static inline struct net_address fragment_address(const char *text, uint16_t port)
{
        struct net_address a;

        assert_int_equal(net_address_parse(&a, text, port), 0);
        return a;
}

static inline void fragment_sender_open(struct fragment_sender *s, uint16_t ros, const char *from,
                                        const struct net_address *to, uint64_t cookie)
{
        struct udp_config config = {.local = fragment_address(from, 0), .send_buffer_bytes = 4u << 20};

        *s = (struct fragment_sender){.to = *to};
        s->header = (struct message_header){
                .cookie = cookie, .sender_role = ROLE_ROS, .sender_index = ros, .type = MESSAGE_FRAGMENTS};
        assert_int_equal(endpoint_new_udp(&s->endpoint, &config), 0);
        assert_int_equal(chunk_packer_new(&s->packer, 1472, FRAGMENT_DATAGRAMS), 0);
}

static inline void fragment_sender_close(struct fragment_sender *s)
{
        endpoint_free(s->endpoint);
        chunk_packer_free(s->packer);
}

static inline void fragment_send_bytes(struct fragment_sender *s, const struct iovec *iov, uint32_t n_iov,
                                       uint32_t size_bytes)
{
        struct outgoing out = {iov, n_iov, size_bytes, &s->to, 0};

        while (endpoint_send(s->endpoint, &out, 1) == 0)
                ; /* the send buffer is full, which lasts until the kernel has delivered what is in it */
}

/* Sends the fragments of `n` consecutive events, each of them as large; returns the number of datagrams. */
static inline uint32_t fragment_send(struct fragment_sender *s, uint64_t event, uint32_t n, uint32_t bytes)
{
        struct chunk_job jobs[CHUNKS_MAX] = {};
        const struct chunk_datagram *d;
        size_t k;

        assert_true(n <= CHUNKS_MAX && (uint64_t)n * bytes <= sizeof s->payload);
        for (uint32_t i = 0; i < n; i++) {
                uint64_t key = pattern_key(FRAGMENT_SEED, s->header.sender_index, event + i);

                pattern_fill(key, s->payload + (size_t)i * bytes, 0, bytes);
                jobs[i] = (struct chunk_job){
                        .chunk = {.event = event + i,
                                  .l1_id = (uint32_t)(event + i),
                                  .fragment_bytes = bytes},
                        .to_bytes = bytes,
                        .payload = s->payload + (size_t)i * bytes,
                };
        }
        k = chunk_pack(s->packer, &s->header, jobs, n, &d);
        assert_int_equal(d[k - 1].jobs_done, n);
        for (size_t i = 0; i < k; i++)
                fragment_send_bytes(s, d[i].iov, d[i].n_iov, d[i].size_bytes);
        s->header.transaction += (uint32_t)k;
        return (uint32_t)k;
}

/* Makes the bytes of a datagram with one small fragment; returns their number. */
static inline uint32_t fragment_make(struct fragment_sender *s, uint64_t event, uint8_t bytes[static 1472])
{
        struct chunk_job job = {
                .chunk = {.event = event, .l1_id = (uint32_t)event, .fragment_bytes = 8},
                .to_bytes = 8,
                .payload = s->payload,
        };
        const struct chunk_datagram *d;
        uint32_t at = 0;

        pattern_fill(pattern_key(FRAGMENT_SEED, s->header.sender_index, event), s->payload, 0, 8);
        assert_int_equal(chunk_pack(s->packer, &s->header, &job, 1, &d), 1);
        for (uint32_t i = 0; i < d->n_iov; at += (uint32_t)d->iov[i++].iov_len)
                memcpy(bytes + at, d->iov[i].iov_base, d->iov[i].iov_len);
        return at;
}
