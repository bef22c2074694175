/* The netlink socket: batches of changes with one acknowledgement each, dumps, and single requests. One
 * thread. */
#pragma once

#include <libmnl/libmnl.h>

#include "base/error.h"
#include "shape/model/netlink_message.h"
#include "shape/model/object.h"

struct tc_socket;

/* -EPROTONOSUPPORT or similar if the kernel has no rtnetlink. */
int tc_socket_new(struct tc_socket **ret);
/* Of generic netlink, only for tc_socket_ask(). */
int tc_socket_new_generic(struct tc_socket **ret);
struct tc_socket *tc_socket_free(struct tc_socket *s);
/* The port id that identifies this socket's changes in notifications. */
uint32_t tc_socket_port(const struct tc_socket *s);

/* Sends changes in order and in batches. After a refusal, the remaining changes of the batch are still
 * executed, because the kernel does not stop; but later batches are not sent. acks has n elements. Returns
 * the number of successful changes, or a negative errno of the socket. */
int tc_socket_change(struct tc_socket *s, int ifindex, const struct tc_change *changes, size_t n,
                     struct tc_ack *acks);
/* Loads the BPF program of EDT without attaching it. A negative errno, as of bpf_load(). */
int tc_socket_probe_bpf(struct tc_socket *s);
/* Sends one message; `answer` (may be NULL) receives the answer. */
int tc_socket_ask(struct tc_socket *s, struct nlmsghdr *m, int (*answer)(const struct nlmsghdr *m, void *ctx),
                  void *ctx, struct tc_ack *ack);

/* Dumps all qdiscs and classes of a device, and the filters at its root; with `deep`, all filters. The result
 * is sorted. */
int tc_socket_dump(struct tc_socket *s, int ifindex, bool deep, struct tc_tree *ret);
/* Like tc_socket_dump(), but explains a failure. */
int tc_read_tree(struct tc_socket *s, int ifindex, bool deep, struct tc_tree *ret, struct error *error);

/* Opens and binds a socket of a netlink bus, with a large receive buffer. The caller closes it. */
int tc_mnl_open(struct mnl_socket **ret, int bus);

/* For tests: a hook that can modify each change before it is sent. */
void tc_socket_set_hook(struct tc_socket *s, void (*hook)(struct nlmsghdr *m, void *ctx), void *ctx);
