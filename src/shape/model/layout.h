/* Makes the tree for a plan, and finds the destinations of an installed tree. Pure.
 *
 *   e7b:  root (htb or cbq)
 *   `- e7b:1     the link's rate
 *      |- e7b:2     control messages, highest priority     `- 2: bfifo
 *      |- e7b:3     traffic to unknown destinations        `- 3: fq_codel or bfifo
 *      |- e7b:1001  the first destination                  `- 1001: tbf (bfifo if HTB itself shapes)
 *      `- e7b:1002  the second ...
 *   If the plan distinguishes data from other packets (HTB only), each destination's class has two below it:
 *      |- e7b:1001  the first destination, with its rate as the ceiling
 *      |   |- e7b:2001  its data                            `- 2001: tbf or bfifo
 *      |   `- e7b:3001  other packets to it, first          `- 3001: tbf or bfifo, short
 *      |                                                        `- 4001: fq_codel, if the kernel has it
 *   For EDT: e7b: is fq, e7b:1001 ... are of the kind edt, and one filter at the egress runs the program,
 * which lets control messages and all other traffic pass. Its handle, e7b, is not that of another program's
 * filter with the same priority.
 *   If the device offloads HTB, which then does not classify: the classes of HTB, and instead of filters at
 * e7b:, the program of EDT, with a class e7b:5001 ... of the kind edt for each destination, which names its
 * class e7b:1001 ...
 *   A TBF below HTB has the planned rate; the ceiling of its class is a reduced one. CBQ has no ceilings:
 * there the TBF has the reduced rate. u32 filters at e7b:, by priority: 12, 13 control by port; 16 to 19
 * TCP to a destination if that is data or if data are UDP; 21 IPv6 neighbour discovery and 34 ARP, both to
 * the class of control messages, if there is one; 22, 23 destinations in a list; 32, 33 destinations by hash,
 * 18, 19 also (odd: IPv6). They match the version in the IP header, not the protocol of a VLAN tag. */
#pragma once

#include "shape/model/object.h"
#include "shape/model/plan.h"

/* Handle of evb's root. It is also stored as a mark in HTB's rate2quantum and CBQ's off-time, which have no
 * effect there. */
#define TC_OUR_MAJOR 0xe7bu
#define TC_OUR_ROOT TC_ID(TC_OUR_MAJOR, 0)
#define TC_LINK_CLASS TC_ID(TC_OUR_MAJOR, 1)
#define TC_CONTROL_CLASS TC_ID(TC_OUR_MAJOR, 2)
#define TC_OTHER_CLASS TC_ID(TC_OUR_MAJOR, 3)
/* Up to this number of destinations, a list of filters is as fast as a hash table (4.4 ns per filter). */
#define TC_LINEAR_MAX 64

/* The owner of a device's root. */
enum tc_owner {
        TC_OWNER_KERNEL, /* no root, or the default one */
        TC_OWNER_OURS,
        TC_OWNER_CLASSLESS, /* of another program; can be restored exactly */
        TC_OWNER_FOREIGN, /* of another program, with classes or not restorable; replaced only with `force` */
};

enum tc_owner tc_layout_owner(const struct tc_tree *have);
/* Returns a qdisc that cannot be restored exactly, because the kernel does not report all of it. NULL: there
 * is none. */
const struct tc_object *tc_layout_incomplete(const struct tc_tree *have);

/* Makes the tree for a plan, sorted. Destinations in `have` (sorted; may be empty) keep their classes and
 * thus their queued packets. The caller frees the tree. */
int tc_layout_make(struct tc_tree *ret, const struct tc_plan *plan, const struct tc_tree *have);

/* Returns the backend of an installed tree; TC_BACKEND_NONE: it is not a tree of evb. */
enum tc_backend tc_layout_backend(const struct tc_tree *have);
bool tc_layout_is_offloaded(const struct tc_tree *have);
/* Whether other traffic has fq_codel in an installed tree. */
enum tc_fair tc_layout_fair(const struct tc_tree *have);
const char *tc_backend_name(enum tc_backend backend);
/* The destination of a filter or of a class of EDT, and the class of its data (may be NULL). False: the
 * object has another purpose. */
bool tc_layout_address(const struct tc_object *object, struct tc_address *ret, uint32_t *ret_classid);
/* Whether the class has the packets to a destination that are not data. */
bool tc_layout_is_apart(uint32_t classid);
