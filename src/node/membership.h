/* Logs and describes a ROS's or SFI's membership in the run, and decides when the node gives up. The rules of
 * membership are in protocol/member.h. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "data/reasons.h"
#include "protocol/member.h"

struct node;

struct membership {
        uint64_t since_ns;   /* when the node began to wait for the DFM */
        uint64_t remind_ns;  /* when to log the wait */
        uint64_t logged_dfm; /* DFM incarnation and run in the last log line about them */
        uint32_t logged_run;
        enum welcome_verdict logged_refusal;
        uint32_t logged_foreign_sender; /* DFM: role and index of the last logged foreign sender */
        uint64_t lost_ros_ns[EVB_ROS_MAX],
                lost_sfi_ns[EVB_SFI_MAX]; /* DFM: since when each node has been silent; 0: not silent */
        uint64_t dfm_silent_ns; /* time of the DFM's last message before its silence was logged; 0: it was not
                                 */
        bool lost_dfm;          /* the DFM has been silent for longer than dfm.lost_after_ns, or, once this
                                   node is stopped, than dfm.node_timeout_ns */
        bool rejected;          /* the DFM refuses this node permanently */
        bool left_behind;       /* the DFM is now in another run */
};

/* Logs changes. Returns whether the node must stop now: lost_dfm or rejected. */
bool membership_watch(struct node *n, uint64_t now_ns);
/* Whether the run continued or ended without this node, so that it may join the next run after a restart. */
bool membership_may_come_back(const struct node *n);
/* Adds the reason why this node did not take part in a run, or left the run before its end. */
void membership_reasons(const struct node *n, struct reasons *to);
/* Describes what the node waits for: "waiting for the DFM dfm at 10.0.0.1". */
void membership_describe(const struct node *n, char *text, size_t size_bytes);
