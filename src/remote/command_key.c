/* Reads the key for commands, and keeps the command server of a network from opening without one. */
#include "command_key.h"

#include <errno.h>

#include "base/log.h"
#include "net/address.h"
#include "net/key_file.h"

int command_key_read(struct command_key *ret, const struct scenario *s)
{
        struct auth_key key;
        struct error e = {};

        *ret = (struct command_key){};
        if (!s->network.key_file[0])
                return 0;
        if (key_file_read(s->network.key_file, &key, &e) < 0)
                return log_error_errno(EINVAL, "%s: network.key-file: %s", s->path, e.message);
        auth_derive(&ret->key, &key, AUTH_COMMANDS);
        auth_forget(&key);
        ret->has_key = true;
        return 0;
}

const struct auth_key *command_key_get(const struct command_key *k)
{
        return k->has_key ? &k->key : NULL;
}

int command_key_check_server(const struct command_key *k, const struct scenario *s)
{
        const struct scenario_node *dfm = scenario_node_of(s, ROLE_DFM, 0);
        struct net_address at;

        if (k->has_key || net_address_parse(&at, dfm->address, 1) < 0 || net_address_is_loopback(&at))
                return 0;
        return log_error_errno(
                EINVAL,
                "%s: network.key-file is not set: without a key, anyone could command the nodes "
                "through port %llu of %s; make a key with head -c 32 /dev/urandom | base64 -w 0, "
                "copy it to all machines and set network.key-file (see docs/security.md)",
                s->path, (unsigned long long)s->network.order_port, dfm->address);
}
