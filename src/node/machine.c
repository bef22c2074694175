/* Checks a node's section against the machine that it runs on. */
#include "machine.h"

#include <errno.h>
#include <net/if.h>
#include <unistd.h>

#include "base/log.h"
#include "base/quantity.h"
#include "base/util.h"

int machine_check(const struct scenario_node *self)
{
        long n = sysconf(_SC_NPROCESSORS_CONF);

        if (self->device[0] && if_nametoindex(self->device) == 0)
                return log_error_errno(ENODEV,
                                       "node %s: device %s does not exist; expected one that ip link lists",
                                       self->name, self->device);
        for (size_t i = 0; i < self->n_cpus; i++) {
                if (n > 0 && self->cpus[i] >= n)
                        return log_error_errno(
                                EINVAL, "node %s.cpus: this machine has no processor %u; expected 0 to %ld",
                                self->name, self->cpus[i], n - 1);
        }
        return 0;
}

int machine_path_error(int r)
{
        switch (-r) {
        case EACCES:
        case EPERM:
        case EROFS:
        case EISDIR:
        case ELOOP:
        case ENAMETOOLONG:
                return -EINVAL;
        }
        return r;
}

int machine_no_memory(const char *key, uint64_t requested_bytes)
{
        char bytes[QUANTITY_TEXT_MAX];

        return log_error_errno(EINVAL, "%s: this machine has no memory for %s; reduce the value", key,
                               quantity_format_bytes(requested_bytes, bytes));
}

int machine_exit_status(int r)
{
        switch (-r) {
        case ECANCELED: /* the node was stopped before it started */
                return 0;
        case EINVAL:
        case ENOENT:
        case ENOTDIR:
        case EEXIST:
        case EBADMSG:
        case ENODATA:
        case ENODEV:
        case ENXIO:
        case EADDRNOTAVAIL:
                return 2;
        case EPERM:
        case EACCES:
        case EOPNOTSUPP:
        case EAFNOSUPPORT:
        case EPROTONOSUPPORT:
                return 77;
        case ENOMEM:
        case EAGAIN:
        case EMFILE:
        case ENFILE:
        case ENOBUFS:
                return NODE_STATUS_AGAIN;
        }
        return 1;
}
