/* Splits flows into endpoints, converts endpoints to JSON and back, and sums up their counters. */
#include "traffic/flow_endpoint.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/util.h"

/* No measurement needs more; a command may not request it. */
#define MESSAGE_MAX_BYTES (4u << 20)
#define BUFFER_MAX_BYTES (256u << 20)
#define PORT_LEAST 1024u

static struct flow_endpoint make_endpoint(const struct flow *f, unsigned flow, enum flow_role role,
                                          unsigned which)
{
        struct flow_endpoint e = {
                .role = role,
                .kind = f->kind,
                .flow = flow,
                .which = which,
                .port = f->port,
                .message_bytes = f->message_bytes,
                .buffer_bytes = f->buffer_bytes,
                .messages_per_s = f->messages_per_s,
                .receiver_packets_per_s = f->receiver_packets_per_s,
        };

        snprintf(e.from, sizeof e.from, "%s", f->from->address);
        snprintf(e.to, sizeof e.to, "%s", f->kind == FLOW_MULTICAST ? f->group : f->to[which]->address);
        snprintf(e.at, sizeof e.at, "%s", role == FLOW_SENDER ? f->from->address : f->to[which]->address);
        return e;
}

unsigned flow_endpoints(const struct flow *f, unsigned flow,
                        struct flow_endpoint ret[static FLOW_RECEIVERS_MAX + 2])
{
        unsigned n = 0;

        for (unsigned k = 0; k < f->n_to; k++)
                ret[n++] = make_endpoint(f, flow, FLOW_RECEIVER, k);
        if (f->watch_wire)
                ret[n++] = make_endpoint(f, flow, FLOW_WATCHER, 0);
        ret[n++] = make_endpoint(f, flow, FLOW_SENDER, 0);
        return n;
}

json_t *flow_endpoint_to_json(const struct flow_endpoint *e)
{
        return json_pack("{s:i, s:i, s:i, s:i, s:s, s:s, s:s, s:i, s:I, s:I, s:I, s:I}", "role", (int)e->role,
                         "kind", (int)e->kind, "flow", (int)e->flow, "which", (int)e->which, "from", e->from,
                         "to", e->to, "at", e->at, "port", (int)e->port, "message_bytes",
                         (json_int_t)e->message_bytes, "buffer_bytes", (json_int_t)e->buffer_bytes,
                         "messages_per_s", (json_int_t)e->messages_per_s, "receiver_packets_per_s",
                         (json_int_t)e->receiver_packets_per_s);
}

static bool get_number(const json_t *o, const char *name, uint64_t least, uint64_t most, uint64_t *ret)
{
        const json_t *v = json_object_get(o, name);

        if (!json_is_integer(v) || json_integer_value(v) < 0 || (uint64_t)json_integer_value(v) < least ||
            (uint64_t)json_integer_value(v) > most)
                return false;
        *ret = (uint64_t)json_integer_value(v);
        return true;
}

static bool get_text(const json_t *o, const char *name, char to[static 64])
{
        const char *text = json_string_value(json_object_get(o, name));

        if (!text || strlen(text) >= 64)
                return false;
        strcpy(to, text);
        return true;
}

int flow_endpoint_from_json(struct flow_endpoint *ret, const json_t *o)
{
        struct flow_endpoint e = {};
        uint64_t role, kind, flow, which, port, message, buffer;

        if (!get_number(o, "role", 0, FLOW_WATCHER, &role) ||
            !get_number(o, "kind", 0, FLOW_SEGMENTS, &kind) ||
            !get_number(o, "flow", 0, FLOWS_MAX - 1, &flow) ||
            !get_number(o, "which", 0, FLOW_RECEIVERS_MAX - 1, &which) ||
            !get_number(o, "port", PORT_LEAST, UINT16_MAX - 1, &port) ||
            !get_number(o, "message_bytes", 1, MESSAGE_MAX_BYTES, &message) ||
            !get_number(o, "buffer_bytes", 0, BUFFER_MAX_BYTES, &buffer) ||
            !get_number(o, "messages_per_s", 0, NS_PER_S, &e.messages_per_s) ||
            !get_number(o, "receiver_packets_per_s", 0, NS_PER_S, &e.receiver_packets_per_s) ||
            !get_text(o, "from", e.from) || !get_text(o, "to", e.to) || !get_text(o, "at", e.at))
                return -EBADMSG;
        e.role = (enum flow_role)role;
        e.kind = (enum flow_kind)kind;
        e.flow = (unsigned)flow;
        e.which = (unsigned)which;
        e.port = (uint16_t)port;
        e.message_bytes = (uint32_t)message;
        e.buffer_bytes = (uint32_t)buffer;
        *ret = e;
        return 0;
}

void flow_result_add(struct flow_result *r, const struct flow_endpoint *e,
                     const struct flow_counters *counters, double cpu_seconds,
                     const struct histogram *cpu_shares)
{
        switch (e->role) {
        case FLOW_SENDER:
                r->sent_messages += counters->messages;
                r->sent_bytes += counters->bytes;
                r->sender_cpu_seconds += cpu_seconds;
                histogram_merge(&r->sender_shares, cpu_shares);
                break;
        case FLOW_RECEIVER:
                r->received_messages[e->which] += counters->messages;
                r->received_bytes[e->which] += counters->bytes;
                r->socket_drops += counters->socket_drops;
                r->receiver_cpu_seconds += cpu_seconds;
                histogram_merge(&r->receiver_shares, cpu_shares);
                break;
        case FLOW_WATCHER:
                break;
        }
        if (counters->gaps_ns.count > 0)
                r->gaps_ns = counters->gaps_ns;
}
