/* Shared by the files of the DFM: its events, its view of the nodes, its streams to the SFIs. */
#pragma once

#include "base/idmap.h"
#include "base/util.h"
#include "core/dfm.h"
#include "protocol/event_set.h"
#include "protocol/sequence.h"
#include "dfm_order.h"
#include "dfm_resume.h"

/* Flags of Alive that stay true, whatever a node, or another process of it, reports later. */
#define DFM_FLAGS_KEPT (ALIVE_UNRELIABLE | ALIVE_FAILED | ALIVE_SHORT)

#define SLOT_NONE UINT32_MAX
#define NO_SFI UINT16_MAX

/* The first and the longest pause before an unacknowledged assignment is resent. */
#define DFM_RESEND_FIRST_NS (20 * NS_PER_MS)
#define DFM_RESEND_LONGEST_NS (320 * NS_PER_MS)

/* An open event. Slots with an SFI are in the list `assigned`, in order of assignment and so of their
 * time-outs, or in `writing`, which has no time-out. Slots that never had an SFI are in `undecided`, in the
 * order of their triggers, or in `accepted`, in that of their decisions; slots without an SFI otherwise are
 * in `orphans`, in the order in which they lost it. */
struct dfm_event {
        uint64_t event;
        uint64_t trigger_ns;
        uint64_t assigned_ns; /* for an orphan: when it lost its SFI; if undecided: when it became so */
        uint32_t sequence;
        uint32_t next, previous;
        uint16_t sfi;
        uint16_t previous_sfi; /* its previous SFI */
        uint16_t attempts;     /* assignments so far */
        bool writing;          /* its SFI built it and is writing it */
        bool undecided;        /* it waits for level 2 */
        bool accepted;         /* it waits for its first SFI */
        bool decided;          /* by a decision, which set the following */
        uint8_t stream;
        uint32_t l2_info;
        /* Not known: the schedule made the trigger, or a previous DFM took it. */
        bool trigger_known;
        struct trigger_entry trigger;
};

struct dfm_list {
        uint32_t first, last;
};

struct dfm_table {
        struct dfm_event *slots;
        uint32_t capacity, used;
        uint32_t *free_slots;
        struct idmap by_event;
        struct dfm_list assigned, writing, orphans, undecided, accepted;
        uint32_t n_undecided;
        uint64_t next_event; /* number of the next trigger's event */
        uint64_t oldest;     /* every event below has ended */
};

int dfm_table_init(struct dfm_table *t, uint32_t capacity);
void dfm_table_fini(struct dfm_table *t);
/* Takes a slot for the next event, as an orphan. The table must not be full. */
uint32_t dfm_table_open(struct dfm_table *t, uint64_t now_ns);
/* Takes a slot for an event of a resumed run: below next_event and not in the table. */
uint32_t dfm_table_insert(struct dfm_table *t, uint64_t event, uint64_t now_ns);
/* Adds this time to the time-out of every event. */
void dfm_table_postpone(struct dfm_table *t, uint64_t now_ns, uint64_t by_ns);
void dfm_table_set_writing(struct dfm_table *t, uint32_t slot);
void dfm_table_close(struct dfm_table *t, uint32_t slot);
void dfm_table_assign(struct dfm_table *t, uint32_t slot, uint16_t sfi, uint32_t sequence, uint64_t now_ns);
void dfm_table_orphan(struct dfm_table *t, uint32_t slot, uint64_t now_ns);
/* An event without an SFI waits for its decision; then, for an SFI. */
void dfm_table_await(struct dfm_table *t, uint32_t slot);
void dfm_table_accept(struct dfm_table *t, uint32_t slot, uint64_t now_ns);

/* The DFM's view of one SFI, and the stream of assignments to it. Entries [acked, next) are kept, [sent,
 * next) wait for sending. Those below `reached` were sent at least once; in push, only these are announced to
 * the ROSs, so that an assignment is on its way before any data for it. */
struct dfm_sfi {
        bool joined, leaving;
        uint64_t incarnation;
        uint64_t granted, used;
        uint64_t finished; /* of `used`: the ends that it reported */
        uint32_t held;
        uint32_t acked, sent, reached, next;
        uint64_t resend_ns; /* NEVER_NS: all is acknowledged */
        uint64_t resend_after_ns;
        uint64_t *stream;       /* event numbers, indexed by sequence & stream_mask */
        uint32_t finished_next; /* sequence of the next finished event */
        uint64_t ack_due_ns;    /* when to acknowledge finished events; NEVER_NS: nothing to acknowledge */
        struct budget budget;   /* of what this DFM sends to its port */
};

struct dfm_ros {
        bool xoff;
        bool left_out; /* its front-end is silent: events do not wait for it, nor triggers for its buffer */
        bool optional, frames, leads; /* see struct ros_rule */
        uint64_t silent_ns;           /* how long the front-end may be silent */
        uint32_t room;                /* events whose frames half of its buffer holds; 0: not known */
};

/* A node of either role: its presence, and the incarnation that speaks for it. */
struct dfm_node {
        bool live, received, left,
                missed;    /* left: it said so; missed: fell silent together with all others */
        bool vanished;     /* an SFI: silent since it had unreported events */
        bool replaced;     /* an SFI: another process took its place while it had unreported events; a ROS: in
                            * the run, and what the front-end sent before may be in no account */
        uint64_t welcomed; /* the incarnation that may speak; 0: none */
        uint64_t candidate; /* another incarnation that requested the place; 0: none */
        uint32_t spoken;    /* messages of `welcomed` since the candidate's first Join */
        bool answer_due;
        enum welcome_verdict verdict; /* the answer to `answer_to` */
        enum welcome_verdict noticed; /* the last refusal that led to a notice */
        uint16_t key;
        uint64_t answer_to;
        uint64_t received_ns;
        enum run_state state;
        struct sequence alives; /* Alive, XON and XOFF */
        uint32_t resets;        /* of the triggers' counters, that a ROS knows of */
        uint16_t metadata;      /* version that an SFI has */
        uint16_t metadata_sent; /* names of the present version that were sent */
        uint64_t metadata_due_ns;
        uint16_t flags, reason, reason_node; /* of the last Alive, and DFM_FLAGS_KEPT of earlier ones */
        uint32_t reason_ms;
        uint64_t frames;
        /* For a resumed run: the SFI's work before. */
        bool was_in_run, inventory_done;
        uint64_t inventory_next, inquiry_due_ns;
        uint64_t late_complete, late_partial; /* events that it found ended after the run had resumed */
        uint32_t lost[DFM_LOSSES];            /* events of an SFI */
        bool awaited, late; /* its last process was in the run, and has not reported; came after its start */
};

/* Decisions about events. */
struct dfm_level2 {
        uint64_t *decided;   /* EVB_EVENT_WINDOW bits: the recent events that a client decided */
        uint64_t remembered; /* bits of events from here on are not valid yet; a multiple of 64 */
        uint64_t served_ns;  /* the last time at which an accepted event got an SFI, or draining began */
        uint32_t room;       /* undecided events whose frames all ROSs can hold; UINT32_MAX: any number */
        struct dfm_level2_counts counts;
        struct histogram latency_ns;
};

/* What an operator holds back. */
struct dfm_hold {
        bool held;                    /* the run does not begin */
        bool paused;                  /* no trigger is taken */
        uint64_t since_ns;            /* the pause is counted up to then */
        struct metadata_set metadata; /* of its operator, for the files of the SFIs */
};

/* An event that ended and is not cleared yet. */
struct dfm_ended {
        uint64_t event;
        bool has_l1_id;
        uint32_t l1_id;
};

/* The numbers of triggers since the last reset: which ones came. */
struct dfm_numbers {
        uint64_t first;   /* number */
        uint64_t next;    /* newest number plus 1 */
        uint64_t suspect; /* newest of `agreeing` numbers after a far jump */
        uint32_t agreeing;
        bool started;
        bool open; /* the first one may have overtaken lower ones */
        uint64_t seen[DFM_NUMBERS_WINDOW / 64];
};

struct dfm_waiting {
        struct trigger_entry trigger;
        uint64_t came_ns;
        bool reset; /* the first one after a reset */
        bool late;  /* frames make the triggers, and a higher number came before */
};

/* Triggers that came and are not taken yet: a ring. */
struct dfm_triggers {
        struct dfm_waiting *ring;
        uint32_t size, head, tail; /* entries [tail, head), at index % size */
        struct dfm_numbers numbers;
        uint64_t last; /* number of the last queued one; BUSY_NONE: none */
        bool followed; /* one that was not queued, or not taken, may have come after it */
        bool in_spill;
        uint64_t opened_ns;              /* when the first one of the run came */
        bool overtaken;                  /* the first one may have overtaken the one that is offered */
        bool resumed;                    /* the next number shows how many triggers were missed: */
        uint64_t missed_from, missed_to; /* those from the one on below the other */
        bool quiet;              /* since a pause none was to be taken: if no number comes, none was missed */
        uint64_t datagrams_lost; /* before this DFM */
        bool blocked;            /* the oldest one waits for a message */
        uint64_t next_slice;     /* of the clock */

        /* Resets of the counters. */
        bool fresh;             /* the run has had neither a trigger nor a reset */
        bool marked;            /* by a marker before the run began */
        bool reset_due;         /* the next queued one is the first after a reset */
        uint64_t due_number;    /* of that reset */
        uint32_t n_resets;      /* queued ones that are the first after a reset */
        uint32_t resets;        /* as KeepAlive announces them */
        uint64_t reset_number;  /* of the last one announced */
        bool resetting;         /* announced: triggers wait until every ROS knows of it */
        bool known;             /* every present ROS knows of all resets */
        uint64_t unread_ns;     /* the last trigger whose frames no ROS waited for; 0: none */
        uint64_t held_until_ns; /* frames of before a reset may arrive until then; NEVER_NS: it does not wait
                                 */
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

struct dfm {
        struct dfm_config config;
        enum run_state state;
        struct trigger trigger;
        struct dfm_triggers triggers;
        struct dfm_order order;
        struct busy_packet busy;
        struct dfm_table table;
        uint64_t cookie;
        struct dfm_node *nodes;        /* ROSs, then SFIs */
        uint32_t n_live[ROLE_SFI + 1]; /* present nodes by role, as every step needs it */
        uint32_t n_answers;            /* nodes that wait for one */
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
        uint64_t frames;    /* the ROSs have those of all events below, if `frames_known` */
        bool frames_known;  /* nothing has changed since */
        bool awaits_frames; /* a trigger waits for them, and for nothing else */
        bool frames_usual;  /* and that did not count as busy at the last look */

        /* Events assigned and not yet announced to the ROSs (push): a ring of event numbers. */
        uint64_t *announce;
        uint32_t announce_mask, announce_head, announce_tail;
        struct budget ros_budget; /* of what this DFM sends to the port of each ROS */

        struct dfm_ended *clears;
        uint32_t n_clears, clear_group;
        uint64_t clear_since_ns, repeat_at, repeat_end, repeat_oldest; /* see dfm_make_clear() */
        uint32_t clear_sequence;

        uint64_t keep_alive_due_ns, received_ns, gather_ns; /* until then, events wait for missed ROSs */
        uint32_t keep_alive_sequence;
        uint64_t quorum_ns;  /* the last join of a required node, or the first of all; 0: none */
        uint64_t started_ns; /* modulo 2^64: a resumed run may be older than the clock */
        uint64_t ended_ns, drain_until_ns;
        bool begun, overdue;
        bool stopped;       /* by dfm_stop(), while triggers came */
        uint64_t built_end; /* the newest event that was built, plus 1 */
        bool stalled;       /* by dfm_stop_stalled() */
        bool failed;
        bool done;
        uint64_t busy_since_ns; /* NEVER_NS: not busy */
        uint32_t sfi_turn;      /* SFI at which the search for a due message continues */

        struct dfm_notice notices[DFM_NOTICES];
        uint32_t notices_head, notices_tail;

        struct dfm_counts counts;
        uint64_t lost[DFM_LOSSES];
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
void dfm_leave_sfi(struct dfm *d, uint32_t slot); /* the SFI does not hold the event any longer */
void dfm_untake(struct dfm *d, uint64_t now_ns, uint32_t slot); /* its trigger does not count */
/* Ends an event that level 2 does not want. */
void dfm_reject_event(struct dfm *d, uint64_t now_ns, uint32_t slot);
void dfm_assign_due(struct dfm *d, uint64_t now_ns);
void dfm_expire(struct dfm *d, uint64_t now_ns);
void dfm_disown(struct dfm *d, uint64_t now_ns, uint16_t sfi);

/* dfm_triggers.c: the queue of triggers from outside. */
int dfm_triggers_init(struct dfm *d);
void dfm_triggers_begin(struct dfm *d, uint64_t now_ns);
/* The run is that of a previous DFM: goes on from what its record says. */
void dfm_triggers_resume(struct dfm *d);
/* Adds the slices of time that have passed. */
void dfm_triggers_tick(struct dfm *d, uint64_t now_ns);
/* Whether a trigger can become an event now, apart from credits. */
bool dfm_trigger_is_due(struct dfm *d, uint64_t now_ns);
/* Takes the trigger that is due, for the event in `slot`. */
void dfm_trigger_assign(struct dfm *d, uint64_t now_ns, uint32_t slot);
/* Offers a trigger that came at that time. */
enum dfm_offer dfm_offer_since(struct dfm *d, uint64_t came_ns, const struct trigger_entry *t);
/* Informs the ROSs of a reset of the counters. The next trigger waits until all of them know. */
void dfm_announce_reset(struct dfm *d, uint64_t now_ns, uint64_t number);
/* Drops what waits: the run takes no further triggers. */
void dfm_triggers_drop(struct dfm *d);
bool dfm_triggers_are_followed(const struct dfm *d);
uint64_t dfm_triggers_deadline_ns(const struct dfm *d);
/* Whether the events have more than their number and time: event information. */
bool dfm_has_info(const struct dfm *d);
void dfm_describe(const struct dfm *d, const struct dfm_event *e, struct event_info *ret);
/* Whether the event's trigger is known, or follows from its number. */
bool dfm_can_describe(const struct dfm *d, uint32_t slot);

/* dfm_numbers.c: the numbers of triggers. */
enum dfm_offer dfm_numbers_accept(struct dfm_numbers *n, uint64_t number, uint64_t *missing);
/* A number that the first one overtook: it, and those in between, may come. False: it is none. */
bool dfm_numbers_precede(struct dfm_numbers *n, uint64_t number, uint64_t *missing);
/* The numbers below `next` are not known to come, but may. */
void dfm_numbers_miss(struct dfm_numbers *n, uint64_t next);
/* The numbers below `next` were counted elsewhere: they are not missing. */
void dfm_numbers_skip(struct dfm_numbers *n, uint64_t next);
/* All numbers below `next` came. */
void dfm_numbers_begin(struct dfm_numbers *n, uint64_t next);
/* Goes on from the record, since which `events` numbers became events without a gap. False: those that waited
 * were too far apart to know which ones they are. */
bool dfm_numbers_resume(struct dfm_numbers *n, const struct dfm_came *c, uint64_t events, uint64_t *missing);

enum number_state { NUMBER_NEW, NUMBER_SEEN, NUMBER_OLD };

/* Whether the number may still be new; NUMBER_OLD: it is too far behind to know. */
enum number_state dfm_numbers_state(const struct dfm_numbers *n, uint64_t number);

/* dfm_order.c: announced numbers. */
int dfm_order_init(struct dfm *d); /* -ENOMEM */
void dfm_order_fini(struct dfm *d);
void dfm_order_begin(struct dfm *d);
/* Whether numbers wait for this ROS to announce them. */
bool dfm_leads(const struct dfm *d, uint32_t ros);
/* Whether no leading ROS gets frames although others do. */
bool dfm_awaits_leader(struct dfm *d, uint64_t now_ns);
/* The first counter of another ROS may be that of a number below the waiting ones, across the wrap of the
 * counter: if that would be below 0, all of them move up by a period. */
void dfm_order_lift(struct dfm_order *f, uint32_t n_ros, uint32_t value, unsigned bits);
/* Takes an announced number, of one of `n_leading` leading ROSs or (not `leading`) another one, which has
 * announced numbers below `top`. False: there is no room. */
bool dfm_order_accept(struct dfm *d, uint64_t now_ns, uint64_t number, uint64_t top, bool leading,
                      uint32_t n_leading);
/* Offers the numbers that are due. */
void dfm_order_tick(struct dfm *d, uint64_t now_ns);
void dfm_order_drop(struct dfm *d);
uint64_t dfm_order_deadline_ns(const struct dfm *d);

/* dfm_announcer.c: the streams of announcements. */
bool dfm_receive_numbers(struct dfm *d, uint64_t now_ns, const struct message *m);
bool dfm_make_numbers_ack(struct dfm *d, uint64_t now_ns, struct message_to *to, struct message *m);
uint64_t dfm_announced_deadline_ns(const struct dfm *d);

/* dfm_busy.c: the busy signal, and the time for which triggers are held back. */
void dfm_judge_busy(struct dfm *d, uint64_t now_ns);
void dfm_hold_back(struct dfm *d, uint64_t now_ns);
void dfm_release(struct dfm *d, uint64_t now_ns);
/* Counts the pause up to now, if there is one: the schedule of triggers stood still. */
void dfm_count_pause(struct dfm *d, uint64_t now_ns);

/* dfm_metadata.c: the next message to an SFI that lacks metadata, and when it is due. */
bool dfm_make_metadata(struct dfm *d, uint64_t now_ns, struct message_to *to, struct message *m);
uint64_t dfm_metadata_deadline_ns(const struct dfm *d);

/* dfm_level2.c: decisions. */
int dfm_level2_init(struct dfm *d); /* -ENOMEM */
void dfm_level2_fini(struct dfm *d);
/* The ROS's buffer holds undecided frames of so many events; 0: it left, or does not know. */
void dfm_level2_set_room(struct dfm *d, uint16_t ros, uint32_t room);
/* Decides overdue events; while draining, also ends accepted ones that no SFI takes. */
void dfm_level2_expire(struct dfm *d, uint64_t now_ns);
uint64_t dfm_level2_deadline_ns(const struct dfm *d);

/* dfm_join.c: admission. */
bool dfm_receive_join(struct dfm *d, uint64_t now_ns, const struct message *m);
bool dfm_make_welcome(struct dfm *d, struct message_to *to, struct message *m);
void dfm_notice(struct dfm *d, const struct dfm_notice *notice);

/* dfm_nodes.c: presence of nodes, start and end of the run. */
bool dfm_receive_alive(struct dfm *d, uint64_t now_ns, const struct message *m);
void dfm_check_nodes(struct dfm *d, uint64_t now_ns);
void dfm_advance_run(struct dfm *d, uint64_t now_ns);

/* dfm_sources.c: which ROSs take part in events. */
void dfm_init_sources(struct dfm *d);
void dfm_set_xoff(struct dfm *d, uint16_t ros, bool xoff);
/* The ROS reported a reason, or left. */
void dfm_record_source(struct dfm *d, uint64_t now_ns, uint16_t ros);
bool dfm_has_required_ross(const struct dfm *d);
/* All required ROSs and all SFIs are present. */
bool dfm_has_required(const struct dfm *d);

/* dfm_frames.c: frames that are counted. */
/* Whether the frames that are counted permit the next trigger. */
bool dfm_has_frames(struct dfm *d);
/* Whether the next trigger waits for a frame of this ROS. */
bool dfm_is_missing_frame(const struct dfm *d, uint32_t ros);
/* Whether a front-end without that frame is silent: there was a trigger, or another ROS has its frame. */
bool dfm_expects_frames(const struct dfm *d);

/* dfm_messages.c: each makes the next message of its kind, if one is due. */
void dfm_make_keep_alive(struct dfm *d, uint64_t now_ns, struct message *m);
void dfm_address(const struct dfm *d, struct message *m, uint32_t type, uint32_t transaction);
bool dfm_make_clear(struct dfm *d, uint64_t now_ns, struct message_to *to, struct message *m);
/* When the next Clear is due, and its budget permits it; NEVER_NS: none. */
uint64_t dfm_clear_deadline_ns(const struct dfm *d);
bool dfm_make_announcement(struct dfm *d, uint64_t now_ns, struct message_to *to, struct message *m);
bool dfm_make_sfi_message(struct dfm *d, uint64_t now_ns, struct message_to *to, struct message *m);
/* Charges the budgets of the ports that the message reaches. */
void dfm_charge(struct dfm *d, uint64_t now_ns, const struct message_to *to, const struct message *m);
/* When the next message to a single SFI or announcement is due, and its budget permits it; NEVER_NS: none. */
uint64_t dfm_streams_deadline_ns(const struct dfm *d);

/* Its frames must be in the account. */
static inline bool dfm_requires_frames(const struct dfm *d, uint32_t ros)
{
        return d->ross[ros].frames && !d->ross[ros].optional;
}

/* A ROS that does not know of the last reset: it must not hear of a trigger. */
static inline bool dfm_is_behind(const struct dfm *d, uint32_t ros)
{
        const struct dfm_node *n = dfm_node(d, ROLE_ROS, ros);

        return n->live && n->resets != d->triggers.resets;
}

/* No SFI will build a further event. */
static inline bool dfm_is_hopeless(const struct dfm *d)
{
        return d->state == RUN_DRAINING && (d->failed || d->n_live[ROLE_SFI] == 0);
}

static inline bool dfm_triggers_are_outside(const struct dfm *d)
{
        return d->config.trigger_source != DFM_TRIGGER_SCHEDULE;
}

/* Whether a trigger of the DFM's own, or of frames, waits for the end of a pause. */
static inline bool dfm_pause_holds(const struct dfm *d)
{
        enum dfm_trigger_source source = d->config.trigger_source;

        return d->hold.paused && (source == DFM_TRIGGER_SCHEDULE || source == DFM_TRIGGER_FRAMES);
}

/* Whether the DFM does not take a trigger that comes now, because of a pause. */
static inline bool dfm_pause_refuses(const struct dfm *d)
{
        return d->hold.paused && !dfm_pause_holds(d);
}

/* Maximum number of events that wait for level 2: the ROSs hold the frames of all of them. */
static inline uint32_t dfm_level2_limit(const struct dfm *d)
{
        return MIN(d->config.level2.window, d->level2.room);
}

static inline bool dfm_level2_has_room(const struct dfm *d)
{
        return d->table.n_undecided < dfm_level2_limit(d);
}

/* Whether the SFI has assignments whose end it did not report: it may have built their events. After the end
 * of the run, all events have ended elsewhere. */
static inline bool dfm_sfi_has_unreported_ends(const struct dfm *d, uint16_t sfi)
{
        const struct dfm_sfi *s = &d->sfis[sfi];
        const struct dfm_node *n = dfm_node(d, ROLE_SFI, sfi);

        return d->state < RUN_ENDED &&
               (s->held > 0 || s->used > s->finished || (n->was_in_run && !n->inventory_done));
}

/* Whether the SFI does not have the metadata of the run yet, so its files would lack them. */
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
        if (!dfm_sfi_is_live(d, s) || s->leaving || s->granted <= s->used || s->next - s->acked >= window)
                return 0;
        return (uint32_t)MIN(s->granted - s->used, (uint64_t)(window - (s->next - s->acked)));
}
