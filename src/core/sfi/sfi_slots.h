/* The SFI's slots: one for each open event, with its fragments and their memory. A slot collects fragments,
 * is handed to the caller for writing, and becomes free. The table also records which events ended here. */
#pragma once

#include "base/heap.h"
#include "base/idmap.h"
#include "base/util.h"
#include "core/sfi.h"
#include "protocol/event_set.h"
#include "sfi_flow.h"

#define SLOT_NONE UINT32_MAX
/* If an event takes longer than this to write, the SFI reports its output as slow. */
#define SFI_SLOW_WRITE_NS NS_PER_S

enum slot_state { SLOT_EMPTY, SLOT_COLLECTING, SLOT_BUILDING };

struct sfi_slot {
        uint64_t event;
        uint64_t order;    /* if assigned: its rank among all assignments, for requests and memory */
        uint64_t first_ns; /* time of the first request (pull), or of the assignment or first chunk (push) */
        uint64_t retry_ns; /* time of the next retry; NEVER_NS: none */
        uint64_t expire_ns;
        uint32_t next, previous; /* neighbours in the list of collecting slots; SLOT_NONE: none */
        uint32_t blocks;         /* fragments that hold memory */
        uint32_t missing; /* number of incomplete fragments of live ROSs; at the end, of required ROSs */
        uint32_t absent;  /* at the end: missing fragments of optional ROSs */
        uint32_t l1_id;
        uint8_t state;
        uint8_t end;
        uint8_t rounds;   /* consecutive unanswered retries */
        uint16_t doubles; /* number of further assignments of the same event, each of which needs an end of
                             its own */
        bool assigned, assigned_again, requested;
        bool retried, progress; /* retried: requested again since the last round; progress: something new
                                   arrived since then */
        bool taken_back;        /* a newer assignment replaced this one, so its end no longer counts */
        bool is_elsewhere;      /* the event has ended, or is being built, on another SFI */
        bool queued; /* the slot is in the queue of first requests, even if the event has ended since */
        bool waits;  /* the slot counts in n_waits */
        bool writing_reported; /* the DFM knows that the event is being written */
        bool mismatched;       /* fragments with another L1 ID arrived for the event */
        bool starved;          /* a fragment was refused */
        bool awaits_memory; /* as of the last check; if set, the slot neither requests again nor times out */
        bool awaits_budget; /* since the last check, the budget ended a pass of retries */
        uint64_t built_ns;
        struct event_info info;
};

/* In pull by bytes: what was requested from one ROS. */
struct sfi_source {
        uint64_t in_flight_bytes; /* requested and not received, as frames at the port */
        uint32_t rests;           /* partly requested fragments whose turn has passed */
        uint32_t next; /* the oldest assigned slot for which nothing was requested from this ROS; SLOT_NONE:
                          none */
};

/* Collecting slots in the order in which they were opened. */
struct sfi_list {
        uint32_t first, last, n;
};

struct sfi_slots {
        const struct sfi_config *config;
        struct sfi_counts *counts;
        uint32_t n_ros;
        struct sfi_slot *items;
        struct sfi_fragment *fragments; /* slots x n_ros */
        uint32_t *free;                 /* those that were used before */
        uint32_t n_touched;             /* slots from this one on were never used */
        uint32_t n_free, n_building;
        uint32_t n_requested;          /* in pull: number of events that were requested and have not ended */
        struct idmap by_event;         /* events that are collected or being written */
        struct sfi_list collecting[2]; /* [1]: the assigned ones, in order of assignment */
        uint64_t n_assigned;           /* number of assigned events so far */
        struct heap holding; /* collecting slots that hold memory, ordered so that the first slot gives up its
                                memory first */
        struct heap due;     /* collecting slots by the time of their next retry or expiry */
        struct arena *arena;
        uint64_t *block_bits; /* a bit for each EVB_BLOCK_BYTES of the buffer */
        bool has_starved;     /* whether a fragment found no memory since memory became free */
        uint64_t event_bytes; /* decaying maximum of the size of an event in the buffer; 0: unknown */

        uint64_t oldest, newest; /* events below `oldest` have ended; no event from `newest` on is known */
        /* ended: events that ended here, so that late data does not reopen them; built_events: events that
         * were built, from EVB_EVENTS_KEPT below `oldest` on; and of the built events, the partial ones. */
        struct event_set ended, built_events, partial_events;
        uint64_t writing_look_ns; /* time of the next check of slots that are being written */
        uint64_t slow_since_ns;   /* start of slow output; NEVER_NS: it is not slow */

        uint32_t *built; /* ring of slots */
        uint32_t built_mask, built_head, built_tail;

        uint64_t ros_live[EVB_ROS_MAX / 64];
        uint32_t n_live;

        struct ros_rule *rules; /* rule of each ROS */
        uint16_t *waited;       /* the ROSs whose rule limits how long an event waits */
        uint32_t n_waited;
        uint32_t n_waits; /* number of collecting slots that only wait for silent ROSs */
        uint32_t young; /* the oldest assigned slot that sfi_count_waiting() has not seen; SLOT_NONE: none */

        struct sfi_source *sources; /* of each ROS, in pull by bytes; else NULL */
        uint64_t in_flight_bytes;   /* from all living ROSs */
};

int sfi_slots_init(struct sfi_slots *t, const struct sfi_config *config, struct sfi_counts *counts);
void sfi_slots_fini(struct sfi_slots *t); /* also after a failed init */

static inline struct sfi_fragment *sfi_fragment(const struct sfi_slots *t, uint32_t slot, uint32_t ros)
{
        return &t->fragments[(size_t)slot * t->n_ros + ros];
}

static inline bool sfi_slots_ros_is_live(const struct sfi_slots *t, uint32_t ros)
{
        return t->ros_live[ros / 64] >> ros % 64 & 1;
}

/* Unassigned events use an eighth of the slots, but at least this number. The slots that configured credits
 * do not need are for credits that grow later. */
#define SFI_UNASSIGNED_LEAST 16u
static inline uint32_t sfi_unassigned_max(const struct sfi_config *c)
{
        uint32_t slots = c->credits > 0 ? MIN(sfi_slots_for_credits(c->credits), c->slots) : c->slots;

        return MAX(slots / 8, MIN(slots / 2, SFI_UNASSIGNED_LEAST));
}

/* The slot of an event; SLOT_NONE: it has none. */
static inline uint32_t sfi_slots_find(const struct sfi_slots *t, uint64_t event)
{
        uint32_t slot = idmap_get(&t->by_event, event);

        return slot == IDMAP_NONE ? SLOT_NONE : slot;
}

static inline uint32_t sfi_blocks(uint32_t bytes)
{
        return DIV_ROUND_UP(bytes, EVB_BLOCK_BYTES);
}

/* If the memory of a skipped fragment went to an older event, all of the fragment must be requested. */
static inline bool sfi_fragment_has_rest(const struct sfi_fragment *f)
{
        return f->known ? !f->whole && f->asked < f->bytes : f->skipped;
}

/* Number of bytes of the fragment that were requested and may be on their way. */
static inline uint32_t sfi_fragment_in_flight(const struct sfi_fragment *f)
{
        uint32_t to = f->known ? MIN(f->asked, f->bytes) : f->asked;

        return to - MIN((f->blocks_received + f->blocks_refused) * EVB_BLOCK_BYTES, to);
}

static inline void sfi_slots_account(struct sfi_slots *t, uint32_t ros, struct sfi_fragment *f,
                                     uint64_t bytes, bool has_rest)
{
        uint64_t more = bytes - f->counted_bytes;

        t->sources[ros].in_flight_bytes += more;
        t->sources[ros].rests += (uint32_t)has_rest - f->counted_rest;
        if (sfi_slots_ros_is_live(t, ros))
                t->in_flight_bytes += more;
        f->counted_bytes = bytes;
        f->counted_rest = has_rest;
}

/* Updates the accounts of the ROS, if there are any. Call this after each change of a fragment in a
 * collecting slot. */
static inline void sfi_slots_count(struct sfi_slots *t, uint32_t ros, struct sfi_fragment *f)
{
        if (t->sources && f->whole)
                sfi_slots_account(t, ros, f, 0, false);
        else if (t->sources)
                sfi_slots_account(t, ros, f, sfi_wire_bytes(t->config, sfi_fragment_in_flight(f)),
                                  sfi_fragment_has_rest(f));
}

/* Records that requested blocks arrived but found no memory. */
static inline void sfi_slots_refuse(struct sfi_slots *t, uint32_t ros, struct sfi_fragment *f,
                                    uint32_t blocks)
{
        f->blocks_refused = MIN(f->blocks_refused + blocks, sfi_blocks(f->asked));
        sfi_slots_count(t, ros, f);
}

/* The life of a slot. A new slot is unassigned. SLOT_NONE: no room, even if an unassigned event may be
 * dropped for an assigned one. */
uint32_t sfi_slots_open(struct sfi_slots *t, uint64_t now_ns, uint64_t event, uint32_t l1_id, bool assigned);
void sfi_slots_set_assigned(struct sfi_slots *t, uint32_t slot, uint32_t l1_id);
void sfi_slots_set_requested(struct sfi_slots *t, uint64_t now_ns, uint32_t slot);
void sfi_slots_set_retry(struct sfi_slots *t, uint32_t slot, uint64_t retry_ns);
/* Records that the fragment is complete; finishes the slot if nothing else is missing. */
void sfi_slots_set_whole(struct sfi_slots *t, uint64_t now_ns, uint32_t slot, uint32_t ros);
void sfi_slots_check(struct sfi_slots *t, uint64_t now_ns, uint32_t slot);
/* Hands over the slot to the caller: to be written, or as lost if `drop` is set or the slot is empty. */
void sfi_slots_finish(struct sfi_slots *t, uint64_t now_ns, uint32_t slot, bool drop);
void sfi_slots_learn_size(struct sfi_slots *t, uint32_t slot, bool whole);
/* Call this after each change of the missing fragments of an assigned event, or of its start time. */
void sfi_slots_limit_wait(struct sfi_slots *t, uint32_t slot);
void sfi_slots_give_up(struct sfi_slots *t,
                       uint32_t slot); /* drops an unassigned slot; its fragments are late */
void sfi_slots_drop_all(struct sfi_slots *t, uint64_t now_ns);
size_t sfi_slots_pop_built(struct sfi_slots *t, uint32_t *slots, size_t n);
void sfi_slots_written(struct sfi_slots *t, uint32_t slot, bool failed); /* frees the slot */

/* Events. */
static inline bool sfi_slots_has_ended(const struct sfi_slots *t, uint64_t event)
{
        return event < t->oldest || event_set_has(&t->ended, event);
}

/* Whether the event was built, or may no longer be built. */
static inline bool sfi_slots_was_built(const struct sfi_slots *t, uint64_t event)
{
        return event < t->oldest || event_set_has(&t->built_events, event);
}

/* All events below `oldest` have ended, on any SFI: drops those that this SFI still collects. */
void sfi_slots_record_oldest(struct sfi_slots *t, uint64_t now_ns, uint64_t oldest);
/* The event was assigned to another SFI: discards its fragments. */
void sfi_slots_cancel(struct sfi_slots *t, uint64_t now_ns, uint64_t event);
/* The event returns to this SFI, and the end of its lost slot no longer counts. */
void sfi_slots_withdraw(struct sfi_slots *t, uint64_t event);
void sfi_slots_set_live(struct sfi_slots *t, uint64_t now_ns, const uint64_t live[static EVB_ROS_MAX / 64]);

/* Memory. */
uint64_t sfi_slots_reserve(struct sfi_slots *t, uint32_t slot, uint32_t bytes); /* ARENA_NONE: no room */
/* The slot that gives up its memory first for the benefit of `slot`; SLOT_NONE: none does. */
uint32_t sfi_slots_victim(const struct sfi_slots *t, uint32_t slot);
/* Whether the slot could obtain memory for a fragment of this size, possibly from another slot. */
bool sfi_slots_have_room(const struct sfi_slots *t, uint32_t slot, uint32_t bytes);
void sfi_slots_empty(struct sfi_slots *t, uint64_t now_ns, uint32_t slot); /* its time starts afresh */

/* sfi_blocks.c: the receive bitmap: which blocks of the buffer hold data. */
void sfi_slots_clear_blocks(struct sfi_slots *t, uint64_t at, uint32_t bytes);
uint32_t sfi_slots_set_blocks(struct sfi_slots *t, uint64_t at, uint32_t bytes); /* newly set blocks */
/* The first missing part of a fragment from `from_bytes` on. */
bool sfi_slots_missing_range(const struct sfi_slots *t, const struct sfi_fragment *f, uint32_t from_bytes,
                             uint32_t *ret_from, uint32_t *ret_to);
