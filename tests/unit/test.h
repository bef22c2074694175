/* What every unit and sim test includes: cmocka, everyday headers of the C library, base/util.h, and tests
 * that register themselves. */
#pragma once

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/util.h"

/* A test: TEST(name) { ... }. The tests of a program run in the order of their lines. `state` is cmocka's. */
#define TEST(name) TEST_WITH(name, NULL, NULL)

/* A test between `setup` and `teardown` (NULL: none), which return 0, or -1 if they fail. */
#define TEST_WITH(name, setup, teardown)                                                                     \
        static void name(void **state);                                                                      \
        __attribute__((constructor)) static void name##_register(void)                                       \
        {                                                                                                    \
                static struct test test = {{#name, name, setup, teardown, NULL}, __LINE__, NULL};            \
                test_register(&test);                                                                        \
        }                                                                                                    \
        static void name(void **state)

/* Defines NAME_freep() for `_cleanup_(NAME_freep) struct NAME *x`: NAME_free(x) when x leaves its scope. */
#define DEFINE_FREEP(name)                                                                                   \
        static inline void name##_freep(struct name **x)                                                     \
        {                                                                                                    \
                name##_free(*x);                                                                             \
        }

/* A test of `n` cases: its body runs for each `i` below. A failure names the case. */
#define TEST_EACH(name, i, n)                                                                                \
        static void name##_case(unsigned i);                                                                 \
        TEST_WITH(name, NULL, test_end_cases)                                                                \
        {                                                                                                    \
                for (unsigned i = 0; i < (n); i++) {                                                         \
                        test_begin_case(i);                                                                  \
                        name##_case(i);                                                                      \
                }                                                                                            \
                test_begin_case(TEST_NO_CASE);                                                               \
        }                                                                                                    \
        static void name##_case(unsigned i)

/* The same between two expressions; a failure skips the second one. */
#define TEST_EACH_BETWEEN(name, i, n, open, close)                                                           \
        static void name##_within(unsigned i);                                                               \
        TEST_EACH(name, i, n)                                                                                \
        {                                                                                                    \
                open;                                                                                        \
                name##_within(i);                                                                            \
                close;                                                                                       \
        }                                                                                                    \
        static void name##_within(unsigned i)
#define TEST_BETWEEN(name, open, close) TEST_EACH_BETWEEN(name, once, 1, open, close)

struct test {
        struct CMUnitTest unit;
        unsigned line;
        struct test *next;
};

void test_register(struct test *t);

/* The case that runs now, and a teardown that prints it if the test failed in one. */
#define TEST_NO_CASE UINT32_MAX
void test_begin_case(unsigned i);
int test_end_cases(void **state);

/* Runs the tests whose names match the pattern argv[1] (absent: all), all of them between `setup` and
 * `teardown` (NULL: none). Returns the exit status. Only a file that does more than this has its own main
 * function. */
int test_run(int argc, char **argv, CMFixtureFunction setup, CMFixtureFunction teardown);

/* assert_each(GET, of, name, value, name, value, ...): each GET(of, name) has its value; a failure says which
 * one does not. Up to six. */
#define assert_each(get, ...)                                                                                \
        EACH_OF(__VA_ARGS__, EACH_6, _, EACH_5, _, EACH_4, _, EACH_3, _, EACH_2, _, EACH_1)                  \
        (get, __VA_ARGS__)
#define EACH_OF(of, a, b, c, d, e, f, g, h, i, j, k, l, each, ...) each
#define EACH_1(get, of, name, value) assert_named(#of, #name, get(of, name), value, __FILE__, __LINE__)
#define EACH_2(get, of, name, value, ...) (EACH_1(get, of, name, value), EACH_1(get, of, __VA_ARGS__))
#define EACH_3(get, of, name, value, ...) (EACH_1(get, of, name, value), EACH_2(get, of, __VA_ARGS__))
#define EACH_4(get, of, name, value, ...) (EACH_1(get, of, name, value), EACH_3(get, of, __VA_ARGS__))
#define EACH_5(get, of, name, value, ...) (EACH_1(get, of, name, value), EACH_4(get, of, __VA_ARGS__))
#define EACH_6(get, of, name, value, ...) (EACH_1(get, of, name, value), EACH_5(get, of, __VA_ARGS__))
void assert_named(const char *of, const char *name, uint64_t value, uint64_t expected, const char *file,
                  int line);

#define FIELD_OF(of, name) (of)->name
#define assert_counts(counts, ...) assert_each(FIELD_OF, counts, __VA_ARGS__)
/* The same for a structure of any kind, given by its address. */
#define assert_fields(of, ...) assert_each(FIELD_OF, of, __VA_ARGS__)
/* The same for the counters of a node. */
#define STATISTIC_OF(of, name) stats_get(&(of)->name)
#define assert_stats(stats, ...) assert_each(STATISTIC_OF, stats, __VA_ARGS__)

/* The main function of a program whose tests all run between `setup` and `teardown` (NULL: none). */
#define TESTS_BETWEEN(setup, teardown)                                                                       \
        int main(int argc, char **argv)                                                                      \
        {                                                                                                    \
                return test_run(argc, argv, setup, teardown);                                                \
        }
