/* What the SFI exchanges with its DFM: the order of assignments, finished events and credits until they are
 * acknowledged, and after a restart of the DFM the inventory. This file never opens or ends a slot. */
#pragma once

#include "core/sfi.h"
#include "protocol/event_set.h"
#include "sfi_slots.h"

/* Assignments that may arrive out of order; the DFM's window is not larger. */
#define SFI_ASSIGN_WINDOW 16384u

/* What this SFI had done when it began to follow its DFM. */
struct sfi_inventory {
        uint64_t end;                 /* no event from there on */
        struct event_set ended, open; /* both: built as partial */
        struct node_totals totals;
        bool recorded, late;        /* the answer is known; the run had begun before this SFI joined */
        bool inquiry_due, inquired; /* inquired: by this DFM */
        uint64_t inquiry_from;
        uint32_t n_open;   /* events that were open: each end is still to be reported */
        uint32_t unlisted; /* of these, events that the DFM does not learn of, so they use no credit there */
};

struct sfi_updates {
        const struct sfi_config *config;
        const struct member *member;
        struct sfi_slots *slots;

        /* Assignments: all below `assign_next` arrived, and those whose bit is set. Messages carry the low 32
         * bits of their sequence number; credits and ends are counted in 64 bits. */
        uint64_t assign_next;
        uint64_t assign_bits[SFI_ASSIGN_WINDOW / 64];
        bool update_due;
        uint64_t update_due_ns;

        /* Finished events that the DFM has not acknowledged: [acked, next), of which those from `sent` on
         * wait. */
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
/* Both sequences, of assignments and of finished events, start afresh. */
void sfi_updates_restart(struct sfi_updates *u, uint64_t now_ns);

/* Assignments. */
bool sfi_updates_has_assignment(const struct sfi_updates *u, uint32_t sequence);
void sfi_updates_record_assignment(struct sfi_updates *u, uint32_t sequence);
/* Events that were assigned and whose end is not reported. */
static inline uint64_t sfi_updates_open(const struct sfi_updates *u)
{
        return u->assign_next > u->finished_total ? u->assign_next - u->finished_total : 0;
}

/* Events that the DFM may assign at any moment. */
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
/* A report of this event as lost that is still pending must not count as the end of a later assignment. */
void sfi_updates_void_lost(struct sfi_updates *u, uint64_t event);
void sfi_updates_receive_ack(struct sfi_updates *u, uint64_t now_ns, uint32_t ack);
bool sfi_updates_are_acked(const struct sfi_updates *u);
uint64_t sfi_updates_unacknowledged(const struct sfi_updates *u); /* built events */

bool sfi_updates_due(struct sfi_updates *u, uint64_t now_ns);
void sfi_updates_make(struct sfi_updates *u, uint64_t now_ns, uint32_t credits, struct message *m);
uint64_t sfi_updates_deadline_ns(const struct sfi_updates *u);

/* The inventory. */
/* A KeepAlive came; the first one shows whether the run had `begun` before. */
void sfi_inventory_record_run(struct sfi_updates *u, bool begun);
void sfi_inventory_fill(struct sfi_updates *u, const struct node_totals *totals);
void sfi_inventory_receive(struct sfi_updates *u, const struct message *m);
bool sfi_inventory_make(struct sfi_updates *u, struct message *m);
