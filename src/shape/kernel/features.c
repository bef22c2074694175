/* Enables and disables segmentation offload, which passes super-packets to a device. */
#include <linux/ethtool_netlink.h>

#include "base/util.h"
#include "shape/kernel/device.h"
#include "ethtool.h"

/* The features of NETIF_F_GSO_SOFTWARE for UDP and TCP, and the general switch. */
static const char *const segmentation[] = {"tx-generic-segmentation", "tx-tcp-segmentation",
                                           "tx-tcp-ecn-segmentation", "tx-tcp-mangleid-segmentation",
                                           "tx-tcp6-segmentation",    "tx-udp-segmentation"};

int tc_device_segment(const char *device, bool on, struct tc_ack *ack)
{
        _cleanup_(ethtool_close) struct ethtool e;
        struct nlattr *wanted, *bits;
        struct nlmsghdr *m;
        int r = ethtool_open(&e, ack);

        *ack = (struct tc_ack){};
        if (r < 0)
                return r;
        m = ethtool_begin(&e, ETHTOOL_MSG_FEATURES_SET, ETHTOOL_A_FEATURES_HEADER, device);
        wanted = mnl_attr_nest_start(m, ETHTOOL_A_FEATURES_WANTED);
        bits = mnl_attr_nest_start(m, ETHTOOL_A_BITSET_BITS);
        for (size_t i = 0; i < ARRAY_SIZE(segmentation); i++) {
                struct nlattr *bit = mnl_attr_nest_start(m, ETHTOOL_A_BITSET_BITS_BIT);

                mnl_attr_put_strz(m, ETHTOOL_A_BITSET_BIT_NAME, segmentation[i]);
                if (on)
                        mnl_attr_put(m, ETHTOOL_A_BITSET_BIT_VALUE, 0, NULL);
                mnl_attr_nest_end(m, bit);
        }
        mnl_attr_nest_end(m, bits);
        mnl_attr_nest_end(m, wanted);
        return ethtool_ask(&e, m, NULL, NULL);
}
