/* The DFM's side of a trigger box: trigger_input receives triggers from outside (docs/protocol.md, "Triggers
 * from outside") and offers them to the DFM's core; busy_output answers with the busy signal ("Busy"). Counts
 * lost, repeated, foreign and malformed triggers; no input is fatal. One thread. */
#pragma once

#include "core/dfm.h"
#include "data/context.h"
#include "data/reasons.h"
#include "protocol/trigger_packet.h"

struct trigger_input;

/* Opens trigger.source = udp:PORT at the node's address. Borrows the core and the context's members. Errors
 * are logged. */
int trigger_input_new(struct trigger_input **ret, const struct data_context *c, struct dfm *core);
/* These functions accept NULL: the DFM makes the triggers itself. */
struct trigger_input *trigger_input_free(struct trigger_input *t);
/* Receives for a bounded time; call this after each wake-up. */
void trigger_input_turn(struct trigger_input *t, uint64_t now_ns);
/* Call this before the DFM accepts no further triggers: receives those that arrived before, even if the
 * process was held up and the loop has not reported them yet. */
void trigger_input_catch_up(struct trigger_input *t, uint64_t now_ns);
/* When to call trigger_input_turn() again; 0: more datagrams are waiting. */
uint64_t trigger_input_deadline_ns(const struct trigger_input *t);
/* Copies the core's counters of triggers from outside, or of the clock, to the node's counters. */
void trigger_input_publish(const struct dfm *core, struct node_stats *stats);
/* Call this at the end: adds lost and rejected triggers as reasons, with a remedy. */
void trigger_input_reasons(const struct dfm *core, const struct scenario *scenario,
                           const struct node_stats *stats, struct reasons *to);

/* Sends the busy signal to trigger.busy-to, immediately after each change and every 100 ms. */
struct busy_output;

/* Opens a socket at the node's address. Borrows the context's members. Errors are logged. */
int busy_output_new(struct busy_output **ret, const struct data_context *c);
/* These functions accept NULL if no busy signal is configured. */
struct busy_output *busy_output_free(struct busy_output *b);
void busy_output_turn(struct busy_output *b, uint64_t now_ns, const struct busy_packet *state);
uint64_t busy_output_deadline_ns(const struct busy_output *b);
