/* Shared by the files of the DFM: its events, its view of the nodes, its streams to the SFIs. */
#pragma once

#include "base/idmap.h"
#include "base/util.h"
#include "core/dfm.h"
#include "dfm_resume.h"
#include "protocol/event_set.h"
#include "protocol/sequence.h"

/* Flags of Alive that stay set, even if later reports of the node or of its next process omit them. */
#define DFM_FLAGS_KEPT (ALIVE_UNRELIABLE | ALIVE_FAILED | ALIVE_SHORT)

#define SLOT_NONE UINT32_MAX
#define NO_SFI UINT16_MAX

/* The first and the longest pause before an unacknowledged assignment is resent. */
#define DFM_RESEND_FIRST_NS (20 * NS_PER_MS)
#define DFM_RESEND_LONGEST_NS (320 * NS_PER_MS)

/* A number is far if it is at least this much ahead of the numbers offered so far. */
#define DFM_ORDER_FAR 1024u

/* An announced number that is not offered yet. */
struct dfm_number {
        uint64_t number, since_ns;
        uint32_t n; /* leading ROSs that announced it */
};

/* The stream of announcements of one ROS. */
struct dfm_announcer {
        uint32_t incarnation; /* low half of the ROS's incarnation; 0: none yet */
        uint32_t next;        /* sequence of the next number */
        bool received;        /* whether a message has arrived since this DFM started */
        bool blocked, go_on;  /* blocked: there was no room; go_on: there is room again */
        bool ended;           /* no further number follows, because the ROS knows that the run drains */
        bool cut_short;       /* the DFM set `ended`, because the ROS did not report it in time */
        uint64_t ack_due_ns;  /* NEVER_NS: no number to acknowledge */
        bool has_last;
        uint64_t last, top; /* the last number, and the highest one plus 1 */
        uint64_t last_ns;   /* when `last` came */
};

/* The numbers, if frames make the triggers. */
struct dfm_order {
        struct dfm_number *ring; /* in ascending order: [tail, tail + n), at index % size */
        uint32_t size, tail, n;
        struct dfm_announcer *announced; /* of each ROS */
        uint32_t turn;                   /* ROS at which the search for an acknowledgement continues */
        bool some_required;              /* the configuration requires at least one leading ROS */
        bool open;                       /* the numbers that a previous DFM offered are known */
        bool has_floor;
        uint64_t floor;            /* numbers below it were already offered */
        bool begun;                /* the first number is chosen */
        uint64_t first_ns, agreed; /* first_ns: when the first number arrived; agreed: the lowest number that
                                      all leading ROSs have announced */
        uint64_t near_ns;          /* when a number close to the last offered ones arrived */
        bool apart;                /* whether the log already says that the boards are apart */
        bool closing;              /* the boards have restarted, so all earlier numbers end */
        /* led: number of frames of all leading ROSs; led_ns: when it last grew; others: number of frames of
         * all other ROSs at that time. */
        uint64_t led, led_ns, others;
};

/* The run drains, and the triggers that came before still become events. */
struct dfm_finish {
        bool on;
        uint64_t since_ns; /* when an event was open, or a number came */
};

static inline struct dfm_number *dfm_order_at(const struct dfm_order *f, uint32_t k)
{
        return &f->ring[(f->tail + k) % f->size];
}

/* An open event. Slots with an SFI are in the list `assigned`, in order of assignment and so of their
 * time-outs, or in `writing`, which has no time-out. Slots that never had an SFI are in `undecided`, in the
 * order of their triggers, or in `accepted`, in the order of their decisions. Slots that lost their SFI are
 * in `orphans`, in the order in which they lost it. */
struct dfm_event {
        uint64_t event;
        uint64_t trigger_ns;
        uint64_t assigned_ns; /* orphan: when the event lost its SFI; undecided: when the wait began */
        uint32_t sequence;
        uint32_t next, previous;
        uint16_t sfi;
        uint16_t previous_sfi;
        uint16_t attempts; /* assignments so far */
        bool writing;      /* the SFI has built the event and is writing it */
        bool undecided;    /* the event waits for level 2 */
        bool accepted;     /* the event waits for its first SFI */
        /* False: the schedule made the trigger, or a previous DFM received it. */
        bool trigger_known;
        bool decided; /* by a decision, which set the next members */
        uint8_t stream;
        uint32_t l2_info;
        uint32_t spill; /* as in struct dfm_waiting */
        struct trigger_entry trigger;
};

struct dfm_list {
        uint32_t first, last;
};

struct dfm_table {
        struct dfm_event *slots;
        uint32_t capacity, used;
        uint32_t *free_slots; /* from `used` on, less their index: a new table is empty memory */
        struct idmap by_event;
        struct dfm_list assigned, writing, orphans, undecided, accepted;
        uint32_t n_undecided;
        uint64_t next_event; /* number of the next trigger's event */
        uint64_t oldest;     /* every event below this number has ended */
};

int dfm_table_init(struct dfm_table *t, uint32_t capacity);
void dfm_table_fini(struct dfm_table *t);
/* Opens a slot for the next event, as an orphan. The table must not be full. */
uint32_t dfm_table_open(struct dfm_table *t, uint64_t now_ns);
/* Opens a slot for an event of a resumed run: below next_event and not in the table. */
uint32_t dfm_table_insert(struct dfm_table *t, uint64_t event, uint64_t now_ns);
/* Extends the time-out of every event by this time. */
void dfm_table_postpone(struct dfm_table *t, uint64_t now_ns, uint64_t by_ns);
void dfm_table_set_writing(struct dfm_table *t, uint32_t slot);
void dfm_table_close(struct dfm_table *t, uint32_t slot);
void dfm_table_assign(struct dfm_table *t, uint32_t slot, uint16_t sfi, uint32_t sequence, uint64_t now_ns);
void dfm_table_orphan(struct dfm_table *t, uint32_t slot, uint64_t now_ns);
/* Puts an event without an SFI into a waiting state: first it waits for its decision, then for an SFI. */
void dfm_table_await(struct dfm_table *t, uint32_t slot);
void dfm_table_accept(struct dfm_table *t, uint32_t slot, uint64_t now_ns);

/* The DFM's view of one SFI, and the stream of assignments to it. Entries [acked, next) are kept, [sent,
 * next) wait for sending. Those below `reached` were sent at least once; in push, only these are announced to
 * the ROSs, so an assignment is sent before any data for it. */
struct dfm_sfi {
        bool joined, leaving;
        uint64_t incarnation;
        uint64_t granted, used;
        uint64_t finished; /* number of assignments, counted in `used`, whose end the SFI has reported */
        uint32_t held;
        uint32_t acked, sent, reached, next;
        uint64_t resend_ns; /* NEVER_NS: all assignments are acknowledged */
        uint64_t resend_after_ns;
        uint64_t *stream;       /* event numbers, indexed by sequence & stream_mask */
        uint32_t finished_next; /* sequence of the next finished event */
        uint64_t ack_due_ns;    /* when to acknowledge finished events; NEVER_NS: none */
        struct budget budget;   /* limits the DFM's messages to the SFI's port */
};

struct dfm_ros {
        bool xoff;
        bool left_out; /* its front-end is silent, so events do not wait for its fragments, and triggers do
                          not wait for its buffer */
        bool optional, frames, leads; /* see struct ros_rule */
        uint64_t period;              /* see struct ros_rule */
        uint64_t silent_ns;           /* how long the front-end may be silent */
        uint32_t room; /* number of events whose frames fit into half of its buffer; 0: unknown */
};

/* A node of either role: its presence, and the incarnation that represents it. */
struct dfm_node {
        bool live, received, left, missed; /* left: the node reported that it left; missed: the node fell
                                              silent together with all others */
        bool vanished;                     /* an SFI: it fell silent while it had unreported events */
        bool replaced;      /* an SFI: another process took its place while it had unreported events; a ROS:
                               replaced in the run, so earlier frames may be unaccounted for */
        uint64_t welcomed;  /* the admitted incarnation; 0: none */
        uint64_t candidate; /* another incarnation that requested to join in its place; 0: none */
        uint32_t spoken;    /* number of messages from `welcomed` since the first Join of the candidate */
        bool answer_due;
        enum welcome_verdict verdict; /* the answer to `answer_to` */
        enum welcome_verdict noticed; /* the last refusal that led to a notice */
        uint16_t key;
        uint64_t answer_to;
        uint64_t received_ns;
        enum run_state state;
        struct sequence alives; /* Alive, XON and XOFF */
        uint32_t resets;        /* number of resets of the trigger counters that a ROS has received */
        uint16_t metadata;      /* version of the metadata that the SFI has */
        uint16_t metadata_sent; /* number of names of the present version that were sent */
        uint64_t metadata_due_ns;
        uint16_t flags, reason, reason_node; /* of the last Alive, and DFM_FLAGS_KEPT of earlier ones */
        uint32_t reason_ms;
        uint64_t frames;
        /* Only for a resumed run: the SFI's earlier work. */
        bool was_in_run, inventory_done;
        uint64_t inventory_next, inquiry_due_ns;
        uint64_t late_complete, late_partial; /* events whose end it reported after the run had resumed */
        uint64_t late_copies[2];   /* the SFI's builds, complete and partial, of events that other SFIs had
                                      built */
        uint32_t lost[DFM_LOSSES]; /* events of an SFI */
        bool awaited, late; /* awaited: the last process was in the run and has not reported; late: it joined
                               after the start of the run */
};

/* Decisions about events. */
struct dfm_level2 {
        uint64_t *decided;   /* EVB_EVENT_WINDOW bits: recent events that a client decided */
        uint64_t remembered; /* bits of events from this number on are not valid yet; a multiple of 64 */
        uint64_t served_ns;  /* time at which an accepted event last got an SFI, or at which draining began */
        uint32_t room; /* maximum number of undecided events that all ROSs can hold; UINT32_MAX: no limit */
        struct dfm_level2_counts counts;
        struct histogram latency_ns;
};

/* What an operator holds back: the start of the run, or its triggers. */
struct dfm_hold {
        bool held;                    /* the run does not begin */
        bool paused;                  /* no trigger is accepted */
        uint64_t since_ns;            /* time up to which the pause has been counted */
        struct metadata_set metadata; /* set by the operator, for the files of the SFIs */
};

/* An event that ended and is not cleared yet. */
struct dfm_ended {
        uint64_t event;
        bool has_l1_id;
        uint32_t l1_id;
};

/* A lost event. If an SFI that was away reports later that it has built the event, it is no longer lost. */
struct dfm_lost {
        bool lost;
        uint8_t why;  /* enum dfm_loss; DFM_LOSSES: an earlier DFM lost the event */
        uint16_t sfi; /* that lost it, or NO_SFI */
        uint64_t event;
};

/* The trigger numbers received since the last reset. */
struct dfm_numbers {
        uint64_t first;   /* first number after the reset */
        uint64_t next;    /* newest number plus 1 */
        uint64_t suspect; /* newest of `agreeing` numbers after a far jump */
        uint32_t agreeing;
        bool started;
        bool open;           /* the first number may have overtaken lower ones */
        uint64_t whole_from; /* all numbers between this one and those in `seen` came */
        uint64_t seen[DFM_NUMBERS_WINDOW / 64];
};

struct dfm_waiting {
        struct trigger_entry trigger;
        uint64_t came_ns;
        bool reset;     /* this trigger is the first one after a reset */
        bool late;      /* a trigger with a higher number came before */
        uint32_t spill; /* number of spills that had begun */
};

/* A ring of received triggers that are not assigned yet. */
struct dfm_triggers {
        struct dfm_waiting *ring;
        uint32_t size, head, tail; /* entries [tail, head), at index % size */
        struct dfm_numbers numbers;
        uint64_t last; /* number of the trigger that was queued last; BUSY_NONE: none */
        bool followed; /* a trigger that was not queued, or not accepted, may have followed */
        bool in_spill;
        uint64_t early_begun, early_ended; /* spills that began and ended before the run began or resumed */
        bool has_datagram, has_empty;      /* as in struct dfm_came */
        uint32_t next_datagram;
        uint64_t opened_ns; /* when the first trigger of the run arrived */
        bool overtaken;     /* the first trigger may have overtaken the trigger that is offered now */
        bool resumed;       /* the next number shows how many triggers were missed */
        uint64_t missed_from, missed_to; /* the range of missed numbers: [from, to) */
        bool quiet; /* no trigger was expected since a pause, so if no number comes, no trigger was missed */
        bool over;  /* the previous DFM accepted no further triggers, so no trigger was missed */
        uint64_t datagrams_lost; /* number of datagrams that were lost before this DFM started */
        bool blocked;            /* the oldest trigger waits for a message */
        uint64_t next_slice;     /* the next slice of the clock */

        /* Resets of the counters. */
        bool fresh;            /* the run has had neither a trigger nor a reset */
        bool marked;           /* a marker reset the counters before the run began */
        bool reset_due;        /* the next queued trigger is the first after a reset */
        uint64_t due_number;   /* number of the first trigger after that reset */
        uint32_t n_resets;     /* queued triggers that are the first after a reset */
        uint32_t resets;       /* number of resets, as KeepAlive announces it */
        uint64_t reset_number; /* number of the last reset announced */
        bool resetting;        /* the reset is announced, and triggers wait until every ROS has received it */
        bool known;            /* whether every present ROS has received all resets */
        uint64_t unread_ns;    /* time of the last trigger for whose frames no ROS waited; 0: none */
        uint64_t held_until_ns; /* frames that were sent before a reset may arrive until this time; NEVER_NS:
                                   no wait */
};

static inline uint32_t dfm_triggers_waiting(const struct dfm_triggers *q)
{
        return q->head - q->tail;
}

static inline bool dfm_reset_is_pending(const struct dfm_triggers *q)
{
        return q->reset_due || q->n_resets > 0;
}

#define DFM_NOTICES 64
/* Number of cleared events that can be repeated in case their Clears were lost. The frames of more events are
 * unlikely to fill a ROS. */
#define DFM_CLEARED 64u

/* The state of one SFI that the choice depends on. */
struct policy_sfi {
        uint32_t free; /* credits left; 0: unavailable (dead, leaving or full) */
        uint32_t held; /* number of events that are assigned and have not ended */
};

#define POLICY_NONE UINT32_MAX

/* policy.c: chooses the SFI with the largest share of its credits free. On a tie, the next SFI after `last`,
 * the previous choice (POLICY_NONE: none), wins, so equal SFIs take turns. Returns the index, or POLICY_NONE
 * if no SFI has a credit. */
uint32_t policy_choose(const struct policy_sfi *sfis, uint32_t n, uint32_t last);

struct dfm {
        struct dfm_config config;
        enum run_state state;
        struct trigger trigger;
        struct dfm_triggers triggers;
        struct dfm_order order;
        struct dfm_finish finish;
        struct busy_packet busy;
        struct dfm_table table;
        uint64_t cookie;
        struct dfm_node *nodes;        /* ROSs, then SFIs */
        uint32_t n_live[ROLE_SFI + 1]; /* number of present nodes of each role */
        uint32_t n_answers;            /* nodes that wait for an answer */
        struct dfm_resume resume;
        struct dfm_ledger ledger;
        struct dfm_level2 level2;
        struct dfm_hold hold;
        struct dfm_sfi *sfis;
        struct dfm_ros *ross;
        struct policy_sfi *policy_view;
        uint32_t policy_last;
        uint32_t stream_mask;
        uint64_t *stream_memory;
        uint32_t n_xoff;

        /* Frames that are matched by count. */
        uint64_t frames;    /* the ROSs have the frames of all events below this number, if `frames_known` */
        bool frames_known;  /* `frames` is current */
        bool awaits_frames; /* whether a trigger waits for frames, and for nothing else */
        bool frames_usual;  /* whether the wait for frames did not count as busy at the last check */

        /* Events assigned and not yet announced to the ROSs (push): a ring of event numbers. */
        uint64_t *announce;
        uint32_t announce_mask, announce_head, announce_tail;
        struct budget ros_budget; /* for the messages of this DFM to the port of each ROS */

        struct dfm_ended *clears;
        uint32_t n_clears, clear_group;
        uint64_t clear_since_ns, repeat_at, repeat_end, repeat_oldest; /* see dfm_make_clear() */
        struct dfm_ended cleared[DFM_CLEARED]; /* with level 2: the events cleared last, with L1 IDs */
        uint64_t n_cleared;                    /* number of events cleared since the last reset */
        uint32_t repeats; /* number of consecutive KeepAlives with which these Clears were repeated */
        uint32_t clear_sequence;

        uint64_t keep_alive_due_ns, received_ns, gather_ns; /* gather_ns: end of the wait for missed ROSs */
        uint64_t extended_ns;                               /* when timeouts were last extended */
        uint32_t keep_alive_sequence;
        uint64_t quorum_ns;  /* time of the last join of a required node, or of the first join; 0: none */
        uint64_t started_ns; /* modulo 2^64: a resumed run may be older than the clock */
        uint64_t draining_ns, ended_ns; /* when the run began to drain, and when it ended */
        bool begun, overdue;
        bool stopped; /* whether dfm_stop() was called while triggers were still accepted */
        bool cut_off; /* all nodes counted as absent, as the DFM received nothing; others may return soon */
        bool end_answered;  /* a node has sent a message since the end of the run */
        bool only_leaving;  /* the run drains, and each present SFI leaves: they build its last events */
        uint64_t built_end; /* number of the newest event that was built, plus 1 */
        /* Events from `built_end` on whose triggers do not count, see dfm_untake(); and the number of such
         * events that an earlier DFM recorded. */
        struct event_set untaken;
        uint64_t n_untaken_before;
        bool stalled; /* whether dfm_stop_stalled() was called */
        bool failed;
        bool done;
        uint64_t busy_since_ns; /* NEVER_NS: not busy */
        uint32_t sfi_turn;      /* SFI at which the search for a due message continues */

        struct dfm_notice notices[DFM_NOTICES];
        uint32_t notices_head, notices_tail;

        struct dfm_counts counts;
        uint64_t lost[DFM_LOSSES];
        struct dfm_lost *lost_events; /* the newest ones, at index event % EVB_EVENTS_KEPT */
        struct histogram latency_ns;
};

static inline struct dfm_node *dfm_node(const struct dfm *d, enum node_role role, uint32_t index)
{
        return &d->nodes[role == ROLE_ROS ? index : d->config.n_ros + index];
}

/* dfm_events.c: assignment and end of events. */
void dfm_end_event(struct dfm *d, uint64_t now_ns, uint32_t slot, enum event_end end, uint32_t missing,
                   uint64_t payload_bytes);
void dfm_lose_event(struct dfm *d, uint64_t now_ns, uint32_t slot, enum dfm_loss why);
/* An SFI built an event that had ended: if it counts as lost, it counts by this end from now on. False: it
 * does not count as lost, or too many events were lost since. */
bool dfm_recover_event(struct dfm *d, uint64_t now_ns, const struct finished_entry *f);
void dfm_leave_sfi(struct dfm *d, uint32_t slot); /* the SFI no longer holds the event */
/* No longer counts the event's trigger, unless an event of a newer trigger is built later. */
void dfm_untake(struct dfm *d, uint64_t now_ns, uint32_t slot);
/* Ends an event that level 2 rejected. */
void dfm_reject_event(struct dfm *d, uint64_t now_ns, uint32_t slot);
/* Whether there is room for another open event. */
bool dfm_may_open(const struct dfm *d);
void dfm_assign_due(struct dfm *d, uint64_t now_ns);
void dfm_expire(struct dfm *d, uint64_t now_ns);
void dfm_disown(struct dfm *d, uint64_t now_ns, uint16_t sfi);

/* dfm_triggers.c: the queue of triggers from outside. */
int dfm_triggers_init(struct dfm *d);
void dfm_triggers_begin(struct dfm *d, uint64_t now_ns);
/* The run began under a previous DFM: continues from the record of that DFM. */
void dfm_triggers_resume(struct dfm *d);
/* Events of `n` triggers that the previous DFM took have become known since. */
void dfm_triggers_learn(struct dfm *d, uint64_t n);
/* Adds the slices of time that have passed. */
void dfm_triggers_tick(struct dfm *d, uint64_t now_ns);
/* Whether a trigger can become an event now, regardless of credits. */
bool dfm_trigger_is_due(struct dfm *d, uint64_t now_ns);
/* Removes the due trigger from the queue and assigns it to the event in `slot`. */
void dfm_trigger_assign(struct dfm *d, uint64_t now_ns, uint32_t slot);
/* Offers a trigger that came at `came_ns`. */
enum dfm_offer dfm_offer_since(struct dfm *d, uint64_t came_ns, const struct trigger_entry *t);
/* Informs the ROSs that the counters were reset. The next trigger waits until all ROSs have confirmed
 * this. */
void dfm_announce_reset(struct dfm *d, uint64_t now_ns, uint64_t number);
/* The run accepts no further triggers. */
void dfm_triggers_close(struct dfm *d);
/* Drops the queued triggers. */
void dfm_triggers_drop(struct dfm *d);
bool dfm_triggers_are_followed(const struct dfm *d);
uint64_t dfm_triggers_deadline_ns(const struct dfm *d);
/* Whether events have event information, beyond their number and time. */
bool dfm_has_info(const struct dfm *d);
void dfm_describe(const struct dfm *d, const struct dfm_event *e, struct event_info *ret);
/* Whether the event's trigger is known, or follows from its number. */
bool dfm_can_describe(const struct dfm *d, uint32_t slot);

/* dfm_numbers.c: the numbers of triggers. */
enum dfm_offer dfm_numbers_accept(struct dfm_numbers *n, uint64_t number, uint64_t *missing);
/* Accepts a number below the first one, which overtook it; the numbers in between count as missing and may
 * still arrive. False: it was not overtaken. */
bool dfm_numbers_precede(struct dfm_numbers *n, uint64_t number, uint64_t *missing);
/* Records the numbers from the expected one to `next` as missing; they may still arrive. */
void dfm_numbers_miss(struct dfm_numbers *n, uint64_t next);
/* Records that the numbers below `next` were counted elsewhere, so they are not missing. */
void dfm_numbers_skip(struct dfm_numbers *n, uint64_t next);
/* Records that all numbers below `next` arrived. */
void dfm_numbers_begin(struct dfm_numbers *n, uint64_t next);
/* Continues from the record, after which `events` numbers became events, without a gap. Numbers that waited
 * will be sent again; gaps between them are subtracted from *missing, because they will be counted again.
 * False: these numbers were too far apart to identify them. If `missing` is NULL, they will not be sent
 * again, and the result is always true. */
bool dfm_numbers_resume(struct dfm_numbers *n, const struct dfm_came *c, uint64_t events, uint64_t *missing);

enum number_state { NUMBER_NEW, NUMBER_SEEN, NUMBER_OLD };

/* Whether the number may still be new; NUMBER_OLD: it is too far behind to know, as some of those numbers did
 * not come. */
enum number_state dfm_numbers_state(const struct dfm_numbers *n, uint64_t number);

/* dfm_order.c: announced numbers. */
int dfm_order_init(struct dfm *d); /* -ENOMEM */
void dfm_order_fini(struct dfm *d);
void dfm_order_begin(struct dfm *d);
/* Whether this ROS leads, so that numbers wait until it has announced them. */
bool dfm_leads(const struct dfm *d, uint32_t ros);
/* Whether no leading ROS receives frames, although other ROSs do. */
bool dfm_awaits_leader(struct dfm *d, uint64_t now_ns);
/* The first counter of another ROS may stand for a number below the waiting numbers, if the counter wrapped
 * in between, unless a number above them is nearer. If that number would be negative, all waiting numbers
 * are increased by one period. */
void dfm_order_lift(struct dfm_order *f, uint32_t n_ros, uint32_t value, uint64_t period);
/* Accepts a number announced by one of `n_leading` leading ROSs or (not `leading`) by another ROS, which has
 * announced numbers below `top`. False: there is no room. */
bool dfm_order_accept(struct dfm *d, uint64_t now_ns, uint64_t number, uint64_t top, bool leading,
                      uint32_t n_leading);
/* Offers the numbers that are due. */
void dfm_order_tick(struct dfm *d, uint64_t now_ns);
void dfm_order_drop(struct dfm *d);
/* The run drains, and no further number comes in time: waits no longer for one. False: this ends no wait. */
bool dfm_order_end_streams(struct dfm *d, uint64_t now_ns);
/* Waits no longer for the last numbers from before the stop, and records which ROSs did not announce them.
 * False: all ROSs did. */
bool dfm_order_cut_short(struct dfm *d);
/* No number is accepted from now on: also records the ROSs that became silent before they could announce
 * their last numbers. */
void dfm_order_record_absent(struct dfm *d);
/* Whether all numbers from before the stop were offered. */
bool dfm_order_is_over(const struct dfm *d);
uint64_t dfm_order_deadline_ns(const struct dfm *d);

/* dfm_finish.c: triggers that came before a stop. The run begins to drain: such triggers may still become
 * events. False: none will. */
bool dfm_finish(struct dfm *d, uint64_t now_ns);
/* Whether they may still. */
bool dfm_is_finishing(struct dfm *d, uint64_t now_ns);
/* Updates `only_leaving`. */
void dfm_check_leaving(struct dfm *d);
uint64_t dfm_finish_deadline_ns(const struct dfm *d);

/* dfm_announcer.c: the streams of announcements. */
bool dfm_receive_numbers(struct dfm *d, uint64_t now_ns, const struct message *m);
bool dfm_make_numbers_ack(struct dfm *d, uint64_t now_ns, struct message_to *to, struct message *m);
uint64_t dfm_announced_deadline_ns(const struct dfm *d);

/* dfm_busy.c: the busy signal, and the time for which triggers are held back. */
void dfm_judge_busy(struct dfm *d, uint64_t now_ns);
void dfm_hold_back(struct dfm *d, uint64_t now_ns);
void dfm_release(struct dfm *d, uint64_t now_ns);
/* Counts the pause up to now, if there is one, during which the trigger schedule stood still. */
void dfm_count_pause(struct dfm *d, uint64_t now_ns);

/* dfm_metadata.c: the next message to an SFI without current metadata, and when it is due. */
bool dfm_make_metadata(struct dfm *d, uint64_t now_ns, struct message_to *to, struct message *m);
uint64_t dfm_metadata_deadline_ns(const struct dfm *d);

/* dfm_level2.c: decisions. */
int dfm_level2_init(struct dfm *d); /* -ENOMEM */
void dfm_level2_fini(struct dfm *d);
/* Sets the number of events whose undecided frames fit into the ROS's buffer; 0: unknown, or the ROS left. */
void dfm_level2_set_room(struct dfm *d, uint16_t ros, uint32_t room);
/* Decides overdue events; while the run drains, also ends accepted events that no SFI can build. */
void dfm_level2_expire(struct dfm *d, uint64_t now_ns);
uint64_t dfm_level2_deadline_ns(const struct dfm *d);

/* dfm_join.c: admission. */
bool dfm_receive_join(struct dfm *d, uint64_t now_ns, const struct message *m);
bool dfm_make_welcome(struct dfm *d, struct message_to *to, struct message *m);
void dfm_notice(struct dfm *d, const struct dfm_notice *notice);

/* dfm_silence.c: if all nodes are silent, the DFM is cut off; it is unlikely that all of them died. */
/* Whether no node has sent anything for three keep-alive intervals. */
bool dfm_receives_nothing(const struct dfm *d, uint64_t now_ns);
/* Records a message of the node. If the DFM was cut off until now, extends all time-outs by the time during
 * which it was cut off. */
void dfm_record_contact(struct dfm *d, uint64_t now_ns, struct dfm_node *n);

/* dfm_nodes.c: presence of nodes, start and end of the run. */
bool dfm_receive_alive(struct dfm *d, uint64_t now_ns, const struct message *m);
void dfm_check_nodes(struct dfm *d, uint64_t now_ns);
void dfm_advance_run(struct dfm *d, uint64_t now_ns);

/* dfm_sources.c: which ROSs take part in events. */
void dfm_init_sources(struct dfm *d);
void dfm_set_xoff(struct dfm *d, uint16_t ros, bool xoff);
/* Records that the ROS reported a reason, or left. */
void dfm_record_source(struct dfm *d, uint64_t now_ns, uint16_t ros);
bool dfm_has_required_ross(const struct dfm *d);
/* Whether all required ROSs and all SFIs are present. */
bool dfm_has_required(const struct dfm *d);

/* dfm_frames.c: matching of frames by count. */
/* Whether the counted frames allow the next trigger. */
bool dfm_has_frames(struct dfm *d);
/* Whether the next trigger waits for a frame of this ROS. */
bool dfm_is_missing_frame(const struct dfm *d, uint32_t ros);
/* Whether a front-end that has not sent the next frame counts as silent: the external trigger has arrived, or
 * another ROS has its own frame or does not count frames. */
bool dfm_expects_frames(const struct dfm *d);

/* dfm_messages.c: each makes the next message of its kind, if one is due. */
void dfm_make_keep_alive(struct dfm *d, uint64_t now_ns, struct message *m);
void dfm_address(const struct dfm *d, struct message *m, uint32_t type, uint32_t transaction);
bool dfm_make_clear(struct dfm *d, uint64_t now_ns, struct message_to *to, struct message *m);
/* When the next Clear is due and fits into its budget; NEVER_NS: none. */
uint64_t dfm_clear_deadline_ns(const struct dfm *d);
bool dfm_make_announcement(struct dfm *d, uint64_t now_ns, struct message_to *to, struct message *m);
bool dfm_make_sfi_message(struct dfm *d, uint64_t now_ns, struct message_to *to, struct message *m);
/* Charges the message to the budgets of the ports that it reaches. */
void dfm_charge(struct dfm *d, uint64_t now_ns, const struct message_to *to, const struct message *m);
/* When the next message to a single SFI, or the next announcement, is due and fits into its budget; NEVER_NS:
 * none. */
uint64_t dfm_streams_deadline_ns(const struct dfm *d);

/* Whether every frame of this ROS must be accounted for. */
static inline bool dfm_requires_frames(const struct dfm *d, uint32_t ros)
{
        return d->ross[ros].frames && !d->ross[ros].optional;
}

/* Changes the version of the record of the run, because the next DFM needs what has just changed. */
static inline void dfm_ledger_changed(struct dfm *d)
{
        if (d->state < RUN_ENDED)
                d->ledger.version++;
}

/* Whether the ROS has not received the last reset yet. Until then, it must not receive a trigger. */
static inline bool dfm_is_behind(const struct dfm *d, uint32_t ros)
{
        const struct dfm_node *n = dfm_node(d, ROLE_ROS, ros);

        return n->live && n->resets != d->triggers.resets;
}

/* Whether the frames of boards make the triggers. */
static inline bool dfm_frames_trigger(const struct dfm *d)
{
        return d->config.trigger_source == DFM_TRIGGER_FRAMES;
}

/* Whether triggers that wait become events. After a stop, those that came before it still do. */
static inline bool dfm_makes_events(const struct dfm *d)
{
        return d->state == RUN_RUNNING || d->finish.on;
}

/* Whether triggers are accepted. After a stop, numbers of frames that came before it still are. */
static inline bool dfm_accepts(const struct dfm *d)
{
        return d->state == RUN_RUNNING || (d->finish.on && dfm_frames_trigger(d));
}

/* Whether no SFI will build a further event. */
static inline bool dfm_is_hopeless(const struct dfm *d)
{
        return d->state == RUN_DRAINING && (d->failed || (d->n_live[ROLE_SFI] == 0 && !d->cut_off));
}

static inline bool dfm_triggers_are_outside(const struct dfm *d)
{
        return d->config.trigger_source != DFM_TRIGGER_SCHEDULE;
}

/* Whether a pause holds back triggers made by the DFM or by frames. */
static inline bool dfm_pause_holds(const struct dfm *d)
{
        enum dfm_trigger_source source = d->config.trigger_source;

        return d->hold.paused && (source == DFM_TRIGGER_SCHEDULE || source == DFM_TRIGGER_FRAMES);
}

/* Whether a trigger that arrives now is refused because of a pause. */
static inline bool dfm_pause_refuses(const struct dfm *d)
{
        return d->hold.paused && !dfm_pause_holds(d);
}

/* Maximum number of events that wait for level 2, so that the ROSs can hold the frames of all of them. */
static inline uint32_t dfm_level2_limit(const struct dfm *d)
{
        return MIN(d->config.level2.window, d->level2.room);
}

static inline bool dfm_level2_has_room(const struct dfm *d)
{
        return d->table.n_undecided < dfm_level2_limit(d);
}

/* Whether the SFI has assignments whose end it did not report, so it may have built these events. After the
 * end of the run, all events have ended elsewhere. */
static inline bool dfm_sfi_has_unreported_ends(const struct dfm *d, uint16_t sfi)
{
        const struct dfm_sfi *s = &d->sfis[sfi];
        const struct dfm_node *n = dfm_node(d, ROLE_SFI, sfi);

        return d->state < RUN_ENDED &&
               (s->held > 0 || s->used > s->finished || (n->was_in_run && !n->inventory_done));
}

/* Whether the SFI does not have the metadata of the run yet, so its files would not contain them. */
static inline bool dfm_is_missing_metadata(const struct dfm *d, uint32_t sfi)
{
        uint16_t version = d->hold.metadata.version;

        return version > 0 && dfm_node(d, ROLE_SFI, sfi)->metadata != version;
}

static inline bool dfm_sfi_is_live(const struct dfm *d, const struct dfm_sfi *s)
{
        return dfm_node(d, ROLE_SFI, (uint32_t)(s - d->sfis))->live;
}

static inline uint32_t dfm_sfi_free(const struct dfm *d, const struct dfm_sfi *s)
{
        uint32_t window = d->stream_mask + 1;

        if (dfm_is_missing_metadata(d, (uint32_t)(s - d->sfis)))
                return 0;
        if (!dfm_sfi_is_live(d, s) || (s->leaving && !d->only_leaving) || s->granted <= s->used ||
            s->next - s->acked >= window)
                return 0;
        return (uint32_t)MIN(s->granted - s->used, (uint64_t)(window - (s->next - s->acked)));
}
