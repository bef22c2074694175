/* One device's shaping: installed, changed, removed. */
#include "evb/tc/shaper.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "evb/base/util.h"
#include "evb/tc-model/kind.h"
#include "evb/tc-model/units.h"
#include "apply_internal.h"
#include "shaper_internal.h"

#define DRAIN_NS (5 * NS_PER_S)
/* RFC 8200, section 5: minimum MTU of IPv6. */
#define IPV6_MTU_MIN 1280u

struct tc_shaper {
        struct tc_device device;
        struct tc_socket *socket;
        struct tc_state state;
        bool locked;
        /* by us: says what was there before, whatever others have changed since */
        struct tc_tree installed;
        struct tc_tuning untuned,
                remembered; /* before the last tc_shaper_tune(): of the interface, of the state */
};

int tc_shaper_new(struct tc_shaper **ret, const struct tc_device *device, struct tc_outcome *o)
{
        struct tc_shaper *s = calloc(1, sizeof *s);
        int holder = 0, r = s ? tc_socket_new(&s->socket) : -ENOMEM;

        if (r < 0) {
                free(s);
                return tc_outcome_fail(o, r, "netlink: %s", strerror(-r));
        }
        s->device = *device;
        s->untuned = TC_TUNING_UNCHANGED;
        r = tc_state_open(&s->state, device, &holder);
        if (r < 0) {
                tc_shaper_free(s);
                if (r == -EBUSY)
                        return tc_outcome_fail(o, r, "%s is being shaped by process %d: stop that first",
                                               device->name, holder);
                return tc_outcome_fail(o, r == -EACCES ? -EPERM : r, "cannot keep what %s had before: %s%s",
                                       device->name, strerror(-r),
                                       r == -EACCES || r == -EPERM
                                               ? "; shaping needs root (CAP_NET_ADMIN), and a state folder: "
                                                 "/run/evb or $EVB_STATE_DIRECTORY"
                                               : "");
        }
        s->locked = true;
        if (s->state.unreadable)
                tc_outcome_warn(
                        o, "%s cannot be read: what %s had before us is not known, and will not be put back",
                        s->state.path, device->name);
        *ret = s;
        return 0;
}

struct tc_shaper *tc_shaper_free(struct tc_shaper *s)
{
        if (!s)
                return NULL;
        tc_socket_free(s->socket);
        tc_tree_fini(&s->installed);
        if (s->locked)
                tc_state_fini(&s->state);
        free(s);
        return NULL;
}

struct tc_socket *tc_shaper_socket(struct tc_shaper *s)
{
        return s->socket;
}

const struct tc_destination *tc_shaper_asked(const struct tc_shaper *s, size_t *ret_n)
{
        *ret_n = s->state.n_asked;
        return s->state.asked;
}

const struct tc_tree *tc_shaper_installed(const struct tc_shaper *s)
{
        return &s->installed;
}

int tc_shaper_read(struct tc_shaper *s, struct tc_tree *ret)
{
        return tc_socket_dump(s->socket, s->device.ifindex, false, ret);
}

/* A handle that the root does not have: to what is there already a kernel answers otherwise. */
static uint32_t unused_handle(struct tc_shaper *s)
{
        struct tc_tree have = {};
        uint32_t handle = TC_ID(TC_OUR_MAJOR - 1, 0);
        const struct tc_object *root = tc_shaper_read(s, &have) >= 0 ? tc_tree_qdisc(&have, TC_ROOT) : NULL;

        if (root && root->handle == handle)
                handle = TC_ID(TC_OUR_MAJOR - 2, 0);
        tc_tree_fini(&have);
        return handle;
}

/* A root of that kind without parameters: a kernel that has the kind finds them wanting, one that has not
 * says so. Either way nothing changes. */
static int probe_kind(struct tc_shaper *s, uint32_t handle, const char *kind, struct tc_ack *ack)
{
        struct tc_object o = {.type = TC_QDISC, .handle = handle, .parent = TC_ROOT};
        struct tc_change change = {TC_REPLACE, &o, 0};

        strcpy(o.kind_name, kind);
        if (tc_socket_change(s->socket, s->device.ifindex, &change, 1, ack) < 0)
                return -EIO;
        return ack->error == -EINVAL                                ? 1
               : ack->error == -ENOENT || ack->error == -EOPNOTSUPP ? 0
                                                                    : ack->error;
}

int tc_shaper_probe(struct tc_shaper *s, enum tc_backend asked, enum tc_backend *ret,
                    char why[static TC_REASON_MAX], struct tc_outcome *o)
{
        static const struct {
                enum tc_backend backend;
                const char *kinds[2];
        } layouts[] = {{TC_BACKEND_HTB_TBF, {"htb", "tbf"}},
                       {TC_BACKEND_HTB, {"htb", NULL}},
                       {TC_BACKEND_CBQ_TBF, {"cbq", "tbf"}}};
        uint32_t handle = unused_handle(s);
        char missing[64] = "";

        for (size_t i = 0; i < ARRAY_SIZE(layouts); i++) {
                bool all = true;

                if (asked != TC_BACKEND_AUTO && asked != layouts[i].backend)
                        continue;
                for (size_t k = 0; k < 2 && layouts[i].kinds[k]; k++) {
                        struct tc_ack ack;
                        int r = probe_kind(s, handle, layouts[i].kinds[k], &ack);

                        if (r < 0)
                                return tc_outcome_fail(o, r, "asking the kernel for %s on %s: %s%s%s%s",
                                                       layouts[i].kinds[k], s->device.name, strerror(-r),
                                                       ack.text[0] ? ": " : "", ack.text,
                                                       r == -EPERM ? "; shaping needs CAP_NET_ADMIN" : "");
                        if (r == 0) {
                                snprintf(missing, sizeof missing, "%s", layouts[i].kinds[k]);
                                all = false;
                        }
                }
                if (!all)
                        continue;
                *ret = layouts[i].backend;
                if (asked == TC_BACKEND_AUTO)
                        snprintf(why, TC_REASON_MAX, "auto: %s, %s%s", tc_backend_name(*ret),
                                 i == 0 ? "which this kernel has" : "as this kernel lacks ",
                                 i == 0 ? "" : missing);
                else
                        snprintf(why, TC_REASON_MAX, "%s, as told", tc_backend_name(*ret));
                return 0;
        }
        return tc_outcome_fail(o, -EOPNOTSUPP, "qos.backend %s: this kernel has no %s (module sch_%s)",
                               tc_backend_name(asked), missing, missing);
}

/* Somebody was killed, or refused, while putting back: the root is still missing, or not all of it is there.
 */
static bool is_half_restored(const struct tc_shaper *s, const struct tc_tree *have)
{
        const struct tc_object *root = tc_tree_qdisc(have, TC_ROOT),
                               *saved = tc_tree_qdisc(&s->state.saved, TC_ROOT);

        if (!s->state.restoring || !saved || tc_layout_owner(have) == TC_OWNER_OURS)
                return false;
        return !root || root->handle == 0 ||
               (root->handle == saved->handle && strcmp(root->kind_name, saved->kind_name) == 0);
}

static int finish_restoring(struct tc_shaper *s, struct tc_outcome *o)
{
        struct tc_tree have = {};
        int r = tc_shaper_read(s, &have);

        if (r >= 0 && is_half_restored(s, &have))
                r = tc_restore(s->socket, s->device.ifindex, &s->state.saved, o);
        tc_tree_fini(&have);
        return r;
}

/* Before anything is changed: whose root is there, and what will have to be put back. */
static int take_over(struct tc_shaper *s, const struct tc_tree *have, bool force, struct tc_outcome *o)
{
        int r = 0;

        o->owner = tc_layout_owner(have);
        if (o->owner == TC_OWNER_OURS)
                return 0;
        if (s->installed.n == 0)
                tc_tree_fini(&s->state.saved);
        if (o->owner == TC_OWNER_KERNEL)
                return 0;
        if (o->owner == TC_OWNER_FOREIGN && !force)
                return shaper_refuse_foreign(s->device.name, have, o);
        shaper_warn_of_loss(s->device.name, have, o);
        if (s->installed.n > 0)
                return 0;
        r = tc_socket_dump(s->socket, s->device.ifindex, true, &s->state.saved);
        return r < 0 ? tc_outcome_fail(o, r, "reading what %s has: %s", s->device.name, strerror(-r)) : 0;
}

static int remember(struct tc_shaper *s, const struct tc_plan *plan, struct tc_outcome *o)
{
        struct tc_destination *asked = calloc(plan->n, sizeof *asked);
        int r;

        if (!asked)
                return tc_outcome_fail(o, -ENOMEM, "out of memory");
        for (size_t i = 0; i < plan->n; i++)
                asked[i] = (struct tc_destination){plan->addresses[i], plan->shares[i].rate_bps};
        s->state.asked = asked;
        s->state.n_asked = plan->n;
        r = tc_state_write(&s->state);
        /* The file already has what was there before us: a full disk must not prevent a repair. */
        if (r < 0 && s->installed.n == 0)
                return tc_outcome_fail(o, r, "%s: %s", s->state.path, strerror(-r));
        return 0;
}

/* The plan did not come to be. What was there before us is ours to know only while something of ours is
 * there. */
static void forget_plan(struct tc_shaper *s, struct tc_destination *asked, size_t n_asked,
                        const struct tc_outcome *o)
{
        struct tc_tree now = {};

        if (s->state.asked != asked)
                free(s->state.asked);
        s->state.asked = asked;
        s->state.n_asked = n_asked;
        if (s->installed.n == 0 && o->owner != TC_OWNER_OURS && tc_shaper_read(s, &now) >= 0 &&
            tc_layout_owner(&now) != TC_OWNER_OURS) {
                struct tc_tuning previous = s->state.previous;

                tc_state_erase(&s->state);
                s->state.previous = previous;
        }
        if (s->state.saved.n > 0 || s->state.n_asked > 0 || !tc_tuning_is_unchanged(&s->state.previous))
                (void)tc_state_write(&s->state);
        tc_tree_fini(&now);
}

static struct tc_tree take_tree(struct tc_tree *t)
{
        struct tc_tree taken = *t;

        *t = (struct tc_tree){};
        return taken;
}

int tc_shaper_apply(struct tc_shaper *s, const struct tc_plan *plan, bool force, uint64_t patience_ns,
                    bool insist, struct tc_outcome *o)
{
        struct tc_tree have = {}, want = {};
        struct tc_destination *asked = s->state.asked;
        size_t n_asked = s->state.n_asked;
        int r;

        if (finish_restoring(s, o) < 0)
                tc_outcome_warn(o, "%s", o->error);
        s->state.restoring = false;
        r = tc_shaper_read(s, &have);
        if (r < 0)
                return tc_outcome_fail(o, r, "reading what %s has: %s", s->device.name, strerror(-r));
        r = take_over(s, &have, force, o);
        if (r >= 0)
                r = remember(s, plan, o);
        if (r >= 0) {
                r = tc_layout_make(&want, plan, &have);
                if (r < 0)
                        tc_outcome_fail(o, r, "%s", strerror(-r));
        }
        /* To undo, all of a foreign tree has to be known. */
        if (r >= 0) {
                bool new = s->installed.n == 0 && s->state.saved.n > 0 && o->owner != TC_OWNER_OURS;

                r = tc_apply(s->socket, s->device.ifindex, new ? &s->state.saved : &have, &want, patience_ns,
                             insist, o);
        }
        if (r < 0)
                forget_plan(s, asked, n_asked, o);
        else {
                free(asked);
                tc_tree_fini(&s->installed);
                s->installed = take_tree(&want);
        }
        tc_tree_fini(&want);
        tc_tree_fini(&have);
        return r;
}

static void forget_tuning(struct tc_shaper *s, const struct tc_tuning *before)
{
        s->state.previous = *before;
        if (tc_tuning_is_unchanged(before) && s->state.saved.n == 0 && s->state.n_asked == 0)
                tc_state_erase(&s->state);
        else
                (void)tc_state_write(&s->state);
}

/* The device may have been renamed, and its old name given to another; false: the device is gone. */
static bool follow_name(struct tc_shaper *s)
{
        char name[IF_NAMESIZE];

        if (!if_indextoname((unsigned)s->device.ifindex, name))
                return false;
        strcpy(s->device.name, name);
        return true;
}

int tc_shaper_tune(struct tc_shaper *s, const struct tc_tuning *want, struct tc_outcome *o)
{
        struct tc_tuning now, before = s->state.previous;
        struct tc_ack ack = {};
        int r;

        if (tc_tuning_is_unchanged(want))
                return 0;
        if (!follow_name(s))
                return tc_outcome_fail(o, -ENODEV, "%s is gone", s->device.name);
        r = tc_tuning_read(s->device.name, &now);
        if (r >= 0) {
                if (tc_tuning_is_so(want, &now))
                        return 0;
                if (want->mtu_bytes < IPV6_MTU_MIN && now.mtu_bytes >= IPV6_MTU_MIN &&
                    tc_device_has_ipv6(s->device.name))
                        return tc_outcome_fail(
                                o, -EINVAL,
                                "an MTU of %u would make the kernel remove the IPv6 addresses of %s: choose "
                                "%u or more, or disable IPv6 first (sysctl net.ipv6.conf.%s.disable_ipv6=1)",
                                want->mtu_bytes, s->device.name, IPV6_MTU_MIN, s->device.name);
                /* What was there before us, not what we set the last time; on the disk before it is gone. */
                tc_tuning_remember(&s->state.previous, &now, want);
                r = tc_state_write(&s->state);
                if (r < 0)
                        return tc_outcome_fail(o, r, "%s: %s", s->state.path, strerror(-r));
                r = tc_tuning_write(s->socket, s->device.name, want, NULL, &ack);
        }
        if (r < 0) {
                forget_tuning(s, &before);
                return tc_outcome_fail(o, r, "tuning of %s: %s%s%s", s->device.name, strerror(-r),
                                       ack.text[0] ? ": " : "", ack.text);
        }
        s->untuned = TC_TUNING_UNCHANGED;
        tc_tuning_remember(&s->untuned, &now, want);
        s->remembered = before;
        o->operations++;
        return 0;
}

void tc_shaper_untune(struct tc_shaper *s, struct tc_outcome *o)
{
        size_t length = strlen(o->error);
        struct tc_ack ack = {};
        int r;

        if (tc_tuning_is_unchanged(&s->untuned) || !follow_name(s))
                return;
        r = tc_tuning_write(s->socket, s->device.name, &s->untuned, NULL, &ack);
        s->untuned = TC_TUNING_UNCHANGED;
        if (r >= 0)
                forget_tuning(s, &s->remembered);
        else
                snprintf(o->error + length, sizeof o->error - length,
                         "; and its tuning could not be put back: %s", strerror(-r));
}

static struct tc_tbf unbounded_tbf(const struct tc_tbf *t)
{
        return (struct tc_tbf){
                .rate_bytes = tc_rate_bytes(TC_LINK_RATE_MAX_BPS),
                .burst_ticks = tc_ticks_of_bytes(UINT32_C(1) << 20, tc_rate_bytes(TC_LINK_RATE_MAX_BPS)),
                .burst_bytes = UINT32_C(1) << 20,
                .limit_bytes = t->limit_bytes,
        };
}

/* Turns an object that holds traffic back into one that does not. False: it does not anyway. */
static bool make_faster(const struct tc_tree *have, struct tc_object *o)
{
        const struct tc_object *link = tc_tree_class(have, TC_LINK_CLASS);

        if (o->type == TC_QDISC && o->kind == &tc_kind_tbf && TC_MAJOR(o->parent) == TC_OUR_MAJOR)
                o->params.tbf = unbounded_tbf(&o->params.tbf);
        else if (o->type == TC_CLASS && o->kind == &tc_kind_htb && o->parent == TC_LINK_CLASS && link &&
                 link->kind == &tc_kind_htb) {
                o->params.htb_class.ceil_bytes = link->params.htb_class.ceil_bytes;
                o->params.htb_class.cburst_ticks = link->params.htb_class.cburst_ticks;
        } else
                return false;
        return true;
}

/* Everything may go as fast as the wire takes it, new packets no longer come, and the queues run empty. */
static int let_out(struct tc_shaper *s, const struct tc_tree *have, struct tc_outcome *o)
{
        _cleanup_free_ struct tc_change *changes = calloc(2 * have->n + 1, sizeof *changes);
        struct tc_tree faster = {};
        uint64_t left = 0;
        size_t n = 0;
        int r = changes ? tc_tree_copy(&faster, have) : -ENOMEM;

        for (size_t i = 0; r >= 0 && i < faster.n; i++) {
                if (make_faster(have, &faster.objects[i]))
                        changes[n++] = (struct tc_change){TC_CHANGE, &faster.objects[i], 0};
        }
        for (size_t i = 0; r >= 0 && i < have->n; i++) {
                const struct tc_object *f = &have->objects[i];

                /* Elements of tables too: a table can go only when it is empty, and goes with the root. */
                if (f->type == TC_FILTER && f->parent == TC_OUR_ROOT &&
                    !(f->kind == &tc_kind_u32 && f->params.u32.divisor > 0))
                        changes[n++] = (struct tc_change){TC_DELETE, f, f->kernel_handle};
        }
        if (r >= 0)
                r = apply_send(s->socket, s->device.ifindex, changes, n, o);
        /* Even after a refused change: queued packets leave at their own rate, and the rest is counted. */
        if (apply_drain(s->socket, s->device.ifindex, NULL, DRAIN_NS, &left) < 0)
                r = -EIO;
        o->dropped_bytes = left;
        tc_tree_fini(&faster);
        return r;
}

static int put_tuning_back(struct tc_shaper *s, struct tc_outcome *o)
{
        struct tc_tuning now;
        struct tc_ack ack = {};
        int r;

        if (tc_tuning_is_unchanged(&s->state.previous))
                return 0;
        if (tc_tuning_read(s->device.name, &now) >= 0 && tc_tuning_is_so(&s->state.previous, &now))
                return 0;
        r = tc_tuning_write(s->socket, s->device.name, &s->state.previous, NULL, &ack);
        if (r < 0)
                return tc_outcome_fail(o, r, "tuning of %s could not be put back: %s%s%s", s->device.name,
                                       strerror(-r), ack.text[0] ? ": " : "", ack.text);
        o->operations++;
        return 0;
}

int tc_shaper_remove(struct tc_shaper *s, struct tc_outcome *o)
{
        struct tc_tree have = {};
        int r;

        if (!follow_name(s)) {
                tc_outcome_warn(o, "%s is gone: nothing of it can be put back", s->device.name);
                tc_state_erase(&s->state);
                return 0;
        }
        r = tc_shaper_read(s, &have);
        if (r < 0)
                return tc_outcome_fail(o, r, "reading what %s has: %s", s->device.name, strerror(-r));
        o->owner = tc_layout_owner(&have);
        if (o->owner == TC_OWNER_OURS) {
                /* What cannot be let out is dropped, and told; it must not keep us from giving the device
                 * back. */
                (void)let_out(s, &have, o);
                o->error[0] = '\0';
                s->state.restoring = true;
                /* A full disk must not keep us from that either. */
                (void)tc_state_write(&s->state);
                r = tc_restore(s->socket, s->device.ifindex, &s->state.saved, o);
                if (o->dropped_bytes > 0)
                        tc_outcome_warn(o, "%llu bytes were still queued after %llu s and were dropped",
                                        (unsigned long long)o->dropped_bytes,
                                        (unsigned long long)(DRAIN_NS / NS_PER_S));
        } else if (s->state.restoring)
                r = finish_restoring(s, o);
        else
                shaper_warn_of_absent(s->device.name, &s->state.saved, &have, o);
        if (r >= 0)
                r = put_tuning_back(s, o);
        if (r >= 0)
                tc_state_erase(&s->state);
        tc_tree_fini(&have);
        return r;
}
