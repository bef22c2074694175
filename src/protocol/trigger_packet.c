/* Decodes datagrams with triggers from outside. data/trigger_input.c receives them, and the DFM accepts the
 * triggers: see core/dfm/dfm_triggers.c. */
#include "protocol/trigger_packet.h"

#include <stdio.h>
#include <string.h>

#include "base/cursor.h"

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
        const uint8_t *begin = reader_consume(&r, sizeof magic);
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

void trigger_packet_explain(const uint8_t *bytes, size_t n, char *text, size_t text_bytes)
{
        struct reader r = reader_init(bytes, n);
        const uint8_t *begin = reader_consume(&r, sizeof magic);
        unsigned version = reader_u16(&r), entries = reader_u16(&r);
        size_t expected = TRIGGER_PACKET_HEADER_BYTES + (size_t)entries * TRIGGER_ENTRY_BYTES;

        if (n < TRIGGER_PACKET_HEADER_BYTES)
                snprintf(text, text_bytes, "it has %zu bytes, expected at least the header's %d", n,
                         TRIGGER_PACKET_HEADER_BYTES);
        else if (memcmp(begin, magic, sizeof magic) != 0)
                snprintf(text, text_bytes, "it begins with the bytes %02x %02x %02x %02x, expected \"EVBT\"",
                         begin[0], begin[1], begin[2], begin[3]);
        else if (version != TRIGGER_PACKET_VERSION)
                snprintf(text, text_bytes, "its version is %u, expected %d (16 bits, little-endian)", version,
                         TRIGGER_PACKET_VERSION);
        else if (n != expected)
                snprintf(text, text_bytes,
                         "it has %zu bytes, expected %zu for a number of entries of %u (16 bits, "
                         "little-endian)",
                         n, expected, entries);
        else
                snprintf(text, text_bytes, "an entry has unknown flags, expected a sum of 1, 2, 4 and 8");
}

/* Encodes the busy signal. core/dfm/dfm_busy.c decides it, data/busy_output.c sends it. */

void busy_packet_encode(const struct busy_packet *p, uint8_t bytes[static BUSY_PACKET_BYTES])
{
        struct writer w = writer_init(bytes, BUSY_PACKET_BYTES);

        memcpy(writer_reserve(&w, 4), "EVBB", 4);
        writer_u8(&w, p->busy);
        writer_u8(&w, (uint8_t)p->reason);
        writer_u16(&w, 0);
        writer_u64(&w, p->last);
}
