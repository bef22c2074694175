/* What every receiver of fragments by UDP does with a datagram and its chunks. */
#pragma once

#include <string.h>

#include "data/data_receive.h"
#include "net/endpoint.h"
#include "protocol/chunk.h"

/* The data socket of the SFI, without its address. */
struct udp_config fragments_socket(const struct data_receiver *r);
/* Logs and publishes the receive buffer that the kernel grants to a data socket. */
void fragments_note_granted(struct data_receiver *r, uint64_t granted_bytes);
/* The part of it that takes datagrams. */
uint64_t fragments_room_bytes(uint64_t granted_bytes);

/* The functions below are inline because they are called for each datagram. */

/* Checks a datagram for the run with this cookie, and that the ROS that it names has sent it. After
 * MESSAGE_OK, `r` reads its chunks. Any thread. */
static inline enum message_verdict fragments_check(const struct address_book *nodes, uint64_t cookie,
                                                   const struct datagram *d, struct chunk_reader *r)
{
        enum message_verdict v = chunk_reader_init(r, d->bytes, d->size_bytes, cookie);

        if (v == MESSAGE_OK && !address_book_is_host(nodes, ROLE_ROS, r->header.sender_index, d->from))
                v = MESSAGE_FOREIGN;
        return v;
}

/* Reserves, copies and commits the payload of chunks. The thread of the core. */
static inline void fragments_store(struct data_receiver *r, uint64_t now_ns, struct sfi_chunk *chunks,
                                   const uint8_t *const *payload, size_t n)
{
        sfi_reserve(r->core, now_ns, chunks, n);
        for (size_t i = 0; i < n; i++) {
                const struct sfi_chunk *c = &chunks[i];

                if (c->verdict == SFI_STORE && c->chunk.length > 0)
                        memcpy(r->buffer + c->at, payload[i], c->chunk.length);
        }
        sfi_commit(r->core, now_ns, chunks, n);
}
