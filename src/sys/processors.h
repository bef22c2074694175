/* What each processor of the machine spent its time on, as the kernel counts it (proc_stat(5)). */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define PROCESSORS_MAX 1024u

enum processor_use {
        PROCESSOR_USER, /* includes nice */
        PROCESSOR_SYSTEM,
        PROCESSOR_IDLE,
        PROCESSOR_IOWAIT,
        PROCESSOR_IRQ,
        PROCESSOR_SOFTIRQ,
        PROCESSOR_STEAL,
        PROCESSOR_USES,
};

extern const char *const processor_use_names[PROCESSOR_USES];

struct processors {
        size_t n;
        struct processor_times {
                unsigned number;
                uint64_t ticks[PROCESSOR_USES]; /* since boot */
        } each[PROCESSORS_MAX];
};

/* Reads the text of /proc/stat. -EBADMSG: no processor is in it. */
int processors_parse(struct processors *ret, const char *text);
/* Reads /proc/stat. Negative errno. */
int processors_read(struct processors *ret);
/* The share of each use between two readings, in per cent. */
void processor_shares(const struct processor_times *begin, const struct processor_times *end,
                      double ret_percent[static PROCESSOR_USES]);
