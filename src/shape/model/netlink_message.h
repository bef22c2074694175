/* Changes of a tree: computes them (diff.c), and converts objects to netlink messages and back
 * (netlink_message.c). Pure. */
#pragma once

#include <libmnl/libmnl.h>

#include "shape/model/object.h"

/* Maximum size of a message: a CBQ class with its rate table, or foreign options. */
#define TC_MESSAGE_MAX (66u << 10)

enum tc_verb {
        TC_ADD,     /* the object must not exist */
        TC_REPLACE, /* replaces an existing qdisc */
        TC_CHANGE,  /* the object must exist; keeps its queue */
        TC_RENEW,   /* deletes and adds an existing qdisc, which drops its queue */
        TC_DELETE,
};

struct tc_change {
        enum tc_verb verb;
        const struct tc_object *object; /* borrowed */
        uint32_t kernel_handle;         /* for TC_CHANGE and TC_DELETE of a filter: the kernel's handle */
};

/* Writes a message of at most TC_MESSAGE_MAX bytes; the socket adds sequence number and acknowledgement flag.
 * Not for TC_RENEW, which needs two messages. -EMSGSIZE: the foreign options are too long. */
int tc_message_encode(struct nlmsghdr *m, int ifindex, const struct tc_change *change);
/* Sets params and kind from the options of an object; kind stays NULL if the kind is unsupported. */
int tc_object_decode_options(struct tc_object *o);
/* Reads RTM_{NEW,DEL}{QDISC,TCLASS,TFILTER}. Options are copied; the caller owns them. The kind of an
 * unsupported object is NULL. -EBADMSG: another type of message, or an invalid one; -ENOMEM. */
int tc_message_decode(const struct nlmsghdr *m, struct tc_object *ret, int *ret_ifindex);

/* The kernel's answer to one change. `text` is from the extended ACK; on success it is a warning. */
#define TC_ACK_TEXT_MAX 160
struct tc_ack {
        int error; /* 0 or negative errno; -ECANCELED: not sent because an earlier change was refused */
        char text[TC_ACK_TEXT_MAX];
};

/* Reads NLMSG_ERROR or NLMSG_DONE; -EBADMSG: truncated. */
int tc_ack_decode(const struct nlmsghdr *m, struct tc_ack *ret);

/* ---- The changes that turn one tree into another, in a safe order: first classes, from the top down, then
 * their qdiscs, and then the filters, so that filters direct traffic only to complete classes. Unwanted
 * objects are deleted in the reverse order. ---- */

struct tc_diff {
        struct tc_change *changes; /* objects are borrowed from the two trees */
        size_t n;
        /* Of the changes before this index, only TC_RENEW drops packets. Later changes delete classes whose
         * filters are already gone, so drain the classes first. */
        size_t n_before_drain;
        /* Later changes delete u32 tables. The kernel returns -EBUSY until it has released the filters that
         * led to a table. */
        size_t n_before_tables;
};

/* Both trees must be sorted and describe the same device. If the root changes, all objects below it change
 * too. -ENOMEM. */
int tc_diff_make(struct tc_diff *ret, const struct tc_tree *have, const struct tc_tree *want);
void tc_diff_fini(struct tc_diff *d);
