/* Determines where a node or a run loses data, and which data a node lost recently, so that an operator sees
 * whether a run is losing events now, regardless of earlier losses. Pure. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "conf/scenario.h"
#include "data/stats.h"

/* A location where data is lost. Its counters are those in stats_table[] with this `place`. */
struct loss_place_text {
        const char *name, *unit; /* "Network and switch", "packet" */
        unsigned roles;          /* roles whose counters count losses there; bits by COUNTER_ROLE() */
        const char *key, *word;  /* in "drops" and "losses" of /status, and in a sentence; NULL: absent */
};

/* Indexed by enum loss_place; LOSS_NOWHERE is empty. */
extern const struct loss_place_text loss_places[LOSS_PLACES];

/* Returns the place where a counter of a node of this role counts losses; LOSS_NOWHERE: it counts no
 * losses. */
enum loss_place losses_place_of(const struct counter *c, enum node_role role);
/* Whether the counter counts events that are lost, partial or not written. */
bool losses_are_events(const struct counter *c);
/* Returns the losses of a node, by place; NAN: unknown, or the place does not exist. */
void losses_of_node(const struct scenario *s, enum node_role role, const uint64_t counts[static COUNTERS],
                    double ret[static LOSS_PLACES]);
/* The losses of a run are the sum over its nodes. losses_begin() sets all losses to NAN. losses_end()
 * subtracts packets that a kernel refused to send from the losses in the network. */
void losses_begin(double total[static LOSS_PLACES]);
void losses_add(double total[static LOSS_PLACES], const double node[static LOSS_PLACES]);
void losses_end(double total[static LOSS_PLACES]);

/* A new window begins after this time, so the current one covers the last 5 to 10 s. */
#define LOSSES_STEP_NS UINT64_C(5000000000)

struct losses_sample {
        uint64_t now_ns;
        uint64_t counts[COUNTERS];
};

/* Initialized with zeros at the beginning of a run. */
struct losses {
        struct losses_sample older, newer, now;
};

/* Records the counts of the current run. True: the newer of the two windows has become the current one. */
bool losses_record(struct losses *l, const struct losses_sample *now);
/* Returns the losses in the current window, which began at .now_ns; counts that decreased are 0. */
struct losses_sample losses_recent(const struct losses *l);
