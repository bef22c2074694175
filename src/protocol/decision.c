/* Encodes and decodes the messages between the DFM and level-2 clients. Their entries have a fixed size, so
 * that a farm in any language can read and write them as a structure. */
#include "codec.h"

static void reserved_u16(struct codec *c)
{
        uint16_t zero = 0;

        field_u16(c, &zero);
}

static void reserved_u32(struct codec *c)
{
        uint32_t zero = 0;

        field_u32(c, &zero);
}

static bool count(struct codec *c, struct message *m)
{
        uint32_t n = (uint32_t)m->n, zero = 0;

        field_u32(c, &n);
        field_u32(c, m->header.type == MESSAGE_UNDECIDED ? &m->undecided.resets : &zero);
        m->n = n;
        return n <= MESSAGE_ENTRIES_MAX;
}

static bool code_decision(struct codec *c, struct decision_entry *e)
{
        field_u64(c, &e->event);
        field_u8(c, &e->verdict);
        field_u8(c, &e->stream);
        reserved_u16(c);
        field_u32(c, &e->l2_info);
        return e->verdict == DECISION_ACCEPT || e->verdict == DECISION_REJECT;
}

static void code_undecided(struct codec *c, struct undecided_entry *e)
{
        field_u64(c, &e->event);
        field_u64(c, &e->number);
        field_u64(c, &e->time_ns);
        field_u32(c, &e->type);
        field_u32(c, &e->flags);
}

static bool code_readout(struct codec *c, struct readout_entry *e)
{
        field_u16(c, &e->index);
        field_u16(c, &e->port);
        field_u32(c, &e->flags);
        for (size_t i = 0; i < sizeof e->address; i++)
                field_u8(c, &e->address[i]);
        return e->index < EVB_ROS_MAX && e->port > 0 && e->flags <= READOUT_PRESENT;
}

static bool code_entry(struct codec *c, struct message *m, size_t k)
{
        switch (m->header.type) {
        case MESSAGE_DECISION:
                return code_decision(c, &m->decision.entries[k]);
        case MESSAGE_READOUTS:
                return code_readout(c, &m->readouts.entries[k]);
        }
        code_undecided(c, &m->undecided.entries[k]);
        return true;
}

static bool code_ack(struct codec *c, struct message *m)
{
        field_u32(c, &m->decision_ack.next);
        field_u32(c, &m->decision_ack.state);
        field_u32(c, &m->decision_ack.unused);
        reserved_u32(c);
        return m->decision_ack.state >= RUN_STARTING && m->decision_ack.state <= RUN_ENDED;
}

bool decision_code(struct codec *c, struct message *m)
{
        if (m->header.type == MESSAGE_DECISION_ACK)
                return code_ack(c, m);
        if (!count(c, m))
                return false;
        for (size_t k = 0; k < m->n; k++) {
                if (!code_entry(c, m, k))
                        return false;
        }
        return true;
}
