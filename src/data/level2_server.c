/* Serves level-2 clients over TCP. Each client has one outgoing message. The next message is built from the
 * core's undecided events when it is sent. So a slow client does not learn of events that are decided in
 * between, and does not delay any other client. */
#include "data/level2_server.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "data/client_listener.h"
#include "data/network.h"

/* If there are more undecided events than this, the DFM holds back triggers. */
#define UNDECIDED_MAX 16384u

struct client {
        struct listener_client link; /* known: the client has joined; last: it was refused */
        uint64_t cursor;             /* the first event that is not listed yet */
        uint32_t listed;             /* number of Undecided messages so far */
        uint32_t next;               /* number of the next Decision */
        uint32_t unused;             /* entries without effect */
        bool ack_due;
        enum run_state last_state; /* state of the run in the last message to the client */
        uint32_t n_readouts;       /* number of ROSs sent to the client since their last change */
        uint8_t out[MESSAGE_LEVEL2_BYTES_MAX];
};

struct level2_server {
        struct client_listener listener;
        struct client clients[LISTENER_CLIENTS_MAX];
        struct dfm *core;
        uint64_t incarnation, cookie;
        /* Number of events that timed out, and when the last one did; 0: never. */
        uint64_t timed_out, timed_out_ns;
        uint32_t n_readouts; /* 0: clients request no fragments */
        struct readout_entry readouts[EVB_ROS_MAX];
};

static struct client *client_of(struct listener_client *c)
{
        return (struct client *)(void *)c;
}

static struct level2_server *server_of(const struct listener_client *c)
{
        return (struct level2_server *)(void *)c->listener;
}

struct dfm_level2_config level2_server_config(const struct scenario *s)
{
        return (struct dfm_level2_config){
                .on = s->level2.port > 0,
                .accept_undecided = !s->level2.rejects,
                .timeout_ns = s->level2.timeout_ns,
                .window = (uint32_t)MIN(s->ros.buffer_events / 2, UNDECIDED_MAX),
        };
}

/* ---- Decisions ---- */

static void begin_message(struct level2_server *s, uint32_t type, uint32_t transaction)
{
        struct message *m = &s->listener.message;

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
        c->link.out = c->out;
        c->link.out_begin = 0;
        c->link.out_end = message_encode(&server_of(&c->link)->listener.message, c->out, sizeof c->out);
}

static int receive_join(struct client *c, const struct message *m)
{
        struct level2_server *s = server_of(&c->link);
        uint64_t incarnation = m->join.incarnation;
        enum welcome_verdict verdict = WELCOME_OK;

        if (c->link.known || c->link.last || incarnation == 0)
                return listener_refuse(&c->link, MESSAGE_MALFORMED);
        if (m->header.cookie != 0 && m->header.cookie != s->cookie)
                verdict = WELCOME_OVER;
        else if (m->join.run != 0 && m->join.run != dfm_run(s->core))
                verdict = WELCOME_OTHER_RUN;
        c->link.known = verdict == WELCOME_OK;
        c->link.last = !c->link.known;
        begin_message(s, MESSAGE_WELCOME, 0);
        s->listener.message.welcome.incarnation = incarnation;
        s->listener.message.welcome.run = dfm_run(s->core);
        s->listener.message.welcome.verdict = (uint16_t)verdict;
        s->listener.message.welcome.key = 0;
        queue_message(c);
        listener_log(&s->listener, &c->link,
                     c->link.known ? "joined" : "expects another run, and was refused");
        return 0;
}

static int receive_decisions(struct client *c, uint64_t now_ns, const struct message *m)
{
        struct level2_server *s = server_of(&c->link);

        if (!c->link.known || m->header.transaction != c->next)
                return listener_refuse(&c->link, MESSAGE_MALFORMED);
        if (m->header.cookie != s->cookie || m->dfm != s->incarnation)
                return listener_refuse(&c->link, MESSAGE_OTHER_RUN);
        for (size_t k = 0; k < m->n; k++)
                c->unused += !dfm_decide(s->core, now_ns, &m->decision.entries[k]);
        c->next++;
        c->ack_due = true;
        return 0;
}

static int receive_message(struct listener_client *c, uint64_t now_ns, const struct message *m)
{
        switch (m->header.type) {
        case MESSAGE_JOIN:
                return receive_join(client_of(c), m);
        case MESSAGE_DECISION:
                return receive_decisions(client_of(c), now_ns, m);
        }
        return listener_refuse(c, MESSAGE_MALFORMED);
}

/* A resumed run has another cookie, so the clients must join again. */
static void follow_run(struct level2_server *s)
{
        if (s->cookie == dfm_cookie(s->core))
                return;
        s->cookie = dfm_cookie(s->core);
        for (size_t i = 0; i < LISTENER_CLIENTS_MAX; i++)
                listener_drop(&s->clients[i].link);
}

/* ---- Events ---- */

static void make_ack(struct client *c, enum run_state state)
{
        struct level2_server *s = server_of(&c->link);
        struct message *m = &s->listener.message;

        begin_message(s, MESSAGE_DECISION_ACK, 0);
        m->decision_ack.next = c->next;
        m->decision_ack.state = state;
        m->decision_ack.unused = c->unused;
        c->ack_due = false;
        c->last_state = state;
        queue_message(c);
}

static bool make_list(struct client *c)
{
        struct level2_server *s = server_of(&c->link);
        struct message *m = &s->listener.message;
        uint64_t from = c->cursor;

        begin_message(s, MESSAGE_UNDECIDED, c->listed);
        m->undecided.resets = dfm_run_view(s->core).resets;
        m->n = dfm_list_undecided(s->core, &c->cursor, m->undecided.entries, MESSAGE_ENTRIES_MAX);
        /* A listing examines a limited number of events, which may all be decided. */
        c->link.more = m->n == 0 && c->cursor != from;
        if (m->n == 0)
                return false;
        c->listed++;
        queue_message(c);
        return true;
}

static bool make_next(struct listener_client *link, uint64_t now_ns)
{
        struct client *c = client_of(link);
        struct level2_server *s = server_of(link);
        enum run_state state = dfm_state(s->core);
        struct message *m = &s->listener.message;

        (void)now_ns;
        if (!link->known)
                return false;
        if (c->ack_due || c->last_state != state) {
                make_ack(c, state);
                return true;
        }
        if (c->n_readouts == s->n_readouts)
                return make_list(c);
        begin_message(s, MESSAGE_READOUTS, 0);
        m->n = MIN(s->n_readouts - c->n_readouts, (size_t)MESSAGE_ENTRIES_MAX);
        memcpy(m->readouts.entries, s->readouts + c->n_readouts, m->n * sizeof *m->readouts.entries);
        c->n_readouts += (uint32_t)m->n;
        queue_message(c);
        return true;
}

static uint32_t count_joined(const struct level2_server *s)
{
        uint32_t n = 0;

        for (size_t i = 0; i < LISTENER_CLIENTS_MAX; i++)
                n += s->clients[i].link.known;
        return n;
}

/* An absent or slow farm is not an error, but an operator should look into it. */
static void log_timed_out(struct level2_server *s, uint64_t now_ns)
{
        uint64_t timed_out = dfm_level2_counts(s->core)->timed_out;
        bool is_more = timed_out != s->timed_out;

        s->timed_out = timed_out;
        if (!is_more || !log_is_new_fault(&s->timed_out_ns, now_ns))
                return;
        log_warning("level 2 leaves events undecided (%u clients are connected); they are %s",
                    count_joined(s), s->listener.context.scenario->level2.rejects ? "rejected" : "accepted");
}

/* ---- The server ---- */

static void begin_client(struct listener_client *link)
{
        *client_of(link) = (struct client){.link = *link};
}

static void end_client(struct listener_client *link)
{
        if (link->known && client_of(link)->last_state != RUN_ENDED)
                listener_log(link->listener, link, "left");
}

static const struct listener_ops ops = {
        .what = "level-2 client",
        .take = receive_message,
        .make = make_next,
        .begin = begin_client,
        .end = end_client,
};

/* Clients request fragments from these ROSs. */
static int list_readouts(struct level2_server *s)
{
        const struct scenario *sc = s->listener.context.scenario;

        if (sc->level2.regions_port == 0)
                return 0;
        s->n_readouts = (uint32_t)sc->ros.count;
        for (uint32_t i = 0; i < s->n_readouts; i++) {
                struct readout_entry *e = &s->readouts[i];
                struct net_address a;
                int r = network_node_address(&a, scenario_node_of(sc, ROLE_ROS, i), sc->level2.regions_port);

                if (r < 0)
                        return r;
                *e = (struct readout_entry){.index = (uint16_t)i, .port = sc->level2.regions_port};
                net_address_to_v6(&a, e->address);
        }
        return 0;
}

/* Clients receive the full list of ROSs again when a ROS joins or leaves. */
static void follow_readouts(struct level2_server *s)
{
        bool changed = false;

        for (uint32_t i = 0; i < s->n_readouts; i++) {
                uint32_t flags = dfm_view(s->core, ROLE_ROS, (uint16_t)i).live ? READOUT_PRESENT : 0;

                changed |= s->readouts[i].flags != flags;
                s->readouts[i].flags = flags;
        }
        for (size_t i = 0; changed && i < LISTENER_CLIENTS_MAX; i++)
                s->clients[i].n_readouts = 0;
}

int level2_server_new(struct level2_server **ret, const struct data_context *context, struct dfm *core,
                      uint64_t incarnation)
{
        struct level2_server *s;
        int r;

        if (context->scenario->level2.port == 0)
                return 0;
        s = calloc(1, sizeof *s);
        if (!s)
                return log_error_errno(ENOMEM, "level 2: %m");
        s->core = core;
        s->incarnation = incarnation;
        s->cookie = dfm_cookie(core);
        for (uint32_t i = 0; i < LISTENER_CLIENTS_MAX; i++)
                listener_add(&s->listener, &s->clients[i].link, i);
        r = listener_open(&s->listener, &ops, context, context->scenario->level2.port);
        if (r >= 0)
                r = list_readouts(s);
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
        listener_close(&s->listener);
        free(s);
        return NULL;
}

int level2_server_receive(struct level2_server *s, uint64_t now_ns)
{
        if (!s)
                return 0;
        follow_run(s);
        return listener_receive(&s->listener, now_ns);
}

void level2_server_send(struct level2_server *s, uint64_t now_ns)
{
        if (!s)
                return;
        follow_readouts(s);
        listener_send(&s->listener, now_ns);
        log_timed_out(s, now_ns);
}

uint64_t level2_server_deadline_ns(const struct level2_server *s)
{
        return s ? listener_deadline_ns(&s->listener) : NEVER_NS;
}

void level2_server_account(struct level2_server *s)
{
        if (s)
                stats_copy_level2(s->listener.context.stats, s->core);
}
