/* Notifications to a service manager, also to one that does not read. */
#include "../test.h"
#include "sys/notify.h"

#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

/* Opens a manager's socket at an address that the kernel chooses. */
static int listen_as_manager(void)
{
        struct sockaddr_un at = {.sun_family = AF_UNIX};
        socklen_t size = sizeof at.sun_family;
        int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        char path[sizeof at.sun_path + 1];

        assert_true(fd >= 0 && bind(fd, (struct sockaddr *)&at, size) == 0);
        size = sizeof at;
        assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &size), 0);
        snprintf(path, sizeof path, "@%.*s", (int)(size - offsetof(struct sockaddr_un, sun_path) - 1),
                 at.sun_path + 1);
        setenv("NOTIFY_SOCKET", path, 1);
        return fd;
}

static void expect(int fd, const char *text)
{
        char got[256] = "";

        assert_true(recv(fd, got, sizeof got - 1, 0) > 0);
        assert_string_equal(got, text);
}

TEST(notifications_have_the_expected_text)
{
        int fd = listen_as_manager();

        notify_ready("a");
        notify_starting(2000, "b");
        notify_status("c");
        notify_extend(3000000);
        notify_watchdog();
        notify_stopping("d");
        notify_reloading(4000999);
        assert_true(notify_reloaded());
        expect(fd, "READY=1\nSTATUS=a");
        expect(fd, "EXTEND_TIMEOUT_USEC=2\nSTATUS=b");
        expect(fd, "STATUS=c");
        expect(fd, "EXTEND_TIMEOUT_USEC=3000");
        expect(fd, "WATCHDOG=1");
        expect(fd, "STOPPING=1\nSTATUS=d");
        expect(fd, "RELOADING=1\nMONOTONIC_USEC=4000");
        expect(fd, "READY=1");
        close(fd);
}

/* Sends more than any datagram queue holds (net.unix.max_dgram_qlen); a blocking call would never return. */
TEST(a_manager_that_does_not_read_blocks_nobody)
{
        int fd = listen_as_manager();

        for (int i = 0; i < 20000; i++)
                notify_watchdog();
        assert_false(notify_reloaded());
        expect(fd, "WATCHDOG=1");
        assert_true(notify_reloaded());
        notify_status("goes on");
        close(fd);
        notify_status("to nobody");
        unsetenv("NOTIFY_SOCKET");
        notify_status("to nobody");
        assert_true(notify_reloaded());
}

/* The process that the manager starts must not miss its readiness. */
TEST(readiness_waits_for_space)
{
        int fd = listen_as_manager(), ends[2], status;
        char at[64], kind = 'R', got[256] = "";
        pid_t pid;

        for (int i = 0; i < 20000; i++)
                notify_watchdog();
        assert_int_equal(pipe(ends), 0);
        pid = fork();
        if (pid == 0) {
                (void)!write(ends[1], "", 1);
                notify_ready("a");
                _exit(0);
        }
        assert_true(read(ends[0], got, 1) == 1);
        snprintf(at, sizeof at, "/proc/%d/stat", (int)pid);
        while (kind != 'S' && kind != 'Z') {
                FILE *f = fopen(at, "re");

                assert_true(f && fscanf(f, "%*d (%*[^)]) %c", &kind) == 1);
                fclose(f);
        }
        assert_int_equal(kind, 'S');
        while (strncmp(got, "READY=1", 7) != 0) {
                ssize_t n = recv(fd, got, sizeof got - 1, 0);

                got[n > 0 ? n : 0] = '\0';
        }
        assert_string_equal(got, "READY=1\nSTATUS=a");
        assert_true(waitpid(pid, &status, 0) == pid && status == 0);
        close(ends[0]);
        close(ends[1]);
        close(fd);
        unsetenv("NOTIFY_SOCKET");
}

TEST(a_watchdog_belongs_to_the_process_that_the_manager_names)
{
        char pid[32];

        unsetenv("WATCHDOG_PID");
        unsetenv("WATCHDOG_USEC");
        assert_true(notify_watchdog_ns() == NEVER_NS);
        setenv("WATCHDOG_USEC", "100000", 1);
        assert_true(notify_watchdog_ns() == 50 * NS_PER_MS);
        snprintf(pid, sizeof pid, "%d", (int)getpid());
        setenv("WATCHDOG_PID", pid, 1);
        assert_true(notify_watchdog_ns() == 50 * NS_PER_MS);
        setenv("WATCHDOG_PID", "1", 1);
        assert_true(notify_watchdog_ns() == NEVER_NS);
        unsetenv("WATCHDOG_PID");
        for (const char *const *text = (const char *const[]){"0", "-1", "", "18446744073709551615", NULL};
             *text; text++) {
                setenv("WATCHDOG_USEC", *text, 1);
                assert_true(notify_watchdog_ns() == NEVER_NS);
        }
        unsetenv("WATCHDOG_USEC");
}
