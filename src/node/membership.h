/* A ROS's or SFI's place in the run, for people: what it waits for, who refused it, and when it gives up. The rules are in
 * core/member. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "evb/core/member.h"
#include "evb/node/reasons.h"

struct node;

struct membership {
        uint64_t since_ns;   /* when the node began to wait for the DFM */
        uint64_t remind_ns;  /* when a wait is logged */
        uint64_t logged_dfm; /* incarnation of the DFM, and run, that the log names last */
        uint32_t logged_run;
        enum welcome_verdict logged_refusal;
        uint32_t logged_stranger; /* role and index of who spoke from another address; the DFM's */
        bool lost_dfm; /* the DFM has been silent for dfm.lost-after */
        bool rejected; /* the DFM does not let this node take part, for good */
        bool left_behind; /* the DFM has gone on to another run */
};

/* Logs what is new. Returns whether the node has to stop now: see lost_dfm and rejected. */
bool membership_watch(struct node *n, uint64_t now_ns);
/* The run went on or ended without this node, which may take part in the next one once it starts again. */
bool membership_may_come_back(const struct node *n);
/* Why this node had no part in a run, or not to its end. */
void membership_reasons(const struct node *n, struct reasons *to);
/* What the node waits for, in words: "waiting for the DFM dfm at 10.0.0.1". */
void membership_describe(const struct node *n, char *text, size_t size_bytes);
