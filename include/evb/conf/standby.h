/* What a node's own scenario lets the commands of `evb lab` do: which settings they may change, and whom they
 * may come from. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "evb/conf/scenario.h"

/* The permission in standby.allow that a command needs to change this setting ("SECTION.KEY=VALUE"); NULL:
 * none. Keys that no command may ever set are another matter: scenario_setting_is_local(). */
const char *scenario_setting_permission(const char *setting);
/* Whether standby.allow names this permission. */
bool scenario_allows(const struct scenario *s, const char *permission);
/* Whether the setting differs from what the scenario has; true also if it cannot be understood. */
bool scenario_setting_changes(const struct scenario *s, const char *setting);
/* Whether network.command-from lets an address (AF_INET or AF_INET6, in network order) give commands. */
bool scenario_lets_command(const struct scenario *s, int family, const uint8_t *address);
