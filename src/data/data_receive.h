/* Receives an SFI's fragments from its sockets into its buffer, at the offsets that the core reserves. One
 * table of functions per transport. One thread. */
#pragma once

#include "core/sfi.h"
#include "data/context.h"

struct data_receiver;

struct data_receiver_ops {
        int (*open)(struct data_receiver *r);
        /* Receives for a bounded time; *ret_more: whether more data are waiting. */
        int (*turn)(struct data_receiver *r, uint64_t now_ns, bool *ret_more);
        /* Sends a request to one ROS or to all (MESSAGE_TO_ALL). A request that a connection does not accept
         * is dropped, and sfi_record_connected() is called once it can be repeated. NULL: requests are
         * control messages. */
        void (*request)(struct data_receiver *r, struct message_to to, const struct message *m);
        /* Bytes that may be in flight without loss; 0: unlimited. Call this after open(). */
        uint64_t (*room_bytes)(const struct data_receiver *r);
        /* Whether the fault injector holds datagrams back, so that turn() must be called again soon. NULL: it
         * never does. */
        bool (*is_holding)(const struct data_receiver *r);
        /* Updates the counters that only the kernel has. NULL: there are no such counters. */
        void (*account)(struct data_receiver *r);
        void (*close)(struct data_receiver *r);
};

extern const struct data_receiver_ops data_receive_udp, data_receive_tcp;

struct data_receiver {
        const struct data_receiver_ops *ops;
        struct data_context context;
        struct sfi *core; /* set after open */
        uint8_t *buffer;
        void *state;
};
