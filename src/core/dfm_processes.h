/* The record of a run: data that the next DFM could not obtain from the remaining nodes. The caller stores
 * the record, and a DFM that resumes the run loads it. Part of the DFM's core, see dfm.h. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "core/dfm_level2.h"
#include "protocol/event.h"
#include "protocol/message.h"

struct dfm;

/* The last process of one node. */
struct dfm_process {
        uint64_t incarnation;    /* 0: none */
        bool vanished, replaced; /* see struct dfm_node_view */
        bool left;               /* it reported that it left; an SFI: with its files closed */
        uint16_t flags;          /* ALIVE_*, as reported last */
        uint64_t frames;         /* of a ROS: frames, as reported last */
        /* Of an SFI: */
        bool gone;               /* `ends` are final, unless the process returns */
        bool unknown;            /* some ends that were reported to earlier DFMs are unknown */
        struct node_totals ends; /* of its events, as the DFM counted them */
        uint64_t unclosed;       /* events built by earlier processes that did not report that they left */
};

/* How the events of a run ended, as its DFM counted them. */
struct dfm_ends {
        uint64_t complete, partial, lost, rejected;
        uint64_t not_taken;  /* see struct dfm_counts */
        uint64_t unreported; /* events that count as lost for now; an SFI that has not reported may have built
                                them */
};

/* Triggers that were offered, or made by the clock. Each trigger is accepted, waits in the queue, or counts
 * in one of `refused` to `not_taken`. */
struct dfm_offered {
        uint64_t triggers;
        uint64_t refused;     /* the queue was full */
        uint64_t repeated;    /* the number came before, or the numbers went back without a reset */
        uint64_t implausible; /* the number jumped ahead, and no later number confirmed the jump */
        uint64_t not_taken;   /* before the run began, after its last trigger, or in a pause */
        uint64_t in_pauses;   /* of these, triggers from outside that came in a pause */
        uint64_t missing;     /* numbers that were skipped */
        /* Not in `triggers`: triggers that waited in a DFM that ended, or that came while no DFM ran. */
        uint64_t missed;
        uint64_t unclear;        /* number of DFM restarts whose missed triggers cannot be counted */
        uint64_t datagrams_lost; /* see dfm_count_datagrams() */
        uint64_t resets;         /* of the counters, as the triggers report them */
        uint64_t spills_begun, spills_ended, in_spills;
};

/* A DFM records which of this many newest trigger numbers have come. */
#define DFM_NUMBERS_WINDOW 4096u

/* The triggers from outside, as of the record. Each number from `next` on belongs to a trigger that the DFM
 * had not received. */
struct dfm_came {
        struct dfm_offered offered;
        uint64_t next;
        uint32_t waiting; /* triggers in the queue, except those that came after a higher number */
        bool numbered;    /* a trigger came since the last reset; otherwise `next` is meaningless */
        bool in_spill;
        bool paused; /* triggers that came later were not accepted */
        bool over;   /* triggers that came later were not accepted, until the end of the run */
        bool has_datagram, has_empty; /* a datagram with triggers came; one of them was empty */
        uint32_t next_datagram;       /* sequence number after the newest datagram */
        /* Bit (number % DFM_NUMBERS_WINDOW): its trigger is an event, or waits in the queue. */
        uint64_t seen[DFM_NUMBERS_WINDOW / 64];
};

/* Numbers that ROSs announced. Each number is offered as a trigger once, waits, or counts here. */
struct dfm_announced {
        uint64_t numbers;
        uint64_t confirmed; /* already announced by another ROS, or repeated */
        uint64_t late;      /* too old to become an event */
};

/* Figures that only reports need. In the record, they may be up to a second old. */
struct dfm_figures {
        uint64_t assigned, reassigned;
        uint64_t busy_ns, paused_ns;
        /* Since the start of the run; 0: none */
        uint64_t first_trigger_ns, first_complete_ns, last_complete_ns;
        struct dfm_announced announced;
        struct dfm_level2_counts level2;
};

#define DFM_LINEAGE 8
#define DFM_PROCESSES_WORDS (EVB_EVENT_WINDOW / 64)
/* An SFI that is away has the ends of at most this many events, in words of 64. */
#define DFM_AWAY_WORDS (2 * EVB_EVENTS_KEPT / 64)
#define DFM_LOST_WORDS (EVB_EVENTS_KEPT / 64)

struct dfm_processes {
        uint64_t cookie; /* of the run; 0: the record is empty */
        /* Incarnations of the last DFMs that had this record, the newest first; 0: none. A node that followed
         * another DFM may have later information. */
        uint64_t dfms[DFM_LINEAGE];
        bool has_all;                /* no process of the run is missing from the record */
        bool guessed;                /* `counted` is in part a guess, see dfm_run_view() */
        bool unrecorded;             /* see dfm_run_view() */
        uint64_t forgotten;          /* see dfm_run_view() */
        struct node_totals replaced; /* totals of all processes that were replaced */
        struct node_totals again;    /* of events that an SFI built after they had ended */
        struct dfm_ends counted; /* all events that have ended: those below `oldest`, and those with a bit */
        struct dfm_came came;
        struct dfm_figures figures;
        struct metadata_set metadata; /* set by the operator */
        uint32_t n_ros, n_sfi;
        struct dfm_process ross[EVB_ROS_MAX], sfis[EVB_SFI_MAX];
        /* All events below `oldest` have ended, and no event from `next` on was opened. */
        uint64_t oldest, next;
        uint64_t built_end; /* number of the newest event that was built, plus 1 */
        /* Bit i of word k: event number away_from + i + 64 k is among counted.unreported. From
         * `forgotten_from` on, such an event may have been open, so level 2 had not rejected it. */
        uint64_t away_from, forgotten_from;
        uint32_t n_away;
        uint64_t away[DFM_AWAY_WORDS];
        /* Bit i of word k: event number lost_from + i + 64 k is lost, but an SFI that was held up may return
         * with it. */
        uint64_t lost_from;
        uint32_t n_lost;
        uint64_t lost[DFM_LOST_WORDS];
        /* Bit i of word k: event number i + 64 k + (oldest without its lowest 6 bits) has ended. */
        uint32_t n_words;
        uint64_t words[DFM_PROCESSES_WORDS];
};

/* Changes when the caller must store the record again, before it sends the message that dfm_step() returned.
 * 0: there is nothing to store. */
uint64_t dfm_processes_version(const struct dfm *d);
void dfm_processes_fill(const struct dfm *d, struct dfm_processes *ret);
/* The triggers as of the record of the previous DFM. NULL: this DFM has not resumed a run, or the record and
 * the reports are not conclusive. */
const struct dfm_came *dfm_previous_came(const struct dfm *d);
