/* Requests the states of all nodes of a scenario, which each node serves at /status (see docs/monitoring.md).
 * Any thread, one at a time. */
#pragma once

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "conf/scenario.h"
#include "data/disk_space.h"
#include "sys/loop.h"

#define NODE_STATUS_PROBLEM_MAX 400
#define NODE_STATUS_WORD_MAX 16

/* The condition of a node for an operator; the worst comes last. */
enum node_condition {
        CONDITION_FINE,    /* as its state says */
        CONDITION_PAUSED,  /* a DFM whose run an operator has paused */
        CONDITION_LOSING,  /* it lost events recently */
        CONDITION_CUT_OFF, /* it runs, but the DFM receives nothing from it, or refuses it */
        CONDITION_STALLED, /* it makes no progress although it has work */
        CONDITION_ERROR,   /* a DFM whose last run ended in an error */
        CONDITION_SILENT,  /* it does not answer, or is not this node */
};

struct node_status {
        const struct scenario_node *node;
        char place[SCENARIO_TEXT_MAX]; /* where it serves its state: "HOST:PORT" or "unix:PATH" */
        json_t *status;                /* its last answer; NULL: it did not answer, or is not this node */
        enum node_condition condition;
        bool is_losing;                        /* it lost events recently; possible for a paused DFM, too */
        char problem[NODE_STATUS_PROBLEM_MAX]; /* what is wrong; "": nothing */
        /* CLOCK_MONOTONIC: time of the last answer, and of the start of the request under way; 0: none. */
        uint64_t answered_ns, asked_ns;
        /* By how much its clock is ahead of that of this machine, in seconds, without the time that the
         * answer took; 0: unknown. */
        double clock_ahead_s;
};

struct statuses {
        const struct scenario *scenario; /* borrowed */
        size_t n;
        struct node_status *nodes; /* in the order of the scenario */
};

/* Finds the place of each node. -EINVAL: the scenario does not configure where the nodes serve their states;
 * `e` explains it. -ENOMEM. */
int statuses_init(struct statuses *s, const struct scenario *scenario, struct error *e);
void statuses_fini(struct statuses *s);
/* Asks all nodes at once, and waits until each has answered or failed, at most `timeout_ns` for every 256
 * nodes. -ENOMEM. */
int statuses_ask(struct statuses *s, uint64_t timeout_ns);

/* Asks repeatedly as part of an event loop: a slow or dead node delays no other one. */
struct statuses_watch;

/* `s` and `loop` are borrowed. A node that does not answer within `timeout_ns` has no status. -ENOMEM. */
int statuses_watch_new(struct statuses_watch **ret, struct statuses *s, struct loop *loop,
                       uint64_t timeout_ns);
struct statuses_watch *statuses_watch_free(struct statuses_watch *w);
/* Asks each node to which no request is under way. Answers replace the previous ones as they arrive. */
void statuses_watch_ask(struct statuses_watch *w, uint64_t now_ns);
/* Number of requests under way or still to send, without those from before `since_ns`. */
size_t statuses_watch_pending(const struct statuses_watch *w, uint64_t since_ns);
/* When statuses_watch_expire() has something to do; NEVER_NS: no request is under way. */
uint64_t statuses_watch_deadline_ns(const struct statuses_watch *w);
/* Ends the requests whose time is over. */
void statuses_watch_expire(struct statuses_watch *w, uint64_t now_ns);

/* What the DFM reports of a node, in "peers"; NULL: nothing. */
const json_t *statuses_find_peer(const struct statuses *s, const struct scenario_node *n);

/* How a screen marks that state. */
enum node_mood { MOOD_GOOD, MOOD_IDLE, MOOD_WARN, MOOD_BAD, MOOD_GONE };

/* The state of a node as a screen shows it, including the DFM's report on the node. */
struct node_view {
        enum node_mood mood;
        bool is_late; /* an answer is overdue */
        char word[NODE_STATUS_WORD_MAX];
        char why[NODE_STATUS_PROBLEM_MAX]; /* "": nothing to explain */
};

/* The one judgement of a node, for evb status, evb top and the page. `late_ns`: age at which an unanswered
 * request makes its node late; NEVER_NS: never. */
void node_view_make(const struct statuses *s, const struct node_status *n, uint64_t now_ns, uint64_t late_ns,
                    struct node_view *ret);
/* What is wrong with a node that works: another version of evb or another scenario than that of the DFM, or
 * its clock. False: nothing. */
bool node_status_differs(const struct statuses *s, const struct node_status *n,
                         char text[static NODE_STATUS_PROBLEM_MAX]);
/* "its clock is 7.0 s behind that of this machine". False: it differs by less than a second. */
bool node_status_clock(const struct node_status *n, char text[static NODE_STATUS_PROBLEM_MAX]);
/* The first key in which two digests of nodes' scenarios differ; UINT32_MAX: none, or one is unknown. */
uint32_t node_digests_differ(const json_t *a, const json_t *b);
/* The disk of an SFI that writes files: "412 GB of 2 TB free, full in 7.2 h". False: there is none. */
bool node_status_disk(const struct node_status *n, char text[static DISK_TEXT_MAX], bool *ret_low);
/* {"kind": "warn", "word": "waiting", "why": "..."} */
json_t *node_view_to_json(const struct node_view *v);
/* One word for the condition, or the node's own word for its state; "?": it has none. */
const char *node_status_word(const struct node_status *n);
/* A node's answer, with "reachable", "condition" and "problem"; for a node that did not answer, its name and
 * role. */
json_t *node_status_to_json(const struct node_status *n);
