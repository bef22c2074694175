/* Digests of what must be the same in the scenarios of all nodes of a run: the DFM compares them and names the key that
 * differs. What a node may have of its own (paths, buffers, shaping, times that only the DFM uses) is not in them. Nor is
 * run.seed: fragments of another seed show as corrupt. */
#pragma once

#include "evb/conf/scenario.h"
#include "evb/core/member.h"

void scenario_digest(const struct scenario *s, struct member_keys *ret);
/* "ros.count", "[node] sections" or, for a number that is none, "another version of evb". */
const char *scenario_digest_name(unsigned key);
