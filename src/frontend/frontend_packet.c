/* Encodes trigger datagrams and decodes busy datagrams. */
#include "frontend_packet.h"

#include <string.h>

#include "base/cursor.h"

#define VERSION 1
#define BUSY_BYTES 16u

size_t frontend_packet_encode(uint32_t sequence, uint32_t run, const struct frontend_entry *entries, size_t n,
                              uint8_t to[static FRONTEND_PACKET_MAX_BYTES])
{
        struct writer w = writer_init(to, FRONTEND_PACKET_MAX_BYTES);

        memcpy(writer_reserve(&w, 4), "EVBT", 4);
        writer_u16(&w, VERSION);
        writer_u16(&w, (uint16_t)n);
        writer_u32(&w, sequence);
        writer_u32(&w, run);
        for (size_t i = 0; i < n; i++) {
                writer_u64(&w, entries[i].number);
                writer_u64(&w, entries[i].time_ns);
                writer_u32(&w, entries[i].type);
                writer_u32(&w, entries[i].flags);
        }
        return (size_t)(w.at - to);
}

bool frontend_packet_decode_busy(const uint8_t *bytes, size_t n, struct frontend_busy *ret)
{
        struct reader r = reader_init(bytes, n);
        const void *magic = reader_consume(&r, 4);
        uint8_t state;

        if (n != BUSY_BYTES || memcmp(magic, "EVBB", 4) != 0)
                return false;
        state = reader_u8(&r);
        ret->busy = state == 1;
        ret->reason = reader_u8(&r);
        (void)reader_u16(&r);
        ret->last = reader_u64(&r);
        return state <= 1;
}
