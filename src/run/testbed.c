/* Builds the testbed with libnl-route: a veth from each node's namespace to the bridge, and addresses. Links
 * and switch ports have a rate and a finite buffer, like those of a real switch. */
#include "run/testbed.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/if_addr.h>
#include <linux/if_ether.h>
#include <linux/if_link.h>
#include <linux/pkt_cls.h>
#include <linux/pkt_sched.h>
#include <linux/rtnetlink.h>
#include <linux/tc_act/tc_mirred.h>
#include <net/if.h>
#include <netlink/route/addr.h>
#include <netlink/route/link.h>
#include <netlink/route/link/bridge.h>
#include <netlink/route/link/veth.h>
#include <netlink/socket.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "base/util.h"
#include "conf/scenario.h"
#include "run/exact_port.h"
#include "shape/kernel/device.h"
#include "shape/kernel/socket.h"
#include "shape/model/kind.h"

struct wire_counts {
        uint64_t dropped_packets; /* for lack of room in the port's buffer */
        /* Packets that the testbed lost although neither link nor port drops them: a queue that only delays
         * packets, or a processor's backlog, was full, or a device did not pass a packet on. */
        uint64_t lost_packets;
};

/* The burst of a link compensates for timers that fire late by at most this time. */
#define BURST_LEAST_BYTES 16384u
#define BURST_NS (100 * NS_PER_US)
/* Size of a link's queue: the link drops no packet that a sender has queued. */
#define WIRE_LIMIT_BYTES (16u << 20)
#define PORT_NAME "port%u"
#define WIRE_NAME "wire%u"
/* Behind an exact port, the TBF only delays. At full load, it fills up if its processor does not run for this
 * long. */
#define DELAY_NS (500 * NS_PER_MS)
#define DELAY_MOST_BYTES (UINT64_C(1) << 30)
/* clsact accepts filters in each direction. */
#define CLSACT_HANDLE TC_ID(0xffff, 0)
#define CLSACT_INGRESS TC_ID(0xffff, TC_H_MIN_INGRESS)
#define CLSACT_EGRESS TC_ID(0xffff, TC_H_MIN_EGRESS)

#define NAME_MAX_BYTES 64
#define BRIDGE "switch"
#define DEVICE "eth0"

struct testbed {
        const struct scenario *scenario;
        int *namespaces; /* namespaces of the nodes, followed by that of the switch */
        size_t n;
        int home;
        struct nl_sock *links;       /* of the switch's namespace */
        struct tc_socket *at_switch; /* NULL: links have no rate limit */
        struct exact_port **ports;   /* one per node; NULL: a timer decides */
        bool is_exact;               /* true if all ports are */
        int stamps;                  /* a socket that makes the kernel stamp arriving packets; -1: none */
        uint64_t lost_before;        /* packets lost while the testbed was built */
};

static void cleanup_socket(struct nl_sock **s)
{
        nl_socket_free(*s);
}

static void cleanup_link(struct rtnl_link **l)
{
        rtnl_link_put(*l);
}

static int change(struct tc_socket *at, int ifindex, const struct tc_object *o)
{
        struct tc_change c = {TC_ADD, o, 0};
        struct tc_ack ack;
        int r = tc_socket_change(at, ifindex, &c, 1, &ack);

        if (r >= 0 && ack.error < 0)
                return log_error_errno(ack.error, "lab: cannot set %s: %m: %s", o->kind_name, ack.text);
        return r < 0 ? log_error_errno(r, "lab: netlink failed: %m") : 0;
}

static int set_tbf(struct tc_socket *at, int ifindex, uint64_t rate_bps, uint64_t burst_bytes,
                   uint64_t limit_bytes)
{
        struct tc_object o = {.type = TC_QDISC,
                              .handle = TC_ID(1, 0),
                              .parent = TC_ROOT,
                              .kind_name = "tbf",
                              .kind = &tc_kind_tbf};
        uint64_t rate_bytes = tc_rate_bytes(rate_bps);

        o.params.tbf = (struct tc_tbf){
                .rate_bytes = rate_bytes,
                .burst_ticks = tc_ticks_of_bytes(burst_bytes, rate_bytes),
                .burst_bytes = (uint32_t)burst_bytes,
                .limit_bytes = (uint32_t)limit_bytes,
        };
        return change(at, ifindex, &o);
}

static int make_ifb(struct nl_sock *s, const char *name, unsigned mtu_bytes)
{
        _cleanup_(cleanup_link) struct rtnl_link *l = rtnl_link_alloc();
        int r = l ? rtnl_link_set_type(l, "ifb") : -NLE_NOMEM;

        if (r >= 0) {
                rtnl_link_set_name(l, name);
                rtnl_link_set_mtu(l, mtu_bytes);
                rtnl_link_set_flags(l, IFF_UP);
                r = rtnl_link_add(s, l, NLM_F_CREATE | NLM_F_EXCL);
        }
        return r < 0 ? log_error_errno(EIO, "lab: cannot make ifb device %s: %s", name, nl_geterror(r)) : 0;
}

/* if_nametoindex() would use the thread's namespace, not the socket's. */
static int link_index(struct nl_sock *s, const char *device)
{
        _cleanup_(cleanup_link) struct rtnl_link *link = NULL;

        return rtnl_link_get_kernel(s, 0, device, &link) < 0 ? -ENODEV : rtnl_link_get_ifindex(link);
}

/* Redirects all packets that arrive at a device to another device. */
static int redirect(struct tc_socket *at, int from, int to)
{
        struct tc_object filter = {.type = TC_FILTER,
                                   .parent = CLSACT_INGRESS,
                                   .priority = 2, /* after the stamp program */
                                   .protocol = ETH_P_ALL,
                                   .kind_name = "u32"};
        struct tc_mirred mirred = {
                .action = TC_ACT_STOLEN, .eaction = TCA_EGRESS_REDIR, .ifindex = (uint32_t)to};
        struct {
                uint8_t selector[sizeof(struct tc_u32_sel)];
                struct tc_u32_key any;
        } match = {};
        uint8_t buffer[256] __attribute__((aligned(8))) = {};
        struct nlmsghdr *m = mnl_nlmsg_put_header(buffer);
        struct nlattr *actions, *first, *options;

        ((struct tc_u32_sel *)(void *)match.selector)->flags = TC_U32_TERMINAL;
        ((struct tc_u32_sel *)(void *)match.selector)->nkeys = 1;
        mnl_attr_put(m, TCA_U32_SEL, sizeof match, &match);
        actions = mnl_attr_nest_start(m, TCA_U32_ACT);
        first = mnl_attr_nest_start(m, 1);
        mnl_attr_put_strz(m, TCA_ACT_KIND, "mirred");
        options = mnl_attr_nest_start(m, TCA_ACT_OPTIONS);
        mnl_attr_put(m, TCA_MIRRED_PARMS, sizeof mirred, &mirred);
        mnl_attr_nest_end(m, options);
        mnl_attr_nest_end(m, first);
        mnl_attr_nest_end(m, actions);
        filter.options = mnl_nlmsg_get_payload(m);
        filter.options_bytes = mnl_nlmsg_get_payload_len(m);
        return change(at, from, &filter);
}

static int attach(struct tc_socket *at, int ifindex, uint32_t direction, int program)
{
        struct tc_object filter = {.type = TC_FILTER,
                                   .parent = direction,
                                   .priority = 1,
                                   .protocol = ETH_P_ALL,
                                   .kind_name = "bpf"};
        struct tc_change c = {TC_ADD, &filter, 0};
        uint8_t buffer[128] __attribute__((aligned(8))) = {};
        struct nlmsghdr *m = mnl_nlmsg_put_header(buffer);
        struct tc_ack ack;
        int r;

        mnl_attr_put_u32(m, TCA_BPF_FD, (uint32_t)program);
        mnl_attr_put_strz(m, TCA_BPF_NAME, "evb_port");
        mnl_attr_put_u32(m, TCA_BPF_FLAGS, TCA_BPF_FLAG_ACT_DIRECT);
        filter.options = mnl_nlmsg_get_payload(m);
        filter.options_bytes = mnl_nlmsg_get_payload_len(m);
        r = tc_socket_change(at, ifindex, &c, 1, &ack);
        return r < 0 ? r : MIN(ack.error, 0);
}

/* Attaches the programs of a port: one decides which packets to the node are dropped, and the other stamps
 * packets from the node. A refusal is not an error, because the kernel may not have cls_bpf. */
static int attach_both(struct tc_socket *at, int ifindex, const struct exact_port *port)
{
        int r = attach(at, ifindex, CLSACT_INGRESS, exact_port_stamp(port));

        return r < 0 ? r : attach(at, ifindex, CLSACT_EGRESS, exact_port_decision(port));
}

/* Returns the burst of a link's queue. */
static uint64_t burst_bytes(const struct scenario *s)
{
        uint64_t least_bytes = MAX((uint64_t)BURST_LEAST_BYTES, 2 * (scenario_mtu_bytes(s) + ETH_HLEN));

        return MAX(least_bytes, s->network.link_rate_bps / 8 * BURST_NS / NS_PER_S);
}

/* Makes the programs for one link and port; see exact_port_new() for errors. */
static int wires_new_port(struct exact_port **ret, const struct scenario *s)
{
        struct exact_port_config config = {
                .rate_bps = s->network.link_rate_bps,
                /* The buffer holds at least one frame. */
                .buffer_bytes = MAX(s->network.switch_buffer_bytes, scenario_mtu_bytes(s) + ETH_HLEN),
                .burst_bytes = burst_bytes(s),
        };

        return exact_port_new(ret, &config);
}

/* Without a program, the TBF decides. It must drop the packets that exceed rate * t + buffer, and it does so
 * if burst + limit equals the buffer. A large burst compensates for late timers; with a small one, the port
 * would be slower and drop too much. With a program, the TBF only delays packets. Its queue is longer than
 * the port's buffer, because late timers let it grow. */
static int set_port(struct tc_socket *at, int ifindex, const struct scenario *s, bool exact)
{
        uint64_t buffer_bytes = s->network.switch_buffer_bytes,
                 frame_bytes = scenario_mtu_bytes(s) + ETH_HLEN,
                 at_once_bytes = MAX(buffer_bytes / 2, frame_bytes),
                 limit_bytes = MAX(buffer_bytes, at_once_bytes + frame_bytes) - at_once_bytes;

        if (exact)
                limit_bytes +=
                        MIN(s->network.link_rate_bps / 8 * (DELAY_NS / NS_PER_MS) / 1000, DELAY_MOST_BYTES);
        return set_tbf(at, ifindex, s->network.link_rate_bps, at_once_bytes, limit_bytes);
}

/* Limits link i (port{i} in the switch's namespace) to the scenario's rate in both directions. Packets
 * from the node wait in a long queue that its socket notices (wire{i}, an ifb device). Packets to the node
 * wait in the port's buffer and are dropped when it is full: `exact` decides this, or a TBF if it is NULL or
 * if the kernel refuses the programs with *ret_refusal (a negative errno, else 0). Logs other errors. */
static int wires_set_rate(const struct testbed *testbed, unsigned i, const struct exact_port *exact,
                          int *ret_refusal)
{
        const struct scenario *s = testbed->scenario;
        struct tc_socket *at = testbed->at_switch;
        struct tc_object clsact = {
                .type = TC_QDISC, .handle = CLSACT_HANDLE, .parent = TC_H_CLSACT, .kind_name = "clsact"};
        char port[IFNAMSIZ], wire[IFNAMSIZ];
        int port_index, wire_index, r;

        snprintf(port, sizeof port, PORT_NAME, i);
        snprintf(wire, sizeof wire, WIRE_NAME, i);
        r = make_ifb(testbed->links, wire, (unsigned)scenario_mtu_bytes(s));
        if (r < 0)
                return r;
        port_index = link_index(testbed->links, port), wire_index = link_index(testbed->links, wire);
        if (port_index < 0 || wire_index < 0)
                return log_error_errno(ENODEV, "lab: cannot find %s: %m", port);
        r = change(at, port_index, &clsact);
        if (r < 0)
                return r;
        *ret_refusal = exact ? attach_both(at, port_index, exact) : 0;
        r = set_tbf(at, wire_index, s->network.link_rate_bps, burst_bytes(s), WIRE_LIMIT_BYTES);
        if (r >= 0)
                r = set_port(at, port_index, s, exact && *ret_refusal >= 0);
        return r < 0 ? r : redirect(at, port_index, wire_index);
}

/* Reads the drops of a device's root qdisc, and between the device and its peer in both directions. */
static int read_drops(const struct testbed *testbed, const char *name, uint64_t *ret_queue,
                      uint64_t *ret_device)
{
        _cleanup_(cleanup_link) struct rtnl_link *l = NULL;
        struct tc_tree tree = {};
        const struct tc_object *root;
        int r;

        if (rtnl_link_get_kernel(testbed->links, 0, name, &l) < 0)
                return -ENODEV;
        *ret_device =
                rtnl_link_get_stat(l, RTNL_LINK_RX_DROPPED) + rtnl_link_get_stat(l, RTNL_LINK_TX_DROPPED);
        r = tc_socket_dump(testbed->at_switch, rtnl_link_get_ifindex(l), false, &tree);
        if (r < 0)
                return r;
        root = tc_tree_qdisc(&tree, TC_ROOT);
        *ret_queue = root ? root->counters.drops : 0;
        tc_tree_fini(&tree);
        return 0;
}

/* Reads the counts of link i since it was made; `exact`: its program, NULL if there is none. Returns negative
 * errno. */
static int wires_read(const struct testbed *testbed, unsigned i, const struct exact_port *exact,
                      struct wire_counts *ret)
{
        struct exact_port_counts decided = {};
        uint64_t at_port = 0, at_wire = 0, between, unused;
        char port[IFNAMSIZ], wire[IFNAMSIZ];
        int r;

        snprintf(port, sizeof port, PORT_NAME, i);
        snprintf(wire, sizeof wire, WIRE_NAME, i);
        if ((r = read_drops(testbed, port, &at_port, &between)) < 0 ||
            (r = read_drops(testbed, wire, &at_wire, &unused)) < 0 ||
            (exact && (r = exact_port_read(exact, &decided)) < 0))
                return r;
        *ret = (struct wire_counts){.dropped_packets = exact ? decided.dropped_packets : at_port,
                                    .lost_packets = at_wire + (exact ? at_port : 0) + between};
        return 0;
}

/* Opens a route socket in a namespace; the calling thread returns to its own namespace. */
static int open_in(const struct testbed *testbed, int namespace, struct nl_sock **ret)
{
        struct nl_sock *s = nl_socket_alloc();
        int r;

        if (!s)
                return -ENOMEM;
        r = netns_enter(namespace);
        if (r >= 0) {
                r = nl_connect(s, NETLINK_ROUTE) < 0 ? -EIO : 0;
                if (netns_enter(testbed->home) < 0)
                        abort();
        }
        if (r < 0) {
                nl_socket_free(s);
                return r;
        }
        *ret = s;
        return 0;
}

/* Opens a socket for traffic control in the same way. */
static int open_tc_in(const struct testbed *testbed, int namespace, struct tc_socket **ret)
{
        int r = netns_enter(namespace);

        if (r >= 0) {
                r = tc_socket_new(ret);
                if (netns_enter(testbed->home) < 0)
                        abort();
        }
        return r;
}

static void name_of(const struct testbed *testbed, size_t i, char *name)
{
        const struct scenario *s = testbed->scenario;

        snprintf(name, NAME_MAX_BYTES, "evb-%d-%s", (int)getpid(),
                 i < s->n_nodes ? s->nodes[i].name : BRIDGE);
}

static int change_link(struct nl_sock *s, const char *device, unsigned mtu, bool up, int master)
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

static int add_address(struct nl_sock *s, const char *text, int device)
{
        struct nl_addr *local = NULL;
        struct rtnl_addr *a = rtnl_addr_alloc();
        int r = a ? nl_addr_parse(text, AF_UNSPEC, &local) : -NLE_NOMEM;

        if (r >= 0) {
                rtnl_addr_set_ifindex(a, device);
                rtnl_addr_set_local(a, local);
                /* Skips duplicate address detection, which takes seconds: the testbed has no duplicates. */
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
        if (rtnl_link_bridge_add(s, BRIDGE) < 0 || change_link(s, BRIDGE, mtu, true, 0) < 0 ||
            change_link(s, "lo", 0, true, 0) < 0)
                return -EIO;
        *ret_index = link_index(s, BRIDGE);
        return *ret_index < 0 ? *ret_index : 0;
}

/* With br_netfilter loaded, every frame would pass the host's firewall rules, unlike in a switch, and cost
 * time. The settings belong to the namespace and exist only with that module. */
static int bypass_firewall(const struct testbed *testbed, int namespace)
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
        if (netns_enter(testbed->home) < 0)
                abort();
        return r;
}

/* Makes one link: eth0 in the node's namespace, portN in the switch's. */
static int make_wire(const struct testbed *testbed, size_t i, int bridge)
{
        _cleanup_(cleanup_socket) struct nl_sock *at_node = NULL;
        _cleanup_(cleanup_link) struct rtnl_link *port = rtnl_link_veth_alloc();
        const struct scenario *s = testbed->scenario;
        struct rtnl_link *peer = port ? rtnl_link_veth_get_peer(port) : NULL;
        char name[32], address[80];
        int r;

        if (!peer)
                return -ENOMEM;
        snprintf(name, sizeof name, "port%zu", i + 1);
        rtnl_link_set_name(port, name);
        rtnl_link_set_mtu(port, (unsigned)scenario_mtu_bytes(s));
        rtnl_link_set_name(peer, DEVICE);
        rtnl_link_set_mtu(peer, (unsigned)scenario_mtu_bytes(s));
        rtnl_link_set_ns_fd(peer, testbed->namespaces[i]);
        r = rtnl_link_add(testbed->links, port, NLM_F_CREATE | NLM_F_EXCL);
        rtnl_link_put(peer);
        if (r < 0)
                return -EIO;
        r = change_link(testbed->links, name, 0, true, bridge);
        if (r >= 0)
                r = open_in(testbed, testbed->namespaces[i], &at_node);
        if (r < 0)
                return r;
        snprintf(address, sizeof address, "%s/%d", s->nodes[i].address,
                 strchr(s->nodes[i].address, ':') ? 64 : 16);
        if ((r = change_link(at_node, "lo", 0, true, 0)) < 0 ||
            (r = change_link(at_node, DEVICE, 0, true, 0)) < 0)
                return r;
        return add_address(at_node, address, link_index(at_node, DEVICE));
}

/* A switch counts single packets, so the device must not send super-packets. */
static int disable_segmentation(const struct testbed *testbed, int namespace, const char *device)
{
        struct tc_ack ack = {};
        int r = netns_enter(namespace);

        if (r < 0)
                return log_error_errno(r, "lab: cannot enter a namespace: %m");
        r = tc_device_segment(device, false, &ack);
        if (netns_enter(testbed->home) < 0)
                abort();
        return r < 0 ? log_error_errno(r, "lab: cannot disable segmentation offload of %s: %m: %s", device,
                                       ack.text)
                     : 0;
}

static void warn_of_timers(struct testbed *testbed, int error)
{
        if (testbed->is_exact)
                log_warning_errno(error, "lab: this kernel cannot decide by BPF which packets a port drops: "
                                         "%m; timers decide, and may drop more on a busy machine");
        testbed->is_exact = false;
}

/* Returns the program that decides for one port; NULL if a timer must decide. Warns once. */
static struct exact_port *make_port(struct testbed *testbed)
{
        const char *wish = getenv(TESTBED_PORT_ENV);
        struct exact_port *port = NULL;
        int r;

        if (!testbed->is_exact)
                return NULL;
        if (wish && strcmp(wish, "timer") == 0) {
                testbed->is_exact = false;
                return NULL;
        }
        r = wires_new_port(&port, testbed->scenario);
        if (r < 0)
                warn_of_timers(testbed, r);
        return port;
}

static int shape_wire(struct testbed *testbed, unsigned i)
{
        int refusal = 0, r;

        testbed->ports[i] = make_port(testbed);
        r = wires_set_rate(testbed, i + 1, testbed->ports[i], &refusal);
        if (refusal < 0) {
                testbed->ports[i] = exact_port_free(testbed->ports[i]);
                warn_of_timers(testbed, refusal);
        }
        return r;
}

/* If this fails, a warning is logged, because a run can continue without the counters. */
static int read_counts(const struct testbed *testbed, struct testbed_counts *ret)
{
        *ret = (struct testbed_counts){.is_exact = testbed->is_exact};
        for (unsigned i = 0; i < testbed->scenario->n_nodes; i++) {
                struct wire_counts counts;
                int r = wires_read(testbed, i + 1, testbed->ports[i], &counts);

                if (r < 0)
                        return log_warning_errno(r, "lab: cannot read the counters of port%u: %m", i + 1);
                ret->dropped_packets += counts.dropped_packets;
                ret->lost_packets += counts.lost_packets;
        }
        return 0;
}

/* While any socket requests stamps, the kernel stamps packets that a device passes on. Packets without stamps
 * count from the time when they reach the switch. */
static int enable_stamps(void)
{
        int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), on = 1;

        if (s >= 0 && setsockopt(s, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on) < 0) {
                close(s);
                s = -1;
        }
        return s;
}

/* Sets the rates and buffers of all links and ports. */
static int shape_wires(struct testbed *testbed)
{
        const struct scenario *s = testbed->scenario;
        struct testbed_counts counts;
        int r = open_tc_in(testbed, testbed->namespaces[s->n_nodes], &testbed->at_switch);

        if (r < 0)
                return log_error_errno(r, "lab: cannot open a netlink socket at the switch: %m");
        testbed->is_exact = true;
        testbed->stamps = enable_stamps();
        for (unsigned i = 0; r >= 0 && i < s->n_nodes; i++) {
                char port[32];

                snprintf(port, sizeof port, "port%u", i + 1);
                r = shape_wire(testbed, i);
                if (r >= 0)
                        r = disable_segmentation(testbed, testbed->namespaces[s->n_nodes], port);
                if (r >= 0)
                        r = disable_segmentation(testbed, testbed->namespaces[i], DEVICE);
        }
        if (r >= 0 && read_counts(testbed, &counts) >= 0)
                testbed->lost_before = counts.lost_packets;
        return r;
}

static int build(struct testbed *testbed)
{
        const struct scenario *s = testbed->scenario;
        char name[NAME_MAX_BYTES];
        int bridge, r;

        for (size_t i = 0; i <= s->n_nodes; i++) {
                name_of(testbed, i, name);
                r = netns_make(name, &testbed->namespaces[i]);
                if (r < 0)
                        return log_error_errno(
                                r, "cannot make network namespace %s: %m%s", name,
                                r == -EPERM || r == -EACCES
                                        ? "; --net lab needs root (CAP_SYS_ADMIN and CAP_NET_ADMIN)"
                                        : "");
                testbed->n++;
        }
        r = open_in(testbed, testbed->namespaces[s->n_nodes], &testbed->links);
        if (r >= 0)
                r = make_switch(testbed->links, (unsigned)scenario_mtu_bytes(s), &bridge);
        if (r >= 0)
                r = bypass_firewall(testbed, testbed->namespaces[s->n_nodes]);
        if (r < 0)
                return log_error_errno(r, "lab: cannot make the switch: %m");
        for (size_t i = 0; i < s->n_nodes; i++) {
                r = make_wire(testbed, i, bridge);
                if (r < 0)
                        return log_error_errno(r, "lab: cannot make the link to %s: %m", s->nodes[i].name);
        }
        return s->network.link_rate_bps == SCENARIO_UNLIMITED ? 0 : shape_wires(testbed);
}

static void set_addresses(struct scenario *s)
{
        bool v6 = strchr(s->network.control_group, ':');

        /* A veth adds no overhead to a packet on the wire. */
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

int testbed_new(struct testbed **ret, struct scenario *s)
{
        struct testbed *testbed;
        int r;

        netns_clean();
        set_addresses(s);
        testbed = calloc(1, sizeof *testbed);
        if (!testbed)
                return log_error_errno(ENOMEM, "lab: cannot make a testbed: %m");
        testbed->scenario = s;
        testbed->stamps = -1;
        testbed->home = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
        testbed->namespaces = calloc(s->n_nodes + 1, sizeof *testbed->namespaces);
        testbed->ports = calloc(s->n_nodes + 1, sizeof(struct exact_port *));
        r = testbed->home < 0 || !testbed->namespaces || !testbed->ports
                    ? log_error_errno(ENOMEM, "lab: cannot make a testbed: %m")
                    : build(testbed);
        if (r < 0) {
                testbed_free(testbed);
                return r;
        }
        *ret = testbed;
        return 0;
}

struct testbed *testbed_free(struct testbed *testbed)
{
        char name[NAME_MAX_BYTES];

        if (!testbed)
                return NULL;
        for (size_t i = 0; i < testbed->n; i++) {
                name_of(testbed, i, name);
                close(testbed->namespaces[i]);
                netns_remove(name);
        }
        for (size_t i = 0; testbed->ports && i < testbed->scenario->n_nodes; i++)
                exact_port_free(testbed->ports[i]);
        free(testbed->ports);
        tc_socket_free(testbed->at_switch);
        nl_socket_free(testbed->links);
        if (testbed->home >= 0)
                close(testbed->home);
        if (testbed->stamps >= 0)
                close(testbed->stamps);
        free(testbed->namespaces);
        free(testbed);
        return NULL;
}

int testbed_node_namespace(const struct testbed *testbed, const char *name)
{
        for (size_t i = 0; i < testbed->scenario->n_nodes; i++) {
                if (strcmp(testbed->scenario->nodes[i].name, name) == 0)
                        return testbed->namespaces[i];
        }
        return -1;
}

int testbed_read_counts(const struct testbed *testbed, struct testbed_counts *ret)
{
        struct testbed_counts counts;
        int r = testbed->at_switch ? read_counts(testbed, &counts) : -ENODATA;

        if (r < 0)
                return r;
        counts.lost_packets -= MIN(testbed->lost_before, counts.lost_packets);
        if (counts.lost_packets > 0)
                log_warning("lab: the testbed itself lost %" PRIu64
                            " packets, which links and ports would have carried; use a less busy machine, or "
                            "a lower network.link-rate",
                            counts.lost_packets);
        *ret = counts;
        return 0;
}

const char *testbed_port_name(const struct testbed_counts *counts)
{
        return counts->is_exact ? "exact" : "timer";
}
