/* Estimates the latency of fragments, derives the times of retries from it, and bounds the bytes requested
 * again. sfi_requests.c consults it before each retry; sfi_chunks.c feeds it with samples. */
#include "sfi_retry.h"

#include "evb/base/util.h"

/* The interval before the first sample, and a margin on top of the estimate. */
#define RETRY_FIRST_NS (100 * NS_PER_MS)
#define RETRY_MARGIN_NS (10 * NS_PER_MS)
/* Weights of the smoothed latency and deviation: lower than in RFC 6298, as samples come by the thousand. */
#define SRTT_SHIFT 6
#define BACKOFF_MAX 64u
#define BACKOFF_HOLD_NS NS_PER_S
/* Upper limit of the pause between retries if their number is unbounded. */
#define PAUSE_LONGEST_NS (500 * NS_PER_MS)
/* With fewer retries, the last one is not delayed: too many events would need it. */
#define LATE_RETRY_LEAST 4u
#define BUDGET_LEAST_BYTES 65536u
/* The budget if no bound is known, and the minimum share of an answer. */
#define BUDGET_BYTES (64u << 20)
#define ANSWER_LEAST_BYTES 1024u

void sfi_retry_init(struct sfi_retry *r, const struct sfi_config *config)
{
        *r = (struct sfi_retry){.config = config, .backoff = 1};
}

/* All retries of a bounded number fit into the event's time. */
static uint64_t longest_ns(const struct sfi_retry *r)
{
        uint32_t max = r->config->retries_max;

        return r->config->timeout_ns / (max == UINT32_MAX ? 8 : max + UINT64_C(1));
}

uint64_t sfi_retry_interval_ns(const struct sfi_retry *r)
{
        uint64_t after = r->config->retry_after_ns;

        if (after > 0)
                return after;
        if (r->config->reliable)
                return longest_ns(r);
        after = r->srtt_ns == 0 ? RETRY_FIRST_NS
                                : r->backoff * (r->srtt_ns + 4 * r->rttvar_ns + RETRY_MARGIN_NS);
        return MIN(after, longest_ns(r));
}

/* Each pause is twice as long as the one before, and all retries happen before the event expires. Losses
 * often come in bursts that outlast the first retries, so the last of a bounded number waits until half of
 * the remaining time has passed. */
uint64_t sfi_retry_next_ns(const struct sfi_retry *r, uint64_t now_ns, uint32_t rounds, uint64_t expire_ns)
{
        uint32_t max = r->config->retries_max;

        if (rounds >= max)
                return NEVER_NS;
        uint64_t after = MAX(sfi_retry_interval_ns(r), UINT64_C(1));
        uint64_t pause = MIN(after << MIN(rounds, 16u), longest_ns(r));

        if (max == UINT32_MAX)
                pause = MIN(pause, MAX(after, PAUSE_LONGEST_NS));
        else if (max >= LATE_RETRY_LEAST && rounds + 2 == max && now_ns < expire_ns)
                pause = MAX(pause, (expire_ns - now_ns) / 2);
        return now_ns + pause;
}

void sfi_retry_sample(struct sfi_retry *r, uint64_t latency_ns)
{
        if (r->srtt_ns == 0) {
                r->srtt_ns = latency_ns + 1;
                r->rttvar_ns = latency_ns / 2;
                return;
        }
        uint64_t apart = latency_ns > r->srtt_ns ? latency_ns - r->srtt_ns : r->srtt_ns - latency_ns;

        r->rttvar_ns += (uint64_t)((int64_t)(apart - r->rttvar_ns) >> SRTT_SHIFT);
        r->srtt_ns += (uint64_t)((int64_t)(latency_ns - r->srtt_ns) >> SRTT_SHIFT);
}

void sfi_retry_note_spurious(struct sfi_retry *r, uint64_t now_ns)
{
        if (now_ns - r->backoff_ns < sfi_retry_interval_ns(r))
                return;
        r->backoff = MIN(2 * r->backoff, BACKOFF_MAX);
        r->backoff_ns = now_ns;
}

/* The budget is a rate: repeated data must fit into the receive buffer, or they are lost again. The buffer
 * fills and drains in about one retry interval. */
static void refill_budget(struct sfi_retry *r, uint64_t now_ns)
{
        uint64_t full = r->config->room_bytes ?: BUDGET_BYTES, after = sfi_retry_interval_ns(r);
        uint64_t passed = now_ns - r->budget_ns;

        r->budget_ns = now_ns;
        if (r->budget_filled && passed < after)
                full = MIN(full, r->budget_bytes + (uint64_t)((double)full * (double)passed / (double)after));
        r->budget_bytes = full;
        r->budget_filled = true;
}

void sfi_retry_begin_round(struct sfi_retry *r, uint64_t now_ns)
{
        if (now_ns - r->backoff_ns > BACKOFF_HOLD_NS && r->backoff > 1) {
                r->backoff /= 2;
                r->backoff_ns = now_ns;
        }
        refill_budget(r, now_ns);
}

uint32_t sfi_retry_affordable(const struct sfi_retry *r, uint32_t from, uint32_t to)
{
        uint64_t bytes = MAX(r->budget_bytes, (uint64_t)BUDGET_LEAST_BYTES);

        return bytes >= to - from ? to : from + (uint32_t)(bytes - bytes % EVB_BLOCK_BYTES);
}

void sfi_retry_spend(struct sfi_retry *r, uint32_t bytes)
{
        r->budget_bytes -= MIN(r->budget_bytes, (uint64_t)MAX(bytes, ANSWER_LEAST_BYTES));
}
