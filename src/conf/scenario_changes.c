/* Compares two scenarios by the table of keys, and their other sections by their text. */
#include "conf/scenario_changes.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "conf/digest.h"
#include "conf_internal.h"

struct comparison {
        const struct scenario *running, *file;
        enum node_role role;
        scenario_difference_fn each;
        void *ctx;
};

static enum scenario_difference_kind kind_of(const struct scenario_key *key, enum node_role role)
{
        if (key->applied_by & KEY_OF(role))
                return DIFFERENCE_APPLIES;
        if (key->applied_by || (key->used_by && !(key->used_by & KEY_OF(role))))
                return DIFFERENCE_OTHERS;
        return scenario_digest_has(key) ? DIFFERENCE_COMMON : DIFFERENCE_FIXED;
}

static void compare_key(const struct comparison *c, const struct scenario_key *key)
{
        struct scenario_difference d = {.key = key};

        scenario_key_value(c->running, key, d.from, sizeof d.from);
        scenario_key_value(c->file, key, d.to, sizeof d.to);
        if (strcmp(d.from, d.to) == 0)
                return;
        d.kind = kind_of(key, c->role);
        snprintf(d.what, sizeof d.what, "%s.%s", key->section, key->name);
        c->each(c->ctx, &d);
}

static void add_difference(const struct comparison *c, enum scenario_difference_kind kind, const char *format,
                           ...) __attribute__((format(printf, 3, 4)));

static void add_difference(const struct comparison *c, enum scenario_difference_kind kind, const char *format,
                           ...)
{
        struct scenario_difference d = {.kind = kind};
        va_list args;

        va_start(args, format);
        vsnprintf(d.what, sizeof d.what, format, args);
        va_end(args);
        c->each(c->ctx, &d);
}

/* Returns the section of a node as text, with its index among the nodes of its role; the caller frees it.
 * NULL: out of memory. */
static char *text_of(const struct scenario_node *n)
{
        char *text = NULL;
        size_t size;
        FILE *f = open_memstream(&text, &size);

        if (!f)
                return NULL;
        fprintf(f, "%u", n->index);
        conf_write_node(n, f);
        if (fclose(f) == 0)
                return text;
        free(text);
        return NULL;
}

/* 1: they differ. */
static int compare_node(const struct scenario_node *a, const struct scenario_node *b)
{
        _cleanup_free_ char *one = text_of(a), *other = text_of(b);

        return !one || !other ? -ENOMEM : strcmp(one, other) != 0;
}

/* Names only the first other node that differs, and counts the rest. If a node was added, a count differs, so
 * the addition is reported there. */
static int compare_nodes(const struct comparison *c, const char *name)
{
        const struct scenario_node *first = NULL;
        unsigned others = 0;

        for (size_t i = 0; i < c->running->n_nodes; i++) {
                const struct scenario_node *n = &c->running->nodes[i], *now = scenario_find(c->file, n->name);
                int r = now ? compare_node(n, now) : 1;

                if (r < 0)
                        return r;
                if (r == 0)
                        continue;
                if (strcmp(n->name, name) == 0)
                        add_difference(c, DIFFERENCE_FIXED, "[node %s]", name);
                else {
                        first = first ?: n;
                        others++;
                }
        }
        if (others == 1)
                add_difference(c, DIFFERENCE_COMMON, "[node %s]", first->name);
        else if (others > 1)
                add_difference(c, DIFFERENCE_COMMON, "[node %s] and %u more", first->name, others - 1);
        return 0;
}

static bool has_other_metadata(const struct scenario *a, const struct scenario *b)
{
        for (size_t i = 0; i < a->n_metadata; i++) {
                if (i >= b->n_metadata || strcmp(a->metadata[i].name, b->metadata[i].name) != 0 ||
                    strcmp(a->metadata[i].value, b->metadata[i].value) != 0)
                        return true;
        }
        return a->n_metadata != b->n_metadata;
}

int scenario_compare(const struct scenario *running, const struct scenario *file, enum node_role role,
                     const char *name, scenario_difference_fn each, void *ctx)
{
        const struct comparison c = {running, file, role, each, ctx};
        int r;

        for (size_t i = 0; i < n_scenario_keys; i++)
                compare_key(&c, &scenario_keys[i]);
        r = compare_nodes(&c, name);
        if (r >= 0 && has_other_metadata(running, file))
                add_difference(&c, DIFFERENCE_FIXED, "[metadata]");
        return r;
}
