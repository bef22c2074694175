/* Sets rates of links and ports with TBF; traffic from a node passes an ifb device first. A BPF program at
 * the port decides which packets its buffer has room for; without BPF the port's TBF does. */
#include "wires.h"

#include <errno.h>
#include <linux/if_ether.h>
#include <linux/if_link.h>
#include <linux/pkt_cls.h>
#include <linux/pkt_sched.h>
#include <linux/rtnetlink.h>
#include <linux/tc_act/tc_mirred.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "conf/scenario.h"
#include "run/exact_port.h"
#include "shape/model/kind.h"
#include "shape/kernel/socket.h"

/* The burst of a link compensates for timers that fire late by at most this time. */
#define BURST_LEAST_BYTES 16384u
#define BURST_NS (100 * NS_PER_US)
/* A link drops nothing that a sender has queued. */
#define WIRE_LIMIT_BYTES (16u << 20)
#define PORT_NAME "port%u"
#define WIRE_NAME "wire%u"
/* Behind an exact port, the TBF only delays. A processor that is away for this long at full load fills it. */
#define DELAY_NS (500 * NS_PER_MS)
#define DELAY_MOST_BYTES (UINT64_C(1) << 30)
/* clsact has a place for filters in each direction. */
#define CLSACT_HANDLE TC_ID(0xffff, 0)
#define CLSACT_INGRESS TC_ID(0xffff, TC_H_MIN_INGRESS)
#define CLSACT_EGRESS TC_ID(0xffff, TC_H_MIN_EGRESS)

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

static int make_ifb(struct tc_socket *at, const char *name, uint32_t mtu_bytes)
{
        uint8_t buffer[256] __attribute__((aligned(8))) = {};
        struct nlmsghdr *m = mnl_nlmsg_put_header(buffer);
        struct ifinfomsg *i = mnl_nlmsg_put_extra_header(m, sizeof *i);
        struct nlattr *info;
        struct tc_ack ack;
        int r;

        m->nlmsg_type = RTM_NEWLINK;
        m->nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL;
        i->ifi_flags = i->ifi_change = IFF_UP;
        mnl_attr_put_strz(m, IFLA_IFNAME, name);
        mnl_attr_put_u32(m, IFLA_MTU, mtu_bytes);
        info = mnl_attr_nest_start(m, IFLA_LINKINFO);
        mnl_attr_put_str(m, IFLA_INFO_KIND, "ifb");
        mnl_attr_nest_end(m, info);
        r = tc_socket_ask(at, m, NULL, NULL, &ack);
        return r < 0 ? log_error_errno(r, "lab: cannot make ifb device %s: %m: %s", name, ack.text) : 0;
}

/* Redirects everything that arrives at a device through another one. */
static int redirect(struct tc_socket *at, int from, int to)
{
        struct tc_object filter = {.type = TC_FILTER,
                                   .parent = CLSACT_INGRESS,
                                   .priority = 2, /* after the stamp */
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

struct link {
        int index;
        uint64_t dropped_packets; /* in both directions, between a device and its peer */
};

/* if_nametoindex() would ask the calling thread's namespace, not the socket's. */
static int parse_link(const struct nlmsghdr *m, void *ctx)
{
        struct link *link = ctx;
        const struct nlattr *a;
        struct ifinfomsg i;

        memcpy(&i, mnl_nlmsg_get_payload(m), sizeof i);
        link->index = i.ifi_index;
        mnl_attr_for_each(a, m, sizeof i)
        {
                struct rtnl_link_stats64 stats = {};

                if (mnl_attr_get_type(a) != IFLA_STATS64)
                        continue;
                memcpy(&stats, mnl_attr_get_payload(a),
                       MIN(sizeof stats, (size_t)mnl_attr_get_payload_len(a)));
                link->dropped_packets = stats.rx_dropped + stats.tx_dropped;
        }
        return 0;
}

static int read_link(struct tc_socket *at, const char *name, struct link *ret)
{
        uint8_t buffer[128] __attribute__((aligned(8))) = {};
        struct nlmsghdr *m = mnl_nlmsg_put_header(buffer);
        struct tc_ack ack;

        *ret = (struct link){};
        mnl_nlmsg_put_extra_header(m, sizeof(struct ifinfomsg));
        m->nlmsg_type = RTM_GETLINK;
        m->nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK;
        mnl_attr_put_strz(m, IFLA_IFNAME, name);
        return tc_socket_ask(at, m, parse_link, ret, &ack);
}

static int index_of(struct tc_socket *at, const char *name)
{
        struct link link;
        int r = read_link(at, name, &link);

        return r < 0 ? r : link.index;
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

/* Lets programs decide which packets to the node are dropped, and stamp those from it. A refusal is not an
 * error: the kernel may have no cls_bpf. */
static int attach_both(struct tc_socket *at, int ifindex, const struct exact_port *port)
{
        int r = attach(at, ifindex, CLSACT_INGRESS, exact_port_stamp(port));

        return r < 0 ? r : attach(at, ifindex, CLSACT_EGRESS, exact_port_decision(port));
}

/* The burst of a link's queue. */
static uint64_t burst_bytes(const struct scenario *s)
{
        uint64_t least_bytes = MAX((uint64_t)BURST_LEAST_BYTES, 2 * (s->network.mtu_bytes + ETH_HLEN));

        return MAX(least_bytes, s->network.link_rate_bps / 8 * BURST_NS / NS_PER_S);
}

int wires_new_port(struct exact_port **ret, const struct scenario *s)
{
        struct exact_port_config config = {
                .rate_bps = s->network.link_rate_bps,
                /* It can hold one frame at least. */
                .buffer_bytes = MAX(s->network.switch_buffer_bytes, s->network.mtu_bytes + ETH_HLEN),
                .burst_bytes = burst_bytes(s),
        };

        return exact_port_new(ret, &config);
}

/* Without a program, TBF has to drop what exceeds rate * t + buffer, and does so with any burst + limit that
 * equal the buffer. A large burst compensates for late timers; with a small burst the port would be slower
 * and drop too much. With a program, TBF only delays, and a late timer makes its queue longer than the
 * port's. */
static int set_port(struct tc_socket *at, int ifindex, const struct scenario *s, bool exact)
{
        uint64_t buffer_bytes = s->network.switch_buffer_bytes, frame_bytes = s->network.mtu_bytes + ETH_HLEN,
                 at_once_bytes = MAX(buffer_bytes / 2, frame_bytes),
                 limit_bytes = MAX(buffer_bytes, at_once_bytes + frame_bytes) - at_once_bytes;

        if (exact)
                limit_bytes +=
                        MIN(s->network.link_rate_bps / 8 * (DELAY_NS / NS_PER_MS) / 1000, DELAY_MOST_BYTES);
        return set_tbf(at, ifindex, s->network.link_rate_bps, at_once_bytes, limit_bytes);
}

int wires_set_rate(struct tc_socket *at, const struct scenario *s, unsigned i, const struct exact_port *exact,
                   int *ret_refusal)
{
        struct tc_object clsact = {
                .type = TC_QDISC, .handle = CLSACT_HANDLE, .parent = TC_H_CLSACT, .kind_name = "clsact"};
        char port[IFNAMSIZ], wire[IFNAMSIZ];
        int port_index, wire_index, r;

        snprintf(port, sizeof port, PORT_NAME, i);
        snprintf(wire, sizeof wire, WIRE_NAME, i);
        r = make_ifb(at, wire, (uint32_t)s->network.mtu_bytes);
        if (r < 0)
                return r;
        port_index = index_of(at, port), wire_index = index_of(at, wire);
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

static int read_queue(struct tc_socket *at, int ifindex, uint64_t *ret_drops)
{
        struct tc_tree tree = {};
        const struct tc_object *root;
        int r = tc_socket_dump(at, ifindex, false, &tree);

        if (r < 0)
                return r;
        root = tc_tree_qdisc(&tree, TC_ROOT);
        *ret_drops = root ? root->counters.drops : 0;
        tc_tree_fini(&tree);
        return 0;
}

int wires_read(struct tc_socket *at, unsigned i, const struct exact_port *exact, struct wire_counts *ret)
{
        struct exact_port_counts decided = {};
        uint64_t at_port = 0, at_wire = 0;
        char port[IFNAMSIZ], wire[IFNAMSIZ];
        struct link there, wire_there;
        int r;

        snprintf(port, sizeof port, PORT_NAME, i);
        snprintf(wire, sizeof wire, WIRE_NAME, i);
        if ((r = read_link(at, port, &there)) < 0 || (r = read_link(at, wire, &wire_there)) < 0 ||
            (r = read_queue(at, there.index, &at_port)) < 0 ||
            (r = read_queue(at, wire_there.index, &at_wire)) < 0 ||
            (exact && (r = exact_port_read(exact, &decided)) < 0))
                return r;
        *ret = (struct wire_counts){.dropped_packets = exact ? decided.dropped_packets : at_port,
                                    .lost_packets = at_wire + (exact ? at_port : 0) + there.dropped_packets};
        return 0;
}
