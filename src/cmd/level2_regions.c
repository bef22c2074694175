/* Collects the fragments of events, in the order in which the events began, over connections to the ROSs that
 * the DFM announces, and returns an event once they have arrived. After a connection breaks, unanswered
 * requests are sent again. */
#include "cmd/level2_regions.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/idmap.h"
#include "base/pattern.h"
#include "base/quantity.h"
#include "base/random.h"
#include "base/util.h"
#include "net/tcp.h"
#include "protocol/chunk.h"

#define STAGING_BYTES (64u << 10)
/* A ROS adds no fragment to a message that is already longer than 32 KiB. */
#define PAYLOAD_MAX_BYTES (EVB_FRAGMENT_MAX_BYTES + (32u << 10))

struct readout {
        struct regions *all;
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

struct regions_counts {
        uint64_t requested, received, bytes;
        uint64_t gone;   /* number of answers that the ROS has discarded the fragment */
        uint64_t absent; /* number of answers that the ROS does not have the fragment */
        uint64_t missed; /* no answer in time, or the ROS is not in the run */
        uint64_t corrupt, connections;
        uint64_t events_incomplete;
};

/* An event whose fragments are collected. */
struct region_event {
        uint64_t event, deadline_ns;
        uint32_t l1_id, resets, check;
        uint16_t n;
        uint16_t ros[REGIONS_ROSS_MAX];
        uint32_t waiting, requested; /* bit k: for the fragment of ros[k] */
        bool open, incomplete;
};

struct regions {
        struct regions_config config;
        struct regions_counts counts;
        struct region_event *events; /* a ring, in the order of deadline_ns: [tail, head) */
        uint32_t head, tail;
        struct idmap by_event;
        uint32_t *done; /* a ring of collected events */
        uint32_t done_head, done_tail;
        struct loop *loop;
        uint64_t cookie;
        struct readout *ross[EVB_ROS_MAX]; /* NULL: unknown */
        uint32_t n_ross;                   /* that the DFM has announced */
        struct message message;            /* scratch */
};

/* ---- Events ---- */

static struct region_event *event_at(struct regions *g, uint32_t i)
{
        return &g->events[i % REGIONS_EVENTS_MAX];
}

static void close_event(struct regions *g, struct region_event *v)
{
        if (v->open)
                (void)idmap_remove(&g->by_event, v->event);
        v->open = false;
}

static uint32_t region_bit(const struct region_event *v, uint16_t ros)
{
        for (uint32_t k = 0; v->open && k < v->n; k++) {
                if (v->ros[k] == ros)
                        return v->waiting & 1u << k;
        }
        return 0;
}

static void record_answers(struct regions *g, uint32_t i, uint32_t bits)
{
        struct region_event *v = event_at(g, i);

        v->waiting &= ~bits;
        if (v->waiting > 0 || !v->open)
                return;
        close_event(g, v);
        g->done[g->done_head++ % REGIONS_EVENTS_MAX] = i;
}

static void miss(struct regions *g, uint32_t i, uint32_t bits)
{
        event_at(g, i)->incomplete = true;
        g->counts.missed += (uint64_t)__builtin_popcount(bits);
        record_answers(g, i, bits);
}

static bool is_right(const struct regions *g, const struct region_event *v, uint16_t ros,
                     const struct chunk *c, const uint8_t *payload)
{
        if (c->l1_id != v->l1_id || c->offset > 0 || c->length != c->fragment_bytes)
                return false;
        return !g->config.verify || pattern_check(pattern_key(g->config.pattern_seed, ros, c->l1_id), payload,
                                                  0, c->length) == c->length;
}

static void receive_answer(struct regions *g, uint16_t ros, const struct chunk *c, const uint8_t *payload)
{
        uint32_t i = idmap_get(&g->by_event, c->event);
        struct region_event *v = event_at(g, i);
        uint32_t bit = i == IDMAP_NONE ? 0 : region_bit(v, ros);

        if (bit == 0)
                return;
        switch (c->status) {
        case FRAGMENT_OK:
        case FRAGMENT_NONE:
        case FRAGMENT_TRUNCATED:
                g->counts.received++;
                g->counts.bytes += c->length;
                g->counts.corrupt += !is_right(g, v, ros, c, payload);
                v->check ^= message_check(payload, c->length);
                break;
        case FRAGMENT_DISCARDED:
                g->counts.gone++;
                v->incomplete = true;
                break;
        default:
                g->counts.absent++;
                v->incomplete = true;
                break;
        }
        record_answers(g, i, bit);
}

/* ---- Connections ---- */

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

static void free_readout(struct readout *r)
{
        if (!r)
                return;
        disconnect(r);
        free(r->queue);
        free(r->payload);
        free(r);
}

static struct readout *new_readout(struct regions *all, uint16_t index)
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
static void miss_all(struct regions *all, uint16_t ros)
{
        for (uint32_t i = all->tail; i != all->head; i++) {
                uint32_t bit = region_bit(event_at(all, i), ros);

                if (bit > 0)
                        miss(all, i, bit);
        }
}

static void connect_entry(struct regions *all, uint64_t now_ns, const struct readout_entry *e)
{
        struct readout *r = all->ross[e->index] ?: new_readout(all, e->index);

        if (!r)
                return;
        all->ross[e->index] = r;
        all->n_ross = MAX(all->n_ross, e->index + 1u);
        if (e->flags & ~r->entry.flags & READOUT_PRESENT)
                r->again_ns = now_ns;
        r->entry = *e;
        if (e->flags & READOUT_PRESENT)
                return;
        disconnect(r);
        miss_all(all, e->index);
}

/* ---- Requests ---- */

/* Queues all events that wait for this ROS, as if nothing had been requested. */
static void queue_all(struct readout *r)
{
        struct regions *g = r->all;

        r->tail = r->head = 0;
        for (uint32_t i = g->tail; i != g->head; i++) {
                struct region_event *e = event_at(g, i);
                uint32_t bit = region_bit(e, r->entry.index);

                e->requested &= ~bit;
                if (bit > 0)
                        r->queue[r->head++] = i;
        }
}

/* False: the ROS is not in the run. */
static bool request(struct regions *all, uint16_t ros, uint32_t i)
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
                struct region_event *e = event_at(r->all, r->queue[r->tail % REGIONS_EVENTS_MAX]);
                uint32_t bit = region_bit(e, r->entry.index) & ~e->requested;

                if (bit == 0)
                        continue;
                if (m->n > 0 && e->resets != m->request.resets)
                        break;
                m->request.resets = e->resets;
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
                receive_answer(r->all, r->entry.index, &c, at);
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
        r->all->counts.connections++;
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

/* ---- Turns ---- */

int regions_new(struct regions **ret, struct loop *loop, const struct regions_config *config)
{
        struct regions *g = calloc(1, sizeof *g);

        if (!g)
                return -ENOMEM;
        g->config = *config;
        g->loop = loop;
        g->events = calloc(REGIONS_EVENTS_MAX, sizeof *g->events);
        g->done = calloc(REGIONS_EVENTS_MAX, sizeof *g->done);
        if (!g->events || !g->done || idmap_init(&g->by_event, REGIONS_EVENTS_MAX) < 0) {
                regions_free(g);
                return -ENOMEM;
        }
        *ret = g;
        return 0;
}

struct regions *regions_free(struct regions *g)
{
        if (!g)
                return NULL;
        regions_follow(g, 0);
        idmap_fini(&g->by_event);
        free(g->events);
        free(g->done);
        free(g);
        return NULL;
}

void regions_follow(struct regions *g, uint64_t cookie)
{
        for (; g->tail != g->head; g->tail++)
                close_event(g, event_at(g, g->tail));
        g->done_tail = g->done_head;
        g->cookie = cookie;
        for (uint32_t i = 0; i < EVB_ROS_MAX; i++) {
                free_readout(g->ross[i]);
                g->ross[i] = NULL;
        }
        g->n_ross = 0;
}

void regions_receive_readouts(struct regions *g, uint64_t now_ns, const struct message *m)
{
        for (size_t k = 0; k < m->n; k++)
                connect_entry(g, now_ns, &m->readouts.entries[k]);
}

bool regions_are_known(const struct regions *g)
{
        return g->n_ross > 0;
}

bool regions_has_room(const struct regions *g)
{
        return g->head - g->tail <= REGIONS_EVENTS_MAX - MESSAGE_ENTRIES_MAX;
}

/* The ROSs differ from event to event, but are the same in each run. */
void regions_add(struct regions *g, uint64_t now_ns, uint64_t event, uint32_t l1_id, uint32_t resets)
{
        uint32_t n_ros = g->n_ross, i = g->head;
        struct region_event *v = event_at(g, i);

        if (idmap_get(&g->by_event, event) != IDMAP_NONE)
                return;
        *v = (struct region_event){
                .event = event,
                .deadline_ns = now_ns + g->config.timeout_ns,
                .l1_id = l1_id,
                .resets = resets,
                .n = (uint16_t)MIN(g->config.n_ros, n_ros),
                .open = true,
        };
        idmap_put(&g->by_event, event, i % REGIONS_EVENTS_MAX);
        for (uint32_t k = 0; k < v->n; k++) {
                v->ros[k] = (uint16_t)((random_mix(event) + k) % n_ros);
                v->waiting |= 1u << k;
        }
        g->counts.requested += v->n;
        g->head++;
        for (uint32_t k = 0; k < v->n; k++) {
                if (!request(g, v->ros[k], i))
                        miss(g, i, 1u << k);
        }
}

void regions_turn(struct regions *g, uint64_t now_ns)
{
        for (uint32_t i = 0; i < g->n_ross; i++) {
                if (g->ross[i])
                        turn(g->ross[i], now_ns);
        }
        for (uint32_t i = g->tail; i != g->head && event_at(g, i)->deadline_ns <= now_ns; i++) {
                if (event_at(g, i)->open)
                        miss(g, i, event_at(g, i)->waiting);
        }
}

bool regions_next(struct regions *g, struct region_result *ret)
{
        const struct region_event *v;

        if (g->done_tail == g->done_head)
                return false;
        v = event_at(g, g->done[g->done_tail++ % REGIONS_EVENTS_MAX]);
        *ret = (struct region_result){v->event, v->check, v->incomplete};
        g->counts.events_incomplete += v->incomplete;
        /* Events keep their slots while results wait. */
        while (g->done_tail == g->done_head && g->tail != g->head && !event_at(g, g->tail)->open)
                g->tail++;
        return true;
}

uint64_t regions_deadline_ns(const struct regions *g)
{
        uint64_t deadline = NEVER_NS;
        uint32_t k = g->tail;

        while (k != g->head && !g->events[k % REGIONS_EVENTS_MAX].open)
                k++;
        if (k != g->head)
                deadline = g->events[k % REGIONS_EVENTS_MAX].deadline_ns;
        for (uint32_t i = 0; i < g->n_ross; i++) {
                const struct readout *o = g->ross[i];

                if (!o)
                        continue;
                if (o->io.fd < 0 && o->entry.flags & READOUT_PRESENT)
                        deadline = MIN(deadline, o->again_ns);
                if (o->io.fd >= 0 && (o->ready || (!o->blocked && o->tail != o->head)))
                        return 0;
        }
        return deadline;
}

uint64_t regions_corrupt(const struct regions *g)
{
        return g ? g->counts.corrupt : 0;
}

json_t *regions_describe(const struct regions *g)
{
        const struct regions_counts *c;

        if (!g)
                return json_null();
        c = &g->counts;
        return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "requested",
                         (json_int_t)c->requested, "received", (json_int_t)c->received, "gone",
                         (json_int_t)c->gone, "absent", (json_int_t)c->absent, "missed",
                         (json_int_t)c->missed, "corrupt", (json_int_t)c->corrupt, "bytes",
                         (json_int_t)c->bytes, "connections", (json_int_t)c->connections, "events_incomplete",
                         (json_int_t)c->events_incomplete);
}

void regions_print(const struct regions *g)
{
        const struct regions_counts *c;
        char bytes[QUANTITY_TEXT_MAX];

        if (!g)
                return;
        c = &g->counts;
        printf("%" PRIu64 " fragments requested: %" PRIu64 " received (%s), %" PRIu64
               " of events decided otherwise, %" PRIu64 " absent, %" PRIu64 " without an answer; %" PRIu64
               " with wrong content\n",
               c->requested, c->received, quantity_format_bytes(c->bytes, bytes), c->gone, c->absent,
               c->missed, c->corrupt);
}
