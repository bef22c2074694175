/* A set of a run's events: one bit for each number within EVB_EVENT_WINDOW of the oldest event of interest.
 * Pure; nothing is allocated after event_set_init(). */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct event_set {
        uint64_t from; /* the set ignores events below it, and events EVB_EVENT_WINDOW or more above it */
        uint64_t *bits;
        /* The range of all events that were added since the set was empty; both ends are equal if there are
         * none. Clearing only this range saves the time for clearing the whole ring. */
        uint64_t added_from, added_to;
};

int event_set_init(struct event_set *s); /* -ENOMEM; empty, from event 0 */
void event_set_fini(struct event_set *s);
bool event_set_has(const struct event_set *s, uint64_t event);
/* Ignores numbers outside the window. */
void event_set_add(struct event_set *s, uint64_t event);
void event_set_remove(struct event_set *s, uint64_t event);
/* Moves the window up: events below `from` are removed from the set. */
void event_set_advance(struct event_set *s, uint64_t from);
void event_set_copy(struct event_set *to, const struct event_set *s);
void event_set_clear(struct event_set *s, uint64_t from);
/* Returns events [from, from + 64) as bits; `from` must be a multiple of 64. */
uint64_t event_set_word(const struct event_set *s, uint64_t from);
