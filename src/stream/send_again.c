/* Sends packets again that did not reach the receiver: reads their data from the source, at the rate of the
 * stream. */
#include <errno.h>
#include <string.h>

#include "base/util.h"
#include "send_threads.h"
#include "sys/loop.h"

/* Maximum number of packets in one send. */
#define AGAIN_MAX 64u
/* Maximum duration of a turn, because main also has the control connection and signals. */
#define TURN_NS (10 * NS_PER_MS)
/* Retry interval while the socket is full. */
#define FULL_NS NS_PER_MS
/* A receiver that requests more than this multiple of the stream loses nearly everything, or lies. */
#define REQUESTS_MAX 8u

int send_again_begin(struct send_again *a, struct send_threads *t, const json_t *message)
{
        const uint64_t total = t->rule.first + atomic_load(&t->packets);
        uint64_t packets;
        int r = gaps_decode(json_object_get(message, "ranges"), total, a->ranges, &a->n, &packets);

        if (r < 0)
                return r;
        if (a->requested + packets > REQUESTS_MAX * total + GAPS_REQUEST_PACKETS_MAX)
                return -EDQUOT;
        a->requested += packets;
        a->at = 0;
        spacing_start(&t->spacing, clock_now_ns() + t->lead_ns);
        return 0;
}

/* Makes n packets from number `first` on in the first slots of the ring. */
static int make_packets(struct send_threads *t, uint64_t first, uint32_t n)
{
        const uint32_t header = packet_header_bytes(&t->rule), most = t->rule.payload_bytes;
        const uint64_t bytes = t->rule.first * most + atomic_load(&t->bytes);

        for (uint32_t i = 0; i < n; i++) {
                uint64_t offset = (first + i) * most;
                uint32_t size = (uint32_t)MIN((uint64_t)most, bytes - MIN(offset, bytes));
                int r = stream_source_read_again(t->source, offset, slot_ring_at(&t->ring, i) + header, size);

                if (r < 0)
                        return r;
                packet_write(&t->rule, slot_ring_at(&t->ring, i), first + i - t->rule.first);
                *slot_ring_size(&t->ring, i) = size;
        }
        return 0;
}

static const char *read_failure(int error)
{
        return error == -ENODATA  ? "the file is shorter than the copy"
               : error == -ESTALE ? "the file was changed"
                                  : strerror(-error);
}

json_t *send_again_digests(const struct stream_offer *o, struct stream_source *source, const json_t *message,
                           uint64_t *compared)
{
        const json_t *first = json_object_get(message, "first"),
                     *packets = json_object_get(message, "packets");
        const json_int_t begin = json_integer_value(first), n = json_integer_value(packets);
        const uint32_t size = o->rule.payload_bytes;
        uint8_t bytes[PACKET_MAX_BYTES];
        json_t *list = json_array();
        int r = json_is_integer(first) && json_is_integer(packets) && n >= 1 &&
                                n <= SETUP_COMPARED_PACKETS_MAX && begin >= 0 &&
                                (uint64_t)begin >= *compared && begin <= INT64_MAX / size - n
                        ? 0
                        : -EBADMSG;

        for (json_int_t i = 0; r >= 0 && i < n; i++) {
                r = stream_source_read_again(source, (uint64_t)(begin + i) * size, bytes, size);
                if (r >= 0)
                        json_array_append_new(list, setup_digest(o, bytes, size));
        }
        if (r >= 0) {
                *compared = (uint64_t)(begin + n);
                return json_pack("{s:s, s:o}", "type", "digests", "digests", list);
        }
        json_decref(list);
        return json_pack("{s:s, s:s}", "type", "digests", "reason",
                         r == -EBADMSG ? "the request to compare is invalid" : read_failure(r));
}

int send_again_turn(struct send_again *a, struct send_threads *t, uint64_t *ret_ns)
{
        const uint64_t end_ns = clock_now_ns() + TURN_NS;

        while (a->at < a->n) {
                struct packet_range *range = &a->ranges[a->at];
                const uint64_t due_ns = spacing_due_ns(&t->spacing), now_ns = clock_now_ns();
                uint32_t n = (uint32_t)MIN(MIN(range->n, t->ring.slots), (uint64_t)AGAIN_MAX);
                uint64_t bytes = 0, first_ns = MAX(due_ns, now_ns);
                int r;

                if (now_ns >= end_ns || due_ns > now_ns + t->lead_ns) {
                        *ret_ns = MAX(due_ns - MIN(t->lead_ns, due_ns), now_ns);
                        return 0;
                }
                n = spacing_group(&t->spacing, n);
                r = make_packets(t, range->first, n);
                if (r >= 0)
                        r = send_threads_pass(t, 0, n, first_ns, &bytes);
                *ret_ns = now_ns + FULL_NS;
                if (r <= 0)
                        return r;
                spacing_sent(&t->spacing, first_ns, (uint32_t)r);
                a->packets += (uint64_t)r;
                range->first += (uint64_t)r;
                range->n -= (uint64_t)r;
                a->at += range->n == 0;
        }
        return 1;
}
