/* Reload at SIGHUP: a node reads its scenario again, and applies the values that may change while it runs. */
#pragma once

#include "conf/keys.h"
#include "node_internal.h"

/* Reads the scenario again, applies the changed values that this node can change, and logs them. If the file
 * is invalid or cannot be read, nothing changes. `stopping`: the service manager knows that this node is
 * stopping, so the reload is not reported to it. */
void node_reload(struct node *n, uint64_t now_ns, bool stopping);

/* Sets one key ("trigger.rate") to one value, and logs this. -EINVAL: unknown key or invalid
 * value; -EPERM: this node cannot apply the value now. `why` explains the error. */
int node_set(struct node *n, uint64_t now_ns, const char *name, const char *value, char *why,
             size_t size_bytes);

/* reload_roles.c: the differences between the roles. */
/* Whether this node can apply this value of `to`. False: `text` explains why not. True: `text` explains why
 * it has no effect, or is "". */
bool reload_permits(const struct node *n, const struct scenario *to, const struct scenario_key *key,
                    char *text, size_t size_bytes);
/* Applies all values of `to` that may change; reload_permits() must have accepted the values that differ. */
void reload_apply(struct node *n, uint64_t now_ns, const struct scenario *to);
