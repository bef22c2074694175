/* What running the stand-in and reporting on it share. */
#pragma once

#include "data/reasons.h"
#include "frontend_box.h"
#include "frontend_listeners.h"

/* Why triggers wait. */
enum frontend_hold { HOLD_NONE, HOLD_BUSY, HOLD_BOARDS, HOLD_RESET, HOLDS };

struct frontend {
        const struct frontend_config *config;
        struct loop *loop;
        struct trigger schedule; /* in a time that starts at 0 and stands still while triggers are held */
        struct frontend_box box;
        struct frontend_listeners listeners;
        bool started, stopping;
        uint64_t start_ns, start_utc_ns, stopped_schedule_ns, end_ns;
        enum frontend_hold hold;
        uint64_t hold_since_ns;
        uint64_t held_ns[HOLDS];
        uint64_t triggers;
        unsigned resets;                        /* of config->resets that are done */
        bool reset_is_wanted;                   /* the DFM has been busy for too long */
        uint64_t patient_until_ns, last_unsent; /* while stopping */
        uint64_t progress_ns;                   /* of the next progress or warning */
        bool warned;
        struct reasons reasons;
        struct frontend_board boards[]; /* config->n_boards */
};

/* Adds the reasons for exit status 1. */
void frontend_add_reasons(struct frontend *f);
