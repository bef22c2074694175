/* Creates and removes the state directories of `evb lab`. */
#include "lab/states.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DIRECTORY "/tmp"
#define PREFIX "evb-lab-state-"

int lab_states_make(char path[static LAB_STATES_PATH_MAX])
{
        snprintf(path, LAB_STATES_PATH_MAX, DIRECTORY "/" PREFIX "%d-XXXXXX", (int)getpid());
        if (!mkdtemp(path))
                return -errno;
        return setenv("EVB_STATE_DIRECTORY", path, 1) < 0 ? -errno : 0;
}

/* The stored state belongs to namespaces that are gone as well. */
void lab_states_remove(const char *path)
{
        DIR *d = opendir(path);
        struct dirent *e;
        char file[PATH_MAX];

        while (d && (e = readdir(d))) {
                snprintf(file, sizeof file, "%s/%s", path, e->d_name);
                (void)unlink(file);
        }
        if (d)
                closedir(d);
        (void)rmdir(path);
}

/* Whether the name is "evb-lab-state-1234-abcdef" and process 1234 is dead. As /tmp is open to all users,
 * links and directories of other users do not count. */
static bool is_left_over(const char *name, const char *path)
{
        struct stat s;
        char *end;
        long pid;

        if (strncmp(name, PREFIX, strlen(PREFIX)) != 0)
                return false;
        pid = strtol(name + strlen(PREFIX), &end, 10);
        if (pid <= 0 || *end != '-' || kill((pid_t)pid, 0) == 0 || errno != ESRCH)
                return false;
        return lstat(path, &s) == 0 && S_ISDIR(s.st_mode) && s.st_uid == geteuid();
}

/* Process 1234 of "evb-lab-state-1234-abcdef" if it is alive and not this process, or else 0. */
static pid_t owner_of(const char *name)
{
        char *end;
        long pid;

        if (strncmp(name, PREFIX, strlen(PREFIX)) != 0)
                return 0;
        pid = strtol(name + strlen(PREFIX), &end, 10);
        return pid > 0 && *end == '-' && pid != (long)getpid() && kill((pid_t)pid, 0) == 0 ? (pid_t)pid : 0;
}

size_t lab_states_others(pid_t *owners, size_t most)
{
        DIR *d = opendir(DIRECTORY);
        struct dirent *e;
        size_t n = 0;

        while (d && n < most && (e = readdir(d))) {
                owners[n] = owner_of(e->d_name);
                n += owners[n] > 0;
        }
        if (d)
                closedir(d);
        return n;
}

int lab_states_clean(void)
{
        DIR *d = opendir(DIRECTORY);
        struct dirent *e;
        char path[PATH_MAX];
        int n = 0;

        while (d && (e = readdir(d))) {
                snprintf(path, sizeof path, DIRECTORY "/%s", e->d_name);
                if (!is_left_over(e->d_name, path))
                        continue;
                lab_states_remove(path);
                n++;
        }
        if (d)
                closedir(d);
        return n;
}
