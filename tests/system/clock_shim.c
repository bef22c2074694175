/* A clock that somebody sets and a machine that sleeps, preloaded into a node. The file EVB_CLOCK_OFFSET has
 * two numbers of seconds: the step of CLOCK_REALTIME, and the sleep, which CLOCK_MONOTONIC does not count. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static void read_offsets(long *ret_step_s, long *ret_sleep_s)
{
        const char *path = getenv("EVB_CLOCK_OFFSET");
        char text[64] = "", *rest;
        int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;

        *ret_step_s = *ret_sleep_s = 0;
        if (fd < 0)
                return;
        if (read(fd, text, sizeof text - 1) < 0)
                text[0] = '\0';
        close(fd);
        *ret_step_s = strtol(text, &rest, 10);
        *ret_sleep_s = strtol(rest, NULL, 10);
}

int clock_gettime(clockid_t clock, struct timespec *ret)
{
        int r = (int)syscall(SYS_clock_gettime, clock, ret);

        long step_s, sleep_s;

        if (r < 0 || (clock != CLOCK_REALTIME && clock != CLOCK_BOOTTIME))
                return r;
        read_offsets(&step_s, &sleep_s);
        ret->tv_sec += sleep_s + (clock == CLOCK_REALTIME ? step_s : 0);
        return r;
}
