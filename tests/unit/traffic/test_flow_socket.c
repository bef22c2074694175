/* Tests the socket buffers of flows within and beyond the machine's limits, without privilege. */
#include "../test.h"

#include <grp.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "net/tcp.h"
#include "traffic/flow_socket.h"

/* Less than the kernel's default, and more than any machine allows. */
#define SMALL_BYTES 65536u
#define LARGE_BYTES ((uint32_t)INT32_MAX / 2)

/* Returns 0 if the results are as expected. */
static int check_sizes(bool send)
{
        int fd = socket(AF_UNIX, SOCK_DGRAM, 0);

        if (fd < 0 || !flow_set_buffer(fd, send, SMALL_BYTES))
                return 1;
        if (tcp_granted_bytes(fd, send) != SMALL_BYTES)
                return 2;
        return flow_set_buffer(fd, send, LARGE_BYTES) ? 3 : 0;
}

/* Runs as user nobody, without capabilities. */
TEST(reports_what_is_granted)
{
        for (int send = 0; send <= 1; send++) {
                pid_t child = fork();
                int status;

                if (child == 0) {
                        if (geteuid() == 0 && (setgroups(0, NULL) < 0 || setresuid(65534, 65534, 65534) < 0))
                                _exit(9);
                        _exit(check_sizes(send));
                }
                assert_int_equal(waitpid(child, &status, 0), child);
                assert_int_equal(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 0);
        }
}
