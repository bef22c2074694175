/* Averages the time between packets, and compares it with what the socket's buffer holds. */
#include "naps.h"

void naps_init(struct naps *n, uint64_t buffer_bytes, uint32_t packet_bytes)
{
        *n = (struct naps){.room_packets = buffer_bytes / (packet_bytes + NAP_PACKET_BYTES)};
}

/* Neither product overflows: a gap is short here, and no buffer holds 2^40 packets. */
static uint64_t decide(const struct naps *n, uint64_t elapsed_ns)
{
        uint64_t gap_ns = n->packets > 0 ? elapsed_ns / n->packets : UINT64_MAX;

        return gap_ns < NAP_GAP_NS && n->room_packets * gap_ns >= NAP_BUFFER_NS ? NAP_NS : 0;
}

void naps_note(struct naps *n, uint64_t now_ns, uint64_t packets)
{
        if (n->begin_ns == 0)
                n->begin_ns = now_ns;
        else
                n->packets += packets;
        if (now_ns - n->begin_ns < NAP_LOOK_NS)
                return;
        n->length_ns = decide(n, now_ns - n->begin_ns);
        n->begin_ns = now_ns;
        n->packets = 0;
}

uint64_t naps_length_ns(const struct naps *n)
{
        return n->length_ns;
}
