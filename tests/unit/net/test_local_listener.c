/* Tests Unix sockets with a path: those of living, suspended and crashed processes. */
#include "../test.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "net/local_listener.h"

static char directory[64], path[80];

static int set_up(void **state)
{
        strcpy(directory, "/tmp/evb-local-XXXXXX");
        if (!mkdtemp(directory))
                return -1;
        snprintf(path, sizeof path, "%s/socket", directory);
        return 0;
}

static int tear_down(void **state)
{
        unlink(path);
        return rmdir(directory);
}

static bool exists(void)
{
        struct stat st;

        return lstat(path, &st) == 0;
}

/* A process that listens at the path until it is killed. */
static pid_t start_listener(void)
{
        struct local_listener l;
        struct error e = {};
        int done[2];
        char c;
        pid_t pid;

        assert_int_equal(pipe(done), 0);
        pid = fork();
        if (pid == 0) {
                if (local_listener_open(&l, path, &e) < 0 || write(done[1], "x", 1) != 1)
                        _exit(1);
                for (;;)
                        pause();
        }
        assert_int_equal(read(done[0], &c, 1), 1);
        close(done[0]);
        close(done[1]);
        return pid;
}

static void end(pid_t pid)
{
        assert_int_equal(kill(pid, SIGKILL), 0);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
}

TEST_WITH(the_file_lives_as_long_as_the_listener, set_up, tear_down)
{
        struct local_listener l;
        struct error e = {};

        assert_int_equal(local_listener_check(path, &e), 0);
        assert_false(exists());
        assert_int_equal(local_listener_open(&l, path, &e), 0);
        assert_true(exists());
        local_listener_close(&l);
        assert_false(exists());
        local_listener_close(&l);
}

TEST_WITH(the_socket_of_a_crashed_process_is_replaced, set_up, tear_down)
{
        struct local_listener l;
        struct error e = {};

        end(start_listener());
        assert_true(exists());
        assert_int_equal(local_listener_check(path, &e), 0);
        assert_true(exists());
        assert_int_equal(local_listener_open(&l, path, &e), 0);
        local_listener_close(&l);
}

TEST_WITH(the_socket_of_a_living_process_stays, set_up, tear_down)
{
        pid_t pid = start_listener();
        struct local_listener l;
        struct error e = {};

        assert_int_equal(local_listener_open(&l, path, &e), -EADDRINUSE);
        assert_int_equal(kill(pid, SIGSTOP), 0);
        assert_int_equal(local_listener_open(&l, path, &e), -EADDRINUSE);
        assert_int_equal(local_listener_check(path, &e), -EADDRINUSE);
        assert_non_null(strstr(e.message, "is this node running already?"));
        assert_true(exists());
        end(pid);
}

TEST_WITH(another_file_stays, set_up, tear_down)
{
        struct local_listener l;
        struct error e = {};

        close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
        assert_int_equal(local_listener_open(&l, path, &e), -EEXIST);
        assert_non_null(strstr(e.message, "not a socket"));
        assert_true(exists());
}

TEST_WITH(the_socket_of_a_successor_stays, set_up, tear_down)
{
        struct local_listener l, successor;
        struct error e = {};

        assert_int_equal(local_listener_open(&l, path, &e), 0);
        assert_int_equal(unlink(path), 0);
        assert_int_equal(local_listener_open(&successor, path, &e), 0);
        local_listener_close(&l);
        assert_true(exists());
        local_listener_close(&successor);
        assert_false(exists());
}

TEST(a_missing_directory_is_an_error)
{
        struct local_listener l;
        struct error e = {};

        assert_int_equal(local_listener_open(&l, "/tmp/evb-no-such-directory/socket", &e), -ENOENT);
        assert_int_equal(local_listener_check("/tmp/evb-no-such-directory/socket", &e), -ENOENT);
}
