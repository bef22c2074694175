/* ethtool requests over generic netlink, in the namespace of the calling thread. */
#pragma once

#include <libmnl/libmnl.h>

#include "shape/model/netlink_message.h"
#include "shape/kernel/device.h"

#define ETHTOOL_BUFFER_BYTES 8192

struct ethtool {
        struct mnl_socket *mnl;
        uint32_t sequence;
        uint16_t family;
        struct tc_ack *ack; /* gets the kernel's text of a refusal; may be NULL */
        uint8_t buffer[ETHTOOL_BUFFER_BYTES] __attribute__((aligned(8)));
};

/* -EOPNOTSUPP: the kernel has no ethtool netlink. Call ethtool_close() also after a failure. */
int ethtool_open(struct ethtool *e, struct tc_ack *ack);
void ethtool_close(struct ethtool *e);
/* Begins a request about a device in the buffer of *e; the caller appends attributes. */
struct nlmsghdr *ethtool_begin(struct ethtool *e, uint8_t command, uint16_t header_attribute,
                               const char *device);
/* Sends the request; each answer goes to `answer` (may be NULL). 0 or negative errno. */
int ethtool_ask(struct ethtool *e, const struct nlmsghdr *m,
                void (*answer)(const struct nlmsghdr *m, void *ctx), void *ctx);
