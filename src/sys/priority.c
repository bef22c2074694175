/* Raises the priority of a measured process above that of ordinary ones. */
#include "sys/priority.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/util.h"

#define HIGHEST_NICE (-20)
#define AUTOGROUP "/proc/self/autogroup"

/* Where the kernel has no autogroups, the nice value suffices. */
static int raise_autogroup(void)
{
        static const char value[] = "-20";
        _cleanup_close_ int fd = open(AUTOGROUP, O_WRONLY | O_CLOEXEC);

        if (fd < 0)
                return errno == ENOENT ? 0 : -errno;
        return write(fd, value, sizeof value - 1) < 0 ? -errno : 0;
}

int priority_prefer(void)
{
        return setpriority(PRIO_PROCESS, 0, HIGHEST_NICE) < 0 ? -errno : 0;
}

int priority_raise(void)
{
        /* A process that leads a group already, as a shell's foreground job does, keeps its session. */
        bool alone = setsid() >= 0;
        int r = priority_prefer();

        return r < 0 || !alone ? r : raise_autogroup();
}

int priority_attend(void)
{
        struct sched_param p = {.sched_priority = sched_get_priority_min(SCHED_FIFO)};

        return sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &p) < 0 ? -errno : 0;
}

bool priority_may_raise(void)
{
        int now;

        errno = 0;
        now = getpriority(PRIO_PROCESS, 0);
        if ((now == -1 && errno != 0) || setpriority(PRIO_PROCESS, 0, HIGHEST_NICE) < 0)
                return false;
        /* A process may always lower its priority. */
        (void)setpriority(PRIO_PROCESS, 0, now);
        return true;
}
