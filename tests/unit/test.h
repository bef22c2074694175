/* What every unit and sim test includes: cmocka, and tests that register themselves. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

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

struct test {
        struct CMUnitTest unit;
        unsigned line;
        struct test *next;
};

void test_register(struct test *t);

/* Runs the tests whose names match the pattern argv[1] (absent: all), all of them between `setup` and
 * `teardown` (NULL: none). Returns the exit status. Only a file that does more than this has its own main
 * function. */
int test_run(int argc, char **argv, CMFixtureFunction setup, CMFixtureFunction teardown);
