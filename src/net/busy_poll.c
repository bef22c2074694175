/* Sets the options of busy polling. */
#include "net/busy_poll.h"

#include <errno.h>
#include <limits.h>
#include <sys/socket.h>

#include "base/util.h"

int busy_poll_set(int fd, uint64_t poll_ns, const char **ret_refused)
{
        int poll_us = (int)MIN(DIV_ROUND_UP(poll_ns, NS_PER_US), (uint64_t)INT_MAX);
        const struct {
                const char *text;
                int name, value;
        } options[] = {
                {"SO_BUSY_POLL", SO_BUSY_POLL, poll_us},
                {"SO_PREFER_BUSY_POLL", SO_PREFER_BUSY_POLL, 1},
        };

        for (size_t i = 0; i < ARRAY_SIZE(options); i++) {
                if (setsockopt(fd, SOL_SOCKET, options[i].name, &options[i].value, sizeof(int)) < 0) {
                        *ret_refused = options[i].text;
                        return -errno;
                }
        }
        return 0;
}
