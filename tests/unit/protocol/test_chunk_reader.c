/* Reads data messages whose bytes are made by hand or at random. */
#include "../test.h"

#include "base/random.h"
#include "protocol/chunk.h"

#define COOKIE UINT64_C(0x123456789ABCDEF0)
#define ROS 7

static const struct message_header header = {
        .cookie = COOKIE, .sender_role = ROLE_ROS, .sender_index = ROS, .type = MESSAGE_FRAGMENTS};

/* A message with this directory and no payload. */
static enum message_verdict read_directory(struct chunk_reader *r, const uint8_t *directory, size_t n)
{
        uint8_t bytes[FRAGMENTS_HEAD_MAX_BYTES + CHUNK_ENTRY_MAX_BYTES];
        enum message_verdict v;

        memcpy(bytes + FRAGMENTS_HEADER_BYTES, directory, n);
        fragments_header_encode(&header, bytes, n);
        v = chunk_reader_begin(r, bytes, FRAGMENTS_HEADER_BYTES + n, COOKIE);
        memset(bytes, 0xff, sizeof bytes);
        return v;
}

/* The reader keeps what it decoded: its bytes may be reused. */
TEST(entries_without_fields_repeat_the_one_before)
{
        /* Fragments of 64 bytes. Differences of event numbers are coded as twice their value. */
        static const uint8_t directory[] = {
                CHUNK_HAS_EVENT | CHUNK_HAS_SIZE, 20, 64, 0, CHUNK_HAS_EVENT, 8, 0, CHUNK_IS_LAST};
        static const uint64_t events[] = {10, 11, 15, 19, 23};
        struct chunk_reader r;
        const uint8_t *none;
        struct chunk c;

        assert_int_equal(read_directory(&r, directory, sizeof directory), MESSAGE_OK);
        assert_int_equal(r.header.payload_bytes, 5 * 64);
        for (size_t i = 0; i < ARRAY_SIZE(events); i++) {
                assert_true(chunk_reader_next(&r, &c, &none));
                assert_null(none);
                assert_fields(&c, event, events[i], l1_id, events[i], fragment_bytes, 64, offset, 0, length,
                              64, order, ROS);
        }
        assert_false(chunk_reader_next(&r, &c, &none));
}

TEST(too_many_entries_are_refused)
{
        uint8_t plain[CHUNKS_MAX + 1] = {}, sized[2 * (CHUNKS_MAX + 1)];
        struct chunk_reader r;

        for (size_t i = 0; i <= CHUNKS_MAX; i++) {
                sized[2 * i] = CHUNK_HAS_SIZE;
                sized[2 * i + 1] = (uint8_t)(1 + i % 100);
        }
        plain[CHUNKS_MAX] = CHUNK_IS_LAST;
        sized[2 * (size_t)CHUNKS_MAX] |= CHUNK_IS_LAST;
        assert_int_equal(read_directory(&r, plain, CHUNKS_MAX + 1), MESSAGE_MALFORMED);
        assert_int_equal(read_directory(&r, plain + 1, CHUNKS_MAX), MESSAGE_OK);
        assert_int_equal(r.n, CHUNKS_MAX);
        assert_int_equal(read_directory(&r, sized, sizeof sized), MESSAGE_MALFORMED);
        assert_int_equal(read_directory(&r, sized + 2, sizeof sized - 2), MESSAGE_OK);
        assert_int_equal(r.n, CHUNKS_MAX);
}

TEST(an_entry_without_fields_never_reaches_the_last_number)
{
        /* Event -2, as a difference from 0; the next one is expected one further. */
        static const uint8_t directory[] = {CHUNK_HAS_EVENT, 3, CHUNK_IS_LAST};
        struct chunk_reader r;

        assert_int_equal(read_directory(&r, directory, sizeof directory), MESSAGE_MALFORMED);
}

/* Corrects the check word of a message, so that its directory alone decides. */
static void forge_check(uint8_t *bytes, size_t n)
{
        for (size_t size = 0; size <= n - FRAGMENTS_HEADER_BYTES; size++) {
                struct message_header h = header;
                struct chunk_reader r;
                struct reader in = reader_init(bytes + 8, 8);

                h.transaction = reader_u32(&in);
                h.queued_bytes = reader_u32(&in);
                fragments_header_encode(&h, bytes, size);
                if (chunk_reader_begin(&r, bytes, n, COOKIE) == MESSAGE_OK)
                        return;
        }
}

/* Random bytes never lead out of the datagram, and what is accepted is consistent. */
TEST(random_bytes_do_no_harm)
{
        uint64_t accepted = 0;
        struct random r;

        random_init(&r, 23);
        for (int round = 0; round < 200000; round++) {
                size_t n = FRAGMENTS_HEADER_BYTES + random_below(&r, 60);
                uint8_t *bytes = malloc(n); /* its end is the end of its memory */
                struct chunk_reader reader;
                const uint8_t *at;
                struct chunk c;

                for (size_t i = 0; i < n; i++)
                        bytes[i] = (uint8_t)(random_below(&r, 3) ? random_below(&r, 4) : random_next(&r));
                if (n > FRAGMENTS_HEADER_BYTES && random_below(&r, 2))
                        bytes[FRAGMENTS_HEADER_BYTES] |= CHUNK_IS_LAST;
                if (random_below(&r, 2) == 0)
                        forge_check(bytes, n);
                if (chunk_reader_init(&reader, bytes, n, COOKIE) == MESSAGE_OK) {
                        accepted++;
                        while (chunk_reader_next(&reader, &c, &at)) {
                                assert_true(at >= bytes && at + c.length <= bytes + n);
                                assert_true(c.offset + c.length <= c.fragment_bytes);
                                assert_true(c.offset % EVB_BLOCK_BYTES == 0 && c.event != UINT64_MAX);
                        }
                        assert_true(reader.payload <= bytes + n);
                }
                free(bytes);
        }
        assert_true(accepted > 100);
}
