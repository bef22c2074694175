/* Receives fragments over UDP: splits batches of datagrams into chunks, reserves their bytes in the SFI's
 * buffer, copies each payload once, and commits it. All in the event loop; receive/data_receive_threads.c
 * receives in threads. */
#include <errno.h>
#include <sys/epoll.h>

#include "base/log.h"
#include "base/util.h"
#include "data/network.h"
#include "data/socket_open.h"
#include "net/injected_faults.h"
#include "receive/fragments.h"

#define DATAGRAMS 512
#define CHUNKS 1024
/* Batches per turn, before the node handles control messages and timers. */
#define ROUNDS 8

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

static void is_ready(void *ctx, uint32_t events)
{
        (void)events;
        ((struct udp_receiver *)ctx)->ready = true;
}

static int udp_open(struct data_receiver *r)
{
        const struct scenario *s = r->context.scenario;
        struct fault_config faults = network_fault_config(s, r->context.self, 2);
        struct udp_receiver *u = calloc(1, sizeof *u);
        struct udp_config config = fragments_socket(r);
        int k;

        if (!u)
                return log_error_errno(ENOMEM, "data socket: %m");
        r->state = u;
        k = network_node_address(&config.local, r->context.self, (uint16_t)s->network.data_port);
        if (k < 0)
                return k;
        k = faults_new(&u->faults, &faults);
        if (k < 0)
                return log_error_errno(k, "data socket: %m");
        k = socket_open_udp(&u->endpoint, &config, "fragments");
        if (k < 0)
                return k;
        fragments_note_granted(r, u->endpoint->granted_receive_bytes);
        u->io = (struct loop_io){.fd = u->endpoint->fd, .events = EPOLLIN, .ready = is_ready, .ctx = u};
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

static void store(struct data_receiver *r, struct udp_receiver *u, uint64_t now_ns)
{
        fragments_store(r, now_ns, u->chunks, u->payload, u->n);
        u->n = 0;
}

static void take(struct data_receiver *r, struct udp_receiver *u, const struct datagram *d, uint64_t now_ns)
{
        struct chunk_reader reader;
        enum message_verdict v = fragments_check(r->context.nodes, sfi_member(r->core)->cookie, d, &reader);

        stats_count_refusal(r->context.stats, v);
        if (v != MESSAGE_OK)
                return;
        if (sfi_count_datagram(r->core, reader.header.sender_index, reader.header.transaction))
                sfi_note_queued(r->core, now_ns, reader.header.sender_index, reader.header.queued_bytes);
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
                        take(r, u, &u->datagrams[i], now_ns);
                store(r, u, now_ns);
                if (n == 0)
                        u->ready = false;
        }
        *ret_more = u->ready;
        return 0;
}

static uint64_t udp_room(const struct data_receiver *r)
{
        return fragments_room_bytes(((struct udp_receiver *)r->state)->endpoint->granted_receive_bytes);
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
