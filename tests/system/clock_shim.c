/* A clock that somebody sets, preloaded into a node: CLOCK_REALTIME plus the seconds in the file
 * EVB_CLOCK_OFFSET. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static long offset_s(void)
{
        const char *path = getenv("EVB_CLOCK_OFFSET");
        char text[32] = "";
        int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;

        if (fd < 0)
                return 0;
        if (read(fd, text, sizeof text - 1) < 0)
                text[0] = '\0';
        close(fd);
        return atol(text);
}

int clock_gettime(clockid_t clock, struct timespec *ret)
{
        int r = (int)syscall(SYS_clock_gettime, clock, ret);

        if (r == 0 && clock == CLOCK_REALTIME)
                ret->tv_sec += offset_s();
        return r;
}
