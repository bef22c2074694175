/* Receives fragments from front-end electronics into a ROS's buffer. Each fragment is a frame as the board
 * sends it (protocol/frame.h), or several joined ones, in UDP datagrams or in a TCP stream from the
 * front-end. Either a frame contains the number of its trigger, or frame k belongs to event k. If the buffer
 * is full, a stream is paused, and a datagram is dropped. Any other loss is a gap: if frames are counted,
 * later frames may be counted for the wrong triggers. One thread. */
#pragma once

#include "core/ros.h"
#include "data/joiner.h"
#include "data/matcher.h"
#include "data/reasons.h"
#include "data/slicer.h"
#include "data/stats.h"
#include "net/address.h"
#include "protocol/frame.h"
#include "protocol/number.h"
#include "sys/loop.h"

struct front_end;

/* Layout of a board's frames. */
struct front_end_layout {
        struct frame_rule frame;
        struct number_field number; /* position within a frame, after the skipped bytes */
        struct join_rule join;
};

/* Borrows all pointers except `layout`. Errors are logged. */
int front_end_new(struct front_end **ret, bool tcp, const struct front_end_layout *layout,
                  const struct net_address *local, struct loop *loop, struct ros *core, uint8_t *buffer,
                  struct node_stats *stats);
/* Opens the socket. `at`: for UDP the port on `local`, or "GROUP:PORT" with a multicast group to join there;
 * for TCP "ADDRESS:PORT" of the front-end. If `agrees` (frames must match triggers or other boards), frames
 * are counted, and some come before the ROS joins, the run is unreliable if it follows another run of the
 * DFM. Errors are logged. */
int front_end_open(struct front_end *f, const char *at, bool agrees);
struct front_end *front_end_free(struct front_end *f);
/* Sets what frames pass through, at most one: a slicer or a matcher, which treat the counters in frames as
 * times, or a joiner of the frames of a trigger, as the layout says. NULL: none. Takes ownership, and frees
 * what was set before. Call this before the first turn. */
void front_end_collect(struct front_end *f, struct slicer *slicer, struct joiner *joiner,
                       struct matcher *matcher);
/* A run is over: keeps only the socket. NULL: there is none, and `f` is freed. Until front_end_go_on(), call
 * only front_end_free(). */
struct front_end *front_end_rest(struct front_end *f);
/* Instead of front_end_open(): takes over the socket that `from` kept, and frees `from`. Frames that begin
 * before the socket has been read empty are in no run; they are counted and logged. If `follows` (triggers
 * come from elsewhere) and the board may have waited for room, so are those that begin before the board is
 * silent for 200 ms, at most for a second. If frames make the triggers, this would drive boards apart. If
 * `agrees` and frames are counted, such frames, and those that come before the ROS joins a later run, make
 * the run unreliable. Returns whether some wait now; negative errno. */
int front_end_go_on(struct front_end *f, struct front_end *from, bool agrees, bool follows, uint64_t now_ns);
/* A run goes on without this ROS, whose frames are counted, so what has come is of no later run. Datagrams
 * that come before the ROS joins a run are discarded, counted and logged. If frames must agree, those since
 * the last call make that run unreliable. False: earlier frames are already counted for it, so only
 * front_end_rest() may follow. */
bool front_end_refuse(struct front_end *f);
/* Whether frames from before the run may still wait to be read. Until then, the ROS must send nothing. */
bool front_end_is_between(const struct front_end *f);
/* The board continued to send at the end of the previous run, so frames were lost until now. If frames are
 * counted, this is a gap. */
void front_end_miss_frames(struct front_end *f, uint64_t now_ns);
/* Receives for a bounded time; call it after each wake-up. */
void front_end_turn(struct front_end *f, uint64_t now_ns);
uint64_t front_end_deadline_ns(const struct front_end *f);

/* Returns the number of frames so far, including frames that did not fit into the buffer. */
uint64_t front_end_frames(const struct front_end *f);
/* Whether no data arrived for 200 ms, and all data have been read. */
bool front_end_is_quiet(const struct front_end *f, uint64_t now_ns);
/* Explains why frames such as `sample` do not follow the triggers. The newest trigger has the counter
 * `expected`. */
void front_end_explain_step(const struct front_end *f, const struct ros_sample *sample, uint64_t expected,
                            char *text, size_t text_bytes);
/* Whether frames are counted and have gaps: they may not match their triggers, so the run's events are
 * unreliable. */
bool front_end_is_unreliable(const struct front_end *f);
/* Returns the time when the connection was lost; 0: it is connected, or needs no connection. */
uint64_t front_end_down_since_ns(const struct front_end *f);
/* Call this at the end: adds as reasons the frames that were read and discarded, except frames from before
 * the boards began to count for this run. */
void front_end_discard_reasons(const struct ros *core, struct reasons *to);
/* Call this at the end, unless times match frames: adds as a reason that the numbers of the board, whose
 * first one should be `number_from`, do not seem to be those of the triggers. */
void front_end_number_reasons(const struct ros *core, int64_t number_from, struct reasons *to);
/* Call this at the end: adds as reasons a connection that was never established, and gaps. */
void front_end_reasons(const struct front_end *f, struct reasons *to);

/* Explains that a datagram does not consist of whole frames: the frame at byte `at` does not fit. */
void front_end_explain_datagram(const struct frame_rule *frame, const uint8_t *bytes, size_t n, size_t at,
                                char *text, size_t text_bytes);
/* Explains that a frame of a stream begins with these bytes, which give an impossible length. */
void front_end_explain_start(const struct frame_rule *frame, const uint8_t *bytes, size_t n, char *text,
                             size_t text_bytes);
/* Explains that these bytes of a stream are not part of a frame. */
void front_end_explain_foreign(const struct frame_rule *frame, const uint8_t *bytes, size_t n, char *text,
                               size_t text_bytes);
