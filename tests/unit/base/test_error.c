/* Errors with an explanation: their text, their location, their bounds. */
#include "../test.h"

#include <stdio.h>

#include "base/error.h"

TEST(the_text_has_location_and_message)
{
        struct error e = {};
        char text[ERROR_TEXT_MAX];

        errno = EBADF;
        assert_int_equal(error_set(&e, -ENOENT, "cannot open %s: %m", "x.conf"), -ENOENT);
        assert_int_equal(errno, EBADF);
        assert_int_equal(e.code, -ENOENT);
        assert_string_equal(error_format(&e, text), "cannot open x.conf: No such file or directory");
        assert_int_equal(error_locate(&e, "push.conf:%d", 12), -ENOENT);
        error_append(&e, "; %s", "create it first");
        assert_string_equal(error_format(&e, text),
                            "push.conf:12: cannot open x.conf: No such file or directory; create it first");
}

TEST(the_innermost_location_stays)
{
        struct error e = {};

        error_set(&e, -EINVAL, "invalid address");
        error_locate(&e, "push.conf:12");
        error_locate(&e, "push.conf");
        assert_string_equal(e.location, "push.conf:12");
        /* Another error does not inherit the location. */
        error_set(&e, -EIO, "read failed");
        assert_string_equal(e.location, "");
}

/* The longest path that a scenario can name, see SCENARIO_TEXT_MAX. */
TEST(a_path_is_whole)
{
        struct error e = {};
        char path[256], expected[300], text[ERROR_TEXT_MAX];

        memset(path, 'x', sizeof path - 1);
        path[sizeof path - 1] = '\0';
        snprintf(expected, sizeof expected, "%s:4294967295: cut", path);
        error_set(&e, -EINVAL, "cut");
        error_locate(&e, "%s:%u", path, 4294967295u);
        assert_string_equal(error_format(&e, text), expected);
}

TEST(long_texts_are_cut)
{
        char text[ERROR_TEXT_MAX], name[2 * ERROR_TEXT_MAX];
        struct error e = {};

        memset(name, 'x', sizeof name - 1);
        name[sizeof name - 1] = '\0';
        error_set(&e, -EINVAL, "%s", name);
        error_append(&e, "%s", name);
        error_locate(&e, "%s", name);
        assert_int_equal(strlen(e.message), ERROR_MESSAGE_MAX - 1);
        assert_int_equal(strlen(e.location), ERROR_LOCATION_MAX - 1);
        assert_int_equal(strlen(error_format(&e, text)),
                         strlen(e.location) + strlen(": ") + strlen(e.message));
}
