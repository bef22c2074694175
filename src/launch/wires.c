/* Sets rates and buffers of links and ports with TBF; traffic from a node passes an ifb device first. */
#include "wires.h"

#include <errno.h>
#include <linux/if_ether.h>
#include <linux/if_link.h>
#include <linux/pkt_cls.h>
#include <linux/rtnetlink.h>
#include <linux/tc_act/tc_mirred.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>

#include "evb/base/log.h"
#include "evb/base/util.h"
#include "evb/conf/scenario.h"
#include "evb/tc-model/kind.h"
#include "evb/tc-model/units.h"
#include "evb/tc/socket.h"

/* The burst of a link compensates for timers that fire late by at most this time. */
#define BURST_LEAST_BYTES 16384u
#define BURST_NS (100 * NS_PER_US)
/* A link drops nothing that a sender has queued. */
#define WIRE_LIMIT_BYTES (16u << 20)
#define INGRESS_PARENT 0xfffffff1u
#define INGRESS_HANDLE 0xffff0000u

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
        struct tc_object ingress = {
                .type = TC_QDISC, .handle = INGRESS_HANDLE, .parent = INGRESS_PARENT, .kind_name = "ingress"};
        struct tc_object filter = {.type = TC_FILTER,
                                   .parent = INGRESS_HANDLE,
                                   .priority = 1,
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
        int r = change(at, from, &ingress);

        if (r < 0)
                return r;
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

/* if_nametoindex() would ask the calling thread's namespace, not the socket's. */
static int take_index(const struct nlmsghdr *m, void *ctx)
{
        struct ifinfomsg i;

        memcpy(&i, mnl_nlmsg_get_payload(m), sizeof i);
        *(int *)ctx = i.ifi_index;
        return 0;
}

static int index_of(struct tc_socket *at, const char *name)
{
        uint8_t buffer[128] __attribute__((aligned(8))) = {};
        struct nlmsghdr *m = mnl_nlmsg_put_header(buffer);
        struct tc_ack ack;
        int index = 0, r;

        mnl_nlmsg_put_extra_header(m, sizeof(struct ifinfomsg));
        m->nlmsg_type = RTM_GETLINK;
        m->nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK;
        mnl_attr_put_strz(m, IFLA_IFNAME, name);
        r = tc_socket_ask(at, m, take_index, &index, &ack);
        return r < 0 ? r : index;
}

/* A buffer of S bytes drops what exceeds rate * t + S, and so does TBF with any burst + limit = S. A large
 * burst compensates for late timers; with a small burst the port would be slower and drop too much. */
static int set_port(struct tc_socket *at, int ifindex, const struct scenario *s)
{
        uint64_t buffer_bytes = s->network.switch_buffer_bytes, frame_bytes = s->network.mtu_bytes + ETH_HLEN;
        uint64_t burst_bytes = MAX(buffer_bytes / 2, frame_bytes);

        return set_tbf(at, ifindex, s->network.link_rate_bps, burst_bytes,
                       MAX(buffer_bytes, burst_bytes + frame_bytes) - burst_bytes);
}

int wires_set_rate(struct tc_socket *at, const struct scenario *s, unsigned i)
{
        uint64_t rate_bps = s->network.link_rate_bps,
                 burst_bytes = MAX((uint64_t)BURST_LEAST_BYTES, 2 * (s->network.mtu_bytes + ETH_HLEN));
        char port[IFNAMSIZ], wire[IFNAMSIZ];
        int port_index, wire_index, r;

        burst_bytes = MAX(burst_bytes, rate_bps / 8 * BURST_NS / NS_PER_S);
        snprintf(port, sizeof port, "port%u", i);
        snprintf(wire, sizeof wire, "wire%u", i);
        r = make_ifb(at, wire, (uint32_t)s->network.mtu_bytes);
        if (r < 0)
                return r;
        port_index = index_of(at, port), wire_index = index_of(at, wire);
        if (port_index < 0 || wire_index < 0)
                return log_error_errno(ENODEV, "lab: cannot find %s: %m", port);
        r = set_tbf(at, wire_index, rate_bps, burst_bytes, WIRE_LIMIT_BYTES);
        if (r >= 0)
                r = set_port(at, port_index, s);
        return r < 0 ? r : redirect(at, port_index, wire_index);
}

int wires_read_drops(struct tc_socket *at, unsigned i, uint64_t *ret_packets)
{
        struct tc_tree tree = {};
        char port[IFNAMSIZ];
        const struct tc_object *root;
        int index, r;

        snprintf(port, sizeof port, "port%u", i);
        index = index_of(at, port);
        r = index < 0 ? index : tc_socket_dump(at, index, false, &tree);
        if (r < 0)
                return r;
        root = tc_tree_qdisc(&tree, TC_ROOT);
        *ret_packets = root ? root->counters.drops : 0;
        tc_tree_fini(&tree);
        return 0;
}
