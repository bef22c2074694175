/* Run control of a DFM: an operator may hold the start of a run, and pause its triggers. Part of the DFM's
 * core, see dfm.h. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct dfm;

/* Holds the start: the run does not begin, whoever is present. A run that has begun, or that a former DFM had
 * begun, is not held. */
void dfm_hold_start(struct dfm *d);
/* Lets the run begin as usual. Nodes that are missing now get dfm.start-timeout from now on. */
void dfm_release_start(struct dfm *d, uint64_t now_ns);
bool dfm_is_held(const struct dfm *d);
/* All required nodes are present. */
bool dfm_is_ready(const struct dfm *d);

/* Pauses the triggers of a running run, or ends the pause; without effect otherwise. Open events go on. The
 * schedule of the DFM's own triggers stands still: it catches nothing up. Triggers from outside, and slices
 * of time, that come meanwhile are not taken; those in the queue are. Frames that make triggers wait. */
void dfm_pause(struct dfm *d, uint64_t now_ns, bool on);
bool dfm_is_paused(const struct dfm *d);
