/* Makes, enters and removes named network namespaces. testbed.c builds links in them. */
#include "run/testbed.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "base/util.h"

#define DIRECTORY "/run/netns"
#define PREFIX "evb-"

int netns_enter(int namespace)
{
        return setns(namespace, CLONE_NEWNET) < 0 ? -errno : 0;
}

static void path_of(const char *name, char *path, size_t size)
{
        snprintf(path, size, DIRECTORY "/%s", name);
}

/* Mounts the directory on itself with shared propagation, as `ip netns` does, so that all mount namespaces
 * see the names. */
static int make_directory(void)
{
        if (mkdir(DIRECTORY, 0755) < 0 && errno != EEXIST)
                return -errno;
        if (mount("", DIRECTORY, "none", MS_SHARED | MS_REC, NULL) == 0)
                return 0;
        if (errno != EINVAL)
                return -errno;
        if (mount(DIRECTORY, DIRECTORY, "none", MS_BIND | MS_REC, NULL) < 0 ||
            mount("", DIRECTORY, "none", MS_SHARED | MS_REC, NULL) < 0)
                return -errno;
        return 0;
}

int netns_make(const char *name, int *ret_fd)
{
        _cleanup_close_ int home = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC), fd = -1, file = -1;
        char path[96];
        int r = make_directory();

        if (r < 0 || home < 0)
                return r < 0 ? r : -errno;
        path_of(name, path, sizeof path);
        file = open(path, O_RDONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0);
        /* The name contains this process's PID, so it was left by a killed process that had the same PID. */
        if (file < 0 && errno == EEXIST) {
                netns_remove(name);
                file = open(path, O_RDONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0);
        }
        if (file < 0)
                return -errno;
        if (unshare(CLONE_NEWNET) < 0) {
                r = -errno;
                unlink(path);
                return r;
        }
        if (mount("/proc/thread-self/ns/net", path, "none", MS_BIND, NULL) < 0)
                r = -errno;
        fd = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
        if (r >= 0 && fd < 0)
                r = -errno;
        /* The launcher must not continue in the wrong namespace. */
        if (setns(home, CLONE_NEWNET) < 0)
                abort();
        if (r < 0) {
                netns_remove(name);
                return r;
        }
        *ret_fd = take_fd(&fd);
        return 0;
}

void netns_remove(const char *name)
{
        char path[96];

        path_of(name, path, sizeof path);
        (void)umount2(path, MNT_DETACH);
        (void)unlink(path);
}

/* Returns true for "evb-1234-ros1" if process 1234 no longer exists. */
static bool is_left_over(const char *name)
{
        char *end;
        long pid;

        if (strncmp(name, PREFIX, strlen(PREFIX)) != 0)
                return false;
        pid = strtol(name + strlen(PREFIX), &end, 10);
        return pid > 0 && *end == '-' && kill((pid_t)pid, 0) < 0 && errno == ESRCH;
}

int netns_clean(void)
{
        DIR *d = opendir(DIRECTORY);
        struct dirent *e;
        int n = 0;

        if (!d)
                return 0;
        while ((e = readdir(d))) {
                if (!is_left_over(e->d_name))
                        continue;
                netns_remove(e->d_name);
                n++;
        }
        closedir(d);
        return n;
}
