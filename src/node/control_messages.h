/* Sends and receives a node's control messages on its own socket, in batches. Also handles the DFM's messages
 * to all ROSs, which use its multicast group. Without a group, the DFM sends to each ROS separately. One
 * thread. */
#pragma once

#include "conf/scenario.h"
#include "core/dfm.h"
#include "data/network.h"
#include "data/stats.h"
#include "net/endpoint.h"
#include "net/injected_faults.h"
#include "sys/loop.h"
#include "control_auth.h"

#define CONTROL_BATCH 64

#define CONTROL_RECEIVE_BATCH 16

/* A socket that receives messages. */
struct control_socket {
        struct endpoint *endpoint; /* NULL: not open */
        struct faults *faults;
        struct loop_io io;
        bool ready;
        struct datagram batch[CONTROL_RECEIVE_BATCH];
        int n, at;
};

/* The sender of a message that names a node but comes from another address. */
struct control_foreign_sender {
        bool is_new; /* cleared by the reader */
        enum node_role role;
        uint16_t index;
        struct net_address from;
};

struct control {
        const struct scenario *scenario;
        struct node_stats *stats;
        struct control_socket own, group; /* group: only in a ROS; the DFM only sends to it */
        enum node_role role;              /* of this node */
        uint16_t index;                   /* of this node, in its role */
        uint64_t incarnation;             /* of the current run; set by the caller */

        struct net_address group_address;
        bool has_group;
        struct address_book nodes;

        struct control_auth auth;
        size_t message_bytes;  /* largest message, without the trailer of its tag */
        size_t probe_bytes;    /* largest Probe, without the trailer */
        size_t datagram_bytes; /* of either, including the trailer */
        uint32_t header_bytes; /* bytes on the wire in addition to each message */
        uint8_t *bytes;        /* room for CONTROL_BATCH messages */
        struct iovec iov[CONTROL_BATCH];
        struct outgoing batch[CONTROL_BATCH];
        size_t n_batch;
        struct message received;
        unsigned budget;                              /* number of datagrams that this turn may still read */
        struct control_foreign_sender foreign_sender; /* the last foreign sender */
};

/* Errors are logged. */
int control_open(struct control *c, const struct scenario *s, const struct scenario_node *self,
                 struct node_stats *stats, struct loop *loop);
void control_close(struct control *c);
/* Begins a turn of the node. A turn reads a limited number of datagrams, even if foreign senders flood the
 * socket. */
void control_begin_turn(struct control *c);
/* Whether the turn's limit may have left datagrams that were not read. */
bool control_has_more(const struct control *c);
/* Returns the next message that comes from the address of the node that it names, or NULL. The message is
 * valid until the next call. Answers each Probe. */
const struct message *control_receive(struct control *c);
/* Queues a message for one node, all ROSs, or all nodes. A message from an SFI to all nodes goes to each ROS,
 * starting with ROS `first`. */
void control_send(struct control *c, struct message_to to, const struct message *m, uint32_t first);
/* Sends the queued messages. */
void control_flush(struct control *c);
/* Whether the fault injector holds datagrams back, so that the caller must receive again soon. */
bool control_is_holding(const struct control *c);
