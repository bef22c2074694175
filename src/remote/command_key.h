/* The key for commands to standby nodes, derived from network.key-file. */
#pragma once

#include <stdbool.h>

#include "conf/scenario.h"
#include "protocol/auth.h"

struct command_key {
        bool has_key;
        struct auth_key key;
};

/* Reads the key if the scenario names one. -EINVAL: it is no such file; errors are logged. */
int command_key_read(struct command_key *ret, const struct scenario *s);
/* As json_connection takes it: NULL without a key. */
const struct auth_key *command_key_get(const struct command_key *k);
/* -EINVAL, and logged: the command server would take commands from anyone on a network. */
int command_key_check_server(const struct command_key *k, const struct scenario *s);
