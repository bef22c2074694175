/* Flows taken apart into what each end has to know, to JSON and back, and put together again from what the
 * ends have counted. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "evb/base/util.h"
#include "evb/launch/counters_json.h"
#include "evb/traffic/flow_endpoint.h"

/* More has no measurement; an order from elsewhere may not ask for it. */
#define MESSAGE_MAX_BYTES (4u << 20)
#define BUFFER_MAX_BYTES (256u << 20)
#define PORT_LEAST 1024u

static struct flow_part part(const struct flow *f, unsigned flow, enum flow_role role, unsigned which)
{
        struct flow_part p = {
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

        snprintf(p.from, sizeof p.from, "%s", f->from->address);
        snprintf(p.to, sizeof p.to, "%s", f->kind == FLOW_MULTICAST ? f->group : f->to[which]->address);
        snprintf(p.at, sizeof p.at, "%s", role == FLOW_SENDER ? f->from->address : f->to[which]->address);
        return p;
}

unsigned flow_parts(const struct flow *f, unsigned flow, struct flow_part ret[static FLOW_RECEIVERS_MAX + 2])
{
        unsigned n = 0;

        for (unsigned k = 0; k < f->n_to; k++)
                ret[n++] = part(f, flow, FLOW_RECEIVER, k);
        if (f->watch_wire)
                ret[n++] = part(f, flow, FLOW_WATCHER, 0);
        ret[n++] = part(f, flow, FLOW_SENDER, 0);
        return n;
}

json_t *flow_part_to_json(const struct flow_part *p)
{
        return json_pack("{s:i, s:i, s:i, s:i, s:s, s:s, s:s, s:i, s:I, s:I, s:I, s:I}", "role", (int)p->role,
                         "kind", (int)p->kind, "flow", (int)p->flow, "which", (int)p->which, "from", p->from,
                         "to", p->to, "at", p->at, "port", (int)p->port, "message_bytes",
                         (json_int_t)p->message_bytes, "buffer_bytes", (json_int_t)p->buffer_bytes,
                         "messages_per_s", (json_int_t)p->messages_per_s, "receiver_packets_per_s",
                         (json_int_t)p->receiver_packets_per_s);
}

static bool take_number(const json_t *o, const char *name, uint64_t least, uint64_t most, uint64_t *ret)
{
        const json_t *v = json_object_get(o, name);

        if (!json_is_integer(v) || json_integer_value(v) < 0 || (uint64_t)json_integer_value(v) < least ||
            (uint64_t)json_integer_value(v) > most)
                return false;
        *ret = (uint64_t)json_integer_value(v);
        return true;
}

static bool take_text(const json_t *o, const char *name, char to[static 64])
{
        const char *text = json_string_value(json_object_get(o, name));

        if (!text || strlen(text) >= 64)
                return false;
        strcpy(to, text);
        return true;
}

int flow_part_from_json(struct flow_part *ret, const json_t *o)
{
        struct flow_part p = {};
        uint64_t role, kind, flow, which, port, message, buffer;

        if (!take_number(o, "role", 0, FLOW_WATCHER, &role) || !take_number(o, "kind", 0, FLOW_ECHO, &kind) ||
            !take_number(o, "flow", 0, FLOWS_MAX - 1, &flow) ||
            !take_number(o, "which", 0, FLOW_RECEIVERS_MAX - 1, &which) ||
            !take_number(o, "port", PORT_LEAST, UINT16_MAX - 1, &port) ||
            !take_number(o, "message_bytes", 1, MESSAGE_MAX_BYTES, &message) ||
            !take_number(o, "buffer_bytes", 0, BUFFER_MAX_BYTES, &buffer) ||
            !take_number(o, "messages_per_s", 0, NS_PER_S, &p.messages_per_s) ||
            !take_number(o, "receiver_packets_per_s", 0, NS_PER_S, &p.receiver_packets_per_s) ||
            !take_text(o, "from", p.from) || !take_text(o, "to", p.to) || !take_text(o, "at", p.at))
                return -EBADMSG;
        p.role = (enum flow_role)role;
        p.kind = (enum flow_kind)kind;
        p.flow = (unsigned)flow;
        p.which = (unsigned)which;
        p.port = (uint16_t)port;
        p.message_bytes = (uint32_t)message;
        p.buffer_bytes = (uint32_t)buffer;
        *ret = p;
        return 0;
}

void flow_result_add(struct flow_result *r, const struct flow_part *p, const struct flow_end *end,
                     double cpu_seconds, const struct histogram *cpu_shares)
{
        switch (p->role) {
        case FLOW_SENDER:
                r->sent_messages += end->messages;
                r->sent_bytes += end->bytes;
                r->sender_cpu_seconds += cpu_seconds;
                histogram_merge(&r->sender_shares, cpu_shares);
                break;
        case FLOW_RECEIVER:
                r->received_messages[p->which] += end->messages;
                r->received_bytes[p->which] += end->bytes;
                r->socket_drops += end->socket_drops;
                r->receiver_cpu_seconds += cpu_seconds;
                histogram_merge(&r->receiver_shares, cpu_shares);
                break;
        case FLOW_WATCHER:
                break;
        }
        if (end->gaps_ns.count > 0)
                r->gaps_ns = end->gaps_ns;
}
