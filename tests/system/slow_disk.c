/* Preloaded into an SFI: a disk whose syncs take as long as a test chooses. Each call appends its name
 * to the file `calls` in the directory EVB_TEST_DISK. While the file `shut` exists, fsync and fdatasync wait,
 * and create the file `waiting`. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WAITS_MAX 150000 /* of a millisecond */

typedef int sync_function(int fd);
typedef int range_function(int fd, off_t offset, off_t bytes, unsigned flags);

static const char *in_folder(const char *name, char path[static PATH_MAX])
{
        const char *folder = getenv("EVB_TEST_DISK");

        snprintf(path, PATH_MAX, "%s/%s", folder ? folder : "/nonexistent", name);
        return path;
}

static void append(const char *name, const char *text)
{
        char path[PATH_MAX];
        int fd = open(in_folder(name, path), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);

        if (fd >= 0) {
                (void)!write(fd, text, strlen(text));
                close(fd);
        }
}

static void wait_for_disk(const char *call)
{
        char path[PATH_MAX];

        append("calls", call);
        in_folder("shut", path);
        for (int i = 0; i < WAITS_MAX && access(path, F_OK) == 0; i++) {
                if (i == 0)
                        append("waiting", call);
                usleep(1000);
        }
}

/* The file `broken` names the calls that fail. */
static bool is_broken(const char *call)
{
        char path[PATH_MAX], calls[256];
        int fd = open(in_folder("broken", path), O_RDONLY | O_CLOEXEC);
        ssize_t n = fd < 0 ? 0 : read(fd, calls, sizeof calls - 1);

        if (fd >= 0)
                close(fd);
        calls[n > 0 ? n : 0] = '\0';
        if (!strstr(calls, call))
                return false;
        errno = EIO;
        return true;
}

int fsync(int fd)
{
        sync_function *next = (sync_function *)dlsym(RTLD_NEXT, "fsync");

        wait_for_disk("fsync\n");
        return is_broken("fsync\n") ? -1 : next(fd);
}

int fdatasync(int fd)
{
        sync_function *next = (sync_function *)dlsym(RTLD_NEXT, "fdatasync");

        wait_for_disk("fdatasync\n");
        return is_broken("fdatasync\n") ? -1 : next(fd);
}

int sync_file_range(int fd, off_t offset, off_t bytes, unsigned flags)
{
        range_function *next = (range_function *)dlsym(RTLD_NEXT, "sync_file_range");

        append("calls", "sync_file_range\n");
        return is_broken("sync_file_range\n") ? -1 : next(fd, offset, bytes, flags);
}
