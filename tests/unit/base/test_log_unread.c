/* A log that nothing reads: no call waits, and the number of lost messages is logged. */
#include "../test.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <termios.h>
#include <unistd.h>

#include "base/log.h"

#define TIMEOUT_S 60

static char said[1 << 20];
static int own;

/* More than a pipe or a terminal holds. A call that waits for a reader is ended by a signal. */
#define LOST_LINES 10000

static void log_many(void)
{
        alarm(TIMEOUT_S);
        for (int i = 0; i < LOST_LINES; i++)
                log_info("line %d of a log that nothing reads", i);
        alarm(0);
}

/* Reads into `said` until `text` is there. It flushes the log from time to time, as nodes do. */
static void read_until(int reader, const char *text)
{
        struct pollfd input = {.fd = reader, .events = POLLIN};
        size_t done = 0;
        ssize_t n;

        assert_return_code(fcntl(reader, F_SETFL, O_NONBLOCK), 0);
        said[0] = '\0';
        alarm(TIMEOUT_S);
        while (!strstr(said, text)) {
                log_flush();
                (void)poll(&input, 1, 1);
                while ((n = read(reader, said + done, sizeof said - 1 - done)) > 0)
                        done += (size_t)n;
                said[done] = '\0';
        }
        alarm(0);
}

static int count_lines(const char *of)
{
        int n = 0;

        for (const char *at = said; (at = strstr(at, of)); at++)
                n++;
        return n;
}

TEST(a_full_pipe_costs_lines_and_no_time)
{
        int ends[2], read_lines, flags;
        char expected[64];

        own = dup(STDERR_FILENO);
        assert_return_code(pipe(ends), 0);
        dup2(ends[1], STDERR_FILENO);
        log_open("sfi1", LOG_LEVEL_INFO);
        log_many();
        flags = fcntl(ends[1], F_GETFL);
        read_until(ends[0], "lost here, because nothing read the log\n");
        dup2(own, STDERR_FILENO);
        assert_int_equal(flags & O_NONBLOCK, 0);
        read_lines = count_lines("sfi1: line ");
        assert_in_range(read_lines, 20, LOST_LINES / 2);
        assert_int_equal(count_lines("\n"), read_lines + 1);
        snprintf(expected, sizeof expected, "\nsfi1: %d log messages were lost here,",
                 LOST_LINES - read_lines);
        assert_non_null(strstr(said, expected));
        close(own), close(ends[0]), close(ends[1]);
}

/* Returns both ends of a terminal; standard error is one of them. */
static int open_terminal(int *ret_other)
{
        int terminal = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);

        assert_true(terminal >= 0 && grantpt(terminal) == 0 && unlockpt(terminal) == 0);
        *ret_other = open(ptsname(terminal), O_RDWR | O_NOCTTY | O_CLOEXEC);
        assert_true(*ret_other >= 0);
        own = dup(STDERR_FILENO);
        dup2(*ret_other, STDERR_FILENO);
        log_open("sfi1", LOG_LEVEL_INFO);
        return terminal;
}

static void close_terminal(int terminal, int other)
{
        dup2(own, STDERR_FILENO);
        log_open("sfi1", LOG_LEVEL_INFO);
        close(own), close(other), close(terminal);
}

TEST(a_stopped_terminal_costs_no_time)
{
        int other, terminal = open_terminal(&other);

        log_info("before");
        /* As Ctrl-S does. */
        assert_return_code(tcflow(other, TCOOFF), 0);
        alarm(TIMEOUT_S);
        log_info("unread");
        log_warning("unread too");
        alarm(0);
        assert_return_code(tcflow(other, TCOON), 0);
        read_until(terminal, "unread too");
        assert_non_null(strstr(said, "sfi1: before\r\n"));
        assert_non_null(strstr(said, "sfi1: unread\r\n"));
        assert_true(strstr(said, "sfi1: unread\r\n") < strstr(said, "sfi1: unread too"));
        close_terminal(terminal, other);
}

/* A terminal takes only the beginning of the line that fills it. */
TEST(a_full_terminal_costs_lines_and_no_time)
{
        int other, terminal = open_terminal(&other);

        log_many();
        read_until(terminal, "lost here, because nothing read the log");
        log_info("read again");
        read_until(terminal, "sfi1: read again");
        close_terminal(terminal, other);
}
