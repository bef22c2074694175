/* Handles connections of clients that are not nodes. The owner interprets the messages. */
#include "data/client_listener.h"

#include <errno.h>
#include <sys/epoll.h>

#include "base/log.h"
#include "base/util.h"
#include "conf/address_list.h"
#include "data/network.h"
#include "data/socket_open.h"

#define ACCEPTS_MAX 8
#define STAGING_BYTES (64u << 10)
#define GREETING_NS (10 * NS_PER_S)
/* Maximum number of bytes that are read from one client, and that are written to all clients together, in one
 * turn of the node. */
#define TURN_BYTES (256u << 10)
#define TURN_SENT_BYTES (1u << 20)
/* Minimum interval of log lines, so that frequent connections cannot fill the log. */
#define LOG_NS NS_PER_S

static int watch(struct listener_client *c)
{
        return loop_modify(c->listener->context.loop, &c->io,
                           (c->full ? 0 : (uint32_t)EPOLLIN) | (c->blocked ? (uint32_t)EPOLLOUT : 0));
}

static void client_is_ready(void *ctx, uint32_t events)
{
        struct listener_client *c = ctx;

        /* EPOLLHUP and EPOLLERR are the only signs that a client whose input is paused has disconnected. */
        c->gone |= c->full && events & (EPOLLHUP | EPOLLERR);
        c->ready |= (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0;
        if (events & EPOLLOUT)
                c->blocked = false;
        (void)watch(c);
}

void listener_log(struct client_listener *d, const struct listener_client *c, const char *what)
{
        uint64_t now_ns = loop_now_ns(d->context.loop);
        char text[NET_ADDRESS_TEXT_MAX];

        if (now_ns < d->log_ns)
                return;
        d->log_ns = now_ns + LOG_NS;
        log_info("%s at %s %s", d->ops->what, net_address_format(&c->from, text), what);
}

int listener_refuse(struct listener_client *c, enum message_verdict verdict)
{
        stats_count_refusal(c->listener->context.stats, verdict);
        return -EPROTO;
}

int listener_set_full(struct listener_client *c, bool full)
{
        if (c->full == full)
                return 0;
        c->full = full;
        c->ready = true; /* staged messages may be waiting */
        return watch(c);
}

void listener_drop(struct listener_client *c)
{
        struct client_listener *d = c->listener;

        if (c->io.fd < 0)
                return;
        if (d->ops->end)
                d->ops->end(c);
        loop_remove(d->context.loop, &c->io);
        close(c->io.fd);
        tcp_reader_fini(&c->reader);
        *c = (struct listener_client){.listener = d, .index = c->index, .io.fd = -1};
}

static bool may_connect(const struct client_listener *d, const struct net_address *from)
{
        const struct scenario *s = d->context.scenario;
        bool v6 = from->any.sa_family == AF_INET6;

        return scenario_list_has(s, s->network.clients, from->any.sa_family,
                                 v6 ? from->v6.sin6_addr.s6_addr : (const uint8_t *)&from->v4.sin_addr);
}

/* NULL: all connections are in use by known clients. */
static struct listener_client *free_client(struct client_listener *d)
{
        struct listener_client *oldest = NULL;

        for (size_t i = 0; i < LISTENER_CLIENTS_MAX; i++) {
                struct listener_client *c = d->clients[i];

                if (c->io.fd < 0)
                        return c;
                if (!c->known && (!oldest || c->since_ns < oldest->since_ns))
                        oldest = c;
        }
        if (oldest)
                listener_drop(oldest);
        return oldest;
}

static void accept_one(struct client_listener *d, int fd, const struct net_address *from, uint64_t now_ns)
{
        bool may = may_connect(d, from);
        struct listener_client *c = may ? free_client(d) : NULL;

        if (!c) {
                stats_add(&d->context.stats->packets_foreign, 1);
                listener_log(d, &(struct listener_client){.from = *from},
                             may ? "is one too many, and was disconnected"
                                 : "is not in network.clients, and was disconnected");
                close(fd);
                return;
        }
        c->io = (struct loop_io){.fd = fd, .events = EPOLLIN, .ready = client_is_ready, .ctx = c};
        c->from = *from;
        c->since_ns = now_ns;
        c->ready = true;
        tcp_notice_silence(fd);
        if (d->ops->begin)
                d->ops->begin(c);
        if (tcp_reader_init(&c->reader, fd, STAGING_BYTES) < 0 || loop_add(d->context.loop, &c->io) < 0)
                listener_drop(c);
}

/* Returns negative errno if no more clients can connect. */
static int accept_some(struct client_listener *d, uint64_t now_ns)
{
        struct net_address from;

        for (int i = 0; d->ready && i < ACCEPTS_MAX; i++) {
                int fd = tcp_accept(d->listener, 0, &from);

                d->ready = fd >= 0;
                if (fd == -EINVAL)
                        return log_error_errno(ECONNABORTED, "%s: another program closed the port",
                                               d->ops->what);
                if (fd >= 0)
                        accept_one(d, fd, &from, now_ns);
        }
        return 0;
}

void listener_add(struct client_listener *d, struct listener_client *client, uint32_t index)
{
        *client = (struct listener_client){.listener = d, .index = index, .io.fd = -1};
        d->clients[index] = client;
}

int listener_open(struct client_listener *d, const struct listener_ops *ops,
                  const struct data_context *context, uint16_t port)
{
        struct net_address local;
        int r;

        d->ops = ops;
        d->context = *context;
        d->listener = -1;
        r = network_node_address(&local, context->self, port);
        if (r >= 0)
                r = d->listener = socket_open_listener(&local, 0, ops->what);
        if (r < 0)
                return r;
        socket_poll_busily(d->listener);
        d->io = (struct loop_io){
                .fd = d->listener, .events = EPOLLIN, .ready = loop_set_flag, .ctx = &d->ready};
        r = loop_add(context->loop, &d->io);
        return r < 0 ? log_error_errno(r, "%s: %m", ops->what) : 0;
}

void listener_close(struct client_listener *d)
{
        for (size_t i = 0; i < LISTENER_CLIENTS_MAX && d->clients[i]; i++)
                listener_drop(d->clients[i]);
        if (d->listener >= 0)
                close(d->listener);
        d->listener = -1;
}

/* Processes the complete staged messages. */
static int receive_staged(struct listener_client *c, uint64_t now_ns)
{
        struct client_listener *d = c->listener;
        size_t n, size;
        int r = 0;

        while (r == 0 && !c->full) {
                const uint8_t *bytes = tcp_reader_bytes(&c->reader, &n);
                enum message_verdict v = message_decode_first(&d->message, bytes, n, &size);

                if (v != MESSAGE_OK)
                        return v == MESSAGE_SHORT ? 0 : listener_refuse(c, v);
                if (d->message.header.sender_role != ROLE_LEVEL2)
                        return listener_refuse(c, MESSAGE_MALFORMED);
                tcp_reader_consume(&c->reader, size);
                r = d->ops->take(c, now_ns, &d->message);
        }
        return r;
}

static int read_some(struct listener_client *c, uint64_t now_ns)
{
        size_t taken = 0;
        int r = c->gone ? -EPIPE : receive_staged(c, now_ns);

        while (r == 0 && c->ready && !c->full && taken < TURN_BYTES) {
                ssize_t got = tcp_reader_fill(&c->reader);

                c->ready = got > 0;
                r = got < 0 ? (int)got : receive_staged(c, now_ns);
                taken += (size_t)MAX(got, 0);
        }
        if (r < 0)
                return r;
        return c->known || c->last || now_ns - c->since_ns < GREETING_NS ? 0 : -ETIMEDOUT;
}

int listener_receive(struct client_listener *d, uint64_t now_ns)
{
        int r = accept_some(d, now_ns);

        for (size_t i = 0; i < LISTENER_CLIENTS_MAX; i++) {
                if (d->clients[i]->io.fd >= 0 && read_some(d->clients[i], now_ns) < 0)
                        listener_drop(d->clients[i]);
        }
        return r;
}

static int flush(struct listener_client *c)
{
        struct iovec rest = {(void *)(uintptr_t)(c->out + c->out_begin), c->out_end - c->out_begin};
        ssize_t sent = tcp_send(c->io.fd, &rest, 1);

        if (sent < 0 && sent != -EAGAIN)
                return (int)sent;
        c->out_begin += sent > 0 ? (size_t)sent : 0;
        if (c->out_begin == c->out_end)
                return c->last ? -ECONNREFUSED : 0;
        c->blocked = true;
        return watch(c);
}

/* *left: number of bytes that all clients may still write in this turn. */
static int write_some(struct listener_client *c, uint64_t now_ns, size_t *left)
{
        int r = 0;

        c->more = false;
        while (r == 0 && !c->blocked) {
                size_t before;

                if (c->out_begin == c->out_end && !c->listener->ops->make(c, now_ns))
                        return 0;
                c->more = *left == 0;
                if (c->more)
                        return 0;
                before = c->out_begin;
                r = flush(c);
                *left -= MIN(*left, c->out_begin - before);
        }
        return r;
}

void listener_send(struct client_listener *d, uint64_t now_ns)
{
        size_t left = TURN_SENT_BYTES;

        d->first++;
        for (uint32_t i = 0; i < LISTENER_CLIENTS_MAX; i++) {
                struct listener_client *c = d->clients[(d->first + i) % LISTENER_CLIENTS_MAX];

                if (c->io.fd >= 0 && write_some(c, now_ns, &left) < 0)
                        listener_drop(c);
        }
}

uint64_t listener_deadline_ns(const struct client_listener *d)
{
        uint64_t deadline = NEVER_NS;

        for (size_t i = 0; i < LISTENER_CLIENTS_MAX; i++) {
                const struct listener_client *c = d->clients[i];

                if (c->io.fd < 0)
                        continue;
                if ((c->ready && !c->full) || c->more || c->gone)
                        return 0;
                if (!c->known && !c->last)
                        deadline = MIN(deadline, c->since_ns + GREETING_NS);
        }
        return d->ready ? 0 : deadline;
}
