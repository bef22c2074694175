/* Fragments that arrive from front-end electronics, each in one length-prefixed frame (docs/protocol.md): over UDP, where
 * a datagram is a frame, or over TCP, where the ROS connects to the front-end and takes one frame after the other. Frame
 * k belongs to event k. A full buffer stops the reading of a stream, and costs a datagram source the frame. One thread. */
#pragma once

#include "evb/core/ros.h"
#include "evb/net/address.h"
#include "evb/node/reasons.h"
#include "evb/node/stats.h"
#include "evb/sys/loop.h"

struct front_end;

/* `at` is the port on `local` (udp), or "HOST:PORT" (tcp). The core and its buffer are borrowed. Negative errno; the error
 * has been logged. */
int front_end_new(struct front_end **ret, bool tcp, const char *at, const struct net_address *local, struct loop *loop,
                  struct ros *core, uint8_t *buffer, struct node_stats *stats);
struct front_end *front_end_free(struct front_end *f);
/* After each wake-up: takes what is there. */
void front_end_turn(struct front_end *f, uint64_t now_ns);
uint64_t front_end_deadline_ns(const struct front_end *f);
/* Why nothing can come: "no connection to front-end 127.0.0.1:9000 for 2.0 s (Connection refused)". False:
 * it is connected, was so a moment ago, or needs no connection. */
bool front_end_complaint(const struct front_end *f, uint64_t now_ns, char *text, size_t size_bytes);
/* At the end: a connection that was never made. */
void front_end_reasons(const struct front_end *f, struct reasons *to);
