/* What texts say, where relative paths start, and keys that do not fit each other. */
#include "conf_sample.h"

static void test_sources(void **state)
{
        assert_int_equal(sample_set("ros.source=pattern"), 0);
        assert_int_equal(sample.ros.source_kind, SOURCE_PATTERN);
        assert_int_equal(sample_set("ros.source=file:/data/run.raw"), 0);
        assert_int_equal(sample.ros.source_kind, SOURCE_FILE);
        assert_string_equal(sample.ros.source_at, "/data/run.raw");
        assert_int_equal(sample_set("ros.source=udp:5000"), 0);
        assert_int_equal(sample.ros.source_kind, SOURCE_UDP);
        assert_string_equal(sample.ros.source_at, "5000");
        assert_int_equal(sample_set("ros.source=tcp:[::1]:5000"), 0);
        assert_int_equal(sample.ros.source_kind, SOURCE_TCP);
        assert_string_equal(sample.ros.source_at, "[::1]:5000");
}

static void test_wrong_sources(void **state)
{
        static const char *const wrong[] = {
                "ros.source=",         "ros.source=file:",     "ros.source=udp:0",  "ros.source=udp:65536", "ros.source=udp:",
                "ros.source=tcp:host", "ros.source=patterns",
        };

        for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
                assert_int_equal(sample_set(wrong[i]), -EINVAL);
                assert_one_error("--set ros.source=", "pattern | file:PATH | udp:PORT | tcp:HOST:PORT");
        }
}

static void test_sizes(void **state)
{
        assert_int_equal(sample_set("ros.fragment-sizes=uniform:0-4MiB"), 0);
        assert_int_equal(sample.ros.sizes_kind, 1);
        assert_int_equal(sample.ros.sizes_least_bytes, 0);
        assert_int_equal(sample.ros.sizes_most_bytes, 4 << 20);
        assert_int_equal(sample_set("ros.fragment-sizes=lognormal:2kB,0.5"), 0);
        assert_int_equal(sample.ros.sizes_kind, 2);
        assert_true(sample.ros.sizes_mean_bytes == 2000 && sample.ros.sizes_sigma == 0.5);
        assert_int_equal(sample_set("ros.fragment-sizes=fixed"), 0);
        assert_int_equal(sample.ros.sizes_kind, 0);
}

static void test_wrong_sizes(void **state)
{
        static const char *const wrong[] = {
                "uniform",       "uniform:5",       "uniform:2-1",         "uniform:1-5MiB",     "uniform:a-b",
                "lognormal:1kB", "lognormal:1kB,0",     "lognormal:1kB,nan",  "lognormal:1kB,6",
                "lognormal:,1",  "lognormal:1kB,1x", "lognormal:5MiB,0.1", "lognormal:1kB,-0.5", "normal:1,2",
        };
        char setting[100];

        for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
                snprintf(setting, sizeof setting, "ros.fragment-sizes=%s", wrong[i]);
                assert_int_equal(sample_set(setting), -EINVAL);
                assert_one_error("--set ros.fragment-sizes=", "fixed | uniform:A-B | lognormal:MEAN,SIGMA");
        }
}

static void test_keys_that_do_not_fit(void **state)
{
        static const struct {
                const char *setting, *what;
        } cases[] = {
                {"trigger.kind=poisson", "allowed: periodic, or a trigger.rate"},
                {"trigger.kind=burst", "allowed: periodic, or a trigger.rate"},
                {"network.data-port=46800", "is the control port too"},
                {"dfm.node-timeout=500ms", "three times dfm.keep-alive"},
                {"dfm.event-timeout=2s", "longer than sfi.timeout"},
                {"network.loss=1", "nothing would arrive"},
        };

        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                assert_int_equal(sample_set(cases[i].setting), -EINVAL);
                assert_one_error("--set ", cases[i].what);
        }
        assert_int_equal(sample_load(COUNTS "[trigger]\nkind = poisson\n"), -EINVAL);
        assert_one_error(":6: trigger.kind: ", "needs a rate");
        assert_int_equal(sample_load(COUNTS "[trigger]\nkind = poisson\nrate = 1kHz\n"), 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_sources), cmocka_unit_test(test_wrong_sources),
                cmocka_unit_test(test_sizes),   cmocka_unit_test(test_wrong_sizes),
                cmocka_unit_test(test_keys_that_do_not_fit),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
