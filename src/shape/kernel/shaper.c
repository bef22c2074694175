/* Installs, changes and removes the shaping of one device. Its errors carry the device as their location. */
#include "shape/kernel/shaper.h"

#include <errno.h>
#include <linux/rtnetlink.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "shape/kernel/apply.h"
#include "shape/model/kind.h"
#include "shape/model/layout.h"

struct tc_shaper {
        struct tc_device device;
        struct tc_socket *socket;
        struct tc_state state;
        bool locked;
        struct tc_tree installed; /* from the last tc_shaper_apply() */
};

/* Fails with -EEXIST; the error names the root, and explains what the user can do about it. */
static int shaper_refuse_foreign(const struct tc_tree *have, struct error *e)
{
        const struct tc_object *root = tc_tree_qdisc(have, TC_ROOT), *lost = tc_layout_incomplete(have);
        char handle[TC_HANDLE_TEXT_MAX], lost_handle[TC_HANDLE_TEXT_MAX];

        tc_handle_format(root->handle, handle);
        if (!lost)
                return error_set(e, -EEXIST,
                                 "another program has set the root qdisc %s %s; --force replaces it until "
                                 "remove restores it",
                                 root->kind_name, handle);
        return error_set(
                e, -EEXIST,
                "another program has set the root qdisc %s %s, which remove could not restore: the kernel "
                "does not report all of %s %s%s; delete the root qdisc first, or use --force and lose it",
                root->kind_name, handle, lost->kind_name, tc_handle_format(lost->handle, lost_handle),
                tc_object_is_missing_table(lost) ? " (its stab)" : "");
}

/* Warns if removal cannot fully restore a root that is replaced. */
static void shaper_warn_of_loss(const char *device, const struct tc_tree *have, struct tc_outcome *o)
{
        const struct tc_object *lost = tc_layout_incomplete(have);
        char handle[TC_HANDLE_TEXT_MAX];

        if (lost)
                tc_outcome_warn(
                        o, "%s: remove cannot restore %s %s exactly: the kernel does not report all of it",
                        device, lost->kind_name, tc_handle_format(lost->handle, handle));
}

/* Warns that `before` is not restored because another program has removed our root. */
static void shaper_warn_of_absent(const char *device, const struct tc_tree *before,
                                  const struct tc_tree *have, struct tc_outcome *o)
{
        const struct tc_object *saved = tc_tree_qdisc(before, TC_ROOT), *root = tc_tree_qdisc(have, TC_ROOT);
        char handle[TC_HANDLE_TEXT_MAX];

        if (saved && saved->handle != 0 && !(root && tc_object_equal(saved, root)))
                tc_outcome_warn(o,
                                "%s: the earlier root qdisc %s %s is not restored because another program "
                                "removed evb's",
                                device, saved->kind_name, tc_handle_format(saved->handle, handle));
}

#define DRAIN_NS (5 * NS_PER_S)

static int fail_open(struct error *e, int r, const char *device, int holder)
{
        if (r == -EBUSY)
                error_set(e, r, "process %d already shapes this device; stop it first", holder);
        else if (r == -EACCES || r == -EPERM)
                error_set(e, -EPERM,
                          "cannot open the state file: %s; shaping needs root (CAP_NET_ADMIN) and a state "
                          "directory: /run/evb or $EVB_STATE_DIRECTORY; a unit has both with the drop-in "
                          "evb-ros-shaping.conf",
                          strerror(-r));
        else
                error_set(e, r, "cannot open the state file: %m");
        return error_locate(e, "%s", device);
}

int tc_shaper_new(struct tc_shaper **ret, const struct tc_device *device, struct tc_outcome *o,
                  struct error *e)
{
        struct tc_shaper *s = calloc(1, sizeof *s);
        int holder = 0, r = s ? tc_socket_new(&s->socket) : -ENOMEM;
        struct tc_state_lost lost;

        if (r < 0) {
                free(s);
                return error_set(e, r, "cannot open a netlink socket: %m");
        }
        s->device = *device;
        r = tc_state_open(&s->state, device, &holder);
        if (r < 0) {
                tc_shaper_free(s);
                return fail_open(e, r, device->name, holder);
        }
        s->locked = true;
        if (tc_state_find_lost(device->name, false, &lost) && tc_state_remove_lost(&lost) >= 0)
                tc_outcome_warn(o,
                                "an earlier device %s, which evb shaped, is gone; its state file is deleted",
                                device->name);
        if (s->state.unreadable)
                tc_outcome_warn(o,
                                "state file %s is damaged; remove cannot restore the earlier settings of %s",
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

/* Returns a handle that the root does not have, because the kernel answers differently for an existing
 * handle. */
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

/* Requests a root of this kind with invalid parameters, or with none, which changes nothing. If the kernel
 * supports the kind, it rejects the parameters; otherwise, it rejects the kind. Returns 1 if it supports the
 * kind. */
static int probe_kind(struct tc_shaper *s, uint32_t handle, const char *kind, struct tc_ack *ack)
{
        /* fq_codel and fq need no parameters, but reject zero flows. */
        bool is_fq = strcmp(kind, tc_kind_fq.name) == 0,
             is_fair = is_fq || strcmp(kind, tc_kind_fq_codel.name) == 0;
        struct nlattr no_flows[2] = {
                {MNL_ATTR_HDRLEN + sizeof(uint32_t), is_fq ? TCA_FQ_BUCKETS_LOG : TCA_FQ_CODEL_FLOWS}, {}};
        struct tc_object o = {.type = TC_QDISC,
                              .handle = handle,
                              .parent = TC_ROOT,
                              .options = (uint8_t *)no_flows,
                              .options_bytes = is_fair ? sizeof no_flows : 0};
        struct tc_change change = {TC_REPLACE, &o, 0};

        strcpy(o.kind_name, kind);
        if (tc_socket_change(s->socket, s->device.ifindex, &change, 1, ack) < 0)
                return -EIO;
        return ack->error == -EINVAL                                ? 1
               : ack->error == -ENOENT || ack->error == -EOPNOTSUPP ? 0
                                                                    : ack->error;
}

static int probe_bpf(struct tc_shaper *s, struct error *e)
{
        int r = tc_socket_probe_bpf(s->socket);

        if (r == -EPERM)
                return error_set(e, r,
                                 "cannot load a BPF program: %m; backend edt needs CAP_BPF and "
                                 "CAP_NET_ADMIN, and CAP_SYS_ADMIN to take over the tree of another process");
        if (r < 0)
                return error_set(e, -EOPNOTSUPP,
                                 "backend edt is unavailable: the kernel refuses its BPF program: %s; it "
                                 "needs Linux 5.8 with CONFIG_BPF_SYSCALL",
                                 strerror(-r));
        return 0;
}

int tc_shaper_probe(struct tc_shaper *s, enum tc_backend asked, enum tc_backend *ret, enum tc_fair *ret_fair,
                    char reason[static TC_REASON_MAX], struct error *e)
{
        static const struct {
                enum tc_backend backend;
                const char *kinds[2];
        } layouts[] = {{TC_BACKEND_HTB_TBF, {"htb", "tbf"}},
                       {TC_BACKEND_HTB, {"htb", NULL}},
                       {TC_BACKEND_CBQ_TBF, {"cbq", "tbf"}},
                       {TC_BACKEND_EDT, {"fq", NULL}}};
        uint32_t handle = unused_handle(s);
        char missing[64] = "";

        for (size_t i = 0; i < ARRAY_SIZE(layouts); i++) {
                bool all = true;

                if (asked != layouts[i].backend &&
                    (asked != TC_BACKEND_AUTO || layouts[i].backend == TC_BACKEND_EDT))
                        continue;
                for (size_t k = 0; k < 2 && layouts[i].kinds[k]; k++) {
                        struct tc_ack ack;
                        int r = probe_kind(s, handle, layouts[i].kinds[k], &ack);

                        if (r < 0) {
                                error_set(e, r, "cannot probe the kernel for qdisc %s: %m%s%s%s",
                                          layouts[i].kinds[k], ack.text[0] ? ": " : "", ack.text,
                                          r == -EPERM ? "; shaping needs CAP_NET_ADMIN" : "");
                                return error_locate(e, "%s", s->device.name);
                        }
                        if (r == 0) {
                                snprintf(missing, sizeof missing, "%s", layouts[i].kinds[k]);
                                all = false;
                        }
                }
                if (!all)
                        continue;
                if (asked == TC_BACKEND_EDT && probe_bpf(s, e) < 0)
                        return error_locate(e, "%s", s->device.name);
                *ret = layouts[i].backend;
                *ret_fair = probe_kind(s, handle, tc_kind_fq_codel.name, &(struct tc_ack){}) > 0 ? TC_FAIR_YES
                                                                                                 : TC_FAIR_NO;
                if (asked == TC_BACKEND_AUTO)
                        snprintf(reason, TC_REASON_MAX, "auto: %s, %s%s", tc_backend_name(*ret),
                                 i == 0 ? "which this kernel supports" : "because this kernel has no qdisc ",
                                 i == 0 ? "" : missing);
                else
                        snprintf(reason, TC_REASON_MAX, "%s, as configured", tc_backend_name(*ret));
                return 0;
        }
        error_set(e, -EOPNOTSUPP, "backend %s is unavailable: this kernel has no qdisc %s (module sch_%s)%s",
                  tc_backend_name(asked), missing, missing,
                  asked == TC_BACKEND_EDT ? "; install the module, or choose htb+tbf" : "");
        return error_locate(e, "%s", s->device.name);
}

/* A root that the kernel creates with an estimator without parameters fails in any case, but only after HTB
 * has asked the device. */
static int ask_for_offload(struct tc_shaper *s, struct tc_ack *ack)
{
        const struct tc_object root = {.type = TC_QDISC,
                                       .handle = unused_handle(s),
                                       .parent = TC_ROOT,
                                       .kind = &tc_kind_htb,
                                       .kind_name = "htb",
                                       .params.htb_qdisc = {.rate2quantum = TC_OUR_MAJOR, .offload = true}};
        const struct tc_change change = {TC_REPLACE, &root, 0};
        uint8_t buffer[1024] __attribute__((aligned(8))) = {};
        struct nlmsghdr *m = (void *)buffer;
        int r = tc_message_encode(m, s->device.ifindex, &change);

        if (r < 0)
                return r;
        mnl_attr_put(m, TCA_RATE, 0, NULL);
        r = tc_socket_ask(s->socket, m, NULL, NULL, ack);
        return ack->error < 0 ? 0 : r;
}

/* If the device has accepted, the root has several queues, and an estimator is refused for this reason. Older
 * kernels ignore the flag, and refuse the estimator's parameters (qdisc_create() in net/sched/sch_api.c). */
static bool is_accepted(const struct tc_ack *ack)
{
        return strstr(ack->text, "multi-queue") != NULL;
}

static bool is_ignored(const struct tc_ack *ack)
{
        return strstr(ack->text, "estimator") != NULL;
}

/* A driver may not notice that it is asked while it already shapes, be it for another program. */
static bool shapes_already(struct tc_shaper *s)
{
        struct tc_tree have = {};
        const struct tc_object *root = tc_shaper_read(s, &have) >= 0 ? tc_tree_qdisc(&have, TC_ROOT) : NULL;
        bool does = root && root->kind == &tc_kind_htb && root->params.htb_qdisc.offload;

        tc_tree_fini(&have);
        return does;
}

int tc_shaper_probe_offload(struct tc_shaper *s, enum tc_backend asked, enum tc_offload offload,
                            struct tc_outcome *o, struct error *e)
{
        struct tc_ack ack = {};
        int r;

        if (offload == TC_OFFLOAD_NO || (asked != TC_BACKEND_AUTO && asked != TC_BACKEND_HTB))
                return 0;
        if (shapes_already(s))
                return 1;
        r = ask_for_offload(s, &ack);
        if (r >= 0 && is_accepted(&ack))
                return 1;
        if (r < 0)
                error_set(e, r, "cannot ask the kernel to offload htb: %m");
        else if (is_ignored(&ack))
                error_set(e, -EOPNOTSUPP, "this kernel cannot offload htb; expected Linux 5.12 or newer");
        else
                error_set(e, ack.error == -EPERM ? -EPERM : -EOPNOTSUPP,
                          "the kernel refuses to offload htb: %s%s%s%s", strerror(-ack.error),
                          ack.text[0] ? ": " : "", ack.text,
                          ack.error == -EPERM ? "; shaping needs CAP_NET_ADMIN" : "");
        if (offload == TC_OFFLOAD_REQUIRED)
                return error_locate(e, "%s", s->device.name);
        tc_outcome_warn(o, "%s: %s; shaping without offload (qos.offload = auto)", s->device.name,
                        e->message);
        return 0;
}

/* Whether a restoration was interrupted or refused, so that the root is missing or incomplete. */
static bool is_half_restored(const struct tc_shaper *s, const struct tc_tree *have)
{
        const struct tc_object *root = tc_tree_qdisc(have, TC_ROOT),
                               *saved = tc_tree_qdisc(&s->state.saved, TC_ROOT);

        if (!s->state.restoring || !saved || tc_layout_owner(have) == TC_OWNER_OURS)
                return false;
        return !root || root->handle == 0 ||
               (root->handle == saved->handle && strcmp(root->kind_name, saved->kind_name) == 0);
}

static int read_tree(struct tc_shaper *s, bool deep, struct tc_tree *ret, struct error *e)
{
        return tc_read_tree(s->socket, s->device.ifindex, deep, ret, e);
}

static int finish_restoring(struct tc_shaper *s, struct tc_outcome *o, struct error *e)
{
        struct tc_tree have = {};
        int r = read_tree(s, false, &have, e);

        if (r >= 0 && is_half_restored(s, &have))
                r = tc_restore(s->socket, s->device.ifindex, &s->state.saved, o, e);
        tc_tree_fini(&have);
        return r;
}

/* Determines the owner of the device's root, and saves everything that removal must restore. Changes nothing
 * yet. */
static int take_over(struct tc_shaper *s, const struct tc_tree *have, bool force, struct tc_outcome *o,
                     struct error *e)
{
        o->owner = tc_layout_owner(have);
        if (o->owner == TC_OWNER_OURS)
                return 0;
        if (s->installed.n == 0)
                tc_tree_fini(&s->state.saved);
        if (o->owner == TC_OWNER_KERNEL)
                return 0;
        if (o->owner == TC_OWNER_FOREIGN && !force)
                return shaper_refuse_foreign(have, e);
        shaper_warn_of_loss(s->device.name, have, o);
        if (s->installed.n > 0)
                return 0;
        return read_tree(s, true, &s->state.saved, e);
}

/* The device may have a new name, and another device may use its old one. False: the device no longer
 * exists. */
static bool follow_name(struct tc_shaper *s)
{
        char name[IF_NAMESIZE];

        if (!if_indextoname((unsigned)s->device.ifindex, name))
                return false;
        strcpy(s->device.name, name);
        return true;
}

static int remember(struct tc_shaper *s, const struct tc_plan *plan, struct error *e)
{
        struct tc_destination *asked = calloc(plan->n, sizeof *asked);
        int r;

        if (!asked)
                return error_set(e, -ENOMEM, "%m");
        for (size_t i = 0; i < plan->n; i++)
                asked[i] = (struct tc_destination){plan->addresses[i], plan->shares[i].planned_bps,
                                                   plan->shares[i].permille};
        (void)follow_name(s);
        strcpy(s->state.name, s->device.name);
        s->state.sources = plan->sources;
        s->state.asked = asked;
        s->state.n_asked = plan->n;
        r = tc_state_write(&s->state);
        /* In a repair, the file already contains the earlier settings, so a full disk must not prevent the
         * repair. */
        if (r < 0 && s->installed.n == 0)
                return error_set(e, r, "cannot write the state file %s: %m", s->state.path);
        return 0;
}

/* Cleans up after a failed apply: the state file keeps the earlier settings only if a tree of ours is
 * installed. */
static void forget_plan(struct tc_shaper *s, struct tc_destination *asked, size_t n_asked,
                        const struct tc_outcome *o)
{
        struct tc_tree now = {};

        if (s->state.asked != asked)
                free(s->state.asked);
        s->state.asked = asked;
        s->state.n_asked = n_asked;
        if (s->installed.n == 0 && o->owner != TC_OWNER_OURS && tc_shaper_read(s, &now) >= 0 &&
            tc_layout_owner(&now) != TC_OWNER_OURS)
                tc_state_erase(&s->state);
        if (s->state.saved.n > 0 || s->state.n_asked > 0)
                (void)tc_state_write(&s->state);
        tc_tree_fini(&now);
}

static struct tc_tree move_tree(struct tc_tree *t)
{
        struct tc_tree taken = *t;

        *t = (struct tc_tree){};
        return taken;
}

/* Returns the tree that a rollback restores. For a foreign root, it must be the complete tree. */
static const struct tc_tree *tree_before(const struct tc_shaper *s, const struct tc_tree *have,
                                         const struct tc_outcome *o)
{
        bool replaces_saved = s->installed.n == 0 && s->state.saved.n > 0 && o->owner != TC_OWNER_OURS;

        return replaces_saved ? &s->state.saved : have;
}

int tc_shaper_apply(struct tc_shaper *s, const struct tc_plan *plan, bool force, uint64_t patience_ns,
                    bool insist, struct tc_outcome *o, struct error *e)
{
        struct tc_tree have = {}, want = {};
        struct error unrestored = {};
        struct tc_destination *asked = s->state.asked;
        size_t n_asked = s->state.n_asked;
        int r;

        if (finish_restoring(s, o, &unrestored) < 0)
                tc_outcome_warn(o, "%s: %s", s->device.name, unrestored.message);
        s->state.restoring = false;
        r = read_tree(s, false, &have, e);
        if (r < 0)
                return error_locate(e, "%s", s->device.name);
        r = take_over(s, &have, force, o, e);
        if (r >= 0)
                r = remember(s, plan, e);
        if (r >= 0) {
                r = tc_layout_make(&want, plan, &have);
                if (r < 0)
                        error_set(e, r, "%m");
        }
        if (r >= 0)
                r = tc_apply(s->socket, s->device.ifindex, tree_before(s, &have, o), &want, patience_ns,
                             insist, o, e);
        if (r < 0) {
                forget_plan(s, asked, n_asked, o);
                error_locate(e, "%s", s->device.name);
        } else {
                free(asked);
                tc_tree_fini(&s->installed);
                s->installed = move_tree(&want);
        }
        tc_tree_fini(&want);
        tc_tree_fini(&have);
        return r;
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

/* Removes the limit of an object that shapes. False: the object does not shape. */
static bool make_faster(const struct tc_tree *have, struct tc_object *o)
{
        const struct tc_object *link = tc_tree_class(have, TC_LINK_CLASS);

        if (o->type == TC_QDISC && o->kind == &tc_kind_tbf && TC_MAJOR(o->parent) == TC_OUR_MAJOR)
                o->params.tbf = unbounded_tbf(&o->params.tbf);
        else if (o->type == TC_CLASS && o->kind == &tc_kind_htb && o->handle != TC_LINK_CLASS &&
                 TC_MAJOR(o->parent) == TC_OUR_MAJOR && link && link->kind == &tc_kind_htb) {
                o->params.htb_class.ceil_bytes = link->params.htb_class.ceil_bytes;
                o->params.htb_class.cburst_ticks = link->params.htb_class.cburst_ticks;
        } else
                return false;
        return true;
}

/* Empties the queues: removes all rate limits, deletes the filters, and waits. */
static void drain_all(struct tc_shaper *s, const struct tc_tree *have, struct tc_outcome *o)
{
        _cleanup_free_ struct tc_change *changes = calloc(2 * have->n + 1, sizeof *changes);
        struct tc_tree faster = {};
        struct error ignored = {};
        uint64_t left = 0;
        size_t n = 0;
        int r = changes ? tc_tree_copy(&faster, have) : -ENOMEM;

        for (size_t i = 0; r >= 0 && i < faster.n; i++) {
                if (make_faster(have, &faster.objects[i]))
                        changes[n++] = (struct tc_change){TC_CHANGE, &faster.objects[i], 0};
        }
        for (size_t i = 0; r >= 0 && i < have->n; i++) {
                const struct tc_object *f = &have->objects[i];

                /* Tables are still in use, so the kernel deletes them with the root. */
                if (f->type == TC_FILTER && (f->parent == TC_OUR_ROOT || f->kind == &tc_kind_bpf) &&
                    !(f->kind == &tc_kind_u32 && f->params.u32.divisor > 0))
                        changes[n++] = (struct tc_change){TC_DELETE, f, f->kernel_handle};
        }
        if (r >= 0)
                (void)apply_send(s->socket, s->device.ifindex, changes, n, o, &ignored);
        /* Waits even after a refused change: packets leave the queue at their configured rate, and the
         * remaining packets are counted. */
        (void)apply_drain(s->socket, s->device.ifindex, NULL, DRAIN_NS, &left);
        o->dropped_bytes = left;
        tc_tree_fini(&faster);
}

int tc_shaper_remove(struct tc_shaper *s, struct tc_outcome *o, struct error *e)
{
        struct tc_tree have = {};
        int r;

        if (!follow_name(s)) {
                tc_outcome_warn(o, "%s no longer exists; nothing can be restored", s->device.name);
                tc_state_erase(&s->state);
                return 0;
        }
        r = read_tree(s, false, &have, e);
        if (r < 0)
                return error_locate(e, "%s", s->device.name);
        o->owner = tc_layout_owner(&have);
        if (o->owner == TC_OWNER_OURS) {
                drain_all(s, &have, o);
                s->state.restoring = true;
                /* A full disk must not prevent the removal. */
                (void)tc_state_write(&s->state);
                r = tc_restore(s->socket, s->device.ifindex, &s->state.saved, o, e);
                if (o->dropped_bytes > 0)
                        tc_outcome_warn(o, "%llu bytes were still queued after %llu s and were dropped",
                                        (unsigned long long)o->dropped_bytes,
                                        (unsigned long long)(DRAIN_NS / NS_PER_S));
        } else if (s->state.restoring)
                r = finish_restoring(s, o, e);
        else {
                shaper_warn_of_absent(s->device.name, &s->state.saved, &have, o);
                r = tc_detach(s->socket, s->device.ifindex, &have, o, e);
        }
        if (r >= 0)
                tc_state_erase(&s->state);
        tc_tree_fini(&have);
        return r < 0 ? error_locate(e, "%s", s->device.name) : 0;
}
