/* Tests all paths: with a file that became shorter, each ends with an error, at once, and names the call; a
 * signal that interrupts a call does not end a path. */
#include "../test.h"

#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/pattern.h"
#include "sys/loop.h"
#include "stream/paths/path_internal.h"

#define FILE_BYTES (64u << 10)
#define LEFT_BYTES (8192u + 100)
#define PAYLOAD 1024u
#define LARGE_BYTES (4u << 20)
#define LARGE_PAYLOAD 60000u
#define ALL_WELL 99
#define BROKEN 98

static int file = -1, large_file = -1;

static int make_file(size_t size_bytes)
{
        uint8_t *bytes = malloc(size_bytes);
        FILE *f = tmpfile();
        int fd = -1;

        if (f && bytes) {
                pattern_fill(pattern_key(0, 0, 0), bytes, 0, size_bytes);
                fd = dup(fileno(f));
                if (write(fd, bytes, size_bytes) != (ssize_t)size_bytes)
                        fd = -1;
        }
        if (f)
                fclose(f);
        free(bytes);
        return fd;
}

static int make_files(void **state)
{
        file = make_file(LEFT_BYTES);
        large_file = make_file(LARGE_BYTES);
        return file < 0 || large_file < 0 ? -1 : 0;
}

static int close_files(void **state)
{
        close(large_file);
        close(file);
        return 0;
}

/* Sends in a child: after an error, what the kernel may hold is kept until the process ends. */
static int send_short(const struct path *p, enum path_wire wire)
{
        struct path_link link;
        struct path_sender s = {.path = p,
                                .wire = wire,
                                .file = file,
                                .file_bytes = FILE_BYTES,
                                .size_bytes = FILE_BYTES,
                                .payload_bytes = PAYLOAD,
                                .deadline_ns = NEVER_NS};
        int r;

        if (path_link_open(&link, wire) < 0)
                return ENOTCONN;
        s.socket = link.sender;
        r = p->send(&s);
        return r >= 0 ? ALL_WELL : s.what ? -r : 0;
}

TEST_EACH(a_shorter_file_ends_a_path, i, path_count() * 2)
{
        const struct path *p = path_at(i / 2);
        pid_t child = fork();
        int status = 0;

        if (child == 0) {
                alarm(30);
                _exit(send_short(p, i % 2));
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        if (!WIFEXITED(status))
                fail_msg("%s %s, %s: signal %d", p->row, p->form, path_wire_name(i % 2), WTERMSIG(status));
        /* A buffer that is not filled, or pages that are not there. An io_uring may be missing. */
        if (WEXITSTATUS(status) != EIO && WEXITSTATUS(status) != EFAULT &&
            (strcmp(p->form, "io_uring") != 0 || WEXITSTATUS(status) == ALL_WELL))
                fail_msg("%s %s, %s: %d", p->row, p->form, path_wire_name(i % 2), WEXITSTATUS(status));
}

static struct path_check check;
static int receiver;
static timer_t timer;

static void start_timer(void)
{
        (void)timer_settime(timer, 0, &(struct itimerspec){.it_value.tv_nsec = 500000}, NULL);
}

/* Receives what has arrived. Nothing arrives while this runs, so the process that sends waits, for the next
 * signal. */
static void receive(void)
{
        static uint8_t buffer[1 << 16];
        static size_t held;
        int error = errno;
        ssize_t n;

        while ((n = recv(receiver, buffer + held, sizeof buffer - held, MSG_DONTWAIT)) > 0) {
                size_t all = held + (size_t)n, used = path_check_stream(&check, buffer, all);

                memmove(buffer, buffer + used, all - used);
                held = all - used;
        }
        errno = error;
}

static void receive_and_continue(int number)
{
        receive();
        start_timer();
}

/* The sender waits for room in the socket whenever a signal arrives, and only the signal makes room. */
static int send_interrupted(const struct path *p)
{
        struct sigaction action = {.sa_handler = receive_and_continue, .sa_flags = SA_RESTART};
        struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
        struct path_link link;
        struct path_sender s = {.path = p,
                                .wire = PATH_TCP,
                                .file = large_file,
                                .file_bytes = LARGE_BYTES,
                                .size_bytes = LARGE_BYTES,
                                .payload_bytes = LARGE_PAYLOAD,
                                .deadline_ns = NEVER_NS};
        /* Less than a packet. */
        int r, buffer_bytes = 16 << 10;

        if (path_link_open(&link, PATH_TCP) < 0 ||
            setsockopt(link.sender, SOL_SOCKET, SO_SNDBUF, &buffer_bytes, sizeof buffer_bytes) < 0 ||
            sigaction(SIGUSR1, &action, NULL) < 0 || timer_create(CLOCK_MONOTONIC, &event, &timer) < 0)
                return ENOTCONN;
        s.socket = link.sender;
        receiver = link.receiver;
        check = (struct path_check){.headers = p->headers, .payload_bytes = LARGE_PAYLOAD};
        start_timer();
        r = p->send(&s);
        if (r < 0)
                return -r;
        while (check.bytes < LARGE_BYTES && !check.broken)
                pause();
        return check.broken ? BROKEN : ALL_WELL;
}

TEST_EACH(an_interrupted_path_goes_on, i, path_count())
{
        const struct path *p = path_at(i);
        pid_t child = fork();
        int status = 0;

        if (child == 0) {
                alarm(240);
                _exit(send_interrupted(p));
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        if (!WIFEXITED(status))
                fail_msg("%s %s: signal %d", p->row, p->form, WTERMSIG(status));
        /* An io_uring may be missing, and the memory for MSG_ZEROCOPY is limited. */
        if (WEXITSTATUS(status) != ALL_WELL && WEXITSTATUS(status) != ENOSYS &&
            WEXITSTATUS(status) != EPERM && WEXITSTATUS(status) != ENOMEM && WEXITSTATUS(status) != ENOBUFS)
                fail_msg("%s %s: %d", p->row, p->form, WEXITSTATUS(status));
}

TESTS_BETWEEN(make_files, close_files)
