/* Sends ethtool requests over generic netlink (Documentation/networking/ethtool-netlink.rst). */
#include "ethtool.h"

#include <errno.h>
#include <linux/ethtool_netlink.h>
#include <linux/genetlink.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "base/util.h"

void ethtool_close(struct ethtool *a)
{
        if (a->mnl)
                mnl_socket_close(a->mnl);
}

static int open_generic(struct ethtool *a)
{
        struct timeval patience = {.tv_sec = 10};
        int on = 1;

        a->mnl = mnl_socket_open2(NETLINK_GENERIC, SOCK_CLOEXEC);
        if (!a->mnl || mnl_socket_bind(a->mnl, 0, MNL_SOCKET_AUTOPID) < 0)
                return -errno;
        (void)mnl_socket_setsockopt(a->mnl, NETLINK_EXT_ACK, &on, sizeof on);
        (void)mnl_socket_setsockopt(a->mnl, NETLINK_CAP_ACK, &on, sizeof on);
        (void)setsockopt(mnl_socket_get_fd(a->mnl), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
        return 0;
}

static struct nlmsghdr *begin(struct ethtool *a, uint16_t family, uint8_t command, uint16_t flags)
{
        struct nlmsghdr *m = mnl_nlmsg_put_header(a->buffer);
        struct genlmsghdr *g = mnl_nlmsg_put_extra_header(m, sizeof *g);

        m->nlmsg_type = family;
        m->nlmsg_flags = (uint16_t)(NLM_F_REQUEST | NLM_F_ACK | flags);
        m->nlmsg_seq = ++a->sequence;
        g->cmd = command;
        g->version = 1;
        return m;
}

static void read_text(struct ethtool *a, const struct nlmsghdr *m)
{
        const struct nlattr *t;

        if (!a->ack || !(m->nlmsg_flags & NLM_F_ACK_TLVS) || !(m->nlmsg_flags & NLM_F_CAPPED))
                return;
        mnl_attr_for_each(t, m, sizeof(struct nlmsgerr))
        {
                size_t n = MIN((size_t)mnl_attr_get_payload_len(t), sizeof a->ack->text - 1);

                if (mnl_attr_get_type(t) != NLMSGERR_ATTR_MSG)
                        continue;
                memcpy(a->ack->text, mnl_attr_get_payload(t), n);
                a->ack->text[n] = '\0';
        }
}

int ethtool_ask(struct ethtool *a, const struct nlmsghdr *m,
                void (*answer)(const struct nlmsghdr *m, void *ctx), void *ctx)
{
        uint32_t sequence = m->nlmsg_seq;

        if (mnl_socket_sendto(a->mnl, m, m->nlmsg_len) < 0)
                return -errno;
        for (;;) {
                ssize_t n = mnl_socket_recvfrom(a->mnl, a->buffer, sizeof a->buffer);
                int left = (int)n;

                if (n < 0)
                        return -errno;
                for (const struct nlmsghdr *in = (void *)a->buffer; mnl_nlmsg_ok(in, left);
                     in = mnl_nlmsg_next(in, &left)) {
                        int32_t error;

                        if (in->nlmsg_seq != sequence)
                                continue;
                        if (in->nlmsg_type != NLMSG_ERROR) {
                                if (answer)
                                        answer(in, ctx);
                                continue;
                        }
                        if (mnl_nlmsg_get_payload_len(in) < sizeof(struct nlmsgerr))
                                return -EBADMSG;
                        memcpy(&error, mnl_nlmsg_get_payload(in), sizeof error);
                        if (error < 0)
                                read_text(a, in);
                        return error;
                }
        }
}

static void read_family(const struct nlmsghdr *m, void *ctx)
{
        uint16_t *family = ctx;
        const struct nlattr *a;

        mnl_attr_for_each(a, m, sizeof(struct genlmsghdr))
        {
                if (mnl_attr_get_type(a) == CTRL_ATTR_FAMILY_ID &&
                    mnl_attr_get_payload_len(a) >= sizeof *family)
                        *family = mnl_attr_get_u16(a);
        }
}

static int find_family(struct ethtool *a, uint16_t *ret)
{
        struct nlmsghdr *m = begin(a, GENL_ID_CTRL, CTRL_CMD_GETFAMILY, 0);
        int r;

        mnl_attr_put_strz(m, CTRL_ATTR_FAMILY_NAME, ETHTOOL_GENL_NAME);
        r = ethtool_ask(a, m, read_family, ret);
        return r < 0 ? r : *ret == 0 ? -EOPNOTSUPP : 0;
}

int ethtool_open(struct ethtool *a, struct tc_ack *ack)
{
        int r;

        *a = (struct ethtool){.ack = ack};
        r = open_generic(a);
        if (r >= 0)
                r = find_family(a, &a->family);
        return r == -ENOENT ? -EOPNOTSUPP : r;
}

struct nlmsghdr *ethtool_begin(struct ethtool *a, uint8_t command, uint16_t header_attribute,
                               const char *device)
{
        struct nlmsghdr *m = begin(a, a->family, command, 0);
        struct nlattr *header = mnl_attr_nest_start(m, header_attribute);

        mnl_attr_put_strz(m, ETHTOOL_A_HEADER_DEV_NAME, device);
        mnl_attr_nest_end(m, header);
        return m;
}
