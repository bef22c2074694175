/* The times of processors, from texts as the kernel writes them. */
#include "../test.h"

#include "sys/machine_watch.h"

TEST(it_reads_each_processor)
{
        static const char text[] = "cpu  30 3 7 500 20 1 6 2 0 0\n"
                                   "cpu0 10 1 3 200 10 0 5 1 0 0\n"
                                   "cpu7 20 2 4 300 10 1 1 1 0 0\n"
                                   "intr 12345 0 0\n";
        static struct processors p;

        assert_int_equal(processors_parse(&p, text), 0);
        assert_int_equal(p.n, 2);
        assert_int_equal(p.each[1].number, 7);
        assert_int_equal(p.each[1].ticks[PROCESSOR_USER], 22);
        assert_int_equal(p.each[1].ticks[PROCESSOR_SYSTEM], 4);
        assert_int_equal(p.each[0].ticks[PROCESSOR_SOFTIRQ], 5);
        assert_int_equal(p.each[0].ticks[PROCESSOR_STEAL], 1);
}

TEST(other_texts_are_rejected)
{
        static const char *const texts[] = {
                "",
                "\n\n",
                "cpu",
                "cpu 1 2 3 4 5 6 7 8\n",
                "cpu  30 3 7 500 20 1 6 2 0 0\nintr 1\n",
                "cpu0",
                "cpu0 1 2 3 4 5 6 7\n",
                "cpux 1 2 3 4 5 6 7 8",
                "intr 1 2 3\n",
        };
        static struct processors p = {.n = 42};

        for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
                assert_int_equal(processors_parse(&p, texts[i]), -EBADMSG);
        assert_int_equal(p.n, 42);
}

TEST(shares_add_up)
{
        const struct processor_times begin = {0, {10, 10, 10, 10, 10, 10, 10}},
                                     end = {0, {20, 40, 60, 5, 10, 10, 20}};
        double percent[PROCESSOR_USES], sum = 0;

        processor_shares(&begin, &end, percent);
        for (size_t i = 0; i < PROCESSOR_USES; i++)
                sum += percent[i];
        assert_true(sum > 99.999 && sum < 100.001);
        assert_true(percent[PROCESSOR_IDLE] > 49.9 && percent[PROCESSOR_IDLE] < 50.1);
        /* It went back, as the kernel says it may. */
        assert_true(percent[PROCESSOR_IOWAIT] == 0);
        processor_shares(&begin, &begin, percent);
        assert_true(percent[PROCESSOR_IDLE] == 0);
}

TEST(this_machine_has_processors)
{
        static struct processors p;

        assert_int_equal(processors_read(&p), 0);
        assert_true(p.n >= 1);
}
