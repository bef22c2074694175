/* Describes drift: the difference between the installed tree and the kernel's. */
#include "shape/kernel/drift.h"

#include "shape/model/kind.h"

void tc_drift_describe(const struct tc_change *c, struct strbuf *b)
{
        static const char *const is[] = {
                [TC_ADD] = "is missing",
                [TC_REPLACE] = "was replaced",
                [TC_CHANGE] = "was changed",
                [TC_RENEW] = "was changed",
                [TC_DELETE] = "was added or replaced",
        };

        tc_object_name(c->object, b);
        strbuf_add(b, " %s", is[c->verb]);
        if ((c->verb == TC_CHANGE || c->verb == TC_RENEW) && c->object->kind) {
                strbuf_add(b, "; expected:");
                c->object->kind->words(c->object, b);
        }
}

int tc_drift(const struct tc_tree *have, const struct tc_tree *installed,
             char what[static TC_OUTCOME_TEXT_MAX])
{
        struct strbuf b = strbuf_init(what, TC_OUTCOME_TEXT_MAX);
        struct tc_diff diff = {};
        int r = tc_diff_make(&diff, have, installed);
        bool differs;

        if (r < 0)
                return r;
        differs = diff.n_before_drain > 0 || diff.n > diff.n_before_tables;
        if (differs)
                tc_drift_describe(&diff.changes[diff.n_before_drain > 0 ? 0 : diff.n_before_tables], &b);
        tc_diff_fini(&diff);
        return differs;
}
