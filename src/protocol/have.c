/* Codes the messages about frames that a ROS announces to the DFM. */
#include "codec.h"

#define HAVE_KNOWS 1u
#define HAVE_ACK_GO_ON 1u

static bool code_have(struct codec *c, struct message *m)
{
        uint32_t flags = !c->decode && m->have.knows ? HAVE_KNOWS : 0, n = (uint32_t)m->n, reserved = 0;

        field_u32(c, &m->have.incarnation);
        field_u32(c, &m->have.resets);
        field_u32(c, &m->have.next);
        field_u32(c, &flags);
        m->have.knows = flags & HAVE_KNOWS;
        field_u32(c, &n);
        field_u32(c, &reserved);
        m->n = n;
        return n <= MESSAGE_ENTRIES_MAX && flags <= HAVE_KNOWS && entries_code(c, m);
}

static bool code_ack(struct codec *c, struct message *m)
{
        uint32_t flags = !c->decode && m->have_ack.go_on ? HAVE_ACK_GO_ON : 0;

        field_u32(c, &m->have_ack.incarnation);
        field_u32(c, &m->have_ack.ack);
        field_u32(c, &m->have_ack.resets);
        field_u32(c, &flags);
        m->have_ack.go_on = flags & HAVE_ACK_GO_ON;
        return flags <= HAVE_ACK_GO_ON;
}

bool have_code(struct codec *c, struct message *m)
{
        return m->header.type == MESSAGE_HAVE ? code_have(c, m) : code_ack(c, m);
}
