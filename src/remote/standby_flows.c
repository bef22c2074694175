/* Checks the endpoints and the shaping of a command, then starts them on this machine. */
#include "standby_flows.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "conf/standby_rules.h"
#include "run/counters_json.h"
#include "net/address.h"
#include "sys/loop.h"

#define MULTICAST_PREFIX "239."
#define RATE_MAX_BPS UINT64_C(400000000000)

/* Accepts addresses of this testbed and groups of local scope (RFC 2365): no command may send packets to
 * others. */
static bool is_of_testbed(const struct scenario *s, const char *address, bool group)
{
        struct net_address a;

        if (group)
                return strncmp(address, MULTICAST_PREFIX, strlen(MULTICAST_PREFIX)) == 0 &&
                       net_address_parse(&a, address, 1) >= 0;
        for (size_t i = 0; i < s->n_nodes; i++) {
                if (strcmp(s->nodes[i].address, address) == 0)
                        return strchr(address, ':') == NULL;
        }
        return false;
}

static bool is_acceptable(const struct standby_flows *f, const struct flow_endpoint *e)
{
        return strcmp(e->at, f->self->address) == 0 && is_of_testbed(f->scenario, e->from, false) &&
               is_of_testbed(f->scenario, e->to, e->kind == FLOW_MULTICAST) &&
               (e->role != FLOW_SENDER || strcmp(e->at, e->from) == 0);
}

static uint64_t number(const json_t *o, const char *name, uint64_t most)
{
        json_int_t v = json_integer_value(json_object_get(o, name));

        return v < 0 ? 0 : MIN((uint64_t)v, most);
}

static bool parse_shape(const struct standby_flows *f, struct flow_shape *ret, const json_t *o)
{
        const json_t *to = json_object_get(o, "to"), *each;
        size_t i;

        *ret = (struct flow_shape){
                .rate_bps = number(o, "rate_bps", RATE_MAX_BPS),
                .link_rate_bps = number(o, "link_rate_bps", RATE_MAX_BPS),
                .mtu_bytes = number(o, "mtu_bytes", UINT16_MAX),
                .switch_buffer_bytes = number(o, "switch_buffer_bytes", UINT32_MAX),
                .control_port = (uint16_t)number(o, "control_port", UINT16_MAX),
                .sources = (unsigned)number(o, "sources", EVB_ROS_MAX),
        };
        json_array_foreach(to, i, each)
        {
                const char *address = json_string_value(each);

                if (!address || i == FLOWS_MAX || strlen(address) >= sizeof ret->to[i] ||
                    (!is_of_testbed(f->scenario, address, false) &&
                     !is_of_testbed(f->scenario, address, true)))
                        return false;
                strcpy(ret->to[ret->n_to++], address);
        }
        return ret->n_to > 0 && ret->rate_bps > 0;
}

static int shape(struct standby_flows *f, const json_t *command, struct error *e)
{
        char device[IF_NAMESIZE] = "";
        struct flow_shape shape;
        int r;

        if (!scenario_allows(f->scenario, "qos"))
                return error_set(
                        e, -EACCES,
                        "shaping needs the permission \"qos\": add it to standby.allow in the scenario of "
                        "node %s",
                        f->self->name);
        if (!parse_shape(f, &shape, command))
                return error_set(e, -EINVAL, "shape: expected a rate and addresses of this testbed");
        r = flow_shaping_device(f->self, device);
        if (r < 0)
                return error_set(e, r, "no device has the address %s", f->self->address);
        r = flow_shaping_apply(&f->shaper, device, &shape, e);
        if (r == -EPERM || r == -EACCES) {
                error_set(e, r,
                          "shaping is not permitted: node %s needs evb-ros-shaping.conf (share/evb/systemd)",
                          f->self->name);
                error_locate(e, "%s", device);
        }
        return r;
}

static int read_endpoint(const struct standby_flows *f, struct flow_endpoint *ret, const json_t *o, size_t i,
                         struct error *e)
{
        if (flow_endpoint_from_json(ret, o) >= 0 && is_acceptable(f, ret))
                return 0;
        return error_set(e, -EINVAL,
                         "endpoint %zu: expected an endpoint of this node, to and from nodes of this testbed",
                         i);
}

/* All are valid before any starts. */
static int start(struct standby_flows *f, const json_t *endpoints, struct error *e)
{
        struct flow_endpoint endpoint;
        const json_t *each;
        size_t i;
        int r;

        json_array_foreach(endpoints, i, each)
        {
                r = read_endpoint(f, &endpoint, each, i, e);
                if (r < 0)
                        return r;
        }
        r = flow_group_init(&f->group);
        json_array_foreach(endpoints, i, each)
        {
                if (r >= 0)
                        r = read_endpoint(f, &endpoint, each, i, e);
                if (r >= 0)
                        r = flow_group_start(&f->group, &endpoint, -1);
        }
        return r < 0 ? error_set(e, r, "%m") : 0;
}

int standby_flows_begin(struct standby_flows *f, const struct scenario *scenario,
                        const struct scenario_node *self, const json_t *command, struct error *e)
{
        const json_t *endpoints = json_object_get(command, "endpoints"),
                     *shaping = json_object_get(command, "shape");
        int r = 0;

        *f = (struct standby_flows){.scenario = scenario, .self = self, .active = true};
        if (!json_is_array(endpoints) || json_array_size(endpoints) == 0)
                r = error_set(e, -EINVAL, "endpoints: expected an array of 1 to %d", FLOW_ENDPOINTS_MAX);
        if (r >= 0 && shaping)
                r = shape(f, shaping, e);
        if (r >= 0)
                r = start(f, endpoints, e);
        if (r < 0)
                standby_flows_end(f);
        return r;
}

void standby_flows_set(struct standby_flows *f, int state)
{
        if (f->active && state > FLOW_WAIT && state <= FLOW_END)
                flow_group_set(&f->group, (enum flow_state)state);
}

enum flows_change standby_flows_turn(struct standby_flows *f)
{
        bool ended;

        if (!f->active)
                return FLOWS_UNCHANGED;
        ended = flow_group_reap(&f->group);
        if (flow_group_error(&f->group) < 0)
                return FLOWS_ENDED;
        flow_group_turn(&f->group, clock_now_ns());
        if (!f->reported_ready && flow_group_is_ready(&f->group)) {
                f->reported_ready = true;
                return FLOWS_READY;
        }
        if (f->reported_ready && !f->reported_quiet && flow_group_is_quiet(&f->group) &&
            atomic_load(&f->group.shared->state) >= FLOW_STOP_SENDING) {
                f->reported_quiet = true;
                return FLOWS_QUIET;
        }
        return f->reported_ready && ended ? FLOWS_ENDED : FLOWS_UNCHANGED;
}

int standby_flows_error(const struct standby_flows *f, struct error *e)
{
        int r = flow_group_error(&f->group);
        bool watches = false;

        if (r >= 0)
                return 0;
        for (unsigned i = 0; i < f->group.n; i++)
                watches |= f->group.endpoints[i].endpoint.role == FLOW_WATCHER;
        /* Errors without CAP_NET_RAW, and with systemd's RestrictAddressFamilies=. */
        if (watches && (r == -EPERM || r == -EACCES || r == -EAFNOSUPPORT))
                return error_set(e, r,
                                 "watching the wire is not permitted: node %s needs evb-sfi-watching.conf "
                                 "(share/evb/systemd)",
                                 f->self->name);
        return error_set(e, r, "%m");
}

void standby_flows_add_result(const struct standby_flows *f, json_t *answer)
{
        json_t *endpoints = json_array();
        uint64_t drops = 0;

        for (unsigned i = 0; i < f->group.n; i++) {
                const struct flow_counters *c = &f->group.shared->counters[i];

                json_array_append_new(endpoints,
                                      json_pack("{s:I, s:I, s:I, s:f, s:o, s:o}", "messages",
                                                (json_int_t)c->messages, "bytes", (json_int_t)c->bytes,
                                                "socket_drops", (json_int_t)c->socket_drops, "cpu_seconds",
                                                f->group.endpoints[i].cpu_seconds, "gaps_ns",
                                                histogram_to_json(&c->gaps_ns), "cpu_shares",
                                                histogram_to_json(flow_group_shares(&f->group, i))));
        }
        json_object_set_new(answer, "endpoints", endpoints);
        if (f->shaper && flow_shaping_drops(f->shaper, &drops) >= 0)
                json_object_set_new(answer, "source_drops", json_integer((json_int_t)drops));
}

void standby_flows_end(struct standby_flows *f)
{
        struct tc_outcome o = {};
        char text[ERROR_TEXT_MAX];
        struct error e = {};

        if (!f->active)
                return;
        flow_group_fini(&f->group);
        if (f->shaper && tc_shaper_remove(f->shaper, &o, &e) < 0)
                log_error("cannot remove shaping: %s", error_format(&e, text));
        tc_shaper_free(f->shaper);
        *f = (struct standby_flows){};
}
