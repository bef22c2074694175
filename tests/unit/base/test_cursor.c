/* Cursors: little-endian on every machine, and never beyond the end. */
#include "../test.h"

#include "base/cursor.h"
#include "base/random.h"

static const uint8_t wire[] = {0x01, 0x03, 0x02, 0x07, 0x06, 0x05, 0x04, 0x0f,
                               0x0e, 0x0d, 0x0c, 0x0b, 0x0a, 0x09, 0x08};

TEST(bytes_are_little_endian)
{
        struct reader r = reader_init(wire, sizeof wire);
        uint8_t out[sizeof wire];
        struct writer w = writer_init(out, sizeof out);

        assert_int_equal(reader_u8(&r), 0x01);
        assert_int_equal(reader_u16(&r), 0x0203);
        assert_int_equal(reader_u32(&r), 0x04050607);
        assert_int_equal(reader_u64(&r), UINT64_C(0x08090a0b0c0d0e0f));
        assert_true(reader_left(&r) == 0 && !r.failed);
        writer_u8(&w, 0x01);
        writer_u16(&w, 0x0203);
        writer_u32(&w, 0x04050607);
        writer_u64(&w, UINT64_C(0x08090a0b0c0d0e0f));
        assert_true(writer_left(&w) == 0 && !w.failed);
        assert_memory_equal(out, wire, sizeof wire);
}

TEST(a_failed_reader_gives_nothing)
{
        struct reader r = reader_init(wire, 3);

        assert_int_equal(reader_u16(&r), 0x0301);
        assert_int_equal(reader_u16(&r), 0);
        assert_true(r.failed);
        /* Not even a field that would fit: it would be read from the wrong position. */
        assert_int_equal(reader_u8(&r), 0);
        assert_null(reader_consume(&r, 0));
        assert_null(reader_consume(&r, SIZE_MAX));
        assert_int_equal(reader_left(&r), 1);
}

TEST(a_failed_writer_writes_nothing)
{
        uint8_t out[4] = {9, 9, 9, 9};
        struct writer w = writer_init(out, 3);

        writer_u16(&w, 0x0201);
        writer_u64(&w, UINT64_MAX);
        assert_true(w.failed);
        writer_u8(&w, 3);
        assert_null(writer_reserve(&w, 1));
        assert_memory_equal(out, ((uint8_t[]){1, 2, 9, 9}), 4);
}

TEST(bytes_are_accessed_in_place)
{
        struct reader r = reader_init(wire, 5), none = reader_init(NULL, 0);
        uint8_t out[2];
        struct writer w = writer_init(out, sizeof out);

        assert_ptr_equal(reader_consume(&r, 0), wire);
        assert_ptr_equal(reader_consume(&r, 5), wire);
        assert_ptr_equal(reader_consume(&r, 0), wire + 5);
        assert_null(reader_consume(&r, 1));
        assert_int_equal(reader_u32(&none), 0);
        assert_true(none.failed);
        assert_ptr_equal(writer_reserve(&w, 2), out);
        assert_true(writer_left(&w) == 0 && !w.failed);
}

/* Fields of random width in an array of random size on the heap, where the sanitizer checks its ends. */
TEST(written_fields_read_back)
{
        struct random random, widths, again;

        random_init(&random, 3);
        for (int round = 0; round < 2000; round++) {
                size_t size = 1 + random_below(&random, 60);
                _cleanup_free_ uint8_t *bytes = malloc(size);
                struct writer w = writer_init(bytes, size);

                random_init(&widths, (uint64_t)round);
                again = widths;
                while (!w.failed) {
                        uint64_t v = random_next(&widths);

                        (v & 3) == 0   ? writer_u8(&w, (uint8_t)v)
                        : (v & 3) == 1 ? writer_u16(&w, (uint16_t)v)
                        : (v & 3) == 2 ? writer_u32(&w, (uint32_t)v)
                                       : writer_u64(&w, v);
                }
                struct reader r = reader_init(bytes, size);

                for (;;) {
                        uint64_t v = random_next(&again), got = (v & 3) == 0   ? reader_u8(&r)
                                                                : (v & 3) == 1 ? reader_u16(&r)
                                                                : (v & 3) == 2 ? reader_u32(&r)
                                                                               : reader_u64(&r);
                        if (r.failed)
                                break;
                        assert_int_equal(got, (v & 3) == 3 ? v : v & ((UINT64_C(1) << (8 << (v & 3))) - 1));
                }
                assert_int_equal(reader_left(&r), writer_left(&w));
        }
}
