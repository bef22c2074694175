/* Interrupt coalescing over ethtool's generic netlink. */
#pragma once

#include "tc/device.h"

bool coalesce_is_asked(const struct tc_tuning *t);
bool coalesce_is_so(const struct tc_tuning *want, const struct tc_tuning *have);
/* Marks the settings that `want` keeps as unchanged. */
void coalesce_keep_asked(struct tc_tuning *t, const struct tc_tuning *want);
/* -EOPNOTSUPP: the device has no coalescing. */
int coalesce_read(const char *device, struct tc_tuning *ret);
int coalesce_write(const char *device, const struct tc_tuning *want, struct tc_ack *ack);
