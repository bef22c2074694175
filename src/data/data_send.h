/* Sends a ROS's fragments: takes jobs from the core and gathers payload from the ROS's buffer without copying
 * it. One table of functions per transport. One thread. */
#pragma once

#include "core/ros.h"
#include "data/context.h"
#include "data/fragment_source.h"

#define SEND_JOBS_MAX 256

struct data_sender;

struct data_sender_ops {
        int (*open)(struct data_sender *s);
        /* Sends for a bounded time; *ret_more: whether more could be sent at once. */
        int (*turn)(struct data_sender *s, uint64_t now_ns, bool *ret_more);
        uint64_t (*deadline_ns)(const struct data_sender *s);
        /* Returns the time since which the kernel has accepted no more data for SFI `sfi`; 0: it accepts
         * data. */
        uint64_t (*blocked_since_ns)(const struct data_sender *s, uint32_t sfi);
        /* Returns the size of the largest packet that this machine sends to SFI `sfi`, at most
         * NETWORK_MTU_MAX_BYTES; 0: unknown. NULL: the transport finds the size of packets by itself. */
        uint32_t (*mtu_bytes)(const struct data_sender *s, uint32_t sfi);
        /* The size of packets to SFI `sfi` from now on; at first, each path carries it
         * (scenario_mtu_bytes()). */
        void (*set_mtu)(struct data_sender *s, uint32_t sfi, uint32_t bytes);
        void (*close)(struct data_sender *s);
};

extern const struct data_sender_ops data_send_udp, data_send_tcp;

struct data_sender {
        const struct data_sender_ops *ops;
        struct data_context context;
        uint64_t seed; /* seed of the pauses between connection attempts */
        struct ros *core;
        const struct source *source; /* NULL: fragments arrive from a front-end */
        uint8_t *buffer;
        size_t super_packet_max_bytes; /* limit for super-packets as a qdisc counts them, including headers;
                                          0: the kernel's limit */
        /* TCP: the rate of each connection on the wire, and the bytes that it counts for each packet in
         * addition to the frame. Changes between turns. 0, for good: the kernel does not pace. */
        uint64_t pace_bps;
        uint32_t pace_overhead_bytes;
        struct chunk_packer *packer;
        void *state; /* state of the transport */
        struct ros_job jobs[SEND_JOBS_MAX];
        struct chunk_job chunk_jobs[SEND_JOBS_MAX];
};

/* Collects jobs for an SFI in chunk_jobs until they hold `bytes` of payload or no job is left, and generates
 * their payload if necessary. Returns the number of jobs. */
#define DATA_SENDER_ALL UINT64_MAX
size_t data_sender_pop(struct data_sender *s, uint32_t sfi, uint64_t bytes);
/* Makes the header of the next data message to an SFI. */
struct message_header data_sender_header(const struct data_sender *s, uint32_t sfi);
