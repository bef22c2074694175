/* Messages about root qdiscs of other programs: why one is not replaced, and what cannot be restored. */
#include <errno.h>

#include "shape/model/layout.h"
#include "shaper_internal.h"

int shaper_refuse_foreign(const struct tc_tree *have, struct error *e)
{
        const struct tc_object *root = tc_tree_qdisc(have, TC_ROOT), *lost = tc_layout_incomplete(have);
        char handle[TC_HANDLE_TEXT_MAX], lost_handle[TC_HANDLE_TEXT_MAX];

        tc_handle_format(root->handle, handle);
        if (!lost)
                return error_set(e, -EEXIST,
                                 "another program has set the root qdisc %s %s; --force replaces it until "
                                 "remove restores it",
                                 root->kind_name, handle);
        return error_set(e, -EEXIST,
                         "another program has set the root qdisc %s %s, which remove could not restore: the "
                         "kernel does not report all of %s %s%s; delete the root qdisc first, or use --force "
                         "and lose it",
                         root->kind_name, handle, lost->kind_name,
                         tc_handle_format(lost->handle, lost_handle),
                         tc_object_is_missing_table(lost) ? " (its stab)" : "");
}

void shaper_warn_of_loss(const char *device, const struct tc_tree *have, struct tc_outcome *o)
{
        const struct tc_object *lost = tc_layout_incomplete(have);
        char handle[TC_HANDLE_TEXT_MAX];

        if (lost)
                tc_outcome_warn(
                        o, "%s: remove cannot restore %s %s exactly: the kernel does not report all of it",
                        device, lost->kind_name, tc_handle_format(lost->handle, handle));
}

void shaper_warn_of_absent(const char *device, const struct tc_tree *before, const struct tc_tree *have,
                           struct tc_outcome *o)
{
        const struct tc_object *saved = tc_tree_qdisc(before, TC_ROOT), *root = tc_tree_qdisc(have, TC_ROOT);
        char handle[TC_HANDLE_TEXT_MAX];

        if (saved && saved->handle != 0 && !(root && tc_object_equal(saved, root)))
                tc_outcome_warn(o,
                                "%s: the earlier root qdisc %s %s is not restored because another program "
                                "removed evb's",
                                device, saved->kind_name, tc_handle_format(saved->handle, handle));
}
