/* The lab's links and addresses, by libnl-route: a veth from each node's namespace to the bridge. */
#include <errno.h>
#include <fcntl.h>
#include <linux/if_addr.h>
#include <net/if.h>
#include <netlink/route/addr.h>
#include <netlink/route/link.h>
#include <netlink/route/link/bridge.h>
#include <netlink/route/link/veth.h>
#include <netlink/socket.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "evb/base/log.h"
#include "evb/base/util.h"
#include "evb/tc/device.h"
#include "evb/tc/socket.h"
#include "netns_internal.h"
#include "wires.h"

#define NAME_MAX_BYTES 64
#define BRIDGE "switch"
#define DEVICE "eth0"

struct netns_lab {
        const struct scenario *scenario;
        int *namespaces; /* of the nodes, then of the switch */
        size_t n;
        int home;
        struct tc_socket *at_switch; /* NULL: wires without rates */
};

static void cleanup_socket(struct nl_sock **s)
{
        nl_socket_free(*s);
}

static void cleanup_link(struct rtnl_link **l)
{
        rtnl_link_put(*l);
}

/* A route socket in a namespace; the calling thread stays at home. */
static int open_in(const struct netns_lab *lab, int namespace, struct nl_sock **ret)
{
        struct nl_sock *s = nl_socket_alloc();
        int r;

        if (!s)
                return -ENOMEM;
        r = netns_enter(namespace);
        if (r >= 0) {
                r = nl_connect(s, NETLINK_ROUTE) < 0 ? -EIO : 0;
                if (netns_enter(lab->home) < 0)
                        abort();
        }
        if (r < 0) {
                nl_socket_free(s);
                return r;
        }
        *ret = s;
        return 0;
}

/* As that, to change queueing by. */
static int open_tc_in(const struct netns_lab *lab, int namespace, struct tc_socket **ret)
{
        int r = netns_enter(namespace);

        if (r >= 0) {
                r = tc_socket_new(ret);
                if (netns_enter(lab->home) < 0)
                        abort();
        }
        return r;
}

static void name_of(const struct netns_lab *lab, size_t i, char *name)
{
        const struct scenario *s = lab->scenario;

        snprintf(name, NAME_MAX_BYTES, "evb-%d-%s", (int)getpid(),
                 i < s->n_nodes ? s->nodes[i].name : BRIDGE);
}

static int change(struct nl_sock *s, const char *device, unsigned mtu, bool up, int master)
{
        _cleanup_(cleanup_link) struct rtnl_link *old = NULL, *new = rtnl_link_alloc();

        if (!new || rtnl_link_get_kernel(s, 0, device, &old) < 0)
                return -ENODEV;
        if (up)
                rtnl_link_set_flags(new, IFF_UP);
        if (mtu > 0)
                rtnl_link_set_mtu(new, mtu);
        if (master > 0)
                rtnl_link_set_master(new, master);
        return rtnl_link_change(s, old, new, 0) < 0 ? -EIO : 0;
}

static int index_of(struct nl_sock *s, const char *device)
{
        _cleanup_(cleanup_link) struct rtnl_link *link = NULL;

        return rtnl_link_get_kernel(s, 0, device, &link) < 0 ? -ENODEV : rtnl_link_get_ifindex(link);
}

static int add_address(struct nl_sock *s, const char *text, int device)
{
        struct nl_addr *local = NULL;
        struct rtnl_addr *a = rtnl_addr_alloc();
        int r = a ? nl_addr_parse(text, AF_UNSPEC, &local) : -NLE_NOMEM;

        if (r >= 0) {
                rtnl_addr_set_ifindex(a, device);
                rtnl_addr_set_local(a, local);
                /* Nobody else is there to have the same IPv6 address, and waiting to be sure takes seconds.
                 */
                if (nl_addr_get_family(local) == AF_INET6)
                        rtnl_addr_set_flags(a, IFA_F_NODAD);
                r = rtnl_addr_add(s, a, 0);
        }
        nl_addr_put(local);
        rtnl_addr_put(a);
        return r < 0 ? -EIO : 0;
}

static int make_switch(struct nl_sock *s, unsigned mtu, int *ret_index)
{
        if (rtnl_link_bridge_add(s, BRIDGE) < 0 || change(s, BRIDGE, mtu, true, 0) < 0 ||
            change(s, "lo", 0, true, 0) < 0)
                return -EIO;
        *ret_index = index_of(s, BRIDGE);
        return *ret_index < 0 ? *ret_index : 0;
}

/* A switch asks no firewall. Where the kernel's br_netfilter is loaded, every frame would pass the host's
 * rules, at a cost; the setting is the namespace's own, and there only with that module. */
static int pass_no_firewall(const struct netns_lab *lab, int namespace)
{
        static const char *const settings[] = {"iptables", "ip6tables", "arptables"};
        int r = netns_enter(namespace);

        for (size_t i = 0; r >= 0 && i < ARRAY_SIZE(settings); i++) {
                char path[80];
                int fd;

                snprintf(path, sizeof path, "/proc/sys/net/bridge/bridge-nf-call-%s", settings[i]);
                fd = open(path, O_WRONLY | O_CLOEXEC);
                if (fd < 0)
                        continue;
                if (write(fd, "0", 1) < 0)
                        r = -errno;
                close(fd);
        }
        if (netns_enter(lab->home) < 0)
                abort();
        return r;
}

/* One wire: eth0 in the node's namespace, portN in the switch's. */
static int make_wire(const struct netns_lab *lab, struct nl_sock *at_switch, size_t i, int bridge)
{
        _cleanup_(cleanup_socket) struct nl_sock *at_node = NULL;
        _cleanup_(cleanup_link) struct rtnl_link *port = rtnl_link_veth_alloc();
        const struct scenario *s = lab->scenario;
        struct rtnl_link *peer = port ? rtnl_link_veth_get_peer(port) : NULL;
        char name[32], address[80];
        int r;

        if (!peer)
                return -ENOMEM;
        snprintf(name, sizeof name, "port%zu", i + 1);
        rtnl_link_set_name(port, name);
        rtnl_link_set_mtu(port, (unsigned)s->network.mtu_bytes);
        rtnl_link_set_name(peer, DEVICE);
        rtnl_link_set_mtu(peer, (unsigned)s->network.mtu_bytes);
        rtnl_link_set_ns_fd(peer, lab->namespaces[i]);
        r = rtnl_link_add(at_switch, port, NLM_F_CREATE | NLM_F_EXCL);
        rtnl_link_put(peer);
        if (r < 0)
                return -EIO;
        r = change(at_switch, name, 0, true, bridge);
        if (r >= 0)
                r = open_in(lab, lab->namespaces[i], &at_node);
        if (r < 0)
                return r;
        snprintf(address, sizeof address, "%s/%d", s->nodes[i].address,
                 strchr(s->nodes[i].address, ':') ? 64 : 16);
        if ((r = change(at_node, "lo", 0, true, 0)) < 0 || (r = change(at_node, DEVICE, 0, true, 0)) < 0)
                return r;
        return add_address(at_node, address, index_of(at_node, DEVICE));
}

/* Packets, not super-packets, on a device: a switch knows no others. */
static int cut_packets(const struct netns_lab *lab, int namespace, const char *device)
{
        struct tc_ack ack = {};
        int r = netns_enter(namespace);

        if (r < 0)
                return log_error_errno(r, "lab: %m");
        r = tc_device_segment(device, false, &ack);
        if (netns_enter(lab->home) < 0)
                abort();
        return r < 0 ? log_error_errno(r, "lab: segmentation offload of %s: %m: %s", device, ack.text) : 0;
}

/* Rates and buffers of all wires and ports. */
static int shape_wires(struct netns_lab *lab)
{
        const struct scenario *s = lab->scenario;
        int r = open_tc_in(lab, lab->namespaces[s->n_nodes], &lab->at_switch);

        for (unsigned i = 0; r >= 0 && i < s->n_nodes; i++) {
                char port[32];

                snprintf(port, sizeof port, "port%u", i + 1);
                r = wires_set_rate(lab->at_switch, s, i + 1);
                if (r >= 0)
                        r = cut_packets(lab, lab->namespaces[s->n_nodes], port);
                if (r >= 0)
                        r = cut_packets(lab, lab->namespaces[i], DEVICE);
        }
        return r;
}

static int build(struct netns_lab *lab)
{
        _cleanup_(cleanup_socket) struct nl_sock *at_switch = NULL;
        const struct scenario *s = lab->scenario;
        char name[NAME_MAX_BYTES];
        int bridge, r;

        for (size_t i = 0; i <= s->n_nodes; i++) {
                name_of(lab, i, name);
                r = netns_make(name, &lab->namespaces[i]);
                if (r < 0)
                        return log_error_errno(
                                r, "network namespace %s: %m%s", name,
                                r == -EPERM || r == -EACCES
                                        ? "; --net lab needs root (CAP_SYS_ADMIN and CAP_NET_ADMIN)"
                                        : "");
                lab->n++;
        }
        r = open_in(lab, lab->namespaces[s->n_nodes], &at_switch);
        if (r >= 0)
                r = make_switch(at_switch, (unsigned)s->network.mtu_bytes, &bridge);
        if (r >= 0)
                r = pass_no_firewall(lab, lab->namespaces[s->n_nodes]);
        if (r < 0)
                return log_error_errno(r, "the lab's switch: %m");
        for (size_t i = 0; i < s->n_nodes; i++) {
                r = make_wire(lab, at_switch, i, bridge);
                if (r < 0)
                        return log_error_errno(r, "the lab's wire to %s: %m", s->nodes[i].name);
        }
        return s->network.link_rate_bps == SCENARIO_UNLIMITED ? 0 : shape_wires(lab);
}

static void set_addresses(struct scenario *s)
{
        bool v6 = strchr(s->network.control_group, ':');

        /* The lab's wires count as the kernel does: a packet takes nothing beyond its bytes. */
        if (s->qos.overhead_bytes == SCENARIO_UNCHANGED)
                s->qos.overhead_bytes = 0;

        for (size_t i = 0; i < s->n_nodes; i++) {
                struct scenario_node *n = &s->nodes[i];

                if (v6)
                        snprintf(n->address, sizeof n->address, "fd00:e7b::%zx", i + 1);
                else
                        snprintf(n->address, sizeof n->address, "10.200.%zu.%zu", (i + 1) / 250,
                                 1 + (i + 1) % 250);
                snprintf(n->device, sizeof n->device, "%s", DEVICE);
        }
}

int netns_lab_new(struct netns_lab **ret, struct scenario *s)
{
        struct netns_lab *lab;
        int r;

        netns_clean();
        set_addresses(s);
        lab = calloc(1, sizeof *lab);
        if (!lab)
                return log_error_errno(ENOMEM, "lab: %m");
        lab->scenario = s;
        lab->home = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
        lab->namespaces = calloc(s->n_nodes + 1, sizeof *lab->namespaces);
        r = lab->home < 0 || !lab->namespaces ? log_error_errno(ENOMEM, "lab: %m") : build(lab);
        if (r < 0) {
                netns_lab_free(lab);
                return r;
        }
        *ret = lab;
        return 0;
}

struct netns_lab *netns_lab_free(struct netns_lab *lab)
{
        char name[NAME_MAX_BYTES];

        if (!lab)
                return NULL;
        for (size_t i = 0; i < lab->n; i++) {
                name_of(lab, i, name);
                close(lab->namespaces[i]);
                netns_remove(name);
        }
        tc_socket_free(lab->at_switch);
        if (lab->home >= 0)
                close(lab->home);
        free(lab->namespaces);
        free(lab);
        return NULL;
}

int netns_lab_node(const struct netns_lab *lab, const char *name)
{
        for (size_t i = 0; i < lab->scenario->n_nodes; i++) {
                if (strcmp(lab->scenario->nodes[i].name, name) == 0)
                        return lab->namespaces[i];
        }
        return -1;
}

int netns_lab_switch_drops(const struct netns_lab *lab, uint64_t *ret_packets)
{
        uint64_t sum = 0, packets = 0;
        int r = lab->at_switch ? 0 : -ENODATA;

        for (unsigned i = 0; r >= 0 && i < lab->scenario->n_nodes; i++) {
                r = wires_read_drops(lab->at_switch, i + 1, &packets);
                sum += packets;
        }
        if (r >= 0)
                *ret_packets = sum;
        return r;
}
