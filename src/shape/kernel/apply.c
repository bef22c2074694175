/* Applies the difference between the kernel's tree and the wanted one. apply_send.c sends changes;
 * restore.c restores foreign trees. */
#include "shape/kernel/apply.h"

#include <errno.h>
#include <time.h>

#include "base/strbuf.h"
#include "base/util.h"
#include "sys/loop.h"
#include "shape/model/netlink_message.h"
#include "shape/model/kind.h"

#define LOOK_AGAIN_NS (2 * NS_PER_MS)
#define PATIENCE_NS (5 * NS_PER_S)

/* Returns the bytes queued in classes that are not in `want` (NULL: in all, and in the queue of EDT). */
static uint64_t backlog_bytes(const struct tc_tree *have, const struct tc_tree *want)
{
        uint64_t bytes = 0;

        for (size_t i = 0; i < have->n; i++) {
                const struct tc_object *o = &have->objects[i];

                if (o->kind == &tc_kind_fq && !want)
                        bytes += o->counters.backlog_bytes;
                if (o->type == TC_QDISC && o->parent != TC_ROOT && TC_MAJOR(o->parent) == TC_OUR_MAJOR &&
                    (!want || !tc_tree_class(want, o->parent)))
                        bytes += o->counters.backlog_bytes;
        }
        return bytes;
}

int apply_drain(struct tc_socket *s, int ifindex, const struct tc_tree *want, uint64_t patience_ns,
                uint64_t *ret_bytes)
{
        uint64_t until_ns = clock_now_ns() + patience_ns;

        for (;;) {
                struct tc_tree now = {};
                int r = tc_socket_dump(s, ifindex, false, &now);

                if (r < 0)
                        return r;
                *ret_bytes = backlog_bytes(&now, want);
                tc_tree_fini(&now);
                if (*ret_bytes == 0 || clock_now_ns() >= until_ns)
                        return 0;
                nanosleep(&(struct timespec){.tv_nsec = LOOK_AGAIN_NS}, NULL);
        }
}

/* The kernel reports a table as busy until it has released the filters that led to the table. */
static int delete_tables(struct tc_socket *s, int ifindex, const struct tc_diff *d, struct tc_outcome *o,
                         struct error *e)
{
        uint64_t until_ns = clock_now_ns() + PATIENCE_NS;
        struct error refusal = {};
        int r = 0;

        for (size_t i = d->n_before_tables; r >= 0 && i < d->n; i++) {
                while ((r = apply_send(s, ifindex, &d->changes[i], 1, o, &refusal)) == -EBUSY &&
                       clock_now_ns() < until_ns)
                        nanosleep(&(struct timespec){.tv_nsec = LOOK_AGAIN_NS}, NULL);
        }
        if (r < 0)
                *e = refusal;
        return r;
}

static size_t renewals(const struct tc_diff *d, const struct tc_object **ret_first)
{
        size_t n = 0;

        for (size_t i = 0; i < d->n; i++) {
                if (d->changes[i].verb == TC_RENEW && n++ == 0)
                        *ret_first = d->changes[i].object;
        }
        return n;
}

/* Returns the packets that were dropped with their queues. The root counts both these packets and the drops
 * of the classes. */
static uint64_t dropped_with_queues(const struct tc_tree *t)
{
        const struct tc_object *root = tc_tree_qdisc(t, TC_ROOT);
        uint64_t all = root ? root->counters.drops : 0, by_classes = 0;

        for (size_t i = 0; i < t->n; i++) {
                if (t->objects[i].type == TC_CLASS)
                        by_classes += t->objects[i].counters.drops;
        }
        return all - MIN(all, by_classes);
}

/* Must be called before classes are deleted, because their counts disappear with them. */
static int report_renewals(struct tc_socket *s, int ifindex, const struct tc_diff *d,
                           const struct tc_tree *have, struct tc_outcome *o, struct error *e)
{
        const struct tc_object *first = NULL;
        size_t n = renewals(d, &first);
        char name[TC_OUTCOME_TEXT_MAX / 4];
        struct strbuf b = strbuf_init(name, sizeof name);
        uint64_t before = dropped_with_queues(have), after;
        struct tc_tree now = {};
        int r;

        if (n == 0)
                return 0;
        r = tc_socket_dump(s, ifindex, false, &now);
        if (r < 0)
                return error_set(e, r, "cannot read the queues: %m");
        after = dropped_with_queues(&now);
        tc_tree_fini(&now);
        o->dropped_packets = after - MIN(after, before);
        tc_object_name(first, &b);
        tc_outcome_warn(o,
                        "%s: a packet that is longer than the new burst may wait there, and TBF would never "
                        "send it: %zu queue%s replaced, %llu packets dropped",
                        name, n, n == 1 ? "" : "s", (unsigned long long)o->dropped_packets);
        return 0;
}

static int verify(struct tc_socket *s, int ifindex, const struct tc_tree *want, struct error *e)
{
        struct tc_tree now = {};
        struct tc_diff left = {};
        char name[TC_OUTCOME_TEXT_MAX];
        struct strbuf b = strbuf_init(name, sizeof name);
        int r = tc_socket_dump(s, ifindex, false, &now);

        if (r >= 0)
                r = tc_diff_make(&left, &now, want);
        if (r >= 0 && (left.n_before_drain > 0 || left.n > left.n_before_tables)) {
                tc_object_name(left.changes[0].object, &b);
                r = error_set(e, -EBADE,
                              "the kernel accepted all changes, but its tree differs from the requested one: "
                              "%s",
                              name);
        } else if (r < 0)
                error_set(e, r, "cannot read back the tree: %m");
        tc_diff_fini(&left);
        tc_tree_fini(&now);
        return r;
}

static bool is_of_another_program(enum tc_owner owner)
{
        return owner == TC_OWNER_CLASSLESS || owner == TC_OWNER_FOREIGN;
}

static void roll_back(struct tc_socket *s, int ifindex, const struct tc_tree *before, struct tc_outcome *o,
                      struct error *e)
{
        struct tc_outcome ignored = {};
        struct error why = {};
        struct tc_tree now = {};
        struct tc_diff diff = {};
        int r = tc_socket_dump(s, ifindex, false, &now);

        if (r >= 0 && is_of_another_program(tc_layout_owner(&now))) {
                /* Either nothing was changed, or the other program replaced evb's tree, and the tree of that
                 * program stays. */
                if (!is_of_another_program(tc_layout_owner(before)))
                        error_append(e, "; another program has set the root qdisc meanwhile");
        } else if (r >= 0 && tc_layout_owner(before) != TC_OWNER_OURS) {
                r = tc_restore(s, ifindex, before, &ignored, &why);
        } else {
                if (r >= 0)
                        r = tc_diff_make(&diff, &now, before);
                if (r < 0)
                        error_set(&why, r, "%m");
                else
                        r = apply_send(s, ifindex, diff.changes, diff.n_before_tables, &ignored, &why);
                if (r >= 0)
                        r = delete_tables(s, ifindex, &diff, &ignored, &why);
        }
        if (r < 0)
                error_append(e, "; rolling back also failed: %s", why.message);
        o->operations = 0;
        tc_diff_fini(&diff);
        tc_tree_fini(&now);
}

static int delete_drained(struct tc_socket *s, int ifindex, const struct tc_diff *d,
                          const struct tc_tree *want, uint64_t patience_ns, bool insist, struct tc_outcome *o,
                          struct error *e)
{
        int r = apply_drain(s, ifindex, want, patience_ns, &o->dropped_bytes);

        if (r < 0)
                return error_set(e, r, "cannot read the queues: %m");
        if (o->dropped_bytes > 0 && !insist) {
                o->undraining = (unsigned)(d->n_before_tables - d->n_before_drain);
                o->dropped_bytes = 0;
                return 0;
        }
        return apply_send(s, ifindex, d->changes + d->n_before_drain, d->n_before_tables - d->n_before_drain,
                          o, e);
}

int tc_apply(struct tc_socket *s, int ifindex, const struct tc_tree *have, const struct tc_tree *want,
             uint64_t patience_ns, bool insist, struct tc_outcome *o, struct error *e)
{
        struct tc_diff diff = {};
        int r = tc_diff_make(&diff, have, want);

        if (r < 0)
                return error_set(e, r, "%m");
        if (diff.n > 0) {
                r = apply_send(s, ifindex, diff.changes, diff.n_before_drain, o, e);
                if (r >= 0)
                        r = report_renewals(s, ifindex, &diff, have, o, e);
                if (r >= 0 && diff.n_before_tables > diff.n_before_drain)
                        r = delete_drained(s, ifindex, &diff, want, patience_ns, insist, o, e);
                if (r >= 0)
                        r = delete_tables(s, ifindex, &diff, o, e);
                if (r >= 0)
                        r = verify(s, ifindex, want, e);
                if (r < 0)
                        roll_back(s, ifindex, have, o, e);
        }
        tc_diff_fini(&diff);
        return r;
}
