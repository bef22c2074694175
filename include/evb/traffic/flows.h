/* Plain streams between nodes, with no event building in them: what the publications' first measurements were
 * made of. Each sender and receiver is a process of its own, in its node's namespace here or on its node's
 * machine; processor time is the kernel's account of it, gaps between packets are taken at the wire by the
 * kernel's receive time stamps. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "evb/base/histogram.h"
#include "evb/launch/netns.h"

#define FLOWS_MAX 8
#define FLOW_RECEIVERS_MAX 4

/* FLOW_ECHO: the sender asks on the control port, beside data of its own that fill the link. The numbers
 * stand in settings. */
enum flow_kind { FLOW_UDP, FLOW_MULTICAST, FLOW_TCP, FLOW_ECHO };

struct flow {
        enum flow_kind kind;
        const struct scenario_node *from,
                *to[FLOW_RECEIVERS_MAX]; /* with IPv4 addresses; one receiver but for multicast */
        unsigned n_to;
        char group[64]; /* FLOW_MULTICAST */
        uint16_t port;
        uint32_t message_bytes;
        uint64_t messages_per_s;         /* 0: as fast as it goes */
        uint64_t receiver_packets_per_s; /* what a receiver can take; 0: what it can */
        uint32_t
                buffer_bytes; /* of sockets; 0: the kernel's own. FLOW_ECHO: of the data beside it; 0: none */
        bool watch_wire;      /* gaps between packets at the first receiver */
};

struct flow_result {
        double seconds;         /* that were measured */
        double sending_seconds; /* in all: what processor time is a share of */
        uint64_t sent_messages, sent_bytes;
        uint64_t received_messages[FLOW_RECEIVERS_MAX], received_bytes[FLOW_RECEIVERS_MAX];
        uint64_t socket_drops;     /* datagrams that the receivers' sockets had no room for; UDP */
        uint64_t source_drops;     /* packets that the sender's shaping dropped, told with its first flow */
        bool source_drops_unknown; /* the kernel did not report its shaping */
        double sender_cpu_seconds, receiver_cpu_seconds;
        struct histogram sender_shares,
                receiver_shares;  /* of a processor, as in cpu_meter.h, while it was measured */
        struct histogram gaps_ns; /* FLOW_ECHO: from question to answer */
};

/* Shaping of all senders while streams go. */
struct flow_shape {
        uint64_t rate_bps; /* for each destination; 0: no shaping */
        uint64_t link_rate_bps, mtu_bytes, switch_buffer_bytes;
        uint16_t control_port;  /* 0: no class for control */
        char to[FLOWS_MAX][64]; /* destinations */
        unsigned n_to, sources;
};

/* Runs all at once for so long, a bit more to let what is queued arrive. Negative errno; errors are logged.
 * Here, in the lab's namespaces, whose shaping goes with them; remote_flows_run() is the same by standby
 * nodes. */
int flows_run(struct netns_lab *lab, const struct flow *flows, unsigned n, const struct flow_shape *shape,
              double seconds, struct flow_result *results);
