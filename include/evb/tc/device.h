/* A network device: what the plan needs to know of it, and the settings of publication B (MTU, interrupt
 * coalescing), set, read back and put back. */
#pragma once

#include <net/if.h>
#include <stdbool.h>
#include <stdint.h>

#include "evb/tc/socket.h"

struct tc_device {
        char name[IF_NAMESIZE];
        int ifindex;
        uint32_t mtu_bytes;
        uint64_t speed_bps;          /* as the driver says; 0: it does not */
        uint32_t super_packet_bytes; /* the largest that segmentation offload makes; 0: it is off */
        uint32_t queues;             /* for transmission */
};

/* -ENODEV: no such device. */
int tc_device_read(struct tc_device *ret, const char *name);
/* The device that has an address; -ENODEV: none has. */
int tc_device_of_address(const char *address, char name[static IF_NAMESIZE]);

/* Switches segmentation offload of a device of the calling thread's namespace: off, it is handed no
 * super-packets, of TCP or of UDP. *ack has the kernel's words. */
int tc_device_segment(const char *device, bool on, struct tc_ack *ack);

/* Whether IPv6 is enabled there, so that the device has IPv6 addresses, or may get some. */
bool tc_device_has_ipv6(const char *device);

/* TC_UNCHANGED: left as it is; in what was read: not to be had. */
#define TC_UNCHANGED UINT32_MAX
struct tc_tuning {
        uint32_t mtu_bytes;
        uint32_t rx_usecs, rx_frames, tx_usecs, tx_frames; /* interrupt coalescing */
};

#define TC_TUNING_UNCHANGED                                                                                  \
        ((struct tc_tuning){TC_UNCHANGED, TC_UNCHANGED, TC_UNCHANGED, TC_UNCHANGED, TC_UNCHANGED})

bool tc_tuning_is_unchanged(const struct tc_tuning *t);
/* Of `now`, what `want` asks for and `previous` does not know yet goes there. */
void tc_tuning_remember(struct tc_tuning *previous, const struct tc_tuning *now,
                        const struct tc_tuning *want);
/* Nothing of `want` is otherwise in `now`. */
bool tc_tuning_is_so(const struct tc_tuning *want, const struct tc_tuning *now);
/* What the device has. Where it knows no coalescing, that stays TC_UNCHANGED. */
int tc_tuning_read(const char *device, struct tc_tuning *ret);
/* Sets what is asked for, and reads back whether it is so; *previous (if not NULL) is what was there of it.
 * Where it fails nothing is changed, and *ack has the kernel's text. -EBADE: the device took it, but has
 * something else. */
int tc_tuning_write(struct tc_socket *s, const char *device, const struct tc_tuning *want,
                    struct tc_tuning *previous, struct tc_ack *ack);
