/* The log: one line per message with sender, error, and, under the journal, priority. */
#include "../test.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "evb/base/log.h"

static char said[4096];

static int caught, own;

static void catch_lines(void)
{
        own = dup(STDERR_FILENO);
        caught = memfd_create("log", MFD_CLOEXEC);
        assert_true(own >= 0 && caught >= 0);
        assert_int_equal(dup2(caught, STDERR_FILENO), STDERR_FILENO);
}

/* Reads the new lines into `said`. */
static const char *release_lines(void)
{
        ssize_t n = pread(caught, said, sizeof said - 1, 0);

        dup2(own, STDERR_FILENO);
        close(own);
        close(caught);
        assert_true(n >= 0);
        said[n] = '\0';
        return said;
}

static void lines_name_their_sender(void **state)
{
        (void)state;
        unsetenv("JOURNAL_STREAM");
        catch_lines();
        log_open("", LOG_LEVEL_INFO);
        log_info("no name");
        log_open("ros3", LOG_LEVEL_INFO);
        log_warning("%d of %s", 2, "them");
        log_debug("too much");
        log_open("ros3", LOG_LEVEL_DEBUG);
        log_debug("enough");
        assert_string_equal(release_lines(), "no name\nros3: 2 of them\nros3: enough\n");
        assert_int_equal(log_level(), LOG_LEVEL_DEBUG);
}

static void errors_are_named_and_returned(void **state)
{
        (void)state;
        unsetenv("JOURNAL_STREAM");
        log_open("dfm", LOG_LEVEL_WARNING);
        catch_lines();
        errno = EIO;
        assert_int_equal(log_error_errno(-ENOENT, "opening: %m"), -ENOENT);
        assert_int_equal(log_warning_errno(EACCES, "opening: %m"), -EACCES);
        /* Written or not, the code is returned, and errno is unchanged. */
        assert_int_equal(log_full_errno(LOG_LEVEL_INFO, -EAGAIN, "not said"), -EAGAIN);
        assert_int_equal(errno, EIO);
        assert_string_equal(release_lines(),
                            "dfm: opening: No such file or directory\ndfm: opening: Permission denied\n");
}

static void the_journal_gets_priorities(void **state)
{
        (void)state;
        setenv("JOURNAL_STREAM", "8:12345", 1);
        log_open("sfi1", LOG_LEVEL_DEBUG);
        catch_lines();
        log_error("a");
        log_warning("b");
        log_info("c");
        log_debug("d");
        unsetenv("JOURNAL_STREAM");
        assert_string_equal(release_lines(), "<3>sfi1: a\n<4>sfi1: b\n<6>sfi1: c\n<7>sfi1: d\n");
}

static void long_lines_are_cut_and_ended(void **state)
{
        char name[200], text[3000];

        (void)state;
        memset(name, 'n', sizeof name);
        name[sizeof name - 1] = '\0';
        memset(text, 't', sizeof text);
        text[sizeof text - 1] = '\0';
        log_open(name, LOG_LEVEL_INFO);
        catch_lines();
        log_info("%s", text);
        release_lines();
        assert_int_equal(strspn(said, "n"), 63);
        assert_int_equal(strlen(said), 63 + strlen(": ") + 767 + 1);
        assert_ptr_equal(strchr(said, '\n'), said + strlen(said) - 1);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(lines_name_their_sender),
                cmocka_unit_test(errors_are_named_and_returned),
                cmocka_unit_test(the_journal_gets_priorities),
                cmocka_unit_test(long_lines_are_cut_and_ended),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
