/* Tests the receiver's check: it accepts what was sent, however a stream is divided, and nothing else. */
#include "../test.h"

#include "base/pattern.h"
#include "stream/paths/path_internal.h"

#define PAYLOAD 1024u
#define PACKETS 5u
#define LAST 100u /* bytes of the last packet */
#define SIZE ((PACKETS - 1) * PAYLOAD + LAST)

/* The packets of a file one after another; ends[k] is the end of packet k. */
static size_t make(uint8_t *to, bool headers, size_t ends[static PACKETS])
{
        size_t n = 0;

        for (unsigned i = 0; i < PACKETS; i++) {
                struct path_packet p = {
                        .number = i, .offset = i * PAYLOAD, .length = i + 1 < PACKETS ? PAYLOAD : LAST};

                if (headers)
                        n += path_header_encode(&p, to + n);
                pattern_fill(pattern_key(0, 0, 0), to + n, p.offset, p.length);
                n += p.length;
                ends[i] = n;
        }
        return n;
}

static struct path_check fresh(bool headers)
{
        return (struct path_check){.headers = headers, .payload_bytes = PAYLOAD};
}

static uint8_t bytes[2 * PACKETS * PAYLOAD];
static size_t ends[PACKETS];

TEST_EACH(datagrams_are_accepted, headers, 2)
{
        struct path_check c = fresh(headers);

        make(bytes, headers, ends);
        for (size_t i = 0, at = 0; i < PACKETS; at = ends[i++])
                path_check_datagram(&c, bytes + at, ends[i] - at);
        assert_false(c.broken);
        assert_fields(&c, bytes, SIZE, packets, PACKETS);
}

TEST_EACH(every_wrong_datagram_is_noticed, headers, 2)
{
        size_t first;

        make(bytes, headers, ends);
        first = ends[0];
        for (size_t i = 0; i < first; i++) {
                struct path_check c = fresh(headers);

                bytes[i] ^= 1;
                path_check_datagram(&c, bytes, first);
                bytes[i] ^= 1;
                assert_true(c.broken);
                assert_int_equal(c.packets, 0);
        }
}

/* The payload that is next, with the header of another packet. */
TEST(a_header_must_fit_its_payload)
{
        struct path_packet p = {.number = 1, .length = PAYLOAD};
        struct path_check c = fresh(true);
        size_t n = path_header_encode(&p, bytes);

        pattern_fill(pattern_key(0, 0, 0), bytes + n, 0, PAYLOAD);
        path_check_datagram(&c, bytes, n + PAYLOAD);
        assert_true(c.broken);
}

/* One is lost, comes twice, is cut off, or has more bytes than it should. */
TEST(datagrams_out_of_order_are_noticed)
{
        struct path_check lost = fresh(true), twice = fresh(true), short_one = fresh(true),
                          long_one = fresh(true);

        make(bytes, true, ends);
        path_check_datagram(&lost, bytes, ends[0]);
        path_check_datagram(&lost, bytes + ends[1], ends[2] - ends[1]);
        assert_true(lost.broken);
        path_check_datagram(&twice, bytes, ends[0]);
        path_check_datagram(&twice, bytes, ends[0]);
        assert_true(twice.broken);
        path_check_datagram(&short_one, bytes, ends[0] - 1);
        assert_true(short_one.broken);
        path_check_datagram(&long_one, bytes, ends[0] + 1);
        assert_true(long_one.broken);
        /* What follows does not make up for it. */
        path_check_datagram(&long_one, bytes, ends[0]);
        assert_int_equal(long_one.packets, 0);
}

/* Feeds the stream in parts of `step` bytes, as a receiver does: what is not used comes again. */
static struct path_check feed(bool headers, const uint8_t *stream, size_t n, size_t step, size_t *ret_held)
{
        struct path_check c = fresh(headers);
        size_t begin = 0, end = 0;

        while (end < n) {
                end = MIN(n, end + step);
                begin += path_check_stream(&c, stream + begin, end - begin);
        }
        *ret_held = end - begin;
        return c;
}

TEST_EACH(a_stream_is_accepted_in_any_parts, headers, 2)
{
        static const size_t steps[] = {1, 7, 19, 27, 28, 1000, 1051, 100000};
        size_t n = make(bytes, headers, ends), held;

        for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
                struct path_check c = feed(headers, bytes, n, steps[i], &held);

                assert_false(c.broken);
                assert_fields(&c, bytes, SIZE, left, 0);
                assert_int_equal(held, 0);
                if (headers)
                        assert_int_equal(c.packets, PACKETS);
        }
}

TEST(a_wrong_stream_is_noticed)
{
        size_t n = make(bytes, true, ends), held;

        for (size_t i = 0; i < n; i += 13) {
                struct path_check c;

                bytes[i] ^= 0x10;
                c = feed(true, bytes, n, 500, &held);
                bytes[i] ^= 0x10;
                assert_true(c.broken);
                assert_true(c.bytes < SIZE);
        }
        /* Its end is missing. */
        assert_true(feed(true, bytes, n - 1, 500, &held).left > 0);
        feed(true, bytes, ends[0] + 10, 500, &held);
        assert_int_equal(held, 10);
}
