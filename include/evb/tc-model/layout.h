/* The tree that a plan asks for, and what a tree says in return: which class is for which destination. Pure.
 *
 *   e7b:  root (htb or cbq)
 *   `- e7b:1     the link's rate
 *      |- e7b:2     control messages, ahead of all         `- 2: bfifo
 *      |- e7b:3     traffic to no known destination        `- 3: bfifo
 *      |- e7b:1001  the first destination                  `- 1001: tbf (or bfifo, where HTB itself shapes)
 *      `- e7b:1002  the second ...
 *   u32 filters at e7b: by priority: 12, 13 control by port; 22, 23 destinations in a row; 32, 33
 *   destinations by hash (even: IPv4, odd: IPv6; the IP header's version decides, not the protocol of a VLAN
 *   tag). */
#pragma once

#include "evb/tc-model/object.h"
#include "evb/tc-model/plan.h"

/* Handle of our root, and again as HTB's rate2quantum or CBQ's off-time, of no effect there: by both we know
 * our own. */
#define TC_OUR_MAJOR 0xe7bu
#define TC_OUR_ROOT TC_ID(TC_OUR_MAJOR, 0)
#define TC_LINK_CLASS TC_ID(TC_OUR_MAJOR, 1)
#define TC_CONTROL_CLASS TC_ID(TC_OUR_MAJOR, 2)
#define TC_OTHER_CLASS TC_ID(TC_OUR_MAJOR, 3)
/* Up to so many destinations one filter after the other is as fast as a hash (4.4 ns a filter). */
#define TC_LINEAR_MAX 64

/* Whose root is it? */
enum tc_owner {
        TC_OWNER_KERNEL, /* none, or the default one */
        TC_OWNER_OURS,
        TC_OWNER_CLASSLESS, /* set by someone; can be put back as it was */
        TC_OWNER_FOREIGN,   /* has classes, or cannot be put back exactly: left alone unless forced */
};

enum tc_owner tc_layout_owner(const struct tc_tree *have);
/* A qdisc that cannot be put back exactly, because the kernel does not report all of it; NULL: none. */
const struct tc_object *tc_layout_incomplete(const struct tc_tree *have);

/* The tree for a plan. Destinations that `have` (sorted; may be empty) knows keep their classes, and so what
 * is queued. Sorted; freed by the caller. */
int tc_layout_make(struct tc_tree *ret, const struct tc_plan *plan, const struct tc_tree *have);

/* Which kind of tree of ours it is: TC_BACKEND_HTB, TC_BACKEND_HTB_TBF, TC_BACKEND_CBQ_TBF; TC_BACKEND_NONE:
 * not ours. */
enum tc_backend tc_layout_backend(const struct tc_tree *have);
const char *tc_backend_name(enum tc_backend backend);
/* The destination that a filter is for; false: it is of another kind. */
bool tc_layout_address(const struct tc_object *filter, struct tc_address *ret);
