/* Requests the states of all nodes of a scenario, which each node serves at /status (see docs/monitoring.md).
 * Any thread, but only one at a time. */
#pragma once

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "conf/scenario.h"
#include "data/disk_space.h"
#include "data/stats.h"
#include "sys/loop.h"

#define NODE_STATUS_PROBLEM_MAX 400
#define NODE_STATUS_WORD_MAX 16
#define NODE_STATUS_CAUSE_MAX 320
#define NODE_UNHEARD "the DFM receives nothing from it"

/* The condition of a node for an operator; the worst comes last. */
enum node_condition {
        CONDITION_FINE,      /* the state of the node describes its condition */
        CONDITION_PAUSED,    /* a DFM whose run an operator has paused */
        CONDITION_LOSING,    /* the node lost events recently */
        CONDITION_NO_FRAMES, /* a required ROS without a front-end, or whose front-end sends nothing although
                                events wait, or is out of step with the triggers */
        CONDITION_CUT_OFF,   /* the node runs, but the DFM receives nothing from it or refuses it, or it
                                receives nothing from the DFM, or its longest packets do not reach others */
        CONDITION_STALLED,   /* the node makes no progress although it has work */
        CONDITION_ERROR,     /* a DFM whose last run ended in an error */
        CONDITION_SILENT,    /* the node does not answer, or another node answers */
};

struct node_status {
        const struct scenario_node *node;
        char place[SCENARIO_TEXT_MAX]; /* the place where the node serves its state: "HOST:PORT" or
                                          "unix:PATH" */
        json_t *status; /* the last answer of the node; NULL: the node did not answer, or another node did */
        enum node_condition condition;
        bool is_losing; /* the node lost events recently, which is also possible for a paused DFM */
        char problem[NODE_STATUS_PROBLEM_MAX]; /* what is wrong with the node; "": nothing */
        char cause[NODE_STATUS_CAUSE_MAX];     /* the same without times and counts, so it does not change */
        /* CLOCK_MONOTONIC: when the last answer arrived, and when the request in progress started; 0:
         * none. */
        uint64_t answered_ns, asked_ns;
        /* Number of seconds by which the node's clock is certainly ahead of this machine's clock, after
         * allowing for the duration of the request; 0: no certain difference. */
        double clock_ahead_s;
};

struct statuses {
        const struct scenario *scenario; /* borrowed */
        size_t n;
        struct node_status *nodes; /* in the order of the scenario */
};

/* Finds the place of each node. -EINVAL: the scenario does not configure where the nodes serve their states,
 * as `e` explains. -ENOMEM. */
int statuses_init(struct statuses *s, const struct scenario *scenario, struct error *e);
void statuses_fini(struct statuses *s);
/* Requests the states of all nodes at once, and waits until each node has answered or failed, at most
 * `timeout_ns` for every 256 nodes. -ENOMEM. */
int statuses_ask(struct statuses *s, uint64_t timeout_ns);

/* Requests the states repeatedly as part of an event loop: a slow or dead node does not delay other nodes. */
struct statuses_watch;

/* `s` and `loop` are borrowed. A node that does not answer within `timeout_ns` has no status. -ENOMEM. */
int statuses_watch_new(struct statuses_watch **ret, struct statuses *s, struct loop *loop,
                       uint64_t timeout_ns);
struct statuses_watch *statuses_watch_free(struct statuses_watch *w);
/* Requests the state of each node that has no request in progress. Answers replace the previous answers as
 * they arrive. */
void statuses_watch_ask(struct statuses_watch *w, uint64_t now_ns);
/* Returns the number of requests that are in progress or not sent yet, except requests from before
 * `since_ns`. */
size_t statuses_watch_pending(const struct statuses_watch *w, uint64_t since_ns);
/* Returns when to call statuses_watch_expire(); NEVER_NS: no request is in progress. */
uint64_t statuses_watch_deadline_ns(const struct statuses_watch *w);
/* Cancels the requests that have timed out. */
void statuses_watch_expire(struct statuses_watch *w, uint64_t now_ns);

const struct node_status *statuses_find_dfm(const struct statuses *s); /* NULL: none */
/* Returns the DFM's report on a node, in "peers"; NULL: none. */
const json_t *statuses_find_peer(const struct statuses *s, const struct scenario_node *n);

/* How a screen marks the state of a node. A node whose problem follows from that of another node is
 * MOOD_WARN, so that the node at fault stands out. */
enum node_mood { MOOD_GOOD, MOOD_IDLE, MOOD_WARN, MOOD_BAD, MOOD_GONE };

/* The state of a node as a screen shows it, including the DFM's report on the node. */
struct node_view {
        enum node_mood mood;
        bool is_late; /* an answer is overdue */
        char word[NODE_STATUS_WORD_MAX];
        char why[NODE_STATUS_PROBLEM_MAX]; /* "": nothing to explain */
};

/* node_view.c: determines the state of a node for evb status, evb top and the page; no other function does
 * so. `late_ns`: age at which an unanswered request makes its node late; NEVER_NS: never. */
void node_view_make(const struct statuses *s, const struct node_status *n, uint64_t now_ns, uint64_t late_ns,
                    struct node_view *ret);
/* Whether the node lost the DFM in the run, according to its reason. */
bool node_receives_nothing(const struct statuses *s, const struct node_status *n);
/* Whether an SFI loses events and receives no fragment. */
bool node_receives_no_fragment(const struct node_status *n);
/* Whether most of the events that an SFI lost recently, or built incomplete, had no room in its memory. */
bool node_is_starved(const struct node_status *n);
/* What an operator should mend at a node that works. */
struct node_warning {
        char word[NODE_STATUS_WORD_MAX];
        char why[NODE_STATUS_PROBLEM_MAX];
        char cause[NODE_STATUS_CAUSE_MAX]; /* the same without times and counts */
};

/* Describes what is wrong at a working node: its shaping is not installed, its disk is nearly full, its
 * version of evb or its scenario is not the DFM's, or its clock is wrong. False: nothing. */
bool node_status_warns(const struct statuses *s, const struct node_status *n, struct node_warning *ret);
/* Whether the node does not answer, but this is no fault of the run: the DFM receives messages from it, so
 * only its metrics are out of reach, or the node is an optional ROS, or the DFM still waits for the first
 * node, or for more nodes (dfm.start-timeout). */
bool node_is_excused(const struct statuses *s, const struct node_status *n);
/* Whether a node does not answer, and the DFM has not missed it yet: it may do so soon. */
bool statuses_await_silence(const struct statuses *s);
/* Whether the DFM answers, has run for some seconds, and waits for a run or is in one: until then, and while
 * a run ends, nodes come and go. */
bool statuses_are_settled(const struct statuses *s);
/* Describes "its clock is 7.0 s behind this machine's". False: the difference is less than a second. */
bool node_status_clock(const struct node_status *n, char text[static NODE_STATUS_PROBLEM_MAX]);
/* Returns the first key in which the digests of two nodes' scenarios differ; UINT32_MAX: none, or one digest
 * is unknown. */
uint32_t node_digests_differ(const json_t *a, const json_t *b);
/* Describes the disk of an SFI that writes files: "412 GB of 2 TB free, full in 7.2 h". False: there is
 * none. */
bool node_status_disk(const struct node_status *n, char text[static DISK_TEXT_MAX], bool *ret_low);
/* Judges the network by the answers of the nodes, for `evb check --network` (network_check.c). Returns an
 * array of {"node", "fault", "command"}: each fault with its cause, and the command that repairs it on the
 * machine of the node. Pure. */
json_t *network_check_faults(const struct statuses *s);
/* Returns {"kind": "warn", "word": "waiting", "why": "..."}. */
json_t *node_view_to_json(const struct node_view *v);
/* Returns one word for the condition, or the node's own word for its state; "?": there is none. */
const char *node_status_word(const struct node_status *n);
/* Returns a node's answer, with "reachable", "condition" and "problem"; for a node that did not answer, its
 * name and role. */
json_t *node_status_to_json(const struct node_status *n);

/* losses_text.c: reads the losses of a node in its run, by place (losses.h); NAN: unknown. */
void losses_read(const struct node_status *n, double ret[static LOSS_PLACES]);
/* Describes "12 events lost, 3 partial in the last 7 s; missing fragments: ros3 12". False: the node lost no
 * events. */
bool losses_describe(const struct scenario *s, const struct node_status *n, char *text, size_t size_bytes);
/* Describes the places where a run loses data: "; missing fragments: ros3 12; dropped packets: network 9".
 * "": unknown. */
void losses_describe_places(const struct statuses *s, char *text, size_t size_bytes);
