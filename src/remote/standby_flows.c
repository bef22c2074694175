/* An order's ends and shaping, each looked at before it is believed; then as processes of this machine. */
#include "standby_flows.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "evb/base/log.h"
#include "evb/base/util.h"
#include "evb/conf/standby.h"
#include "evb/launch/counters_json.h"
#include "evb/net/address.h"
#include "evb/sys/loop.h"

#define MULTICAST_PREFIX "239."
#define RATE_MAX_BPS UINT64_C(400000000000)

/* Of this testbed, or a group of local scope (RFC 2365): no order sends anything to anybody else. */
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

static bool may_be(const struct streams *s, const struct flow_part *p)
{
        return strcmp(p->at, s->self->address) == 0 && is_of_testbed(s->scenario, p->from, false) &&
               is_of_testbed(s->scenario, p->to, p->kind == FLOW_MULTICAST) &&
               (p->role != FLOW_SENDER || strcmp(p->at, p->from) == 0);
}

static uint64_t number(const json_t *o, const char *name, uint64_t most)
{
        json_int_t v = json_integer_value(json_object_get(o, name));

        return v < 0 ? 0 : MIN((uint64_t)v, most);
}

static bool take_shape(const struct streams *s, struct flow_shape *ret, const json_t *o)
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
                    (!is_of_testbed(s->scenario, address, false) &&
                     !is_of_testbed(s->scenario, address, true)))
                        return false;
                strcpy(ret->to[ret->n_to++], address);
        }
        return ret->n_to > 0 && ret->rate_bps > 0;
}

static int shape(struct streams *s, const json_t *order, char *why, size_t size)
{
        char device[IF_NAMESIZE] = "", text[ERROR_TEXT_MAX];
        struct flow_shape shape;
        struct error e = {};
        int r;

        if (!scenario_allows(s->scenario, "qos")) {
                snprintf(why, size,
                         "shaping needs the permission \"qos\": add it to standby.allow in the scenario of "
                         "node %s",
                         s->self->name);
                return -EACCES;
        }
        if (!take_shape(s, &shape, order)) {
                snprintf(why, size, "shape: allowed: a rate, for addresses of this testbed");
                return -EINVAL;
        }
        r = lab_device_of(s->self, device);
        if (r < 0) {
                snprintf(why, size, "no device has the address %s", s->self->address);
                return r;
        }
        r = lab_shape_device(&s->shaper, device, &shape, &e);
        if (r < 0)
                snprintf(why, size, "%s", error_format(&e, text));
        if (r == -EPERM || r == -EACCES)
                snprintf(why, size,
                         "%s: shaping is not permitted: node %s needs evb-ros-shaping.conf (configs/systemd)",
                         device, s->self->name);
        return r;
}

static int start(struct streams *s, const json_t *ends, char *why, size_t size)
{
        int r = flow_group_init(&s->group);
        const json_t *each;
        size_t i;

        json_array_foreach(ends, i, each)
        {
                struct flow_part part;

                if (r < 0)
                        break;
                r = flow_part_from_json(&part, each);
                if (r < 0 || !may_be(s, &part)) {
                        snprintf(why, size,
                                 "end %zu: allowed: one that is here, to and from nodes of this testbed", i);
                        return -EINVAL;
                }
                r = flow_group_start(&s->group, &part, -1);
        }
        if (r < 0)
                snprintf(why, size, "%s", strerror(-r));
        return r;
}

int streams_begin(struct streams *s, const struct scenario *scenario, const struct scenario_node *self,
                  const json_t *order, char *why, size_t size)
{
        const json_t *ends = json_object_get(order, "ends"), *shaping = json_object_get(order, "shape");
        int r = 0;

        *s = (struct streams){.scenario = scenario, .self = self, .active = true};
        if (!json_is_array(ends) || json_array_size(ends) == 0) {
                snprintf(why, size, "ends: allowed: an array of at most %d", FLOW_ENDS_MAX);
                r = -EINVAL;
        }
        if (r >= 0 && shaping)
                r = shape(s, shaping, why, size);
        if (r >= 0)
                r = start(s, ends, why, size);
        if (r < 0)
                streams_end(s);
        return r;
}

void streams_set(struct streams *s, int state)
{
        if (s->active && state > FLOW_WAIT && state <= FLOW_END)
                flow_group_set(&s->group, (enum flow_state)state);
}

enum streams_news streams_turn(struct streams *s)
{
        bool ended;

        if (!s->active)
                return STREAMS_NOTHING;
        ended = flow_group_reap(&s->group);
        if (flow_group_error(&s->group) < 0)
                return STREAMS_ENDED;
        flow_group_turn(&s->group, clock_now_ns());
        if (!s->told_ready && flow_group_is_ready(&s->group)) {
                s->told_ready = true;
                return STREAMS_READY;
        }
        if (s->told_ready && !s->told_quiet && flow_group_is_quiet(&s->group) &&
            atomic_load(&s->group.counters->state) >= FLOW_STOP_SENDING) {
                s->told_quiet = true;
                return STREAMS_QUIET;
        }
        return s->told_ready && ended ? STREAMS_ENDED : STREAMS_NOTHING;
}

void streams_tell_error(const struct streams *s, char *why, size_t size)
{
        int error = -flow_group_error(&s->group);
        bool watches = false;

        for (unsigned i = 0; i < s->group.n; i++)
                watches |= s->group.ends[i].part.role == FLOW_WATCHER;
        /* The kernel's answer without CAP_NET_RAW, and that of systemd's RestrictAddressFamilies=. */
        if (watches && (error == EPERM || error == EACCES || error == EAFNOSUPPORT))
                snprintf(why, size,
                         "watching the wire is not permitted: node %s needs evb-sfi-watching.conf "
                         "(configs/systemd)",
                         s->self->name);
        else
                snprintf(why, size, "%s", strerror(error));
}

void streams_add_result(const struct streams *s, json_t *answer)
{
        json_t *ends = json_array();
        uint64_t drops = 0;

        for (unsigned i = 0; i < s->group.n; i++) {
                const struct flow_end *e = &s->group.counters->ends[i];

                json_array_append_new(ends, json_pack("{s:I, s:I, s:I, s:f, s:o, s:o}", "messages",
                                                      (json_int_t)e->messages, "bytes", (json_int_t)e->bytes,
                                                      "socket_drops", (json_int_t)e->socket_drops,
                                                      "cpu_seconds", s->group.ends[i].cpu_seconds, "gaps_ns",
                                                      histogram_to_json(&e->gaps_ns), "cpu_shares",
                                                      histogram_to_json(flow_group_shares(&s->group, i))));
        }
        json_object_set_new(answer, "ends", ends);
        if (s->shaper && lab_shaper_drops(s->shaper, &drops) >= 0)
                json_object_set_new(answer, "source_drops", json_integer((json_int_t)drops));
}

void streams_end(struct streams *s)
{
        struct tc_outcome o = {};
        struct error e = {};

        if (!s->active)
                return;
        flow_group_fini(&s->group);
        if (s->shaper && tc_shaper_remove(s->shaper, &o, &e) < 0)
                log_error("shaping: %s: %s", e.location, e.message);
        tc_shaper_free(s->shaper);
        *s = (struct streams){};
}
