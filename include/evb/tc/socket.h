/* The rtnetlink socket: batches of changes with an acknowledgement each, and dumps. All of netlink is behind
 * these few functions. One thread. */
#pragma once

#include <libmnl/libmnl.h>

#include "evb/tc-model/message.h"
#include "evb/tc-model/object.h"

struct tc_socket;

/* -EPROTONOSUPPORT and the like where the kernel has no rtnetlink. */
int tc_socket_new(struct tc_socket **ret);
struct tc_socket *tc_socket_free(struct tc_socket *s);
/* The port id, by which the kernel's events tell whose change they are of. */
uint32_t tc_socket_port(const struct tc_socket *s);

/* Sends changes in order, some at a time, until one is refused: those behind it in its batch are done as well
 * (the kernel does not stop), later batches are not. acks has n elements. Returns how many succeeded, or
 * negative errno of the socket. */
int tc_socket_change(struct tc_socket *s, int ifindex, const struct tc_change *changes, size_t n,
                     struct tc_ack *acks);
/* One message of any rtnetlink kind, with its answer (if it has one, and `answer` is not NULL) given to it.
 */
int tc_socket_ask(struct tc_socket *s, struct nlmsghdr *m, int (*answer)(const struct nlmsghdr *m, void *ctx),
                  void *ctx, struct tc_ack *ack);

/* All qdiscs and classes of a device and the filters of its root; with `deep`, filters wherever they hang.
 * Sorted. */
int tc_socket_dump(struct tc_socket *s, int ifindex, bool deep, struct tc_tree *ret);

/* For tests: sees each change before it is sent, and may spoil it. */
void tc_socket_set_hook(struct tc_socket *s, void (*hook)(struct nlmsghdr *m, void *ctx), void *ctx);
