/* Sets receive packet steering, from a child process: sysfs shows the namespace of the process that mounts
 * it.
 */
#include "softirq_place.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/util.h"
#include "run/netns.h"

#define PROCESSORS_PER_WORD 32u

/* "2", or "2,00000000" for processor 33. */
static void mask_of(unsigned processor, char *text, size_t size)
{
        size_t n = (size_t)snprintf(text, size, "%x", 1u << processor % PROCESSORS_PER_WORD);

        for (unsigned i = 0; i < processor / PROCESSORS_PER_WORD && n < size; i++)
                n += (size_t)snprintf(text + n, size - n, ",00000000");
}

static int place(int namespace, const char *device, unsigned processor)
{
        char path[96], mask[512];
        _cleanup_close_ int fd = -1;
        int r = netns_enter(namespace);

        if (r < 0)
                return r;
        if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
            mount("sysfs", "/sys", "sysfs", 0, NULL) < 0)
                return -errno;
        snprintf(path, sizeof path, "/sys/class/net/%s/queues/rx-0/rps_cpus", device);
        mask_of(processor, mask, sizeof mask);
        fd = open(path, O_WRONLY | O_CLOEXEC);
        return fd < 0 || write(fd, mask, strlen(mask)) < 0 ? -errno : 0;
}

int softirq_place(int namespace, const char *device, unsigned processor)
{
        pid_t pid = fork();
        int status;

        if (pid == 0)
                _exit(-place(namespace, device, processor));
        if (pid < 0)
                return -errno;
        while (waitpid(pid, &status, 0) < 0) {
                if (errno != EINTR)
                        return -errno;
        }
        return WIFEXITED(status) ? -WEXITSTATUS(status) : -EIO;
}
