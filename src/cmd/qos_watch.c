/* evb qos watch: reports what other programs change in a device's shaping, and, with --repair, reverts it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/util.h"
#include "sys/loop.h"
#include "shape/model/netlink_message.h"
#include "shape/kernel/watch.h"
#include "qos.h"

/* Interval of checks for drops; the kernel announces changes. */
#define LOOK_NS NS_PER_S
/* A program that changes one object usually changes others too. */
#define SETTLE_NS (20 * NS_PER_MS)
/* Interval of attempts to find a device that is gone. */
#define FIND_NS (200 * NS_PER_MS)

struct watching {
        const struct qos_options *options;
        struct qos_job job;
        struct tc_socket *socket;
        struct tc_shaper *shaper; /* for --repair: its lock keeps other instances from shaping the device */
        struct tc_tree want;
        struct tc_watch *watch;
        struct loop *loop;
        json_t *drifts;
        unsigned repairs;
        uint64_t drops;
        uint64_t settle_ns; /* compare at this time; NEVER_NS: no change is pending */
        bool gone;          /* the device is gone */
        bool link_changed;  /* the kernel announced a change of the device */
        char actor[96];
};

static void report(struct watching *w, const char *text)
{
        json_array_append_new(w->drifts, json_pack("{s:s, s:s}", "what", text, "by", w->actor));
        if (!w->options->common.json || w->options->common.json_path) {
                printf("%s: %s, by %s\n", w->job.device_name, text, w->actor);
                fflush(stdout);
        }
}

static void is_ready(void *ctx, uint32_t events)
{
        struct watching *w = ctx;
        struct tc_event e;

        (void)events;
        while (tc_watch_next(w->watch, &e) > 0) {
                free(e.object.options);
                w->gone |= e.what == TC_EVENT_LINK_GONE;
                w->link_changed |= e.what == TC_EVENT_LINK;
                if (e.by_us || e.what == TC_EVENT_LINK)
                        continue;
                tc_event_actor(&e, w->actor, sizeof w->actor);
                w->settle_ns = clock_now_ns() + SETTLE_NS;
        }
}

static void report_drift(struct watching *w, const struct tc_change *c)
{
        char text[TC_OUTCOME_TEXT_MAX];
        struct strbuf b = strbuf_init(text, sizeof text);

        tc_drift_describe(c, &b);
        report(w, text);
}

static int repair(struct watching *w, const struct tc_tree *have, struct error *e)
{
        struct tc_outcome o = {};
        int r;

        if (tc_layout_owner(have) == TC_OWNER_FOREIGN && !w->options->force) {
                fprintf(stderr, "%sqos: %s: another program has set the root qdisc; --force replaces it\n",
                        command_prefix, w->job.device_name);
                return 0;
        }
        r = tc_apply(w->socket, w->job.device.ifindex, have, &w->want, w->options->patience_ns, true, &o, e);
        if (r < 0)
                return r;
        w->repairs += o.operations;
        for (size_t i = 0; i < o.n_warnings; i++)
                fprintf(stderr, "%sqos: %s: %s\n", command_prefix, w->job.device_name, o.warnings[i]);
        if (!w->options->common.json)
                printf("%s: repaired with %u change%s\n", w->job.device_name, o.operations,
                       o.operations == 1 ? "" : "s");
        fflush(stdout);
        return 0;
}

static int read_tree(struct watching *w, struct tc_tree *ret, struct error *e)
{
        return tc_read_tree(w->socket, w->job.device.ifindex, false, ret, e);
}

static int look(struct watching *w, struct error *e)
{
        struct tc_tree have = {};
        struct tc_diff diff = {};
        int r = read_tree(w, &have, e);

        if (r >= 0 && (r = tc_diff_make(&diff, &have, &w->want)) < 0)
                error_set(e, r, "%m");
        for (size_t i = 0; r >= 0 && i < diff.n; i++)
                report_drift(w, &diff.changes[i]);
        if (r >= 0 && diff.n > 0 && w->options->repair)
                r = repair(w, &have, e);
        w->settle_ns = NEVER_NS;
        tc_diff_fini(&diff);
        tc_tree_fini(&have);
        return r;
}

static int look_for_drops(struct watching *w, struct error *e)
{
        struct tc_tree have = {};
        struct tc_status s = {};
        int r = read_tree(w, &have, e);

        if (r >= 0 && (r = tc_status_make(&s, &have, NULL, 0)) < 0)
                error_set(e, r, "%m");
        if (r >= 0 && s.drops > w->drops) {
                char text[96];

                snprintf(text, sizeof text, "ALARM: %llu more packet%s dropped at the source",
                         (unsigned long long)(s.drops - w->drops),
                         s.drops - w->drops == 1 ? " was" : "s were");
                snprintf(w->actor, sizeof w->actor, "the kernel");
                report(w, text);
        }
        w->drops = s.drops;
        tc_status_fini(&s);
        tc_tree_fini(&have);
        return r;
}

static int fail(const struct watching *w, struct error *e)
{
        error_locate(e, "%s", w->job.device_name);
        return qos_fail(e);
}

/* Selects the tree to keep: the tree of the requested plan or, without a request, the current tree. */
static int choose_wanted(struct watching *w)
{
        struct tc_tree have = {};
        struct tc_plan plan = {};
        struct error e = {};
        int status = OPTIONS_GO_ON, r;

        if (read_tree(w, &have, &e) < 0) {
                (void)fail(w, &e);
                return 1;
        }
        if (tc_layout_backend(&have) == TC_BACKEND_NONE) {
                fprintf(stderr, "%sqos: %s is not shaped by evb; run `%sqos apply` first\n", command_prefix,
                        w->job.device_name, command_prefix);
                status = 1;
        } else if (w->job.request.n_destinations == 0) {
                w->want = have;
                have = (struct tc_tree){};
        } else {
                w->job.request.fair = tc_layout_fair(&have);
                if (w->job.request.offload == TC_OFFLOAD_AUTO && tc_layout_is_offloaded(&have))
                        w->job.request.offload = TC_OFFLOAD_REQUIRED;
                status = qos_make_plan(
                        &w->job, w->job.asked == TC_BACKEND_AUTO ? tc_layout_backend(&have) : w->job.asked,
                        &plan);
                if (status == OPTIONS_GO_ON && (r = tc_layout_make(&w->want, &plan, &have)) < 0) {
                        error_set(&e, r, "%m");
                        (void)fail(w, &e);
                        status = 1;
                }
        }
        tc_plan_fini(&plan);
        tc_tree_fini(&have);
        return status;
}

/* The plan may no longer fit the device. Returns 1 if there is a new plan. Without a request, returns 0,
 * because then only the installed tree is kept. */
static int plan_again(struct watching *w, struct error *e)
{
        struct tc_tree have = {}, want = {};
        struct tc_plan plan = {};
        int r = 0;

        if (w->job.request.n_destinations == 0)
                return 0;
        qos_job_use_device(&w->job);
        r = tc_plan_make(&plan, &w->job.request, e);
        if (r >= 0)
                r = read_tree(w, &have, e);
        if (r >= 0 && (r = tc_layout_make(&want, &plan, &have)) < 0)
                error_set(e, r, "%m");
        if (r >= 0) {
                tc_tree_fini(&w->want);
                w->want = want;
        }
        tc_plan_fini(&plan);
        tc_tree_fini(&have);
        return r < 0 ? r : 1;
}

/* Reports a new name, state or speed of the device. */
static int follow_device(struct watching *w, struct error *e)
{
        char text[TC_OUTCOME_TEXT_MAX] = "";
        struct strbuf what = strbuf_init(text, sizeof text);
        int changes = tc_device_follow(&w->job.device, &what), r = 0;

        w->link_changed = false;
        w->gone |= changes == -ENODEV;
        if (w->gone || changes == 0)
                return 0;
        if (changes < 0)
                return error_set(e, changes, "cannot read the device: %m");
        snprintf(w->actor, sizeof w->actor, "the kernel");
        if (changes & TC_DEVICE_DOWN)
                strbuf_add(&what, "; the kernel has emptied its queues");
        report(w, text);
        strcpy(w->job.device_name, w->job.device.name);
        if (changes & TC_DEVICE_FACTS)
                r = plan_again(w, e);
        return r > 0 ? look(w, e) : r;
}

static int open_device(struct watching *w, struct error *e)
{
        struct tc_outcome o = {};
        int r = 0;

        w->watch = tc_watch_free(w->watch);
        w->shaper = tc_shaper_free(w->shaper);
        if (w->options->repair)
                r = tc_shaper_new(&w->shaper, &w->job.device, &o, e);
        if (r < 0)
                return r;
        r = tc_watch_new(&w->watch, w->job.device.ifindex, tc_socket_port(w->socket));
        return r < 0 ? error_set(e, r, "cannot watch: %m") : 0;
}

/* Continues with a new device of the same name. Its shaping is missing, so look() reports this, and installs
 * the shaping again with --repair. */
static int remove_shaping(struct watching *w, const struct tc_device *d, struct error *e)
{
        uint64_t speed_bps = w->job.device.speed_bps;
        int r;

        w->job.device = *d;
        /* A device that is down reports no speed. */
        w->job.device.speed_bps = d->speed_bps ?: speed_bps;
        w->gone = false;
        w->drops = 0;
        report(w, "the device is back, without its shaping");
        r = open_device(w, e);
        if (r >= 0)
                r = plan_again(w, e);
        return r < 0 ? r : look(w, e);
}

/* A failure is not an error if the device has vanished. */
static int unless_gone(struct watching *w, int r, struct error *e)
{
        char text[TC_OUTCOME_TEXT_MAX] = "";
        struct strbuf what = strbuf_init(text, sizeof text);

        if (r >= 0 || tc_device_follow(&w->job.device, &what) != -ENODEV)
                return r;
        w->gone = true;
        *e = (struct error){};
        return 0;
}

/* Waits for a device of the same name. Returns 1 once the device is shaped, or 0 if the wait was stopped
 * before. */
static int await_device(struct watching *w, struct error *e)
{
        struct tc_outcome o = {};
        struct error ignored = {};
        struct tc_device d;
        int r;

        snprintf(w->actor, sizeof w->actor, "the kernel");
        report(w, "the device is gone; shaping it again once it is back");
        /* Removes the state file of the deleted device. */
        (void)tc_shaper_remove(w->shaper, &o, &ignored);
        while (loop_signals(w->loop) + loop_hangups(w->loop) == 0) {
                if (tc_device_read(&d, w->job.device_name) >= 0) {
                        r = unless_gone(w, remove_shaping(w, &d, e), e);
                        if (r < 0 || !w->gone)
                                return r < 0 ? r : 1;
                        report(w, "the device is gone again");
                }
                r = loop_wait(w->loop, clock_now_ns() + FIND_NS);
                if (r < 0)
                        return error_set(e, r, "cannot wait for the device: %m");
        }
        return 0;
}

static int watch_device(struct watching *w, struct error *e)
{
        struct loop_io io = {.fd = tc_watch_fd(w->watch), .events = EPOLLIN, .ready = is_ready, .ctx = w};
        int r = loop_add(w->loop, &io);
        uint64_t look_ns = clock_now_ns() + LOOK_NS;

        if (r < 0)
                error_set(e, r, "cannot watch: %m");
        while (r >= 0 && !w->gone && loop_signals(w->loop) + loop_hangups(w->loop) == 0) {
                r = loop_wait(w->loop, MIN(look_ns, w->settle_ns));
                if (r < 0)
                        error_set(e, r, "cannot watch: %m");
                if (r >= 0 && (w->link_changed || clock_now_ns() >= look_ns))
                        r = follow_device(w, e);
                if (r >= 0 && clock_now_ns() >= w->settle_ns && !w->gone)
                        r = look(w, e);
                if (r >= 0 && clock_now_ns() >= look_ns && !w->gone) {
                        r = look_for_drops(w, e);
                        look_ns = clock_now_ns() + LOOK_NS;
                }
        }
        loop_remove(w->loop, &io);
        return unless_gone(w, r, e);
}

static int watch(struct watching *w)
{
        struct error e = {};
        int r = look(w, &e);

        if (r >= 0)
                r = look_for_drops(w, &e);
        if (!w->options->common.json)
                printf("%s: watching\n", w->job.device_name);
        fflush(stdout);
        do {
                if (r >= 0)
                        r = watch_device(w, &e);
        } while (r >= 0 && w->gone && w->options->repair && (r = await_device(w, &e)) > 0);
        if (r < 0)
                return fail(w, &e);
        if (w->gone)
                fprintf(stderr, "%sqos: device %s is gone\n", command_prefix, w->job.device_name);
        return w->gone ? 1 : 0;
}

static int open_all(struct watching *w)
{
        struct error e = {};
        int r = tc_socket_new(&w->socket);

        if (r >= 0)
                r = loop_new(&w->loop);
        if (r >= 0)
                r = loop_catch_signals(w->loop);
        w->drifts = json_array();
        if (r < 0) {
                error_set(&e, r, "cannot watch: %m");
                (void)fail(w, &e);
                return 1;
        }
        return open_device(w, &e) < 0 ? fail(w, &e) : choose_wanted(w);
}

int qos_watch(const struct qos_options *o)
{
        struct watching w = {.options = o, .settle_ns = NEVER_NS, .actor = "someone earlier"};
        int status = qos_job_init(&w.job, o, false);

        if (status == OPTIONS_GO_ON)
                status = open_all(&w);
        if (status == OPTIONS_GO_ON) {
                status = watch(&w);
                if (o->common.json)
                        status = options_write_json(&o->common,
                                                    json_pack("{s:s, s:i, s:O}", "device", w.job.device_name,
                                                              "operations", (int)w.repairs, "drifts",
                                                              w.drifts),
                                                    status);
        }
        json_decref(w.drifts);
        tc_watch_free(w.watch);
        loop_free(w.loop);
        tc_tree_fini(&w.want);
        tc_shaper_free(w.shaper);
        tc_socket_free(w.socket);
        qos_job_fini(&w.job);
        return status;
}
