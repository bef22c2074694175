/* Run control of a DFM: an operator may hold the start of a run, and pause its triggers. Part of the DFM's
 * core, see dfm.h. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "protocol/message.h"

struct dfm;

/* Holds the start: the run does not begin, even if all nodes are present. Has no effect on a run that has
 * begun, or that a previous DFM began. */
void dfm_hold_start(struct dfm *d);
/* Releases the start: the run begins as usual. Missing nodes have dfm.start-timeout from now on to join. */
void dfm_release_start(struct dfm *d, uint64_t now_ns);
bool dfm_is_held(const struct dfm *d);
/* Whether all required nodes are present. */
bool dfm_is_ready(const struct dfm *d);

/* Sets the metadata of the run, at most METADATA_MAX, which each SFI receives before it receives events. Has
 * no effect once the run has begun, nor in a run that a previous DFM began, whose metadata stay. */
void dfm_set_metadata(struct dfm *d, uint64_t now_ns, const struct metadata_entry *entries, uint16_t n);

/* Pauses the triggers of a running run, or ends the pause; has no effect otherwise. Open events go on. The
 * schedule of the DFM's own triggers stands still, and does not catch up later. Triggers from outside and
 * slices of time that come in the pause are not accepted, but triggers already in the queue still become
 * events. Frames that make triggers wait. */
void dfm_pause(struct dfm *d, uint64_t now_ns, bool on);
bool dfm_is_paused(const struct dfm *d);
