/* Messages about other people's roots: why one is left alone, and what of one cannot come back. */
#include <errno.h>

#include "evb/tc-model/layout.h"
#include "shaper_internal.h"

int shaper_refuse_foreign(const char *device, const struct tc_tree *have, struct tc_outcome *o)
{
        const struct tc_object *root = tc_tree_qdisc(have, TC_ROOT), *lost = tc_layout_incomplete(have);
        char handle[TC_HANDLE_TEXT_MAX], lost_handle[TC_HANDLE_TEXT_MAX];

        tc_handle_format(root->handle, handle);
        if (!lost)
                return tc_outcome_fail(
                        o, -EEXIST,
                        "%s has a root qdisc of someone else, %s %s: left as it is; --force replaces it, "
                        "and removal puts it back",
                        device, root->kind_name, handle);
        return tc_outcome_fail(
                o, -EEXIST,
                "%s has a root qdisc of someone else, %s %s, that could not be put back: the kernel does "
                "not report all of %s %s%s; delete it first, or lose it by --force",
                device, root->kind_name, handle, lost->kind_name, tc_handle_format(lost->handle, lost_handle),
                tc_object_lacks_table(lost) ? " (its stab)" : "");
}

void shaper_warn_of_loss(const char *device, const struct tc_tree *have, struct tc_outcome *o)
{
        const struct tc_object *lost = tc_layout_incomplete(have);
        char handle[TC_HANDLE_TEXT_MAX];

        if (lost)
                tc_outcome_warn(
                        o, "%s: removal cannot put %s %s back exactly: the kernel does not report all of it",
                        device, lost->kind_name, tc_handle_format(lost->handle, handle));
}

void shaper_warn_of_absent(const char *device, const struct tc_tree *before, const struct tc_tree *have,
                           struct tc_outcome *o)
{
        const struct tc_object *saved = tc_tree_qdisc(before, TC_ROOT), *root = tc_tree_qdisc(have, TC_ROOT);
        char handle[TC_HANDLE_TEXT_MAX];

        if (saved && saved->handle != 0 && !(root && tc_object_equal(saved, root)))
                tc_outcome_warn(
                        o, "%s: its earlier root qdisc %s %s is not put back, as someone else removed ours",
                        device, saved->kind_name, tc_handle_format(saved->handle, handle));
}
