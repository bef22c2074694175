/* Lists of addresses that may connect, such as level2.from and control.allow. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "conf/scenario.h"

/* Whether the list contains this address (AF_INET or AF_INET6, network order). It always contains
 * loopback. */
bool scenario_list_has(const struct scenario *s, const char *list, int family, const uint8_t *address);
