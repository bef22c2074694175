/* Sends the notifications of sd_notify(3). sd_notify() itself blocks while the manager's queue is full, which
 * would block a node for as long as the manager is busy. Its library would also load six others at the start
 * of each command. */
#include "sys/notify.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/quantity.h"
#include "base/util.h"

#define TEXT_MAX 1024

/* `flags`: SOCK_NONBLOCK, if a message that finds no space is lost, because it is sent again, or soon
 * obsolete; 0: waits for space. False: it was lost. */
static bool send_text(const char *text, int flags)
{
        const char *path = getenv("NOTIFY_SOCKET");
        struct sockaddr_un to = {.sun_family = AF_UNIX};
        size_t n = path ? strlen(path) : 0;
        int fd;

        bool sent;

        if (n == 0 || n >= sizeof to.sun_path)
                return true;
        memcpy(to.sun_path, path, n);
        if (path[0] == '@')
                to.sun_path[0] = 0; /* an abstract address */
        fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | flags, 0);
        if (fd < 0)
                return false;
        sent = sendto(fd, text, strlen(text), MSG_NOSIGNAL, (const struct sockaddr *)&to,
                      (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n)) >= 0;
        close(fd);
        return sent;
}

static void send_format(int flags, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void send_format(int flags, const char *format, ...)
{
        char text[TEXT_MAX];
        va_list args;

        va_start(args, format);
        vsnprintf(text, sizeof text, format, args);
        va_end(args);
        (void)send_text(text, flags);
}

void notify_ready(const char *status)
{
        send_format(0, "READY=1\nSTATUS=%s", status);
}

void notify_starting(uint64_t more_ns, const char *status)
{
        send_format(SOCK_NONBLOCK, "EXTEND_TIMEOUT_USEC=%llu\nSTATUS=%s",
                    (unsigned long long)(more_ns / NS_PER_US), status);
}

void notify_status(const char *status)
{
        send_format(SOCK_NONBLOCK, "STATUS=%s", status);
}

void notify_reloading(uint64_t now_ns)
{
        send_format(SOCK_NONBLOCK, "RELOADING=1\nMONOTONIC_USEC=%llu",
                    (unsigned long long)(now_ns / NS_PER_US));
}

bool notify_reloaded(void)
{
        return send_text("READY=1", SOCK_NONBLOCK);
}

void notify_stopping(const char *status)
{
        send_format(SOCK_NONBLOCK, "STOPPING=1\nSTATUS=%s", status);
}

void notify_watchdog(void)
{
        (void)send_text("WATCHDOG=1", SOCK_NONBLOCK);
}

uint64_t notify_watchdog_ns(void)
{
        const char *text = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");
        uint64_t us, of;

        if (!text || quantity_parse_count(text, &us) < 0 || us == 0 || us > UINT64_MAX / NS_PER_US)
                return NEVER_NS;
        /* The variables of another process, which it passed on. */
        if (pid && (quantity_parse_count(pid, &of) < 0 || of != (uint64_t)getpid()))
                return NEVER_NS;
        return us * NS_PER_US / 2;
}

void notify_extend(uint64_t time_ns)
{
        send_format(SOCK_NONBLOCK, "EXTEND_TIMEOUT_USEC=%llu", (unsigned long long)(time_ns / NS_PER_US));
}
