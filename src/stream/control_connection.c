/* Accepts or makes control connections, and limits unknown peers in number and time. */
#include "control_connection.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>

#include "base/util.h"
#include "net/tcp.h"

/* A peer sends its first message at once; a port scan leaves its connection open. */
#define SPEAK_NS (5 * NS_PER_S)
/* A refused peer reads the reason, and closes the connection. */
#define LEAVE_NS NS_PER_S
/* Both ends of a stream send a message each second. If an end is silent for this time, it has stopped,
 * although its machine may still acknowledge. TCP alone detects only a failed machine, after the same
 * time. */
#define SILENCE_S 20
#define SILENCE_NS (SILENCE_S * NS_PER_S)
#define AS_TEXT(x) #x
#define TEXT_OF(x) AS_TEXT(x)

static bool dials(const struct stream_control *k)
{
        return k->listener.fd < 0;
}

static void received(void *ctx, json_t *message)
{
        struct stream_control_peer *p = ctx;

        /* Further messages would only cost time and memory. */
        if (p->refused)
                return;
        p->received_ns = loop_now_ns(p->control->loop);
        p->control->received(p->control->ctx, &p->connection, message);
}

static void fail(struct stream_control *k, int error)
{
        k->retry_ns = k->give_up_ns = NEVER_NS;
        k->failed(k->ctx, error);
}

/* The peer may not be listening yet. */
static void dial_later(struct stream_control *k, int error)
{
        k->error = error;
        k->retry_ns = clock_now_ns() + tcp_backoff_next_ns(&k->backoff);
        if (error == -EBADMSG || error == -EMSGSIZE)
                fail(k, -EBADMSG);
}

static void ended(void *ctx, int error)
{
        struct stream_control_peer *p = ctx;

        p->deadline_ns = 0;
        if (p->admitted)
                p->control->ended(p->control->ctx, &p->connection, error);
        else if (dials(p->control))
                dial_later(p->control, error);
}

static bool is_free(const struct stream_control_peer *p)
{
        return !p->connection.loop;
}

static void close_peer(struct stream_control_peer *p)
{
        p->control->foreign_senders += !p->admitted && !dials(p->control);
        json_connection_close(&p->connection);
}

/* Returns a free entry, or the entry of the oldest connection that has not been admitted. */
static struct stream_control_peer *find_place(struct stream_control *k)
{
        struct stream_control_peer *found = NULL;

        for (size_t i = 0; i < STREAM_CONTROL_PEERS_MAX; i++) {
                struct stream_control_peer *p = &k->peers[i];

                if (is_free(p))
                        return p;
                if (!p->admitted && (!found || p->deadline_ns < found->deadline_ns))
                        found = p;
        }
        if (found)
                close_peer(found);
        return found;
}

/* Takes over the socket. Returns negative errno. */
static int open_peer(struct stream_control *k, struct stream_control_peer *p, int fd, bool connecting)
{
        *p = (struct stream_control_peer){
                .connection = {.received = received, .ended = ended, .ctx = p, .key = k->key},
                .control = k,
                .deadline_ns = connecting ? NEVER_NS : loop_now_ns(k->loop) + SPEAK_NS,
        };
        return json_connection_open(&p->connection, k->loop, fd, connecting);
}

static void accept_one(void *ctx, uint32_t events)
{
        struct stream_control *k = ctx;
        struct net_address from;
        int fd = tcp_accept(k->listener.fd, 0, &from);
        struct stream_control_peer *p = fd >= 0 ? find_place(k) : NULL;

        (void)events;
        if (p)
                (void)open_peer(k, p, fd, false);
        else if (fd >= 0)
                close(fd);
}

static void dial_now(struct stream_control *k)
{
        struct stream_control_peer *p = &k->peers[0];
        int r = tcp_connect(NULL, &k->to, 0);

        k->retry_ns = NEVER_NS;
        k->error = -ETIMEDOUT;
        json_connection_close(&p->connection);
        if (r >= 0)
                r = open_peer(k, p, r, true);
        if (r >= 0)
                json_connection_send(&p->connection, k->greet(k->ctx));
        else
                dial_later(k, r);
}

int stream_control_listen(struct stream_control *k, struct loop *loop, const struct net_address *local)
{
        int fd = tcp_listen(local, 0);

        if (fd < 0)
                return fd;
        k->loop = loop;
        k->retry_ns = k->give_up_ns = NEVER_NS;
        k->listener = (struct loop_io){.fd = fd, .events = EPOLLIN, .ready = accept_one, .ctx = k};
        return loop_add(loop, &k->listener);
}

void stream_control_dial(struct stream_control *k, struct loop *loop, const struct net_address *to,
                         uint64_t wait_ns)
{
        uint64_t seed = 0;

        (void)getrandom(&seed, sizeof seed, 0);
        tcp_backoff_init(&k->backoff, seed);
        k->loop = loop;
        k->listener.fd = -1;
        k->to = *to;
        k->error = -ETIMEDOUT;
        k->retry_ns = 0;
        k->give_up_ns = clock_now_ns() + wait_ns;
}

void stream_control_close(struct stream_control *k)
{
        if (!k->loop)
                return;
        for (size_t i = 0; i < STREAM_CONTROL_PEERS_MAX; i++)
                json_connection_close(&k->peers[i].connection);
        loop_remove(k->loop, &k->listener);
        if (!dials(k))
                close(k->listener.fd);
        k->loop = NULL;
}

void stream_control_admit(struct json_connection *c)
{
        struct stream_control_peer *p = container_of(c, struct stream_control_peer, connection);

        p->admitted = true;
        /* Not the time of the last wake-up, since which the caller may have prepared a large ring. */
        p->received_ns = clock_now_ns();
        p->deadline_ns = NEVER_NS;
        p->control->give_up_ns = NEVER_NS;
}

void stream_control_refuse(struct json_connection *c, const char *reason)
{
        struct stream_control_peer *p = container_of(c, struct stream_control_peer, connection);

        json_connection_send(c, json_pack("{s:s, s:s}", "type", "refused", "reason", reason));
        p->refused = true;
        p->deadline_ns = loop_now_ns(p->control->loop) + LEAVE_NS;
}

/* Closes the connection if its deadline has passed. Returns the deadline; NEVER_NS: the entry is closed or
 * free. */
static uint64_t check_peer(struct stream_control *k, struct stream_control_peer *p, uint64_t now_ns)
{
        bool lasts = p->admitted && p->deadline_ns == NEVER_NS;
        uint64_t end_ns = lasts ? p->received_ns + SILENCE_NS : p->deadline_ns;

        if (is_free(p))
                return NEVER_NS;
        if (now_ns < end_ns)
                return end_ns;
        close_peer(p);
        if (lasts)
                k->ended(k->ctx, &p->connection, -ETIMEDOUT);
        return NEVER_NS;
}

uint64_t stream_control_turn(struct stream_control *k, uint64_t now_ns)
{
        uint64_t next_ns = NEVER_NS;

        /* Makes at least one attempt, however late this process is. */
        if (now_ns >= k->give_up_ns && k->retry_ns > 0)
                fail(k, k->error);
        else if (now_ns >= k->retry_ns)
                dial_now(k);
        for (size_t i = 0; i < STREAM_CONTROL_PEERS_MAX; i++)
                next_ns = MIN(next_ns, check_peer(k, &k->peers[i], now_ns));
        return MIN(next_ns, MIN(k->retry_ns, k->give_up_ns));
}

const char *stream_control_explain(int error)
{
        if (error == -EPIPE)
                return "it closed the connection";
        return error == -ETIMEDOUT ? "it was silent for " TEXT_OF(SILENCE_S) " s" : strerror(-error);
}

int stream_control_addresses(const struct json_connection *c, uint16_t peer_port,
                             struct net_address *ret_peer, struct net_address *ret_local)
{
        struct net_address peer = {.size_bytes = sizeof peer.v6}, local = {.size_bytes = sizeof local.v6};

        if (getpeername(c->io.fd, &peer.any, &peer.size_bytes) < 0 ||
            getsockname(c->io.fd, &local.any, &local.size_bytes) < 0)
                return -errno;
        if (peer.any.sa_family == AF_INET6)
                peer.v6.sin6_port = htons(peer_port);
        else
                peer.v4.sin_port = htons(peer_port);
        *ret_peer = peer;
        *ret_local = local;
        return 0;
}
