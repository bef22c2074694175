/* A network device: the facts that a plan needs. */
#pragma once

#include <net/if.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/strbuf.h"
#include "shape/kernel/socket.h"

struct tc_device {
        char name[IF_NAMESIZE];
        int ifindex;
        uint32_t mtu_bytes;
        uint64_t speed_bps;          /* as the driver reports; 0: unknown */
        uint32_t super_packet_bytes; /* largest super-packet of segmentation offload; 0: disabled */
        uint32_t queues;             /* transmit queues */
        bool is_virtual;             /* has no physical link below it, so the speed is nominal */
        uint64_t missed; /* received packets that found no buffer of the device or of its driver */
        bool up;         /* enabled by the administrator, and has a carrier */
};

/* -ENODEV: the device does not exist. */
int tc_device_read(struct tc_device *ret, const char *name);

/* What tc_device_follow() found; values may be combined. */
enum {
        TC_DEVICE_RENAMED = 1,
        TC_DEVICE_DOWN = 2,
        TC_DEVICE_UP = 4,
        TC_DEVICE_FACTS = 8, /* speed, MTU, super-packets or queues: a plan may no longer fit */
};
/* Reads the device with this number again, even if its name has changed, and appends the changes to `what`,
 * e.g. "is now called eth7; reports 1.00 Gbit/s instead of 10.0 Gbit/s". A device that is down reports no
 * speed, so *d keeps the previous speed. Returns the changes, or -ENODEV: the device no longer exists. */
int tc_device_follow(struct tc_device *d, struct strbuf *what);
/* Finds the device that has an address; -ENODEV: none. */
int tc_device_of_address(const char *address, char name[static IF_NAMESIZE]);

#define TC_COUNT_UNKNOWN UINT64_MAX
#define TC_PORT_TEXT_MAX 480u

/* What the port of a device has counted since its driver was loaded; TC_COUNT_UNKNOWN: the driver does not
 * report this count. */
struct tc_port {
        uint64_t pause_received, pause_sent; /* pause frames (IEEE 802.3, annex 31B) */
        uint64_t pfc_received, pfc_sent;     /* priority-based pause frames, of all priorities (802.1Qbb) */
        uint64_t missed;                     /* see struct tc_device */
};

void tc_port_read(struct tc_port *ret, const struct tc_device *device);
/* Appends what explains a low rate or a loss that no queue shows, e.g. "received 17 pause frames: the switch
 * held this device back"; nothing if all counts are 0 or unknown. */
void tc_port_describe(const struct tc_port *p, struct strbuf *what);
/* Appends the same as a sentence about the device, e.g. "eth1: since its driver was loaded, the device
 * received 17 …". */
void tc_port_explain(const struct tc_port *p, const char *device, struct strbuf *to);
/* Returns what was counted since `before`, or since the driver was loaded again. */
struct tc_port tc_port_since(const struct tc_port *now, const struct tc_port *before);
/* Read the answers of ethtool and DCB; `ctx` is the port. Counts that an answer does not contain remain
 * unchanged. Always return 0. */
int tc_port_decode_pause(const struct nlmsghdr *m, void *ctx);
int tc_port_decode_pfc(const struct nlmsghdr *m, void *ctx);

/* Enables or disables segmentation offload, for TCP and UDP, of a device in the calling thread's namespace.
 * *ack receives the kernel's text. */
int tc_device_segment(const char *device, bool on, struct tc_ack *ack);
