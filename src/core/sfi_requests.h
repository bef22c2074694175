/* The SFI's requests to the ROSs: in pull the first request of each event, and in both modes the retries for
 * missing fragments. Reads and times the slots; the retry timer decides when and how much. */
#pragma once

#include "evb/core/sfi.h"
#include "sfi_retry.h"
#include "sfi_slots.h"

/* Progress of one ROS's fragments, which it sends in the order of the requests. */
struct sfi_stream {
        uint64_t heard_ns;      /* arrival of the last chunk */
        uint64_t newest_event;  /* among the fragments that needed no retry */
        uint64_t backlog_ns;    /* arrival of the message that reported `backlog_bytes`; 0: none yet */
        uint32_t backlog_bytes; /* queued in the ROS for this SFI */
};

struct sfi_requests {
        const struct sfi_config *config;
        const struct member *member;
        struct sfi_counts *counts;
        struct sfi_slots *slots;
        struct sfi_retry *retry;

        uint32_t *waiting; /* pull: slots without a first request, in order of assignment */
        uint32_t waiting_mask, waiting_head, waiting_tail;

        /* Retries go ROS by ROS over the slots that are overdue. */
        uint32_t *overdue;
        uint32_t n_overdue, overdue_at;
        uint32_t overdue_first, overdue_ros; /* the ROS where the pass began, and the number of ROSs done */
        uint64_t scan_from_ns;               /* no scan before this */

        struct sfi_stream *streams; /* of each ROS */
};

/* Allocates the queues. The caller has set the five pointers at the top. */
int sfi_requests_init(struct sfi_requests *q);
void sfi_requests_fini(struct sfi_requests *q); /* also after a failed init */

/* Queues the slot for its first request. */
void sfi_requests_queue(struct sfi_requests *q, uint32_t slot);
/* Sets the time of the slot's next retry. */
void sfi_requests_plan(struct sfi_requests *q, uint64_t now_ns, uint32_t slot);
/* Ends the slots that expired, and collects those that need a retry. */
void sfi_requests_scan(struct sfi_requests *q, uint64_t now_ns);
uint64_t sfi_requests_deadline_ns(const struct sfi_requests *q); /* of the next scan */
/* The next request, to one ROS or to all. False: none now. */
bool sfi_requests_make(struct sfi_requests *q, uint64_t now_ns, struct message_to *to, struct message *m);

static inline void sfi_requests_note_heard(struct sfi_requests *q, uint64_t now_ns, uint16_t ros)
{
        q->streams[ros].heard_ns = now_ns;
}

static inline void sfi_requests_note_backlog(struct sfi_requests *q, uint64_t now_ns, uint16_t ros,
                                             uint32_t bytes)
{
        q->streams[ros].backlog_ns = now_ns;
        q->streams[ros].backlog_bytes = bytes;
}

/* A fragment of the event arrived without a retry. */
static inline void sfi_requests_note_newest(struct sfi_requests *q, uint16_t ros, uint64_t event)
{
        if (event > q->streams[ros].newest_event)
                q->streams[ros].newest_event = event;
}
