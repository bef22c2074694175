/* The builder (SFI) as a pure state machine: pieces of fragments and messages in; places for payload,
 * requests, built events and updates out. It joins a run, announces credits, in pull asks the ROSs for no
 * more than it can take, collects, asks again for what is missing, and ends every event that was assigned
 * to it as complete, partial or lost. One thread; nothing is allocated after sfi_new(), and its memory
 * bound is its buffer and its slots.
 *
 * It sees no payload: it gives a piece a place (an offset in a buffer of the caller's), the caller copies
 * the piece there and reports that. A slot is EMPTY, COLLECTING, then BUILDING (complete, or expired)
 * until the caller has stored it; the DFM learns of a slot whose writing takes long. Events that are not
 * assigned to this SFI use a small, aged share of the slots. An event survives a restart of the DFM. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "evb/base/arena.h"
#include "evb/core/dfm.h"
#include "evb/protocol/chunk.h"
#include "evb/protocol/member.h"
#include "evb/protocol/message.h"

struct sfi_config {
        struct member_config member;
        uint16_t index;
        uint32_t n_ros;
        bool pull;
        uint32_t slots;        /* events open or being written */
        uint64_t buffer_bytes; /* for payload */
        uint32_t credits;      /* events that may be assigned at a time; 0: from what fits */
        uint32_t outstanding;  /* pull: events asked for at a time; 0: from what fits */
        uint64_t room_bytes;   /* what may be on its way at a time without loss (socket buffer); 0: no bound
                                  known */
        uint64_t timeout_ns;
        /* maximum consecutive unanswered retries; 0: none, UINT32_MAX: until the event times out */
        uint32_t retries_max;
        uint64_t retry_after_ns; /* 0: from what is usual */
        bool reliable; /* the transport loses nothing by itself: where retry_after_ns is 0, ask again late */
        uint64_t keep_alive_ns;
        size_t message_bytes; /* largest message */
};

/* What becomes of a piece. */
enum sfi_verdict {
        SFI_STORE,
        SFI_LATE,      /* its event has ended, or was never ours */
        SFI_DUPLICATE, /* it is there already */
        SFI_MALFORMED, /* contradicts what came before, or no such source */
        SFI_NO_ROOM,   /* no slot or no memory: it will be asked for again */
};

struct sfi_chunk {
        struct chunk chunk;
        uint16_t source; /* ROS index */
        /* Answers of sfi_reserve(). */
        enum sfi_verdict verdict;
        uint32_t slot;
        uint64_t at; /* SFI_STORE: where its first byte goes in the buffer */
};

/* A fragment of a built event. */
struct sfi_fragment {
        uint64_t at; /* in the buffer; ARENA_NONE: no bytes */
        uint32_t bytes;
        uint32_t blocks_received; /* units of EVB_BLOCK_BYTES that have come */
        uint16_t order;
        uint8_t form, status;
        bool known;    /* something of it has come */
        bool in_parts; /* some piece of it was not all of it */
        bool whole;    /* all of it has, or the ROS said that there is nothing */
        bool asked_again;
};

struct sfi_built {
        struct event_info info;
        uint64_t event;
        enum event_end end; /* EVENT_LOST: nothing to write, the slot is only handed back */
        bool assigned_again;
        const struct sfi_fragment *fragments; /* one a ROS; until sfi_written() */
};

struct sfi_counts {
        uint64_t assigned, complete, partial, lost;
        uint64_t payload_bytes;      /* of complete events */
        uint64_t fragments_received; /* whole fragments of ended events */
        uint64_t fragments_lost;
        uint64_t implausible; /* chunks of events far beyond all assigned ones */
        uint64_t late, duplicate, malformed, no_room, re_asked, recovered;
        uint64_t datagrams_received, datagrams_lost;
        uint64_t datagrams_suspect; /* whose sequence number jumped too far to be believed */
};

struct sfi;

int sfi_new(struct sfi **ret, const struct sfi_config *config, uint64_t now_ns); /* -EINVAL, -ENOMEM */
struct sfi *sfi_free(struct sfi *s);

/* Hot path, for batches: first the places, then, once the payload of all SFI_STORE ones is copied, that it is
 * there. */
void sfi_reserve(struct sfi *s, uint64_t now_ns, struct sfi_chunk *pieces, size_t n);
void sfi_commit(struct sfi *s, uint64_t now_ns, const struct sfi_chunk *pieces, size_t n);
/* The place of a SFI_STORE piece is still its own: to be asked where the payload comes in later than the
 * chunk header. */
bool sfi_is_reserved(const struct sfi *s, const struct sfi_chunk *piece);
/* One data datagram of ROS `source` has come, whatever is in it. */
void sfi_count_datagram(struct sfi *s, uint16_t source, uint32_t transaction);

/* A decoded control message; false where it makes no sense. */
bool sfi_receive(struct sfi *s, uint64_t now_ns, const struct message *m);
/* The next message that is due; a Request to MESSAGE_TO_ALL goes to every ROS in turn. False: nothing more
 * now. */
bool sfi_step(struct sfi *s, uint64_t now_ns, struct message_to *ret_to, struct message *ret);
uint64_t sfi_deadline_ns(const struct sfi *s);

/* Slots that are ready to be written, at most n; each is handed back by sfi_written(). */
size_t sfi_take_built(struct sfi *s, uint32_t *slots, size_t n);
void sfi_built_event(const struct sfi *s, uint32_t slot, struct sfi_built *ret);
/* The caller has done with the slot. Failed: it could not be written; the event is lost. */
void sfi_written(struct sfi *s, uint64_t now_ns, uint32_t slot, bool failed);

/* No new events: finish those that it has, then leave. */
void sfi_stop(struct sfi *s, uint64_t now_ns);
/* Nothing is open or being written, and the run has ended or sfi_stop() was called: time to close files. */
bool sfi_is_drained(const struct sfi *s);
/* Built events whose end the DFM has not acknowledged: after a silence it may have given them to another SFI.
 */
uint64_t sfi_unacknowledged(const struct sfi *s);
/* Every living ROS has told how many datagrams it sent, after the end of the run. */
bool sfi_has_totals(const struct sfi *s);
/* Files are closed: tell the DFM. Output has failed: the run must end. */
void sfi_set_ended(struct sfi *s, uint64_t now_ns);
void sfi_set_failed(struct sfi *s, uint64_t now_ns);
/* The DFM's last reported state; RUN_STARTING before. */
enum run_state sfi_run_state(const struct sfi *s);
/* Cookie, run number, time of the DFM's last message, and whether the DFM has refused this node. */
const struct member *sfi_member(const struct sfi *s);

const struct sfi_counts *sfi_counts(const struct sfi *s);
uint32_t sfi_open_events(const struct sfi *s);
uint64_t sfi_buffer_used_bytes(const struct sfi *s);
uint64_t sfi_retry_after_ns(const struct sfi *s);
