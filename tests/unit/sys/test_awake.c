/* Tests the request for processors that do not halt. */
#include "../test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <unistd.h>

#include "base/util.h"
#include "sys/awake.h"

/* The smallest latency that processes request now. */
static int32_t latency_us(void)
{
        _cleanup_close_ int fd = open("/dev/cpu_dma_latency", O_RDONLY | O_CLOEXEC);
        int32_t us = -1;

        assert_true(fd >= 0);
        assert_int_equal(read(fd, &us, sizeof us), sizeof us);
        return us;
}

TEST(a_request_is_for_no_latency)
{
        int fd = awake_request();

        if (!awake_is_virtual()) {
                assert_int_equal(fd, -EOPNOTSUPP);
        } else if (access("/dev/cpu_dma_latency", W_OK) < 0) {
                assert_int_equal(fd, -errno);
        } else {
                assert_true(fd >= 0);
                assert_int_equal(latency_us(), 0);
                close(fd);
        }
}
