/* An SFI's way in for fragments: from the sockets into the places that the core gives. Two transports behind
 * one table. One thread. */
#pragma once

#include "evb/core/sfi.h"
#include "node_internal.h"

struct data_receiver;

struct data_receiver_ops {
        int (*open)(struct data_receiver *r);
        /* Takes what is there; *ret_more: there is more already. */
        int (*turn)(struct data_receiver *r, uint64_t now_ns, bool *ret_more);
        /* A request for one ROS, or for all (MESSAGE_TO_ALL). NULL: requests go with the control messages. */
        void (*request)(struct data_receiver *r, struct message_to to, const struct message *m);
        /* Bytes that may be on their way without loss; 0: there is no such bound. Known after open. */
        uint64_t (*room_bytes)(const struct data_receiver *r);
        bool (*is_holding)(const struct data_receiver *r);
        void (*account)(struct data_receiver *r);
        void (*close)(struct data_receiver *r);
};

extern const struct data_receiver_ops data_receive_udp, data_receive_tcp;

struct data_receiver {
        const struct data_receiver_ops *ops;
        struct node *node;
        struct sfi *core; /* set after open */
        uint8_t *buffer;
        void *state;
};
