/* Trees of qdiscs, classes and filters as values. */
#include "shape/model/object.h"

#include <errno.h>
#include <linux/pkt_sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "shape/model/kind.h"

int tc_tree_add(struct tc_tree *t, const struct tc_object *o)
{
        if (t->n == t->size) {
                size_t size = MAX(t->size * 2, (size_t)64);
                struct tc_object *grown = reallocarray(t->objects, size, sizeof *grown);

                if (!grown)
                        return -ENOMEM;
                t->objects = grown;
                t->size = size;
        }
        t->objects[t->n++] = *o;
        return 0;
}

void tc_tree_fini(struct tc_tree *t)
{
        if (!t)
                return;
        for (size_t i = 0; i < t->n; i++)
                free(t->objects[i].options);
        free(t->objects);
        *t = (struct tc_tree){};
}

int tc_tree_copy(struct tc_tree *ret, const struct tc_tree *t)
{
        struct tc_tree copy = {};
        int r = 0;

        for (size_t i = 0; r >= 0 && i < t->n; i++) {
                struct tc_object o = t->objects[i];

                if (o.options) {
                        o.options = malloc(o.options_bytes);
                        if (o.options)
                                memcpy(o.options, t->objects[i].options, o.options_bytes);
                        else
                                r = -ENOMEM;
                }
                if (r >= 0)
                        r = tc_tree_add(&copy, &o);
                if (r < 0)
                        free(o.options);
        }
        if (r < 0) {
                tc_tree_fini(&copy);
                return r;
        }
        *ret = copy;
        return 0;
}

static int compare_numbers(uint32_t a, uint32_t b)
{
        return (a > b) - (a < b);
}

/* A qdisc's place is its parent: another qdisc below the same parent has the same place. */
int tc_object_compare(const struct tc_object *a, const struct tc_object *b)
{
        int c = compare_numbers(a->type, b->type);

        if (c == 0 && a->type == TC_QDISC)
                return compare_numbers(a->parent, b->parent);
        if (c == 0 && a->type == TC_FILTER) {
                c = compare_numbers(a->parent, b->parent) ?: compare_numbers(a->priority, b->priority);
                c = c ?: compare_numbers(a->protocol, b->protocol) ?: compare_numbers(a->chain, b->chain);
        }
        return c ?: compare_numbers(a->handle, b->handle);
}

static int compare_for_sort(const void *a, const void *b)
{
        return tc_object_compare(a, b);
}

void tc_tree_sort(struct tc_tree *t)
{
        if (t->n > 0)
                qsort(t->objects, t->n, sizeof *t->objects, compare_for_sort);
}

bool tc_object_equal(const struct tc_object *a, const struct tc_object *b)
{
        if (tc_object_compare(a, b) != 0 || strcmp(a->kind_name, b->kind_name) != 0)
                return false;
        /* Handles of the kernel's default qdiscs are arbitrary; filters were already compared by handle. */
        if (a->type != TC_FILTER && (a->handle != b->handle || a->parent != b->parent))
                return false;
        if (a->has_stab != b->has_stab || memcmp(a->stab, b->stab, sizeof a->stab) != 0)
                return false;
        if (a->kind && b->kind)
                return a->kind->equal(a, b);
        return a->kind == b->kind && a->options_bytes == b->options_bytes &&
               (a->options_bytes == 0 || memcmp(a->options, b->options, a->options_bytes) == 0);
}

bool tc_object_is_missing_table(const struct tc_object *o)
{
        struct tc_sizespec spec;

        _Static_assert(sizeof spec == sizeof o->stab, "all of it is kept");
        memcpy(&spec, o->stab, sizeof spec);
        return o->has_stab && spec.tsize > 0;
}

const struct tc_object *tc_tree_find(const struct tc_tree *t, const struct tc_object *place)
{
        return t->n > 0 ? bsearch(place, t->objects, t->n, sizeof *t->objects, compare_for_sort) : NULL;
}

const struct tc_object *tc_tree_class(const struct tc_tree *t, uint32_t classid)
{
        return tc_tree_find(t, &(struct tc_object){.type = TC_CLASS, .handle = classid});
}

const struct tc_object *tc_tree_qdisc(const struct tc_tree *t, uint32_t parent)
{
        return tc_tree_find(t, &(struct tc_object){.type = TC_QDISC, .parent = parent});
}

char *tc_handle_format(uint32_t handle, char text[static TC_HANDLE_TEXT_MAX])
{
        struct strbuf b = strbuf_init(text, TC_HANDLE_TEXT_MAX);

        if (handle == TC_ROOT)
                strbuf_add(&b, "root");
        else if (TC_MINOR(handle) == 0)
                strbuf_add(&b, "%x:", TC_MAJOR(handle));
        else
                strbuf_add(&b, "%x:%x", TC_MAJOR(handle), TC_MINOR(handle));
        return text;
}

void tc_object_name(const struct tc_object *o, struct strbuf *b)
{
        char handle[TC_HANDLE_TEXT_MAX], parent[TC_HANDLE_TEXT_MAX];

        tc_handle_format(o->handle, handle);
        tc_handle_format(o->parent, parent);
        if (o->type == TC_CLASS)
                strbuf_add(b, "%s class %s", o->kind_name, handle);
        else if (o->type == TC_QDISC && o->parent == TC_ROOT)
                strbuf_add(b, "root qdisc %s %s", o->kind_name, handle);
        else if (o->type == TC_QDISC)
                strbuf_add(b, "%s %s below class %s", o->kind_name, handle, parent);
        else
                strbuf_add(b, "%s filter %x:%x:%x of priority %u", o->kind_name, o->handle >> 20,
                           o->handle >> 12 & 0xff, o->handle & 0xfff, o->priority);
}
