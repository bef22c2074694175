/* Compares two sorted trees and lists the changes between them. */
#include "shape/model/netlink_message.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "shape/model/kind.h"

struct differing {
        const struct tc_tree *have, *want;
        struct tc_diff diff;
        size_t size;
        int error;
};

/* `have` is the kernel's object in the same place, or NULL. */
static void emit_for(struct differing *d, enum tc_verb verb, const struct tc_object *o,
                     const struct tc_object *have)
{
        if (d->diff.n == d->size) {
                size_t size = MAX(2 * d->size, (size_t)64);
                struct tc_change *grown = reallocarray(d->diff.changes, size, sizeof *grown);

                if (!grown) {
                        d->error = -ENOMEM;
                        return;
                }
                d->diff.changes = grown;
                d->size = size;
        }
        d->diff.changes[d->diff.n++] = (struct tc_change){verb, o, have ? have->kernel_handle : 0};
}

static void emit(struct differing *d, enum tc_verb verb, const struct tc_object *o)
{
        emit_for(d, verb, o, verb == TC_DELETE ? o : NULL);
}

static bool has_handle(const struct tc_object *o)
{
        return o && o->handle != 0;
}

/* Whether the object exists apart from the root, and stays when the root is deleted: the BPF program of EDT,
 * and its destinations. */
static bool outlives_root(const struct tc_object *o)
{
        return o->kind == &tc_kind_edt || o->parent == TC_EGRESS;
}

/* Whether the object stays although the root does not. In another layout, a class of another kind may have
 * the same handle. */
static bool is_kept(const struct differing *d, const struct tc_object *o)
{
        const struct tc_object *want = outlives_root(o) ? tc_tree_find(d->want, o) : NULL;

        return want && want->kind == o->kind;
}

static void delete_outliving(struct differing *d)
{
        for (size_t i = d->have->n; i-- > 0;) {
                const struct tc_object *o = &d->have->objects[i];

                if (outlives_root(o) && !is_kept(d, o))
                        emit(d, TC_DELETE, o);
        }
}

/* A device that shapes by itself cannot have two roots, not even while one replaces the other. */
static bool is_offloaded(const struct tc_object *root)
{
        return root->kind == &tc_kind_htb && root->params.htb_qdisc.offload;
}

/* Whether the class belongs to this root. Other classes belong to another program's qdisc that replaces a
 * leaf, and are deleted with it. */
static bool is_of(const struct tc_object *class, uint32_t root)
{
        return TC_MAJOR(class->handle) == TC_MAJOR(root);
}

/* True: the root stays, and the objects below it can be compared. */
static bool diff_root(struct differing *d)
{
        const struct tc_object *have = tc_tree_qdisc(d->have, TC_ROOT),
                               *want = tc_tree_qdisc(d->want, TC_ROOT);

        if (has_handle(have) && has_handle(want) && tc_object_equal(have, want))
                return true;
        delete_outliving(d);
        /* The kernel cannot change a root to another kind or other parameters under the same handle: delete
         * it first. */
        if (has_handle(have) && (!has_handle(want) || have->handle == want->handle ||
                                 (is_offloaded(have) && is_offloaded(want)))) {
                emit(d, TC_DELETE, have);
                have = NULL;
        }
        if (has_handle(want))
                emit(d, has_handle(have) ? TC_REPLACE : TC_ADD, want);
        return false;
}

/* Returns the next object of a type, from index *i on; NULL: there is none. */
static const struct tc_object *next_of(const struct tc_tree *t, enum tc_type type, size_t *i)
{
        while (*i < t->n && t->objects[*i].type != type)
                (*i)++;
        return *i < t->n ? &t->objects[*i] : NULL;
}

/* The same of the installed tree, of what stays. */
static const struct tc_object *next_kept(const struct differing *d, enum tc_type type, bool root_stays,
                                         size_t *i)
{
        const struct tc_object *o = next_of(d->have, type, i);

        while (o && !root_stays && !is_kept(d, o)) {
                (*i)++;
                o = next_of(d->have, type, i);
        }
        return o;
}

/* Merges two trees; either object may be missing. */
static void walk(struct differing *d, enum tc_type type, bool root_stays,
                 void (*meet)(struct differing *d, const struct tc_object *have,
                              const struct tc_object *want))
{
        size_t i = 0, k = 0;

        for (;;) {
                const struct tc_object *have = next_kept(d, type, root_stays, &i),
                                       *want = next_of(d->want, type, &k);
                int c = 0;

                if (have && want)
                        c = tc_object_compare(have, want);
                else if (have)
                        c = -1;
                else if (want)
                        c = 1;
                else
                        return;
                meet(d, c <= 0 ? have : NULL, c >= 0 ? want : NULL);
                i += c <= 0;
                k += c >= 0;
        }
}

/* In evb's layouts, a parent's id is smaller than its children's, so the order of ids is top-down. */
static void meet_class(struct differing *d, const struct tc_object *have, const struct tc_object *want)
{
        if (want && !have)
                emit(d, TC_ADD, want);
        else if (want && !tc_object_equal(have, want))
                emit(d, TC_CHANGE, want);
}

static uint32_t tbf_burst(const struct tc_tbf *t, uint32_t more_ticks)
{
        uint64_t bytes = tc_bytes_of_ticks(t->burst_ticks + MIN(more_ticks, UINT32_MAX - t->burst_ticks),
                                           t->rate_bytes);

        return t->burst_bytes ?: (uint32_t)MIN(bytes - MIN(bytes, t->overhead_bytes), UINT32_MAX);
}

/* Whether the queue may contain a packet that is larger than its new burst. TBF segments or drops such
 * packets only on arrival (tbf_enqueue() in net/sched/sch_tbf.c). A packet that is already queued would never
 * get enough tokens, and would block all packets behind it. */
static bool may_stick(const struct tc_object *have, const struct tc_object *want)
{
        if (have->kind != &tc_kind_tbf || want->kind != &tc_kind_tbf)
                return false;
        /* Ticks are rounded: without exact bytes, an unchanged burst must not seem shorter. */
        return tbf_burst(&want->params.tbf, 2) <
               MIN(tbf_burst(&have->params.tbf, 0), want->params.tbf.packet_most_bytes ?: UINT32_MAX);
}

/* Another program replaced the queue of a TBF. If that queue is deleted and the TBF is then changed, the
 * kernel creates a queue with the TBF's limit. */
static void add_own_queue(struct differing *d, const struct tc_object *queue)
{
        for (size_t i = 0; i < d->want->n; i++) {
                const struct tc_object *w = &d->want->objects[i], *h;

                if (w->type != TC_QDISC || w->kind != &tc_kind_tbf ||
                    w->handle != TC_ID(TC_MAJOR(queue->parent), 0))
                        continue;
                h = tc_tree_qdisc(d->have, w->parent);
                if (!h || h->handle != w->handle || h->kind != &tc_kind_tbf)
                        continue;
                /* The renewal of the TBF also replaces its queue. */
                if (!tc_object_equal(h, w) && may_stick(h, w))
                        continue;
                emit(d, TC_DELETE, queue);
                emit(d, TC_CHANGE, w);
        }
}

/* Whether the qdisc above `queue` is new, so that nothing is below it yet. In evb's layouts, the major number
 * of a qdisc is the minor number of its class. */
static bool is_below_new(const struct differing *d, const struct tc_object *queue)
{
        uint32_t major = TC_MAJOR(queue->parent),
                 class = TC_ID(TC_MAJOR(tc_tree_qdisc(d->want, TC_ROOT)->handle), major);
        const struct tc_object *want = tc_tree_qdisc(d->want, class), *have = tc_tree_qdisc(d->have, class);

        if (!want || want->handle != TC_ID(major, 0))
                return false;
        return !have || have->handle != want->handle || have->kind != want->kind ||
               (!tc_object_equal(have, want) && may_stick(have, want));
}

static void meet_qdisc(struct differing *d, const struct tc_object *have, const struct tc_object *want)
{
        if ((want ?: have)->parent == TC_ROOT)
                return;
        if (want && have && is_below_new(d, want))
                have = NULL;
        if (want && have && tc_object_equal(want, have))
                return;
        if (!want) {
                if (has_handle(have))
                        add_own_queue(d, have);
                /* Deletes the qdisc only if its class stays; otherwise it is deleted with the class. */
                if (has_handle(have) && tc_tree_class(d->want, have->parent))
                        emit(d, TC_DELETE, have);
                return;
        }
        if (!has_handle(have))
                emit(d, TC_ADD, want);
        else if (have->handle == want->handle && strcmp(have->kind_name, want->kind_name) == 0)
                emit(d, may_stick(have, want) ? TC_RENEW : TC_CHANGE, want);
        else {
                if (have->handle == want->handle)
                        emit(d, TC_DELETE, have);
                emit(d, have->handle == want->handle ? TC_ADD : TC_REPLACE, want);
        }
}

/* If only the class differs, the filter can be changed in place. If the match differs, the kernel would
 * silently keep the old match. */
static bool can_change(const struct tc_object *have, const struct tc_object *want)
{
        struct tc_object same = *have;

        if (have->kind != &tc_kind_u32 || want->kind != &tc_kind_u32)
                return false;
        same.params.u32.classid = want->params.u32.classid;
        return tc_object_equal(&same, want);
}

/* Order in which filters are added: tables, then their elements, then the filters that lead to tables. */
enum filter_rank { RANK_TABLE, RANK_MATCH, RANK_WAY };

static enum filter_rank rank_of(const struct tc_object *f)
{
        if (f->kind != &tc_kind_u32)
                return RANK_MATCH;
        return f->params.u32.divisor > 0 ? RANK_TABLE : f->params.u32.link > 0 ? RANK_WAY : RANK_MATCH;
}

static void meet_filter(struct differing *d, const struct tc_object *have, const struct tc_object *want,
                        enum filter_rank rank)
{
        if (!want || rank_of(want) != rank || (have && tc_object_equal(have, want)))
                return;
        if (have && can_change(have, want)) {
                emit_for(d, TC_CHANGE, want, have);
                return;
        }
        if (have)
                emit(d, TC_DELETE, have);
        emit(d, TC_ADD, want);
}

static void meet_table(struct differing *d, const struct tc_object *have, const struct tc_object *want)
{
        meet_filter(d, have, want, RANK_TABLE);
}

static void meet_match(struct differing *d, const struct tc_object *have, const struct tc_object *want)
{
        meet_filter(d, have, want, RANK_MATCH);
}

static void meet_way(struct differing *d, const struct tc_object *have, const struct tc_object *want)
{
        meet_filter(d, have, want, RANK_WAY);
}

static void delete_filters(struct differing *d, enum filter_rank rank)
{
        for (size_t i = d->have->n; i-- > 0;) {
                const struct tc_object *o = &d->have->objects[i];

                if (o->type == TC_FILTER && rank_of(o) == rank && !tc_tree_find(d->want, o))
                        emit(d, TC_DELETE, o);
        }
}

/* A destination of the program that names a class is like a filter: without it, the class gets no packets. */
static bool is_like_filter(const struct tc_object *o)
{
        return o->kind == &tc_kind_edt && o->params.edt.classid > 0;
}

static void delete_classes(struct differing *d, bool like_filter)
{
        for (size_t i = d->have->n; i-- > 0;) {
                const struct tc_object *o = &d->have->objects[i];

                if (o->type == TC_CLASS && is_like_filter(o) == like_filter &&
                    is_of(o, tc_tree_qdisc(d->want, TC_ROOT)->handle) && !tc_tree_class(d->want, o->handle))
                        emit(d, TC_DELETE, o);
        }
}

static void delete_unwanted(struct differing *d)
{
        delete_filters(d, RANK_WAY);
        delete_filters(d, RANK_MATCH);
        delete_classes(d, true);
        d->diff.n_before_drain = d->diff.n;
        delete_classes(d, false);
        d->diff.n_before_tables = d->diff.n;
        delete_filters(d, RANK_TABLE);
}

static bool has_classes_below(const struct tc_tree *t, uint32_t classid)
{
        for (size_t i = 0; i < t->n; i++) {
                if (t->objects[i].type == TC_CLASS && t->objects[i].parent == classid)
                        return true;
        }
        return false;
}

/* Whether a class has moved, or another program has added it below a class that must not have it. Of two
 * unwanted classes, the one below goes first, if its id is higher. */
static bool is_misplaced(const struct tc_object *h, const struct tc_tree *have, const struct tc_tree *want,
                         uint32_t root)
{
        const struct tc_object *w = tc_tree_class(want, h->handle), *above = tc_tree_class(want, h->parent);

        if (w)
                return w->parent != h->parent || strcmp(w->kind_name, h->kind_name) != 0;
        if (h->parent == root)
                return false;
        if (above)
                return above->parent != root;
        above = tc_tree_class(have, h->parent);
        return !above || above->handle > h->handle || is_misplaced(above, have, want, root);
}

/* Whether a queue must give its place to classes: the kernel drops it then, and does not wait. */
static bool is_displaced(const struct tc_object *h, const struct tc_tree *want)
{
        return h->type == TC_QDISC && h->handle != 0 && h->parent != TC_ROOT &&
               has_classes_below(want, h->parent);
}

/* Whether a filter prevents a wanted filter from being added. A priority has only one protocol, and the
 * tables of all priorities share one numbering. */
static bool is_in_the_way(const struct tc_object *h, const struct tc_tree *want)
{
        bool is_table = rank_of(h) == RANK_TABLE;

        for (size_t i = 0; i < want->n; i++) {
                const struct tc_object *w = &want->objects[i];

                if (w->type != TC_FILTER || w->parent != h->parent)
                        continue;
                if (w->priority == h->priority && (w->chain != h->chain || w->protocol != h->protocol))
                        return true;
                if (is_table && rank_of(w) == RANK_TABLE && w->handle == h->handle &&
                    w->priority != h->priority)
                        return true;
        }
        return false;
}

/* Whether other programs made changes that cannot be reverted in place, or that can be reverted only with
 * values that the kernel does not report. Then the object must be deleted and added again. */
static bool is_broken(const struct tc_tree *have, const struct tc_tree *want)
{
        uint32_t root = tc_tree_qdisc(want, TC_ROOT)->handle;

        for (size_t i = 0; i < have->n; i++) {
                const struct tc_object *h = &have->objects[i];

                if (h->type == TC_CLASS && is_of(h, root) && is_misplaced(h, have, want, root))
                        return true;
                if (is_displaced(h, want))
                        return true;
                if (h->type == TC_FILTER && !tc_tree_find(want, h) && is_in_the_way(h, want))
                        return true;
        }
        return false;
}

int tc_diff_make(struct tc_diff *ret, const struct tc_tree *have, const struct tc_tree *want)
{
        struct differing d = {.have = have, .want = want};
        bool root_stays = diff_root(&d);

        if (root_stays && is_broken(have, want)) {
                delete_outliving(&d);
                emit(&d, TC_DELETE, tc_tree_qdisc(have, TC_ROOT));
                emit(&d, TC_ADD, tc_tree_qdisc(want, TC_ROOT));
                root_stays = false;
        }
        if (has_handle(tc_tree_qdisc(want, TC_ROOT))) {
                walk(&d, TC_CLASS, root_stays, meet_class);
                walk(&d, TC_QDISC, root_stays, meet_qdisc);
                walk(&d, TC_FILTER, root_stays, meet_table);
                walk(&d, TC_FILTER, root_stays, meet_match);
                walk(&d, TC_FILTER, root_stays, meet_way);
        }
        d.diff.n_before_drain = d.diff.n_before_tables = d.diff.n;
        if (root_stays)
                delete_unwanted(&d);
        if (d.error < 0) {
                free(d.diff.changes);
                return d.error;
        }
        *ret = d.diff;
        return 0;
}

void tc_diff_fini(struct tc_diff *d)
{
        if (!d)
                return;
        free(d->changes);
        *d = (struct tc_diff){};
}
