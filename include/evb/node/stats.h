/* The counters of one node, in a page that outlives its process: `evb run` passes each node a memfd, so that
 * the accounts of a node that is killed are still there. One table gives every counter its name and meaning.
 * Written by the node (each counter by one thread), read by anyone at any time. */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

#include "evb/base/histogram.h"
#include "evb/protocol/event.h"

/* X(name, what it counts). Unit: events, fragments, packets or bytes by name; times in ns. */
#define STATS_COUNTERS(X)                                                                                    \
        X(triggers, "triggers accepted by the DFM")                                                          \
        X(events_assigned, "assignments made, Build included")                                               \
        X(events_reassigned, "events assigned again to another SFI")                                         \
        X(events_complete, "events built whole")                                                             \
        X(events_partial, "events built without some fragment")                                              \
        X(events_lost, "triggers that ended without an event")                                               \
        X(events_ended_again, "events that a second SFI finished after they had ended")                      \
        X(busy_ns, "time for which triggers were held back")                                                 \
        X(payload_bytes, "fragment payload of complete events")                                              \
        X(fragments_expected, "fragments that the ended events should have had")                             \
        X(fragments_received, "fragments that the ended events had")                                         \
        X(fragments_lost, "fragments that the ended events lacked")                                          \
        X(fragments_late, "fragments of an event that had ended")                                            \
        X(fragments_duplicate, "fragments that were there already")                                          \
        X(fragments_corrupt, "fragments whose bytes are not what the source made")                           \
        X(fragments_re_asked, "fragments asked for again")                                                   \
        X(fragments_recovered, "fragments that came after they were asked for again")                        \
        X(fragments_no_room, "fragments for which the SFI had no memory")                                    \
        X(fragments_sent, "fragments sent by a ROS")                                                         \
        X(fragments_unknown, "requests for a fragment that the ROS no longer or not yet holds")              \
        X(fragments_source_lost, "fragments lost between front-end and ROS")                                 \
        X(front_end_gaps, "losses after which frames of the front-end may not match triggers")               \
        X(bytes_sent, "bytes of fragments sent by a ROS, chunk headers included")                            \
        X(packets_sent, "data datagrams sent")                                                               \
        X(packets_send_failed, "data datagrams that the kernel refused to send")                             \
        X(packets_received, "data datagrams received")                                                       \
        X(packets_lost, "data datagrams that the sequence numbers miss")                                     \
        X(events_implausible, "fragments or requests of an event far beyond all known ones")                 \
        X(sequence_suspects, "messages whose sequence number jumped too far to be believed")                 \
        X(packets_foreign, "datagrams of another run, program or version")                                   \
        X(packets_malformed, "datagrams that contradict themselves")                                         \
        X(packets_socket_dropped, "datagrams dropped by this node's full socket buffers")                    \
        X(packets_source_dropped, "packets dropped at the source by its own shaping: an alarm")              \
        X(unshaped_ns, "time for which a ROS's shaping was missing or changed by others")                    \
        X(shaping_repairs, "times a ROS repaired its shaping after others had changed it")                   \
        X(clear_gaps, "clear messages that the sequence numbers miss")                                       \
        X(buffer_full, "fragments that found no room in the ROS's buffer")                                   \
        X(xoff, "times this ROS asked for triggers to be held back")                                         \
        X(send_blocked, "times the kernel's send buffer was full")                                           \
        X(reconnects, "TCP connections made again")                                                          \
        X(file_bytes, "bytes of event files written")                                                        \
        X(events_stored, "events in closed event files")                                                     \
        X(control_sent, "control messages sent")                                                             \
        X(control_received, "control messages received")

struct node_stats {
        uint64_t magic; /* NODE_STATS_MAGIC once the page is set up */
        _Atomic uint32_t state;
        /* Clock of the counters: CLOCK_MONOTONIC ns of the first and the last complete event; 0: none yet. */
        _Atomic uint64_t first_complete_ns, last_complete_ns;
        _Atomic uint64_t granted_receive_buffer_bytes, granted_send_buffer_bytes;
        /* Of a ROS's shaping, as the kernel has it: enum tc_backend, and the rate for one destination. */
        _Atomic uint64_t qos_backend, qos_rate_bps;
        _Atomic uint64_t mtu_bytes, rx_usecs, rx_frames, tx_usecs,
                tx_frames; /* of its device; UINT32_MAX: not to be had */
#define X(name, help) _Atomic uint64_t name;
        STATS_COUNTERS(X)
#undef X
        struct histogram latency_ns; /* trigger to end of event, by the DFM's clock */
};

#define NODE_STATS_MAGIC UINT64_C(0x3153544154425645) /* "EVBTATS1" */

enum node_state { NODE_STARTING, NODE_READY, NODE_RUNNING, NODE_DRAINING, NODE_SEALING, NODE_ENDED };

/* One writer a counter, so a relaxed load and store do. */
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
