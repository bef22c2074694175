/* Sends fragments over TCP: the ROS connects to each SFI, introduces itself, and receives requests on the
 * same connection. Data that a connection does not accept waits in the core's queues. A broken connection is
 * reopened after growing pauses, and the SFI requests the lost fragments again. */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>

#include "evb/base/log.h"
#include "evb/base/util.h"
#include "evb/data/data_send.h"
#include "evb/data/network.h"
#include "evb/data/socket_open.h"
#include "evb/net/tcp.h"

#define MESSAGE_MAX_BYTES (1u << 20)
#define STAGING_BYTES 65536u
#define IOV_MAX_OUT 520
/* Full staging buffers of requests read from one SFI before the next one is served. */
#define READS_MAX 8

enum way_state { WAY_WAITING, WAY_CONNECTING, WAY_UP };

struct tcp_way {
        struct data_sender *sender;
        uint32_t sfi;
        struct net_address to;
        enum way_state state;
        struct loop_io io;
        struct tcp_backoff backoff;
        uint64_t retry_ns;
        struct tcp_reader reader;
        bool ready_in, ready_out;
        bool was_up;
        /* The message being sent: entries from `at` on are unsent. Its fragments stay pinned in the core. */
        struct iovec iov[IOV_MAX_OUT];
        size_t n_iov, at;
        uint32_t pinned[SEND_JOBS_MAX];
        size_t n_pinned;
        uint8_t *headers; /* copies, because the ways share one packer */
};

struct tcp_sender {
        struct tcp_way *ways;
        uint32_t n;
        struct message message; /* scratch: encoded or decoded, then done with */
};

static void is_ready(void *ctx, uint32_t events)
{
        struct tcp_way *w = ctx;

        w->ready_in |= (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0;
        w->ready_out |= (events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) != 0;
}

static void unpin(struct tcp_way *w)
{
        for (size_t i = 0; i < w->n_pinned; i++)
                ros_unpin(w->sender->core, w->pinned[i]);
        w->n_pinned = 0;
        w->n_iov = w->at = 0;
}

static void lose(struct tcp_way *w, uint64_t now_ns, int why)
{
        uint64_t pause_ns = tcp_backoff_next_ns(&w->backoff);

        if (w->was_up && w->state == WAY_UP && ros_run_state(w->sender->core) < RUN_ENDED)
                log_warning_errno(why, "lost the connection to SFI %u: %m", w->sfi + 1);
        if (w->io.fd >= 0) {
                loop_remove(w->sender->context.loop, &w->io);
                close(w->io.fd);
        }
        w->io.fd = -1;
        tcp_reader_fini(&w->reader);
        unpin(w);
        w->state = WAY_WAITING;
        w->retry_ns = now_ns + pause_ns;
}

static void begin(struct tcp_way *w, uint64_t now_ns)
{
        const struct data_context *c = &w->sender->context;
        struct net_address local;
        int fd = network_node_address(&local, c->self, 0);

        if (fd >= 0)
                fd = tcp_connect(&local, &w->to, c->scenario->network.send_buffer_bytes);
        if (fd >= 0) {
                tcp_notice_silence(fd);
                w->io = (struct loop_io){.fd = fd, .events = EPOLLIN | EPOLLOUT, .ready = is_ready, .ctx = w};
                w->state = WAY_CONNECTING;
                w->ready_in = w->ready_out = false;
        }
        if (fd < 0 || tcp_reader_init(&w->reader, fd, STAGING_BYTES) < 0 || loop_add(c->loop, &w->io) < 0)
                lose(w, now_ns, fd < 0 ? fd : -ENOMEM);
}

/* The SFI accepts only connections whose first message names the ROS. */
static void introduce(struct tcp_way *w)
{
        struct message *m = &((struct tcp_sender *)w->sender->state)->message;

        m->header = data_sender_header(w->sender, w->sfi);
        m->header.type = MESSAGE_TOTALS;
        m->totals.fragments = 0;
        m->totals.datagrams = ros_transaction(w->sender->core, w->sfi);
        w->iov[0] = (struct iovec){w->headers, message_encode(m, w->headers, STAGING_BYTES)};
        w->n_iov = 1;
        w->at = 0;
}

static void note_granted(const struct tcp_way *w)
{
        uint64_t asked = w->sender->context.scenario->network.send_buffer_bytes,
                 granted = tcp_granted_bytes(w->io.fd, true);

        stats_set(&w->sender->context.stats->granted_send_buffer_bytes, granted);
        socket_note_buffer(SOCKET_SEND, "data connections", true, asked, granted);
}

static void check_connected(struct tcp_way *w, uint64_t now_ns)
{
        int r = tcp_connected(w->io.fd);

        if (r < 0) {
                lose(w, now_ns, r);
                return;
        }
        if (w->was_up)
                stats_add(&w->sender->context.stats->reconnects, 1);
        w->was_up = true;
        w->state = WAY_UP;
        tcp_backoff_reset(&w->backoff);
        note_granted(w);
        introduce(w);
}

/* Packs the next message; false: there is nothing to send. */
static bool pack(struct tcp_way *w)
{
        struct data_sender *s = w->sender;
        struct message_header header = data_sender_header(s, w->sfi);
        const struct chunk_datagram *d;
        size_t jobs = data_sender_take(s, w->sfi, MESSAGE_MAX_BYTES);
        uint8_t *copy = w->headers;

        if (chunk_pack(s->packer, &header, s->chunk_jobs, jobs, &d) == 0)
                return false;
        for (size_t i = 0; i < jobs && i <= d->jobs_done; i++) {
                if (s->jobs[i].entry == UINT32_MAX)
                        continue;
                ros_pin(s->core, s->jobs[i].entry);
                w->pinned[w->n_pinned++] = s->jobs[i].entry;
        }
        /* Each pair of entries begins with a header in the packer's memory, which the next message reuses. */
        memcpy(w->iov, d->iov, d->n_iov * sizeof *d->iov);
        for (size_t i = 0; i < d->n_iov; i += 2) {
                memcpy(copy, w->iov[i].iov_base, w->iov[i].iov_len);
                w->iov[i].iov_base = copy;
                copy += w->iov[i].iov_len;
        }
        w->n_iov = d->n_iov;
        w->at = 0;
        stats_add(&s->context.stats->packets_sent, 1);
        stats_add(&s->context.stats->bytes_sent, d->size_bytes);
        ros_count_datagrams(s->core, w->sfi, 1);
        ros_sent(s->core, w->sfi, d->jobs_done, d->next_offset);
        return true;
}

static void advance(struct tcp_way *w, size_t sent)
{
        while (sent > 0 && w->at < w->n_iov) {
                struct iovec *v = &w->iov[w->at];
                size_t part = MIN(sent, v->iov_len);

                v->iov_base = (uint8_t *)v->iov_base + part;
                v->iov_len -= part;
                sent -= part;
                if (v->iov_len > 0)
                        return;
                w->at++;
        }
        while (w->at < w->n_iov && w->iov[w->at].iov_len == 0)
                w->at++;
        if (w->at == w->n_iov)
                unpin(w);
}

static void write_some(struct tcp_way *w, uint64_t now_ns)
{
        /* Bounded, so that requests and other SFIs are served as well. */
        for (int round = 0; round < 8; round++) {
                if (w->at == w->n_iov && !pack(w)) {
                        loop_modify(w->sender->context.loop, &w->io, EPOLLIN);
                        return;
                }
                ssize_t sent = tcp_send(w->io.fd, w->iov + w->at, w->n_iov - w->at);

                if (sent == -EAGAIN) {
                        w->ready_out = false;
                        stats_add(&w->sender->context.stats->send_blocked, 1);
                        loop_modify(w->sender->context.loop, &w->io, EPOLLIN | EPOLLOUT);
                        return;
                }
                if (sent < 0) {
                        lose(w, now_ns, (int)sent);
                        return;
                }
                advance(w, (size_t)sent);
        }
}

/* Handles the next received message. 1: done; 0: incomplete; -EPROTO: not a request of this SFI, so the
 * connection must be closed. */
static int take_message(struct tcp_way *w, uint64_t now_ns)
{
        struct message *m = &((struct tcp_sender *)w->sender->state)->message;
        struct message_header h;
        enum message_verdict v;
        size_t left, size;
        uint32_t check;
        const uint8_t *bytes = tcp_reader_bytes(&w->reader, &left);

        if (left < MESSAGE_HEADER_BYTES)
                return 0;
        v = message_header_decode(&h, bytes, left, &check);
        if (v == MESSAGE_OK &&
            (h.type != MESSAGE_REQUEST || h.sender_role != ROLE_SFI || h.sender_index != w->sfi))
                v = MESSAGE_MALFORMED;
        size = v == MESSAGE_OK ? MESSAGE_HEADER_BYTES + (size_t)h.payload_bytes : 0;
        if (v == MESSAGE_OK && size > left && size <= STAGING_BYTES)
                return 0;
        if (v == MESSAGE_OK)
                v = size > left ? MESSAGE_MALFORMED : message_decode(m, bytes, size);
        if (v != MESSAGE_OK) {
                stats_count_refusal(w->sender->context.stats, v);
                return -EPROTO;
        }
        ros_receive(w->sender->core, now_ns, m);
        tcp_reader_consume(&w->reader, size);
        return 1;
}

static void read_some(struct tcp_way *w, uint64_t now_ns)
{
        for (int round = 0; round < READS_MAX; round++) {
                ssize_t got = tcp_reader_fill(&w->reader);
                int r = 1;

                while (r > 0)
                        r = take_message(w, now_ns);
                if (r < 0 || got < 0) {
                        lose(w, now_ns, r < 0 ? r : (int)got);
                        return;
                }
                if (got == 0) {
                        w->ready_in = false;
                        return;
                }
        }
}

static int tcp_turn(struct data_sender *s, uint64_t now_ns, bool *ret_more)
{
        struct tcp_sender *t = s->state;

        *ret_more = false;
        /* The introduction needs the run's cookie. */
        if (!member_is_joined(ros_member(s->core)))
                return 0;
        for (uint32_t i = 0; i < t->n; i++) {
                struct tcp_way *w = &t->ways[i];

                if (w->state == WAY_WAITING && now_ns >= w->retry_ns)
                        begin(w, now_ns);
                if (w->state == WAY_CONNECTING && w->ready_out)
                        check_connected(w, now_ns);
                if (w->state == WAY_UP && w->ready_in)
                        read_some(w, now_ns);
                if (w->state == WAY_UP && w->ready_out)
                        write_some(w, now_ns);
                *ret_more |= w->state == WAY_UP && w->ready_in;
                *ret_more |= w->state == WAY_UP && w->ready_out &&
                             (w->at < w->n_iov || ros_next_with_jobs(s->core, i) == i);
        }
        return 0;
}

static uint64_t tcp_deadline(const struct data_sender *s)
{
        const struct tcp_sender *t = s->state;
        uint64_t deadline_ns = NEVER_NS;

        for (uint32_t i = 0; member_is_joined(ros_member(s->core)) && i < t->n; i++) {
                if (t->ways[i].state == WAY_WAITING)
                        deadline_ns = MIN(deadline_ns, t->ways[i].retry_ns);
        }
        return deadline_ns;
}

static int tcp_open(struct data_sender *s)
{
        const struct scenario *sc = s->context.scenario;
        struct tcp_sender *t = calloc(1, sizeof *t);
        int r = 0;

        if (!t)
                return log_error_errno(ENOMEM, "data connections: %m");
        s->state = t;
        t->n = (uint32_t)sc->sfi.count;
        t->ways = calloc(t->n, sizeof *t->ways);
        if (!t->ways || chunk_packer_new(&s->packer, MESSAGE_MAX_BYTES, 1) < 0)
                return log_error_errno(ENOMEM, "data connections: %m");
        chunk_packer_set_stream(s->packer);
        for (uint32_t i = 0; r >= 0 && i < t->n; i++) {
                struct tcp_way *w = &t->ways[i];

                w->sender = s;
                w->sfi = i;
                w->io.fd = -1;
                w->headers = malloc(STAGING_BYTES);
                tcp_backoff_init(&w->backoff, s->seed ^ i);
                r = w->headers ? network_node_address(&w->to, scenario_node_of(sc, ROLE_SFI, i),
                                                      (uint16_t)sc->network.data_port)
                               : log_error_errno(ENOMEM, "data connections: %m");
        }
        return r;
}

static void tcp_close(struct data_sender *s)
{
        struct tcp_sender *t = s->state;

        if (!t)
                return;
        for (uint32_t i = 0; t->ways && i < t->n; i++) {
                struct tcp_way *w = &t->ways[i];

                if (w->state != WAY_WAITING) {
                        unpin(w);
                        tcp_reader_fini(&w->reader);
                        close(w->io.fd);
                }
                free(w->headers);
        }
        free(t->ways);
        free(t);
}

const struct data_sender_ops data_send_tcp = {
        .open = tcp_open,
        .turn = tcp_turn,
        .deadline_ns = tcp_deadline,
        .close = tcp_close,
};
