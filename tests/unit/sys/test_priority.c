/* Tests what priority_raise() changes in a child, and that it changes nothing else. */
#include "../test.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "evb/base/util.h"
#include "evb/sys/priority.h"

/* The line of /proc/self/autogroup, or "" without autogroups. */
static void read_autogroup(char text[static 100])
{
        FILE *f = fopen("/proc/self/autogroup", "re");

        text[0] = '\0';
        if (f && !fgets(text, 100, f))
                text[0] = '\0';
        if (f)
                fclose(f);
}

static int status_of_child(int (*body)(void))
{
        pid_t pid = fork();
        int status;

        if (pid == 0)
                _exit(body());
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status));
        return WEXITSTATUS(status);
}

/* Returns 0, or the number of the check that failed. */
static int raise_and_look(void)
{
        char before[100], after[100];

        read_autogroup(before);
        if (priority_raise() < 0)
                return 1;
        if (getpriority(PRIO_PROCESS, 0) != -20)
                return 2;
        if (getsid(0) != getpid() || getpgid(0) != getpid())
                return 3;
        read_autogroup(after);
        /* A group of its own, so that no other process of the session is raised. */
        if (before[0] && (strcmp(before, after) == 0 || !strstr(after, "nice -20")))
                return 4;
        return 0;
}

static int raise_in_a_group(void)
{
        (void)setpgid(0, 0);
        return priority_raise() < 0 ? 1 : getpriority(PRIO_PROCESS, 0) != -20;
}

static int try_as_nobody(void)
{
        const struct rlimit none = {};

        if (geteuid() == 0 && (setrlimit(RLIMIT_NICE, &none) < 0 || setresuid(65534, 65534, 65534) < 0))
                return 1;
        if (priority_may_raise() || priority_raise() >= 0)
                return 2;
        return getpriority(PRIO_PROCESS, 0) < 0 ? 3 : 0;
}

static void a_child_is_raised_alone(void **state)
{
        char before[100], after[100];
        int now = getpriority(PRIO_PROCESS, 0);

        (void)state;
        if (!priority_may_raise())
                skip();
        read_autogroup(before);
        assert_int_equal(status_of_child(raise_and_look), 0);
        assert_int_equal(status_of_child(raise_in_a_group), 0);
        read_autogroup(after);
        assert_string_equal(before, after);
        assert_int_equal(getpriority(PRIO_PROCESS, 0), now);
}

static void without_permission_nothing_is_raised(void **state)
{
        (void)state;
        if (geteuid() != 0 && priority_may_raise())
                skip();
        assert_int_equal(status_of_child(try_as_nobody), 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_child_is_raised_alone),
                cmocka_unit_test(without_permission_nothing_is_raised),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
