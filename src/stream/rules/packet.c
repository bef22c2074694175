/* Writes and reads the headers of data packets. Nothing that arrives is trusted. */
#include "packet.h"

#include "base/cursor.h"

/* 400 Gbit/s: more than one thread sends, over any device. A bound by the speed of the device is not
 * possible: virtual ones exceed theirs, and packets may come in at another device than expected. */
#define LINK_BYTES_PER_NS 50u
/* Of IPv4 and UDP. */
#define OUTER_HEADERS_BYTES 28u

uint32_t packet_header_bytes(enum stream_format format)
{
        static const uint32_t bytes[] = {
                [STREAM_PLAIN] = PACKET_PLAIN_BYTES, [STREAM_VDIF] = PACKET_VTP_BYTES, [STREAM_RAW] = 0};

        return bytes[format];
}

void packet_write(const struct packet_rule *rule, void *to, uint64_t sequence)
{
        struct writer w = writer_init(to, packet_header_bytes(rule->format));

        writer_u64(&w, sequence);
        if (rule->format == STREAM_PLAIN)
                writer_u64(&w, rule->cookie);
}

enum packet_kind packet_read(const struct packet_rule *rule, const void *bytes, size_t n,
                             uint64_t *ret_sequence)
{
        struct reader r = reader_init(bytes, n);
        uint64_t sequence = reader_u64(&r);

        if (rule->format == STREAM_PLAIN && reader_u64(&r) != rule->cookie && !r.failed)
                return PACKET_FOREIGN;
        if (r.failed || reader_left(&r) == 0)
                return PACKET_SHORT;
        if (reader_left(&r) > rule->payload_bytes)
                return PACKET_FOREIGN;
        if (rule->format == STREAM_VDIF && reader_left(&r) < rule->payload_bytes)
                return PACKET_SHORT;
        *ret_sequence = sequence;
        return PACKET_OURS;
}

uint64_t packet_most(const struct packet_rule *rule, uint64_t elapsed_ns)
{
        uint32_t bytes = OUTER_HEADERS_BYTES + packet_header_bytes(rule->format) + rule->payload_bytes;

        return elapsed_ns / bytes * LINK_BYTES_PER_NS + elapsed_ns % bytes * LINK_BYTES_PER_NS / bytes;
}
