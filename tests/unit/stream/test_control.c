/* Tests the control connections of a stream under a clock that the test moves: when a peer is silent. */
#include "../test.h"

#include <poll.h>
#include <time.h>
#include <unistd.h>

#include "control_connection.h"
#include "net/tcp.h"

/* Longer than a peer may be silent. */
#define LONG_NS (21 * NS_PER_S)

static uint64_t moved_ns;

int __real_clock_gettime(clockid_t clock, struct timespec *ret);

int __wrap_clock_gettime(clockid_t clock, struct timespec *ret)
{
        int r = __real_clock_gettime(clock, ret);

        ret->tv_sec += (time_t)(moved_ns / NS_PER_S);
        return r;
}

static struct {
        unsigned received;
        int ended;
} seen;

/* Starting a stream may take long on a busy machine. */
static void received(void *ctx, struct json_connection *c, const json_t *message)
{
        if (seen.received++ > 0)
                return;
        moved_ns += LONG_NS;
        stream_control_admit(c);
}

static void ended(void *ctx, struct json_connection *c, int error)
{
        seen.ended = error;
}

static void turn(struct stream_control *k)
{
        assert_int_equal(loop_wait(k->loop, clock_now_ns() + NS_PER_MS), 0);
        (void)stream_control_turn(k, loop_now_ns(k->loop));
}

TEST(silence_begins_when_the_peer_is_admitted)
{
        struct stream_control k = {.received = received, .ended = ended};
        struct net_address at;
        struct loop *loop;
        int fd;

        assert_int_equal(net_address_parse(&at, "127.0.0.1", 0), 0);
        assert_int_equal(loop_new(&loop), 0);
        assert_int_equal(stream_control_listen(&k, loop, &at), 0);
        assert_int_equal(getsockname(k.listener.fd, &at.any, &at.size_bytes), 0);
        fd = tcp_connect(NULL, &at, 0);
        assert_true(fd >= 0);
        while (write(fd, "{}\n", 3) != 3)
                assert_int_equal(errno, EAGAIN);
        while (seen.received == 0)
                turn(&k);
        turn(&k);
        assert_int_equal(seen.ended, 0);

        /* A message that waits while this process is held up counts. */
        assert_int_equal(write(fd, "{}\n", 3), 3);
        assert_int_equal(poll(&(struct pollfd){k.peers[0].connection.io.fd, POLLIN, 0}, 1, -1), 1);
        moved_ns += LONG_NS;
        turn(&k);
        assert_fields(&seen, received, 2, ended, 0);

        moved_ns += LONG_NS;
        turn(&k);
        assert_int_equal(seen.ended, -ETIMEDOUT);
        close(fd);
        stream_control_close(&k);
        loop_free(loop);
}
