/* The registered tests of a program, and the main function of programs that have no other. */
#include "test.h"

#include <fnmatch.h>
#include <stdio.h>

static struct test *tests;
static size_t n_tests;

void test_register(struct test *t)
{
        struct test **at = &tests;

        /* Compilers may reorder constructors. */
        while (*at && (*at)->line < t->line)
                at = &(*at)->next;
        t->next = *at;
        *at = t;
        n_tests++;
}

static unsigned case_now = TEST_NO_CASE;

void test_begin_case(unsigned i)
{
        case_now = i;
}

int test_end_cases(void **state)
{
        if (case_now != TEST_NO_CASE)
                print_error("in case %u, counted from 0\n", case_now);
        case_now = TEST_NO_CASE;
        return 0;
}

int test_run(int argc, char **argv, CMFixtureFunction setup, CMFixtureFunction teardown)
{
        struct CMUnitTest *chosen = calloc(n_tests + 1, sizeof *chosen);
        size_t n = 0;
        int failed;

        if (!chosen)
                return 2;
        for (const struct test *t = tests; t; t = t->next)
                if (argc < 2 || fnmatch(argv[1], t->unit.name, 0) == 0)
                        chosen[n++] = t->unit;
        failed = n > 0 ? _cmocka_run_group_tests("tests", chosen, n, setup, teardown) : 2;
        free(chosen);
        if (n > 0)
                return failed;
        fprintf(stderr, "no test matches \"%s\"; there are:\n", argc < 2 ? "*" : argv[1]);
        for (const struct test *t = tests; t; t = t->next)
                fprintf(stderr, "%s\n", t->unit.name);
        return 2;
}

void assert_named(const char *of, const char *name, uint64_t value, uint64_t expected, const char *file,
                  int line)
{
        if (value != expected)
                print_error("%s of %s:\n", name, of);
        _assert_int_equal(value, expected, file, line);
}

__attribute__((weak)) int main(int argc, char **argv)
{
        return test_run(argc, argv, NULL, NULL);
}
