/* Watches the kernel's notifications about changes to a device's qdiscs, classes and filters, identifies
 * their authors, and finds what differs from the installed tree. For use by one thread. */
#pragma once

#include "shape/kernel/apply.h"
#include "shape/model/netlink_message.h"
#include "shape/model/object.h"

struct tc_watch;

struct tc_event {
        enum {
                TC_EVENT_CHANGED, /* `object` was created or changed */
                TC_EVENT_DELETED, /* `object` was deleted; objects below it were deleted without a
                                     notification */
                TC_EVENT_LINK,    /* the device was renamed, went up or down, or has new settings */
                TC_EVENT_LINK_GONE,
                TC_EVENT_LOST, /* notifications were lost, so the tree must be dumped again */
        } what;
        bool by_us;
        uint32_t port;           /* netlink port id of the author, usually a process id; 0: the kernel */
        struct tc_object object; /* the receiver frees object.options */
};

/* own_port: tc_socket_port() of the socket with which this program makes changes. */
int tc_watch_new(struct tc_watch **ret, int ifindex, uint32_t own_port);
struct tc_watch *tc_watch_free(struct tc_watch *w);
int tc_watch_fd(const struct tc_watch *w);
/* Pops the next event. Returns 1; 0: none at the moment; or negative errno. */
int tc_watch_next(struct tc_watch *w, struct tc_event *ret);
/* Formats the author, e.g. "tc (process 123)", if known. Returns text. */
char *tc_event_actor(const struct tc_event *e, char *text, size_t size);

/* Appends a description, e.g. "root qdisc htb e7b: is missing". `change` would restore the installed tree. */
void tc_drift_describe(const struct tc_change *change, struct strbuf *b);
/* 1: the kernel's tree differs from the installed tree, and `what` describes the first difference; 0: no
 * difference. Ignores draining classes. -ENOMEM. */
int tc_drift(const struct tc_tree *have, const struct tc_tree *installed,
             char what[static TC_OUTCOME_TEXT_MAX]);
