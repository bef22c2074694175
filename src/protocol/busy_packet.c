/* Encodes the busy signal. core/dfm/dfm_busy.c decides it, data/busy_output.c sends it. */
#include "protocol/busy_packet.h"

#include <string.h>

#include "base/cursor.h"

void busy_packet_encode(const struct busy_packet *p, uint8_t bytes[static BUSY_PACKET_BYTES])
{
        struct writer w = writer_init(bytes, BUSY_PACKET_BYTES);

        memcpy(writer_take(&w, 4), "EVBB", 4);
        writer_u8(&w, p->busy);
        writer_u8(&w, (uint8_t)p->reason);
        writer_u16(&w, 0);
        writer_u64(&w, p->last);
}
