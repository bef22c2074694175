/* Finds out whether the paths from a ROS to the DFM and to the SFIs carry datagrams of network.mtu bytes. A
 * device or a switch port with a smaller MTU drops them silently. Short and long probes go to each node until
 * it answers a long one. With network.mtu = auto, larger ones, as large as the ROS's device carries, go to
 * each SFI: fragments to it become as large once it has answered one, and short again while they do not
 * arrive. One thread. */
#pragma once

#include "core/ros.h"
#include "data/data_send.h"
#include "data/reasons.h"
#include "control_messages.h"

struct path_probe;

/* `control` and `sender` must outlive it. Returns -ENOMEM, or 0. */
int path_probe_new(struct path_probe **ret, struct control *control, struct data_sender *sender,
                   const struct scenario_node *self);
struct path_probe *path_probe_free(struct path_probe *p);
/* Sends the due probes to the DFM and to present SFIs, after the ROS has joined a run. Logs each path that
 * does not carry them. */
void path_probe_turn(struct path_probe *p, const struct ros *core, uint64_t now_ns);
/* Processes an answer; has no effect on other Probes. */
void path_probe_receive(struct path_probe *p, const struct message *m);
uint64_t path_probe_deadline_ns(const struct path_probe *p);
/* Returns the number of paths that do not carry datagrams of network.mtu bytes. */
uint32_t path_probe_failed(const struct path_probe *p);
/* Adds a reason if paths do not carry datagrams of network.mtu bytes. */
void path_probe_reasons(const struct path_probe *p, struct reasons *to);
