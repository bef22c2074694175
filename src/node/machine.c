/* Checks a node's section against the machine that it runs on. */
#include "machine.h"

#include <errno.h>
#include <net/if.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/quantity.h"
#include "base/util.h"
#include "data/network.h"

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

size_t machine_processors_part(const unsigned *processors, size_t n, size_t place, size_t parts,
                               unsigned ret[static SCENARIO_CPUS_MAX])
{
        size_t from, size;

        if (parts == 0 || n < parts)
                return 0;
        from = place * n / parts;
        size = MIN((place + 1) * n / parts - from, (size_t)SCENARIO_CPUS_MAX);
        for (size_t i = 0; i < size; i++)
                ret[i] = processors[from + i];
        return size;
}

/* The processors that this process may use. Returns their number. */
static size_t list_processors(unsigned ret[static CPU_SETSIZE])
{
        cpu_set_t set;
        size_t n = 0;

        if (sched_getaffinity(0, sizeof set, &set) < 0)
                return 0;
        for (unsigned i = 0; i < CPU_SETSIZE; i++) {
                if (CPU_ISSET(i, &set))
                        ret[n++] = i;
        }
        return n;
}

/* A launcher starts all nodes on this machine, each perhaps in a network namespace of its own. */
static bool is_here(const struct scenario_node *n)
{
        struct net_address address;
        bool here;
        int fd;

        if (getenv(NODE_STATS_ENV))
                return true;
        if (network_node_address(&address, n, 0) < 0)
                return false;
        fd = socket(address.any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        here = fd >= 0 && bind(fd, &address.any, address.size_bytes) == 0;
        if (fd >= 0)
                close(fd);
        return here;
}

void machine_share_processors(const struct scenario *s, struct scenario_node *self)
{
        unsigned processors[CPU_SETSIZE];
        size_t n = list_processors(processors), place = 0, parts = 0;

        for (size_t i = 0; i < s->n_nodes; i++) {
                const struct scenario_node *node = &s->nodes[i];
                bool is_self = strcmp(node->name, self->name) == 0;

                if (!node->cpus_auto || (!is_self && !is_here(node)))
                        continue;
                if (is_self)
                        place = parts;
                parts++;
        }
        self->n_cpus = machine_processors_part(processors, n, place, parts, self->cpus);
        if (self->n_cpus == 0)
                log_info("cpus = auto: %zu nodes share %zu processors, as the system decides", parts, n);
        else
                log_info("cpus = auto: this node uses %zu of %zu processors, the first is %u; %zu nodes "
                         "share them",
                         self->n_cpus, n, self->cpus[0], parts);
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
