/* Resumption of a former DFM's run: dfm_resume.c asks the SFIs, dfm_processes.c knows of processes that can
 * no longer answer. */
#pragma once

#include "evb/core/dfm.h"
#include "evb/protocol/event_set.h"

/* A run of a former DFM that is being resumed: one bit for each event of [oldest, newest) that an SFI has
 * reported. */
struct dfm_resume {
        bool active;
        uint64_t oldest, newest;
        uint64_t *known;     /* EVB_EVENT_WINDOW bits */
        bool late;           /* the inventory of an SFI that came later is incomplete */
        bool none_is_lost;   /* level 2 rejected what no SFI reported */
        uint64_t unreported; /* earlier events whose end no SFI reported: rejected if none is lost */
};

/* The ends of all SFI processes of the run, as the next DFM will need them. */
struct dfm_ledger {
        struct dfm_processes *former; /* of the former DFM; NULL: nothing is known */
        struct dfm_process *sfis;
        struct node_totals replaced;
        struct event_set ended; /* events that ended as complete or partial, from the oldest open one on */
        uint64_t dfms[DFM_LINEAGE];
        uint64_t version;
        bool has_all;  /* no process is missing */
        bool had_gaps; /* some were when the run resumed */
};

bool dfm_may_resume_run(const struct dfm *d, const struct message *join);
void dfm_resume_run(struct dfm *d, uint64_t now_ns, const struct message *join);
void dfm_note_join_in_run(struct dfm *d, enum node_role role, uint16_t index, const struct message *join);
bool dfm_hear_inventory(struct dfm *d, uint64_t now_ns, const struct message *m);
bool dfm_owes_inventory(const struct dfm *d, uint16_t sfi);
bool dfm_make_inquiry(struct dfm *d, uint64_t now_ns, struct message_to *to, struct message *m);
/* All present SFIs reported their inventory. Settling then reopens the events that no SFI knows. */
bool dfm_resume_is_settled(const struct dfm *d);
void dfm_settle_resume(struct dfm *d, uint64_t now_ns);
uint64_t dfm_resume_deadline_ns(const struct dfm *d);
