/* Connections to the ROSs whose addresses the DFM announces. After a connection breaks, unanswered requests
 * are sent again. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/util.h"
#include "regions.h"

#define STAGING_BYTES (64u << 10)
/* A ROS adds no fragment to a message that is already longer than 32 KiB. */
#define PAYLOAD_MAX_BYTES (EVB_FRAGMENT_MAX_BYTES + (32u << 10))

struct readout {
        struct readouts *all;
        struct readout_entry entry;
        bool known;
        struct loop_io io; /* fd -1: not connected */
        bool ready, blocked;
        struct tcp_backoff backoff;
        uint64_t again_ns;
        struct tcp_reader reader;
        uint32_t *queue; /* a ring of events to request */
        uint32_t head, tail;
        /* The message that is arriving, from its payload onwards. */
        bool has_head;
        struct chunk_reader chunks;
        uint8_t *payload;
        size_t n_payload;
        size_t out_begin, out_end;
        uint8_t out[MESSAGE_LEVEL2_BYTES_MAX];
};

struct readouts {
        struct loop *loop;
        struct region_events *events;
        uint64_t cookie;
        struct readout *ross[EVB_ROS_MAX]; /* NULL: unknown */
        uint32_t n;
        struct message message; /* scratch */
};

static void is_ready(void *ctx, uint32_t events)
{
        struct readout *r = ctx;

        r->ready |= (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0;
        if (events & EPOLLOUT)
                r->blocked = false;
}

static void disconnect(struct readout *r)
{
        if (r->io.fd < 0)
                return;
        loop_remove(r->all->loop, &r->io);
        close(r->io.fd);
        tcp_reader_fini(&r->reader);
        r->io.fd = -1;
}

int readouts_new(struct readouts **ret, struct loop *loop, struct region_events *events)
{
        struct readouts *r = calloc(1, sizeof *r);

        if (!r)
                return -ENOMEM;
        r->loop = loop;
        r->events = events;
        *ret = r;
        return 0;
}

static void free_readout(struct readout *r)
{
        if (!r)
                return;
        disconnect(r);
        free(r->queue);
        free(r->payload);
        free(r);
}

struct readouts *readouts_free(struct readouts *r)
{
        if (!r)
                return NULL;
        readouts_follow(r, 0);
        free(r);
        return NULL;
}

void readouts_follow(struct readouts *r, uint64_t cookie)
{
        r->cookie = cookie;
        for (uint32_t i = 0; i < EVB_ROS_MAX; i++) {
                free_readout(r->ross[i]);
                r->ross[i] = NULL;
        }
        r->n = 0;
}

uint32_t readouts_count(const struct readouts *r)
{
        return r->n;
}

static struct readout *new_readout(struct readouts *all, uint16_t index)
{
        struct readout *r = calloc(1, sizeof *r);

        if (!r)
                return NULL;
        r->all = all;
        r->io.fd = -1;
        r->queue = calloc(REGIONS_EVENTS_MAX, sizeof *r->queue);
        r->payload = malloc(PAYLOAD_MAX_BYTES);
        tcp_backoff_init(&r->backoff, (uint64_t)getpid() << 16 | index);
        if (r->queue && r->payload)
                return r;
        free_readout(r);
        return NULL;
}

/* A ROS that has left will not answer, so the fragments that events request from it count as missed. */
static void miss_all(struct readouts *all, uint16_t ros)
{
        struct region_events *g = all->events;

        for (uint32_t i = g->tail; i != g->head; i++) {
                uint32_t bit = region_bit(region_events_at(g, i), ros);

                if (bit > 0)
                        region_events_miss(g, i, bit);
        }
}

static void connect_entry(struct readouts *all, uint64_t now_ns, const struct readout_entry *e)
{
        struct readout *r = all->ross[e->index] ?: new_readout(all, e->index);

        if (!r)
                return;
        all->ross[e->index] = r;
        all->n = MAX(all->n, e->index + 1u);
        if (e->flags & ~r->entry.flags & READOUT_PRESENT)
                r->again_ns = now_ns;
        r->entry = *e;
        if (e->flags & READOUT_PRESENT)
                return;
        disconnect(r);
        miss_all(all, e->index);
}

void readouts_receive(struct readouts *r, uint64_t now_ns, const struct message *m)
{
        for (size_t k = 0; k < m->n; k++)
                connect_entry(r, now_ns, &m->readouts.entries[k]);
}

/* ---- Requests ---- */

/* Queues all events that wait for this ROS, as if nothing had been requested. */
static void queue_all(struct readout *r)
{
        struct region_events *g = r->all->events;

        r->tail = r->head = 0;
        for (uint32_t i = g->tail; i != g->head; i++) {
                struct region_event *e = region_events_at(g, i);
                uint32_t bit = region_bit(e, r->entry.index);

                e->requested &= ~bit;
                if (bit > 0)
                        r->queue[r->head++] = i;
        }
}

bool readouts_request(struct readouts *all, uint16_t ros, uint32_t i)
{
        struct readout *r = all->ross[ros];

        if (!r || !(r->entry.flags & READOUT_PRESENT))
                return false;
        if (r->io.fd < 0)
                return true; /* the request is sent once the ROS is connected */
        if (r->head - r->tail == REGIONS_EVENTS_MAX)
                queue_all(r);
        else
                r->queue[r->head++ % REGIONS_EVENTS_MAX] = i;
        return true;
}

/* Makes the next message of requests. False: there is nothing to request. */
static bool make_request(struct readout *r)
{
        struct message *m = &r->all->message;

        m->header = (struct message_header){
                .cookie = r->all->cookie, .sender_role = ROLE_LEVEL2, .type = MESSAGE_REQUEST};
        m->n = 0;
        for (; r->tail != r->head && m->n < MESSAGE_ENTRIES_MAX; r->tail++) {
                struct region_event *e =
                        region_events_at(r->all->events, r->queue[r->tail % REGIONS_EVENTS_MAX]);
                uint32_t bit = region_bit(e, r->entry.index) & ~e->requested;

                if (bit == 0)
                        continue;
                m->request.entries[m->n++] =
                        (struct request_entry){.event = e->event, .l1_id = e->l1_id, .to_bytes = UINT32_MAX};
                e->requested |= bit;
        }
        if (m->n == 0)
                return false;
        r->out_begin = 0;
        r->out_end = message_encode(m, r->out, sizeof r->out);
        return true;
}

static int write_all(struct readout *r)
{
        while (!r->blocked) {
                struct iovec rest;
                ssize_t sent;

                if (r->out_begin == r->out_end && !make_request(r))
                        break;
                rest = (struct iovec){r->out + r->out_begin, r->out_end - r->out_begin};
                sent = tcp_send(r->io.fd, &rest, 1);
                if (sent < 0 && sent != -EAGAIN)
                        return (int)sent;
                r->out_begin += sent > 0 ? (size_t)sent : 0;
                r->blocked = r->out_begin < r->out_end;
        }
        return loop_modify(r->all->loop, &r->io, EPOLLIN | (r->blocked ? (uint32_t)EPOLLOUT : 0));
}

/* ---- Answers ---- */

/* Reads the header and directory of the next message. 1: both are complete; 0: more bytes must arrive. */
static int receive_head(struct readout *r)
{
        size_t n;
        const uint8_t *bytes = tcp_reader_bytes(&r->reader, &n);
        enum message_verdict v = chunk_reader_begin(&r->chunks, bytes, n, r->all->cookie);

        if (v == MESSAGE_SHORT && n < FRAGMENTS_HEAD_MAX_BYTES)
                return 0;
        if (v != MESSAGE_OK || r->chunks.header.sender_index != r->entry.index ||
            r->chunks.header.payload_bytes > PAYLOAD_MAX_BYTES)
                return -EPROTO;
        tcp_reader_consume(&r->reader, r->chunks.head_bytes);
        r->has_head = true;
        r->n_payload = 0;
        return 1;
}

static void receive_chunks(struct readout *r)
{
        const uint8_t *at = r->payload, *none;
        struct chunk c;

        r->has_head = false;
        while (chunk_reader_next(&r->chunks, &c, &none)) {
                region_events_receive(r->all->events, r->entry.index, &c, at);
                at += c.length;
        }
}

static int read_all(struct readout *r)
{
        int has = 1;

        while (r->ready && has > 0) {
                ssize_t got = tcp_reader_fill(&r->reader);

                if (got < 0)
                        return (int)got;
                r->ready = got > 0;
                while (has > 0 && (r->has_head || (has = receive_head(r)) > 0)) {
                        size_t wanted = r->chunks.header.payload_bytes - r->n_payload;

                        got = wanted > 0 ? tcp_reader_read(&r->reader, r->payload + r->n_payload, wanted) : 0;
                        if (got < 0)
                                return (int)got;
                        r->n_payload += (size_t)got;
                        if ((size_t)got < wanted)
                                return 0;
                        receive_chunks(r);
                }
                has = has < 0 ? has : 1;
        }
        return has < 0 ? has : 0;
}

/* ---- Turns ---- */

static void begin_connection(struct readout *r, uint64_t now_ns)
{
        struct net_address to;
        int fd;

        net_address_of_v6(&to, r->entry.address, r->entry.port);
        fd = tcp_connect(NULL, &to, 0);
        r->again_ns = now_ns + tcp_backoff_next_ns(&r->backoff);
        if (fd < 0)
                return;
        tcp_notice_silence(fd);
        r->io = (struct loop_io){.fd = fd, .events = EPOLLIN | EPOLLOUT, .ready = is_ready, .ctx = r};
        r->ready = r->has_head = false;
        r->blocked = true;
        r->out_begin = r->out_end = 0;
        queue_all(r);
        r->all->events->counts.connections++;
        if (tcp_reader_init(&r->reader, fd, STAGING_BYTES) < 0 || loop_add(r->all->loop, &r->io) < 0)
                disconnect(r);
}

static void turn(struct readout *r, uint64_t now_ns)
{
        if (r->io.fd < 0 && r->entry.flags & READOUT_PRESENT && now_ns >= r->again_ns)
                begin_connection(r, now_ns);
        if (r->io.fd < 0)
                return;
        if (read_all(r) < 0 || write_all(r) < 0)
                disconnect(r);
        else if (!r->blocked)
                tcp_backoff_reset(&r->backoff);
}

void readouts_turn(struct readouts *r, uint64_t now_ns)
{
        for (uint32_t i = 0; i < r->n; i++) {
                if (r->ross[i])
                        turn(r->ross[i], now_ns);
        }
}

uint64_t readouts_deadline_ns(const struct readouts *r)
{
        uint64_t deadline = NEVER_NS;

        for (uint32_t i = 0; i < r->n; i++) {
                const struct readout *o = r->ross[i];

                if (!o)
                        continue;
                if (o->io.fd < 0 && o->entry.flags & READOUT_PRESENT)
                        deadline = MIN(deadline, o->again_ns);
                if (o->io.fd >= 0 && (o->ready || (!o->blocked && o->tail != o->head)))
                        return 0;
        }
        return deadline;
}
