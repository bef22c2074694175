/* Numbers of triggers: counters in frames, and their extension across wraps. */
#include "../test.h"

#include "base/random.h"
#include "protocol/number.h"

static const unsigned widths[] = {1, 5, 15, 16, 24, 32, 64};

/* What is written is read, and no bit changes except those of the field. */
static void assert_written(const struct number_field *field)
{
        static const uint64_t numbers[] = {0, 1, 0x5a5a5a5a5a5a5a5a, UINT64_MAX};
        uint64_t most = field->bits < 64 ? (UINT64_C(1) << field->bits) - 1 : UINT64_MAX, value;

        for (size_t i = 0; i < ARRAY_SIZE(numbers); i++) {
                uint8_t zeros[16] = {}, ones[16];
                unsigned changed = 0;

                memset(ones, 0xff, sizeof ones);
                number_write(field, numbers[i], zeros);
                number_write(field, numbers[i], ones);
                assert_true(number_read(field, zeros, sizeof zeros, &value) && value == (numbers[i] & most));
                assert_true(number_read(field, ones, sizeof ones, &value) && value == (numbers[i] & most));
                for (size_t k = 0; k < sizeof zeros; k++)
                        changed += (unsigned)__builtin_popcount((unsigned)(zeros[k] ^ ones[k]));
                assert_int_equal(changed, 8 * sizeof zeros - field->bits);
        }
}

static const struct {
        struct number_field field;
        uint64_t value;
} cases[] = {
        {{1, 16, false}, 0x0201},
        {{1, 16, true}, 0x0102},
        {{1, 24, false}, 0x030201},
        {{1, 24, true}, 0x010203},
        {{1, 32, false}, 0x04030201},
        {{1, 32, true}, 0x01020304},
        {{0, 16, false}, 0x01ff},
        {{1, 64, false}, UINT64_C(0x0807060504030201)},
        {{7, 16, true}, 0x0708},
        {{1, 64, true}, UINT64_C(0x0102030405060708)},
        {{1, 8}, 0x01},
        {{1, 15, true}, 0x0102 >> 1},
        {{1, 12, .bit = 4}, 0x020},
        {{1, 12, true, 4}, 0x102},
        {{0, 28}, 0x30201ff},
        {{0, 28, true, 4}, 0xf010203},
        {{7, 5, .bit = 3}, 0},
        {{7, 1, true, 7}, 1},
        {{0, 64, .bit = 7}, UINT64_C(0x100e0c0a08060403)},
};

TEST_EACH(a_counter_is_read_at_its_place, i, ARRAY_SIZE(cases))
{
        static const uint8_t frame[] = {0xff, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08};
        uint64_t value;
        size_t end = number_field_end(&cases[i].field);

        assert_true(number_read(&cases[i].field, frame, sizeof frame, &value));
        assert_true(value == cases[i].value);
        assert_true(number_read(&cases[i].field, frame, end, &value));
        assert_false(number_read(&cases[i].field, frame, end - 1, &value));
        assert_written(&cases[i].field);
}

TEST(the_nearest_number_is_taken)
{
        assert_int_equal(number_extend(0xfffe, 16, 0x20001), 0x1fffe);
        assert_int_equal(number_extend(0x0003, 16, 0x1fffe), 0x20003);
        assert_int_equal(number_extend(0x7fff, 16, 0x10000), 0x17fff);
        assert_int_equal(number_extend(0x8000, 16, 0x10000), 0x8000); /* two are as near */
        assert_int_equal(number_extend(0xffffff, 24, 0x1000000), 0xffffff);
        assert_int_equal(number_extend(0, 32, UINT32_MAX), UINT64_C(1) << 32);
        assert_true(number_extend(7, 64, UINT64_MAX) == 7);
        /* No number is below 0. */
        assert_int_equal(number_extend(0xffff, 16, 5), 0xffff);
        assert_int_equal(number_extend(0xffff, 16, 0), 0xffff);
        assert_int_equal(number_extend(0x8000, 16, 0), 0x8000);
        /* Bits above the width do not count. */
        assert_int_equal(number_extend(0xabc0003, 16, 0x1fffe), 0x20003);
}

TEST(a_field_is_written_as_it_is_read)
{
        static const char *const right[] = {"0:32", "4:64:be", "65535.7:1", "0.4:12:be"};
        static const char *const wrong[] = {
                "",       "4",       "4:",   "4:0",       "4:65", ":32",     "-1:8",
                "0.64:8", "65536:8", "0.:8", "65535.8:8", "4: 8", "0.1.2:8", "99999999999999999999:32"};
        char text[NUMBER_FIELD_TEXT_MAX];
        struct number_field f;

        for (size_t i = 0; i < ARRAY_SIZE(right); i++) {
                assert_string_equal(number_field_parse(&f, right[i]), "");
                assert_string_equal(number_field_format(&f, text), right[i]);
        }
        for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
                assert_null(number_field_parse(&f, wrong[i]));
        assert_string_equal(number_field_parse(&f, "8.12:20 mod 5"), " mod 5");
        f.modulus = 5;
        assert_string_equal(number_field_format(&f, text), "9.4:20 mod 5");
        assert_int_equal(number_field_period(&f), 5);
        f = (struct number_field){.bits = 15};
        assert_int_equal(number_field_period(&f), 32768);
        f.bits = 64;
        assert_true(number_field_period(&f) == NUMBER_PERIOD_MAX);
        f.bits = 0;
        assert_int_equal(number_field_period(&f), 0);
}

/* A counter that starts over after any number of values, as far from `near` as half of them. */
static const uint64_t periods[] = {2, 3, 1000, 3564, 32768, 1000003, NUMBER_PERIOD_MAX};

TEST_EACH(every_period_is_extended, i, ARRAY_SIZE(periods))
{
        uint64_t p = periods[i], half = (p - 1) / 2;

        for (uint64_t near = 7 * p; near < 7 * p + MIN(p, (uint64_t)5000); near++) {
                assert_true(number_nearest((near + half) % p, p, near) == near + half);
                assert_true(number_nearest((near - half) % p + p, p, near) == near - half);
        }
        assert_int_equal(number_nearest(p - 1, p, 0), p - 1);
}

/* A counter that follows its own numbers, with steps to and fro, never loses its place. */
TEST_EACH(numbers_survive_every_wrap, w, ARRAY_SIZE(widths))
{
        struct random random;
        unsigned bits = widths[w];
        uint64_t mask = bits == 64 ? UINT64_MAX : (UINT64_C(1) << bits) - 1;
        uint64_t span = (mask / 2) < (UINT64_C(1) << 40) ? mask / 2 : UINT64_C(1) << 40;

        random_init(&random, bits);
        for (uint64_t i = 0, near = 0; i < 100000; i++) {
                uint64_t number = near + random_below(&random, span + 1);

                if (random_below(&random, 4) == 0)
                        number = near - random_below(&random, (near < span ? near : span) + 1);
                assert_true(number_extend(number & mask, bits, near) == number);
                near = number;
        }
}
