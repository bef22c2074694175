/* Moves control messages between a node's sockets and its core, and drops messages from wrong addresses. The
 * core interprets their content. */
#include "control_messages.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/log.h"
#include "base/util.h"
#include "data/network.h"
#include "data/socket_open.h"

#define CONTROL_BUFFER_BYTES (4u << 20)
/* Maximum number of datagrams per turn; reading this many takes a few milliseconds. */
#define TURN_DATAGRAMS 1024

static void is_ready(void *ctx, uint32_t events)
{
        struct control_socket *socket = ctx;

        (void)events;
        socket->ready = true;
}

static int open_socket(struct control *c, struct control_socket *to, const struct udp_config *config,
                       const struct scenario_node *self, struct loop *loop)
{
        struct fault_config faults = network_fault_config(c->scenario, self, to == &c->group);
        int r;

        r = faults_new(&to->faults, &faults);
        if (r >= 0)
                r = socket_open_udp(&to->endpoint, config, "control messages");
        if (r < 0)
                return r;
        socket_mark(to->endpoint->fd, c->scenario->network.control_dscp);
        socket_log_buffer(SOCKET_RECEIVE, "control messages", false, config->receive_buffer_bytes,
                          to->endpoint->granted_receive_bytes);
        to->io = (struct loop_io){.fd = to->endpoint->fd, .events = EPOLLIN, .ready = is_ready, .ctx = to};
        return loop_add(loop, &to->io);
}

static int open_group(struct control *c, const struct scenario_node *self, const struct udp_config *own,
                      struct loop *loop)
{
        const char *text = c->scenario->network.control_group;
        struct udp_config config = *own;
        int r;

        if (strcmp(text, "none") == 0)
                return 0;
        r = net_address_parse(&c->group_address, text, (uint16_t)c->scenario->network.control_port);
        if (r < 0 || !net_address_is_multicast(&c->group_address))
                return log_error_errno(
                        EINVAL, "network.control-group: \"%s\" is not a multicast address; use one, or none",
                        text);
        if (c->group_address.any.sa_family != own->local.any.sa_family)
                return log_error_errno(EINVAL,
                                       "network.control-group: \"%s\" and the nodes' addresses mix IPv4 and "
                                       "IPv6; use only one of them",
                                       text);
        c->has_group = true;
        /* Only ROSs join the group, because its messages are for them, and would use the bandwidth of an
         * SFI's port. */
        if (self->role != ROLE_ROS)
                return 0;
        config.group = &c->group_address;
        r = open_socket(c, &c->group, &config, self, loop);
        if (r < 0)
                log_error("set network.control-group = none if the network does not support multicast");
        return r;
}

int control_open(struct control *c, const struct scenario *s, const struct scenario_node *self,
                 struct node_stats *stats, struct loop *loop)
{
        struct udp_config config = {
                .receive_buffer_bytes = CONTROL_BUFFER_BYTES,
                .send_buffer_bytes = CONTROL_BUFFER_BYTES,
                .device = self->device,
        };
        int r;

        c->scenario = s;
        c->stats = stats;
        c->role = self->role;
        c->index = (uint16_t)self->index;
        c->message_bytes = network_message_bytes(s);
        c->datagram_bytes = network_probe_bytes(s);
        c->probe_bytes = c->datagram_bytes - network_trailer_bytes(s);
        c->header_bytes = network_header_bytes(s);
        c->bytes = malloc(CONTROL_BATCH * c->datagram_bytes);
        if (!c->bytes)
                return log_error_errno(ENOMEM, "control: %m");
        r = address_book_init(&c->nodes, s);
        if (r >= 0)
                r = control_auth_open(&c->auth, s, self, &c->nodes, stats);
        if (r < 0)
                return r;
        r = network_node_address(&config.local, self, (uint16_t)s->network.control_port);
        if (r < 0)
                return r;
        r = open_socket(c, &c->own, &config, self, loop);
        if (r < 0)
                return r;
        return open_group(c, self, &config, loop);
}

static void close_socket(struct control_socket *s)
{
        endpoint_free(s->endpoint);
        faults_free(s->faults);
}

void control_close(struct control *c)
{
        close_socket(&c->own);
        close_socket(&c->group);
        control_auth_close(&c->auth);
        address_book_fini(&c->nodes);
        free(c->bytes);
        *c = (struct control){};
}

void control_flush(struct control *c)
{
        int taken;

        if (c->n_batch == 0)
                return;
        taken = endpoint_send(c->own.endpoint, c->batch, c->n_batch);
        /* Messages that a full socket does not accept count as lost in the network, which is harmless because
         * the protocol repeats them. */
        for (int i = 0; i < taken; i++)
                stats_add(&c->stats->control_sent_bytes, c->batch[i].size_bytes + c->header_bytes);
        if (taken > 0)
                stats_add(&c->stats->control_sent, (uint64_t)taken);
        if (taken < (int)c->n_batch)
                stats_add(&c->stats->send_blocked, 1);
        c->n_batch = 0;
}

static uint8_t *next_place(struct control *c)
{
        return c->bytes + c->n_batch * c->datagram_bytes;
}

static void enqueue(struct control *c, const struct net_address *to, uint8_t *bytes, size_t n)
{
        c->iov[c->n_batch] = (struct iovec){bytes, n};
        c->batch[c->n_batch] = (struct outgoing){&c->iov[c->n_batch], 1, (uint32_t)n, to};
        if (++c->n_batch == CONTROL_BATCH)
                control_flush(c);
}

/* `node`: the receiver, for which the tag is made. */
static void send_to(struct control *c, const struct net_address *to, uint16_t node, const struct message *m)
{
        uint8_t *bytes = next_place(c);
        bool probes = m->header.type == MESSAGE_PROBE;
        size_t n = message_encode(m, bytes, probes ? c->probe_bytes : c->message_bytes);

        /* A Probe may be longer than network.mtu of this node, which then does not answer. */
        if (n > 0)
                enqueue(c, to, bytes, control_auth_seal(&c->auth, node, bytes, n));
}

static void send_hello(struct control *c, const struct control_hello *h)
{
        uint8_t *bytes = next_place(c);

        memcpy(bytes, h->bytes, sizeof h->bytes);
        enqueue(c, h->to, bytes, sizeof h->bytes);
}

/* Answers a Join from a wrong address, so that the node can report the mistake. */
static void refuse_address(struct control *c, const struct message *m, const struct net_address *from)
{
        struct message answer = {.header = {.sender_role = ROLE_DFM, .type = MESSAGE_WELCOME}};

        answer.dfm = c->incarnation;
        answer.welcome.incarnation = m->join.incarnation;
        answer.welcome.verdict = WELCOME_ADDRESS;
        send_to(c, from, AUTH_NODE(m->header.sender_role, m->header.sender_index), &answer);
        control_flush(c);
}

/* A message must come from the address of the node that it names as its sender. */
static bool is_from_its_sender(struct control *c, const struct message *m, const struct net_address *from)
{
        const struct message_header *h = &m->header;
        const struct net_address *expected = address_book_find(&c->nodes, h->sender_role, h->sender_index);

        if (expected && net_address_equal(expected, from))
                return true;
        stats_add(&c->stats->packets_foreign, 1);
        c->foreign_sender = (struct control_foreign_sender){true, h->sender_role, h->sender_index, *from};
        if (c->role == ROLE_DFM && h->type == MESSAGE_JOIN && h->sender_role != ROLE_DFM)
                refuse_address(c, m, from);
        return false;
}

/* The answer has the size of the Probe, so that it tests the path in both directions. */
static void answer_probe(struct control *c, const struct net_address *from)
{
        const struct message *m = &c->received;
        uint16_t node = AUTH_NODE(m->header.sender_role, m->header.sender_index);
        struct message_header header = {
                .cookie = m->header.cookie,
                .sender_role = c->role,
                .sender_index = c->index,
                .type = MESSAGE_PROBE,
        };

        c->received.header = header;
        c->received.probe.answers = true;
        send_to(c, from, node, m);
        control_flush(c);
}

/* Decodes the message in a datagram, unless it is refused. */
static bool receive_datagram(struct control *c, const struct datagram *d, bool to_group)
{
        struct control_hello hello;
        enum message_verdict v;
        size_t n;
        bool admitted = control_auth_admit(&c->auth, d, to_group, &n, &hello);

        if (hello.to) {
                send_hello(c, &hello);
                control_flush(c);
        }
        if (!admitted)
                return false;
        v = message_decode(&c->received, d->bytes, n);
        stats_count_refusal(c->stats, v);
        return v == MESSAGE_OK && is_from_its_sender(c, &c->received, d->from);
}

/* Receives the next valid message of one socket; false: none is left. */
static bool receive_from(struct control *c, struct control_socket *s)
{
        while (c->budget > 0 && (s->ready || s->at < s->n || faults_are_holding(s->faults))) {
                if (s->at == s->n) {
                        s->at = 0;
                        s->n = faults_receive(s->faults, s->endpoint, s->batch, ARRAY_SIZE(s->batch));
                        s->n = MAX(s->n, 0);
                        if (s->n == 0 || (s->endpoint->drained && !s->faults))
                                s->ready = false;
                        if (s->n == 0)
                                return false;
                }
                const struct datagram *d = &s->batch[s->at++];

                c->budget--;
                if (receive_datagram(c, d, s == &c->group)) {
                        stats_add(&c->stats->control_received, 1);
                        stats_add(&c->stats->control_received_bytes, d->size_bytes + c->header_bytes);
                        if (c->received.header.type != MESSAGE_PROBE || c->received.probe.answers)
                                return true;
                        answer_probe(c, d->from);
                }
        }
        return false;
}

void control_begin_turn(struct control *c)
{
        struct control_hello hello;

        c->budget = TURN_DATAGRAMS;
        /* Sends one hello per node, so that the other nodes have this node's session before its first
         * message. */
        while (control_auth_greet(&c->auth, &hello))
                send_hello(c, &hello);
}

bool control_has_more(const struct control *c)
{
        return c->budget == 0;
}

const struct message *control_receive(struct control *c)
{
        if (receive_from(c, &c->own) || (c->group.endpoint && receive_from(c, &c->group)))
                return &c->received;
        return NULL;
}

bool control_is_holding(const struct control *c)
{
        return faults_are_holding(c->own.faults) || faults_are_holding(c->group.faults);
}

static void send_to_ross(struct control *c, const struct message *m, uint32_t first)
{
        for (size_t k = 0; k < c->nodes.n_ros; k++) {
                size_t i = (first + k) % c->nodes.n_ros;

                send_to(c, &c->nodes.ros[i], AUTH_NODE(ROLE_ROS, i), m);
        }
}

void control_send(struct control *c, struct message_to to, const struct message *m, uint32_t first)
{
        /* Messages from an SFI to all nodes are for the ROSs; only the DFM uses the group. */
        bool from_sfi = c->role == ROLE_SFI;

        if (to.index != MESSAGE_TO_ALL && to.index != MESSAGE_TO_ROSS) {
                send_to(c, address_book_find(&c->nodes, to.role, to.index), AUTH_NODE(to.role, to.index), m);
                return;
        }
        if (c->has_group && !from_sfi)
                send_to(c, &c->group_address, AUTH_GROUP, m);
        else
                send_to_ross(c, m, first);
        for (size_t i = 0; to.index == MESSAGE_TO_ALL && !from_sfi && i < c->nodes.n_sfi; i++)
                send_to(c, &c->nodes.sfi[i], AUTH_NODE(ROLE_SFI, i), m);
}
