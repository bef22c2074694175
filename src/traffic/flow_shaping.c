/* Makes a shaping plan for flows and applies it to a device or in a namespace of the testbed. */
#include "traffic/flow_shaping.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "base/util.h"
#include "run/netns.h"
#include "sys/memory.h"
#include "shape/model/tree_status.h"
#include "shape/kernel/socket.h"

#define DEVICE "eth0"

static int make_plan(struct tc_plan *ret, const struct flow_shape *shape, struct error *e)
{
        struct tc_destination to[FLOWS_MAX];
        struct tc_request q = {
                .link_rate_bps = shape->link_rate_bps,
                .mtu_bytes = (uint32_t)shape->mtu_bytes,
                .switch_buffer_bytes = shape->switch_buffer_bytes,
                .sources = shape->sources,
                .send_buffer_bytes = 4u << 20,
                .backend = TC_BACKEND_HTB_TBF,
                .control_port = shape->control_port,
                .destinations = to,
                .n_destinations = shape->n_to,
        };

        for (unsigned i = 0; i < shape->n_to; i++) {
                to[i] = (struct tc_destination){.rate_bps = shape->rate_bps};
                if (!tc_address_parse(&to[i].address, shape->to[i]))
                        return error_set(e, -EINVAL, "invalid address \"%s\"", shape->to[i]);
        }
        return tc_plan_make(ret, &q, e);
}

int flow_shaping_apply(struct tc_shaper **ret, const char *name, const struct flow_shape *shape,
                       struct error *e)
{
        struct tc_outcome o = {};
        struct tc_shaper *shaper = NULL;
        struct tc_device device;
        struct tc_plan plan = {};
        int r = tc_device_read(&device, name);

        if (r < 0)
                error_set(e, r, "%m");
        else
                r = make_plan(&plan, shape, e);
        if (r >= 0)
                r = tc_shaper_new(&shaper, &device, &o, e);
        if (r >= 0)
                r = tc_shaper_apply(shaper, &plan, false, 0, true, &o, e);
        if (r < 0) {
                error_locate(e, "%s", name);
                tc_shaper_free(shaper);
        } else
                *ret = shaper;
        tc_plan_fini(&plan);
        return r;
}

static int drops_of(const struct tc_tree *have, uint64_t *ret_packets)
{
        struct tc_status status = {};
        int r = tc_status_make(&status, have, NULL, 0);

        if (r >= 0)
                *ret_packets = status.drops;
        tc_status_fini(&status);
        return r;
}

int flow_shaping_drops(struct tc_shaper *shaper, uint64_t *ret_packets)
{
        struct tc_tree have = {};
        int r = tc_shaper_read(shaper, &have);

        if (r >= 0)
                r = drops_of(&have, ret_packets);
        tc_tree_fini(&have);
        return r;
}

int flow_shaping_device(const struct scenario_node *n, char device[static IF_NAMESIZE])
{
        if (!n->device[0])
                return tc_device_of_address(n->address, device);
        snprintf(device, IF_NAMESIZE, "%.*s", IF_NAMESIZE - 1, n->device);
        return 0;
}

void flow_shaping_clear(const char *name)
{
        struct tc_outcome o = {};
        struct tc_shaper *shaper = NULL;
        struct tc_device device;
        struct error e = {};

        if (tc_device_read(&device, name) < 0 || tc_shaper_new(&shaper, &device, &o, &e) < 0)
                return;
        if (tc_shaper_remove(shaper, &o, &e) < 0)
                log_error("cannot remove leftover shaping from %s: %s", name, e.message);
        else if (o.owner == TC_OWNER_OURS)
                log_warning("removed leftover shaping from %s", name);
        tc_shaper_free(shaper);
}

static int install(void *ctx)
{
        struct tc_shaper *shaper = NULL;
        char text[ERROR_TEXT_MAX];
        struct error e = {};
        int r = flow_shaping_apply(&shaper, DEVICE, ctx, &e);

        return r < 0 ? log_error_errno(r, "lab: shaping failed: %s", error_format(&e, text)) : 0;
}

static int read_drops(void *ctx)
{
        struct tc_device device;
        struct tc_socket *at = NULL;
        struct tc_tree have = {};
        int r = tc_device_read(&device, DEVICE);

        if (r >= 0)
                r = tc_socket_new(&at);
        if (r >= 0)
                r = tc_socket_dump(at, device.ifindex, false, &have);
        if (r >= 0)
                r = drops_of(&have, ctx);
        tc_tree_fini(&have);
        tc_socket_free(at);
        return r < 0 ? log_error_errno(r, "lab: cannot read shaping counters: %m") : 0;
}

/* Uses a child process, so that the caller stays in its namespace. */
static int run_inside(int namespace, int (*run)(void *ctx), void *ctx)
{
        pid_t child = fork();
        int status;

        if (child == 0)
                _exit(netns_enter(namespace) < 0 || run(ctx) < 0);
        if (child < 0 || waitpid(child, &status, 0) != child)
                return log_error_errno(errno, "lab: shaping failed: %m");
        return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -EIO;
}

int flow_shaping_install(int namespace, const struct flow_shape *shape)
{
        return run_inside(namespace, install, (void *)(uintptr_t)shape);
}

int flow_shaping_installed_drops(int namespace, uint64_t *ret_packets)
{
        uint64_t *shared = memory_map_shared(sizeof *shared);
        int r;

        if (!shared)
                return log_error_errno(ENOMEM, "lab: shaping failed: %m");
        r = run_inside(namespace, read_drops, shared);
        if (r >= 0)
                *ret_packets = *shared;
        memory_unmap(shared, sizeof *shared);
        return r;
}
