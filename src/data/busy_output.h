/* Sends the DFM's busy signal (docs/protocol.md, "Busy") to trigger.busy-to: immediately after each change,
 * and every 100 ms. One thread. */
#pragma once

#include "data/context.h"
#include "protocol/trigger_packet.h"

struct busy_output;

/* Opens a socket at the node's address. Borrows the context's members. Errors are logged. */
int busy_output_new(struct busy_output **ret, const struct data_context *c);
/* These functions accept NULL if no busy signal is configured. */
struct busy_output *busy_output_free(struct busy_output *b);
void busy_output_turn(struct busy_output *b, uint64_t now_ns, const struct busy_packet *state);
uint64_t busy_output_deadline_ns(const struct busy_output *b);
