/* Digests of the settings that must be equal on all nodes of a run. The DFM compares them and names the first
 * key that differs. Settings that a node may choose (paths, buffers, shaping, busy-poll, times that only the
 * DFM uses) have no digest, nor has run.seed: fragments of another seed are counted as corrupt. */
#pragma once

#include "conf/keys.h"
#include "protocol/member.h"

void scenario_digest(const struct scenario *s, struct member_keys *ret);
/* "ros.count", "[node] sections", or "another version of evb" for an unknown number. */
const char *scenario_digest_name(unsigned key);
/* Whether the key has a separate digest. */
bool scenario_digest_has(const struct scenario_key *key);

/* ---- Keys that need not agree. ---- */

/* A scenario that differs in such a key is accepted, but the files of the nodes are probably not the same.
 * Returns the digest of the value of scenario_keys[i]; 0: the key has a digest above, nodes may choose it, or
 * it may change at run time, so it is not compared. */
uint32_t scenario_digest_other(const struct scenario *s, size_t i);
