/* Keeps a bit for each sequence number around the first undecided one. */
#include "account.h"

#include <errno.h>
#include <stdlib.h>

#include "base/util.h"

#define WORD_BITS 64u
#define CAPACITY_MAX (UINT64_C(1) << 30)

static uint64_t power_of_two(uint64_t n)
{
        return MAX((uint64_t)power_of_two_at_least((uint32_t)n), (uint64_t)WORD_BITS);
}

int account_init(struct account *a, uint64_t capacity, uint64_t window)
{
        if (capacity == 0 || capacity > CAPACITY_MAX || window >= capacity)
                return -EINVAL;
        *a = (struct account){.capacity = power_of_two(capacity), .window = window};
        a->seen = calloc(2 * a->capacity / WORD_BITS, sizeof *a->seen);
        return a->seen ? 0 : -ENOMEM;
}

void account_fini(struct account *a)
{
        if (!a)
                return;
        free(a->seen);
        *a = (struct account){};
}

static uint64_t *word_of(const struct account *a, uint64_t sequence)
{
        return &a->seen[sequence % (2 * a->capacity) / WORD_BITS];
}

static uint64_t bit_of(uint64_t sequence)
{
        return UINT64_C(1) << sequence % WORD_BITS;
}

static bool is_seen(const struct account *a, uint64_t sequence)
{
        return *word_of(a, sequence) & bit_of(sequence);
}

/* Records an arrival; returns whether it is the first one. */
static bool mark_seen(struct account *a, uint64_t sequence)
{
        if (is_seen(a, sequence))
                return false;
        *word_of(a, sequence) |= bit_of(sequence);
        return true;
}

enum account_result account_accept(struct account *a, uint64_t sequence, uint64_t limit)
{
        if (sequence >= limit || sequence >= a->base + a->capacity)
                return ACCOUNT_BEYOND;
        if (sequence < a->base && a->base - sequence <= a->capacity && mark_seen(a, sequence)) {
                a->late++;
                return ACCOUNT_LATE;
        }
        if (sequence < a->base || !mark_seen(a, sequence)) {
                a->duplicate++;
                return ACCOUNT_DUPLICATE;
        }
        a->received++;
        a->out_of_order += sequence < a->end;
        a->end = MAX(a->end, sequence + 1);
        return ACCOUNT_NEW;
}

bool account_decide(struct account *a, uint64_t until, bool all, bool *ret_arrived)
{
        uint64_t fresh = a->base + a->capacity;
        bool arrived = is_seen(a, a->base);

        if (a->base >= until || (!arrived && !all && until - a->base <= a->window))
                return false;
        a->given_up += !arrived;
        a->base++;
        a->end = MAX(a->end, a->base);
        /* The newly opened number reuses the bit of the oldest one. */
        *word_of(a, fresh) &= ~bit_of(fresh);
        *ret_arrived = arrived;
        return true;
}

uint64_t account_next(const struct account *a, uint64_t step)
{
        uint64_t next = a->base;

        while (next < a->end && !is_seen(a, next))
                next += step;
        return next;
}
