/* Log and standard output of a program. */
#include "cmd/commands.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#include "base/log.h"

/* A write function of fopencookie(3), to which a short write is an error. */
static ssize_t write_all(void *cookie, const char *bytes, size_t n)
{
        struct pollfd output = {.fd = STDOUT_FILENO, .events = POLLOUT};
        size_t done = 0;

        (void)cookie;
        while (done < n) {
                ssize_t r = write(STDOUT_FILENO, bytes + done, n - done);

                if (r >= 0)
                        done += (size_t)r;
                else if (errno == EAGAIN)
                        (void)poll(&output, 1, -1);
                else if (errno != EINTR)
                        break;
        }
        return (ssize_t)done;
}

/* Another process that shares standard output may have made it non-blocking. The C library then discards what
 * does not fit. The mode belongs to all these processes, so it remains as it is. */
static void open_output(void)
{
        int flags = fcntl(STDOUT_FILENO, F_GETFL);
        FILE *waiting;

        if (flags < 0 || !(flags & O_NONBLOCK))
                return;
        waiting = fopencookie(NULL, "w", (cookie_io_functions_t){.write = write_all});
        if (!waiting)
                return;
        setvbuf(waiting, NULL, isatty(STDOUT_FILENO) ? _IOLBF : _IOFBF, BUFSIZ);
        stdout = waiting;
}

/* If the report cannot be written, the command has not succeeded. */
static int check_output(int status)
{
        if (fflush(stdout) != 0)
                log_error_errno(errno, "cannot write to standard output: %m");
        else if (ferror(stdout))
                log_error("cannot write to standard output: part of the output is lost");
        else
                return status;
        return status == 0 ? 1 : status;
}

int program_run(const char *name, int (*run)(int argc, char **argv), int argc, char **argv)
{
        log_open(name, LOG_LEVEL_INFO);
        open_output();
        return check_output(run(argc, argv));
}
