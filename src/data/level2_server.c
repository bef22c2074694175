/* Serves level-2 clients over TCP. Each client has one outgoing message; the next one is made of the core's
 * undecided events when it is sent, so a slow client misses what is decided meanwhile, and delays nobody. */
#include "data/level2_server.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "data/door.h"
#include "data/network.h"

struct client {
        struct door_client door; /* known: it has joined; last: it was refused */
        uint64_t cursor;         /* the first event that is not listed yet */
        uint32_t listed;         /* messages Undecided so far */
        uint32_t next;           /* number of the next Decision */
        uint32_t unused;         /* entries without effect */
        bool ack_due;
        enum run_state last_state; /* of the run, in the last message to it */
        uint32_t n_readouts;       /* ROSs in the last Readouts to it, as they are now */
        uint8_t out[MESSAGE_LEVEL2_BYTES_MAX];
};

struct level2_server {
        struct door door;
        struct client clients[DOOR_CLIENTS_MAX];
        struct dfm *core;
        uint64_t incarnation, cookie;
        uint64_t timed_out, timed_out_ns; /* events so far, and when there was one last; 0: never */
        uint32_t n_readouts;              /* 0: clients request no fragments */
        struct readout_entry readouts[EVB_ROS_MAX];
};

static struct client *client_of(struct door_client *c)
{
        return (struct client *)(void *)c;
}

static struct level2_server *server_of(const struct door_client *c)
{
        return (struct level2_server *)(void *)c->door;
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

/* ---- Decisions ---- */

static void begin_message(struct level2_server *s, uint32_t type, uint32_t transaction)
{
        struct message *m = &s->door.message;

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
        c->door.out = c->out;
        c->door.out_begin = 0;
        c->door.out_end = message_encode(&c->door.door->message, c->out, sizeof c->out);
}

static int take_join(struct client *c, const struct message *m)
{
        struct level2_server *s = server_of(&c->door);
        uint64_t incarnation = m->join.incarnation;
        enum welcome_verdict verdict = WELCOME_OK;

        if (c->door.known || c->door.last || incarnation == 0)
                return door_refuse(&c->door, MESSAGE_MALFORMED);
        if (m->header.cookie != 0 && m->header.cookie != s->cookie)
                verdict = WELCOME_OVER;
        else if (m->join.run != 0 && m->join.run != dfm_run(s->core))
                verdict = WELCOME_OTHER_RUN;
        c->door.known = verdict == WELCOME_OK;
        c->door.last = !c->door.known;
        begin_message(s, MESSAGE_WELCOME, 0);
        s->door.message.welcome.incarnation = incarnation;
        s->door.message.welcome.run = dfm_run(s->core);
        s->door.message.welcome.verdict = (uint16_t)verdict;
        s->door.message.welcome.key = 0;
        queue_message(c);
        door_log(&s->door, &c->door, c->door.known ? "joined" : "expects another run, and was refused");
        return 0;
}

static int take_decisions(struct client *c, uint64_t now_ns, const struct message *m)
{
        struct level2_server *s = server_of(&c->door);

        if (!c->door.known || m->header.transaction != c->next)
                return door_refuse(&c->door, MESSAGE_MALFORMED);
        if (m->header.cookie != s->cookie || m->dfm != s->incarnation)
                return door_refuse(&c->door, MESSAGE_OTHER_RUN);
        for (size_t k = 0; k < m->n; k++)
                c->unused += !dfm_decide(s->core, now_ns, &m->decision.entries[k]);
        c->next++;
        c->ack_due = true;
        return 0;
}

static int take_message(struct door_client *c, uint64_t now_ns, const struct message *m)
{
        switch (m->header.type) {
        case MESSAGE_JOIN:
                return take_join(client_of(c), m);
        case MESSAGE_DECISION:
                return take_decisions(client_of(c), now_ns, m);
        }
        return door_refuse(c, MESSAGE_MALFORMED);
}

/* A resumed run has another cookie: its clients join again. */
static void follow_run(struct level2_server *s)
{
        if (s->cookie == dfm_cookie(s->core))
                return;
        s->cookie = dfm_cookie(s->core);
        for (size_t i = 0; i < DOOR_CLIENTS_MAX; i++)
                door_drop(&s->clients[i].door);
}

/* ---- Events ---- */

static void make_ack(struct client *c, enum run_state state)
{
        struct level2_server *s = server_of(&c->door);
        struct message *m = &s->door.message;

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
        struct level2_server *s = server_of(&c->door);
        struct message *m = &s->door.message;
        uint64_t from = c->cursor;

        begin_message(s, MESSAGE_UNDECIDED, c->listed);
        m->n = dfm_list_undecided(s->core, &c->cursor, m->undecided.entries, MESSAGE_ENTRIES_MAX);
        /* A listing looks at a limited number of events, and these may all be decided. */
        c->door.more = m->n == 0 && c->cursor != from;
        if (m->n == 0)
                return false;
        c->listed++;
        queue_message(c);
        return true;
}

static bool make_next(struct door_client *door, uint64_t now_ns)
{
        struct client *c = client_of(door);
        struct level2_server *s = server_of(door);
        enum run_state state = dfm_state(s->core);
        struct message *m = &s->door.message;

        (void)now_ns;
        if (!door->known)
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

        for (size_t i = 0; i < DOOR_CLIENTS_MAX; i++)
                n += s->clients[i].door.known;
        return n;
}

/* A farm that is absent or too slow is no error, but somebody should look at it. */
static void log_timed_out(struct level2_server *s, uint64_t now_ns)
{
        uint64_t timed_out = dfm_level2_counts(s->core)->timed_out;
        bool is_more = timed_out != s->timed_out;

        s->timed_out = timed_out;
        if (!is_more || !log_is_new_fault(&s->timed_out_ns, now_ns))
                return;
        log_warning("level 2 leaves events undecided (%u clients are connected); they are %s",
                    count_joined(s),
                    s->door.context.scenario->level2.undecided == UNDECIDED_ACCEPT ? "accepted" : "rejected");
}

/* ---- The server ---- */

static void begin_client(struct door_client *door)
{
        *client_of(door) = (struct client){.door = *door};
}

static void end_client(struct door_client *door)
{
        if (door->known && client_of(door)->last_state != RUN_ENDED)
                door_log(door->door, door, "left");
}

static const struct door_ops ops = {
        .what = "level-2 client",
        .take = take_message,
        .make = make_next,
        .begin = begin_client,
        .end = end_client,
};

/* Clients request fragments from these ROSs. */
static int list_readouts(struct level2_server *s)
{
        const struct scenario *sc = s->door.context.scenario;

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

/* Clients learn again of all ROSs when one comes or goes. */
static void follow_readouts(struct level2_server *s)
{
        bool changed = false;

        for (uint32_t i = 0; i < s->n_readouts; i++) {
                uint32_t flags = dfm_view(s->core, ROLE_ROS, (uint16_t)i).live ? READOUT_PRESENT : 0;

                changed |= s->readouts[i].flags != flags;
                s->readouts[i].flags = flags;
        }
        for (size_t i = 0; changed && i < DOOR_CLIENTS_MAX; i++)
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
        for (uint32_t i = 0; i < DOOR_CLIENTS_MAX; i++)
                door_add(&s->door, &s->clients[i].door, i);
        r = door_open(&s->door, &ops, context, context->scenario->level2.port);
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
        door_close(&s->door);
        free(s);
        return NULL;
}

int level2_server_receive(struct level2_server *s, uint64_t now_ns)
{
        if (!s)
                return 0;
        follow_run(s);
        return door_receive(&s->door, now_ns);
}

void level2_server_send(struct level2_server *s, uint64_t now_ns)
{
        if (!s)
                return;
        follow_readouts(s);
        door_send(&s->door, now_ns);
        log_timed_out(s, now_ns);
}

uint64_t level2_server_deadline_ns(const struct level2_server *s)
{
        return s ? door_deadline_ns(&s->door) : NEVER_NS;
}

void level2_server_account(struct level2_server *s)
{
        struct node_stats *to;

        if (!s)
                return;
        to = s->door.context.stats;
        stats_take(to, FROM_LEVEL2, dfm_level2_counts(s->core));
        to->level2_latency_ns = *dfm_level2_latency_ns(s->core);
}
