/* From what the kernel has to what is wanted. Putting back what others had is in restore.c. */
#include "evb/tc/apply.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "evb/base/strbuf.h"
#include "evb/base/util.h"
#include "evb/sys/loop.h"
#include "evb/tc-model/diff.h"
#include "apply_internal.h"

#define LOOK_AGAIN_NS (2 * NS_PER_MS)
#define PATIENCE_NS (5 * NS_PER_S)

static const char *verb_text(enum tc_verb verb)
{
        static const char *const texts[] = {[TC_ADD] = "adding",
                                            [TC_REPLACE] = "replacing by",
                                            [TC_CHANGE] = "changing",
                                            [TC_DELETE] = "deleting"};

        return texts[verb];
}

static void tell(const struct tc_change *c, const struct tc_ack *ack, char *text, size_t size)
{
        struct strbuf b = strbuf_init(text, size);

        strbuf_add(&b, "%s ", verb_text(c->verb));
        tc_object_name(c->object, &b);
        if (ack->error < 0)
                strbuf_add(&b, ": %s", strerror(-ack->error));
        if (ack->text[0])
                strbuf_add(&b, ": %s", ack->text);
}

int apply_send(struct tc_socket *s, int ifindex, const struct tc_change *changes, size_t n,
               struct tc_outcome *o)
{
        _cleanup_free_ struct tc_ack *acks = calloc(n + 1, sizeof *acks);
        char text[TC_OUTCOME_TEXT_MAX];
        int done, refused = 0;

        if (!acks)
                return tc_outcome_fail(o, -ENOMEM, "out of memory");
        done = tc_socket_change(s, ifindex, changes, n, acks);
        if (done < 0)
                return tc_outcome_fail(o, done, "netlink: %s", strerror(-done));
        o->operations += (unsigned)done;
        for (size_t i = 0; i < n; i++) {
                if (acks[i].error == -ECANCELED || (acks[i].error == 0 && !acks[i].text[0]))
                        continue;
                tell(&changes[i], &acks[i], text, sizeof text);
                if (acks[i].error == 0)
                        tc_outcome_warn(o, "the kernel says, %s", text);
                else if (refused == 0)
                        refused = tc_outcome_fail(o, acks[i].error, "the kernel refused %s", text);
        }
        return refused;
}

uint64_t tc_backlog(const struct tc_tree *have, const struct tc_tree *want)
{
        uint64_t bytes = 0;

        for (size_t i = 0; i < have->n; i++) {
                const struct tc_object *o = &have->objects[i];

                if (o->type == TC_QDISC && o->parent != TC_ROOT && TC_MAJOR(o->parent) == TC_OUR_MAJOR &&
                    (!want || !tc_tree_class(want, o->parent)))
                        bytes += o->counters.backlog_bytes;
        }
        return bytes;
}

/* Waits until what is to be deleted holds no packet any more; *ret_bytes: what it still holds when patience
 * ends. */
int apply_drain(struct tc_socket *s, int ifindex, const struct tc_tree *want, uint64_t patience_ns,
                uint64_t *ret_bytes)
{
        uint64_t until_ns = clock_now_ns() + patience_ns;

        for (;;) {
                struct tc_tree now = {};
                int r = tc_socket_dump(s, ifindex, false, &now);

                if (r < 0)
                        return r;
                *ret_bytes = tc_backlog(&now, want);
                tc_tree_fini(&now);
                if (*ret_bytes == 0 || clock_now_ns() >= until_ns)
                        return 0;
                nanosleep(&(struct timespec){.tv_nsec = LOOK_AGAIN_NS}, NULL);
        }
}

/* One after the other, each until the kernel has let go of the filters that led there. */
static int delete_tables(struct tc_socket *s, int ifindex, const struct tc_diff *d, struct tc_outcome *o)
{
        uint64_t until_ns = clock_now_ns() + PATIENCE_NS;
        int r = 0;

        for (size_t i = d->n_before_tables; r >= 0 && i < d->n; i++) {
                while ((r = apply_send(s, ifindex, &d->changes[i], 1, o)) == -EBUSY &&
                       clock_now_ns() < until_ns)
                        nanosleep(&(struct timespec){.tv_nsec = LOOK_AGAIN_NS}, NULL);
        }
        if (r >= 0)
                o->error[0] = '\0';
        return r;
}

static int verify(struct tc_socket *s, int ifindex, const struct tc_tree *want, struct tc_outcome *o)
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
                r = tc_outcome_fail(
                        o, -EBADE,
                        "the kernel took all changes, but what it has differs from what was asked: %s", name);
        } else if (r < 0)
                tc_outcome_fail(o, r, "reading back: %s", strerror(-r));
        tc_diff_fini(&left);
        tc_tree_fini(&now);
        return r;
}

/* Back to what was there, by the same means: the difference between now and then. */
static void undo(struct tc_socket *s, int ifindex, const struct tc_tree *before, struct tc_outcome *o)
{
        struct tc_outcome back = {};
        struct tc_tree now = {};
        struct tc_diff diff = {};
        size_t length = strlen(o->error);
        int r = 0;

        if (tc_layout_owner(before) == TC_OWNER_OURS) {
                r = tc_socket_dump(s, ifindex, false, &now);
                if (r >= 0)
                        r = tc_diff_make(&diff, &now, before);
                if (r >= 0)
                        r = apply_send(s, ifindex, diff.changes, diff.n_before_tables, &back);
                if (r >= 0)
                        r = delete_tables(s, ifindex, &diff, &back);
        } else
                r = tc_restore(s, ifindex, before, &back);
        if (r < 0)
                snprintf(o->error + length, sizeof o->error - length,
                         "; and undoing what was done failed: %s", back.error);
        o->operations = 0;
        tc_diff_fini(&diff);
        tc_tree_fini(&now);
}

static int delete_drained(struct tc_socket *s, int ifindex, const struct tc_diff *d,
                          const struct tc_tree *want, uint64_t patience_ns, bool insist, struct tc_outcome *o)
{
        int r = apply_drain(s, ifindex, want, patience_ns, &o->dropped_bytes);

        if (r < 0)
                return tc_outcome_fail(o, r, "reading back: %s", strerror(-r));
        if (o->dropped_bytes > 0 && !insist) {
                o->undraining = (unsigned)(d->n_before_tables - d->n_before_drain);
                o->dropped_bytes = 0;
                return 0;
        }
        return apply_send(s, ifindex, d->changes + d->n_before_drain, d->n_before_tables - d->n_before_drain,
                          o);
}

int tc_apply(struct tc_socket *s, int ifindex, const struct tc_tree *have, const struct tc_tree *want,
             uint64_t patience_ns, bool insist, struct tc_outcome *o)
{
        struct tc_diff diff = {};
        int r = tc_diff_make(&diff, have, want);

        if (r < 0)
                return tc_outcome_fail(o, r, "%s", strerror(-r));
        if (diff.n > 0) {
                r = apply_send(s, ifindex, diff.changes, diff.n_before_drain, o);
                if (r >= 0 && diff.n_before_tables > diff.n_before_drain)
                        r = delete_drained(s, ifindex, &diff, want, patience_ns, insist, o);
                if (r >= 0)
                        r = delete_tables(s, ifindex, &diff, o);
                if (r >= 0)
                        r = verify(s, ifindex, want, o);
                if (r < 0)
                        undo(s, ifindex, have, o);
        }
        tc_diff_fini(&diff);
        return r;
}
