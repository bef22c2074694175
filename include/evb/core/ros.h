/* The readout (ROS) as a pure state machine: it joins a run, holds fragments in a bounded buffer until
 * they are cleared, and tells the caller which to send to whom, for push assignments and for requests
 * alike. It sees no payload: an entry names its place, an offset in a buffer of the caller's. One thread;
 * nothing is allocated after ros_new().
 *
 * A fragment is HELD from the moment it is made (or arrives) until it is cleared; sending does not end
 * that. There are two kinds of sources: fragments made on request (pattern, file: ros_config.describe),
 * and those that arrive by themselves, frame k for event k. Of the latter only triggered ones count for
 * XOFF: frames ahead of the trigger wait in the front-end once the buffer is full. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "evb/core/dfm.h"
#include "evb/protocol/chunk.h"
#include "evb/protocol/member.h"
#include "evb/protocol/message.h"

/* What a source has for an event. */
struct ros_fragment {
        uint32_t bytes; /* at most EVB_FRAGMENT_MAX_BYTES; 0 unless the status is FRAGMENT_OK or _TRUNCATED */
        uint16_t order;
        uint8_t form, status;
};

struct ros_config {
        struct member_config member;
        uint16_t index;
        uint32_t n_sfi;
        uint32_t entries; /* fragments held at most */
        uint64_t buffer_bytes;
        uint64_t keep_alive_ns;
        /* Made at the asking: what the fragment of this event is; pure. NULL: fragments arrive by themselves.
         */
        void (*describe)(void *ctx, uint64_t event, uint32_t l1_id, struct ros_fragment *ret);
        void *describe_ctx;
        uint64_t pending_after_ns; /* asked for again so long after it was first asked for: it is reported as
                                      pending */
        uint32_t waiting_max;      /* fragments asked for and not arrived, above which triggers are held back
                                      (XOFF) */
};

/* A fragment, or a part of it, to be sent to one SFI. */
struct ros_job {
        struct chunk_job job; /* payload is NULL: it lies at `at` */
        uint64_t at;          /* in the buffer; ARENA_NONE: no bytes */
        uint32_t entry;       /* for ros_pin(); UINT32_MAX: nothing is held for it */
        bool fill;            /* the caller must make the bytes now */
};

enum ros_verdict {
        ROS_STORE,
        ROS_FULL,    /* no room now */
        ROS_CLEARED, /* its event has ended */
};

struct ros_counts {
        uint64_t fragments_sent; /* jobs that went out whole */
        uint64_t unknown;        /* requests for what is not held */
        uint64_t implausible;    /* requests for events far beyond all known ones */
        uint64_t full;           /* fragments that found no room */
        uint64_t source_lost;
        uint64_t clear_gaps;     /* Clear messages that the sequence misses */
        uint64_t clear_suspects; /* Clears whose sequence number jumped too far to be believed */
        uint64_t xoff;
};

struct ros;

int ros_new(struct ros **ret, const struct ros_config *config, uint64_t now_ns); /* -EINVAL, -ENOMEM */
struct ros *ros_free(struct ros *r);

/* A decoded control message; false where it makes no sense. */
bool ros_receive(struct ros *r, uint64_t now_ns, const struct message *m);
/* The next message that is due (Alive, XON, XOFF, Totals). False: nothing more now. */
bool ros_step(struct ros *r, uint64_t now_ns, struct message_to *ret_to, struct message *ret);
uint64_t ros_deadline_ns(const struct ros *r);

/* An SFI at or after `from` that has something to be sent; UINT32_MAX: none. */
uint32_t ros_next_with_jobs(const struct ros *r, uint32_t from);
/* The oldest jobs for an SFI, at most n; they stay until ros_sent() says that the first `done` of them are
 * out, and that of the next one the bytes below `next_offset` are. */
size_t ros_jobs(struct ros *r, uint32_t sfi, struct ros_job *jobs, size_t n);
void ros_sent(struct ros *r, uint32_t sfi, size_t done, uint32_t next_offset);
/* The number of the next data datagram to an SFI; `n` were sent. */
uint32_t ros_transaction(const struct ros *r, uint32_t sfi);
void ros_count_datagrams(struct ros *r, uint32_t sfi, uint32_t n);
/* The entry's bytes are in use by the caller and stay, even if cleared, until unpinned. */
void ros_pin(struct ros *r, uint32_t entry);
void ros_unpin(struct ros *r, uint32_t entry);
/* An SFI is gone or has restarted: drops what waits to be sent to it. */
void ros_forget_sfi(struct ros *r, uint32_t sfi);

/* Sources that arrive: event `r`'s next frame has come, `bytes` long (ROS_STORE: copy it to *ret_at, then
 * ros_commit()). */
enum ros_verdict ros_arrive(struct ros *r, const struct ros_fragment *f, uint64_t *ret_at);
void ros_commit(struct ros *r);
/* The next `n` frames will never come, or could not be stored. */
void ros_skip(struct ros *r, uint64_t n);

/* Serve what is asked, then leave: see ros_is_drained(). */
void ros_stop(struct ros *r, uint64_t now_ns);
/* The run is over (or ros_stop() was called and nothing triggered is held), and the send queues are empty. */
bool ros_is_drained(const struct ros *r);
void ros_set_ended(struct ros *r, uint64_t now_ns);
enum run_state ros_run_state(const struct ros *r);
/* Cookie, run number, time of the DFM's last message, and whether the DFM has refused this node. */
const struct member *ros_member(const struct ros *r);
/* Sets what Alive reports: frames may belong to other triggers (permanent); the front-end is silent; why the
 * ROS makes no progress, and since when (0: REASON_NONE). */
void ros_set_unreliable(struct ros *r);
void ros_set_quiet(struct ros *r, bool quiet);
void ros_set_reason(struct ros *r, enum node_reason reason, uint64_t since_ns);
/* Which SFIs are there, as the DFM says: bit i % 64 of word i / 64; before the run all. */
const uint64_t *ros_sfi_live(const struct ros *r);

const struct ros_counts *ros_counts(const struct ros *r);
uint32_t ros_held(const struct ros *r);
