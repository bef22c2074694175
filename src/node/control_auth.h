/* Authenticates a node's control messages if network.key-file is set: seals outgoing messages, and admits
 * incoming messages only from current sessions of the scenario's nodes, each message once. It makes hellos
 * but sends nothing itself. Runs in the thread of control_messages.c. */
#pragma once

#include "conf/scenario.h"
#include "data/network.h"
#include "data/stats.h"
#include "net/endpoint.h"
#include "protocol/auth.h"

/* A peer: its proven session, and the messages received from it. */
struct auth_peer {
        uint64_t session;   /* proven session; 0: none */
        uint64_t challenge; /* unanswered challenge to the peer; 0: none */
        uint64_t asked_ns;  /* time of the last challenge */
        uint64_t sent;      /* number of the next message to the peer */
        struct auth_window window;
};

struct control_auth {
        const struct scenario *scenario;
        const struct address_book *nodes;
        struct node_stats *stats;
        bool on;
        struct auth_key key; /* the subkey for control messages */
        enum node_role role; /* of this node */
        uint16_t self;       /* AUTH_NODE of this node */
        uint64_t session;    /* of this process */
        uint64_t group_sent;
        struct auth_window group_window; /* of the DFM's messages to the group */
        struct auth_peer *peers;         /* the DFM, the ROSs, the SFIs */
        size_t n_peers, greeted;
};

/* A hello that must be sent. */
struct control_hello {
        const struct net_address *to; /* NULL: none */
        uint8_t bytes[AUTH_HELLO_BYTES];
};

/* Reads the key. If there is none although other machines can reach the nodes, warns once. Errors are
 * logged. */
int control_auth_open(struct control_auth *a, const struct scenario *s, const struct scenario_node *self,
                      const struct address_book *nodes, struct node_stats *stats);
void control_auth_close(struct control_auth *a);
/* Makes the hello to the next node that has not received one. False: all nodes have received one. */
bool control_auth_greet(struct control_auth *a, struct control_hello *ret);
/* Appends the trailer for a receiver (AUTH_NODE or AUTH_GROUP), if there is a key. Returns the new size. */
size_t control_auth_seal(struct control_auth *a, uint16_t to, uint8_t *bytes, size_t n);
/* Whether the message may be decoded; *ret_n is its size without the trailer. If not, the message is counted,
 * and logged at a limited rate. In either case, `ret` may contain a hello to send. */
bool control_auth_admit(struct control_auth *a, const struct datagram *d, bool to_group, size_t *ret_n,
                        struct control_hello *ret_hello);
