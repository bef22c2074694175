/* The words of sd_notify(3) that services of ours use. */
#include "evb/sys/notify.h"

#include <systemd/sd-daemon.h>

#include "evb/base/util.h"

void notify_ready(const char *status)
{
        (void)sd_notifyf(0, "READY=1\nSTATUS=%s", status);
}

void notify_starting(uint64_t more_ns, const char *status)
{
        (void)sd_notifyf(0, "EXTEND_TIMEOUT_USEC=%llu\nSTATUS=%s", (unsigned long long)(more_ns / NS_PER_US),
                         status);
}

void notify_status(const char *status)
{
        (void)sd_notifyf(0, "STATUS=%s", status);
}

void notify_stopping(const char *status)
{
        (void)sd_notifyf(0, "STOPPING=1\nSTATUS=%s", status);
}

void notify_watchdog(void)
{
        (void)sd_notify(0, "WATCHDOG=1");
}

uint64_t notify_watchdog_ns(void)
{
        uint64_t us;

        return sd_watchdog_enabled(0, &us) > 0 ? us * NS_PER_US / 2 : NEVER_NS;
}

void notify_extend(uint64_t time_ns)
{
        (void)sd_notifyf(0, "EXTEND_TIMEOUT_USEC=%llu", (unsigned long long)(time_ns / NS_PER_US));
}
