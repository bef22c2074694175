/* Sockets at addresses that are missing, in use, or appear later. The test runs in its own network namespace.
 */
#include "../own_network.h"

#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/util.h"
#include "data/socket_open.h"
#include "data/stats.h"
#include "sys/loop.h"

#define LATER "10.99.9.1"

static int binds;
/* Before this call of bind() the address appears, or a signal arrives. */
static int add_at, stop_at, hang_up_at;

int __real_bind(int fd, const struct sockaddr *address, socklen_t size);

static void set_address(const char *device, const char *text)
{
        struct ifreq r = {};
        struct net_address a;
        _cleanup_close_ int fd = socket(AF_INET, SOCK_DGRAM, 0);

        snprintf(r.ifr_name, sizeof r.ifr_name, "%s", device);
        assert_int_equal(net_address_parse(&a, text, 0), 0);
        memcpy(&r.ifr_addr, &a.v4, sizeof a.v4);
        assert_int_equal(ioctl(fd, SIOCSIFADDR, &r), 0);
}

int __wrap_bind(int fd, const struct sockaddr *address, socklen_t size)
{
        binds++;
        if (binds > 100)
                fail_msg("socket_open_udp() neither succeeds nor fails");
        if (binds == add_at)
                set_address("lo:1", LATER);
        if (binds == stop_at)
                raise(SIGTERM);
        if (binds == hang_up_at)
                raise(SIGHUP);
        return __real_bind(fd, address, size);
}

/* The option that the kernel refuses. */
static int refused;

int __real_setsockopt(int fd, int level, int name, const void *value, socklen_t size);

int __wrap_setsockopt(int fd, int level, int name, const void *value, socklen_t size)
{
        if (refused > 0 && level == SOL_SOCKET && name == refused) {
                errno = EPERM;
                return -1;
        }
        return __real_setsockopt(fd, level, name, value, size);
}

/* Returns what `f` logs. */
static const char *logged_by(void (*f)(void))
{
        static char text[4096];
        int kept = dup(STDERR_FILENO), log = memfd_create("log", MFD_CLOEXEC);

        assert_true(kept >= 0 && log >= 0);
        dup2(log, STDERR_FILENO);
        f();
        dup2(kept, STDERR_FILENO);
        text[MAX(pread(log, text, sizeof text - 1, 0), (ssize_t)0)] = '\0';
        close(log);
        close(kept);
        return text;
}

static struct net_address at(const char *text, uint16_t port)
{
        struct net_address a;

        assert_int_equal(net_address_parse(&a, text, port), 0);
        return a;
}

static struct endpoint *opened;
static int result;

static void open_later(void)
{
        struct udp_config config = {.local = at(LATER, 5000)};

        opened = NULL;
        binds = 0;
        result = socket_open_udp(&opened, &config, "fragments");
}

TEST(a_missing_address_is_retried)
{
        const char *log;

        stop_at = 0;
        add_at = 3;
        log = logged_by(open_later);
        assert_int_equal(result, 0);
        assert_int_equal(binds, 3);
        assert_non_null(strstr(log, "cannot open " LATER ":5000 for fragments yet, retrying every 500 ms"));
        assert_null(strstr(strstr(log, "yet") + 1, "yet")); /* once */
        endpoint_free(opened);
}

static void open_missing(void)
{
        struct net_address local = at("192.168.99.2", 5000);

        binds = 0;
        result = socket_open_listener(&local, 0, "data connections");
}

TEST(a_stop_ends_the_wait)
{
        add_at = 0;
        stop_at = 2;
        logged_by(open_missing);
        assert_int_equal(result, -ECANCELED);
        assert_int_equal(binds, 2);
        stop_at = 0;
}

static void remove_later(void)
{
        set_address("lo:1", "0.0.0.0");
}

/* SIGHUP asks for a reload, which follows once the node runs. Meanwhile, the watchdog is fed. */
TEST(a_hangup_does_not_end_the_wait)
{
        const char *name = "@evb-test-notify";
        struct sockaddr_un to = {.sun_family = AF_UNIX};
        int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), fed = 0;
        const char *log;
        char text[512];
        ssize_t n;

        memcpy(to.sun_path + 1, name + 1, strlen(name) - 1);
        assert_int_equal(__real_bind(fd, (struct sockaddr *)&to,
                                     (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name))),
                         0);
        setenv("NOTIFY_SOCKET", name, 1);
        setenv("WATCHDOG_USEC", "100000", 1); /* fed each 50 ms */
        remove_later();
        hang_up_at = 2;
        add_at = 6;
        log = logged_by(open_later);
        hang_up_at = add_at = 0;
        unsetenv("NOTIFY_SOCKET");
        unsetenv("WATCHDOG_USEC");
        assert_int_equal(result, 0);
        endpoint_free(opened);
        assert_non_null(strstr(log, "SIGHUP: the scenario is read again once " LATER ":5000 is present"));
        assert_true(signals_are_waiting());
        assert_int_equal(signals_wait(0), SIGHUP);
        while ((n = recv(fd, text, sizeof text - 1, 0)) > 0) {
                text[n] = '\0';
                fed += strstr(text, "WATCHDOG=1") != NULL;
        }
        assert_int_equal(fed, 5);
        close(fd);
}

/* Under `evb run` all nodes are on this machine, so a missing address is an error. */
TEST(a_node_of_evb_run_does_not_wait)
{
        setenv(NODE_STATS_ENV, "9", 1);
        assert_non_null(
                strstr(logged_by(open_missing), "cannot open 192.168.99.2:5000 for data connections"));
        unsetenv(NODE_STATS_ENV);
        assert_int_equal(result, -EADDRNOTAVAIL);
        assert_int_equal(binds, 1);
}

static void open_taken(void)
{
        struct udp_config config = {.local = at("127.0.0.2", 5000)};
        struct net_address local = at("127.0.0.2", 5000);

        result = socket_open_udp(&opened, &config, "fragments");
        if (result == -EADDRINUSE)
                result = socket_open_listener(&local, 0, "data connections");
}

/* An address is not shared even with a socket that permits sharing: it belongs to another program. */
TEST(an_address_in_use_is_not_shared)
{
        struct net_address local = at("127.0.0.2", 5000);
        int datagrams = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0),
            stream = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        const char *log;
        int on = 1;

        setsockopt(datagrams, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        setsockopt(stream, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        assert_int_equal(__real_bind(datagrams, &local.any, local.size_bytes), 0);
        assert_int_equal(__real_bind(stream, &local.any, local.size_bytes), 0);
        assert_int_equal(listen(stream, 1), 0);
        log = logged_by(open_taken);
        assert_int_equal(result, -EADDRINUSE);
        assert_non_null(
                strstr(log, "127.0.0.2:5000 for fragments: it is in use; is this node running already?"));
        assert_non_null(strstr(log, "cannot open 127.0.0.2:5000 for data connections: it is in use;"));
        close(datagrams);
        close(stream);
}

static void record_buffers(void)
{
        socket_log_buffer(SOCKET_RECEIVE, "fragments", true, 1 << 20, 1 << 20);
        for (int i = 0; i < 5; i++)
                socket_log_buffer(SOCKET_SEND, "fragments", true, 8 << 20, 212992);
}

TEST(a_small_buffer_is_logged_once)
{
        const char *log = logged_by(record_buffers);

        assert_non_null(strstr(log, "as send buffer for fragments; raise net.core.wmem_max to 8388608"));
        assert_null(strstr(log, "rmem_max"));
        assert_ptr_equal(strchr(log, '\n') + 1, log + strlen(log));
}

static int option_of(int fd, int name)
{
        socklen_t size = sizeof(int);
        int value = -1;

        assert_int_equal(getsockopt(fd, SOL_SOCKET, name, &value, &size), 0);
        return value;
}

/* What a new socket has, and what it gets: some kernels let only CAP_NET_ADMIN raise it. */
static int usual_us, raised_us;

static void find_usual(void)
{
        int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), wanted_us = 50;

        usual_us = option_of(fd, SO_BUSY_POLL);
        __real_setsockopt(fd, SOL_SOCKET, SO_BUSY_POLL, &wanted_us, sizeof wanted_us);
        raised_us = option_of(fd, SO_BUSY_POLL);
        close(fd);
}

/* Opens a socket of each kind. */
static void open_busy(void)
{
        struct net_address local = at("127.0.0.4", 5000);
        struct udp_config config = {.local = local};
        _cleanup_close_ int listener, connected, accepted;

        assert_int_equal(socket_open_udp(&opened, &config, "fragments"), 0);
        listener = socket_open_listener(&local, 0, "data connections");
        assert_true(listener >= 0);
        socket_poll_busily(listener);
        connected = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(connect(connected, &local.any, local.size_bytes), 0);
        accepted = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        assert_true(accepted >= 0);
        for (int i = 0; i < 2; i++) {
                int fd = i == 0 ? opened->fd : accepted;

                assert_int_equal(option_of(fd, SO_BUSY_POLL), refused == SO_BUSY_POLL ? usual_us : raised_us);
                if (refused > 0)
                        assert_int_equal(option_of(fd, SO_PREFER_BUSY_POLL), 0);
        }
        assert_int_equal(option_of(connected, SO_BUSY_POLL), usual_us);
        endpoint_free(opened);
}

/* Where the kernel has no SO_PREFER_BUSY_POLL, or the user lacks CAP_NET_ADMIN, all else works. */
TEST(busy_polling_may_be_refused)
{
        const char *log;

        find_usual();
        /* 49.5 us: the kernel counts whole microseconds. */
        socket_set_busy_poll(49500);
        refused = SO_BUSY_POLL;
        log = logged_by(open_busy);
        assert_non_null(strstr(log, "network.busy-poll: the kernel refuses SO_BUSY_POLL: Operation not "
                                    "permitted; the node goes on without it"));
        assert_ptr_equal(strchr(log, '\n') + 1, log + strlen(log)); /* once, for two sockets */
        refused = SO_PREFER_BUSY_POLL;
        assert_string_equal(logged_by(open_busy), "");
        refused = 0;
        open_busy();
        socket_set_busy_poll(0);
}

TEST(without_the_key_no_socket_is_polled)
{
        struct udp_config config = {.local = at("127.0.0.4", 5000)};

        assert_int_equal(socket_open_udp(&opened, &config, "fragments"), 0);
        socket_poll_busily(opened->fd);
        assert_int_equal(option_of(opened->fd, SO_BUSY_POLL), usual_us);
        endpoint_free(opened);
}

static int level_of(int fd, int level, int name)
{
        int value = -1;
        socklen_t size = sizeof value;

        assert_int_equal(getsockopt(fd, level, name, &value, &size), 0);
        return value;
}

static void assert_marked(int fd, bool v6, int dscp, int priority)
{
        assert_int_equal(level_of(fd, v6 ? IPPROTO_IPV6 : IPPROTO_IP, v6 ? IPV6_TCLASS : IP_TOS) >> 2, dscp);
        assert_int_equal(level_of(fd, SOL_SOCKET, SO_PRIORITY), priority);
}

TEST_EACH(sockets_of_both_families_are_marked, v6, 2)
{
        static const uint8_t marks[][2] = {{48, 6}, {18, 2}, {46, 5}, {1, 0}, {63, 6}};

        _cleanup_close_ int fd = socket(v6 ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

        socket_mark(fd, 0);
        assert_marked(fd, v6, 0, 0);
        for (size_t i = 0; i < ARRAY_SIZE(marks); i++) {
                socket_mark(fd, marks[i][0]);
                assert_marked(fd, v6, marks[i][0], marks[i][1]);
        }
}

TEST(accepted_connections_inherit_the_dscp)
{
        struct net_address local = at("127.0.0.4", 5000);
        _cleanup_close_ int listener = socket_open_listener(&local, 0, "data connections"), accepted,
                            connected = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

        assert_true(listener >= 0);
        socket_mark(listener, 18);
        assert_int_equal(connect(connected, &local.any, local.size_bytes), 0);
        accepted = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        assert_true(accepted >= 0);
        assert_int_equal(level_of(accepted, IPPROTO_IP, IP_TOS) >> 2, 18);
        socket_mark(accepted, 18);
        assert_marked(accepted, false, 18, 2);
}

static void mark_two(void)
{
        for (int i = 0; i < 2; i++) {
                _cleanup_close_ int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

                socket_mark(fd, 48);
        }
}

TEST(a_kernel_that_refuses_marks_is_named_once)
{
        const char *log;

        refused = SO_PRIORITY;
        log = logged_by(mark_two);
        refused = 0;
        assert_non_null(strstr(log, "network.dscp: the kernel refuses to mark packets: Operation not "
                                    "permitted; the node goes on without it"));
        assert_ptr_equal(strchr(log, '\n') + 1, log + strlen(log));
}

int main(int argc, char **argv)
{
        if (!own_network_enter(0))
                return 77;
        signal(SIGHUP, SIG_DFL); /* nohup ignores it */
        signals_hold();
        return test_run(argc, argv, NULL, NULL);
}
