/* Makes a device that discards every packet, so that a sender can be measured without its receiver, as if
 * that were another machine: a dummy device or, where the kernel has none, an ifb device, which discards what
 * was not redirected to it (ifb_xmit() in the kernel). */
#include "path_sink.h"

#include <errno.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "base/util.h"
#include "shape/kernel/socket.h"

#define DEVICE "sink"
#define MTU 65535u
/* RFC 5737: for documentation. */
#define OWN_ADDRESS 0xC0000201u  /* 192.0.2.1 */
#define PEER_ADDRESS 0xC0000202u /* 192.0.2.2 */
#define PEER_PORT 9              /* discard, RFC 863 */

static int make_device(struct tc_socket *at, const char *kind)
{
        uint8_t buffer[256] __attribute__((aligned(8))) = {};
        struct nlmsghdr *m = mnl_nlmsg_put_header(buffer);
        struct nlattr *info;
        struct tc_ack ack;

        (void)mnl_nlmsg_put_extra_header(m, sizeof(struct ifinfomsg));
        m->nlmsg_type = RTM_NEWLINK;
        m->nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL;
        mnl_attr_put_strz(m, IFLA_IFNAME, DEVICE);
        mnl_attr_put_u32(m, IFLA_MTU, MTU);
        info = mnl_attr_nest_start(m, IFLA_LINKINFO);
        mnl_attr_put_str(m, IFLA_INFO_KIND, kind);
        mnl_attr_nest_end(m, info);
        return tc_socket_ask(at, m, NULL, NULL, &ack);
}

static int make_any_device(void)
{
        static const char *const kinds[] = {"dummy", "ifb"};
        struct tc_socket *at = NULL;
        int r = tc_socket_new(&at);

        for (size_t i = 0; r >= 0 && i < ARRAY_SIZE(kinds); i++) {
                r = make_device(at, kinds[i]);
                if (r >= 0)
                        break;
                r = i + 1 < ARRAY_SIZE(kinds) ? 0 : r;
        }
        tc_socket_free(at);
        return r;
}

/* netdevice(7). Without ARP, packets leave although nobody has the peer's address. */
static int configure(int fd)
{
        struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(OWN_ADDRESS)},
                           mask = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0xFFFFFF00u)};
        struct ifreq request = {.ifr_name = DEVICE};

        memcpy(&request.ifr_addr, &own, sizeof own);
        if (ioctl(fd, SIOCSIFADDR, &request) < 0)
                return -errno;
        memcpy(&request.ifr_addr, &mask, sizeof mask);
        if (ioctl(fd, SIOCSIFNETMASK, &request) < 0)
                return -errno;
        request.ifr_flags = IFF_UP | IFF_NOARP;
        return ioctl(fd, SIOCSIFFLAGS, &request) < 0 ? -errno : 0;
}

static int refused(const char **ret_what, const char *what, int r)
{
        *ret_what = what;
        return r;
}

int path_sink_open(const char **ret_what)
{
        struct sockaddr_in to = {
                .sin_family = AF_INET, .sin_port = htons(PEER_PORT), .sin_addr.s_addr = htonl(PEER_ADDRESS)};
        _cleanup_close_ int fd = -1;
        int r;

        if (unshare(CLONE_NEWNET) < 0)
                return refused(ret_what, "unshare of a network namespace", -errno);
        r = make_any_device();
        if (r < 0)
                return refused(ret_what, "rtnetlink: make a dummy or ifb device", r);
        fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        if (fd < 0)
                return refused(ret_what, "socket", -errno);
        r = configure(fd);
        if (r < 0)
                return refused(ret_what, "ioctl: configure the device", r);
        if (connect(fd, (struct sockaddr *)&to, sizeof to) < 0)
                return refused(ret_what, "connect", -errno);
        return take_fd(&fd);
}
