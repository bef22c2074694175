/* Parsing and formatting of quantities. */
#include "../test.h"

#include <math.h>

#include "base/quantity.h"

typedef int (*parse_fn)(const char *, uint64_t *);

struct good {
        parse_fn parse;
        const char *text;
        uint64_t value;
};

TEST(quantities_are_parsed)
{
        static const struct good good[] = {
                {quantity_parse_bytes, "0", 0},
                {quantity_parse_bytes, "1500", 1500},
                {quantity_parse_bytes, "64KiB", 65536},
                {quantity_parse_bytes, " 1.5 MiB ", 1572864},
                {quantity_parse_bytes, "2MB", 2000000},
                {quantity_parse_bytes, "1kB", 1000},
                {quantity_parse_bytes, "18446744073709551615", UINT64_MAX},
                {quantity_parse_rate, "1Gbit", 1000000000},
                {quantity_parse_rate, "1.5Gbit/s", 1500000000},
                {quantity_parse_rate, "400Gbit", UINT64_C(400000000000)},
                {quantity_parse_time, "250us", 250000},
                {quantity_parse_time, "0", 0},
                {quantity_parse_time, "0.5s", 500000000},
                {quantity_parse_time, "2min", UINT64_C(120000000000)},
                {quantity_parse_frequency, "5kHz", 5000000},
                {quantity_parse_frequency, "3", 3000},
                {quantity_parse_frequency, "250mHz", 250},
                {quantity_parse_frequency, " 250mHz ", 250},
                {quantity_parse_frequency, "1.5MHz", 1500000000},
                {quantity_parse_count, "1000000", 1000000},
                {quantity_parse_count, "2M", 2000000},
        };

        for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
                uint64_t value = 12345;

                if (good[i].parse(good[i].text, &value) != 0 || value != good[i].value)
                        fail_msg("\"%s\" is read as %llu", good[i].text, (unsigned long long)value);
        }
}

static const struct good bad[] = {
        {quantity_parse_bytes, "", 0},
        {quantity_parse_bytes, "x", 0},
        {quantity_parse_bytes, "1 furlong", 0},
        {quantity_parse_bytes, "-1", 0},
        {quantity_parse_bytes, "1.5", 0},
        {quantity_parse_bytes, "1KiB2", 0},
        {quantity_parse_bytes, "0.3B", 0},
        {quantity_parse_bytes, ".", 0},
        {quantity_parse_bytes, "1..5kB", 0},
        {quantity_parse_rate, "1MB", 0},
        {quantity_parse_time, "5", 0},
        {quantity_parse_time, "1 h 2", 0},
        {quantity_parse_count, "1KiB", 0},
        {quantity_parse_frequency, "1s", 0},
        {quantity_parse_bytes, "18446744073709551616", 0},
        {quantity_parse_bytes, "99999999TiB", 0},
};

TEST_EACH(invalid_quantities_are_rejected, i, ARRAY_SIZE(bad))
{
        uint64_t value = 12345;
        int r = bad[i].parse(bad[i].text, &value);

        if ((r != -EINVAL && r != -ERANGE) || value != 12345)
                fail_msg("\"%s\" is taken as %llu", bad[i].text, (unsigned long long)value);
}

TEST(fractions_are_parsed)
{
        double value;

        assert_int_equal(quantity_parse_fraction("0.02", &value), 0);
        assert_true(value == 0.02);
        assert_int_equal(quantity_parse_fraction("2%", &value), 0);
        assert_true(value == 0.02);
        assert_int_equal(quantity_parse_fraction("1", &value), 0);
        assert_int_equal(quantity_parse_fraction("1.01", &value), -ERANGE);
        assert_int_equal(quantity_parse_fraction("-0.1", &value), -EINVAL);
        assert_int_equal(quantity_parse_fraction("2%%", &value), -EINVAL);
}

TEST(lists_are_parsed)
{
        unsigned list[8];
        size_t n;

        assert_int_equal(quantity_parse_list("2-5,8, 3", 16, list, ARRAY_SIZE(list), &n), 0);
        assert_int_equal(n, 5);
        assert_memory_equal(list, ((unsigned[]){2, 3, 4, 5, 8}), 5 * sizeof *list);
        assert_int_equal(quantity_parse_list("16", 16, list, ARRAY_SIZE(list), &n), -EINVAL);
        assert_int_equal(quantity_parse_list("5-2", 16, list, ARRAY_SIZE(list), &n), -EINVAL);
        assert_int_equal(quantity_parse_list("", 16, list, ARRAY_SIZE(list), &n), -EINVAL);
        assert_int_equal(quantity_parse_list("1,", 16, list, ARRAY_SIZE(list), &n), -EINVAL);
        assert_int_equal(quantity_parse_list("0-8", 16, list, ARRAY_SIZE(list), &n), -ERANGE);
}

TEST(quantities_are_formatted)
{
        char text[QUANTITY_TEXT_MAX];

        assert_string_equal(quantity_format_bytes(999, text), "999 B");
        assert_string_equal(quantity_format_bytes(118000000, text), "118 MB");
        assert_string_equal(quantity_format_rate(UINT64_C(52400000000), text), "52.4 Gbit/s");
        assert_string_equal(quantity_format_time(1250000, text), "1.25 ms");
        assert_string_equal(quantity_format_count(5, text), "5");
        assert_string_equal(quantity_format_count(1900000, text), "1.90 M");
        assert_string_equal(quantity_format_real(2.5, "Hz", text), "2.5 Hz");
        assert_string_equal(quantity_format_real(999.4, "", text), "999");
        assert_string_equal(quantity_format_real(999.6, "B", text), "1 kB");
        assert_string_equal(quantity_format_real(3.984e6, "", text), "3.98 M");
        assert_string_equal(quantity_format_real(0, "B/s", text), "0 B/s");
        assert_string_equal(quantity_format_real(1e-7, "Hz", text), "0 Hz");
        assert_string_equal(quantity_format_real(NAN, "Hz", text), "-");
        assert_string_equal(quantity_format_real(1e300, "", text), "1e+285 P");
}
