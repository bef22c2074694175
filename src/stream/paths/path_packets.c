/* Defines the packets of a path, before they are sent and when they arrive. Pure except for the clock. */
#include <errno.h>
#include <string.h>

#include "base/util.h"
#include "sys/loop.h"
#include "base/pattern.h"
#include "path_internal.h"

/* Divides the file into packets, and makes their headers. Each packet is the complete fragment of a separate
 * event, whose number gives the position of its bytes. */

/* First event number. The 2^26 numbers from here on have encodings of the same size, so that all headers have
 * the same length, as the segments of a super-packet must. */
#define EVENT_FIRST (UINT64_C(1) << 20)
#define COOKIE UINT64_C(0x7061746873206576)
/* Number of packets between two readings of the clock. */
#define LOOK_PACKETS 32u

uint64_t path_cookie(void)
{
        return COOKIE;
}

static size_t batch_of(const struct path_sender *s)
{
        return MAX(MIN(PATH_BATCH_MAX, PATH_BATCH_BYTES / s->payload_bytes), 1u);
}

/* Spins without a system call, which would be counted. */
static void wait_for_receiver(const struct path_sender *s, size_t n)
{
        while (s->packets + n > atomic_load(&s->shared->received_packets) + batch_of(s) &&
               clock_now_ns() < s->deadline_ns)
                ;
}

static bool is_late(struct path_sender *s, size_t n)
{
        if (s->until_look > n) {
                s->until_look -= (uint32_t)n;
                return false;
        }
        s->until_look = LOOK_PACKETS;
        return clock_now_ns() >= s->deadline_ns;
}

size_t path_pop(struct path_sender *s, struct path_packet *ret, size_t most)
{
        size_t n = 0;

        most = MIN(most, batch_of(s));
        /* The first packet always leaves, so that a pass is measured however late it begins. */
        if (s->ended || s->bytes == s->size_bytes || (s->bytes > 0 && is_late(s, most))) {
                s->ended = true;
                return 0;
        }
        if (s->shared)
                wait_for_receiver(s, most);
        while (n < most && s->bytes < s->size_bytes) {
                ret[n++] = (struct path_packet){
                        .number = s->packets++,
                        .offset = s->bytes,
                        .length = (uint32_t)MIN(s->payload_bytes, s->size_bytes - s->bytes),
                };
                s->bytes += ret[n - 1].length;
        }
        return n;
}

size_t path_pop_bytes(struct path_sender *s, size_t most, uint64_t *ret_offset)
{
        size_t n = (size_t)MIN(most, s->size_bytes - s->bytes);

        if (n == 0 || (s->bytes > 0 && clock_now_ns() >= s->deadline_ns))
                return 0;
        *ret_offset = s->bytes;
        s->bytes += n;
        s->packets = DIV_ROUND_UP(s->bytes, s->payload_bytes);
        return n;
}

size_t path_header_encode(const struct path_packet *p, uint8_t to[static PATH_HEADER_MAX_BYTES])
{
        struct message_header h = {.cookie = COOKIE,
                                   .sender_role = ROLE_ROS,
                                   .type = MESSAGE_FRAGMENTS,
                                   .transaction = (uint32_t)p->number};
        uint64_t event = EVENT_FIRST + p->number;
        struct chunk c = {
                .event = event, .l1_id = (uint32_t)event, .fragment_bytes = p->length, .length = p->length};
        struct chunk_context k = chunk_context_begin(0);
        size_t n = chunk_encode(&k, &c, to + FRAGMENTS_HEADER_BYTES);

        to[FRAGMENTS_HEADER_BYTES] |= CHUNK_IS_LAST;
        fragments_header_encode(&h, to, n);
        return FRAGMENTS_HEADER_BYTES + n;
}

bool path_header_decode(struct chunk_reader *r, struct path_packet *ret)
{
        const uint8_t *payload;
        struct chunk c;

        if (!chunk_reader_next(r, &c, &payload) || c.event < EVENT_FIRST || c.length != c.fragment_bytes)
                return false;
        *ret = (struct path_packet){.number = c.event - EVENT_FIRST, .length = c.length};
        return true;
}

int path_failed(struct path_sender *s, const char *what)
{
        s->what = what;
        return -errno;
}

int path_moved(struct path_sender *s, const char *what, ssize_t n, size_t size)
{
        if (n >= 0 && (size_t)n == size)
                return 0;
        if (n >= 0)
                errno = EIO;
        return path_failed(s, what);
}

/* Compares received with sent data: every byte, and its position. Pure. */

/* Checks the bytes at the next position. */
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

/* Decodes a header. Returns its size; 0: it is incomplete or invalid. */
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
