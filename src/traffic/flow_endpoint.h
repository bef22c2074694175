/* Endpoints of flows: the description of each sender, receiver and wire watcher, and the sum of what they
 * count. Descriptions also travel as JSON to standby nodes. */
#pragma once

#include <jansson.h>

#include "traffic/flows.h"

#define FLOW_ENDPOINTS_MAX (FLOWS_MAX * (FLOW_RECEIVERS_MAX + 2))

enum flow_role { FLOW_SENDER, FLOW_RECEIVER, FLOW_WATCHER };

/* Everything that one endpoint needs to know. Plain data without pointers. */
struct flow_endpoint {
        enum flow_role role;
        enum flow_kind kind;
        unsigned flow, which;          /* index of the flow; index among its receivers */
        char from[64], to[64], at[64]; /* sender; receiver or group; this endpoint's own address */
        uint16_t port;
        uint32_t message_bytes, buffer_bytes;
        uint64_t messages_per_s, receiver_packets_per_s;
};

struct flow_counters {
        uint64_t messages, bytes;
        uint64_t socket_drops; /* datagrams dropped at the full socket buffer */
        struct histogram gaps_ns;
};

/* Lists the endpoints of a flow in the order in which they must start. Returns their number. */
unsigned flow_endpoints(const struct flow *f, unsigned flow,
                        struct flow_endpoint ret[static FLOW_RECEIVERS_MAX + 2]);
json_t *flow_endpoint_to_json(const struct flow_endpoint *e);
/* Returns -EBADMSG if a member is missing or exceeds what any measurement uses. The caller checks the
 * addresses. */
int flow_endpoint_from_json(struct flow_endpoint *ret, const json_t *o);
/* Adds one endpoint's counters to the result of its flow. */
void flow_result_add(struct flow_result *r, const struct flow_endpoint *e,
                     const struct flow_counters *counters, double cpu_seconds,
                     const struct histogram *cpu_shares);
