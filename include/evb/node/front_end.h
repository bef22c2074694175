/* Fragments that arrive from front-end electronics, each in one length-prefixed frame (docs/protocol.md):
 * over UDP, where a datagram is a frame, or over TCP, where the ROS connects to the front-end and reads one
 * frame after the other. Frame k belongs to event k. A full buffer pauses a stream; a datagram source loses
 * the frame, whose number stays used. Any other loss shifts the numbers: it is a gap, after which frames may
 * belong to other triggers than those they are counted for. One thread. */
#pragma once

#include "evb/core/ros.h"
#include "evb/net/address.h"
#include "evb/node/reasons.h"
#include "evb/node/stats.h"
#include "evb/sys/loop.h"

struct front_end;

/* `at` is the port on `local` (udp), or "HOST:PORT" (tcp). The core and its buffer are borrowed. Negative
 * errno; the error has been logged. */
int front_end_new(struct front_end **ret, bool tcp, const char *at, const struct net_address *local,
                  struct loop *loop, struct ros *core, uint8_t *buffer, struct node_stats *stats);
struct front_end *front_end_free(struct front_end *f);
/* After each wake-up: takes what is there. */
void front_end_turn(struct front_end *f, uint64_t now_ns);
uint64_t front_end_deadline_ns(const struct front_end *f);

/* Frames counted so far, including those that are lost or find no room. */
uint64_t front_end_frames(const struct front_end *f);
/* No data for 200 ms, and none left to read. */
bool front_end_is_quiet(const struct front_end *f, uint64_t now_ns);
/* The source has gaps: frames may not match triggers, so the run's events are unreliable. */
bool front_end_is_unreliable(const struct front_end *f);
/* Why no data can come: "no connection to front-end 127.0.0.1:9000 for 2.0 s (Connection refused)". False: it
 * is connected, lost its connection only a moment ago, or needs none. */
bool front_end_complaint(const struct front_end *f, uint64_t now_ns, char *text, size_t size_bytes);
/* When the connection was lost; 0: it is connected, or needs no connection. */
uint64_t front_end_down_since_ns(const struct front_end *f);
/* At the end: adds a connection that was never made, and gaps. */
void front_end_reasons(const struct front_end *f, struct reasons *to);
