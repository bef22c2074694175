/* The counters of one node, in shared memory: `evb run` passes each node a memfd, so that the counters
 * survive a killed node. One table defines the name and meaning of each counter. Only the node writes, and
 * each counter has one writing thread; any process may read at any time. */
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

/* Places of losses, in the order in which data pass them. */
enum loss_place {
        LOSS_NOWHERE, /* the counter does not count losses */
        LOSS_TRIGGER_INPUT,
        LOSS_FRAME_SOCKET, /* the ROS's socket for boards */
        LOSS_FRAMES,
        LOSS_SOURCE_QDISC,
        LOSS_SEND_FAILED,
        LOSS_NETWORK,
        LOSS_SOCKET,
        LOSS_FOREIGN,
        LOSS_MISSING,
        LOSS_CORRUPT,
        LOSS_DISK,
        LOSS_PARTIAL,
        LOSS_LOST,
        LOSS_PLACES,
};

/* Counters that form one metric and are distinguished by a label. */
enum counter_group {
        GROUP_NONE, /* a separate metric */
        GROUP_PACKETS,
        GROUP_FRAGMENTS,
        GROUP_FRAMES,
        GROUP_SLICE_FRAMES,
        GROUP_TRIGGERS,
        GROUP_DATAGRAMS,
        GROUP_REGIONS,
        GROUP_DECISIONS,
        GROUP_DECISIONS_DISCARDED,
        COUNTER_GROUPS,
};

/* The object that contains the counter in /status, in the report of a run, or in both. */
enum counter_object {
        OBJECT_NONE,
        OBJECT_COUNTS,
        OBJECT_FRAGMENTS,
        OBJECT_DROPS,
        OBJECT_OUTSIDE, /* in the report: triggers from outside */
        OBJECT_SPILLS,
        OBJECT_LEVEL2,
        OBJECT_REGIONS,
        OBJECT_FRONT_ENDS, /* in the report: frames of boards */
        COUNTER_OBJECTS,
};

/* The source of a count. All other counters are incremented by stats_add() where the event happens. */
enum counter_source { FROM_DFM, FROM_ROS, FROM_SFI, FROM_LEVEL2, FROM_REGIONS, COUNTER_SOURCES };

/* X(name, meaning, ...): the only list of counters. The name contains the unit: events, fragments, packets,
 * bytes, ns. Further arguments, which stats.c makes members of struct counter: METRIC(name): the name of its
 * metric, if it differs from the name of the counter. GROUPED(group, label): a value of a label of the
 * group's metric. IN(object, roles): part of an object, only for nodes of these roles; IN_AS(object, key,
 * roles): with a key that is not its name without the object's prefix. LOST_AT(place): it counts losses at
 * this place. DFM_COUNTS(member), ...: copied from the core's counts. */
#define STATS_COUNTERS(X)                                                                                    \
        X(triggers, "triggers that the DFM accepted", IN(COUNTS, DFM), DFM_COUNTS(triggers))                 \
        X(triggers_offered, "triggers from outside or of the clock, taken or not", IN(OUTSIDE, DFM),         \
          DFM_COUNTS(offered.triggers))                                                                      \
        X(triggers_refused, "triggers offered that found the queue of triggers full",                        \
          GROUPED(TRIGGERS, "queue_full"), IN(OUTSIDE, DFM), LOST_AT(TRIGGER_INPUT),                         \
          DFM_COUNTS(offered.refused))                                                                       \
        X(triggers_repeated, "triggers offered whose number came before or went back without a reset",       \
          GROUPED(TRIGGERS, "repeated"), IN(OUTSIDE, DFM), LOST_AT(TRIGGER_INPUT),                           \
          DFM_COUNTS(offered.repeated))                                                                      \
        X(triggers_implausible, "triggers offered whose number jumped too far to be trusted",                \
          GROUPED(TRIGGERS, "implausible"), IN(OUTSIDE, DFM), LOST_AT(TRIGGER_INPUT),                        \
          DFM_COUNTS(offered.implausible))                                                                   \
        X(triggers_not_taken,                                                                                \
          "triggers before the run began, after its last one, in a pause, or unanswered at a stop",          \
          GROUPED(TRIGGERS, "not_taken"), LOST_AT(TRIGGER_INPUT))                                            \
        X(trigger_numbers_missing, "numbers that the triggers offered skipped", IN(OUTSIDE, DFM),            \
          DFM_COUNTS(offered.missing))                                                                       \
        X(triggers_missed, "triggers that waited in a DFM that ended, or came while none ran",               \
          IN(OUTSIDE, DFM), DFM_COUNTS(offered.missed))                                                      \
        X(trigger_resets, "counter resets that triggers reported, or that all boards showed",                \
          IN(OUTSIDE, DFM), DFM_COUNTS(offered.resets))                                                      \
        X(numbers_announced, "numbers of frames that ROSs announced (trigger.source = frames)",              \
          IN(OUTSIDE, DFM), DFM_COUNTS(announced.numbers))                                                   \
        X(numbers_confirmed, "numbers announced that another ROS, or the same one, had announced before",    \
          IN(OUTSIDE, DFM), DFM_COUNTS(announced.confirmed))                                                 \
        X(numbers_late, "numbers announced too late to become events", IN(OUTSIDE, DFM),                     \
          DFM_COUNTS(announced.late))                                                                        \
        X(trigger_datagrams, "datagrams with triggers received", IN(OUTSIDE, DFM))                           \
        X(trigger_datagrams_lost, "datagrams with triggers missing by their sequence numbers",               \
          IN(OUTSIDE, DFM))                                                                                  \
        X(trigger_datagrams_repeated, "datagrams with triggers received more than once",                     \
          GROUPED(DATAGRAMS, "repeated"), IN(OUTSIDE, DFM), LOST_AT(TRIGGER_INPUT))                          \
        X(trigger_datagrams_late, "datagrams with triggers that a counter reset overtook",                   \
          GROUPED(DATAGRAMS, "late"), IN(OUTSIDE, DFM), LOST_AT(TRIGGER_INPUT))                              \
        X(trigger_datagrams_other_run, "datagrams with triggers of another run",                             \
          GROUPED(DATAGRAMS, "other_run"), IN(OUTSIDE, DFM), LOST_AT(TRIGGER_INPUT))                         \
        X(trigger_datagrams_dropped, "datagrams with triggers dropped by the full socket buffer",            \
          GROUPED(DATAGRAMS, "socket_full"), IN(OUTSIDE, DFM), LOST_AT(TRIGGER_INPUT))                       \
        X(triggers_in_spills, "triggers offered within spills", IN_AS(SPILLS, "triggers", DFM),              \
          DFM_COUNTS(offered.in_spills))                                                                     \
        X(spills_begun, "spills that triggers reported to begin", IN(SPILLS, DFM),                           \
          DFM_COUNTS(offered.spills_begun))                                                                  \
        X(spills_ended, "spills that triggers reported to end", IN(SPILLS, DFM),                             \
          DFM_COUNTS(offered.spills_ended))                                                                  \
        X(busy_datagrams, "busy signals sent")                                                               \
        X(events_assigned, "assignments of events, by Assign or Build", DFM_COUNTS(assigned),                \
          SFI_COUNTS(assigned))                                                                              \
        X(events_reassigned, "events reassigned to another SFI", DFM_COUNTS(reassigned))                     \
        X(events_complete, "events built with all fragments", IN(COUNTS, DFM | SFI), DFM_COUNTS(complete),   \
          SFI_COUNTS(complete))                                                                              \
        X(events_partial, "events built with fragments missing", IN(COUNTS, DFM | SFI), LOST_AT(PARTIAL),    \
          DFM_COUNTS(partial), SFI_COUNTS(partial))                                                          \
        X(events_lost, "triggers that ended without an event", IN(COUNTS, DFM | SFI), LOST_AT(LOST),         \
          DFM_COUNTS(lost), SFI_COUNTS(lost))                                                                \
        X(events_starved, "events that ended incomplete after fragments found no memory (sfi.buffer-size)",  \
          SFI_COUNTS(starved))                                                                               \
        X(events_ended_again, "events that a second SFI built after they had ended",                         \
          DFM_COUNTS(ended_again))                                                                           \
        X(events_rejected,                                                                                   \
          "triggers that level 2 rejected, or left undecided until they counted as rejected",                \
          IN(COUNTS, DFM), DFM_COUNTS(rejected))                                                             \
        X(level2_accepted, "events that level 2 accepted", GROUPED(DECISIONS, "accepted"), IN(LEVEL2, DFM),  \
          LEVEL2_COUNTS(accepted))                                                                           \
        X(level2_rejected, "events that level 2 rejected", GROUPED(DECISIONS, "rejected"), IN(LEVEL2, DFM),  \
          LEVEL2_COUNTS(rejected))                                                                           \
        X(level2_timed_out, "events that level 2 left undecided", GROUPED(DECISIONS, "timed_out"),           \
          IN(LEVEL2, DFM), LEVEL2_COUNTS(timed_out))                                                         \
        X(level2_late, "decisions of level 2 about events that had timed out or ended",                      \
          GROUPED(DECISIONS_DISCARDED, "late"), IN(LEVEL2, DFM), LEVEL2_COUNTS(late))                        \
        X(level2_repeated, "decisions of level 2 about events that it had decided before",                   \
          GROUPED(DECISIONS_DISCARDED, "repeated"), IN(LEVEL2, DFM), LEVEL2_COUNTS(repeated))                \
        X(level2_unknown, "decisions of level 2 about events that did not exist",                            \
          GROUPED(DECISIONS_DISCARDED, "unknown"), IN(LEVEL2, DFM), LEVEL2_COUNTS(unknown))                  \
        X(busy_ns, "time for which triggers were held back", DFM_COUNTS(busy_ns))                            \
        X(paused_ns, "time for which an operator paused the triggers", DFM_COUNTS(paused_ns))                \
        X(stalls, "times that a node made no progress for 5 s, or for run.stall-timeout, while work waited") \
        X(stalled_ns, "time without progress in these")                                                      \
        X(payload_bytes, "fragment payload of complete events", IN(COUNTS, DFM | SFI),                       \
          DFM_COUNTS(payload_bytes), SFI_COUNTS(payload_bytes))                                              \
        X(fragments_expected, "fragments expected for the ended events", IN(FRAGMENTS, DFM),                 \
          DFM_COUNTS(fragments_expected))                                                                    \
        X(fragments_received, "fragments received for the ended events", IN(FRAGMENTS, DFM | SFI),           \
          DFM_COUNTS(fragments_received), SFI_COUNTS(fragments_received))                                    \
        X(fragments_lost, "fragments missing from the ended events", IN(FRAGMENTS, DFM | SFI),               \
          LOST_AT(MISSING), DFM_COUNTS(fragments_lost), SFI_COUNTS(fragments_lost))                          \
        X(fragments_optional, "fragments of optional ROSs that the ended events do without",                 \
          IN_AS(FRAGMENTS, "absent", DFM | SFI), DFM_COUNTS(fragments_absent), SFI_COUNTS(fragments_absent)) \
        X(fragments_late, "fragments received after their event had ended", GROUPED(FRAGMENTS, "late"),      \
          IN(FRAGMENTS, SFI), SFI_COUNTS(late))                                                              \
        X(fragments_duplicate, "fragments received more than once", GROUPED(FRAGMENTS, "duplicate"),         \
          IN(FRAGMENTS, SFI), SFI_COUNTS(duplicate))                                                         \
        X(fragments_corrupt, "fragments whose bytes differ from the pattern", IN(FRAGMENTS, SFI),            \
          LOST_AT(CORRUPT))                                                                                  \
        X(fragments_mismatched, "fragments refused because their L1 ID is not that of the event",            \
          GROUPED(FRAGMENTS, "mismatched"), IN(FRAGMENTS, SFI), SFI_COUNTS(mismatched))                      \
        X(fragments_re_asked, "repeated requests for fragments", IN(FRAGMENTS, SFI), SFI_COUNTS(retried))    \
        X(fragments_recovered, "fragments received after a retry", IN(FRAGMENTS, SFI),                       \
          SFI_COUNTS(recovered))                                                                             \
        X(fragments_no_room, "fragments dropped because the SFI had no memory for them",                     \
          GROUPED(FRAGMENTS, "no_room"), SFI_COUNTS(no_room))                                                \
        X(fragments_sent, "fragments that a ROS sent", IN(COUNTS, ROS), ROS_COUNTS(fragments_sent))          \
        X(regions_requested, "fragments that level-2 clients requested from a ROS", IN(REGIONS, ROS),        \
          REGION_COUNTS(requests))                                                                           \
        X(regions_sent, "fragments that a ROS sent to level-2 clients", IN(REGIONS, ROS),                    \
          REGION_COUNTS(sent))                                                                               \
        X(regions_gone, "fragments requested for level 2 whose event was decided before the answer",         \
          GROUPED(REGIONS, "decided"), IN(REGIONS, ROS), REGION_COUNTS(gone))                                \
        X(regions_absent, "fragments requested for level 2 whose frame did not come",                        \
          GROUPED(REGIONS, "absent"), IN(REGIONS, ROS), REGION_COUNTS(absent))                               \
        X(regions_refused, "fragments requested for level 2 that cannot exist", GROUPED(REGIONS, "refused"), \
          IN(REGIONS, ROS), REGION_COUNTS(refused))                                                          \
        X(regions_dropped, "fragments requested by level-2 clients that left before the answer",             \
          GROUPED(REGIONS, "client_left"), IN(REGIONS, ROS))                                                 \
        X(regions_bytes, "payload bytes that a ROS sent to level-2 clients", IN(REGIONS, ROS),               \
          REGION_COUNTS(sent_bytes))                                                                         \
        X(fragments_unknown, "requests for fragments that the ROS did not hold", ROS_COUNTS(unknown))        \
        X(fragments_source_lost, "fragments lost between front-end and ROS", ROS_COUNTS(source_lost))        \
        X(front_end_gaps, "losses of frames before the ROS read them, and frames discarded between runs",    \
          IN(FRONT_ENDS, ROS))                                                                               \
        X(front_end_frames, "frames of the front-end that the ROS read", IN(FRONT_ENDS, ROS))                \
        X(front_end_used, "frames whose event was triggered and has ended", IN(FRONT_ENDS, ROS),             \
          ROS_COUNTS(used))                                                                                  \
        X(front_end_late, "frames whose event had ended or no longer waited for them",                       \
          GROUPED(FRAMES, "late"), IN(FRONT_ENDS, ROS), LOST_AT(FRAMES), ROS_COUNTS(late))                   \
        X(front_end_duplicate, "frames with the number of another frame", GROUPED(FRAMES, "duplicate"),      \
          IN(FRONT_ENDS, ROS), LOST_AT(FRAMES), ROS_COUNTS(duplicate))                                       \
        X(front_end_impossible, "frames whose number fits no trigger", GROUPED(FRAMES, "impossible"),        \
          IN(FRONT_ENDS, ROS), LOST_AT(FRAMES), ROS_COUNTS(impossible))                                      \
        X(front_end_dropped, "frames dropped because the ROS had no room", GROUPED(FRAMES, "no_room"),       \
          IN(FRONT_ENDS, ROS), LOST_AT(FRAMES), ROS_COUNTS(dropped))                                         \
        X(front_end_left_over, "frames held at the end, or whose trigger never came",                        \
          GROUPED(FRAMES, "left_over"), IN(FRONT_ENDS, ROS), LOST_AT(FRAMES), ROS_COUNTS(left_over))         \
        X(front_end_restarts, "times that the frames fell out of step with the triggers",                    \
          IN(FRONT_ENDS, ROS), ROS_COUNTS(restarts))                                                         \
        X(front_end_incomplete, "slices and joined fragments used without some of their frames",             \
          LOST_AT(FRAMES), ROS_COUNTS(incomplete))                                                           \
        X(slice_frames, "frames that the ROS read for slices of time or joined fragments")                   \
        X(slice_frames_used, "frames in a slice or joined fragment whose event has ended")                   \
        X(slice_frames_copied, "frames copied into the slice after theirs, as overlap")                      \
        X(slice_frames_late, "frames that came after their slice closed, or whose event did not wait",       \
          GROUPED(SLICE_FRAMES, "late"), LOST_AT(FRAMES))                                                    \
        X(slice_frames_dropped,                                                                              \
          "frames broken off, repeated, without room, or in no possible slice or fragment",                  \
          GROUPED(SLICE_FRAMES, "dropped"), LOST_AT(FRAMES))                                                 \
        X(slice_frames_left_over, "frames whose slice or fragment is open, or was no event",                 \
          GROUPED(SLICE_FRAMES, "left_over"), LOST_AT(FRAMES))                                               \
        X(slice_restarts, "times that the board's time went back, or far ahead")                             \
        X(fragments_absent, "fragments of ended events whose frame did not come",                            \
          IN_AS(FRONT_ENDS, "absent", ROS), ROS_COUNTS(absent))                                              \
        X(bytes_sent, "bytes of fragments that a ROS sent, chunk headers included", METRIC("sent_bytes"),    \
          IN(COUNTS, ROS))                                                                                   \
        X(packets_sent, "data datagrams sent")                                                               \
        X(packets_full, "data datagrams sent with no room for more")                                         \
        X(packets_send_failed, "data datagrams that the kernel refused to send",                             \
          IN_AS(DROPS, "send_failed_packets", ROS), LOST_AT(SEND_FAILED))                                    \
        X(packets_received, "data datagrams received")                                                       \
        X(packets_lost, "data datagrams missing by their sequence numbers", IN(COUNTS, ANY),                 \
          LOST_AT(NETWORK))                                                                                  \
        X(events_implausible, "fragments or requests whose event number is implausible",                     \
          ROS_COUNTS(implausible), SFI_COUNTS(implausible))                                                  \
        X(sequence_suspects, "messages whose sequence number is implausible", ROS_COUNTS(clear_suspects))    \
        X(packets_foreign, "datagrams of another run, program or version", GROUPED(PACKETS, "foreign"),      \
          LOST_AT(FOREIGN))                                                                                  \
        X(packets_malformed, "malformed datagrams", GROUPED(PACKETS, "malformed"), LOST_AT(FOREIGN))         \
        X(control_untagged, "control messages refused because they have no tag (network.key-file)",          \
          GROUPED(PACKETS, "untagged"), LOST_AT(FOREIGN))                                                    \
        X(control_wrong_key, "control messages refused because another key made their tag",                  \
          GROUPED(PACKETS, "wrong_key"), LOST_AT(FOREIGN))                                                   \
        X(control_replayed, "control messages refused because they came before, or were for another node",   \
          GROUPED(PACKETS, "replayed"), LOST_AT(FOREIGN))                                                    \
        X(control_unproven, "control messages refused because their session was not proven yet, or is over", \
          GROUPED(PACKETS, "unproven"), LOST_AT(FOREIGN))                                                    \
        X(control_no_key, "control messages refused because they have a tag and this node has no key",       \
          GROUPED(PACKETS, "no_key"), LOST_AT(FOREIGN))                                                      \
        X(packets_socket_dropped, "datagrams dropped because this node's socket buffers were full",          \
          GROUPED(PACKETS, "socket_full"), IN_AS(DROPS, "socket_packets", ANY), LOST_AT(SOCKET))             \
        X(packets_source_dropped, "packets dropped by the ROS's own shaping",                                \
          IN_AS(DROPS, "source_qdisc_packets", ROS), LOST_AT(SOURCE_QDISC))                                  \
        X(packets_other_dropped, "packets that are not data and that a ROS's shaping dropped")               \
        X(pause_frames_received, "pause and PFC frames by which the switch held a ROS's device back")        \
        X(pause_frames_sent, "pause and PFC frames of a ROS's device, which could not receive fast enough")  \
        X(packets_device_dropped, "received packets dropped by a ROS's device, whose buffers were full")     \
        X(unshaped_ns, "time for which a ROS's shaping was missing or changed by others")                    \
        X(shaping_repairs, "repairs of a ROS's shaping after changes by others")                             \
        X(rate_reductions, "reductions of the rate to an SFI because packets were lost at its port")         \
        X(packets_port_lost, "packets lost at an SFI's port that led to reductions")                         \
        X(reduced_ns, "time for which the rate to an SFI was below the planned one")                         \
        X(clear_gaps, "Clear messages missing by their sequence numbers", ROS_COUNTS(clear_gaps))            \
        X(buffer_full, "fragments that did not fit into the ROS's buffer", ROS_COUNTS(full))                 \
        X(limit_decreases, "losses after which an SFI halved its limit of bytes in flight (pull)",           \
          SFI_COUNTS(limit_decreases))                                                                       \
        X(xoff, "times that a ROS asked to hold triggers back", ROS_COUNTS(xoff))                            \
        X(send_blocked, "times that the kernel's send buffer was full")                                      \
        X(reconnects, "TCP connections reopened")                                                            \
        X(file_bytes, "bytes written to event files", IN(COUNTS, SFI))                                       \
        X(events_stored, "events in closed event files")                                                     \
        X(events_not_written, "built events that an SFI dropped because the disk was slow", IN(COUNTS, SFI), \
          LOST_AT(DISK))                                                                                     \
        X(live_events, "built events given to consumers of live events", IN(COUNTS, SFI))                    \
        X(live_events_skipped, "built events that a consumer of live events wanted and was not ready for",   \
          IN(COUNTS, SFI))                                                                                   \
        X(live_events_lost,                                                                                  \
          "live events whose consumer ended before it had finished them, and no other one of its group had " \
          "room",                                                                                            \
          IN(COUNTS, SFI))                                                                                   \
        X(control_refused, "requests that run control refused for their address, token or content type")     \
        X(control_sent, "control messages sent")                                                             \
        X(control_received, "control messages received")                                                     \
        X(control_sent_bytes, "bytes of the control messages sent, with all headers")                        \
        X(control_received_bytes, "bytes of the control messages received, with all headers")

#define X(name, ...) COUNTER_##name,
enum { STATS_COUNTERS(X) COUNTERS };
#undef X

struct counter {
        const char *name, *help;
        size_t offset; /* offset in struct node_stats */
        const char *metric;
        enum counter_group group;
        const char *label;
        enum counter_object object;
        const char *key;
        unsigned roles; /* bits by COUNTER_ROLE(); 0: all */
        enum loss_place place;
        /* Offset in the counts of each source, plus 1; 0: not from that source. */
        uint16_t from[COUNTER_SOURCES];
};

#define COUNTER_ROLE(role) (1u << (role))

/* Indexed by COUNTER_name. */
extern const struct counter stats_table[COUNTERS];

struct node_stats {
        uint64_t magic; /* NODE_STATS_MAGIC once the rest is initialized */
        _Atomic uint32_t state;
        /* CLOCK_MONOTONIC times of the first and last complete event and the first trigger; 0: none yet. */
        _Atomic uint64_t first_complete_ns, last_complete_ns, first_trigger_ns;
        _Atomic uint64_t granted_receive_buffer_bytes, granted_send_buffer_bytes;
        _Atomic uint64_t output_left_s; /* of an SFI: see struct disk_trend */
        /* A ROS's shaping in the kernel: enum tc_backend, and the rate per destination. */
        _Atomic uint64_t qos_backend, qos_rate_bps;
        _Atomic uint64_t mtu_bytes; /* of a ROS's device; 0: unknown */
        /* Of a ROS whose frames have times: how far the board's clock is ahead of UTC, and what it gains on
         * this machine's, in 10^-9, both signed; by about how much this may be wrong. */
        _Atomic uint64_t board_clock_known, board_ahead_ns, board_drift_ppb, board_drift_error_ppb;
#define X(name, ...) _Atomic uint64_t name;
        STATS_COUNTERS(X)
#undef X
        struct histogram latency_ns; /* time from the trigger to the end of the event, by the DFM's clock */
        struct histogram level2_latency_ns; /* time from the trigger to the decision */
        struct obstacle_board obstacle;     /* what the node is waiting for */
        struct obstacle_board last_stall;   /* reason for the present or last stall */
};

#define NODE_STATS_MAGIC UINT64_C(0x3153544154425645) /* "EVBTATS1" */

enum node_state { NODE_STARTING, NODE_READY, NODE_RUNNING, NODE_DRAINING, NODE_SEALING, NODE_ENDED };

/* Resets the state, all counters, histograms and reasons for another run of the same process. Call it while
 * none of its threads counts. */
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

static inline uint64_t stats_value(const struct node_stats *s, size_t counter)
{
        return stats_get((const _Atomic uint64_t *)((const char *)s + stats_table[counter].offset));
}

static inline _Atomic uint64_t *stats_counter(struct node_stats *s, size_t counter)
{
        return (_Atomic uint64_t *)((char *)s + stats_table[counter].offset);
}

/* Returns the key of a counter in its object. */
const char *stats_key(const struct counter *c);
void stats_read(const struct node_stats *s, uint64_t ret[static COUNTERS]);
/* Adds all counters of another process that ran the same node. */
void stats_add_all(struct node_stats *to, const struct node_stats *from);

/* These functions copy the counts of a core. */
void stats_copy_dfm(struct node_stats *s, const struct dfm *d);
void stats_copy_ros(struct node_stats *s, const struct ros *r);
/* Only with level2.regions; open requests count as dropped. */
void stats_copy_regions(struct node_stats *s, const struct ros *r);
void stats_copy_level2(struct node_stats *s, const struct dfm *d); /* with level 2 */
void stats_copy_sfi(struct node_stats *s, const struct sfi *core);
/* Over UDP: copies the number of datagrams that the core has received. */
void stats_take_datagrams(struct node_stats *s, const struct sfi *core);
