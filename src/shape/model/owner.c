/* Examines an installed tree: its backend, the owner of its root, and whether a dump can restore it. */
#include <string.h>

#include "base/util.h"
#include "shape/model/kind.h"
#include "shape/model/layout.h"

static const char *const classless[] = {
        "pfifo", "bfifo",  "pfifo_fast", "tbf",  "fq",      "fq_codel", "codel",
        "sfq",   "fq_pie", "pie",        "cake", "noqueue", "noop",     "sfb",
};
/* The dumps of these kinds do not include some parts that a request needs or may have contained: RED's
 * logarithm table, netem's distributions. */
static const char *const incomplete_kinds[] = {"red", "gred", "choke", "netem"};

static bool is_among(const char *kind, const char *const *kinds, size_t n)
{
        for (size_t i = 0; i < n; i++) {
                if (strcmp(kind, kinds[i]) == 0)
                        return true;
        }
        return false;
}

static bool has_children(const struct tc_tree *t, const struct tc_object *root)
{
        for (size_t i = 0; i < t->n; i++) {
                const struct tc_object *o = &t->objects[i];

                if (o != root && o->handle != 0 && TC_MAJOR(o->parent) == TC_MAJOR(root->handle) &&
                    o->parent != TC_ROOT)
                        return true;
        }
        return false;
}

const struct tc_object *tc_layout_incomplete(const struct tc_tree *have)
{
        for (size_t i = 0; i < have->n; i++) {
                const struct tc_object *o = &have->objects[i];

                if (o->type == TC_QDISC && o->handle != 0 &&
                    (is_among(o->kind_name, incomplete_kinds, ARRAY_SIZE(incomplete_kinds)) ||
                     tc_object_is_missing_table(o)))
                        return o;
        }
        return NULL;
}

enum tc_backend tc_layout_backend(const struct tc_tree *have)
{
        const struct tc_object *root = tc_tree_qdisc(have, TC_ROOT);

        if (!root || root->handle != TC_OUR_ROOT || !root->kind)
                return TC_BACKEND_NONE;
        if (root->kind == &tc_kind_fq) /* others are not decoded */
                return TC_BACKEND_EDT;
        if (root->kind == &tc_kind_cbq)
                return root->params.cbq.off_time == TC_OUR_MAJOR ? TC_BACKEND_CBQ_TBF : TC_BACKEND_NONE;
        if (root->kind != &tc_kind_htb || root->params.htb_qdisc.rate2quantum != TC_OUR_MAJOR)
                return TC_BACKEND_NONE;
        for (size_t i = 0; i < have->n; i++) {
                const struct tc_object *o = &have->objects[i];

                if (o->type == TC_QDISC && o->kind == &tc_kind_tbf && o->parent > TC_OTHER_CLASS)
                        return TC_BACKEND_HTB_TBF;
        }
        return TC_BACKEND_HTB;
}

bool tc_layout_is_offloaded(const struct tc_tree *have)
{
        return tc_layout_backend(have) == TC_BACKEND_HTB &&
               tc_tree_qdisc(have, TC_ROOT)->params.htb_qdisc.offload;
}

enum tc_fair tc_layout_fair(const struct tc_tree *have)
{
        const struct tc_object *queue = tc_tree_qdisc(have, TC_OTHER_CLASS);

        return queue && strcmp(queue->kind_name, tc_kind_fq_codel.name) == 0 ? TC_FAIR_YES : TC_FAIR_NO;
}

const char *tc_backend_name(enum tc_backend backend)
{
        static const char *const names[] = {
                [TC_BACKEND_NONE] = "none",       [TC_BACKEND_AUTO] = "auto",
                [TC_BACKEND_HTB] = "htb",         [TC_BACKEND_HTB_TBF] = "htb+tbf",
                [TC_BACKEND_CBQ_TBF] = "cbq+tbf", [TC_BACKEND_SOCKET] = "socket",
                [TC_BACKEND_EDT] = "edt",
        };

        return names[backend];
}

enum tc_owner tc_layout_owner(const struct tc_tree *have)
{
        const struct tc_object *root = tc_tree_qdisc(have, TC_ROOT);

        if (!root || root->handle == 0)
                return TC_OWNER_KERNEL;
        if (tc_layout_backend(have) != TC_BACKEND_NONE)
                return TC_OWNER_OURS;
        if (is_among(root->kind_name, classless, ARRAY_SIZE(classless)) && !has_children(have, root) &&
            !tc_layout_incomplete(have))
                return TC_OWNER_CLASSLESS;
        return TC_OWNER_FOREIGN;
}
