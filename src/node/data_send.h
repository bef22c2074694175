/* A ROS's way out for fragments: from the core's jobs and the buffer to the sockets, payload never copied by
 * us. Two transports behind one table. One thread. */
#pragma once

#include "evb/core/ros.h"
#include "evb/node/source.h"
#include "node_internal.h"

#define SEND_JOBS_MAX 256

struct data_sender;

struct data_sender_ops {
        int (*open)(struct data_sender *s);
        /* Sends what can be sent; *ret_more: there is more that could be sent at once. */
        int (*turn)(struct data_sender *s, uint64_t now_ns, bool *ret_more);
        uint64_t (*deadline_ns)(const struct data_sender *s);
        void (*close)(struct data_sender *s);
};

extern const struct data_sender_ops data_send_udp, data_send_tcp;

struct data_sender {
        const struct data_sender_ops *ops;
        struct node *node;
        struct ros *core;
        const struct source *source; /* NULL: fragments arrive, and are there */
        uint8_t *buffer;
        size_t super_packet_max_bytes; /* 0: as large as the kernel takes them */
        struct chunk_packer *packer;
        void *state; /* of the transport */
        struct ros_job jobs[SEND_JOBS_MAX];
        struct chunk_job chunk_jobs[SEND_JOBS_MAX];
};

/* Takes jobs for an SFI into chunk_jobs until they hold `bytes` of payload, or none is left; makes their
 * payload. Returns the number of jobs. */
#define DATA_SENDER_ALL UINT64_MAX
size_t data_sender_take(struct data_sender *s, uint32_t sfi, uint64_t bytes);
/* The header of the next data message to an SFI. */
struct message_header data_sender_header(const struct data_sender *s, uint32_t sfi);
