/* Interrupt coalescing over ethtool's generic netlink (Documentation/networking/ethtool-netlink.rst). */
#include "coalesce.h"

#include <errno.h>
#include <linux/ethtool_netlink.h>
#include <linux/genetlink.h>
#include <stddef.h>
#include <string.h>

#include "base/util.h"
#include "ethtool.h"

/* The attribute of each member. */
static const struct {
        uint16_t attribute;
        size_t offset;
} fields[] = {
        {ETHTOOL_A_COALESCE_RX_USECS, offsetof(struct tc_tuning, rx_usecs)},
        {ETHTOOL_A_COALESCE_RX_MAX_FRAMES, offsetof(struct tc_tuning, rx_frames)},
        {ETHTOOL_A_COALESCE_TX_USECS, offsetof(struct tc_tuning, tx_usecs)},
        {ETHTOOL_A_COALESCE_TX_MAX_FRAMES, offsetof(struct tc_tuning, tx_frames)},
};

static uint32_t *field(const struct tc_tuning *t, size_t i)
{
        return (uint32_t *)((char *)t + fields[i].offset);
}

bool coalesce_is_asked(const struct tc_tuning *t)
{
        for (size_t i = 0; i < ARRAY_SIZE(fields); i++) {
                if (*field(t, i) != TC_UNCHANGED)
                        return true;
        }
        return false;
}

bool coalesce_is_so(const struct tc_tuning *want, const struct tc_tuning *have)
{
        for (size_t i = 0; i < ARRAY_SIZE(fields); i++) {
                if (*field(want, i) != TC_UNCHANGED && *field(want, i) != *field(have, i))
                        return false;
        }
        return true;
}

void coalesce_keep_asked(struct tc_tuning *t, const struct tc_tuning *want)
{
        for (size_t i = 0; i < ARRAY_SIZE(fields); i++) {
                if (*field(want, i) == TC_UNCHANGED)
                        *field(t, i) = TC_UNCHANGED;
        }
}

static void take_fields(const struct nlmsghdr *m, void *ctx)
{
        struct tc_tuning *t = ctx;
        const struct nlattr *a;

        mnl_attr_for_each(a, m, sizeof(struct genlmsghdr))
        {
                for (size_t i = 0; i < ARRAY_SIZE(fields); i++) {
                        if (mnl_attr_get_type(a) == fields[i].attribute &&
                            mnl_attr_get_payload_len(a) >= sizeof(uint32_t))
                                *field(t, i) = mnl_attr_get_u32(a);
                }
        }
}

int coalesce_read(const char *device, struct tc_tuning *ret)
{
        _cleanup_(ethtool_close) struct ethtool e;
        int r = ethtool_open(&e, NULL);

        return r < 0 ? r
                     : ethtool_ask(
                               &e,
                               ethtool_begin(&e, ETHTOOL_MSG_COALESCE_GET, ETHTOOL_A_COALESCE_HEADER, device),
                               take_fields, ret);
}

int coalesce_write(const char *device, const struct tc_tuning *want, struct tc_ack *ack)
{
        _cleanup_(ethtool_close) struct ethtool e;
        struct nlmsghdr *m;
        int r = ethtool_open(&e, ack);

        if (r < 0)
                return r;
        m = ethtool_begin(&e, ETHTOOL_MSG_COALESCE_SET, ETHTOOL_A_COALESCE_HEADER, device);
        for (size_t i = 0; i < ARRAY_SIZE(fields); i++) {
                if (*field(want, i) != TC_UNCHANGED)
                        mnl_attr_put_u32(m, fields[i].attribute, *field(want, i));
        }
        return ethtool_ask(&e, m, NULL, NULL);
}
