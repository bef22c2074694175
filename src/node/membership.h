/* A ROS's or SFI's membership in the run, for people: what it waits for, who refused it, and when it gives
 * up. core/member has the rules. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "evb/data/reasons.h"
#include "evb/protocol/member.h"

struct node;

struct membership {
        uint64_t since_ns;   /* when the node began to wait for the DFM */
        uint64_t remind_ns;  /* when a wait is logged */
        uint64_t logged_dfm; /* DFM incarnation and run that the log named last */
        uint32_t logged_run;
        enum welcome_verdict logged_refusal;
        uint32_t logged_stranger; /* DFM: role and index of the last logged stranger */
        uint64_t stranger_ns;     /* when the next one may be logged; the DFM's */
        bool lost_dfm;            /* the DFM has been silent for dfm.lost-after */
        bool rejected;            /* the DFM does not let this node take part, for good */
        bool left_behind;         /* the DFM has gone on to another run */
};

/* Logs what is new. Returns whether the node must stop now: lost_dfm or rejected. */
bool membership_watch(struct node *n, uint64_t now_ns);
/* The run went on or ended without this node, which may take part in the next one once it starts again. */
bool membership_may_come_back(const struct node *n);
/* Why this node had no part in a run, or not to its end. */
void membership_reasons(const struct node *n, struct reasons *to);
/* What the node waits for: "waiting for the DFM dfm at 10.0.0.1". */
void membership_describe(const struct node *n, char *text, size_t size_bytes);
