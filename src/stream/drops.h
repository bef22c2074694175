/* What a device and its root qdisc drop. The kernel counts for the whole device, so that packets of others
 * are in these figures, too. */
#pragma once

#include <net/if.h>
#include <stdbool.h>
#include <stdint.h>

#include "net/address.h"

#define DROPS_KIND_MAX 16

struct device_drops {
        bool known; /* the other members */
        char device[IF_NAMESIZE];
        uint64_t received_packets; /* dropped on their way in: by the device, or for want of buffers */
        bool qdisc_known;
        /* The kind of the root qdisc; of a device with several queues, that of each queue. */
        char qdisc[DROPS_KIND_MAX];
        bool has_etf; /* anywhere in the tree */
        uint64_t qdisc_packets;
};

/* Reads the counters of the device with this address. */
void drops_read(struct device_drops *ret, const struct net_address *local);
