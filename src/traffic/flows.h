/* Plain traffic between nodes, without event building, as in the first measurements of the publications. Each
 * sender and receiver is a process of its own in its node's namespace or on its node's machine. Processor
 * time is the kernel's account of that process; gaps between packets come from the kernel's receive time
 * stamps. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/histogram.h"
#include "run/testbed.h"
#include "sys/machine_watch.h"

#define FLOWS_MAX 8
#define FLOW_RECEIVERS_MAX 4

/* FLOW_ECHO: the sender sends echo requests on the control port, beside data of its own that fill the link.
 * FLOW_SEGMENTS: UDP in super-packets, which the kernel segments and joins, as fast as possible.
 * The numbers are stored in settings: do not reorder. */
enum flow_kind { FLOW_UDP, FLOW_MULTICAST, FLOW_TCP, FLOW_ECHO, FLOW_SEGMENTS };

struct flow {
        enum flow_kind kind;
        /* Nodes with IPv4 addresses; several receivers only for FLOW_MULTICAST. */
        const struct scenario_node *from, *to[FLOW_RECEIVERS_MAX];
        unsigned n_to;
        char group[64]; /* FLOW_MULTICAST */
        uint16_t port;
        uint32_t message_bytes;
        uint64_t messages_per_s;         /* 0: as fast as possible */
        uint64_t receiver_packets_per_s; /* maximum rate of a receiver; 0: no limit */
        /* Size of the socket buffers; 0: the kernel's default. FLOW_ECHO: of the filling data; 0: no data. */
        uint32_t buffer_bytes;
        bool watch_wire; /* record gaps between packets at the first receiver */
};

struct flow_result {
        double seconds;         /* of the measurement */
        double sending_seconds; /* with the warm-up; processor time is a share of this */
        uint64_t sent_messages, sent_bytes;
        uint64_t received_messages[FLOW_RECEIVERS_MAX], received_bytes[FLOW_RECEIVERS_MAX];
        uint64_t socket_drops;     /* datagrams dropped at the receivers' sockets (UDP) */
        uint64_t source_drops;     /* packets dropped by the sender's shaping; in the sender's first flow */
        bool source_drops_unknown; /* the kernel did not report its shaping */
        double sender_cpu_seconds, receiver_cpu_seconds;
        /* Shares of a processor during the measurement, as in cpu_meter.h. */
        struct histogram sender_shares, receiver_shares;
        struct histogram gaps_ns; /* FLOW_ECHO: from request to reply */
};

/* Shaping of all senders for the time of the flows. */
struct flow_shape {
        uint64_t rate_bps; /* of each destination; 0: no shaping */
        uint64_t link_rate_bps, mtu_bytes, switch_buffer_bytes;
        uint16_t control_port;  /* 0: no class for control messages */
        char to[FLOWS_MAX][64]; /* destinations */
        unsigned n_to, sources;
};

/* Runs all flows at once in the testbed's namespaces, then waits a moment for queued packets to arrive.
 * `watch` watches during the measurement; NULL: none. The endpoints get precedence over ordinary processes,
 * if that is permitted. Returns negative errno; logs errors. coordinator_run_flows() does the same on standby
 * nodes, at ordinary priority. */
int flows_run(struct testbed *testbed, const struct flow *flows, unsigned n, const struct flow_shape *shape,
              double seconds, struct machine_watch *watch, struct flow_result *results);
