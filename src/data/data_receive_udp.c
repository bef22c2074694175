/* Receives fragments over UDP: splits batches of datagrams into chunks, reserves their bytes in the SFI's
 * buffer, copies each payload once, and commits it. All in the event loop. */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/log.h"
#include "base/util.h"
#include "data/data_receive.h"
#include "data/network.h"
#include "data/socket_open.h"
#include "net/injected_faults.h"
#include "protocol/chunk.h"

#define DATAGRAMS 512
#define CHUNKS 1024
/* Number of batches per turn, before the node handles control messages and timers. */
#define ROUNDS 8
/* Default of network.receive-buffer: the 2003 measurements used 8 MB. */
#define RECEIVE_BUFFER_BYTES (8u << 20)

struct udp_receiver {
        struct endpoint *endpoint;
        struct faults *faults;
        struct loop_io io;
        bool ready;
        struct datagram datagrams[DATAGRAMS];
        struct sfi_chunk chunks[CHUNKS];
        const uint8_t *payload[CHUNKS];
        size_t n;
};

static int udp_open(struct data_receiver *r)
{
        const struct scenario *s = r->context.scenario;
        struct fault_config faults = network_fault_config(s, r->context.self, 2);
        struct udp_receiver *u = calloc(1, sizeof *u);
        uint64_t buffer_bytes = s->network.socket_buffer_bytes ?: RECEIVE_BUFFER_BYTES;
        struct udp_config config = {
                .receive_buffer_bytes = buffer_bytes,
                .device = r->context.self->device,
        };
        int k;

        if (!u)
                return log_error_errno(ENOMEM, "data socket: %m");
        r->state = u;
        k = network_node_address(&config.local, r->context.self, scenario_data_port(s));
        if (k < 0)
                return k;
        k = faults_new(&u->faults, &faults);
        if (k < 0)
                return log_error_errno(k, "data socket: %m");
        k = socket_open_udp(&u->endpoint, &config, "fragments");
        if (k < 0)
                return k;
        socket_log_buffer(SOCKET_RECEIVE, "fragments", s->network.socket_buffer_bytes > 0, buffer_bytes,
                          u->endpoint->granted_receive_bytes);
        stats_set(&r->context.stats->granted_receive_buffer_bytes, u->endpoint->granted_receive_bytes);
        u->io = (struct loop_io){
                .fd = u->endpoint->fd, .events = EPOLLIN, .ready = loop_set_flag, .ctx = &u->ready};
        return loop_add(r->context.loop, &u->io);
}

static void udp_close(struct data_receiver *r)
{
        struct udp_receiver *u = r->state;

        if (!u)
                return;
        endpoint_free(u->endpoint);
        faults_free(u->faults);
        free(u);
}

/* Reserves, copies and commits the payload of the chunks. */
static void store(struct data_receiver *r, struct udp_receiver *u, uint64_t now_ns)
{
        sfi_reserve(r->core, now_ns, u->chunks, u->n);
        for (size_t i = 0; i < u->n; i++) {
                const struct sfi_chunk *c = &u->chunks[i];

                if (c->verdict == SFI_STORE && c->chunk.length > 0)
                        memcpy(r->buffer + c->at, u->payload[i], c->chunk.length);
        }
        sfi_commit(r->core, now_ns, u->chunks, u->n);
        u->n = 0;
}

static void receive_datagram(struct data_receiver *r, struct udp_receiver *u, const struct datagram *d,
                             uint64_t now_ns)
{
        struct chunk_reader reader;
        enum message_verdict v =
                chunk_reader_init(&reader, d->bytes, d->size_bytes, sfi_member(r->core)->cookie);

        /* The sender must be the ROS that the message names. */
        if (v == MESSAGE_OK &&
            !address_book_is_host(r->context.nodes, ROLE_ROS, reader.header.sender_index, d->from))
                v = MESSAGE_FOREIGN;
        stats_count_refusal(r->context.stats, v);
        if (v != MESSAGE_OK)
                return;
        if (sfi_count_datagram(r->core, reader.header.sender_index, reader.header.transaction))
                sfi_record_queued(r->core, now_ns, reader.header.sender_index, reader.header.queued_bytes);
        while (chunk_reader_next(&reader, &u->chunks[u->n].chunk, &u->payload[u->n])) {
                u->chunks[u->n].source = reader.header.sender_index;
                if (++u->n == CHUNKS)
                        store(r, u, now_ns);
        }
}

static int udp_turn(struct data_receiver *r, uint64_t now_ns, bool *ret_more)
{
        struct udp_receiver *u = r->state;

        for (int round = 0; round < ROUNDS && (u->ready || faults_are_holding(u->faults)); round++) {
                int n = faults_receive(u->faults, u->endpoint, u->datagrams, DATAGRAMS);

                if (n < 0)
                        return log_error_errno(n, "receiving fragments: %m");
                for (int i = 0; i < n; i++)
                        receive_datagram(r, u, &u->datagrams[i], now_ns);
                store(r, u, now_ns);
                if (n == 0 || (u->endpoint->drained && !u->faults))
                        u->ready = false;
        }
        *ret_more = u->ready;
        return 0;
}

static uint64_t udp_room(const struct data_receiver *r)
{
        /* The kernel charges its own bookkeeping of each packet to the granted bytes. */
        return ((struct udp_receiver *)r->state)->endpoint->granted_receive_bytes / 4 * 3;
}

static bool udp_is_holding(const struct data_receiver *r)
{
        return faults_are_holding(((struct udp_receiver *)r->state)->faults);
}

static void udp_account(struct data_receiver *r)
{
        struct udp_receiver *u = r->state;

        stats_set(&r->context.stats->packets_socket_dropped, endpoint_counts(u->endpoint)->dropped);
}

const struct data_receiver_ops data_receive_udp = {
        .open = udp_open,
        .turn = udp_turn,
        .room_bytes = udp_room,
        .is_holding = udp_is_holding,
        .account = udp_account,
        .close = udp_close,
};
