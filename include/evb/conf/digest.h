/* Digests of the settings that must be the same in the scenarios of all nodes of a run. The DFM compares them
 * and names the first key that differs. They leave out what a node may set for itself (paths, buffers,
 * shaping, times that only the DFM uses) and run.seed: fragments of another seed show as corrupt. */
#pragma once

#include "evb/conf/scenario.h"
#include "evb/protocol/member.h"

void scenario_digest(const struct scenario *s, struct member_keys *ret);
/* "ros.count", "[node] sections", or "another version of evb" for an unknown number. */
const char *scenario_digest_name(unsigned key);
