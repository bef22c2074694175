/* Tests packets of a file: their places, their headers, and what ends them. */
#include "../test.h"

#include "sys/loop.h"
#include "stream/paths/path_internal.h"

static struct path_sender sender(uint64_t size_bytes, uint32_t payload_bytes)
{
        return (struct path_sender){.wire = PATH_UDP,
                                    .file_bytes = size_bytes,
                                    .size_bytes = size_bytes,
                                    .payload_bytes = payload_bytes,
                                    .deadline_ns = NEVER_NS};
}

TEST(packets_cover_the_file)
{
        static const uint64_t sizes[] = {1, 1024, 1025, 100000, 102400};
        static const size_t most[] = {1, 5, 1000};

        for (size_t i = 0; i < ARRAY_SIZE(sizes) * ARRAY_SIZE(most); i++) {
                struct path_sender s = sender(sizes[i / 3], 1024);
                struct path_packet p[PATH_BATCH_MAX];
                uint64_t at = 0, number = 0;
                size_t n;

                while ((n = path_pop(&s, p, most[i % 3])) > 0) {
                        assert_true(n <= most[i % 3] && n <= PATH_BATCH_MAX);
                        for (size_t k = 0; k < n; k++) {
                                assert_fields(&p[k], number, number++, offset, at, length,
                                              MIN(1024, sizes[i / 3] - at));
                                at += p[k].length;
                        }
                }
                assert_int_equal(at, sizes[i / 3]);
                assert_fields(&s, bytes, at, packets, number);
                assert_int_equal(path_pop(&s, p, 1), 0);
        }
}

/* A batch of large packets has at most PATH_BATCH_BYTES; a packet alone may have more. */
TEST(batches_are_bounded)
{
        struct path_sender s = sender(1 << 20, 8192), large = sender(1 << 20, PATH_PAYLOAD_MAX_BYTES);
        struct path_packet p[PATH_BATCH_MAX];

        assert_int_equal(path_pop(&s, p, PATH_BATCH_MAX), PATH_BATCH_BYTES / 8192);
        assert_int_equal(path_pop(&large, p, PATH_BATCH_MAX), 1);
}

TEST(a_stream_is_taken_by_bytes)
{
        struct path_sender s = sender(10000, 1024);
        uint64_t offset;

        assert_int_equal(path_pop_bytes(&s, 8192, &offset), 8192);
        assert_int_equal(offset, 0);
        assert_int_equal(path_pop_bytes(&s, 8192, &offset), 1808);
        assert_int_equal(offset, 8192);
        assert_int_equal(s.packets, 10);
        assert_int_equal(path_pop_bytes(&s, 8192, &offset), 0);
}

TEST(the_deadline_ends_a_pass)
{
        struct path_sender s = sender(UINT64_C(1) << 40, 1024);
        struct path_packet p;
        uint64_t offset;
        size_t n = 1;

        assert_int_equal(path_pop(&s, &p, 1), 1);
        s.deadline_ns = clock_now_ns() + NS_PER_MS;
        while (path_pop(&s, &p, 1) > 0)
                n++;
        assert_true(s.bytes == n * 1024 && s.ended);
        assert_int_equal(path_pop_bytes(&s, 1024, &offset), 0);
}

TEST(a_pass_that_begins_late_has_a_packet)
{
        struct path_sender s = sender(UINT64_C(1) << 40, 1024);
        struct path_packet p;
        uint64_t offset;

        s.deadline_ns = 1;
        assert_int_equal(path_pop(&s, &p, 1), 1);
        assert_int_equal(path_pop(&s, &p, 1), 0);
        s.bytes = 0;
        assert_int_equal(path_pop_bytes(&s, 1024, &offset), 1024);
        assert_int_equal(path_pop_bytes(&s, 1024, &offset), 0);
}

/* With a receiver's progress, no more is under way than a batch. */
TEST(a_sender_waits_for_its_receiver)
{
        struct path_sender s = sender(1 << 20, 1024);
        struct path_shared shared = {};
        struct path_packet p[PATH_BATCH_MAX];

        s.shared = &shared;
        assert_int_equal(path_pop(&s, p, PATH_BATCH_MAX), PATH_BATCH_MAX);
        atomic_store(&shared.received_packets, PATH_BATCH_MAX);
        assert_int_equal(path_pop(&s, p, PATH_BATCH_MAX), PATH_BATCH_MAX);
        /* Nothing more arrives: the deadline ends the wait. */
        s.deadline_ns = clock_now_ns() + NS_PER_MS;
        (void)path_pop(&s, p, PATH_BATCH_MAX);
        assert_int_equal(path_pop(&s, p, PATH_BATCH_MAX), 0);
}

/* As the segments of a super-packet must be. */
TEST(headers_are_equally_long)
{
        static const uint64_t numbers[] = {0, 1, 63, 64, 8191, 1 << 20, (1 << 26) - 1};
        uint8_t header[PATH_HEADER_MAX_BYTES];
        size_t size;

        size = path_header_encode(&(struct path_packet){.length = 1024}, header);
        assert_true(size > FRAGMENTS_HEADER_BYTES && size < PATH_HEADER_MAX_BYTES);
        for (size_t i = 0; i < ARRAY_SIZE(numbers); i++) {
                struct path_packet p = {.number = numbers[i], .length = 1024}, back;
                struct chunk_reader r;

                assert_int_equal(path_header_encode(&p, header), size);
                assert_int_equal(chunk_reader_begin(&r, header, size, path_cookie()), MESSAGE_OK);
                assert_int_equal(r.head_bytes, size);
                assert_true(path_header_decode(&r, &back));
                assert_fields(&back, number, p.number, length, p.length);
        }
}
