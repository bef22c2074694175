/* Restores foreign trees from their dump, parents before children. Converts the dump to requests where the
 * two formats differ. */
#include <errno.h>
#include <linux/pkt_cls.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "shape/model/kind.h"
#include "shape/kernel/apply.h"

/* Qdiscs whose classes must be created; other qdiscs create their classes themselves (bands of prio, queues
 * of mq). */
static const char *const makes_classes[] = {"htb", "cbq", "hfsc", "drr", "qfq"};
#define DEPTH_MAX 32

/* Qdiscs whose dump does not include a table that the kernel requires to create them. */
static const char *const wants_table[] = {"red", "gred", "choke"};

static bool can_be_created(const struct tc_object *o)
{
        for (size_t i = 0; i < ARRAY_SIZE(wants_table); i++) {
                if (strcmp(o->kind_name, wants_table[i]) == 0)
                        return false;
        }
        if (o->type != TC_CLASS)
                return o->handle != 0;
        for (size_t i = 0; i < ARRAY_SIZE(makes_classes); i++) {
                if (strcmp(o->kind_name, makes_classes[i]) == 0)
                        return true;
        }
        return false;
}

/* Returns the distance from the root; filters come last. */
static unsigned depth(const struct tc_tree *t, const struct tc_object *o)
{
        unsigned n = 0;

        if (o->type == TC_FILTER)
                return 2 * DEPTH_MAX + (o->kind != &tc_kind_u32     ? 1
                                        : o->params.u32.divisor > 0 ? 0
                                        : o->params.u32.link > 0    ? 2
                                                                    : 1);
        for (uint32_t parent = o->parent; parent != TC_ROOT && n < DEPTH_MAX; n++) {
                const struct tc_object *above = NULL;

                if (TC_MINOR(parent) != 0)
                        above = tc_tree_class(t, parent);
                for (size_t i = 0; !above && i < t->n; i++) {
                        if (t->objects[i].type == TC_QDISC && t->objects[i].handle != 0 &&
                            TC_MAJOR(t->objects[i].handle) == TC_MAJOR(parent))
                                above = &t->objects[i];
                }
                if (!above)
                        break;
                parent = above->parent;
        }
        return n;
}

/* The kernel chooses a new number for a topmost table each time. A filter without a number is added to this
 * table. */
static bool is_topmost_table(const struct nlattr *a)
{
        return a->nla_type == TCA_U32_HASH && a->nla_len >= sizeof *a + sizeof(uint32_t) &&
               mnl_attr_get_u32(a) >= UINT32_C(0x80000000);
}

/* Removes parts that a request must not contain: the flags in_hw and not_in_hw, and the counters of
 * matches. */
static void strip_u32(struct tc_object *o)
{
        size_t to = 0;

        for (size_t from = 0; from + sizeof(struct nlattr) <= o->options_bytes;) {
                struct nlattr *a = (void *)(o->options + from);
                size_t length = MNL_ALIGN(a->nla_len);

                if (a->nla_len < sizeof *a || from + length > o->options_bytes)
                        break;
                if (a->nla_type == TCA_U32_FLAGS && a->nla_len >= sizeof *a + sizeof(uint32_t))
                        *(uint32_t *)mnl_attr_get_payload(a) &= TCA_CLS_FLAGS_SKIP_HW | TCA_CLS_FLAGS_SKIP_SW;
                from += length;
                if (a->nla_type == TCA_U32_PCNT || is_topmost_table(a))
                        continue;
                memmove(o->options + to, a, length);
                to += length;
        }
        o->options_bytes = to;
}

struct replay {
        unsigned depth;
        struct tc_change change;
};

static int compare_depth(const void *a, const void *b)
{
        const struct replay *x = a, *y = b;

        return (x->depth > y->depth) - (x->depth < y->depth)
                       ?: tc_object_compare(x->change.object, y->change.object);
}

static int replay(struct tc_socket *s, int ifindex, struct tc_tree *saved, struct tc_outcome *o,
                  struct error *e)
{
        _cleanup_free_ struct replay *steps = calloc(saved->n + 1, sizeof *steps);
        _cleanup_free_ struct tc_change *changes = calloc(saved->n + 1, sizeof *changes);
        size_t n = 0;

        if (!steps || !changes)
                return error_set(e, -ENOMEM, "%m");
        for (size_t i = 0; i < saved->n; i++) {
                struct tc_object *object = &saved->objects[i];

                if (!can_be_created(object))
                        continue;
                if (!object->kind && strcmp(object->kind_name, "u32") == 0)
                        strip_u32(object);
                steps[n++] = (struct replay){depth(saved, object),
                                             {object->type == TC_QDISC ? TC_REPLACE : TC_ADD, object, 0}};
        }
        qsort(steps, n, sizeof *steps, compare_depth);
        for (size_t i = 0; i < n; i++)
                changes[i] = steps[i].change;
        return apply_send(s, ifindex, changes, n, o, e);
}

/* Warns about each saved object that was not restored. */
static int verify(struct tc_socket *s, int ifindex, const struct tc_tree *saved, struct tc_outcome *o,
                  struct error *e)
{
        struct tc_tree now = {};
        int r = tc_socket_dump(s, ifindex, true, &now);

        for (size_t i = 0; r >= 0 && i < saved->n; i++) {
                const struct tc_object *want = &saved->objects[i];
                const struct tc_object *have = tc_tree_find(&now, want);
                char name[TC_OUTCOME_TEXT_MAX / 2];
                struct strbuf b = strbuf_init(name, sizeof name);

                if (want->handle == 0 || (have && tc_object_equal(want, have)))
                        continue;
                tc_object_name(want, &b);
                tc_outcome_warn(o, "%s was not restored exactly", name);
        }
        tc_tree_fini(&now);
        return r < 0 ? error_set(e, r, "cannot read back the tree: %m") : 0;
}

int tc_detach(struct tc_socket *s, int ifindex, const struct tc_tree *have, struct tc_outcome *o,
              struct error *e)
{
        for (size_t i = 0; i < have->n; i++) {
                const struct tc_object *f = &have->objects[i];
                struct tc_change delete = {TC_DELETE, f, f->kernel_handle};

                if (f->type == TC_FILTER && f->kind == &tc_kind_bpf)
                        return apply_send(s, ifindex, &delete, 1, o, e);
        }
        return 0;
}

int tc_restore(struct tc_socket *s, int ifindex, const struct tc_tree *saved, struct tc_outcome *o,
               struct error *e)
{
        const struct tc_object *root = tc_tree_qdisc(saved, TC_ROOT);
        struct tc_tree now = {}, copy = {};
        int r = tc_read_tree(s, ifindex, false, &now, e);

        if (r >= 0)
                r = tc_detach(s, ifindex, &now, o, e);
        if (r >= 0) {
                const struct tc_object *there = tc_tree_qdisc(&now, TC_ROOT);
                struct tc_change delete = {TC_DELETE, there, 0};

                /* The kernel cannot replace a root with another root that has the same handle. */
                if (there && there->handle != 0)
                        r = apply_send(s, ifindex, &delete, 1, o, e);
        }
        if (r >= 0 && root && root->handle != 0) {
                r = tc_tree_copy(&copy, saved);
                if (r < 0)
                        error_set(e, r, "%m");
                else
                        r = replay(s, ifindex, &copy, o, e);
                if (r >= 0)
                        r = verify(s, ifindex, saved, o, e);
        }
        tc_tree_fini(&copy);
        tc_tree_fini(&now);
        return r;
}
