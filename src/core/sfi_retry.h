/* The retry timer of the SFI: how long to wait for a fragment, and how many bytes to request again at a time.
 * It estimates the latency as RFC 6298 does and knows nothing of events. */
#pragma once

#include "evb/core/sfi.h"

struct sfi_retry {
        const struct sfi_config *config;
        /* Time from a request to a fragment that needed no retry. The backoff factor grows while retries turn
         * out to be too early. */
        uint64_t srtt_ns, rttvar_ns;
        uint32_t backoff;
        uint64_t backoff_ns;   /* last change of the factor */
        uint64_t budget_bytes; /* what may still be requested again, as of `budget_ns` */
        uint64_t budget_ns;
        bool budget_filled;
};

void sfi_retry_init(struct sfi_retry *r, const struct sfi_config *config);
/* Time without an answer after which a fragment is requested again for the first time. */
uint64_t sfi_retry_interval_ns(const struct sfi_retry *r);
/* When to retry next, after `rounds` unanswered retries. NEVER_NS: the retries are used up. */
uint64_t sfi_retry_next_ns(const struct sfi_retry *r, uint64_t now_ns, uint32_t rounds, uint64_t expire_ns);
void sfi_retry_sample(struct sfi_retry *r, uint64_t latency_ns);
/* Both the original and its repetition arrived: the retry was too early. */
void sfi_retry_note_spurious(struct sfi_retry *r, uint64_t now_ns);
/* A round of retries begins: lowers the backoff after a quiet time and refills the budget. */
void sfi_retry_begin_round(struct sfi_retry *r, uint64_t now_ns);

/* The end of the part of [from, to) that the budget covers; a minimum is always covered. */
uint32_t sfi_retry_affordable(const struct sfi_retry *r, uint32_t from, uint32_t to);
void sfi_retry_spend(struct sfi_retry *r, uint32_t bytes);

static inline bool sfi_retry_budget_is_spent(const struct sfi_retry *r)
{
        return r->budget_bytes == 0;
}
