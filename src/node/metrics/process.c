/* Reads /proc/self (proc(5)) and statvfs(3). */
#include "process.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/util.h"
#include "sys/loop.h"
#include "sys/memory.h"

/* Field 22 of /proc/self/stat, in ticks since the machine started. The name in field 2 may contain blanks. */
static double read_start_seconds(void)
{
        double ticks_per_s = (double)sysconf(_SC_CLK_TCK);
        char text[1024], *at;
        unsigned long long ticks;
        FILE *f = fopen("/proc/self/stat", "re");
        size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;

        if (f)
                fclose(f);
        text[n] = '\0';
        at = strrchr(text, ')');
        if (!at || sscanf(at + 1,
                          " %*c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %llu",
                          &ticks) != 1)
                return -1;
        return (double)(clock_utc_ns() - clock_boot_ns()) / NS_PER_S + (double)ticks / ticks_per_s;
}

static void read_memory(struct metrics_process *p)
{
        long page_bytes = sysconf(_SC_PAGESIZE), all, resident;
        FILE *f = fopen("/proc/self/statm", "re");

        if (!f)
                return;
        if (fscanf(f, "%ld %ld", &all, &resident) == 2) {
                p->virtual_bytes = all * page_bytes;
                p->resident_bytes = resident * page_bytes;
        }
        fclose(f);
}

static int64_t count_fds(void)
{
        DIR *d = opendir("/proc/self/fd");
        int64_t n = 0;

        if (!d)
                return -1;
        while (readdir(d))
                n++;
        closedir(d);
        return n - 3; /* ".", ".." and that of the directory */
}

void metrics_read_process(struct metrics_process *ret)
{
        struct rlimit fds;

        *ret = (struct metrics_process){.resident_bytes = -1, .virtual_bytes = -1, .max_fds = -1};
        ret->cpu_seconds = cpu_used_seconds();
        ret->start_seconds = read_start_seconds();
        read_memory(ret);
        ret->open_fds = count_fds();
        if (getrlimit(RLIMIT_NOFILE, &fds) == 0 && fds.rlim_cur <= INT64_MAX)
                ret->max_fds = (int64_t)fds.rlim_cur;
}
