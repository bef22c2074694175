/* Compares what arrives with what was sent: every byte, and its place. Pure. */
#include <string.h>

#include "base/pattern.h"
#include "base/util.h"
#include "path_internal.h"

/* The bytes at the place that is next. */
static void check_bytes(struct path_check *c, const uint8_t *bytes, size_t n)
{
        uint64_t key = pattern_key(0, 0, 0);

        if (pattern_check(key, bytes, c->bytes, n) == n)
                c->bytes += n;
        else
                c->broken = true;
}

/* The packet that a header announces must be the next one. */
static bool is_next(struct path_check *c, struct chunk_reader *r, uint32_t *ret_length)
{
        struct path_packet p;

        if (!path_header_decode(r, &p) || p.length > c->payload_bytes ||
            p.number * c->payload_bytes != c->bytes) {
                c->broken = true;
                return false;
        }
        *ret_length = p.length;
        return true;
}

void path_check_datagram(struct path_check *c, const uint8_t *bytes, size_t n)
{
        struct chunk_reader r;
        uint32_t length = (uint32_t)n;

        if (c->broken)
                return;
        if (c->headers) {
                if (chunk_reader_init(&r, bytes, n, path_cookie()) != MESSAGE_OK) {
                        c->broken = true;
                        return;
                }
                bytes = r.payload;
                if (!is_next(c, &r, &length))
                        return;
                c->broken = r.head_bytes + length != n;
        }
        if (!c->broken)
                check_bytes(c, bytes, length);
        c->packets += !c->broken;
}

/* Reads a header. Returns its size, or 0: it is not all there, or is none. */
static size_t begin_packet(struct path_check *c, const uint8_t *bytes, size_t n)
{
        struct chunk_reader r;
        enum message_verdict v = chunk_reader_begin(&r, bytes, n, path_cookie());

        if (v == MESSAGE_SHORT && n < PATH_HEADER_MAX_BYTES)
                return 0;
        if (v != MESSAGE_OK || !is_next(c, &r, &c->left)) {
                c->broken = true;
                return 0;
        }
        return r.head_bytes;
}

size_t path_check_stream(struct path_check *c, const uint8_t *bytes, size_t n)
{
        size_t used = 0;

        if (!c->headers) {
                check_bytes(c, bytes, n);
                c->packets = c->bytes / c->payload_bytes;
                return n;
        }
        while (used < n && !c->broken) {
                size_t more;

                if (c->left == 0) {
                        more = begin_packet(c, bytes + used, n - used);
                        if (more == 0)
                                return c->broken ? n : used;
                        used += more;
                        continue;
                }
                more = MIN(c->left, n - used);
                check_bytes(c, bytes + used, more);
                used += more;
                c->left -= (uint32_t)more;
                c->packets += c->left == 0 && !c->broken;
        }
        return n;
}
