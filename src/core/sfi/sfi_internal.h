/* The SFI as a whole, for the two files that connect its parts: sfi.c (messages and time) and sfi_chunks.c
 * (data). Each part has a struct and a file of its own. Slots and the retry timer call no other part. */
#pragma once

#include "core/sfi.h"
#include "protocol/event_set.h"
#include "protocol/sequence.h"
#include "sfi_flow.h"
#include "sfi_requests.h"
#include "sfi_slots.h"

/* Maximum number of assignments that may arrive out of order; the DFM's window is not larger. */
#define SFI_ASSIGN_WINDOW 16384u

/* What this SFI had done when it began to follow its DFM. */
struct sfi_inventory {
        uint64_t end;                 /* no event from this number on */
        struct event_set ended, open; /* events in both sets were built as partial */
        struct node_totals totals;
        bool late;                  /* the run had begun before this SFI joined it */
        bool inquiry_due, inquired; /* inquired: by this DFM */
        uint64_t inquiry_from;
        uint32_t n_open;   /* events that were open, and whose end must still be reported */
        uint32_t unlisted; /* of these events, the number of which the DFM is not informed, so that they use
                              no credit there */
};

struct sfi_updates {
        const struct sfi_config *config;
        const struct member *member;
        struct sfi_slots *slots;

        /* All assignments below `assign_next` have arrived, and also those whose bit is set. Messages carry
         * the low 32 bits of their sequence number; credits and ends are counted in 64 bits. */
        uint64_t assign_next;
        uint64_t assign_bits[SFI_ASSIGN_WINDOW / 64];
        bool update_due;
        uint64_t update_due_ns;

        /* Finished events that the DFM has not acknowledged: [acked, next). Those in [sent, next) wait
         * to be sent. */
        struct finished_entry *finished;
        uint32_t finished_mask, finished_acked, finished_sent, finished_next;
        uint64_t finished_total, granted;
        uint64_t resend_ns, resend_after_ns;
        struct budget budget; /* for the messages of this SFI to the port of the DFM */

        struct sfi_inventory inventory;
};

/* The caller has set the three pointers at the top. */
int sfi_updates_init(struct sfi_updates *u);
void sfi_updates_fini(struct sfi_updates *u); /* also after a failed init */
/* Restarts both sequences, of assignments and of finished events. */
void sfi_updates_restart(struct sfi_updates *u, uint64_t now_ns);

/* Assignments. */
bool sfi_updates_has_assignment(const struct sfi_updates *u, uint32_t sequence);
void sfi_updates_record_assignment(struct sfi_updates *u, uint32_t sequence);
/* Number of assigned events whose end is not reported. */
static inline uint64_t sfi_updates_open(const struct sfi_updates *u)
{
        return u->assign_next > u->finished_total ? u->assign_next - u->finished_total : 0;
}

/* Number of events that the DFM may assign at any moment. */
static inline uint32_t sfi_updates_free_credits(const struct sfi_updates *u)
{
        return u->granted > u->assign_next ? (uint32_t)(u->granted - u->assign_next) : 0;
}

/* Whether there is room for the finished events of all open slots and of one more. */
bool sfi_updates_have_room(const struct sfi_updates *u);
/* Plans an Update: soon, so that it can include finished events, or at once. */
void sfi_updates_plan(struct sfi_updates *u, uint64_t now_ns);
void sfi_updates_plan_now(struct sfi_updates *u, uint64_t now_ns);

/* Finished events. */
void sfi_updates_report(struct sfi_updates *u, const struct finished_entry *entry);
/* Reports an assignment that leads to no event. */
void sfi_updates_report_void(struct sfi_updates *u, uint64_t event);
void sfi_updates_report_writing(struct sfi_updates *u, uint64_t now_ns);
/* Prevents a pending report of this event as lost from counting as the end of a later assignment. */
void sfi_updates_void_lost(struct sfi_updates *u, uint64_t event);
void sfi_updates_receive_ack(struct sfi_updates *u, uint64_t now_ns, uint32_t ack);
bool sfi_updates_are_acked(const struct sfi_updates *u);
uint64_t sfi_updates_unacknowledged(const struct sfi_updates *u); /* built events */

bool sfi_updates_due(struct sfi_updates *u, uint64_t now_ns);
void sfi_updates_make(struct sfi_updates *u, uint64_t now_ns, uint32_t credits, struct message *m);
uint64_t sfi_updates_deadline_ns(const struct sfi_updates *u);

/* The inventory. */
void sfi_inventory_fill(struct sfi_updates *u, const struct node_totals *totals);
void sfi_inventory_receive(struct sfi_updates *u, const struct message *m);
bool sfi_inventory_make(struct sfi_updates *u, struct message *m);

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
        enum run_state run_state; /* state of the run, as the DFM reports it */
        enum run_state state;     /* state of the SFI */
        bool is_faulty;           /* see sfi_set_faulty() */
        bool failed;              /* whether the output failed, when, and why */
        uint64_t failed_ns;
        enum node_reason failure;
        struct metadata_set metadata, arriving; /* of the run; `arriving` is incomplete */
        uint16_t arrived;                       /* bit i: name i of `arriving` has arrived */
        bool metadata_known;                    /* a KeepAlive or an assignment has arrived from the DFM */
        uint16_t metadata_wanted;               /* version that the last KeepAlive announced */
        uint64_t metadata_cookie;               /* cookie of the run to which the metadata belong */
        struct member member;
        uint64_t keep_alive_due_ns;
        uint64_t present_until_ns; /* after the end, the DFM counts this SFI as present until this time */
        struct jump oldest_jump;
        struct sequence keep_alives; /* of this DFM */
        uint32_t alive_sequence;

        struct sfi_slots slots;
        struct sfi_retry retry;
        struct sfi_limit limit;
        bool expects_no_datagrams;
        bool has_gap; /* the sequence numbers of datagrams have a gap since the last batch of chunks */
        uint64_t gaps_open, datagrams_late; /* gaps_open: when the present check of gaps began;
                                               datagrams_late: number of late datagrams since then */
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

/* sfi_waits.c */
uint64_t sfi_mean_event_bytes(const struct sfi *s);
/* sfi_waits.c: finds the events that only wait for silent ROSs. True: there are more of them than before. */
bool sfi_count_waiting(struct sfi *s, uint64_t now_ns);
/* sfi_chunks.c: records how many datagrams a ROS has sent. False: the message is invalid. */
bool sfi_receive_totals(struct sfi *s, const struct message *m);
/* sfi_chunks.c: decides whether datagrams were lost, once packets reordered around a gap have had time to
 * arrive. */
void sfi_check_gaps(struct sfi *s, uint64_t now_ns);
/* sfi_chunks.c: makes the next Rate that is due; false: none. */
bool sfi_make_rate(struct sfi *s, uint64_t now_ns, struct message_to *ret_to, struct message *ret);
uint64_t sfi_rate_deadline_ns(const struct sfi *s);
