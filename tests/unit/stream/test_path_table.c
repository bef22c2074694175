/* Tests the table of paths: every row of the publication is there, with what the report needs. */
#include "../test.h"

#include <stdio.h>
#include <sys/syscall.h>

#include "stream/paths/path_internal.h"

TEST(every_row_has_a_form)
{
        size_t n = 0;

        for (unsigned row = 1; row <= 13; row++) {
                const struct path *first = path_find(row, 0), *p;
                char name[8];

                snprintf(name, sizeof name, "E%u", row);
                assert_non_null(first);
                for (unsigned form = 0; (p = path_find(row, form)); form++, n++) {
                        assert_ptr_equal(path_at(n), p);
                        assert_string_equal(p->row, name);
                        assert_int_equal(p->headers, row > 3);
                        assert_string_equal(p->published_calls, first->published_calls);
                        assert_string_equal(p->published_copies, first->published_copies);
                        assert_true(strlen(p->title) > 10 && strlen(p->reason) > 20 && p->send);
                        if (form > 0)
                                assert_string_not_equal(p->form, path_find(row, form - 1)->form);
                }
        }
        assert_int_equal(n, path_count());
        assert_null(path_find(0, 0));
        assert_null(path_find(14, 0));
}

/* O_DIRECT spares the copy from the page cache, and never adds one. */
TEST_EACH(copies_are_plausible, i, path_count())
{
        const struct path *p = path_at(i);

        for (unsigned w = 0; w < PATH_WIRES; w++) {
                assert_in_range(p->copies[PATH_CACHE][w], 0, 2);
                assert_true(p->copies[PATH_DISK][w] <= p->copies[PATH_CACHE][w]);
                if (p->reads == PATH_EMPTIED)
                        assert_true(p->copies[PATH_DISK][w] == p->copies[PATH_CACHE][w]);
        }
}

TEST(calls_and_ends_have_names)
{
        assert_string_equal(path_call_name(SYS_sendto), "send");
        assert_string_equal(path_call_name(SYS_io_uring_enter), "io_uring_enter");
        assert_null(path_call_name(SYS_reboot));
        assert_string_equal(path_wire_name(PATH_SINK), "sink");
        assert_string_equal(path_source_name(PATH_DISK), "disk");
}
