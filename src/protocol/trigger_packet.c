/* Decodes datagrams with triggers from outside. data/trigger_input.c receives them, and the DFM takes the
 * triggers: see core/dfm/dfm_triggers.c. */
#include "evb/protocol/trigger_packet.h"

#include <string.h>

#include "evb/base/cursor.h"

static const uint8_t magic[4] = {'E', 'V', 'B', 'T'};

struct trigger_entry trigger_packet_entry(const struct trigger_packet *p, unsigned k)
{
        struct reader r = reader_init(p->entries + (size_t)k * TRIGGER_ENTRY_BYTES, TRIGGER_ENTRY_BYTES);
        struct trigger_entry e;

        e.number = reader_u64(&r);
        e.time_ns = reader_u64(&r);
        e.type = reader_u32(&r);
        e.flags = reader_u32(&r);
        return e;
}

enum trigger_verdict trigger_packet_decode(struct trigger_packet *ret, const uint8_t *bytes, size_t n)
{
        struct reader r = reader_init(bytes, n);
        const uint8_t *begin = reader_take(&r, sizeof magic);
        uint16_t version;

        if (!begin || memcmp(begin, magic, sizeof magic) != 0)
                return TRIGGER_PACKET_FOREIGN;
        version = reader_u16(&r);
        ret->n = reader_u16(&r);
        ret->sequence = reader_u32(&r);
        ret->run = reader_u32(&r);
        if (r.failed)
                return TRIGGER_PACKET_MALFORMED;
        if (version != TRIGGER_PACKET_VERSION)
                return TRIGGER_PACKET_FOREIGN;
        if (reader_left(&r) != (size_t)ret->n * TRIGGER_ENTRY_BYTES)
                return TRIGGER_PACKET_MALFORMED;
        ret->entries = r.at;
        for (unsigned k = 0; k < ret->n; k++)
                if (trigger_packet_entry(ret, k).flags & ~TRIGGER_FLAGS)
                        return TRIGGER_PACKET_MALFORMED;
        return TRIGGER_PACKET_OK;
}
