/* Asks the kernel to let idle processors poll, so that those of a virtual machine do not halt. */
#include "sys/awake.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <unistd.h>

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#endif

#include "base/util.h"

#define LATENCY_FILE "/dev/cpu_dma_latency"

bool awake_is_virtual(void)
{
#if defined(__x86_64__) || defined(__i386__)
        unsigned a, b, c = 0, d;

        /* Processors never set this bit; hypervisors do. */
        return __get_cpuid(1, &a, &b, &c, &d) && (c >> 31 & 1) != 0;
#else
        return access("/proc/device-tree/hypervisor", F_OK) == 0 || access("/sys/hypervisor/type", F_OK) == 0;
#endif
}

int awake_request(void)
{
        static const int32_t latency_us = 0;
        _cleanup_close_ int fd = -1;

        if (!awake_is_virtual())
                return -EOPNOTSUPP;
        fd = open(LATENCY_FILE, O_WRONLY | O_CLOEXEC);
        if (fd < 0 || write(fd, &latency_us, sizeof latency_us) != sizeof latency_us)
                return -errno;
        return take_fd(&fd);
}
