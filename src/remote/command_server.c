/* Accepts and identifies peers, and forwards messages between the coordinator and the nodes. */
#include "command_server.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/log.h"
#include "base/random.h"
#include "base/util.h"
#include "conf/standby_rules.h"
#include "net/json_connection.h"
#include "command_key.h"

/* For coordinators, peers about to be refused, and old connections of nodes that reconnect. */
#define PEERS_BESIDE_NODES 16u
/* Descriptors for the rest of this process. */
#define OTHER_DESCRIPTORS 64u
#define INTRODUCTION_NS (10 * NS_PER_S)
/* Limits for peers that have not introduced themselves: per address, and over all addresses that may not give
 * commands. */
#define UNKNOWN_PER_ADDRESS_MAX 4u
#define UNAUTHORIZED_MAX 4u
/* A command has at most the answers ready, quiet, and ended or refused; the server drops further answers. */
#define ANSWERS_OF_COMMAND 4u
#define ANSWERS_MAX 64u

#define OTHER_VERSION "the DFM runs evb " EVB_VERSION "; install the same version on all machines"

enum peer_kind { PEER_FREE, PEER_UNKNOWN, PEER_NODE, PEER_COORDINATOR };

struct peer {
        struct command_server *server;
        struct json_connection connection;
        struct net_address from;
        enum peer_kind kind;
        const struct scenario_node *node; /* PEER_NODE */
        uint64_t since_ns;
        bool unauthorized;     /* its address may not give commands */
        uint64_t received_ns;  /* PEER_COORDINATOR: time of its latest message */
        json_int_t job;        /* PEER_NODE: its latest run or flows */
        bool busy;             /* no answer has ended that job yet */
        unsigned answers_left; /* that its commands may still have */
};

struct command_server {
        const struct scenario *scenario;
        struct command_key key;
        struct loop *loop;
        struct loop_io listener;
        struct peer *peers;
        size_t n_peers;
        struct peer *coordinator;
};

static uint64_t mix(uint64_t sum, const char *text)
{
        for (; *text; text++)
                sum = random_mix(sum ^ (uint8_t)*text);
        return random_mix(sum ^ 0x100);
}

uint64_t command_server_digest(const struct scenario *s)
{
        uint64_t sum = random_mix(s->network.control_port << 32 | (uint64_t)scenario_data_port(s) << 16 |
                                  s->network.order_port);

        sum = mix(sum, s->network.control_group);
        for (size_t i = 0; i < s->n_nodes; i++)
                sum = mix(mix(sum ^ s->nodes[i].role, s->nodes[i].name), s->nodes[i].address);
        return sum >> 1;
}

static struct peer *find_node_peer(const struct command_server *cs, const char *name)
{
        for (size_t i = 0; name && i < cs->n_peers; i++) {
                if (cs->peers[i].kind == PEER_NODE && strcmp(cs->peers[i].node->name, name) == 0)
                        return &cs->peers[i];
        }
        return NULL;
}

static void send_to_coordinator(struct command_server *cs, json_t *message)
{
        if (cs->coordinator)
                json_connection_send(&cs->coordinator->connection, message);
        else
                json_decref(message);
}

static void stop_nodes(struct command_server *cs)
{
        for (size_t i = 0; i < cs->n_peers; i++) {
                if (cs->peers[i].kind != PEER_NODE)
                        continue;
                cs->peers[i].busy = false;
                json_connection_send(&cs->peers[i].connection,
                                     json_pack("{s:{s:s}}", "command", "kind", "stop"));
        }
}

static void drop(struct peer *p)
{
        struct command_server *cs = p->server;
        enum peer_kind kind = p->kind;

        p->kind = PEER_FREE;
        json_connection_close(&p->connection);
        if (kind == PEER_NODE) {
                log_info("node %s left standby", p->node->name);
                send_to_coordinator(cs, json_pack("{s:s}", "left", p->node->name));
        } else if (kind == PEER_COORDINATOR) {
                cs->coordinator = NULL;
                /* Nobody waits for their results. */
                stop_nodes(cs);
        }
}

/* Refused peers retry. */
static void log_refusal(const struct net_address *from, const char *why)
{
        char text[NET_ADDRESS_TEXT_MAX];

        log_limited(LOG_LEVEL_WARNING, LOG_FIELDS(.id = LOG_ID_NODE_REFUSED), "refused %s: %s",
                    net_address_format(from, text), why);
}

static void refuse(struct peer *p, const char *why)
{
        log_refusal(&p->from, why);
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

static void introduce_node(struct peer *p, const json_t *m)
{
        struct command_server *cs = p->server;
        const char *name = json_string_value(json_object_get(m, "node")),
                   *version = json_string_value(json_object_get(m, "version"));
        const struct scenario_node *n = name ? scenario_find(cs->scenario, name) : NULL;
        const struct peer *other = n ? find_node_peer(cs, n->name) : NULL;
        char why[200], text[NET_ADDRESS_TEXT_MAX];

        if (!n) {
                refuse(p, "the DFM's scenario has no such node");
        } else if (!comes_from(p, n)) {
                snprintf(why, sizeof why, "node %s has address %s in the DFM's scenario", n->name,
                         n->address);
                refuse(p, why);
        } else if (!version || strcmp(version, EVB_VERSION) != 0) {
                refuse(p, OTHER_VERSION);
        } else if ((uint64_t)json_integer_value(json_object_get(m, "digest")) !=
                   command_server_digest(cs->scenario)) {
                refuse(p, "its scenario differs from the DFM's in nodes, ports or group");
        } else if (other) {
                /* The first connection may have a run. If its machine is dead, TCP soon ends the connection.
                 */
                snprintf(why, sizeof why,
                         "node %s is already on standby, connected from %s; was it started twice?", n->name,
                         net_address_format(&other->from, text));
                refuse(p, why);
        } else {
                p->node = n;
                p->kind = PEER_NODE;
                log_info("node %s is on standby", n->name);
                json_connection_send(&p->connection, json_pack("{s:b}", "welcome", 1));
                send_to_coordinator(cs, json_pack("{s:s}", "joined", n->name));
        }
}

static void introduce_coordinator(struct peer *p, const json_t *m)
{
        struct command_server *cs = p->server;
        const char *version = json_string_value(json_object_get(m, "version"));
        char why[200], text[NET_ADDRESS_TEXT_MAX];
        json_t *names;

        if (p->unauthorized) {
                snprintf(why, sizeof why,
                         "%s may not give commands: add its address to network.command-from in the DFM's "
                         "scenario",
                         net_address_format(&p->from, text));
                refuse(p, why);
                return;
        }
        if (cs->coordinator) {
                refuse(p, "another evb lab is giving commands");
                return;
        }
        if (!version || strcmp(version, EVB_VERSION) != 0) {
                refuse(p, OTHER_VERSION);
                return;
        }
        p->kind = PEER_COORDINATOR;
        p->received_ns = loop_now_ns(cs->loop);
        cs->coordinator = p;
        names = json_array();
        for (size_t i = 0; i < cs->n_peers; i++) {
                if (cs->peers[i].kind == PEER_NODE)
                        json_array_append_new(names, json_string(cs->peers[i].node->name));
        }
        json_connection_send(&p->connection, json_pack("{s:o}", "nodes", names));
}

/* Tracks a node's state by the commands that it gets. */
static void note_command(struct peer *p, const json_t *command)
{
        const char *kind = json_string_value(json_object_get(command, "kind")) ?: "";

        p->answers_left = MIN(p->answers_left + ANSWERS_OF_COMMAND, ANSWERS_MAX);
        if (strcmp(kind, "stop") == 0)
                p->busy = false;
        if (strcmp(kind, "run") == 0 || strcmp(kind, "flows") == 0) {
                p->busy = true;
                p->job = json_integer_value(json_object_get(command, "job"));
        }
}

static void forward_answer(struct peer *p, json_t *answer)
{
        const char *state = json_string_value(json_object_get(answer, "state")) ?: "";

        if (p->answers_left == 0)
                return;
        p->answers_left--;
        if (json_integer_value(json_object_get(answer, "job")) == p->job &&
            (strcmp(state, "ended") == 0 || strcmp(state, "refused") == 0))
                p->busy = false;
        send_to_coordinator(p->server, json_pack("{s:s, s:O}", "from", p->node->name, "answer", answer));
}

static void forward_command(struct command_server *cs, const json_t *message)
{
        const json_t *to = json_object_get(message, "to"), *name;
        json_t *command = json_object_get(message, "command");
        size_t i;

        json_array_foreach(to, i, name)
        {
                /* A failed send may have dropped the coordinator; the nodes then stop already. */
                if (!cs->coordinator)
                        return;
                struct peer *p = find_node_peer(cs, json_string_value(name));

                if (p) {
                        note_command(p, command);
                        json_connection_send(&p->connection, json_pack("{s:O}", "command", command));
                } else if (json_is_string(name))
                        send_to_coordinator(cs, json_pack("{s:O}", "left", name));
        }
}

static void handle_message(void *ctx, json_t *message)
{
        struct peer *p = ctx;
        json_t *introduction, *answer;

        p->received_ns = loop_now_ns(p->server->loop);
        if (p->kind == PEER_UNKNOWN && (introduction = json_object_get(message, "standby")))
                introduce_node(p, introduction);
        else if (p->kind == PEER_UNKNOWN && (introduction = json_object_get(message, "coordinator")))
                introduce_coordinator(p, introduction);
        else if (p->kind == PEER_NODE && (answer = json_object_get(message, "answer")))
                forward_answer(p, answer);
        else if (p->kind == PEER_COORDINATOR && json_is_object(json_object_get(message, "command")))
                forward_command(p->server, message);
        else if (p->kind != PEER_COORDINATOR || !json_object_get(message, "alive"))
                refuse(p, p->kind == PEER_UNKNOWN ? "unexpected introduction; " OTHER_VERSION
                                                  : "unexpected message");
}

static void ended(void *ctx, int error)
{
        struct peer *p = ctx;

        if (json_auth_explain(error))
                log_refusal(&p->from, json_auth_explain(error));
        drop(p);
}

static bool may_command(const struct command_server *cs, const struct net_address *from)
{
        bool v6 = from->any.sa_family == AF_INET6;

        return scenario_list_has(cs->scenario, cs->scenario->network.command_from, from->any.sa_family,
                                 v6 ? from->v6.sin6_addr.s6_addr : (const uint8_t *)&from->v4.sin_addr);
}

static bool is_same_host(const struct net_address *a, struct net_address b)
{
        /* IPv4 and IPv6 addresses have the port at the same offset. */
        b.v4.sin_port = a->v4.sin_port;
        return net_address_equal(a, &b);
}

/* Keeps peers that do not introduce themselves from locking out others. */
static bool has_room_for(const struct command_server *cs, const struct net_address *from, bool unauthorized)
{
        unsigned of_address = 0, unauthorized_peers = 0;

        for (size_t i = 0; i < cs->n_peers; i++) {
                if (cs->peers[i].kind != PEER_UNKNOWN)
                        continue;
                of_address += is_same_host(from, cs->peers[i].from);
                unauthorized_peers += cs->peers[i].unauthorized;
        }
        return of_address < UNKNOWN_PER_ADDRESS_MAX &&
               (!unauthorized || unauthorized_peers < UNAUTHORIZED_MAX);
}

static void accept_one(void *ctx, uint32_t events)
{
        struct command_server *cs = ctx;
        struct net_address from = {};
        int fd = tcp_accept(cs->listener.fd, 0, &from);
        bool unauthorized = fd >= 0 && !may_command(cs, &from);
        size_t i = 0;

        (void)events;
        if (fd < 0)
                return;
        if (!has_room_for(cs, &from, unauthorized)) {
                log_refusal(&from, "too many peers have not introduced themselves");
                close(fd);
                return;
        }
        while (i < cs->n_peers && cs->peers[i].kind != PEER_FREE)
                i++;
        if (i == cs->n_peers) {
                log_refusal(&from, "network.order-port accepts no further connections");
                close(fd);
                return;
        }
        struct peer *p = &cs->peers[i];

        *p = (struct peer){
                .server = cs,
                .connection = {.received = handle_message,
                               .ended = ended,
                               .ctx = p,
                               .key = command_key_get(&cs->key)},
                .from = from,
                .kind = PEER_UNKNOWN,
                .since_ns = loop_now_ns(cs->loop),
                .unauthorized = unauthorized,
        };
        if (json_connection_open(&p->connection, cs->loop, fd, false) < 0)
                p->kind = PEER_FREE;
}

/* Raises the soft limit, usually 1024, which a large scenario exceeds. */
static void allow_descriptors(size_t n)
{
        struct rlimit l;

        if (getrlimit(RLIMIT_NOFILE, &l) < 0 || l.rlim_cur >= n)
                return;
        l.rlim_cur = MIN((rlim_t)n, l.rlim_max);
        (void)setrlimit(RLIMIT_NOFILE, &l);
        if (l.rlim_cur < n)
                log_warning("network.order-port: %zu descriptors exceed the limit of %llu open files; raise "
                            "the limit",
                            n, (unsigned long long)l.rlim_max);
}

int command_server_new(struct command_server **ret, const struct scenario *s, struct loop *loop)
{
        struct command_server *cs = calloc(1, sizeof *cs);
        const struct scenario_node *dfm = scenario_node_of(s, ROLE_DFM, 0);
        struct net_address at;
        int r = cs ? 0 : -ENOMEM;

        if (r >= 0) {
                *cs = (struct command_server){.scenario = s,
                                              .loop = loop,
                                              .listener.fd = -1,
                                              .n_peers = s->n_nodes + PEERS_BESIDE_NODES};
                allow_descriptors(cs->n_peers + OTHER_DESCRIPTORS);
                cs->peers = calloc(cs->n_peers, sizeof *cs->peers);
                r = command_key_read(&cs->key, s);
                if (r >= 0)
                        r = command_key_check_server(&cs->key, s);
                if (r < 0) {
                        command_server_free(cs);
                        return r;
                }
                r = cs->peers ? net_address_parse(&at, dfm->address, (uint16_t)s->network.order_port)
                              : -ENOMEM;
        }
        if (r >= 0)
                r = tcp_listen(&at, 0);
        if (r >= 0) {
                cs->listener = (struct loop_io){.fd = r, .events = EPOLLIN, .ready = accept_one, .ctx = cs};
                r = loop_add(loop, &cs->listener);
        }
        if (r < 0) {
                command_server_free(cs);
                return log_error_errno(r, "cannot listen on network.order-port %llu of %s: %m",
                                       (unsigned long long)s->network.order_port, dfm->address);
        }
        *ret = cs;
        return 0;
}

struct command_server *command_server_free(struct command_server *cs)
{
        if (!cs)
                return NULL;
        for (size_t i = 0; cs->peers && i < cs->n_peers; i++)
                json_connection_close(&cs->peers[i].connection);
        if (cs->listener.fd >= 0) {
                loop_remove(cs->loop, &cs->listener);
                close(cs->listener.fd);
        }
        free(cs->peers);
        free(cs);
        return NULL;
}

static bool is_any_node_busy(const struct command_server *cs)
{
        for (size_t i = 0; i < cs->n_peers; i++) {
                if (cs->peers[i].kind == PEER_NODE && cs->peers[i].busy)
                        return true;
        }
        return false;
}

/* An idle coordinator keeps others from giving commands. */
static void end_idle_coordinator(struct command_server *cs, uint64_t now_ns)
{
        uint64_t timeout_ns = cs->scenario->standby.idle_timeout_ns;
        char why[160];

        if (!cs->coordinator || now_ns < cs->coordinator->received_ns + timeout_ns || is_any_node_busy(cs))
                return;
        snprintf(why, sizeof why, "it was silent for %.1f s (standby.idle-timeout) and no measurement runs",
                 (double)timeout_ns / NS_PER_S);
        refuse(cs->coordinator, why);
}

void command_server_turn(struct command_server *cs, uint64_t now_ns)
{
        for (size_t i = 0; i < cs->n_peers; i++) {
                struct peer *p = &cs->peers[i];

                if (p->kind == PEER_UNKNOWN && now_ns > p->since_ns + INTRODUCTION_NS)
                        refuse(p, "it did not introduce itself");
        }
        end_idle_coordinator(cs, now_ns);
}

unsigned command_server_nodes(const struct command_server *cs)
{
        unsigned n = 0;

        for (size_t i = 0; i < cs->n_peers; i++)
                n += cs->peers[i].kind == PEER_NODE;
        return n;
}
