/* Receives fragments over TCP. The payload goes from the socket directly to its reserved bytes in the SFI's
 * buffer. Each ROS opens one connection, introduces itself, and receives requests on it. Connections of
 * foreign senders are closed, and do not delay any ROS. */
#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/log.h"
#include "base/util.h"
#include "data/data_receive.h"
#include "data/network.h"
#include "data/socket_open.h"
#include "net/tcp.h"

#define STAGING_BYTES (128u << 10)
#define REQUESTS_BYTES (64u << 10)
/* Number of connections in addition to one per ROS, for peers that have not introduced themselves. If all are
 * in use, a new connection replaces the oldest such peer. */
#define SPARE 8
/* Maximum number of connections accepted per turn. If more than SPARE were accepted, a new peer could be
 * replaced before it is read. */
#define ACCEPTS_MAX SPARE
#define INTRODUCTION_NS (10 * NS_PER_S)
#define ROOM_BYTES (16u << 20)
/* Bytes read from one connection before the next one is served. */
#define TURN_BYTES (4u << 20)
/* Number of bytes that a step counts in addition to the payload that it read. */
#define STEP_BYTES 32

struct tcp_peer {
        struct data_receiver *receiver;
        struct loop_io io; /* fd -1: unused */
        bool ready;
        int ros; /* -1: the peer has not introduced itself yet; never changes afterwards */
        struct net_address from;
        uint64_t since_ns, number; /* when the connection was accepted, and its serial number */
        struct tcp_reader reader;
        /* The chunks of a data message, reserved together. Their bytes arrive in order: the chunks before
         * `at` are complete, and `arrived_bytes` of the next one have arrived. */
        struct sfi_chunk chunks[CHUNKS_MAX];
        uint32_t n_committed, at, n_chunks;
        size_t arrived_bytes;
        /* Encoded requests that are not sent yet. */
        uint8_t *requests;
        size_t n_requests;
        bool refused; /* `requests` had no room for a request */
};

struct tcp_receiver {
        int listener;
        struct loop_io io;
        bool ready;
        struct tcp_peer *peers;
        size_t n_peers;
        int *of_ros; /* index of the peer; -1: none */
        uint64_t accepted;
        uint64_t foreign_sender_ns; /* when the last foreign sender connected; 0: never */
        /* Scratch, which is used only until something else is read. */
        struct message message;
        struct chunk_reader chunks;
        struct iovec places[CHUNKS_MAX + 1];
        uint8_t discarded[65536];
};

static void flush_requests(struct tcp_peer *p);

static void peer_is_ready(void *ctx, uint32_t events)
{
        struct tcp_peer *p = ctx;

        p->ready |= (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0;
        if (events & EPOLLOUT)
                flush_requests(p);
}

static int allocate(struct data_receiver *r, struct tcp_receiver *t)
{
        const struct scenario *s = r->context.scenario;

        t->n_peers = s->ros.count + SPARE;
        t->peers = calloc(t->n_peers, sizeof *t->peers);
        t->of_ros = calloc(s->ros.count, sizeof *t->of_ros);
        if (!t->peers || !t->of_ros)
                return log_error_errno(ENOMEM, "data connections: %m");
        for (size_t i = 0; i < t->n_peers; i++)
                t->peers[i] = (struct tcp_peer){.receiver = r, .io.fd = -1, .ros = -1};
        for (size_t i = 0; i < s->ros.count; i++)
                t->of_ros[i] = -1;
        return 0;
}

static int tcp_open(struct data_receiver *r)
{
        const struct scenario *s = r->context.scenario;
        struct tcp_receiver *t = calloc(1, sizeof *t);
        struct net_address local;
        int k;

        if (!t)
                return log_error_errno(ENOMEM, "data connections: %m");
        r->state = t;
        t->listener = -1;
        k = allocate(r, t);
        if (k >= 0)
                k = network_node_address(&local, r->context.self, scenario_data_port(s));
        if (k < 0)
                return k;
        t->listener = socket_open_listener(&local, s->network.socket_buffer_bytes, "data connections");
        if (t->listener < 0)
                return t->listener;
        socket_poll_busily(t->listener);
        socket_mark(t->listener, s->network.data_dscp);
        t->io = (struct loop_io){
                .fd = t->listener, .events = EPOLLIN, .ready = loop_set_flag, .ctx = &t->ready};
        return loop_add(r->context.loop, &t->io);
}

static void drop_peer(struct tcp_peer *p)
{
        struct tcp_receiver *t = p->receiver->state;

        if (p->io.fd < 0)
                return;
        loop_remove(p->receiver->context.loop, &p->io);
        close(p->io.fd);
        tcp_reader_fini(&p->reader);
        free(p->requests);
        if (p->ros >= 0 && t->of_ros[p->ros] == p - t->peers)
                t->of_ros[p->ros] = -1;
        *p = (struct tcp_peer){.receiver = p->receiver, .io.fd = -1, .ros = -1};
}

static void tcp_close(struct data_receiver *r)
{
        struct tcp_receiver *t = r->state;

        if (!t)
                return;
        for (size_t i = 0; t->peers && i < t->n_peers; i++)
                drop_peer(&t->peers[i]);
        if (t->listener >= 0)
                close(t->listener);
        free(t->peers);
        free(t->of_ros);
        free(t);
}

/* Counts a connection that does not belong to a ROS. */
static void log_foreign_sender(struct data_receiver *r, const struct net_address *from, const char *why)
{
        struct tcp_receiver *t = r->state;
        char text[NET_ADDRESS_TEXT_MAX];

        stats_add(&r->context.stats->packets_foreign, 1);
        if (log_is_new_fault(&t->foreign_sender_ns, clock_now_ns()))
                log_warning("closed the data connection from %s: %s; further ones are only counted until "
                            "none comes for 10 s",
                            net_address_format(from, text), why);
}

/* Never fails: at most one connection per ROS is introduced, so a spare one exists. */
static struct tcp_peer *free_peer(struct data_receiver *r)
{
        struct tcp_receiver *t = r->state;
        struct tcp_peer *oldest = NULL;

        for (struct tcp_peer *p = t->peers; p < t->peers + t->n_peers; p++) {
                if (p->io.fd < 0)
                        return p;
                if (p->ros < 0 && (!oldest || p->number < oldest->number))
                        oldest = p;
        }
        assert(oldest);
        log_foreign_sender(r, &oldest->from, "it did not introduce itself, and newer connections replace it");
        drop_peer(oldest);
        return oldest;
}

static void publish_granted(struct data_receiver *r, int fd)
{
        uint64_t requested = r->context.scenario->network.socket_buffer_bytes,
                 granted = tcp_granted_bytes(fd, false);

        stats_set(&r->context.stats->granted_receive_buffer_bytes, granted);
        socket_log_buffer(SOCKET_RECEIVE, "data connections", true, requested, granted);
}

static void accept_one(struct data_receiver *r, int fd, const struct net_address *from, uint64_t now_ns)
{
        struct tcp_receiver *t = r->state;
        struct tcp_peer *p;

        if (!address_book_has_ros(r->context.nodes, from)) {
                log_foreign_sender(r, from, "the scenario has no ROS with this address");
                close(fd);
                return;
        }
        p = free_peer(r);
        p->io = (struct loop_io){.fd = fd, .events = EPOLLIN, .ready = peer_is_ready, .ctx = p};
        p->from = *from;
        p->since_ns = now_ns;
        p->number = t->accepted++;
        p->ready = true;
        tcp_notice_silence(fd);
        p->requests = malloc(REQUESTS_BYTES);
        if (!p->requests || tcp_reader_init(&p->reader, fd, STAGING_BYTES) < 0 ||
            loop_add(r->context.loop, &p->io) < 0)
                drop_peer(p);
        else
                publish_granted(r, fd);
}

/* Returns negative errno if no ROS can connect any more. */
static int accept_some(struct data_receiver *r, struct tcp_receiver *t, uint64_t now_ns)
{
        struct net_address from;

        for (int i = 0; i < ACCEPTS_MAX; i++) {
                int fd = tcp_accept(t->listener, r->context.scenario->network.socket_buffer_bytes, &from);

                t->ready = fd >= 0;
                if (fd == -EINVAL)
                        return log_error_errno(ECONNABORTED,
                                               "data connections: another program closed the port");
                if (fd < 0)
                        break;
                /* For its priority, which it does not inherit. */
                socket_mark(fd, r->context.scenario->network.data_dscp);
                accept_one(r, fd, &from, now_ns);
        }
        return 0;
}

/* The functions below return 1 after progress, 0 if more bytes are needed, and a negative errno if the
 * connection must be closed. */
static int refuse(struct tcp_peer *p, enum message_verdict verdict)
{
        stats_count_refusal(p->receiver->context.stats, verdict);
        return -EPROTO;
}

/* The introduction of a peer is final. It replaces an older connection of the same ROS, which must be
 * dead. */
static int know_peer(struct tcp_peer *p, uint64_t now_ns, uint16_t ros)
{
        struct tcp_receiver *t = p->receiver->state;

        if (p->ros == ros)
                return 1;
        if (p->ros >= 0)
                return refuse(p, MESSAGE_MALFORMED);
        if (!address_book_is_host(p->receiver->context.nodes, ROLE_ROS, ros, &p->from)) {
                log_foreign_sender(p->receiver, &p->from,
                                   "it introduced itself as a ROS with another address");
                return -EPROTO;
        }
        if (t->of_ros[ros] >= 0)
                drop_peer(&t->peers[t->of_ros[ros]]);
        p->ros = ros;
        t->of_ros[ros] = (int)(p - t->peers);
        sfi_record_connected(p->receiver->core, now_ns, ros);
        return 1;
}

static int stage(struct tcp_peer *p, size_t wanted)
{
        size_t n;

        while (tcp_reader_bytes(&p->reader, &n), n < wanted) {
                ssize_t got = p->reader.drained ? 0 : tcp_reader_fill(&p->reader);

                if (got <= 0)
                        return (int)got;
        }
        return 1;
}

static int receive_control(struct tcp_peer *p, const struct message_header *h, uint64_t now_ns)
{
        struct tcp_receiver *t = p->receiver->state;
        size_t size = MESSAGE_HEADER_BYTES + (size_t)h->payload_bytes, n;
        enum message_verdict v;
        int r;

        if (size > STAGING_BYTES / 2)
                return refuse(p, MESSAGE_MALFORMED);
        r = stage(p, size);
        if (r <= 0)
                return r;
        v = message_decode(&t->message, tcp_reader_bytes(&p->reader, &n), size);
        if (v != MESSAGE_OK)
                return refuse(p, v);
        sfi_receive(p->receiver->core, now_ns, &t->message);
        tcp_reader_consume(&p->reader, size);
        return 1;
}

/* Receives a message other than Fragments. */
static int receive_header(struct tcp_peer *p, uint64_t now_ns)
{
        const struct data_context *c = &p->receiver->context;
        struct message_header h;
        enum message_verdict v;
        uint32_t check;
        size_t staged;
        int r = stage(p, MESSAGE_HEADER_BYTES);

        if (r <= 0)
                return r;
        const uint8_t *bytes = tcp_reader_bytes(&p->reader, &staged);
        v = message_header_decode(&h, bytes, staged, &check);
        if (v == MESSAGE_OK && h.cookie != sfi_member(p->receiver->core)->cookie)
                v = MESSAGE_OTHER_RUN;
        if (v == MESSAGE_OK && (h.sender_role != ROLE_ROS || h.sender_index >= c->scenario->ros.count))
                v = MESSAGE_MALFORMED;
        r = v != MESSAGE_OK ? refuse(p, v) : know_peer(p, now_ns, h.sender_index);
        return r < 0 ? r : receive_control(p, &h, now_ns);
}

static void commit_chunks(struct tcp_peer *p, uint64_t now_ns)
{
        sfi_commit(p->receiver->core, now_ns, p->chunks + p->n_committed, p->at - p->n_committed);
        p->n_committed = p->at;
}

static void reserve_chunks(struct tcp_peer *p, uint64_t now_ns, struct chunk_reader *chunks)
{
        const uint8_t *none;

        commit_chunks(p, now_ns);
        p->n_committed = p->at = 0;
        for (p->n_chunks = 0; p->n_chunks < chunks->n; p->n_chunks++) {
                chunk_reader_next(chunks, &p->chunks[p->n_chunks].chunk, &none);
                p->chunks[p->n_chunks].source = (uint16_t)p->ros;
        }
        sfi_reserve(p->receiver->core, now_ns, p->chunks, p->n_chunks);
}

/* Receives the header and directory of a data message. */
static int receive_head(struct tcp_peer *p, uint64_t now_ns)
{
        const struct data_context *c = &p->receiver->context;
        struct chunk_reader *chunks = &((struct tcp_receiver *)p->receiver->state)->chunks;
        uint64_t cookie = sfi_member(p->receiver->core)->cookie;
        enum message_verdict v = MESSAGE_SHORT;
        size_t staged = 0;
        int r;

        while (v == MESSAGE_SHORT && staged < FRAGMENTS_HEAD_MAX_BYTES) {
                r = stage(p, staged + 1);
                if (r <= 0)
                        return r;
                const uint8_t *bytes = tcp_reader_bytes(&p->reader, &staged);
                v = chunk_reader_begin(chunks, bytes, staged, cookie);
        }
        if (v == MESSAGE_OK && chunks->header.sender_index >= c->scenario->ros.count)
                v = MESSAGE_MALFORMED;
        r = v != MESSAGE_OK ? refuse(p, v) : know_peer(p, now_ns, chunks->header.sender_index);
        if (r < 0)
                return r;
        tcp_reader_consume(&p->reader, chunks->head_bytes);
        stats_add(&c->stats->packets_received, 1);
        reserve_chunks(p, now_ns, chunks);
        return 1;
}

static int receive_message(struct tcp_peer *p, uint64_t now_ns)
{
        size_t staged;
        int r = stage(p, 1);

        if (r <= 0)
                return r;
        return tcp_reader_bytes(&p->reader, &staged)[0] == FRAGMENTS_MAGIC ? receive_head(p, now_ns)
                                                                           : receive_header(p, now_ns);
}

/* Whether the chunk has a place in the buffer; its reservation may end before its payload arrives. */
static bool is_stored(struct tcp_peer *p, struct sfi_chunk *c)
{
        if (c->verdict == SFI_STORE && !sfi_is_reserved(p->receiver->core, c))
                c->verdict = SFI_LATE;
        return c->verdict == SFI_STORE;
}

/* Finds the places of the next `max` bytes, up to the first chunk that has no place in the buffer. If this is
 * the next chunk, it is discarded, in parts. Returns the number of places. */
static size_t find_places(struct tcp_peer *p, size_t max)
{
        struct tcp_receiver *t = p->receiver->state;
        size_t done = p->arrived_bytes, n = 0;

        for (uint32_t i = p->at; i < p->n_chunks && max > 0 && is_stored(p, &p->chunks[i]); i++) {
                const struct sfi_chunk *c = &p->chunks[i];

                t->places[n] =
                        (struct iovec){p->receiver->buffer + c->at + done, MIN(max, c->chunk.length - done)};
                max -= t->places[n++].iov_len;
                done = 0;
        }
        if (n > 0)
                return n;
        t->places[0] = (struct iovec){t->discarded, MIN(max, p->chunks[p->at].chunk.length - done)};
        t->places[0].iov_len = MIN(t->places[0].iov_len, sizeof t->discarded);
        return 1;
}

static int receive_payload(struct tcp_peer *p)
{
        struct tcp_receiver *t = p->receiver->state;
        uint32_t before = p->at;
        size_t staged;
        ssize_t got;

        tcp_reader_bytes(&p->reader, &staged);
        got = tcp_reader_readv(&p->reader, t->places,
                               find_places(p, p->reader.drained ? staged : TURN_BYTES));
        if (got < 0)
                return (int)got;
        p->arrived_bytes += (size_t)got;
        while (p->at < p->n_chunks && p->arrived_bytes >= p->chunks[p->at].chunk.length)
                p->arrived_bytes -= p->chunks[p->at++].chunk.length;
        return (int)got + (p->at > before);
}

static void read_peer(struct tcp_peer *p, uint64_t now_ns)
{
        uint64_t taken = 0;
        int r = 1;

        p->reader.drained = false;
        while (r > 0 && taken < TURN_BYTES) {
                if (p->at < p->n_chunks)
                        r = receive_payload(p);
                else
                        r = receive_message(p, now_ns);
                taken += r > 0 ? (uint64_t)r + STEP_BYTES : 0;
        }
        commit_chunks(p, now_ns);
        p->ready = r > 0;
        if (r < 0)
                drop_peer(p);
}

static int tcp_turn(struct data_receiver *r, uint64_t now_ns, bool *ret_more)
{
        struct tcp_receiver *t = r->state;
        int k = t->ready ? accept_some(r, t, now_ns) : 0;

        if (k < 0)
                return k;
        *ret_more = t->ready;
        /* Before this node has joined a run, it cannot check to which run a message belongs. */
        if (!member_is_joined(sfi_member(r->core)))
                return 0;
        for (struct tcp_peer *p = t->peers; p < t->peers + t->n_peers; p++) {
                if (p->refused && p->n_requests == 0) {
                        p->refused = false;
                        sfi_record_connected(r->core, now_ns, (uint16_t)p->ros);
                }
                if (p->io.fd >= 0 && p->ready) {
                        read_peer(p, now_ns);
                        *ret_more |= p->ready;
                }
                if (p->io.fd >= 0 && p->ros < 0 && now_ns - p->since_ns >= INTRODUCTION_NS) {
                        log_foreign_sender(r, &p->from, "it did not introduce itself within 10 s");
                        drop_peer(p);
                }
        }
        return 0;
}

static void flush_requests(struct tcp_peer *p)
{
        struct iovec iov = {p->requests, p->n_requests};
        ssize_t sent = p->n_requests > 0 ? tcp_send(p->io.fd, &iov, 1) : 0;

        if (sent > 0) {
                p->n_requests -= (size_t)sent;
                memmove(p->requests, p->requests + sent, p->n_requests);
        }
        /* The functions that read detect a broken connection and close it. */
        loop_modify(p->receiver->context.loop, &p->io,
                    p->n_requests > 0 && (sent >= 0 || sent == -EAGAIN) ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

static void request_from(struct data_receiver *r, size_t ros, const struct message *m)
{
        struct tcp_receiver *t = r->state;
        struct tcp_peer *p;
        size_t n;

        /* The core repeats the request once the ROS has connected. */
        if (t->of_ros[ros] < 0)
                return;
        p = &t->peers[t->of_ros[ros]];
        n = message_encode(m, p->requests + p->n_requests, REQUESTS_BYTES - p->n_requests);
        if (n == 0) {
                p->refused = true;
                stats_add(&r->context.stats->send_blocked, 1);
                return;
        }
        p->n_requests += n;
        flush_requests(p);
}

static void tcp_request(struct data_receiver *r, struct message_to to, const struct message *m)
{
        size_t n = r->context.scenario->ros.count;

        if (to.index != MESSAGE_TO_ALL) {
                request_from(r, to.index, m);
                return;
        }
        for (size_t k = 0; k < n; k++)
                request_from(r, (k + r->context.self->index) % n, m);
}

static uint64_t tcp_room(const struct data_receiver *r)
{
        /* TCP loses nothing if more bytes are in flight, but more requests only fill queues and evict
         * caches. */
        (void)r;
        return ROOM_BYTES;
}

const struct data_receiver_ops data_receive_tcp = {
        .open = tcp_open,
        .turn = tcp_turn,
        .request = tcp_request,
        .room_bytes = tcp_room,
        .close = tcp_close,
};
