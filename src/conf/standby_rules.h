/* The permissions of a node's scenario for commands of `evb lab`: the settings that they may change, and the
 * addresses that they may come from. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "conf/scenario.h"

/* The permission of standby.allow that a command needs for this setting ("SECTION.KEY=VALUE"); NULL: none.
 * scenario_setting_is_local() lists the keys that no command may set. */
const char *scenario_setting_permission(const char *setting);
/* Whether standby.allow names this permission. */
bool scenario_allows(const struct scenario *s, const char *permission);
/* Whether the setting differs from the scenario's value; also true if it cannot be parsed. */
bool scenario_setting_changes(const struct scenario *s, const char *setting);
/* Whether a list like network.command-from or network.clients has this address (AF_INET or AF_INET6, network
 * order). Loopback always is in it. */
bool scenario_list_has(const struct scenario *s, const char *list, int family, const uint8_t *address);
