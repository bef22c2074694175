/* The counters of one node, in shared memory: `evb run` passes each node a memfd, so that the counters
 * survive a killed node. One table gives each counter its name and meaning. Only the node writes, and each
 * counter has one writing thread; anyone may read at any time. */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

#include "base/histogram.h"
#include "core/dfm.h"
#include "core/ros.h"
#include "core/sfi.h"
#include "data/obstacle.h"
#include "protocol/event.h"
#include "protocol/message.h"

/* Environment variable: the descriptor of the memfd that a node inherits for its struct node_stats. */
#define NODE_STATS_ENV "EVB_STATS_FD"

/* X(name, meaning). The name contains the unit: events, fragments, packets, bytes, ns. */
#define STATS_COUNTERS(X)                                                                                    \
        X(triggers, "triggers that the DFM accepted")                                                        \
        X(triggers_offered, "triggers from outside or of the clock, taken or not")                           \
        X(triggers_refused, "triggers offered that found trigger.queue full")                                \
        X(triggers_repeated, "triggers offered whose number came before or went back without a reset")       \
        X(triggers_implausible, "triggers offered whose number jumped too far to be trusted")                \
        X(triggers_not_taken,                                                                                \
          "triggers before the run began, after its last one, in a pause, or unanswered at a stop")          \
        X(trigger_numbers_missing, "numbers that the triggers offered skipped")                              \
        X(triggers_missed, "triggers that waited in a DFM that ended, or came while none ran")               \
        X(trigger_resets, "counter resets that triggers reported, or that all boards showed")                \
        X(numbers_announced, "numbers of frames that ROSs announced (trigger.source = frames)")              \
        X(numbers_confirmed, "numbers announced that another ROS, or the same one, had announced before")    \
        X(numbers_late, "numbers announced too late to become events")                                       \
        X(trigger_datagrams, "datagrams with triggers received")                                             \
        X(trigger_datagrams_lost, "datagrams with triggers missing by their sequence numbers")               \
        X(trigger_datagrams_repeated, "datagrams with triggers received more than once")                     \
        X(trigger_datagrams_late, "datagrams with triggers that a counter reset overtook")                   \
        X(trigger_datagrams_other_run, "datagrams with triggers of another run")                             \
        X(trigger_datagrams_dropped, "datagrams with triggers dropped by the full socket buffer")            \
        X(triggers_in_spills, "triggers offered within spills")                                              \
        X(spills_begun, "spills that triggers reported to begin")                                            \
        X(spills_ended, "spills that triggers reported to end")                                              \
        X(busy_datagrams, "busy signals sent")                                                               \
        X(events_assigned, "assignments of events, by Assign or Build")                                      \
        X(events_reassigned, "events reassigned to another SFI")                                             \
        X(events_complete, "events built with all fragments")                                                \
        X(events_partial, "events built with fragments missing")                                             \
        X(events_lost, "triggers that ended without an event")                                               \
        X(events_ended_again, "events that a second SFI built after they had ended")                         \
        X(events_rejected,                                                                                   \
          "triggers that level 2 rejected, or left undecided until they counted as rejected")                \
        X(level2_accepted, "events that level 2 accepted")                                                   \
        X(level2_rejected, "events that level 2 rejected")                                                   \
        X(level2_timed_out, "events that level 2 left undecided")                                            \
        X(level2_late, "decisions of level 2 about events that had timed out or ended")                      \
        X(level2_repeated, "decisions of level 2 about events that it had decided before")                   \
        X(level2_unknown, "decisions of level 2 about events that did not exist")                            \
        X(busy_ns, "time for which triggers were held back")                                                 \
        X(paused_ns, "time for which an operator paused the triggers")                                       \
        X(stalls, "times that a node made no progress for 5 s, or for run.stall-timeout, while work waited") \
        X(stalled_ns, "time without progress in these")                                                      \
        X(payload_bytes, "fragment payload of complete events")                                              \
        X(fragments_expected, "fragments expected for the ended events")                                     \
        X(fragments_received, "fragments received for the ended events")                                     \
        X(fragments_lost, "fragments missing from the ended events")                                         \
        X(fragments_optional, "fragments of optional ROSs that the ended events do without")                 \
        X(fragments_late, "fragments received after their event had ended")                                  \
        X(fragments_duplicate, "fragments received more than once")                                          \
        X(fragments_corrupt, "fragments whose bytes differ from the pattern")                                \
        X(fragments_mismatched, "fragments refused because their L1 ID is not that of the event")            \
        X(fragments_re_asked, "repeated requests for fragments")                                             \
        X(fragments_recovered, "fragments received after a retry")                                           \
        X(fragments_no_room, "fragments dropped because the SFI had no memory for them")                     \
        X(fragments_sent, "fragments that a ROS sent")                                                       \
        X(regions_requested, "fragments that level-2 clients requested from a ROS")                          \
        X(regions_sent, "fragments that a ROS sent to level-2 clients")                                      \
        X(regions_gone, "fragments requested for level 2 whose event was decided before the answer")         \
        X(regions_absent, "fragments requested for level 2 whose frame did not come")                        \
        X(regions_refused, "fragments requested for level 2 that cannot exist")                              \
        X(regions_dropped, "fragments requested by level-2 clients that left before the answer")             \
        X(regions_bytes, "payload bytes that a ROS sent to level-2 clients")                                 \
        X(fragments_unknown, "requests for fragments that the ROS did not hold")                             \
        X(fragments_source_lost, "fragments lost between front-end and ROS")                                 \
        X(front_end_gaps, "losses of frames before the ROS read them")                                       \
        X(front_end_frames, "frames of the front-end that the ROS read")                                     \
        X(front_end_used, "frames whose event was triggered and has ended")                                  \
        X(front_end_late, "frames whose event had ended or no longer waited for them")                       \
        X(front_end_duplicate, "frames with the number of another frame")                                    \
        X(front_end_impossible, "frames whose number fits no trigger")                                       \
        X(front_end_dropped, "frames dropped because the ROS had no room")                                   \
        X(front_end_left_over, "frames held at the end, or whose trigger never came")                        \
        X(front_end_restarts, "times that the frames fell out of step with the triggers")                    \
        X(slice_frames, "frames with a time that the ROS read for slices of time")                           \
        X(slice_frames_used, "frames with a time in a slice whose event was made, and has ended")            \
        X(slice_frames_copied, "frames copied into the slice after theirs, as overlap")                      \
        X(slice_frames_late, "frames that came after their slice was closed, or whose event did not wait")   \
        X(slice_frames_dropped,                                                                              \
          "frames without a time, broken off, without room, or of an impossible slice")                      \
        X(slice_frames_left_over, "frames whose slice is not closed, or was no event")                       \
        X(slice_restarts, "times that the board's time went back, or far ahead")                             \
        X(fragments_absent, "fragments of ended events whose frame did not come")                            \
        X(bytes_sent, "bytes of fragments that a ROS sent, chunk headers included")                          \
        X(packets_sent, "data datagrams sent")                                                               \
        X(packets_full, "data datagrams sent with no room for more")                                         \
        X(packets_send_failed, "data datagrams that the kernel refused to send")                             \
        X(packets_received, "data datagrams received")                                                       \
        X(packets_lost, "data datagrams missing by their sequence numbers")                                  \
        X(events_implausible, "fragments or requests whose event number is implausible")                     \
        X(sequence_suspects, "messages whose sequence number is implausible")                                \
        X(packets_foreign, "datagrams of another run, program or version")                                   \
        X(packets_malformed, "malformed datagrams")                                                          \
        X(control_untagged, "control messages refused because they have no tag (network.key-file)")          \
        X(control_wrong_key, "control messages refused because another key made their tag")                  \
        X(control_replayed, "control messages refused because they came before, or were for another node")   \
        X(control_unproven, "control messages refused because their session was not proven yet, or is over") \
        X(control_no_key, "control messages refused because they have a tag and this node has no key")       \
        X(packets_socket_dropped, "datagrams dropped because this node's socket buffers were full")          \
        X(packets_source_dropped, "packets dropped by the ROS's own shaping")                                \
        X(unshaped_ns, "time for which a ROS's shaping was missing or changed by others")                    \
        X(shaping_repairs, "repairs of a ROS's shaping after changes by others")                             \
        X(rate_reductions, "reductions of the rate to an SFI because packets were lost at its port")         \
        X(packets_port_lost, "packets lost at an SFI's port that led to reductions")                         \
        X(reduced_ns, "time for which the rate to an SFI was below the planned one")                         \
        X(clear_gaps, "Clear messages missing by their sequence numbers")                                    \
        X(buffer_full, "fragments that did not fit into the ROS's buffer")                                   \
        X(limit_decreases, "losses after which an SFI halved its limit of bytes in flight (pull)")           \
        X(xoff, "times that a ROS asked to hold triggers back")                                              \
        X(send_blocked, "times that the kernel's send buffer was full")                                      \
        X(reconnects, "TCP connections reopened")                                                            \
        X(file_bytes, "bytes written to event files")                                                        \
        X(events_stored, "events in closed event files")                                                     \
        X(events_not_written, "built events that an SFI dropped because the disk was slow")                  \
        X(control_refused, "requests that run control refused for their address, token or content type")     \
        X(control_sent, "control messages sent")                                                             \
        X(control_received, "control messages received")                                                     \
        X(control_sent_bytes, "bytes of the control messages sent, with all headers")                        \
        X(control_received_bytes, "bytes of the control messages received, with all headers")

struct node_stats {
        uint64_t magic; /* NODE_STATS_MAGIC once the rest is initialized */
        _Atomic uint32_t state;
        /* CLOCK_MONOTONIC times of the first and last complete event and the first trigger; 0: none yet. */
        _Atomic uint64_t first_complete_ns, last_complete_ns, first_trigger_ns;
        _Atomic uint64_t granted_receive_buffer_bytes, granted_send_buffer_bytes;
        /* A ROS's shaping in the kernel: enum tc_backend, and the rate per destination. */
        _Atomic uint64_t qos_backend, qos_rate_bps;
        /* Settings of a ROS's device; UINT32_MAX: unknown. */
        _Atomic uint64_t mtu_bytes, rx_usecs, rx_frames, tx_usecs, tx_frames;
#define X(name, help) _Atomic uint64_t name;
        STATS_COUNTERS(X)
#undef X
        struct histogram latency_ns;        /* trigger to end of event, by the DFM's clock */
        struct histogram level2_latency_ns; /* trigger to decision */
        struct obstacle_board obstacle;     /* what the node waits for now */
        struct obstacle_board last_stall;   /* the reason of the present or the last stall */
};

#define NODE_STATS_MAGIC UINT64_C(0x3153544154425645) /* "EVBTATS1" */

enum node_state { NODE_STARTING, NODE_READY, NODE_RUNNING, NODE_DRAINING, NODE_SEALING, NODE_ENDED };

/* Resets all counters, histograms and reasons for another run of the same process. Call it while none of its
 * threads counts. */
void stats_begin_run(struct node_stats *s);

/* Each counter has one writer, so a relaxed load and store suffice. */
static inline void stats_add(_Atomic uint64_t *counter, uint64_t n)
{
        atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + n,
                              memory_order_relaxed);
}

static inline uint64_t stats_get(const _Atomic uint64_t *counter)
{
        return atomic_load_explicit((_Atomic uint64_t *)counter, memory_order_relaxed);
}

static inline void stats_set(_Atomic uint64_t *counter, uint64_t value)
{
        atomic_store_explicit(counter, value, memory_order_relaxed);
}

/* Counts a rejected message as foreign or malformed. */
void stats_count_refusal(struct node_stats *s, enum message_verdict verdict);

/* Copy what a core counted. Not all counters are the core's: data path, sockets and files have their own. */
void stats_take_dfm(struct node_stats *s, const struct dfm *d);
void stats_take_ros(struct node_stats *s, const struct ros *r);
void stats_take_sfi(struct node_stats *s, const struct sfi *core);
