/* The SFI's requests to the ROSs: in pull the first request of each event, and in both modes the retries for
 * missing fragments. Reads and times the slots; the retry timer decides when and how much. */
#pragma once

#include "core/sfi.h"
#include "sfi_flow.h"
#include "sfi_slots.h"

/* A scan waits this long, to combine slots that become due in the same period. */
#define SFI_SCAN_PAUSE_NS (NS_PER_MS / 2)

/* Progress of one ROS's fragments, which it sends in the order of the requests. */
struct sfi_stream {
        uint64_t received_ns; /* arrival of the last chunk */
        uint64_t data_ns;     /* arrival of the last data, or empty fragment */
        uint64_t owing_ns; /* pull, by bytes: when the requested bytes that have not arrived rose above 0 */
        uint64_t newest_event; /* newest event among the fragments that needed no retry */
        bool connected;        /* the ROS has opened a connection, now or before */
        bool unsent;           /* requests may not have reached the ROS, so there are fragments to check */
        /* In pull by bytes: the number of the last request, and of the newest one that was answered. */
        uint32_t number, newest_number;
        uint64_t backlog_ns;    /* arrival of the message that reported `backlog_bytes`; 0: none yet */
        uint32_t backlog_bytes; /* queued in the ROS for this SFI */
        struct sfi_size size;
};

struct sfi_requests {
        const struct sfi_config *config;
        const struct member *member;
        struct sfi_counts *counts;
        struct sfi_slots *slots;
        struct sfi_retry *retry;
        struct sfi_limit *limit;

        uint32_t *waiting; /* pull, by events: slots without a first request, in order of assignment */
        uint32_t waiting_mask, waiting_head, waiting_tail;

        /* Retries proceed ROS by ROS over the overdue slots. */
        uint32_t *overdue;
        uint32_t n_overdue, overdue_at;
        uint32_t overdue_first, overdue_ros; /* overdue_first: the ROS where the pass began; overdue_ros: the
                                                number of ROSs that are done */
        uint32_t n_left;                     /* the budget ended the pass over this many overdue slots */
        bool continues;                      /* the pass continues where the budget ended the previous one */
        uint64_t last_turn;                  /* order of the youngest event that can have memory now */
        uint64_t event_bytes;                /* expected size of an event; 0: unknown */
        uint64_t scan_from_ns;               /* no scan before this */
        uint64_t hurry_ns;      /* pull, by bytes: when to look for overtaken fragments; NEVER_NS: not due */
        uint64_t reordering_ns; /* how long to wait after a gap */
        bool has_losses;        /* there was a gap in the sequence numbers of a ROS's datagrams */

        struct sfi_stream *streams;    /* of each ROS */
        uint32_t n_unsent, unsent_ros; /* streams that may have missed requests; where the search continues */
        uint32_t turn;                 /* pull, by bytes: among ROSs with equal load, this ROS comes first */
        uint64_t assigns_bytes;        /* pull, by bytes: Assigns may come to the port at any moment */
        uint64_t silent_bytes;         /* pull, by bytes: requested from silent ROSs, at the last check */
        uint64_t silent_look_ns;
        uint64_t ready_ns; /* pull, by bytes: when spacing allows the next request; NEVER_NS: none */
};

/* Allocates the queues. The caller has set the pointers at the top. */
int sfi_requests_init(struct sfi_requests *q);
void sfi_requests_fini(struct sfi_requests *q); /* also after a failed init */

/* Queues the slot for its first request. */
void sfi_requests_queue(struct sfi_requests *q, uint32_t slot);
/* Sets the time of the slot's next retry. */
void sfi_requests_plan(struct sfi_requests *q, uint64_t now_ns, uint32_t slot);
/* Datagrams are missing: sets `hurry_ns`, the time until which they may still arrive out of order. After this
 * time, each fragment that a younger one of the same ROS has overtaken is requested again once, before its
 * regular time. */
void sfi_requests_hurry(struct sfi_requests *q, uint64_t now_ns);
void sfi_requests_retry_overtaken(struct sfi_requests *q, uint64_t now_ns);
/* Memory has become free: requests the fragments that found none. */
void sfi_requests_retry_refused(struct sfi_requests *q, uint64_t now_ns);
/* Call this when new data of a retried fragment arrived, or when the data showed the size of the fragment. */
void sfi_requests_record_answer(struct sfi_requests *q, struct sfi_fragment *f, uint32_t bytes);
void sfi_requests_record_size(struct sfi_requests *q, struct sfi_fragment *f);
/* Both the original and its repetition arrived. */
void sfi_requests_record_spurious(struct sfi_requests *q, uint64_t now_ns, bool hurried);
/* Ends expired slots, and collects slots that need a retry. */
void sfi_requests_scan(struct sfi_requests *q, uint64_t now_ns);
uint64_t sfi_requests_deadline_ns(const struct sfi_requests *q); /* of the next scan */
/* The next request, to one ROS or to all, except first requests in pull by bytes. False: none is due. */
bool sfi_requests_make(struct sfi_requests *q, uint64_t now_ns, struct message_to *to, struct message *m);

/* sfi_pull.c: makes the next request in pull by bytes. It asks one ROS for a batch, once the limit has room
 * for the batch and the spacing allows it. False: none is due. */
bool sfi_pull_make(struct sfi_requests *q, uint64_t now_ns, struct message_to *to, struct message *m);

/* sfi_connected.c: see sfi_record_connected(). */
void sfi_requests_record_connected(struct sfi_requests *q, uint64_t now_ns, uint16_t ros);
/* The next request among those that ROSs did not receive; false: none. */
bool sfi_requests_make_unsent(struct sfi_requests *q, struct message_to *to, struct message *m);

/* sfi_waits.c: looks for silent ROSs from time to time. */
void sfi_requests_find_silent(struct sfi_requests *q, uint64_t now_ns);

/* Bytes that may be on their way to the port, without those requested from silent ROSs. */
static inline uint64_t sfi_requests_in_flight(const struct sfi_requests *q)
{
        uint64_t all = q->slots->in_flight_bytes;

        return all - MIN(all, q->silent_bytes);
}

static inline void sfi_requests_record_received(struct sfi_requests *q, uint64_t now_ns, uint16_t ros)
{
        q->streams[ros].received_ns = now_ns;
}

static inline void sfi_requests_record_backlog(struct sfi_requests *q, uint64_t now_ns, uint16_t ros,
                                               uint32_t bytes)
{
        q->streams[ros].backlog_ns = now_ns;
        q->streams[ros].backlog_bytes = bytes;
}

static inline void sfi_requests_record_newest(struct sfi_requests *q, uint16_t ros, const struct chunk *c,
                                              const struct sfi_fragment *f)
{
        struct sfi_stream *stream = &q->streams[ros];

        if (!f->retried)
                stream->newest_event = MAX(stream->newest_event, c->event);
        /* A chunk below `asked_from` answers an earlier request, or a retry. */
        if (f->asked > 0 && c->offset >= f->asked_from &&
            (int32_t)(f->asked_number - stream->newest_number) > 0)
                stream->newest_number = f->asked_number;
}
