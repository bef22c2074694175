/* What the files of the SFI share: slots, asking, updates to the DFM. */
#pragma once

#include "evb/base/heap.h"
#include "evb/base/idmap.h"
#include "evb/base/util.h"
#include "evb/core/sfi.h"
#include "evb/protocol/event_set.h"
#include "evb/protocol/jump.h"
#include "evb/protocol/sequence.h"

/* Assignments that may arrive out of order; the DFM's window is not larger. */
#define SFI_ASSIGN_WINDOW 16384u
/* Ends and Writing notes of all events that can be open; a power of two. */
#define SFI_FINISHED (SFI_ASSIGN_WINDOW * 4)
/* The SFI reports an output as slow if an event takes longer than this. */
#define SFI_SLOW_WRITE_NS NS_PER_S
#define SFI_RESEND_FIRST_NS (20 * NS_PER_MS)
#define SFI_RESEND_LONGEST_NS (320 * NS_PER_MS)

#define SLOT_NONE UINT32_MAX

enum slot_state { SLOT_EMPTY, SLOT_COLLECTING, SLOT_BUILDING };

struct sfi_slot {
        uint64_t event;
        uint64_t first_ns; /* asked for (pull); assigned or first seen (push) */
        uint64_t retry_ns; /* when to ask again; NEVER_NS: not any more */
        uint64_t expire_ns;
        uint32_t next, previous; /* in its list while collecting; SLOT_NONE: none */
        uint32_t blocks;         /* fragments that hold memory */
        uint32_t missing;        /* fragments of living ROSs that are not whole */
        uint32_t whole;
        uint32_t l1_id;
        uint8_t state;
        uint8_t end;
        uint8_t rounds;   /* times asked again */
        uint16_t doubles; /* further assignments of the same event here, each of which needs an end too */
        bool assigned, assigned_again, asked;
        bool re_asked, progress; /* since the last round: asked again for; something new has come */
        bool taken_back;   /* it is assigned here again: the end of this slot says nothing about the event */
        bool queued;       /* in `waiting`, whatever has become of the event since */
        bool writing_said; /* the DFM knows that the event is being written */
        uint64_t built_ns;
        struct event_info info;
};

struct sfi_inventory {
        uint64_t from, end; /* no event outside; `from` is a multiple of 64 */
        struct event_set ended, open;
        struct node_totals totals;
};

/* Data datagrams of one ROS by their sequence numbers. */
struct sfi_sequence {
        struct sequence numbers;
        bool final; /* its totals came after the run had ended */
};

/* How far the fragments of one ROS have come. It sends them in the order in which they are asked for. */
struct sfi_stream {
        uint64_t heard_ns;     /* when the last piece came */
        uint64_t newest_event; /* of those that came without being asked for again */
};

/* Collecting slots in order of opening. */
struct sfi_list {
        uint32_t first, last, n;
};

struct sfi {
        struct sfi_config config;
        enum run_state run_state; /* the DFM's */
        enum run_state state;     /* our own */
        bool failed;
        struct member member;
        uint64_t keep_alive_due_ns;
        uint64_t oldest, newest; /* every event below has ended; no event from there on is known */
        struct jump oldest_jump;
        struct sequence keep_alives; /* of this DFM */
        uint32_t alive_sequence;

        struct sfi_slot *slots;
        struct sfi_fragment *fragments; /* slots x n_ros */
        uint32_t *free_slots;
        uint32_t n_free, n_building;
        struct idmap by_event;         /* collecting or being written */
        struct sfi_list collecting[2]; /* [1]: the assigned ones */
        struct heap holding;           /* collecting slots that hold memory; the first one gives way first */
        struct arena *arena;
        uint64_t *cuts;       /* a bit for each EVB_BLOCK_BYTES of the buffer */
        uint64_t event_bytes; /* what a large event takes of late; 0: none seen */

        /* Events that ended here, so that late data do not reopen them, and those that were built. The
         * inventory is what the SFI had done when it began to follow its DFM. */
        struct event_set ended, built_events;
        struct sfi_inventory inventory;
        bool inquiry_due;
        uint64_t inquiry_from;
        struct node_totals totals;
        uint64_t writing_look_ns; /* next look at slots that are being written */
        uint64_t slow_since_ns;   /* start of slow output; NEVER_NS: it is not slow */

        uint32_t *built; /* ring of slots */
        uint32_t built_mask, built_head, built_tail;

        uint64_t ros_live[EVB_ROS_MAX / 64];
        uint32_t n_live;

        /* Assignments: all below `assign_next` have come, and those whose bit is set. */
        uint32_t assign_next;
        uint64_t assign_bits[SFI_ASSIGN_WINDOW / 64];
        bool update_due;
        uint64_t update_due_ns;

        /* Finished events that the DFM has not acknowledged: [acked, next), of which those from `sent` on
         * wait. */
        struct finished_entry *finished;
        uint32_t finished_mask, finished_acked, finished_sent, finished_next;
        uint64_t finished_total, granted;
        uint64_t resend_ns, resend_after_ns;

        /* Pull: slots to be asked for, in order of assignment. */
        uint32_t *waiting;
        uint32_t waiting_mask, waiting_head, waiting_tail;
        uint32_t n_asked; /* asked for and not yet ended */

        /* Asking again goes ROS by ROS over the slots that are overdue. */
        uint32_t *overdue;
        uint32_t n_overdue, overdue_at;
        uint32_t overdue_first, overdue_ros; /* the ROS where the pass began, and the number of ROSs done */
        uint64_t budget_bytes;               /* bytes that may still be requested again, as of `budget_ns` */
        uint64_t budget_ns;
        bool budget_filled;
        struct heap due;       /* collecting slots by the time when they become overdue or expire */
        uint64_t scan_from_ns; /* no scan before this */
        /* What is usual: time from asking to a fragment that was not asked for again (RFC 6298's estimator),
         * stretched while asking again turns out to have been too early. */
        uint64_t srtt_ns, rttvar_ns;
        uint32_t stretch;
        uint64_t backoff_ns;

        struct sfi_stream *streams; /* of each ROS */
        struct sfi_sequence *sequences;
        struct sfi_counts counts;
};

static inline struct sfi_fragment *sfi_fragment(const struct sfi *s, uint32_t slot, uint32_t ros)
{
        return &s->fragments[(size_t)slot * s->config.n_ros + ros];
}

static inline bool sfi_ros_is_live(const struct sfi *s, uint32_t ros)
{
        return s->ros_live[ros / 64] >> ros % 64 & 1;
}

/* sfi_slots.c */
/* Opens a slot, not yet assigned even if an assignment opens it. IDMAP_NONE: no room. */
uint32_t sfi_open_slot(struct sfi *s, uint64_t now_ns, uint64_t event, uint32_t l1_id, bool assigned);
void sfi_give_up_unassigned(struct sfi *s, uint32_t slot);
void sfi_drop_slot(struct sfi *s, uint32_t slot); /* frees it, with its memory */
void sfi_set_assigned(struct sfi *s, uint32_t slot);
void sfi_note_block(struct sfi *s, uint32_t slot); /* one of its fragments received memory */
void sfi_finish_slot(struct sfi *s, uint64_t now_ns, uint32_t slot, bool drop); /* to be built, or dropped */
void sfi_check_slot(struct sfi *s, uint64_t now_ns, uint32_t slot); /* finishes it where nothing is missing */
/* Frees memory by giving up an event in favour of that slot's; false: no event gives way. */
bool sfi_evict_for(struct sfi *s, uint64_t now_ns, uint32_t slot);
void sfi_set_live(struct sfi *s, uint64_t now_ns, const uint64_t live[static EVB_ROS_MAX / 64]);
bool sfi_has_ended(const struct sfi *s, uint64_t event);
void sfi_note_oldest(struct sfi *s, uint64_t oldest);
bool sfi_was_built(const struct sfi *s, uint64_t event); /* or may no longer be built */

/* sfi_ask.c */
void sfi_start_waiting(struct sfi *s, uint32_t slot);
void sfi_plan_retry(struct sfi *s, uint64_t now_ns, uint32_t slot);
void sfi_set_asked(struct sfi *s, uint64_t now_ns, uint32_t slot);
bool sfi_make_request(struct sfi *s, uint64_t now_ns, struct message_to *to, struct message *m);
void sfi_scan(struct sfi *s, uint64_t now_ns);
void sfi_sample_latency(struct sfi *s, uint64_t sample_ns);
void sfi_note_too_early(struct sfi *s, uint64_t now_ns);
bool sfi_missing_range(const struct sfi *s, const struct sfi_fragment *f, uint32_t from_bytes,
                       uint32_t *ret_from, uint32_t *ret_to);

/* sfi_inventory.c: for a DFM that takes up the run. */
int sfi_inventory_init(struct sfi_inventory *v);
void sfi_inventory_fini(struct sfi_inventory *v);
void sfi_take_inventory(struct sfi *s);
bool sfi_receive_inquiry(struct sfi *s, const struct message *m);
bool sfi_make_inventory(struct sfi *s, struct message *m);

/* sfi_update.c */
void sfi_restart_streams(struct sfi *s, uint64_t now_ns);
void sfi_report_writing(struct sfi *s, uint64_t now_ns);
bool sfi_receive_assign(struct sfi *s, uint64_t now_ns, const struct message *m);
void sfi_receive_update_ack(struct sfi *s, uint64_t now_ns, const struct message *m);
void sfi_report(struct sfi *s, const struct finished_entry *entry);
void sfi_report_void(struct sfi *s, uint64_t event);
bool sfi_make_update(struct sfi *s, uint64_t now_ns, struct message *m);
uint32_t sfi_allowed(const struct sfi *s);
