/* The SFI as a whole, for the two files that join its parts: sfi.c (messages and time) and sfi_chunks.c
 * (data). Each part is a struct and a file of its own; slots and the retry timer call no other part. */
#pragma once

#include "evb/core/sfi.h"
#include "evb/protocol/jump.h"
#include "evb/protocol/sequence.h"
#include "sfi_requests.h"
#include "sfi_flow.h"
#include "sfi_slots.h"
#include "sfi_update.h"

/* Data datagrams of one ROS by their sequence numbers. */
struct sfi_sequence {
        struct sequence numbers;
        bool final; /* its totals arrived after the end of the run */
};

struct sfi {
        struct sfi_config config;
        enum run_state run_state; /* the DFM's */
        enum run_state state;     /* our own */
        bool failed;
        struct member member;
        uint64_t keep_alive_due_ns;
        struct jump oldest_jump;
        struct sequence keep_alives; /* of this DFM */
        uint32_t alive_sequence;

        struct sfi_slots slots;
        struct sfi_retry retry;
        struct sfi_limit limit;
        bool has_gap; /* in the sequence numbers of datagrams since the last batch of chunks */
        uint64_t gaps_seen;
        struct sfi_requests requests;
        struct budget request_budget; /* of what this SFI sends to the port of each ROS */
        bool requests_wait;           /* for that budget */
        struct sfi_updates updates;

        struct sfi_sequence *sequences; /* of each ROS */
        struct node_totals totals;      /* of the run, also across a restart of the DFM */
        struct sfi_counts counts;
};

/* sfi_chunks.c: how many datagrams a ROS has sent. False: it makes no sense. */
bool sfi_receive_totals(struct sfi *s, const struct message *m);
/* sfi_chunks.c: some time after a gap, when packets in another order have arrived: decides whether datagrams
 * were lost. */
void sfi_check_gaps(struct sfi *s, uint64_t now_ns);
