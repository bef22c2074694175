/* Finds messages in a byte stream. */
#include "protocol/message.h"

enum message_verdict message_decode_first(struct message *ret, const uint8_t *bytes, size_t n,
                                          size_t *ret_bytes)
{
        struct message_header h;
        uint32_t check;
        enum message_verdict v = message_header_decode(&h, bytes, n, &check);

        if (v != MESSAGE_OK)
                return v;
        if (h.payload_bytes > MESSAGE_LEVEL2_BYTES_MAX - MESSAGE_HEADER_BYTES)
                return MESSAGE_MALFORMED;
        *ret_bytes = MESSAGE_HEADER_BYTES + (size_t)h.payload_bytes;
        return n < *ret_bytes ? MESSAGE_SHORT : message_decode(ret, bytes, *ret_bytes);
}
