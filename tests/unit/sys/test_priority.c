/* Tests what priority_raise() changes in a child, and that it changes nothing else. */
#include "../test.h"

#include <sched.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sys/thread.h"

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

static int attend_and_look(void)
{
        pid_t pid;
        int status;

        if (priority_attend() < 0)
                return 77;
        if ((sched_getscheduler(0) & ~SCHED_RESET_ON_FORK) != SCHED_FIFO)
                return 1;
        pid = fork();
        if (pid == 0)
                _exit(sched_getscheduler(0) == SCHED_OTHER ? 0 : 2);
        return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : 3;
}

TEST(only_the_caller_attends)
{
        int status = status_of_child(attend_and_look);

        if (status == 77)
                skip();
        assert_int_equal(status, 0);
        assert_int_equal(sched_getscheduler(0), SCHED_OTHER);
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

TEST(a_child_is_raised_alone)
{
        char before[100], after[100];
        int now = getpriority(PRIO_PROCESS, 0);

        if (!priority_may_raise())
                skip();
        read_autogroup(before);
        assert_int_equal(status_of_child(raise_and_look), 0);
        assert_int_equal(status_of_child(raise_in_a_group), 0);
        read_autogroup(after);
        assert_string_equal(before, after);
        assert_int_equal(getpriority(PRIO_PROCESS, 0), now);
}

TEST(without_permission_nothing_is_raised)
{
        if (geteuid() != 0 && priority_may_raise())
                skip();
        assert_int_equal(status_of_child(try_as_nobody), 0);
}
