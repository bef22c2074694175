/* Shared by the files of the shaper. */
#pragma once

#include "shape/kernel/shaper.h"

struct tc_shaper {
        struct tc_device device;
        struct tc_socket *socket;
        struct tc_state state;
        bool locked;
        struct tc_tree installed; /* by the last tc_shaper_apply() */
        /* Before the last tc_shaper_tune(): the interface's settings, and those in the state file. */
        struct tc_tuning untuned, remembered;
};

/* Fails with -EEXIST; the error names the root, and what to do about it. */
int shaper_refuse_foreign(const struct tc_tree *have, struct error *e);
/* Warns if removal cannot fully restore a root that is replaced. */
void shaper_warn_of_loss(const char *device, const struct tc_tree *have, struct tc_outcome *o);
/* Warns that `before` is not restored if another program has removed our root. */
void shaper_warn_of_absent(const char *device, const struct tc_tree *before, const struct tc_tree *have,
                           struct tc_outcome *o);

/* The device may have a new name, and another device its old one. False: the device no longer exists. */
bool shaper_follow_name(struct tc_shaper *s);
/* Restores the settings from before the first tc_shaper_tune(). */
int shaper_restore_tuning(struct tc_shaper *s, struct tc_outcome *o, struct error *e);
