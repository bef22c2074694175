/* epoll_pwait2() for programs in the guest, whose kernel is older (Linux 5.11), with whole milliseconds. */
#include <sys/epoll.h>
#include <time.h>

int epoll_pwait2(int fd, struct epoll_event *events, int n, const struct timespec *wait, const sigset_t *mask)
{
        return epoll_pwait(fd, events, n,
                           wait ? (int)(wait->tv_sec * 1000 + (wait->tv_nsec + 999999) / 1000000) : -1, mask);
}
