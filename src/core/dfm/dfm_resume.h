/* Resumption of a previous DFM's run: dfm_resume.c collects the SFIs' reports, dfm_processes.c keeps the
 * record of processes that can no longer answer. */
#pragma once

#include "core/dfm.h"
#include "protocol/event_set.h"

/* A run of a previous DFM that is being resumed. The events in [from, oldest) have ended. The events in
 * [oldest, newest) have ended or are open. */
struct dfm_resume {
        bool active, resumed; /* active: now; resumed: at any time */
        uint64_t from, oldest, newest;
        uint64_t *known; /* EVB_EVENT_WINDOW bits: events that an SFI has reported, or that are open again */
        bool late;       /* the inventory of an SFI that joined later is incomplete */
        bool is_exact;   /* the previous DFM's record and the reports are conclusive */
        bool none_is_lost;          /* level 2 rejected all unreported events that are not `forgotten` */
        uint64_t complete, partial; /* events with a reported end that is not in the record */
        uint64_t recovered[2]; /* complete and partial: events that an SFI reported as built, although the
                                  record counts them as lost */
        uint64_t builds[2];  /* builds of these events, complete and partial; some events were built twice */
        uint64_t unreported; /* events whose end is neither in the record nor reported */
        /* Of these, events that may have been open here or in a previous DFM: their triggers are unknown. */
        uint64_t forgotten;
};

/* The record that the next DFM will need to resume the run. */
struct dfm_ledger {
        struct dfm_processes *previous; /* record of the previous DFM; NULL: nothing is known */
        struct dfm_process *nodes;      /* as in struct dfm */
        struct node_totals replaced, again;
        struct event_set ended; /* events that have ended, from the oldest open one on */
        uint64_t dfms[DFM_LINEAGE];
        uint64_t version;
        bool has_all;  /* no process is missing from the record */
        bool had_gaps; /* some processes were missing when the run resumed */
        bool guessed, unrecorded;
        uint64_t forgotten; /* sum over all previous DFMs */
        /* Values of these counts when `version` last changed because of them. */
        uint64_t recorded_ends, recorded_oldest, recorded_discarded;
        unsigned recorded_shortfalls;
        uint64_t shortfall_sum; /* sum of these counts when last compared */
        struct dfm_figures recorded_figures;
        uint64_t recorded_figures_ns;
};

bool dfm_may_resume_run(const struct dfm *d, const struct message *join);
void dfm_resume_run(struct dfm *d, uint64_t now_ns, const struct message *join);
void dfm_receive_join_in_run(struct dfm *d, enum node_role role, uint16_t index, const struct message *join);
bool dfm_receive_inventory(struct dfm *d, uint64_t now_ns, const struct message *m);
bool dfm_awaits_inventory(const struct dfm *d, uint16_t sfi);
bool dfm_make_inquiry(struct dfm *d, uint64_t now_ns, struct message_to *to, struct message *m);
/* Whether all present SFIs have reported their inventory. Settling then reopens the events that no SFI
 * reported. */
bool dfm_resume_is_settled(const struct dfm *d);
void dfm_settle_resume(struct dfm *d, uint64_t now_ns);
uint64_t dfm_resume_deadline_ns(const struct dfm *d);

/* dfm_processes.c: the record of the run. */
int dfm_ledger_init(struct dfm *d); /* -ENOMEM */
void dfm_ledger_fini(struct dfm *d);
/* A process of the node joins, for the first time or again, or leaves. */
void dfm_process_comes(struct dfm *d, enum node_role role, uint16_t index, uint64_t incarnation);
void dfm_process_goes(struct dfm *d, enum node_role role, uint16_t index);
/* The process reported that it left. */
void dfm_process_left(struct dfm *d, enum node_role role, uint16_t index);
/* Whether a process of the node was in the run, under this DFM or an earlier one; whether it was a process
 * other than `incarnation`; whether it built events. */
bool dfm_process_was_in_run(const struct dfm *d, enum node_role role, uint32_t index);
bool dfm_process_is_another(const struct dfm *d, enum node_role role, uint32_t index, uint64_t incarnation);
bool dfm_process_has_built(const struct dfm *d, uint32_t sfi);
/* See struct dfm_node_view. */
uint64_t dfm_process_unclosed(const struct dfm *d, uint32_t sfi);
uint64_t dfm_process_left_open(const struct dfm *d, uint32_t sfi);
/* Whether this is the SFI's last process according to the previous DFM's record. */
bool dfm_process_returns(const struct dfm *d, uint16_t sfi, uint64_t incarnation);
/* An SFI reports the end of an event; `again`: that event has ended before. */
void dfm_record_end(struct dfm *d, uint16_t sfi, const struct finished_entry *f, bool again);
/* Call this before sending a message that makes nodes discard events. It changes the version if the next DFM
 * could not find out how these events ended. */
void dfm_ledger_record(struct dfm *d);
/* Changes the version if counts of triggers from outside or of numbers that became no event have changed, and
 * once a second for the figures. */
void dfm_ledger_record_counts(struct dfm *d, uint64_t now_ns);
/* Changes the version at the first shortfall of each kind: the next DFM must not report the run as complete.
 * */
void dfm_ledger_record_shortfalls(struct dfm *d);
/* For the resumption of a run: loads the previous DFM's record. */
void dfm_ledger_load(struct dfm *d);
/* A node followed DFM `dfm`. If the record does not list that DFM, processes may be missing from it. */
void dfm_ledger_check(struct dfm *d, uint64_t dfm);
bool dfm_ledger_has_ended(const struct dfm *d, uint64_t event);
/* Of an event whose end is unknown: whether it may have been open when this DFM or a previous one resumed the
 * run, so that level 2 had not rejected it. */
bool dfm_ledger_was_open(const struct dfm *d, uint64_t event);
/* Whether the event has ended, or an SFI has reported it, or it is open again. */
bool dfm_ledger_knows(const struct dfm *d, uint64_t event);
/* The totals of all processes in the previous DFM's record. */
struct node_totals dfm_ledger_previous(const struct dfm *d);
/* The process has reported everything: returns the events that were not counted yet. If the run resumes,
 * returns all reports. */
struct node_totals dfm_ledger_report(struct dfm *d, uint16_t sfi, const struct node_totals *t);
struct node_totals dfm_ledger_settle(struct dfm *d);
/* Whether a process of the SFI may have built events that no process reported. */
bool dfm_ledger_has_gap(const struct dfm *d, uint32_t sfi);
