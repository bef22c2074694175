/* The DFM's record of the numbers that ROSs announce: dfm_order.c puts them in order, dfm_announcer.c
 * receives them. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* A number is far if it is at least this much ahead of the numbers offered so far. */
#define DFM_ORDER_FAR 1024u

/* An announced number that is not offered yet. */
struct dfm_number {
        uint64_t number, since_ns;
        uint32_t n; /* leading ROSs that announced it */
};

/* The stream of announcements of one ROS. */
struct dfm_announcer {
        uint32_t incarnation; /* low half; 0: none yet */
        uint32_t next;        /* sequence of the next number */
        bool received;        /* in this run of the DFM */
        bool blocked, go_on;  /* blocked: there was no room; go_on: there is room again */
        uint64_t ack_due_ns;  /* NEVER_NS: no number */
        bool has_last;
        uint64_t last, top; /* the last number, and the highest one plus 1 */
};

/* The numbers, if frames make the triggers. */
struct dfm_order {
        struct dfm_number *ring; /* ascending: [tail, tail + n), at index % size */
        uint32_t size, tail, n;
        struct dfm_announcer *announced; /* of each ROS */
        uint32_t turn;                   /* ROS at which the search for an acknowledgement continues */
        bool some_required;              /* of the leading ROSs, in the configuration */
        bool open;                       /* the numbers that a previous DFM offered are known */
        bool has_floor;
        uint64_t floor;            /* numbers below were offered already */
        bool begun;                /* the first number is chosen */
        uint64_t first_ns, agreed; /* when a number came; the lowest one that all leading ROSs announced */
        uint64_t near_ns;          /* when a number close to the last offered ones came */
        bool apart;                /* it was logged that the boards are apart */
        bool closing;              /* the boards restarted: all earlier numbers end */
        /* led: frames of all leading ROSs; led_ns: when that number last grew; others: frames of all other
         * ROSs at that time. */
        uint64_t led, led_ns, others;
};

static inline struct dfm_number *dfm_order_at(const struct dfm_order *f, uint32_t k)
{
        return &f->ring[(f->tail + k) % f->size];
}
