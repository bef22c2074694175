/* Flow control of the SFI, independent of events.
 *
 * The retry timer: how long to wait for a fragment, and how many bytes to request again at a time. It
 * estimates the latency as RFC 6298 does.
 *
 * The limit: how many bytes may be requested and not received, in pull with `sfi.outstanding = auto`.
 *
 * - All of these bytes may be in the queue of the switch port at once, because ROSs that stalled together
 *   send together. The port drops none as long as limit = buffer - max(buffer / 16, 2 frames). The margin is
 *   for control messages of all kinds but Assign. Assigns come at any moment, one for each free credit: they
 *   are reserved within the limit, and the SFI grants no more free credits than have room there. Bytes count
 *   as the frames that carry them, at their largest: every fragment and every range begins a frame of its
 *   own.
 * - The limit keeps the port busy while limit / rate (1 ms at 128 KiB and 1 Gbit/s) exceeds the time from a
 *   request to its data. There is no further allowance of latency x rate: bytes on the way to the port may
 *   all queue there. Only bytes beyond the port, a few microseconds' worth, could be added without loss.
 * - Requests are spaced at the port's rate, counted in payload, which is less than the frames: spacing
 *   smooths the port's queue, but never slows the port down.
 * - If the buffer is unknown, the limit is found by additive increase and multiplicative decrease (Chiu and
 *   Jain, "Analysis of the increase and decrease algorithms", 1989; slow start and the halving on a loss as
 *   in RFC 5681). It grows only in rounds that reached it (RFC 7661), and it shrinks in proportion to the
 *   delay if even the fastest answer of a round took longer than the base latency plus a target (TIMELY,
 *   SIGCOMM 2015; Swift, SIGCOMM 2020). A limit that lost packets is not reached again for a second, and for
 *   twice as long after each further loss, up to 64 s. So at most four rounds lose packets until a limit is
 *   found, and after that at most one per second.
 * - A known buffer may turn out smaller, or be shared with other traffic: then losses decrease the limit in
 *   the same way. */
#pragma once

#include "base/util.h"
#include "core/sfi.h"

/* The message's header, and the entry of a chunk that is alone in its frame. */
#define SFI_MESSAGE_OVERHEAD_BYTES (FRAGMENTS_HEADER_BYTES + 16u)

/* Bytes that a frame adds to the payload of one fragment. */
static inline uint32_t sfi_frame_overhead_bytes(const struct sfi_config *c)
{
        return c->frame_overhead_bytes + SFI_MESSAGE_OVERHEAD_BYTES;
}

struct sfi_retry {
        const struct sfi_config *config;
        /* Time from a request to its answer, measured on fragments without a retry, and on retries whose
         * first answer was certainly lost. The backoff factor grows while retries turn out to be too
         * early. */
        uint64_t srtt_ns, rttvar_ns;
        uint32_t backoff;
        uint64_t backoff_ns;   /* time of the last change of the factor */
        uint64_t budget_bytes; /* bytes that may still be requested again, as of `budget_ns` */
        uint64_t budget_ns;
        bool budget_filled;
};

void sfi_retry_init(struct sfi_retry *r, const struct sfi_config *config);
/* Time without an answer after which a fragment is requested again for the first time. */
uint64_t sfi_retry_interval_ns(const struct sfi_retry *r);
/* The interval with a smaller margin on top of the estimate, if there is an estimate. */
uint64_t sfi_retry_hurried_ns(const struct sfi_retry *r, uint64_t margin_ns);
/* When to retry next, after `rounds` unanswered retries. NEVER_NS: the retries are used up. */
uint64_t sfi_retry_next_ns(const struct sfi_retry *r, uint64_t now_ns, uint32_t rounds, uint64_t expire_ns);
void sfi_retry_sample(struct sfi_retry *r, uint64_t latency_ns);
/* Records that both the original and its repetition arrived, so the retry was too early. */
void sfi_retry_record_spurious(struct sfi_retry *r, uint64_t now_ns);
/* Call this when a round of retries begins: lowers the backoff after a quiet time, and refills the budget. */
void sfi_retry_begin_round(struct sfi_retry *r, uint64_t now_ns);

/* The end of the part of [from, to) that the budget covers; a minimum is always covered. */
uint32_t sfi_retry_affordable(const struct sfi_retry *r, uint32_t from, uint32_t to);
void sfi_retry_spend(struct sfi_retry *r, uint32_t bytes);
/* Returns bytes to the budget: they were requested again and have arrived, or do not exist. */
void sfi_retry_refund(struct sfi_retry *r, uint32_t bytes);
/* Whether a retry that the budget ended may continue. */
bool sfi_retry_may_continue(const struct sfi_retry *r);

static inline bool sfi_retry_budget_is_spent(const struct sfi_retry *r)
{
        return r->budget_bytes == 0;
}

/* The budgets for the messages of this SFI to the port of each ROS. Requests wait while one of them is
 * exhausted, until `free_ns`. */
struct sfi_ports {
        struct budget *budgets;
        uint64_t free_ns;
};

int sfi_ports_init(struct sfi_ports *p, const struct sfi_config *config);
void sfi_ports_fini(struct sfi_ports *p); /* also after a failed init */
/* Charges a message of `bytes` bytes to ROS `ros`, or to all (MESSAGE_TO_ALL). */
void sfi_ports_charge(struct sfi_ports *p, const struct sfi_config *config, uint64_t now_ns, uint16_t ros,
                      size_t bytes);

/* Whether pull limits the requested bytes instead of the number of requested events. */
static inline bool sfi_pulls_by_bytes(const struct sfi_config *c)
{
        return c->pull && c->outstanding == 0 && !c->reliable && (c->room_bytes > 0 || c->port_bytes > 0);
}

/* Payload of a frame that holds a part of one fragment; a multiple of EVB_BLOCK_BYTES. */
static inline uint32_t sfi_frame_payload_bytes(const struct sfi_config *c)
{
        return (uint32_t)(c->message_bytes + c->trailer_bytes - SFI_MESSAGE_OVERHEAD_BYTES) /
               EVB_BLOCK_BYTES * EVB_BLOCK_BYTES;
}

/* Maximum number of bytes that `bytes` payload bytes of one fragment can occupy at the port. */
static inline uint64_t sfi_wire_bytes(const struct sfi_config *c, uint64_t bytes)
{
        uint64_t frame = sfi_frame_payload_bytes(c), frames;

        /* Most fragments fit into one frame, so they need no division. */
        frames = bytes <= frame ? bytes > 0 : DIV_ROUND_UP(bytes, frame);
        return bytes + frames * sfi_frame_overhead_bytes(c);
}

/* The size of one ROS's fragments: smoothed, with its mean deviation, in sixteenths of a byte (as RFC 6298
 * smooths latencies). */
struct sfi_size {
        uint32_t mean_16, deviation_16;
        bool is_known;
};

void sfi_size_record(struct sfi_size *z, uint32_t bytes);
/* Bytes to request of a fragment whose size is not known yet; a multiple of EVB_BLOCK_BYTES. */
uint32_t sfi_size_expected(const struct sfi_size *z, const struct sfi_config *c);

struct sfi_limit {
        const struct sfi_config *config;
        uint64_t bytes; /* the limit: between `least_bytes` and `most_bytes` */
        uint64_t least_bytes, most_bytes, step_bytes;
        bool slow_start;

        /* A round lasts until as many bytes have arrived as the limit allows. */
        uint64_t round_bytes, round_latency_ns;
        bool was_reached; /* whether the limit was reached in this round */
        /* Least latency: of the previous window and of the present one. */
        uint64_t base_ns, window_base_ns, window_end_ns;

        /* The limit at which packets were lost; until when, and for how long, the limit stays below it. */
        uint64_t lossy_bytes, lossy_until_ns, hold_ns;
        uint64_t decreased_ns,
                recover_bytes; /* until this many bytes have arrived, a loss is part of the last one */

        /* Bytes that the Assign of one event occupies at the port, which depends on how many share a message:
         * smoothed, in sixteenths. 0: unknown. */
        uint64_t assign_16_bytes;

        /* Requests are spaced: the next one is due at `next_ns`, and a fraction of a nanosecond later. */
        uint64_t next_ns, fraction;
        bool is_idle; /* nothing was left to request, so the time since then does not count as a delay */
};

void sfi_limit_init(struct sfi_limit *l, const struct sfi_config *config);
/* These functions record what arrived: bytes that were in flight, as frames at the port; a complete fragment
 * and its latency; a gap in a ROS's sequence numbers. */
void sfi_limit_record_bytes(struct sfi_limit *l, uint64_t now_ns, uint64_t bytes);
void sfi_limit_record_latency(struct sfi_limit *l, uint64_t now_ns, uint64_t latency_ns);
/* A decrease covers all losses among the bytes that were in flight at that time (RFC 6582). True: the limit
 * was decreased. */
bool sfi_limit_record_loss(struct sfi_limit *l, uint64_t now_ns, uint64_t in_flight_bytes);

/* The number of bytes that a request to one ROS should cover, as frames; at most the limit. */
uint64_t sfi_limit_batch_bytes(const struct sfi_limit *l);
/* The payload of one fragment that occupies at most `wire_bytes` at the port; a multiple of
 * EVB_BLOCK_BYTES. */
uint32_t sfi_limit_payload_bytes(const struct sfi_limit *l, uint64_t wire_bytes);
/* When the spacing allows the next request. */
uint64_t sfi_limit_ready_ns(const struct sfi_limit *l);
/* Bytes of payload were requested, or nothing is left to request. */
void sfi_limit_spend(struct sfi_limit *l, uint64_t now_ns, uint64_t bytes);
void sfi_limit_refund(struct sfi_limit *l, uint64_t bytes); /* the fragment is shorter by these bytes */
void sfi_limit_rest(struct sfi_limit *l);

/* Assigns share the port with the fragments. An Assign for `n` events arrived. */
void sfi_limit_record_assign(struct sfi_limit *l, size_t n, size_t message_bytes);
/* The part of the limit that is reserved for Assigns: for all free credits, and for those that follow
 * soon. */
uint64_t sfi_limit_assigns_bytes(const struct sfi_limit *l, uint64_t mean_event_bytes, uint64_t free_credits);
/* The number of credits that may be free while this many bytes are in flight. */
uint64_t sfi_limit_credits(const struct sfi_limit *l, uint64_t mean_event_bytes, uint64_t in_flight_bytes);
