/* Shared by the files of the shaper. */
#pragma once

#include "shape/kernel/shaper.h"

struct tc_shaper {
        struct tc_device device;
        struct tc_socket *socket;
        struct tc_state state;
        bool locked;
        struct tc_tree installed; /* by the last tc_shaper_apply() */
};

/* Fails with -EEXIST; the error names the root, and what to do about it. */
int shaper_refuse_foreign(const struct tc_tree *have, struct error *e);
/* Warns if removal cannot fully restore a root that is replaced. */
void shaper_warn_of_loss(const char *device, const struct tc_tree *have, struct tc_outcome *o);
/* Warns that `before` is not restored if another program has removed our root. */
void shaper_warn_of_absent(const char *device, const struct tc_tree *before, const struct tc_tree *have,
                           struct tc_outcome *o);
