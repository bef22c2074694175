/* The SFI as a whole, for the two files that join its parts: sfi.c (messages and time) and sfi_chunks.c
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
        bool final;                      /* its totals arrived after the end of the run */
        uint32_t source_drops;           /* in the ROS's own queue, by its last totals */
};

struct sfi {
        struct sfi_config config;
        enum run_state run_state; /* the DFM's */
        enum run_state state;     /* our own */
        bool failed;              /* the output, since then and for this reason */
        uint64_t failed_ns;
        enum node_reason failure;
        struct metadata_set metadata, arriving; /* of the run; `arriving` lacks names */
        uint16_t arrived;                       /* bit i: name i of these has come */
        bool metadata_known;                    /* a KeepAlive, or an event, has come from the DFM */
        uint16_t metadata_wanted;               /* version, by the last KeepAlive */
        uint64_t metadata_cookie;               /* of the run that they belong to */
        struct member member;
        uint64_t keep_alive_due_ns;
        uint64_t present_until_ns; /* the DFM's last word after the end counts this SFI as present until then
                                    */
        struct jump oldest_jump;
        struct sequence keep_alives; /* of this DFM */
        uint32_t alive_sequence;

        struct sfi_slots slots;
        struct sfi_retry retry;
        struct sfi_limit limit;
        bool has_gap; /* in the sequence numbers of datagrams since the last batch of chunks */
        uint64_t gaps_open, datagrams_late; /* when the present look at gaps began; late ones since */
        uint64_t gaps_seen;                 /* datagrams that count as lost */
        struct sfi_requests requests;
        struct sfi_ports ports;
        bool requests_wait; /* for the budget of a port */
        struct sfi_updates updates;

        struct sfi_sequence *sequences; /* of each ROS */
        struct port_rate rate;
        uint64_t rate_due_ns;             /* time of the next Rate; NEVER_NS: none */
        uint32_t rate_sent, rate_repeats; /* share in the last Rate; Rates to send after recovery */
        uint64_t socket_drops, source_drops;
        struct node_totals totals; /* of the run, also across a restart of the DFM */
        struct sfi_counts counts;
};

/* sfi_end.c: takes the set of present SFIs from a KeepAlive. */
void sfi_record_presence(struct sfi *s, uint64_t now_ns, const uint64_t *sfi_live);
/* sfi_metadata.c: takes one name. */
void sfi_receive_metadata(struct sfi *s, uint64_t now_ns, const struct message *m);
/* Another DFM: forgets those of a run that did not begin, as this DFM counts its versions from the beginning.
 */
void sfi_leave_metadata(struct sfi *s);
/* In sfi_waits.c. */
uint64_t sfi_mean_event_bytes(const struct sfi *s);
/* sfi_waits.c: finds the events that only wait for silent ROSs. True: there are more of them. */
bool sfi_count_waiting(struct sfi *s, uint64_t now_ns);
/* sfi_chunks.c: how many datagrams a ROS has sent. False: it makes no sense. */
bool sfi_receive_totals(struct sfi *s, const struct message *m);
/* sfi_chunks.c: some time after a gap, when packets in another order have arrived: decides whether datagrams
 * were lost. */
void sfi_check_gaps(struct sfi *s, uint64_t now_ns);
/* sfi_chunks.c: makes the next Rate that is due; false: none. */
bool sfi_make_rate(struct sfi *s, uint64_t now_ns, struct message_to *ret_to, struct message *ret);
uint64_t sfi_rate_deadline_ns(const struct sfi *s);
