/* Receives triggers from outside (docs/protocol.md, "Triggers from outside") and offers them to the DFM's
 * core. Counts lost, repeated, foreign and malformed triggers; no input is fatal. One thread. */
#pragma once

#include "core/dfm.h"
#include "data/context.h"
#include "data/reasons.h"

struct trigger_input;

/* Opens trigger.source = udp:PORT at the node's address. Borrows the core and the context's members. Errors
 * are logged. */
int trigger_input_new(struct trigger_input **ret, const struct data_context *c, struct dfm *core);
/* These functions accept NULL: the DFM makes the triggers itself. */
struct trigger_input *trigger_input_free(struct trigger_input *t);
/* Receives for a bounded time; call this after each wake-up. */
void trigger_input_turn(struct trigger_input *t, uint64_t now_ns);
/* When to call trigger_input_turn() again; 0: more datagrams are waiting. */
uint64_t trigger_input_deadline_ns(const struct trigger_input *t);
/* Copies the core's counters of triggers from outside, or of the clock, to the node's counters. */
void trigger_input_publish(const struct dfm *core, struct node_stats *stats);
/* Call this at the end: adds lost and rejected triggers as reasons, with a remedy. */
void trigger_input_reasons(const struct dfm *core, const struct scenario *scenario,
                           const struct node_stats *stats, struct reasons *to);
