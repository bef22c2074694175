/* Plain streams between namespaces of the lab, with no event building in them: what the publications' first measurements
 * were made of. Each sender and receiver is a process of its own; processor time is the kernel's account of it, gaps
 * between packets are taken at the wire by the kernel's receive time stamps. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "evb/base/histogram.h"
#include "evb/lab/netns.h"

#define FLOWS_MAX 8
#define FLOW_RECEIVERS_MAX 4

enum flow_kind { FLOW_UDP, FLOW_MULTICAST, FLOW_TCP };

struct flow {
        enum flow_kind kind;
        int from;                           /* namespace of the sender */
        int to[FLOW_RECEIVERS_MAX];         /* of the receivers; one but for multicast */
        unsigned n_to;
        char source[64], destination[64];   /* addresses, IPv4 */
        uint16_t port;
        uint32_t message_bytes;
        uint64_t messages_per_s;            /* 0: as fast as it goes */
        uint64_t receiver_packets_per_s;    /* what a receiver can take; 0: what it can */
        uint32_t buffer_bytes;              /* of sockets; 0: the kernel's own */
        bool watch_wire;                    /* gaps between packets at the first receiver */
};

struct flow_result {
        double seconds;                     /* that were measured */
        double sending_seconds;             /* in all: what processor time is a share of */
        uint64_t sent_messages, sent_bytes;
        uint64_t received_messages[FLOW_RECEIVERS_MAX], received_bytes[FLOW_RECEIVERS_MAX];
        double sender_cpu_seconds, receiver_cpu_seconds;
        struct histogram gaps_ns;
};

/* Runs all at once for so long, a bit more to let what is queued arrive. Negative errno; errors are logged. */
int flows_run(const struct flow *flows, unsigned n, double seconds, struct flow_result *results);
