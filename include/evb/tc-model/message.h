/* Objects to netlink messages and back. Pure: bytes in, bytes out. */
#pragma once

#include <libmnl/libmnl.h>

#include "evb/tc-model/object.h"

/* The largest message that is made: a CBQ class with its rate table, or foreign options of any length. */
#define TC_MESSAGE_MAX (66u << 10)

enum tc_verb {
        TC_ADD,     /* must not be there yet */
        TC_REPLACE, /* instead of what is there: qdiscs */
        TC_CHANGE,  /* must be there: keeps the queue */
        TC_DELETE,
};

struct tc_change {
        enum tc_verb verb;
        const struct tc_object *object; /* borrowed */
        uint32_t kernel_handle;         /* TC_CHANGE and TC_DELETE of a filter: what the kernel calls it */
};

/* Writes a message of at most TC_MESSAGE_MAX bytes; sequence number and flags for an acknowledgement are the
 * socket's business. -EMSGSIZE: foreign options too long. */
int tc_message_encode(struct nlmsghdr *m, int ifindex, const struct tc_change *change);
/* Reads RTM_{NEW,DEL}{QDISC,TCLASS,TFILTER}; options are copied, and owned by the caller. An object of a
 * kind, or with parameters, that we do not speak comes out with kind NULL. -EBADMSG: not such a message;
 * -ENOMEM. */
/* Fills params and kind from the options that an object carries; kind stays NULL where we do not speak them.
 */
int tc_object_decode_options(struct tc_object *o);
int tc_message_decode(const struct nlmsghdr *m, struct tc_object *ret, int *ret_ifindex);

/* What became of one change. `text` is the kernel's own (extended ACK); may be set on success too: a warning.
 */
#define TC_ACK_TEXT_MAX 160
struct tc_ack {
        int error; /* 0, or negative errno; -ECANCELED: not sent, as an earlier one was refused */
        char text[TC_ACK_TEXT_MAX];
};

/* Reads NLMSG_ERROR or NLMSG_DONE; -EBADMSG: truncated. */
int tc_ack_decode(const struct nlmsghdr *m, struct tc_ack *ret);
