/* Classifies each packet of a stream as new, late, duplicate, or out of order, and decides when a missing
 * packet is given up. Each sequence number below `base` is decided: its packet has arrived, or was given up.
 * Pure. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct account {
        uint64_t base;     /* the first sequence number that is not decided */
        uint64_t end;      /* one more than the highest number that has arrived */
        uint64_t capacity; /* maximum number of open sequence numbers from base on; a power of two */
        uint64_t window;   /* a missing packet is given up after this many later packets */
        uint64_t *seen;    /* one bit for each of [base - capacity, base + capacity) */
        uint64_t received; /* arrived before they were given up, each counted once */
        uint64_t given_up; /* includes packets that arrive late */
        uint64_t late, duplicate, out_of_order;
};

enum account_result {
        ACCOUNT_NEW,       /* the first arrival of the packet, in time */
        ACCOUNT_LATE,      /* the packet was given up before */
        ACCOUNT_DUPLICATE, /* the packet arrived before, or is too old to be known */
        ACCOUNT_BEYOND, /* too far ahead, so not counted: decide earlier packets first, then offer it again */
};

/* Both are powers of two, or rounded up; window < capacity. Returns -ENOMEM, -EINVAL. */
int account_init(struct account *a, uint64_t capacity, uint64_t window);
void account_fini(struct account *a);

/* Counts an arrival. `limit`: the first sequence number that cannot be stored at this time (base < limit). */
enum account_result account_accept(struct account *a, uint64_t sequence, uint64_t limit);
/* Decides the next sequence number below `until` if possible: the packet has arrived, enough later packets
 * have arrived, or `all` states that no more arrive. Returns false if no number can be decided; *ret_arrived
 * is the decision. */
bool account_decide(struct account *a, uint64_t until, bool all, bool *ret_arrived);
/* Returns the first number among base, base + step, ... that has arrived; `end` or a number after it if there
 * is none. */
uint64_t account_next(const struct account *a, uint64_t step);
