/* The histogram and the seeded generator. */
#include "../test.h"

#include <math.h>

#include "base/histogram.h"
#include "base/random.h"

TEST(histogram_counts)
{
        static struct histogram h, other;

        histogram_init(&h);
        assert_int_equal(histogram_quantile(&h, 0.5), 0);
        for (uint64_t i = 0; i < 64; i++)
                histogram_add(&h, i, 1);
        assert_int_equal(histogram_quantile(&h, 0.5), 31);
        assert_int_equal(histogram_quantile(&h, 1), 63);
        assert_int_equal(histogram_quantile(&h, 0), 0);

        histogram_init(&other);
        for (uint64_t v = 1000; v < 2000000; v += 1000)
                histogram_add(&other, v, 2);
        for (double q = 0.01; q < 1; q += 0.01) {
                double wanted = q * 1999000, got = (double)histogram_quantile(&other, q);

                assert_true(got >= wanted * 0.999 && got <= wanted * 1.035 + 1000);
        }
        assert_int_equal(histogram_quantile(&other, 1), 1999000);
        histogram_merge(&h, &other);
        assert_fields(&h, count, 64 + 2 * 1999, min, 0, max, 1999000);
        histogram_add(&h, UINT64_MAX, 1);
        assert_int_equal(histogram_quantile(&h, 1), UINT64_MAX);
}

TEST(random_is_the_same_everywhere)
{
        struct random a, b;

        random_init(&a, 42);
        random_init(&b, 42);
        for (int i = 0; i < 1000; i++)
                assert_int_equal(random_next(&a), random_next(&b));
        random_init(&b, 43);
        assert_int_not_equal(random_next(&a), random_next(&b));
        assert_int_equal(random_mix(0),
                         UINT64_C(0xE220A8397B1DCDAF)); /* splitmix64's first output for seed 0 */
}

TEST(random_distributions)
{
        enum { N = 200000 };
        double exponential = 0, normal = 0, square = 0, unit = 0;
        uint64_t buckets[7] = {};
        struct random r;

        random_init(&r, 7);
        for (int i = 0; i < N; i++) {
                double x = random_normal(&r);

                exponential += random_exponential(&r);
                normal += x;
                square += x * x;
                unit += random_unit(&r);
                buckets[random_below(&r, 7)]++;
        }
        assert_true(fabs(exponential / N - 1) < 0.01);
        assert_true(fabs(normal / N) < 0.01 && fabs(square / N - 1) < 0.02);
        assert_true(fabs(unit / N - 0.5) < 0.005);
        for (int i = 0; i < 7; i++)
                assert_true(fabs((double)buckets[i] / N * 7 - 1) < 0.03);
        assert_int_equal(random_below(&r, 0), 0);
        assert_int_equal(random_below(&r, 1), 0);
}
