/* Fragments over TCP. Each ROS makes one connection and first states which ROS it is. Payload goes from the
 * socket straight to its place; requests go back on the same connection. Connections of strangers are closed,
 * and none delays a ROS. */
#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>

#include "evb/base/log.h"
#include "evb/base/util.h"
#include "evb/net/tcp.h"
#include "data_receive.h"
#include "socket_open.h"

#define STAGING_BYTES (128u << 10)
#define REQUESTS_BYTES (64u << 10)
/* Extra connections, for peers that have not introduced themselves. A new one replaces the oldest of them. */
#define SPARE 8
/* Connections accepted in one turn: at most SPARE, so each is read once before another replaces it. */
#define ACCEPTS_MAX SPARE
#define INTRODUCTION_NS (10 * NS_PER_S)
#define ROOM_BYTES (16u << 20)
/* Bytes taken from one connection before the others have their turn. */
#define TURN_BYTES (4u << 20)

struct tcp_peer {
        struct data_receiver *receiver;
        struct loop_io io; /* fd -1: free */
        bool ready;
        int ros; /* -1: not introduced yet; never changes afterwards */
        struct net_address from;
        uint64_t since_ns, number; /* of accepting */
        struct tcp_reader reader;
        /* The message that is coming in. */
        uint32_t left_bytes; /* of it, after what was read */
        /* Its piece that is coming in. */
        struct sfi_chunk piece;
        uint32_t chunk_left;
        /* Requests that the connection has not taken yet. */
        uint8_t *requests;
        size_t n_requests;
};

struct tcp_receiver {
        int listener;
        struct loop_io io;
        bool ready;
        struct tcp_peer *peers;
        size_t n_peers;
        int *of_ros; /* index of the peer; -1: none */
        uint64_t accepted;
        bool stranger_logged;
};

static void listener_is_ready(void *ctx, uint32_t events)
{
        (void)events;
        ((struct tcp_receiver *)ctx)->ready = true;
}

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
        const struct scenario *s = r->node->scenario;

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
        const struct scenario *s = r->node->scenario;
        struct tcp_receiver *t = calloc(1, sizeof *t);
        struct net_address local;
        int k;

        if (!t)
                return log_error_errno(ENOMEM, "data connections: %m");
        r->state = t;
        t->listener = -1;
        k = allocate(r, t);
        if (k >= 0)
                k = node_address(r->node->self, (uint16_t)s->network.data_port, &local);
        if (k < 0)
                return k;
        t->listener = socket_open_listener(&local, s->network.receive_buffer_bytes, "data connections");
        if (t->listener < 0)
                return t->listener;
        t->io = (struct loop_io){.fd = t->listener, .events = EPOLLIN, .ready = listener_is_ready, .ctx = t};
        return loop_add(r->node->loop, &t->io);
}

static void drop_peer(struct tcp_peer *p)
{
        struct tcp_receiver *t = p->receiver->state;

        if (p->io.fd < 0)
                return;
        loop_remove(p->receiver->node->loop, &p->io);
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

/* Counts connections that do not belong to a ROS, and logs the first one. */
static void note_stranger(struct data_receiver *r, const struct net_address *from, const char *why)
{
        struct tcp_receiver *t = r->state;
        char text[NET_ADDRESS_TEXT_MAX];

        stats_add(&r->node->stats->packets_foreign, 1);
        if (!t->stranger_logged)
                log_warning("data connection from %s closed: %s; further ones are only counted",
                            net_address_format(from, text), why);
        t->stranger_logged = true;
}

/* One always exists: at most n_ros connections are introduced, as each ROS has one. */
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
        note_stranger(r, &oldest->from, "it did not introduce itself, and other connections wait");
        drop_peer(oldest);
        return oldest;
}

static void note_granted(struct data_receiver *r, int fd)
{
        uint64_t asked = r->node->scenario->network.receive_buffer_bytes,
                 granted = tcp_granted_bytes(fd, false);

        stats_set(&r->node->stats->granted_receive_buffer_bytes, granted);
        socket_note_buffer(SOCKET_RECEIVE, "data connections", true, asked, granted);
}

static bool is_from_a_ros(const struct node *n, const struct net_address *from)
{
        for (unsigned i = 0; i < n->scenario->ros.count; i++) {
                if (control_is_node(&n->control, ROLE_ROS, (uint16_t)i, from))
                        return true;
        }
        return false;
}

static void accept_one(struct data_receiver *r, int fd, const struct net_address *from, uint64_t now_ns)
{
        struct tcp_receiver *t = r->state;
        struct tcp_peer *p;

        if (!is_from_a_ros(r->node, from)) {
                note_stranger(r, from, "the scenario has no ROS with this address");
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
            loop_add(r->node->loop, &p->io) < 0)
                drop_peer(p);
        else
                note_granted(r, fd);
}

static void accept_some(struct data_receiver *r, struct tcp_receiver *t, uint64_t now_ns)
{
        struct net_address from;

        for (int i = 0; i < ACCEPTS_MAX; i++) {
                int fd = tcp_accept(t->listener, r->node->scenario->network.receive_buffer_bytes, &from);

                if (fd < 0) {
                        t->ready = false;
                        return;
                }
                accept_one(r, fd, &from, now_ns);
        }
}

/* 1: went on; 0: wait for more; negative: the end of the connection. */
static int refuse(struct tcp_peer *p, enum message_verdict verdict)
{
        control_count_refusal(p->receiver->node->stats, verdict);
        return -EPROTO;
}

/* Introduces a connection, which is final; an older connection of the same ROS is dead. */
static int know_peer(struct tcp_peer *p, uint16_t ros)
{
        struct tcp_receiver *t = p->receiver->state;

        if (p->ros == ros)
                return 1;
        if (p->ros >= 0)
                return refuse(p, MESSAGE_MALFORMED);
        if (!control_is_node(&p->receiver->node->control, ROLE_ROS, ros, &p->from)) {
                note_stranger(p->receiver, &p->from, "it claims to be a ROS that has another address");
                return -EPROTO;
        }
        if (t->of_ros[ros] >= 0)
                drop_peer(&t->peers[t->of_ros[ros]]);
        p->ros = ros;
        t->of_ros[ros] = (int)(p - t->peers);
        return 1;
}

static int stage(struct tcp_peer *p, size_t wanted)
{
        size_t n;

        while (tcp_reader_bytes(&p->reader, &n), n < wanted) {
                ssize_t got = tcp_reader_fill(&p->reader);

                if (got <= 0)
                        return (int)got;
        }
        return 1;
}

static int take_control(struct tcp_peer *p, const struct message_header *h, uint64_t now_ns)
{
        static struct message m;
        size_t size = MESSAGE_HEADER_BYTES + (size_t)h->payload_bytes, n;
        enum message_verdict v;
        int r;

        if (size > STAGING_BYTES / 2)
                return refuse(p, MESSAGE_MALFORMED);
        r = stage(p, size);
        if (r <= 0)
                return r;
        v = message_decode(&m, tcp_reader_bytes(&p->reader, &n), size);
        if (v != MESSAGE_OK)
                return refuse(p, v);
        sfi_receive(p->receiver->core, now_ns, &m);
        tcp_reader_consume(&p->reader, size);
        return 1;
}

static int take_header(struct tcp_peer *p, uint64_t now_ns)
{
        struct node *n = p->receiver->node;
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
        if (v == MESSAGE_OK && (h.sender_role != ROLE_ROS || h.sender_index >= n->scenario->ros.count))
                v = MESSAGE_MALFORMED;
        if (v == MESSAGE_OK && h.type == MESSAGE_FRAGMENTS && check != 0)
                v = MESSAGE_MALFORMED;
        if (v != MESSAGE_OK)
                return refuse(p, v);
        r = know_peer(p, h.sender_index);
        if (r < 0)
                return r;
        if (h.type != MESSAGE_FRAGMENTS)
                return take_control(p, &h, now_ns);
        tcp_reader_consume(&p->reader, MESSAGE_HEADER_BYTES);
        p->left_bytes = h.payload_bytes;
        stats_add(&n->stats->packets_received, 1);
        return 1;
}

static int take_chunk_header(struct tcp_peer *p, uint64_t now_ns)
{
        size_t staged;
        int r = stage(p, CHUNK_HEADER_BYTES);

        if (r <= 0)
                return r;
        if (!chunk_decode(&p->piece.chunk, tcp_reader_bytes(&p->reader, &staged)) ||
            p->left_bytes < CHUNK_HEADER_BYTES || p->piece.chunk.length > p->left_bytes - CHUNK_HEADER_BYTES)
                return refuse(p, MESSAGE_MALFORMED);
        tcp_reader_consume(&p->reader, CHUNK_HEADER_BYTES);
        p->left_bytes -= CHUNK_HEADER_BYTES + p->piece.chunk.length;
        p->piece.source = (uint16_t)p->ros;
        p->chunk_left = p->piece.chunk.length;
        sfi_reserve(p->receiver->core, now_ns, &p->piece, 1);
        if (p->chunk_left == 0)
                sfi_commit(p->receiver->core, now_ns, &p->piece, 1);
        return 1;
}

/* Payload into its place, or, where that is not (or no longer) given, nowhere. */
static int take_payload(struct tcp_peer *p, uint64_t now_ns)
{
        static uint8_t waste[65536];
        struct data_receiver *r = p->receiver;
        bool stored = p->piece.verdict == SFI_STORE && sfi_is_reserved(r->core, &p->piece);
        uint32_t done = p->piece.chunk.length - p->chunk_left;
        ssize_t got;

        if (stored)
                got = tcp_reader_read(&p->reader, r->buffer + p->piece.at + done, p->chunk_left);
        else
                got = tcp_reader_read(&p->reader, waste, MIN((size_t)p->chunk_left, sizeof waste));
        if (got <= 0)
                return (int)got;
        if (!stored)
                p->piece.verdict = SFI_LATE;
        p->chunk_left -= (uint32_t)got;
        if (p->chunk_left == 0 && stored)
                sfi_commit(r->core, now_ns, &p->piece, 1);
        return (int)got;
}

static void read_peer(struct tcp_peer *p, uint64_t now_ns)
{
        uint64_t taken = 0;
        int r = 1;

        while (r > 0 && taken < TURN_BYTES) {
                if (p->chunk_left > 0)
                        r = take_payload(p, now_ns);
                else if (p->left_bytes > 0)
                        r = take_chunk_header(p, now_ns);
                else
                        r = take_header(p, now_ns);
                taken += r > 0 ? (uint64_t)r + CHUNK_HEADER_BYTES : 0;
        }
        p->ready = r > 0;
        if (r < 0)
                drop_peer(p);
}

static int tcp_turn(struct data_receiver *r, uint64_t now_ns, bool *ret_more)
{
        struct tcp_receiver *t = r->state;

        if (t->ready)
                accept_some(r, t, now_ns);
        *ret_more = t->ready;
        /* Before this node knows its run, it cannot check whose messages these are. */
        if (!member_is_joined(sfi_member(r->core)))
                return 0;
        for (struct tcp_peer *p = t->peers; p < t->peers + t->n_peers; p++) {
                if (p->io.fd >= 0 && p->ready) {
                        read_peer(p, now_ns);
                        *ret_more |= p->ready;
                }
                if (p->io.fd >= 0 && p->ros < 0 && now_ns - p->since_ns >= INTRODUCTION_NS) {
                        note_stranger(r, &p->from, "it did not introduce itself within 10 s");
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
        /* A broken connection is seen, and ended, by its reader. */
        loop_modify(p->receiver->node->loop, &p->io,
                    p->n_requests > 0 && (sent >= 0 || sent == -EAGAIN) ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

static void request_from(struct data_receiver *r, size_t ros, const struct message *m)
{
        struct tcp_receiver *t = r->state;
        struct tcp_peer *p;
        size_t n;

        /* A ROS that is not connected now will be asked again. */
        if (t->of_ros[ros] < 0)
                return;
        p = &t->peers[t->of_ros[ros]];
        n = message_encode(m, p->requests + p->n_requests, REQUESTS_BYTES - p->n_requests);
        p->n_requests += n;
        flush_requests(p);
}

static void tcp_request(struct data_receiver *r, struct message_to to, const struct message *m)
{
        size_t n = r->node->scenario->ros.count;

        if (to.index != MESSAGE_TO_ALL) {
                request_from(r, to.index, m);
                return;
        }
        for (size_t k = 0; k < n; k++)
                request_from(r, (k + r->node->self->index) % n, m);
}

static uint64_t tcp_room(const struct data_receiver *r)
{
        /* Nothing is lost beyond it, but what is on its way then only waits, and falls out of the caches. */
        (void)r;
        return ROOM_BYTES;
}

static bool tcp_is_holding(const struct data_receiver *r)
{
        (void)r;
        return false;
}

static void tcp_account(struct data_receiver *r)
{
        (void)r;
}

const struct data_receiver_ops data_receive_tcp = {
        .open = tcp_open,
        .turn = tcp_turn,
        .request = tcp_request,
        .room_bytes = tcp_room,
        .is_holding = tcp_is_holding,
        .account = tcp_account,
        .close = tcp_close,
};
