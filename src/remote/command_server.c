/* Connections by what they are, and words passed on between them. */
#include "command_server.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

#include "evb/base/log.h"
#include "evb/base/random.h"
#include "evb/base/util.h"
#include "evb/conf/standby.h"
#include "json_connection.h"

/* Beside the nodes: `evb lab`, others that wait to be refused, old connections of nodes that came again. */
#define PEERS_BESIDE_NODES 16u
/* Of this process for anything else. */
#define OTHER_DESCRIPTORS 64u
#define INTRODUCE_NS (10 * NS_PER_S)
/* Connections of peers that have not introduced themselves: from one address, and from all addresses that may
 * not give commands. */
#define UNKNOWN_OF_ADDRESS_MAX 4u
#define STRANGERS_MAX 4u
/* The answers to an order are ready, quiet, and ended or refused; the command server drops further messages
 * of the node. */
#define ANSWERS_OF_ORDER 4u
#define ANSWERS_MAX 64u
/* Refused peers retry: at most this many log lines in this time. */
#define REFUSALS_LOGGED 10u
#define REFUSALS_NS (10 * NS_PER_S)

enum peer_kind { PEER_FREE, PEER_UNKNOWN, PEER_MEMBER, PEER_COMMANDER };

struct peer {
        struct command_server *server;
        struct json_connection connection;
        struct net_address from;
        enum peer_kind kind;
        const struct scenario_node *node; /* PEER_MEMBER */
        uint64_t since_ns;
        bool stranger;         /* its address may not give commands */
        uint64_t heard_ns;     /* PEER_COMMANDER: its last message */
        json_int_t job;        /* PEER_MEMBER: the last run or streams ordered */
        bool busy;             /* and not ended yet, as far as the command server knows */
        unsigned answers_left; /* answers that its orders may still have */
};

struct command_server {
        const struct scenario *scenario;
        struct loop *loop;
        struct loop_io listener;
        struct peer *peers;
        size_t n_peers;
        struct peer *commander;
        uint64_t refusals_since_ns;
        unsigned refusals; /* since then */
};

static uint64_t mix(uint64_t sum, const char *text)
{
        for (; *text; text++)
                sum = random_mix(sum ^ (uint8_t)*text);
        return random_mix(sum ^ 0x100);
}

uint64_t command_server_common_ground(const struct scenario *s)
{
        uint64_t sum = random_mix(s->network.control_port << 32 | s->network.data_port << 16 |
                                  s->network.order_port);

        sum = mix(sum, s->network.control_group);
        for (size_t i = 0; i < s->n_nodes; i++)
                sum = mix(mix(sum ^ s->nodes[i].role, s->nodes[i].name), s->nodes[i].address);
        return sum >> 1;
}

static struct peer *member(const struct command_server *h, const char *name)
{
        for (size_t i = 0; name && i < h->n_peers; i++) {
                if (h->peers[i].kind == PEER_MEMBER && strcmp(h->peers[i].node->name, name) == 0)
                        return &h->peers[i];
        }
        return NULL;
}

static void tell_commander(struct command_server *h, json_t *message)
{
        if (h->commander)
                json_connection_send(&h->commander->connection, message);
        else
                json_decref(message);
}

static void stop_members(struct command_server *h)
{
        for (size_t i = 0; i < h->n_peers; i++) {
                if (h->peers[i].kind != PEER_MEMBER)
                        continue;
                h->peers[i].busy = false;
                json_connection_send(&h->peers[i].connection,
                                     json_pack("{s:{s:s}}", "order", "kind", "stop"));
        }
}

static void drop(struct peer *p)
{
        struct command_server *h = p->server;
        enum peer_kind kind = p->kind;

        p->kind = PEER_FREE;
        json_connection_close(&p->connection);
        if (kind == PEER_MEMBER) {
                log_info("node %s stands by no more", p->node->name);
                tell_commander(h, json_pack("{s:s}", "left", p->node->name));
        } else if (kind == PEER_COMMANDER) {
                h->commander = NULL;
                /* Nobody waits for what they do. */
                stop_members(h);
        }
}

/* Keeps peers from filling the log. */
static void log_refusal(struct command_server *h, const struct net_address *from, const char *why)
{
        uint64_t now_ns = loop_now_ns(h->loop);
        char text[NET_ADDRESS_TEXT_MAX];

        if (now_ns >= h->refusals_since_ns + REFUSALS_NS) {
                if (h->refusals > REFUSALS_LOGGED)
                        log_warning("order port: refused %u more connections", h->refusals - REFUSALS_LOGGED);
                h->refusals_since_ns = now_ns;
                h->refusals = 0;
        }
        if (h->refusals++ < REFUSALS_LOGGED)
                log_warning("refused %s: %s", net_address_format(from, text), why);
}

static void refuse(struct peer *p, const char *why)
{
        log_refusal(p->server, &p->from, why);
        json_connection_send(&p->connection, json_pack("{s:s}", "refused", why));
        if (json_connection_is_open(&p->connection))
                drop(p);
}

static bool comes_from(const struct peer *p, const struct scenario_node *n)
{
        struct net_address at;

        return net_address_parse(&at, n->address, net_address_port(&p->from)) >= 0 &&
               net_address_equal(&at, &p->from);
}

static void introduce_member(struct peer *p, const json_t *m)
{
        struct command_server *h = p->server;
        const char *name = json_string_value(json_object_get(m, "node")),
                   *version = json_string_value(json_object_get(m, "version"));
        const struct scenario_node *n = name ? scenario_find(h->scenario, name) : NULL;
        const struct peer *other = n ? member(h, n->name) : NULL;
        char why[200], text[NET_ADDRESS_TEXT_MAX];

        if (!n) {
                refuse(p, "the DFM's scenario has no such node");
        } else if (!comes_from(p, n)) {
                snprintf(why, sizeof why, "node %s is at %s in the DFM's scenario", n->name, n->address);
                refuse(p, why);
        } else if (!version || strcmp(version, EVB_VERSION) != 0) {
                refuse(p, "the DFM is evb " EVB_VERSION);
        } else if ((uint64_t)json_integer_value(json_object_get(m, "common_ground")) !=
                   command_server_common_ground(h->scenario)) {
                refuse(p, "nodes, ports or group of its scenario are not those of the DFM's");
        } else if (other) {
                /* The first connection may be in the middle of a run. If its machine is dead, TCP ends its
                 * connection soon. */
                snprintf(why, sizeof why,
                         "node %s is already on standby, connected from %s; was it started twice?", n->name,
                         net_address_format(&other->from, text));
                refuse(p, why);
        } else {
                p->node = n;
                p->kind = PEER_MEMBER;
                log_info("node %s stands by", n->name);
                json_connection_send(&p->connection, json_pack("{s:b}", "welcome", 1));
                tell_commander(h, json_pack("{s:s}", "joined", n->name));
        }
}

static void introduce_commander(struct peer *p, const json_t *m)
{
        struct command_server *h = p->server;
        const char *version = json_string_value(json_object_get(m, "version"));
        char why[200], text[NET_ADDRESS_TEXT_MAX];
        json_t *names;

        if (p->stranger) {
                snprintf(why, sizeof why,
                         "%s may not give commands: add its address to network.command-from in the DFM's "
                         "scenario",
                         net_address_format(&p->from, text));
                refuse(p, why);
                return;
        }
        if (h->commander) {
                refuse(p, "another evb lab gives orders at this moment");
                return;
        }
        if (!version || strcmp(version, EVB_VERSION) != 0) {
                refuse(p, "the DFM is evb " EVB_VERSION);
                return;
        }
        p->kind = PEER_COMMANDER;
        p->heard_ns = loop_now_ns(h->loop);
        h->commander = p;
        names = json_array();
        for (size_t i = 0; i < h->n_peers; i++) {
                if (h->peers[i].kind == PEER_MEMBER)
                        json_array_append_new(names, json_string(h->peers[i].node->name));
        }
        json_connection_send(&p->connection, json_pack("{s:o}", "members", names));
}

/* Notes the state of a member from its orders. */
static void note_order(struct peer *p, const json_t *order)
{
        const char *kind = json_string_value(json_object_get(order, "kind")) ?: "";

        p->answers_left = MIN(p->answers_left + ANSWERS_OF_ORDER, ANSWERS_MAX);
        if (strcmp(kind, "stop") == 0)
                p->busy = false;
        if (strcmp(kind, "run") == 0 || strcmp(kind, "streams") == 0) {
                p->busy = true;
                p->job = json_integer_value(json_object_get(order, "job"));
        }
}

static void pass_answer(struct peer *p, json_t *answer)
{
        const char *state = json_string_value(json_object_get(answer, "state")) ?: "";

        if (p->answers_left == 0)
                return;
        p->answers_left--;
        if (json_integer_value(json_object_get(answer, "job")) == p->job &&
            (strcmp(state, "ended") == 0 || strcmp(state, "refused") == 0))
                p->busy = false;
        tell_commander(p->server, json_pack("{s:s, s:O}", "from", p->node->name, "answer", answer));
}

static void pass_order(struct command_server *h, const json_t *message)
{
        const json_t *to = json_object_get(message, "to"), *name;
        json_t *order = json_object_get(message, "order");
        size_t i;

        json_array_foreach(to, i, name)
        {
                /* Gone meanwhile, with too many answers not taken: the members have been told to stop. */
                if (!h->commander)
                        return;
                struct peer *p = member(h, json_string_value(name));

                if (p) {
                        note_order(p, order);
                        json_connection_send(&p->connection, json_pack("{s:O}", "order", order));
                } else if (json_is_string(name))
                        tell_commander(h, json_pack("{s:O}", "left", name));
        }
}

static void heard(void *ctx, json_t *message)
{
        struct peer *p = ctx;
        json_t *introduction, *answer;

        p->heard_ns = loop_now_ns(p->server->loop);
        if (p->kind == PEER_UNKNOWN && (introduction = json_object_get(message, "stand_by")))
                introduce_member(p, introduction);
        else if (p->kind == PEER_UNKNOWN && (introduction = json_object_get(message, "command")))
                introduce_commander(p, introduction);
        else if (p->kind == PEER_MEMBER && (answer = json_object_get(message, "answer")))
                pass_answer(p, answer);
        else if (p->kind == PEER_COMMANDER && json_is_object(json_object_get(message, "order")))
                pass_order(p->server, message);
        else if (p->kind != PEER_COMMANDER || !json_object_get(message, "alive"))
                refuse(p, "a message that has no place here");
}

static void ended(void *ctx, int error)
{
        (void)error;
        drop(ctx);
}

static bool may_command(const struct command_server *h, const struct net_address *from)
{
        bool v6 = from->any.sa_family == AF_INET6;

        return scenario_lets_command(h->scenario, from->any.sa_family,
                                     v6 ? from->v6.sin6_addr.s6_addr : (const uint8_t *)&from->v4.sin_addr);
}

static bool is_same_host(const struct net_address *a, struct net_address b)
{
        /* The port has the same offset in both. */
        b.v4.sin_port = a->v4.sin_port;
        return net_address_equal(a, &b);
}

/* Peers that do not introduce themselves make room for others. */
static bool has_room_for(const struct command_server *h, const struct net_address *from, bool stranger)
{
        unsigned of_address = 0, strangers = 0;

        for (size_t i = 0; i < h->n_peers; i++) {
                if (h->peers[i].kind != PEER_UNKNOWN)
                        continue;
                of_address += is_same_host(from, h->peers[i].from);
                strangers += h->peers[i].stranger;
        }
        return of_address < UNKNOWN_OF_ADDRESS_MAX && (!stranger || strangers < STRANGERS_MAX);
}

static void accept_one(void *ctx, uint32_t events)
{
        struct command_server *h = ctx;
        struct net_address from = {};
        int fd = tcp_accept(h->listener.fd, 0, &from);
        bool stranger = fd >= 0 && !may_command(h, &from);
        size_t i = 0;

        (void)events;
        if (fd < 0)
                return;
        if (!has_room_for(h, &from, stranger)) {
                log_refusal(h, &from, "too many connections have not introduced themselves");
                close(fd);
                return;
        }
        while (i < h->n_peers && h->peers[i].kind != PEER_FREE)
                i++;
        if (i == h->n_peers) {
                log_refusal(h, &from, "the order port accepts no further connections");
                close(fd);
                return;
        }
        struct peer *p = &h->peers[i];

        *p = (struct peer){
                .server = h,
                .connection = {.heard = heard, .ended = ended, .ctx = p},
                .from = from,
                .kind = PEER_UNKNOWN,
                .since_ns = loop_now_ns(h->loop),
                .stranger = stranger,
        };
        if (json_connection_open(&p->connection, h->loop, fd, false) < 0)
                p->kind = PEER_FREE;
}

/* More may be had than a process is given: usually 1024, which is less than there may be nodes. */
static void allow_descriptors(size_t n)
{
        struct rlimit l;

        if (getrlimit(RLIMIT_NOFILE, &l) < 0 || l.rlim_cur >= n)
                return;
        l.rlim_cur = MIN((rlim_t)n, l.rlim_max);
        (void)setrlimit(RLIMIT_NOFILE, &l);
        if (l.rlim_cur < n)
                log_warning("order port: %zu connections need more open files than the %llu that are allowed",
                            n, (unsigned long long)l.rlim_max);
}

int command_server_new(struct command_server **ret, const struct scenario *s, struct loop *loop)
{
        struct command_server *h = calloc(1, sizeof *h);
        const struct scenario_node *dfm = scenario_node_of(s, ROLE_DFM, 0);
        struct net_address at;
        int r = h ? 0 : -ENOMEM;

        if (r >= 0) {
                *h = (struct command_server){.scenario = s,
                                             .loop = loop,
                                             .listener.fd = -1,
                                             .n_peers = s->n_nodes + PEERS_BESIDE_NODES};
                allow_descriptors(h->n_peers + OTHER_DESCRIPTORS);
                h->peers = calloc(h->n_peers, sizeof *h->peers);
                r = h->peers ? net_address_parse(&at, dfm->address, (uint16_t)s->network.order_port)
                             : -ENOMEM;
        }
        if (r >= 0)
                r = tcp_listen(&at, 0);
        if (r >= 0) {
                h->listener = (struct loop_io){.fd = r, .events = EPOLLIN, .ready = accept_one, .ctx = h};
                r = loop_add(loop, &h->listener);
        }
        if (r < 0) {
                command_server_free(h);
                return log_error_errno(r, "order port %llu of %s: %m",
                                       (unsigned long long)s->network.order_port, dfm->address);
        }
        *ret = h;
        return 0;
}

struct command_server *command_server_free(struct command_server *h)
{
        if (!h)
                return NULL;
        for (size_t i = 0; h->peers && i < h->n_peers; i++)
                json_connection_close(&h->peers[i].connection);
        if (h->listener.fd >= 0) {
                loop_remove(h->loop, &h->listener);
                close(h->listener.fd);
        }
        free(h->peers);
        free(h);
        return NULL;
}

static bool is_measuring(const struct command_server *h)
{
        for (size_t i = 0; i < h->n_peers; i++) {
                if (h->peers[i].kind == PEER_MEMBER && h->peers[i].busy)
                        return true;
        }
        return false;
}

/* Meanwhile nobody else can give commands. */
static void end_idle_commander(struct command_server *h, uint64_t now_ns)
{
        uint64_t timeout_ns = h->scenario->standby.idle_timeout_ns;
        char why[160];

        if (!h->commander || now_ns < h->commander->heard_ns + timeout_ns || is_measuring(h))
                return;
        snprintf(why, sizeof why, "it was silent for %.1f s (standby.idle-timeout) and no measurement runs",
                 (double)timeout_ns / NS_PER_S);
        refuse(h->commander, why);
}

void command_server_turn(struct command_server *h, uint64_t now_ns)
{
        for (size_t i = 0; i < h->n_peers; i++) {
                struct peer *p = &h->peers[i];

                if (p->kind == PEER_UNKNOWN && now_ns > p->since_ns + INTRODUCE_NS)
                        refuse(p, "it did not say who it is");
        }
        end_idle_commander(h, now_ns);
}

unsigned command_server_members(const struct command_server *h)
{
        unsigned n = 0;

        for (size_t i = 0; i < h->n_peers; i++)
                n += h->peers[i].kind == PEER_MEMBER;
        return n;
}
