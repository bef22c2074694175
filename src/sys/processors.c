/* Reads the times of processors. */
#include "sys/processors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/util.h"

/* The lines of the processors come first. */
#define STAT_MAX_BYTES (UINT32_C(1) << 17)

const char *const processor_use_names[PROCESSOR_USES] = {"user", "system",  "idle", "iowait",
                                                         "irq",  "softirq", "steal"};

int processors_parse(struct processors *ret, const char *text)
{
        size_t n = 0;

        for (const char *line = text; line && *line && n < PROCESSORS_MAX;
             line = strchr(line, '\n'), line += line != NULL) {
                struct processor_times *p = &ret->each[n];
                unsigned long long t[8];
                unsigned number;

                /* The line "cpu" alone is the sum. */
                if (strncmp(line, "cpu", 3) != 0 || line[3] < '0' || line[3] > '9' ||
                    sscanf(line, "cpu%u %llu %llu %llu %llu %llu %llu %llu %llu", &number, &t[0], &t[1],
                           &t[2], &t[3], &t[4], &t[5], &t[6], &t[7]) != 9)
                        continue;
                *p = (struct processor_times){number, {t[0] + t[1], t[2], t[3], t[4], t[5], t[6], t[7]}};
                n++;
        }
        if (n == 0)
                return -EBADMSG;
        ret->n = n;
        return 0;
}

int processors_read(struct processors *ret)
{
        _cleanup_free_ char *text = malloc(STAT_MAX_BYTES);
        _cleanup_close_ int fd = open("/proc/stat", O_RDONLY | O_CLOEXEC);
        ssize_t n;

        if (!text)
                return -ENOMEM;
        if (fd < 0)
                return -errno;
        n = read(fd, text, STAT_MAX_BYTES - 1);
        if (n < 0)
                return -errno;
        text[n] = '\0';
        return processors_parse(ret, text);
}

void processor_shares(const struct processor_times *begin, const struct processor_times *end,
                      double ret_percent[static PROCESSOR_USES])
{
        uint64_t passed[PROCESSOR_USES], all = 0;

        for (size_t i = 0; i < PROCESSOR_USES; i++) {
                /* The count of waiting for disks may go back (proc_stat(5)). */
                passed[i] = end->ticks[i] - MIN(begin->ticks[i], end->ticks[i]);
                all += passed[i];
        }
        for (size_t i = 0; i < PROCESSOR_USES; i++)
                ret_percent[i] = all > 0 ? 100.0 * (double)passed[i] / (double)all : 0;
}
