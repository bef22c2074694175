/* Reads drop counters of a device (RFC 2863, ifInDiscards and ifInErrors) and of its root qdisc. */
#include "drops.h"

#include <ifaddrs.h>
#include <linux/if_link.h>
#include <linux/if_packet.h>
#include <stdio.h>
#include <string.h>

#include "base/util.h"
#include "shape/kernel/socket.h"

static bool read_device(struct device_drops *d)
{
        struct ifaddrs *all, *i;
        bool found = false;

        if (getifaddrs(&all) < 0)
                return false;
        for (i = all; i && !found; i = i->ifa_next) {
                struct rtnl_link_stats s;

                if (!i->ifa_addr || i->ifa_addr->sa_family != AF_PACKET || !i->ifa_data ||
                    strcmp(i->ifa_name, d->device) != 0)
                        continue;
                memcpy(&s, i->ifa_data, sizeof s);
                d->received_packets = (uint64_t)s.rx_dropped + s.rx_missed_errors + s.rx_fifo_errors;
                found = true;
        }
        freeifaddrs(all);
        return found;
}

/* The kind of packets' qdisc: a device with several queues has one of each below its root. */
static const char *kind_of(const struct tc_tree *tree, const struct tc_object *root)
{
        const char *kind = NULL;

        if (!root)
                return "noqueue";
        for (size_t i = 0; i < tree->n && strcmp(root->kind_name, "mq") == 0; i++) {
                const struct tc_object *o = &tree->objects[i];

                if (o->type != TC_QDISC || o->parent == TC_ROOT ||
                    TC_MAJOR(o->parent) != TC_MAJOR(root->handle))
                        continue;
                if (kind && strcmp(kind, o->kind_name) != 0)
                        return root->kind_name;
                kind = o->kind_name;
        }
        return kind ?: root->kind_name;
}

static bool has_kind(const struct tc_tree *tree, const char *kind)
{
        for (size_t i = 0; i < tree->n; i++) {
                if (tree->objects[i].type == TC_QDISC && strcmp(tree->objects[i].kind_name, kind) == 0)
                        return true;
        }
        return false;
}

static void read_qdisc(struct device_drops *d, unsigned index)
{
        struct tc_socket *s = NULL;
        struct tc_tree tree = {};
        const struct tc_object *root;

        if (tc_socket_new(&s) < 0)
                return;
        if (tc_socket_dump(s, (int)index, false, &tree) >= 0) {
                root = tc_tree_qdisc(&tree, TC_ROOT);
                d->qdisc_known = true;
                snprintf(d->qdisc, sizeof d->qdisc, "%s", kind_of(&tree, root));
                d->has_etf = has_kind(&tree, "etf");
                d->qdisc_packets = root && root->counters.known ? root->counters.drops : 0;
        }
        tc_tree_fini(&tree);
        tc_socket_free(s);
}

void drops_read(struct device_drops *ret, const struct net_address *local)
{
        unsigned index = net_address_device(local);

        *ret = (struct device_drops){};
        if (index == 0 || !if_indextoname(index, ret->device))
                return;
        ret->known = read_device(ret);
        read_qdisc(ret, index);
}
