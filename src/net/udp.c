/* Opens, binds and closes UDP sockets and joins groups. udp_batch.c moves the batches. */
#include <errno.h>
#include <netinet/udp.h>
#include <string.h>

#include "base/util.h"
#include "udp_internal.h"

static int set_int(int fd, int level, int name, int value)
{
        return setsockopt(fd, level, name, &value, sizeof value) < 0 ? -errno : 0;
}

/* Requests a buffer size, beyond the system's limit if permitted, and returns the granted size. The kernel
 * doubles the request for its own bookkeeping (socket(7)). */
static uint64_t set_buffer(int fd, int force_name, int name, uint64_t bytes)
{
        socklen_t size = sizeof(int);
        int value = (int)MIN(bytes, (uint64_t)INT32_MAX / 2);

        if (bytes > 0 && set_int(fd, SOL_SOCKET, force_name, value) < 0)
                set_int(fd, SOL_SOCKET, name, value);
        if (getsockopt(fd, SOL_SOCKET, name, &value, &size) < 0)
                return 0;
        return (uint64_t)value / 2;
}

static int join(int fd, const struct net_address *group, const struct net_address *local)
{
        unsigned device = net_address_device(local);

        if (group->any.sa_family == AF_INET6) {
                struct ipv6_mreq m = {.ipv6mr_multiaddr = group->v6.sin6_addr, .ipv6mr_interface = device};

                return setsockopt(fd, IPPROTO_IPV6, IPV6_JOIN_GROUP, &m, sizeof m) < 0 ? -errno : 0;
        }
        struct ip_mreqn m = {
                .imr_multiaddr = group->v4.sin_addr,
                .imr_address = local->v4.sin_addr,
                .imr_ifindex = (int)device,
        };
        return setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &m, sizeof m) < 0 ? -errno : 0;
}

/* Sends multicast from the device of the local address, and also to nodes on this machine. */
static void set_multicast_out(int fd, const struct net_address *local)
{
        int device = (int)net_address_device(local);

        if (local->any.sa_family == AF_INET6) {
                set_int(fd, IPPROTO_IPV6, IPV6_MULTICAST_IF, device);
                return;
        }
        struct ip_mreqn m = {.imr_address = local->v4.sin_addr, .imr_ifindex = device};

        setsockopt(fd, IPPROTO_IP, IP_MULTICAST_IF, &m, sizeof m);
}

static int set_up(struct udp *u, const struct udp_config *config)
{
        const struct net_address *bind_to = config->group ?: &config->local;
        int fd = u->endpoint.fd, r = 0;

        u->endpoint.granted_receive_bytes =
                set_buffer(fd, SO_RCVBUFFORCE, SO_RCVBUF, config->receive_buffer_bytes);
        u->endpoint.granted_send_bytes = set_buffer(fd, SO_SNDBUFFORCE, SO_SNDBUF, config->send_buffer_bytes);
        set_int(fd, SOL_SOCKET, SO_RXQ_OVFL, 1);
        if (config->device && config->device[0] &&
            setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, config->device, (socklen_t)strlen(config->device)) <
                    0 &&
            errno != EPERM)
                return -errno;
        if (config->timestamps)
                set_int(fd, SOL_SOCKET, SO_TIMESTAMPNS, 1);
        if (config->group)
                r = set_int(fd, SOL_SOCKET, SO_REUSEADDR, 1);
        if (r < 0 || bind(fd, &bind_to->any, bind_to->size_bytes) < 0)
                return r < 0 ? r : -errno;
        if (config->group)
                return join(fd, config->group, &config->local);
        set_multicast_out(fd, &config->local);
        if (config->connect && connect(fd, &config->connect->any, config->connect->size_bytes) < 0)
                return -errno;
        u->endpoint.local.size_bytes = sizeof u->endpoint.local.v6;
        if (getsockname(fd, &u->endpoint.local.any, &u->endpoint.local.size_bytes) < 0)
                return -errno;
        if (config->segmentation != SEGMENTATION_OFF)
                u->joins = set_int(fd, SOL_UDP, UDP_GRO, 1) == 0;
        return 0;
}

static void udp_free(struct endpoint *e)
{
        struct udp *u = (struct udp *)e;

        if (e->fd >= 0)
                close(e->fd);
        free(u->buffers);
        free(u);
}

static const struct endpoint_ops udp_ops = {
        .receive = udp_receive,
        .send = udp_send,
        .counts = udp_counts,
        .unsent = udp_unsent,
        .free = udp_free,
};

int endpoint_new_udp(struct endpoint **ret, const struct udp_config *config)
{
        struct udp *u = calloc(1, sizeof *u);
        int r;

        if (!u)
                return -ENOMEM;
        u->endpoint.ops = &udp_ops;
        u->endpoint.local = config->local;
        u->connected = config->connect;
        u->segments = config->segmentation != SEGMENTATION_OFF;
        u->super_max_bytes = config->super_packet_max_bytes ?: UDP_SUPER_MAX_BYTES;
        u->super_max_bytes = MIN(u->super_max_bytes, UDP_SUPER_MAX_BYTES);
        u->buffers = malloc((size_t)UDP_RECEIVE_BATCH * UDP_BUFFER_BYTES);
        u->endpoint.fd = socket(config->local.any.sa_family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        r = !u->buffers ? -ENOMEM : u->endpoint.fd < 0 ? -errno : set_up(u, config);
        if (r < 0) {
                udp_free(&u->endpoint);
                return r;
        }
        udp_prepare_receive(u);
        *ret = &u->endpoint;
        return 0;
}

struct endpoint *endpoint_free(struct endpoint *e)
{
        if (e)
                e->ops->free(e);
        return NULL;
}
