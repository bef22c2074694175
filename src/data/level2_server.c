/* Serves level-2 clients over TCP. Each client has one outgoing message; the next one is made of the core's
 * undecided events when it is sent, so a slow client misses what is decided meanwhile, and delays nobody. */
#include "evb/data/level2_server.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>

#include "evb/base/log.h"
#include "evb/base/util.h"
#include "evb/conf/standby.h"
#include "evb/data/network.h"
#include "evb/data/socket_open.h"
#include "evb/net/tcp.h"

#define CLIENTS_MAX 16
#define ACCEPTS_MAX 8
#define STAGING_BYTES (64u << 10)
#define GREETING_NS (10 * NS_PER_S)
/* What one client may read or write in one turn of the DFM. */
#define TURN_BYTES (256u << 10)
#define TURN_MESSAGES 16
/* Clients that come and go must not fill the log. */
#define LOG_NS NS_PER_S

struct client {
        struct level2_server *server;
        struct loop_io io; /* fd -1: unused */
        bool ready, blocked;
        bool more; /* to send, in the next turn */
        bool joined;
        bool refused; /* to be closed once it knows why */
        struct net_address from;
        uint64_t since_ns;
        struct tcp_reader reader;
        uint64_t cursor; /* the first event that is not listed yet */
        uint32_t listed; /* messages Undecided so far */
        uint32_t next;   /* number of the next Decision */
        uint32_t unused; /* entries without effect */
        bool ack_due;
        enum run_state known; /* the state that it knows */
        size_t out_begin, out_end;
        uint8_t out[MESSAGE_LEVEL2_BYTES_MAX];
};

struct level2_server {
        struct data_context context;
        struct dfm *core;
        uint64_t incarnation, cookie;
        int listener;
        struct loop_io io;
        bool ready;
        struct client clients[CLIENTS_MAX];
        unsigned n_joined;
        uint64_t log_ns; /* before that, no client is logged */
        bool timed_out_logged;
        struct message message; /* scratch */
};

static void listener_is_ready(void *ctx, uint32_t events)
{
        (void)events;
        ((struct level2_server *)ctx)->ready = true;
}

static void client_is_ready(void *ctx, uint32_t events)
{
        struct client *c = ctx;

        c->ready |= (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0;
        if (!(events & EPOLLOUT))
                return;
        c->blocked = false;
        (void)loop_modify(c->server->context.loop, &c->io, EPOLLIN);
}

/* ---- Connections ---- */

static void log_client(struct level2_server *s, const struct client *c, const char *what)
{
        uint64_t now_ns = loop_now_ns(s->context.loop);
        char text[NET_ADDRESS_TEXT_MAX];

        if (now_ns < s->log_ns)
                return;
        s->log_ns = now_ns + LOG_NS;
        log_info("level-2 client at %s %s", net_address_format(&c->from, text), what);
}

static void drop_client(struct client *c)
{
        struct level2_server *s = c->server;

        if (c->io.fd < 0)
                return;
        s->n_joined -= c->joined;
        loop_remove(s->context.loop, &c->io);
        close(c->io.fd);
        tcp_reader_fini(&c->reader);
        *c = (struct client){.server = s, .io.fd = -1};
}

static bool may_connect(const struct level2_server *s, const struct net_address *from)
{
        bool v6 = from->any.sa_family == AF_INET6;

        return scenario_list_has(s->context.scenario, s->context.scenario->level2.from, from->any.sa_family,
                                 v6 ? from->v6.sin6_addr.s6_addr : (const uint8_t *)&from->v4.sin_addr);
}

/* NULL: all have joined. */
static struct client *free_client(struct level2_server *s)
{
        struct client *oldest = NULL;

        for (struct client *c = s->clients; c < s->clients + CLIENTS_MAX; c++) {
                if (c->io.fd < 0)
                        return c;
                if (!c->joined && (!oldest || c->since_ns < oldest->since_ns))
                        oldest = c;
        }
        if (oldest)
                drop_client(oldest);
        return oldest;
}

static void accept_one(struct level2_server *s, int fd, const struct net_address *from, uint64_t now_ns)
{
        struct client *c = may_connect(s, from) ? free_client(s) : NULL;

        if (!c) {
                stats_add(&s->context.stats->packets_foreign, 1);
                log_client(s, &(struct client){.from = *from},
                           may_connect(s, from) ? "is one too many, and was disconnected"
                                                : "is not in level2.from, and was disconnected");
                close(fd);
                return;
        }
        c->io = (struct loop_io){.fd = fd, .events = EPOLLIN, .ready = client_is_ready, .ctx = c};
        c->from = *from;
        c->since_ns = now_ns;
        c->ready = true;
        tcp_notice_silence(fd);
        if (tcp_reader_init(&c->reader, fd, STAGING_BYTES) < 0 || loop_add(s->context.loop, &c->io) < 0)
                drop_client(c);
}

static void accept_some(struct level2_server *s, uint64_t now_ns)
{
        struct net_address from;

        for (int i = 0; s->ready && i < ACCEPTS_MAX; i++) {
                int fd = tcp_accept(s->listener, 0, &from);

                s->ready = fd >= 0;
                if (fd >= 0)
                        accept_one(s, fd, &from, now_ns);
        }
}

struct dfm_level2_config level2_server_config(const struct scenario *s)
{
        return (struct dfm_level2_config){
                .on = s->level2.port > 0,
                .accept_undecided = s->level2.undecided == UNDECIDED_ACCEPT,
                .timeout_ns = s->level2.timeout_ns,
                .window = (uint32_t)s->level2.window,
        };
}

int level2_server_new(struct level2_server **ret, const struct data_context *context, struct dfm *core,
                      uint64_t incarnation)
{
        struct level2_server *s;
        struct net_address local;
        int r;

        if (context->scenario->level2.port == 0)
                return 0;
        s = calloc(1, sizeof *s);
        if (!s)
                return log_error_errno(ENOMEM, "level 2: %m");
        s->context = *context;
        s->core = core;
        s->incarnation = incarnation;
        s->cookie = dfm_cookie(core);
        s->listener = -1;
        for (size_t i = 0; i < CLIENTS_MAX; i++)
                s->clients[i] = (struct client){.server = s, .io.fd = -1};
        r = network_node_address(&local, context->self, context->scenario->level2.port);
        if (r >= 0)
                r = s->listener = socket_open_listener(&local, 0, "level-2 clients");
        if (r >= 0) {
                s->io = (struct loop_io){
                        .fd = s->listener, .events = EPOLLIN, .ready = listener_is_ready, .ctx = s};
                r = loop_add(context->loop, &s->io);
        }
        if (r < 0) {
                level2_server_free(s);
                return r;
        }
        *ret = s;
        return 0;
}

struct level2_server *level2_server_free(struct level2_server *s)
{
        if (!s)
                return NULL;
        for (size_t i = 0; i < CLIENTS_MAX; i++)
                drop_client(&s->clients[i]);
        if (s->listener >= 0)
                close(s->listener);
        free(s);
        return NULL;
}

/* ---- Decisions ---- */

/* The functions below return 0, or a negative errno if the connection must be closed. */
static int refuse(struct client *c, enum message_verdict verdict)
{
        stats_count_refusal(c->server->context.stats, verdict);
        return -EPROTO;
}

static void begin_message(struct level2_server *s, uint32_t type, uint32_t transaction)
{
        struct message *m = &s->message;

        m->header = (struct message_header){
                .cookie = s->cookie,
                .sender_role = ROLE_DFM,
                .type = type,
                .transaction = transaction,
        };
        m->dfm = s->incarnation;
        m->n = 0;
}

static void queue_message(struct client *c)
{
        c->out_begin = 0;
        c->out_end = message_encode(&c->server->message, c->out, sizeof c->out);
}

static int take_join(struct client *c, const struct message *m)
{
        struct level2_server *s = c->server;
        uint64_t incarnation = m->join.incarnation;
        enum welcome_verdict verdict = WELCOME_OK;

        if (c->joined || c->refused || incarnation == 0)
                return refuse(c, MESSAGE_MALFORMED);
        if (m->header.cookie != 0 && m->header.cookie != s->cookie)
                verdict = WELCOME_OVER;
        else if (m->join.run != 0 && m->join.run != dfm_run(s->core))
                verdict = WELCOME_OTHER_RUN;
        c->joined = verdict == WELCOME_OK;
        c->refused = !c->joined;
        s->n_joined += c->joined;
        begin_message(s, MESSAGE_WELCOME, 0);
        s->message.welcome.incarnation = incarnation;
        s->message.welcome.run = dfm_run(s->core);
        s->message.welcome.verdict = (uint16_t)verdict;
        s->message.welcome.key = 0;
        queue_message(c);
        log_client(s, c, c->joined ? "joined" : "expects another run, and was refused");
        return 0;
}

static int take_decisions(struct client *c, uint64_t now_ns, const struct message *m)
{
        struct level2_server *s = c->server;

        if (!c->joined || m->header.transaction != c->next)
                return refuse(c, MESSAGE_MALFORMED);
        if (m->header.cookie != s->cookie || m->dfm != s->incarnation)
                return refuse(c, MESSAGE_OTHER_RUN);
        for (size_t k = 0; k < m->n; k++)
                c->unused += !dfm_decide(s->core, now_ns, &m->decision.entries[k]);
        c->next++;
        c->ack_due = true;
        return 0;
}

static int take_message(struct client *c, uint64_t now_ns, const struct message *m)
{
        if (m->header.sender_role != ROLE_LEVEL2)
                return refuse(c, MESSAGE_MALFORMED);
        switch (m->header.type) {
        case MESSAGE_JOIN:
                return take_join(c, m);
        case MESSAGE_DECISION:
                return take_decisions(c, now_ns, m);
        }
        return refuse(c, MESSAGE_MALFORMED);
}

/* Takes the complete messages that are staged. */
static int take_staged(struct client *c, uint64_t now_ns)
{
        struct message *m = &c->server->message;
        size_t n, size;
        int r = 0;

        while (r == 0) {
                const uint8_t *bytes = tcp_reader_bytes(&c->reader, &n);
                enum message_verdict v = message_decode_first(m, bytes, n, &size);

                if (v != MESSAGE_OK)
                        return v == MESSAGE_SHORT ? 0 : refuse(c, v);
                tcp_reader_consume(&c->reader, size);
                r = take_message(c, now_ns, m);
        }
        return r;
}

static int read_some(struct client *c, uint64_t now_ns)
{
        size_t taken = 0;

        while (c->ready && taken < TURN_BYTES) {
                ssize_t got = tcp_reader_fill(&c->reader);
                int r = got < 0 ? (int)got : take_staged(c, now_ns);

                if (r < 0)
                        return r;
                c->ready = got > 0;
                taken += (size_t)got;
        }
        return c->joined || c->refused || now_ns - c->since_ns < GREETING_NS ? 0 : -ETIMEDOUT;
}

/* A resumed run has another cookie: its clients join again. */
static void follow_run(struct level2_server *s)
{
        if (s->cookie == dfm_cookie(s->core))
                return;
        s->cookie = dfm_cookie(s->core);
        for (size_t i = 0; i < CLIENTS_MAX; i++)
                drop_client(&s->clients[i]);
}

static void lose_client(struct client *c)
{
        if (c->joined && c->known != RUN_ENDED)
                log_client(c->server, c, "left");
        drop_client(c);
}

void level2_server_receive(struct level2_server *s, uint64_t now_ns)
{
        if (!s)
                return;
        follow_run(s);
        accept_some(s, now_ns);
        for (struct client *c = s->clients; c < s->clients + CLIENTS_MAX; c++) {
                if (c->io.fd >= 0 && read_some(c, now_ns) < 0)
                        lose_client(c);
        }
}

/* ---- Events ---- */

static void make_ack(struct client *c, enum run_state state)
{
        struct message *m = &c->server->message;

        begin_message(c->server, MESSAGE_DECISION_ACK, 0);
        m->decision_ack.next = c->next;
        m->decision_ack.state = state;
        m->decision_ack.unused = c->unused;
        c->ack_due = false;
        c->known = state;
        queue_message(c);
}

/* Queues the next message. False: there is none in this turn. */
static bool make_next(struct client *c)
{
        struct level2_server *s = c->server;
        enum run_state state = dfm_state(s->core);
        struct message *m = &s->message;
        uint64_t from = c->cursor;

        if (!c->joined)
                return false;
        if (c->ack_due || c->known != state) {
                make_ack(c, state);
                return true;
        }
        begin_message(s, MESSAGE_UNDECIDED, c->listed);
        m->n = dfm_list_undecided(s->core, &c->cursor, m->undecided.entries, MESSAGE_ENTRIES_MAX);
        /* A listing looks at a limited number of events, and these may all be decided. */
        c->more = m->n == 0 && c->cursor != from;
        if (m->n == 0)
                return false;
        c->listed++;
        queue_message(c);
        return true;
}

static int flush(struct client *c)
{
        struct iovec rest = {c->out + c->out_begin, c->out_end - c->out_begin};
        ssize_t sent = tcp_send(c->io.fd, &rest, 1);

        if (sent < 0 && sent != -EAGAIN)
                return (int)sent;
        c->out_begin += sent > 0 ? (size_t)sent : 0;
        if (c->out_begin == c->out_end)
                return c->refused ? -ECONNREFUSED : 0;
        c->blocked = true;
        return loop_modify(c->server->context.loop, &c->io, EPOLLIN | EPOLLOUT);
}

static int write_some(struct client *c)
{
        int r = 0;

        c->more = false;
        for (int n = 0; r == 0 && !c->blocked && n < TURN_MESSAGES; n++) {
                if (c->out_begin == c->out_end && !make_next(c))
                        return 0;
                r = flush(c);
        }
        c->more = r == 0 && !c->blocked;
        return r;
}

/* A farm that is absent or too slow is no error, but somebody should look at it. */
static void log_timed_out(struct level2_server *s)
{
        if (s->timed_out_logged || dfm_level2_counts(s->core)->timed_out == 0)
                return;
        s->timed_out_logged = true;
        log_warning("level 2 leaves events undecided (%u clients are connected); they are %s", s->n_joined,
                    s->context.scenario->level2.undecided == UNDECIDED_ACCEPT ? "accepted" : "rejected");
}

void level2_server_send(struct level2_server *s)
{
        for (size_t i = 0; s && i < CLIENTS_MAX; i++) {
                struct client *c = &s->clients[i];

                if (c->io.fd >= 0 && write_some(c) < 0)
                        lose_client(c);
        }
        if (s)
                log_timed_out(s);
}

uint64_t level2_server_deadline_ns(const struct level2_server *s)
{
        uint64_t deadline = NEVER_NS;

        for (size_t i = 0; s && i < CLIENTS_MAX; i++) {
                const struct client *c = &s->clients[i];

                if (c->io.fd < 0)
                        continue;
                if (c->ready || c->more)
                        return 0;
                if (!c->joined && !c->refused)
                        deadline = MIN(deadline, c->since_ns + GREETING_NS);
        }
        return s && s->ready ? 0 : deadline;
}

void level2_server_account(struct level2_server *s)
{
        const struct dfm_level2_counts *c;
        struct node_stats *to;

        if (!s)
                return;
        c = dfm_level2_counts(s->core);
        to = s->context.stats;
        stats_set(&to->level2_accepted, c->accepted);
        stats_set(&to->level2_rejected, c->rejected);
        stats_set(&to->level2_timed_out, c->timed_out);
        stats_set(&to->level2_late, c->late);
        stats_set(&to->level2_repeated, c->repeated);
        stats_set(&to->level2_unknown, c->unknown);
        to->level2_latency_ns = *dfm_level2_latency_ns(s->core);
}
