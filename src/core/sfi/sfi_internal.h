/* The SFI as a whole, for the two files that connect its parts: sfi.c (messages and time) and sfi_chunks.c
 * (data). Each part is a struct and a file of its own; slots and the retry timer call no other part. */
#pragma once

#include "core/sfi.h"
#include "protocol/jump.h"
#include "protocol/sequence.h"
#include "sfi_requests.h"
#include "sfi_flow.h"
#include "sfi_slots.h"
#include "sfi_update.h"

/* Data datagrams of one ROS by their sequence numbers, and its fragments in ended events. */
struct sfi_sequence {
        struct sequence numbers;
        uint64_t received, lost, absent; /* fragments */
        uint64_t bytes;                  /* of payload, in those received */
        bool final;                      /* the ROS's totals arrived after the end of the run */
        uint32_t source_drops;           /* packets dropped in the ROS's own queue, by its last totals */
};

struct sfi {
        struct sfi_config config;
        enum run_state run_state; /* the DFM's */
        enum run_state state;     /* the SFI's */
        bool failed;              /* whether the output failed, when, and why */
        uint64_t failed_ns;
        enum node_reason failure;
        struct metadata_set metadata, arriving; /* of the run; `arriving` is incomplete */
        uint16_t arrived;                       /* bit i: name i of `arriving` has come */
        bool metadata_known;                    /* a KeepAlive, or an event, has come from the DFM */
        uint16_t metadata_wanted;               /* version, by the last KeepAlive */
        uint64_t metadata_cookie;               /* of the run that they belong to */
        struct member member;
        uint64_t keep_alive_due_ns;
        uint64_t present_until_ns; /* after the end, the DFM counts this SFI as present until then */
        struct jump oldest_jump;
        struct sequence keep_alives; /* of this DFM */
        uint32_t alive_sequence;

        struct sfi_slots slots;
        struct sfi_retry retry;
        struct sfi_limit limit;
        bool has_gap; /* a gap in the sequence numbers of datagrams since the last batch of chunks */
        uint64_t gaps_open, datagrams_late; /* when the present check of gaps began; late datagrams since */
        uint64_t gaps_seen;                 /* datagrams that count as lost */
        struct sfi_requests requests;
        struct sfi_ports ports;
        bool requests_wait; /* requests wait for the budget of a port */
        struct sfi_updates updates;

        struct sfi_sequence *sequences; /* of each ROS */
        struct port_rate rate;
        uint64_t rate_due_ns;             /* time of the next Rate; NEVER_NS: none */
        uint32_t rate_sent, rate_repeats; /* share in the last Rate; number of Rates to send after recovery */
        uint64_t socket_drops, source_drops;
        struct node_totals totals; /* of the run, also across a restart of the DFM */
        struct sfi_counts counts;
};

/* sfi_end.c: records the set of present SFIs from a KeepAlive. */
void sfi_record_presence(struct sfi *s, uint64_t now_ns, const uint64_t *sfi_live);
/* sfi_metadata.c: accepts one name. */
void sfi_receive_metadata(struct sfi *s, uint64_t now_ns, const struct message *m);
/* A new DFM: discards the metadata of a run that did not begin, because this DFM counts versions from the
 * beginning. */
void sfi_leave_metadata(struct sfi *s);
/* In sfi_waits.c. */
uint64_t sfi_mean_event_bytes(const struct sfi *s);
/* sfi_waits.c: finds the events that only wait for silent ROSs. True: their number grew. */
bool sfi_count_waiting(struct sfi *s, uint64_t now_ns);
/* sfi_chunks.c: records how many datagrams a ROS has sent. False: the message is invalid. */
bool sfi_receive_totals(struct sfi *s, const struct message *m);
/* sfi_chunks.c: some time after a gap, once reordered packets have arrived: decides whether datagrams were
 * lost. */
void sfi_check_gaps(struct sfi *s, uint64_t now_ns);
/* sfi_chunks.c: makes the next Rate that is due; false: none. */
bool sfi_make_rate(struct sfi *s, uint64_t now_ns, struct message_to *ret_to, struct message *ret);
uint64_t sfi_rate_deadline_ns(const struct sfi *s);
