/* Reads the facts of a device and what its port counts, and enables or disables segmentation offload, which
 * passes super-packets to it. Uses rtnetlink, and ethtool over generic netlink, in the namespace of the
 * calling thread. */
#include "shape/kernel/device.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <libmnl/libmnl.h>
#include <linux/dcbnl.h>
#include <linux/ethtool.h>
#include <linux/ethtool_netlink.h>
#include <linux/genetlink.h>
#include <linux/rtnetlink.h>
#include <linux/sockios.h>
#include <netlink/route/link.h>
#include <netlink/socket.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "base/quantity.h"
#include "base/util.h"

/* Maximum depth of stacked links, such as a VLAN on a bond of ports. */
#define STACK_MAX 4

static bool ask_ethtool(int fd, const char *name, void *command)
{
        struct ifreq r = {.ifr_data = command};

        strncpy(r.ifr_name, name, sizeof r.ifr_name - 1);
        return ioctl(fd, SIOCETHTOOL, &r) == 0;
}

static uint64_t read_speed(int fd, const char *name)
{
        struct ethtool_cmd c = {.cmd = ETHTOOL_GSET};
        /* ethtool_cmd_speed() would shift an unknown speed out of an int. */
        uint32_t mbps = ask_ethtool(fd, name, &c) ? (uint32_t)c.speed_hi << 16 | c.speed : 0;

        return mbps == (uint32_t)SPEED_UNKNOWN ? 0 : mbps * UINT64_C(1000000);
}

static bool has_offload(int fd, const char *name)
{
        struct ethtool_value v = {.cmd = ETHTOOL_GGSO};

        return ask_ethtool(fd, name, &v) && v.data != 0;
}

/* Whether the link, or one below it in the stack, is hardware: the kernel names a kind for all others. The
 * other end of a veth, and a link of another namespace, are not below it. */
static bool is_physical(struct nl_cache *links, int ifindex, int depth)
{
        struct rtnl_link *l = rtnl_link_get(links, ifindex);
        const char *kind = l ? rtnl_link_get_type(l) : NULL;
        bool physical = l && !kind;
        int32_t elsewhere;

        if (kind && depth > 0 && strcmp(kind, "veth") != 0 && rtnl_link_get_link_netnsid(l, &elsewhere) < 0)
                physical = is_physical(links, rtnl_link_get_link(l), depth - 1);
        for (struct nl_object *o = nl_cache_get_first(links); o && kind && depth > 0 && !physical;
             o = nl_cache_get_next(o)) {
                struct rtnl_link *port = (struct rtnl_link *)o;

                if (rtnl_link_get_master(port) == ifindex)
                        physical = is_physical(links, rtnl_link_get_ifindex(port), depth - 1);
        }
        rtnl_link_put(l);
        return physical;
}

static void read_link(struct tc_device *d, struct nl_cache *links, struct rtnl_link *l)
{
        unsigned flags = rtnl_link_get_flags(l);

        /* The kernel sets IFF_RUNNING in a work item, up to a second after the carrier came. */
        d->up = (flags & IFF_UP) && rtnl_link_get_carrier(l);
        d->mtu_bytes = rtnl_link_get_mtu(l);
        d->queues = rtnl_link_get_num_tx_queues(l);
        (void)rtnl_link_get_gso_max_size(l, &d->super_packet_bytes);
        d->missed = rtnl_link_get_stat(l, RTNL_LINK_RX_MISSED_ERR);
        d->is_virtual = !is_physical(links, d->ifindex, STACK_MAX);
}

static int ask_link(struct tc_device *d)
{
        struct nl_sock *s = nl_socket_alloc();
        struct nl_cache *links = NULL;
        struct rtnl_link *l = NULL;
        int r = -EPROTONOSUPPORT;

        if (s && nl_connect(s, NETLINK_ROUTE) >= 0 && rtnl_link_alloc_cache(s, AF_UNSPEC, &links) >= 0) {
                l = rtnl_link_get(links, d->ifindex);
                r = l ? 0 : -ENODEV;
        }
        if (l)
                read_link(d, links, l);
        rtnl_link_put(l);
        nl_cache_free(links);
        nl_socket_free(s);
        return r;
}

int tc_device_read(struct tc_device *ret, const char *name)
{
        _cleanup_close_ int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        struct tc_device d = {.ifindex = (int)if_nametoindex(name)};
        int r;

        if (d.ifindex == 0 || strlen(name) >= sizeof d.name)
                return -ENODEV;
        if (fd < 0)
                return -errno;
        strcpy(d.name, name);
        r = ask_link(&d);
        if (r < 0)
                return r;
        d.speed_bps = read_speed(fd, name);
        if (!has_offload(fd, name))
                d.super_packet_bytes = 0;
        *ret = d;
        return 0;
}

static void append(struct strbuf *b, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void append(struct strbuf *b, const char *format, ...)
{
        char text[128];
        va_list args;

        va_start(args, format);
        vsnprintf(text, sizeof text, format, args);
        va_end(args);
        strbuf_add(b, "%s%s", b->length > 0 ? "; " : "", text);
}

static int record_facts(const struct tc_device *d, const struct tc_device *now, struct strbuf *what)
{
        char a[QUANTITY_TEXT_MAX], b[QUANTITY_TEXT_MAX];
        size_t before = what->length;

        if (d->speed_bps != now->speed_bps)
                append(what, "reports %s instead of %s", quantity_format_rate(now->speed_bps, a),
                       d->speed_bps > 0 ? quantity_format_rate(d->speed_bps, b) : "no rate");
        if (d->mtu_bytes != now->mtu_bytes)
                append(what, "has an MTU of %u instead of %u bytes", now->mtu_bytes, d->mtu_bytes);
        if (d->super_packet_bytes != now->super_packet_bytes)
                append(what, "takes super-packets of %u instead of %u bytes", now->super_packet_bytes,
                       d->super_packet_bytes);
        if (d->queues != now->queues)
                append(what, "has %u instead of %u transmit queues", now->queues, d->queues);
        return what->length > before ? TC_DEVICE_FACTS : 0;
}

int tc_device_follow(struct tc_device *d, struct strbuf *what)
{
        struct tc_device now = {};
        char name[IF_NAMESIZE];
        int r = if_indextoname((unsigned)d->ifindex, name) ? tc_device_read(&now, name) : -ENODEV;
        int changes = 0;

        if (r < 0)
                return r;
        /* The device was renamed again between the two calls; the next call reports it. */
        if (now.ifindex != d->ifindex)
                return 0;
        if (now.speed_bps == 0)
                now.speed_bps = d->speed_bps;
        if (strcmp(now.name, d->name) != 0) {
                append(what, "is now called %s", now.name);
                changes |= TC_DEVICE_RENAMED;
        }
        if (now.up != d->up) {
                append(what, now.up ? "is up" : "is down");
                changes |= now.up ? TC_DEVICE_UP : TC_DEVICE_DOWN;
        }
        changes |= record_facts(d, &now, what);
        *d = now;
        return changes;
}

static bool is_address(const struct sockaddr *a, int family, const void *bytes)
{
        if (!a || a->sa_family != family)
                return false;
        if (family == AF_INET)
                return memcmp(&((const struct sockaddr_in *)(const void *)a)->sin_addr, bytes, 4) == 0;
        return memcmp(&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr, bytes, 16) == 0;
}

int tc_device_of_address(const char *address, char name[static IF_NAMESIZE])
{
        struct ifaddrs *all;
        uint8_t bytes[16];
        int family = strchr(address, ':') ? AF_INET6 : AF_INET, r = -ENODEV;

        if (inet_pton(family, address, bytes) != 1)
                return -ENODEV;
        if (getifaddrs(&all) < 0)
                return -errno;
        for (const struct ifaddrs *i = all; i && r < 0; i = i->ifa_next) {
                if (!is_address(i->ifa_addr, family, bytes) || strlen(i->ifa_name) >= IF_NAMESIZE)
                        continue;
                strcpy(name, i->ifa_name);
                r = 0;
        }
        freeifaddrs(all);
        return r;
}

/* The features of NETIF_F_GSO_SOFTWARE for UDP and TCP, and the general switch. */
static const char *const segmentation[] = {"tx-generic-segmentation", "tx-tcp-segmentation",
                                           "tx-tcp-ecn-segmentation", "tx-tcp-mangleid-segmentation",
                                           "tx-tcp6-segmentation",    "tx-udp-segmentation"};

/* Starts a request in a buffer; the caller appends attributes. */
static struct nlmsghdr *begin_generic(void *buffer, uint16_t family, uint8_t command)
{
        struct nlmsghdr *m = mnl_nlmsg_put_header(buffer);
        struct genlmsghdr *g = mnl_nlmsg_put_extra_header(m, sizeof *g);

        m->nlmsg_type = family;
        m->nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK;
        g->cmd = command;
        g->version = 1;
        return m;
}

static int read_family(const struct nlmsghdr *m, void *ctx)
{
        uint16_t *family = ctx;
        const struct nlattr *a;

        mnl_attr_for_each(a, m, sizeof(struct genlmsghdr))
        {
                if (mnl_attr_get_type(a) == CTRL_ATTR_FAMILY_ID &&
                    mnl_attr_get_payload_len(a) >= sizeof *family)
                        *family = mnl_attr_get_u16(a);
        }
        return 0;
}

/* Returns the number of the kernel's ethtool family; -EOPNOTSUPP: the kernel has none. */
static int find_ethtool(struct tc_socket *s, void *buffer, struct tc_ack *ack)
{
        struct nlmsghdr *m = begin_generic(buffer, GENL_ID_CTRL, CTRL_CMD_GETFAMILY);
        uint16_t family = 0;
        int r;

        mnl_attr_put_strz(m, CTRL_ATTR_FAMILY_NAME, ETHTOOL_GENL_NAME);
        r = tc_socket_ask(s, m, read_family, &family, ack);
        return r == -ENOENT || (r >= 0 && family == 0) ? -EOPNOTSUPP : r < 0 ? r : family;
}

int tc_device_segment(const char *device, bool on, struct tc_ack *ack)
{
        uint8_t buffer[1024] __attribute__((aligned(8))) = {};
        struct nlattr *header, *wanted, *bits;
        struct tc_socket *s = NULL;
        struct nlmsghdr *m;
        int r = tc_socket_new_generic(&s);

        *ack = (struct tc_ack){};
        if (r >= 0)
                r = find_ethtool(s, buffer, ack);
        if (r < 0) {
                tc_socket_free(s);
                return r;
        }
        m = begin_generic(buffer, (uint16_t)r, ETHTOOL_MSG_FEATURES_SET);
        header = mnl_attr_nest_start(m, ETHTOOL_A_FEATURES_HEADER);
        mnl_attr_put_strz(m, ETHTOOL_A_HEADER_DEV_NAME, device);
        mnl_attr_nest_end(m, header);
        wanted = mnl_attr_nest_start(m, ETHTOOL_A_FEATURES_WANTED);
        bits = mnl_attr_nest_start(m, ETHTOOL_A_BITSET_BITS);
        for (size_t i = 0; i < ARRAY_SIZE(segmentation); i++) {
                struct nlattr *bit = mnl_attr_nest_start(m, ETHTOOL_A_BITSET_BITS_BIT);

                mnl_attr_put_strz(m, ETHTOOL_A_BITSET_BIT_NAME, segmentation[i]);
                if (on)
                        mnl_attr_put(m, ETHTOOL_A_BITSET_BIT_VALUE, 0, NULL);
                mnl_attr_nest_end(m, bit);
        }
        mnl_attr_nest_end(m, bits);
        mnl_attr_nest_end(m, wanted);
        r = tc_socket_ask(s, m, NULL, NULL, ack);
        tc_socket_free(s);
        return r;
}

static uint64_t read_count(const struct nlattr *a)
{
        return mnl_attr_get_payload_len(a) >= sizeof(uint64_t) ? mnl_attr_get_u64(a) : TC_COUNT_UNKNOWN;
}

int tc_port_decode_pause(const struct nlmsghdr *m, void *ctx)
{
        struct tc_port *p = ctx;
        const struct nlattr *a, *count;

        mnl_attr_for_each(a, m, sizeof(struct genlmsghdr))
        {
                if (mnl_attr_get_type(a) != ETHTOOL_A_PAUSE_STATS)
                        continue;
                mnl_attr_for_each_nested(count, a)
                {
                        if (mnl_attr_get_type(count) == ETHTOOL_A_PAUSE_STAT_RX_FRAMES)
                                p->pause_received = read_count(count);
                        else if (mnl_attr_get_type(count) == ETHTOOL_A_PAUSE_STAT_TX_FRAMES)
                                p->pause_sent = read_count(count);
                }
        }
        return 0;
}

int tc_port_decode_pfc(const struct nlmsghdr *m, void *ctx)
{
        struct tc_port *p = ctx;
        const struct nlattr *a, *part;
        struct ieee_pfc pfc;

        mnl_attr_for_each(a, m, sizeof(struct dcbmsg))
        {
                if (mnl_attr_get_type(a) != DCB_ATTR_IEEE)
                        continue;
                mnl_attr_for_each_nested(part, a)
                {
                        if (mnl_attr_get_type(part) != DCB_ATTR_IEEE_PFC ||
                            mnl_attr_get_payload_len(part) < sizeof pfc)
                                continue;
                        memcpy(&pfc, mnl_attr_get_payload(part), sizeof pfc);
                        p->pfc_received = p->pfc_sent = 0;
                        for (size_t i = 0; i < ARRAY_SIZE(pfc.requests); i++) {
                                p->pfc_sent += pfc.requests[i];
                                p->pfc_received += pfc.indications[i];
                        }
                }
        }
        return 0;
}

static void ask_pause(const char *device, struct tc_port *p)
{
        uint8_t buffer[256] __attribute__((aligned(8))) = {};
        struct tc_socket *s = NULL;
        struct nlattr *header;
        struct nlmsghdr *m;
        struct tc_ack ack;
        int r = tc_socket_new_generic(&s);

        if (r >= 0)
                r = find_ethtool(s, buffer, &ack);
        if (r >= 0) {
                m = begin_generic(buffer, (uint16_t)r, ETHTOOL_MSG_PAUSE_GET);
                header = mnl_attr_nest_start(m, ETHTOOL_A_PAUSE_HEADER);
                mnl_attr_put_strz(m, ETHTOOL_A_HEADER_DEV_NAME, device);
                mnl_attr_put_u32(m, ETHTOOL_A_HEADER_FLAGS, ETHTOOL_FLAG_STATS);
                mnl_attr_nest_end(m, header);
                (void)tc_socket_ask(s, m, tc_port_decode_pause, p, &ack);
        }
        tc_socket_free(s);
}

static void ask_pfc(const char *device, struct tc_port *p)
{
        uint8_t buffer[256] __attribute__((aligned(8))) = {};
        struct nlmsghdr *m = mnl_nlmsg_put_header(buffer);
        struct dcbmsg *dcb = mnl_nlmsg_put_extra_header(m, sizeof *dcb);
        struct tc_socket *s = NULL;
        struct tc_ack ack;

        m->nlmsg_type = RTM_GETDCB;
        m->nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK;
        dcb->cmd = DCB_CMD_IEEE_GET;
        mnl_attr_put_strz(m, DCB_ATTR_IFNAME, device);
        if (tc_socket_new(&s) >= 0)
                (void)tc_socket_ask(s, m, tc_port_decode_pfc, p, &ack);
        tc_socket_free(s);
}

/* A driver that does not support a count rejects the request, or omits the count. */
void tc_port_read(struct tc_port *ret, const struct tc_device *device)
{
        *ret = (struct tc_port){.pause_received = TC_COUNT_UNKNOWN,
                                .pause_sent = TC_COUNT_UNKNOWN,
                                .pfc_received = TC_COUNT_UNKNOWN,
                                .pfc_sent = TC_COUNT_UNKNOWN,
                                .missed = device->is_virtual ? TC_COUNT_UNKNOWN : device->missed};
        ask_pause(device->name, ret);
        ask_pfc(device->name, ret);
}

static uint64_t count_since(uint64_t now, uint64_t before)
{
        if (now == TC_COUNT_UNKNOWN || before == TC_COUNT_UNKNOWN)
                return TC_COUNT_UNKNOWN;
        return now >= before ? now - before : now;
}

struct tc_port tc_port_since(const struct tc_port *now, const struct tc_port *before)
{
        return (struct tc_port){
                .pause_received = count_since(now->pause_received, before->pause_received),
                .pause_sent = count_since(now->pause_sent, before->pause_sent),
                .pfc_received = count_since(now->pfc_received, before->pfc_received),
                .pfc_sent = count_since(now->pfc_sent, before->pfc_sent),
                .missed = count_since(now->missed, before->missed),
        };
}

void tc_port_describe(const struct tc_port *p, struct strbuf *what)
{
        const struct {
                uint64_t count;
                const char *verb, *things, *meaning;
        } lines[] = {
                {p->pause_received, "received", "pause frames", "the switch held this device back"},
                {p->pfc_received, "received", "PFC frames", "the switch held back single priorities"},
                {p->pause_sent, "sent", "pause frames", "it could not receive fast enough"},
                {p->pfc_sent, "sent", "PFC frames", "it could not receive single priorities fast enough"},
                {p->missed, "dropped", "received packets", "its buffers were full"},
        };

        for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
                if (lines[i].count > 0 && lines[i].count != TC_COUNT_UNKNOWN)
                        append(what, "%s %llu %s: %s", lines[i].verb, (unsigned long long)lines[i].count,
                               lines[i].things, lines[i].meaning);
        }
}

void tc_port_explain(const struct tc_port *p, const char *device, struct strbuf *to)
{
        char text[TC_PORT_TEXT_MAX] = "";
        struct strbuf what = strbuf_init(text, sizeof text);

        tc_port_describe(p, &what);
        if (text[0])
                strbuf_add(to, "%s: since its driver was loaded, the device %s", device, text);
}
