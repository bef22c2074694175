/* The builder (SFI) as a pure state machine: chunks and messages in; memory offsets, requests, built events
 * and updates out. It joins a run, announces credits and, in pull, requests no more fragments than it can
 * receive. It retries missing fragments and ends every assigned event as complete, partial or lost. One
 * thread; sfi_new() makes all allocations, and buffer and slots bound the memory.
 *
 * It does not touch the payload: it reserves an offset for a chunk in a buffer of the caller; the caller
 * copies the payload there and commits it. A slot is EMPTY, COLLECTING, then BUILDING (complete or expired)
 * until the caller has stored it; the DFM is informed of slots whose writing takes a long time. Unassigned
 * events use a small share of the slots, and expire. Events survive a restart of the DFM. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "core/dfm.h"
#include "protocol/chunk.h"
#include "protocol/member.h"
#include "protocol/budget.h"
#include "protocol/message.h"
#include "protocol/port_rate.h"

struct sfi_config {
        struct member_config member;
        uint16_t index;
        uint32_t n_ros;
        bool pull;
        uint32_t slots; /* maximum number of events that are open or being written: enough for `credits`, or
                           for later increases */
        uint64_t buffer_bytes; /* for payload */
        uint32_t credits;      /* maximum number of assigned events; 0: derived, see sfi.c */
        uint32_t outstanding;  /* pull: maximum number of requested events; 0: bytes in flight are limited */
        uint64_t room_bytes;   /* bytes that can be in flight without loss (socket buffer); 0: unknown */
        /* pull: buffer and rate of the switch port to this SFI. 0: unknown; the limit of bytes in flight is
         * then found from losses and latency, and requests are not spaced. */
        uint64_t port_bytes, port_rate_bps;
        uint64_t timeout_ns;
        /* maximum consecutive unanswered retries; 0: none, UINT32_MAX: until the event times out */
        uint32_t retries_max;
        uint64_t retry_after_ns; /* 0, but in tests: derived from the measured latency */
        bool reliable;           /* the transport loses nothing: if retry_after_ns is 0, retry late */
        uint64_t keep_alive_ns;
        size_t message_bytes;   /* size of the largest message */
        uint32_t trailer_bytes; /* bytes that follow each message in a datagram and contain no fragments */
        uint32_t frame_overhead_bytes; /* bytes that a port counts per message: headers, preamble, gap */
        struct budget_plan control;
        const struct ros_rule *rules; /* one for each ROS, borrowed by sfi_new(); NULL: all are required */
        bool follows_losses; /* reports to the ROSs what share of the planned rate its port sustains */
};

/* The slots needed for `credits` credits: some more, for events whose fragments arrive before their
 * assignment. */
#define SFI_SLOTS_SPARE 16u
static inline uint32_t sfi_slots_for_credits(uint32_t credits)
{
        return credits + credits / 4 + SFI_SLOTS_SPARE;
}

/* The outcome for a chunk. */
enum sfi_verdict {
        SFI_STORE,
        SFI_LATE,      /* the event has ended, or was never assigned here */
        SFI_DUPLICATE, /* received before */
        SFI_MALFORMED, /* the chunk contradicts an earlier one, or has no valid source */
        SFI_MISMATCH,  /* the L1 ID is not that of the event: the chunk belongs to another trigger */
        SFI_NO_ROOM,   /* there is no slot or no memory; the chunk is requested again later */
};

struct sfi_chunk {
        struct chunk chunk;
        uint16_t source; /* ROS index */
        /* Set by sfi_reserve(). */
        enum sfi_verdict verdict;
        uint32_t slot;
        uint64_t at; /* SFI_STORE: offset of its first byte in the buffer */
};

/* A fragment of a built event. */
struct sfi_fragment {
        uint64_t at; /* in the buffer; ARENA_NONE: no bytes */
        uint32_t bytes;
        uint32_t blocks_received; /* units of EVB_BLOCK_BYTES */
        uint16_t order;
        uint8_t form, status;
        bool known;            /* some of the fragment arrived */
        bool split;            /* a chunk contained only a part of the fragment */
        bool whole;            /* all of the fragment arrived, or the ROS reported that it has none */
        bool retried, hurried; /* retried: requested again; hurried: the first retry was made because other
                                  fragments overtook it */
        bool refused; /* data arrived but found no memory, or lost it, and was not requested again since */
        bool skipped; /* the fragment was complete when its turn came, so it was never requested */
        bool counted_rest; /* the accounts of the ROS include a rest that was not requested */
        bool unsent;       /* the request did not reach the ROS, or the answer was lost with the connection */
        /* In pull by bytes: the bytes from 0 to `asked` are requested. The last request began at `asked_from`
         * and has number `asked_number` in the sequence of requests to the ROS. */
        uint32_t asked, asked_from, asked_number;
        uint64_t asked_ns;
        /* The chunks of a fragment arrive in order. A chunk at `mark` or beyond does not answer a request
         * from before the last retry, so data still missing below the newest such chunk, at `edge`, is lost.
         * Data below `lost_to` that the last retry requested was certainly lost, so a chunk there answers
         * that retry. */
        uint64_t retried_ns;
        uint32_t mark, edge, lost_to;
        uint32_t again_bytes; /* bytes that retries requested and that have not arrived yet */
        uint32_t rest_from;   /* where the budget ended the last retry: missing data from here is lost, too */
        /* Blocks that found no memory on arrival, or lost it. They are not in flight until they are requested
         * again. */
        uint32_t blocks_refused;
        uint64_t counted_bytes; /* in flight, as frames at the port, according to the accounts of the ROS */
};

/* FRAGMENT_NONE is the complete answer of this ROS for the event, so the fragment counts as present. */
static inline bool sfi_fragment_is_present(const struct sfi_fragment *f)
{
        return f->whole &&
               (f->status == FRAGMENT_OK || f->status == FRAGMENT_NONE || f->status == FRAGMENT_TRUNCATED);
}

struct sfi_built {
        struct event_info info;
        uint64_t event;
        enum event_end end; /* EVENT_LOST: there is nothing to write, so only release the slot */
        bool is_elsewhere; /* the event is lost here because it has ended or is being built on another SFI, so
                              it does not count here */
        bool assigned_again;
        bool l1_mismatch;                     /* incomplete, and fragments with another L1 ID were refused */
        const struct sfi_fragment *fragments; /* one for each ROS; valid until sfi_written() */
};

struct sfi_counts {
        uint64_t assigned, complete, partial, lost;
        uint64_t payload_bytes;      /* of complete events */
        uint64_t fragments_received; /* whole fragments of ended events */
        uint64_t fragments_lost;
        uint64_t fragments_absent; /* of optional ROSs, in ended events */
        uint64_t implausible;      /* chunks of events far beyond all assigned events */
        uint64_t late, duplicate, malformed, no_room, retried, recovered;
        uint64_t mismatched; /* fragments refused because their L1 ID is not that of the event */
        uint64_t datagrams_received;
        uint64_t datagrams_lost;    /* none that may still arrive; see sfi_expect_no_datagrams() */
        uint64_t datagrams_suspect; /* the sequence number jumped too far to be trusted */
        uint64_t starved;           /* events that ended incomplete after fragments found no memory */
        uint64_t limit_decreases;   /* losses that decreased the limit of bytes in flight */
};

/* Counts for one ROS. struct sfi_counts has the sums over all ROSs. */
struct sfi_source_counts {
        uint64_t fragments_received, fragments_lost, fragments_absent;
        uint64_t bytes; /* of payload, in the fragments received */
        uint64_t datagrams_received, datagrams_lost;
};

struct sfi;

int sfi_new(struct sfi **ret, const struct sfi_config *config, uint64_t now_ns); /* -EINVAL, -ENOMEM */
struct sfi *sfi_free(struct sfi *s);

/* Hot path, in batches: first reserve, then commit once the payload of all SFI_STORE chunks is copied. */
void sfi_reserve(struct sfi *s, uint64_t now_ns, struct sfi_chunk *chunks, size_t n);
void sfi_commit(struct sfi *s, uint64_t now_ns, const struct sfi_chunk *chunks, size_t n);
/* Whether an SFI_STORE chunk still owns its memory. This check is needed if the payload arrives later than
 * the chunk header. */
bool sfi_is_reserved(const struct sfi *s, const struct sfi_chunk *p);
/* Counts a data datagram of ROS `source`, whatever it contains. True: it is the newest datagram of this
 * ROS. */
bool sfi_count_datagram(struct sfi *s, uint16_t source, uint32_t transaction);
/* The newest data message of ROS `source` reports that `bytes` more bytes are queued there for this SFI. The
 * SFI requests from idle ROSs first. */
void sfi_record_queued(struct sfi *s, uint64_t now_ns, uint16_t source, uint32_t bytes);
/* Over TCP: ROS `source` opened a connection, or its connection has room again after the ROS dropped
 * requests. All previous requests and their answers may be lost, so the next steps request the missing
 * fragments again. */
void sfi_record_connected(struct sfi *s, uint64_t now_ns, uint16_t source);
/* Total number of data datagrams that the caller's own socket has dropped. */
void sfi_set_socket_drops(struct sfi *s, uint64_t drops);
/* The share of the planned rate that the port sustains, and its history. */
const struct port_rate *sfi_port_rate(const struct sfi *s);

/* Processes a decoded control message. False: the message is invalid. */
bool sfi_receive(struct sfi *s, uint64_t now_ns, const struct message *m);
/* Makes the next message that is due; a Request to MESSAGE_TO_ALL goes to every ROS in turn. False: none is
 * due. */
bool sfi_step(struct sfi *s, uint64_t now_ns, struct message_to *ret_to, struct message *ret);
uint64_t sfi_deadline_ns(const struct sfi *s);

/* Returns slots that are ready for writing, at most n. The caller returns each with sfi_written(). */
size_t sfi_pop_built(struct sfi *s, uint32_t *slots, size_t n);
void sfi_built_event(const struct sfi *s, uint32_t slot, struct sfi_built *ret);
/* Releases the slot after the caller has handled it. `failed`: the event could not be written, so it is
 * lost. */
void sfi_written(struct sfi *s, uint64_t now_ns, uint32_t slot, bool failed);

/* Settings that can change while the SFI runs; members as in struct sfi_config. */
struct sfi_settings {
        uint32_t credits, outstanding, retries_max;
};

/* Changes all settings, in any state. The SFI keeps the credits that it has granted: with fewer, it grants
 * none until events have ended. Retries that are due keep their time. The caller must check the settings with
 * the functions below. */
void sfi_change(struct sfi *s, uint64_t now_ns, const struct sfi_settings *to);
/* The process did not run for `away_ns` and has not read its sockets since: extends the time-outs of events
 * by that time, up to sfi.timeout from now, and that of the DFM. */
void sfi_was_paused(struct sfi *s, uint64_t now_ns, uint64_t away_ns);
/* Maximum number of credits that the slots allow. */
uint32_t sfi_credits_max(const struct sfi *s);
/* False: the change would make pull count events instead of bytes in flight, or the reverse. */
bool sfi_may_change_outstanding(const struct sfi *s, uint32_t outstanding);
/* Accepts no new events, finishes the open events, and then leaves. */
void sfi_stop(struct sfi *s, uint64_t now_ns);
/* Whether no event is open or being written, and the run has ended or sfi_stop() was called: files can be
 * closed. */
bool sfi_is_drained(const struct sfi *s);
/* Number of built events whose end the DFM has not acknowledged. If the SFI was silent, the DFM may have
 * assigned these events again. */
uint64_t sfi_unacknowledged(const struct sfi *s);
/* Whether every live ROS reported its number of datagrams after the end of the run, and all these datagrams
 * arrived before the report. */
bool sfi_has_totals(const struct sfi *s);
/* The caller waits for no more datagrams of this run, so those that ROSs reported and that have not arrived
 * are lost. Until then they may be on their way. */
void sfi_expect_no_datagrams(struct sfi *s);
/* Reports to the DFM that files are closed, or that output failed and the run must end. */
void sfi_set_ended(struct sfi *s, uint64_t now_ns);
/* After the end of the run: whether the DFM has not acknowledged yet that this SFI has left. */
bool sfi_is_awaited(const struct sfi *s, uint64_t now_ns);
/* Records why the output failed; only the first reason counts. REASON_NONE: the protocol does not define a
 * matching reason. */
void sfi_set_failed(struct sfi *s, uint64_t now_ns, enum node_reason why);
/* Reports to the DFM that the SFI found a fault that the ends of its events do not show, such as corrupt
 * fragments. */
void sfi_set_faulty(struct sfi *s);
/* What the SFI waits for, as reported to the DFM. With REASON_WAITS_FOR: the ROSs whose fragments are missing
 * from its oldest event. */
struct node_obstacle sfi_obstacle(const struct sfi *s, uint64_t now_ns);
/* The DFM's last reported state; RUN_STARTING before the first report. */
enum run_state sfi_run_state(const struct sfi *s);
/* Cookie, run number, time of the DFM's last message, and any refusal by the DFM. */
const struct member *sfi_member(const struct sfi *s);
/* The metadata with which an operator started the run; version 0: none. NULL: the metadata has not arrived
 * completely, so no file can be opened. */
const struct metadata_set *sfi_metadata(const struct sfi *s);

struct sfi_counts sfi_counts(const struct sfi *s);
/* The counts of sfi_counts() without the sums over the ROSs: datagrams_lost and datagrams_suspect are 0. */
const struct sfi_counts *sfi_event_counts(const struct sfi *s);
struct sfi_source_counts sfi_source_counts(const struct sfi *s, uint32_t ros);
/* Maximum number of events assigned to the SFI at a time; 0 unless the run is running. */
uint32_t sfi_credits(const struct sfi *s);
uint32_t sfi_open_events(const struct sfi *s);
uint64_t sfi_buffer_used_bytes(const struct sfi *s);
/* In pull without a limit of outstanding events: the maximum number of bytes, as frames at the port, that
 * this SFI has requested and not received; uses `port_bytes`, `room_bytes` and `message_bytes`. The
 * derivation is in src/core/sfi/sfi_flow.h. */
uint64_t sfi_in_flight_max_bytes(const struct sfi_config *config);
