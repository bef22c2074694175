/* Sends fragments to level-2 clients. Each client has one outgoing message; the next one is built from the
 * core's answers when it is sent. */
#include "data/region_server.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "core/ros_regions.h"
#include "data/client_listener.h"
#include "data/network.h"

/* Payload size at which a message is complete. */
#define MESSAGE_BYTES (32u << 10)
/* Headers of IPv6 and of TCP with time stamps, which each packet carries in addition to its part of the
 * message. */
#define SEGMENT_HEADERS_BYTES 72u
#define ETHERNET_HEADER_BYTES 14u
/* Empty answers also cost time, so each answer counts as at least a frame of minimum size, with preamble,
 * checksum and gap (IEEE 802.3). */
#define ANSWER_LEAST_BYTES 84u
/* The node may be delayed by this time without a reduction of the rate. */
#define CATCH_UP_NS (2 * NS_PER_MS)

_Static_assert(LISTENER_CLIENTS_MAX == ROS_REGION_CLIENTS, "the core knows as many clients");

struct client {
        struct listener_client link; /* known: the client has sent the run's cookie */
        uint32_t transaction;
        uint64_t pace_bps; /* the kernel paces the client's data at this rate */
        uint8_t *bytes;    /* message buffer: a head that ends where the payload begins */
};

struct region_server {
        struct client_listener listener;
        struct client clients[LISTENER_CLIENTS_MAX];
        struct ros *core;
        const struct source *source;
        const uint8_t *buffer;
        uint64_t cookie;
        double ns_per_byte; /* time per byte, including all headers */
        uint64_t next_ns;   /* time at which the next message may leave */
};

static struct client *client_of(struct listener_client *c)
{
        return (struct client *)(void *)c;
}

static struct region_server *server_of(const struct listener_client *c)
{
        return (struct region_server *)(void *)c->listener;
}

/* ---- Requests ---- */

static int receive_request(struct listener_client *c, uint64_t now_ns, const struct message *m)
{
        struct region_server *s = server_of(c);

        if (m->header.type != MESSAGE_REQUEST)
                return listener_refuse(c, MESSAGE_MALFORMED);
        /* The DFM sends the cookie to clients that have joined it. */
        if (s->cookie == 0 || m->header.cookie != s->cookie)
                return listener_refuse(c, MESSAGE_OTHER_RUN);
        if (!c->known)
                listener_log(&s->listener, c, "requests fragments");
        c->known = true;
        for (size_t k = 0; k < m->n; k++)
                ros_region_request(s->core, now_ns, c->index, m->request.resets, &m->request.entries[k]);
        return listener_set_full(c, !ros_region_has_room(s->core, c->index));
}

/* ---- Answers ---- */

/* Copies or generates the bytes of an answer. Returns their number. */
static size_t copy_payload(const struct region_server *s, const struct ros_job *j, uint8_t *to)
{
        const struct chunk *c = &j->job.chunk;
        size_t n = c->fragment_bytes > 0 ? j->job.to_bytes - c->offset : 0;

        if (n > 0 && !j->fill) {
                memcpy(to, s->buffer + j->at + c->offset, n);
                return n;
        }
        if (n > 0)
                source_fill(s->source, c->event, c->l1_id, to, c->fragment_bytes);
        if (c->offset > 0)
                memmove(to, to + c->offset, n);
        return n;
}

/* The rate limit includes all headers. */
static void charge(struct region_server *s, uint64_t now_ns, size_t bytes)
{
        uint64_t from_ns = MAX(s->next_ns, now_ns - MIN(now_ns, (uint64_t)CATCH_UP_NS));

        s->next_ns = from_ns + (uint64_t)((double)bytes * s->ns_per_byte);
}

/* Fills the client's buffer with answers: a directory, whose end is returned, and *ret_payload bytes of
 * payload. */
static size_t fill(struct region_server *s, uint64_t now_ns, struct client *c, uint8_t *directory,
                   size_t *ret_payload)
{
        struct chunk_context k = chunk_context_begin((uint16_t)s->listener.context.self->index);
        uint8_t *at = directory, *last = NULL, *payload = c->bytes + FRAGMENTS_HEAD_MAX_BYTES;
        struct ros_job job;

        *ret_payload = 0;
        while (k.n < CHUNKS_MAX && *ret_payload < MESSAGE_BYTES &&
               ros_region_answer(s->core, c->link.index, &job)) {
                struct chunk chunk = job.job.chunk;

                chunk.length = (uint32_t)copy_payload(s, &job, payload + *ret_payload);
                *ret_payload += chunk.length;
                last = at;
                at += chunk_encode(&k, &chunk, at);
                charge(s, now_ns, MAX((size_t)(at - last) + chunk.length, (size_t)ANSWER_LEAST_BYTES));
        }
        if (last)
                *last |= CHUNK_IS_LAST;
        return (size_t)(at - directory);
}

static bool make_answer(struct listener_client *link, uint64_t now_ns)
{
        struct client *c = client_of(link);
        struct region_server *s = server_of(link);
        uint8_t directory[FRAGMENTS_HEAD_MAX_BYTES], *head;
        struct message_header header = {
                .cookie = s->cookie,
                .sender_role = ROLE_ROS,
                .sender_index = (uint16_t)s->listener.context.self->index,
                .transaction = c->transaction,
        };
        size_t n, payload;

        if (now_ns < s->next_ns || !ros_region_is_ready(s->core, link->index))
                return false;
        n = fill(s, now_ns, c, directory, &payload);
        (void)listener_set_full(link, !ros_region_has_room(s->core, link->index));
        if (n == 0)
                return false;
        link->out = c->bytes;
        link->out_begin = FRAGMENTS_HEAD_MAX_BYTES - FRAGMENTS_HEADER_BYTES - n;
        link->out_end = FRAGMENTS_HEAD_MAX_BYTES + payload;
        head = c->bytes + link->out_begin;
        memcpy(head + FRAGMENTS_HEADER_BYTES, directory, n);
        fragments_header_encode(&header, head, n);
        c->transaction++;
        return true;
}

/* ---- The server ---- */

static void begin_client(struct listener_client *link)
{
        client_of(link)->transaction = 0;
        client_of(link)->pace_bps = 0;
}

static void end_client(struct listener_client *link)
{
        ros_region_forget(server_of(link)->core, link->index);
}

static const struct listener_ops ops = {
        .what = "level-2 client",
        .take = receive_request,
        .make = make_answer,
        .begin = begin_client,
        .end = end_client,
};

static double cost_per_byte(const struct scenario *s)
{
        double mtu = (double)scenario_mtu_bytes(s);
        double frame = mtu + ETHERNET_HEADER_BYTES + (double)network_overhead_bytes(s);

        return 8e9 / (double)network_regions_rate_bps(s) * frame / (mtu - SEGMENT_HEADERS_BYTES);
}

static int allocate(struct region_server *s)
{
        for (uint32_t i = 0; i < LISTENER_CLIENTS_MAX; i++) {
                struct client *c = &s->clients[i];

                listener_add(&s->listener, &c->link, i);
                /* The kernel allocates pages on first use. */
                c->bytes = malloc(FRAGMENTS_HEAD_MAX_BYTES + MESSAGE_BYTES + EVB_FRAGMENT_MAX_BYTES);
                if (!c->bytes)
                        return log_error_errno(ENOMEM, "level2.regions: %m");
        }
        return 0;
}

int region_server_new(struct region_server **ret, const struct data_context *context, struct ros *core,
                      const struct source *source, const uint8_t *buffer)
{
        struct region_server *s;
        int r;

        if (context->scenario->level2.regions_port == 0)
                return 0;
        s = calloc(1, sizeof *s);
        if (!s)
                return log_error_errno(ENOMEM, "level2.regions: %m");
        s->core = core;
        s->source = source;
        s->buffer = buffer;
        s->ns_per_byte = cost_per_byte(context->scenario);
        s->listener.listener = -1;
        r = allocate(s);
        if (r >= 0)
                r = listener_open(&s->listener, &ops, context, context->scenario->level2.regions_port);
        if (r < 0) {
                region_server_free(s);
                return r;
        }
        *ret = s;
        return 0;
}

struct region_server *region_server_free(struct region_server *s)
{
        if (!s)
                return NULL;
        listener_close(&s->listener);
        for (size_t i = 0; i < LISTENER_CLIENTS_MAX; i++)
                free(s->clients[i].bytes);
        free(s);
        return NULL;
}

/* A resumed run has another cookie. */
static void follow_run(struct region_server *s)
{
        uint64_t cookie = ros_member(s->core)->cookie;

        if (s->cookie == cookie)
                return;
        s->cookie = cookie;
        for (size_t i = 0; i < LISTENER_CLIENTS_MAX; i++) {
                if (s->clients[i].link.known)
                        listener_drop(&s->clients[i].link);
        }
}

/* Sets the rate at which the kernel paces the data to each client (socket(7), SO_MAX_PACING_RATE). */
static void share_rate(struct region_server *s)
{
        uint64_t n = 0, each_bps;

        for (size_t i = 0; i < LISTENER_CLIENTS_MAX; i++)
                n += s->clients[i].link.known;
        each_bps = n > 0 ? network_regions_rate_bps(s->listener.context.scenario) / n : 0;
        for (size_t i = 0; i < LISTENER_CLIENTS_MAX; i++) {
                struct client *c = &s->clients[i];

                if (!c->link.known || c->pace_bps == each_bps)
                        continue;
                c->pace_bps = each_bps;
                tcp_pace(c->link.io.fd, each_bps / 8);
        }
}

int region_server_turn(struct region_server *s, uint64_t now_ns)
{
        int r;

        if (!s)
                return 0;
        follow_run(s);
        r = listener_receive(&s->listener, now_ns);
        share_rate(s);
        listener_send(&s->listener, now_ns);
        return r;
}

static bool has_answer(const struct region_server *s, const struct client *c)
{
        return c->link.io.fd >= 0 && !c->link.blocked && ros_region_is_ready(s->core, c->link.index);
}

uint64_t region_server_deadline_ns(const struct region_server *s)
{
        uint64_t deadline = NEVER_NS;

        for (size_t i = 0; s && i < LISTENER_CLIENTS_MAX; i++) {
                if (has_answer(s, &s->clients[i]))
                        deadline = s->next_ns;
        }
        return s ? MIN(deadline, listener_deadline_ns(&s->listener)) : NEVER_NS;
}

void region_server_account(struct region_server *s)
{
        if (s)
                stats_copy_regions(s->listener.context.stats, s->core);
}
