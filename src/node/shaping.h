/* The shaping of a ROS's own traffic: installed when the ROS starts, adapted as SFIs join and leave, checked
 * for changes by other programs, and removed at the end. After the start, a separate thread calls the kernel,
 * so that the ROS's loop never waits for netlink. The loop's thread calls the functions below. */
#pragma once

#include "base/error.h"
#include "core/ros.h"
#include "node_internal.h"

struct shaping;

/* Installs the tree before it returns. *ret is NULL if the scenario requests no shaping, or if shaping fails
 * and qos.backend is optional. Errors (-EPERM, -EOPNOTSUPP and others) are logged. */
int shaping_new(struct shaping **ret, struct node *n);
/* Removes the installed tree and restores the earlier settings. */
struct shaping *shaping_free(struct shaping *s);

/* For the time between two runs of a process: the tree stays installed, but is not watched. shaping_go_on()
 * continues for the next core, whose counts begin at 0. */
void shaping_rest(struct shaping *s);
int shaping_go_on(struct shaping *s);

/* Posts the state of the ROS's core (SFIs, ROSs and losses) without waiting. The call is cheap if nothing
 * changed. */
void shaping_turn(struct shaping *s, const struct ros *core);
/* -EINVAL: no plan with the rates of `to` is possible for this device. */
int shaping_check(const struct shaping *s, const struct scenario *to, struct error *error);
/* Posts the rates of `to`, if they differ. The kernel may still refuse the plan later, which is logged. Has
 * no effect if nothing is shaped. */
void shaping_change(struct shaping *s, const struct scenario *to);
/* False: nothing is shaped, either because of the configuration or because the node continues without
 * shaping. */
bool shaping_is_active(const struct shaping *s);
/* Total number of packets to an SFI that the shaping has dropped. */
uint64_t shaping_dropped(const struct shaping *s, unsigned sfi);
/* Waits briefly until the node's counters include the kernel's, for the final report. */
void shaping_settle(struct shaping *s);
/* Maximum size of a super-packet for the kernel; 0: no limit. */
size_t shaping_super_packet_bytes(const struct shaping *s);
/* The rate of each TCP connection on the wire, as the plan counts it, which the kernel paces
 * (qos.backend = socket), and the bytes on the wire that the plan adds to each packet; 0: none. */
uint64_t shaping_pace_bps(const struct shaping *s);
uint32_t shaping_overhead_bytes(const struct shaping *s);
/* Whether the traffic is unshaped although qos.backend is not optional, because another program changed the
 * tree and the repair failed. */
bool shaping_fell_short(const struct shaping *s);
