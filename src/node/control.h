/* The control messages of a node: its own socket, the DFM's multicast group, and a batch of what is to be
 * sent. Where no group is set the DFM sends to each node in turn. One thread. */
#pragma once

#include "evb/conf/scenario.h"
#include "evb/core/dfm.h"
#include "evb/data/address_book.h"
#include "evb/data/stats.h"
#include "evb/net/endpoint.h"
#include "evb/net/faults.h"
#include "evb/sys/loop.h"

#define CONTROL_BATCH 64

#define CONTROL_RECEIVE_BATCH 16

/* A socket that messages come in by. */
struct control_socket {
        struct endpoint *endpoint; /* NULL: not there */
        struct faults *faults;
        struct loop_io io;
        bool ready;
        struct datagram batch[CONTROL_RECEIVE_BATCH];
        int n, at;
};

/* The sender of a message that names a node but comes from another address. */
struct control_stranger {
        bool is_new; /* since the last look */
        enum node_role role;
        uint16_t index;
        struct net_address from;
};

struct control {
        const struct scenario *scenario;
        struct node_stats *stats;
        struct control_socket own, group; /* group: not in the DFM, which only sends to it */
        enum node_role role;              /* our own */
        uint64_t incarnation;

        struct net_address group_address;
        bool has_group;
        struct address_book nodes;

        size_t message_bytes;
        uint8_t *bytes; /* CONTROL_BATCH messages */
        struct iovec iov[CONTROL_BATCH];
        struct outgoing batch[CONTROL_BATCH];
        size_t n_batch;
        struct message received;
        unsigned budget;                  /* datagrams that this turn may still read */
        struct control_stranger stranger; /* the last one */
};

/* An error is logged and returned. */
int control_open(struct control *c, const struct scenario *s, const struct scenario_node *self,
                 uint64_t incarnation, struct node_stats *stats, struct loop *loop);
void control_close(struct control *c);
/* Call when a turn of the node begins: limits the datagrams read in it, however many strangers send. */
void control_begin_turn(struct control *c);
/* Whether the limit of the turn left datagrams unread. */
bool control_has_more(const struct control *c);
/* The next received message that comes from the address of the node it names, or NULL; valid until the next
 * call. */
const struct message *control_receive(struct control *c);
/* To one node, or to all (MESSAGE_TO_ALL): for a Request all ROSs, one after the other from ROS `first` on.
 */
void control_send(struct control *c, struct message_to to, const struct message *m, uint32_t first);
void control_flush(struct control *c);
bool control_is_holding(const struct control *c);
