/* Data connections over TCP: which peers are accepted and for how long. The test plays ROSs and strangers, or
 * the SFI. */
#include "../test.h"

#include <poll.h>
#include <sys/socket.h>

#include "data/data_receive.h"
#include "data/data_send.h"
#include "net/tcp.h"
#include "data_sample.h"

#define ROS1 sample_at(2)
#define ROS2 sample_at(3)
#define SFI1 sample_at(4)

static unsigned watched;   /* calls of tcp_notice_silence() */
static uint8_t flood[256]; /* received endlessly, if flood_bytes is not 0 */
static size_t flood_bytes, flooded;

ssize_t __real_recvmsg(int fd, struct msghdr *h, int flags);
void __real_tcp_notice_silence(int fd);

void __wrap_tcp_notice_silence(int fd)
{
        watched++;
        __real_tcp_notice_silence(fd);
}

ssize_t __wrap_recvmsg(int fd, struct msghdr *h, int flags)
{
        ssize_t n = 0;

        if (flood_bytes == 0)
                return __real_recvmsg(fd, h, flags);
        for (size_t i = 0; i < h->msg_iovlen; n += (ssize_t)h->msg_iov[i++].iov_len) {
                for (size_t k = 0; k < h->msg_iov[i].iov_len; k++, flooded++)
                        ((uint8_t *)h->msg_iov[i].iov_base)[k] = flood[flooded % flood_bytes];
        }
        if (flooded > 1 << 28)
                fail_msg("a turn does not end during a flood");
        return n;
}

struct bench {
        struct sample sample;
        struct data_receiver receiver;
        uint64_t now_ns;
};

static void bench_open(struct bench *b)
{
        struct sfi_config config = sample_sfi();

        *b = (struct bench){.now_ns = NS_PER_S};
        watched = 0;
        sample_open(&b->sample, "sfi1", "tcp");
        b->receiver = (struct data_receiver){
                .ops = &data_receive_tcp,
                .context = b->sample.context,
                .buffer = calloc(1, config.buffer_bytes),
        };
        assert_int_equal(sfi_new(&b->receiver.core, &config, b->now_ns), 0);
        assert_true(sfi_receive(b->receiver.core, b->now_ns, sample_welcome()));
        assert_int_equal(b->receiver.ops->open(&b->receiver), 0);
}

static void bench_close(struct bench *b)
{
        b->receiver.ops->close(&b->receiver);
        sfi_free(b->receiver.core);
        free(b->receiver.buffer);
        sample_close(&b->sample);
}

/* Turns until nothing is left to do. */
static void turns(struct bench *b)
{
        bool more = true;

        for (int i = 0; i < 100; i++) {
                assert_int_equal(loop_wait(b->sample.loop, clock_now_ns() + (more ? 0 : 2 * NS_PER_MS)), 0);
                assert_int_equal(b->receiver.ops->turn(&b->receiver, b->now_ns, &more), 0);
                if (!more && i > 5)
                        return;
        }
        fail_msg("the receiver does not become idle");
}

static int dial(const char *from)
{
        struct net_address local, to;
        struct pollfd p = {.events = POLLOUT};

        assert_int_equal(net_address_parse(&local, from, 0), 0);
        assert_int_equal(net_address_parse(&to, SFI1, 46911), 0);
        p.fd = tcp_connect(&local, &to, 0);
        assert_true(p.fd >= 0);
        assert_int_equal(poll(&p, 1, 5000), 1);
        assert_int_equal(tcp_connected(p.fd), 0);
        return p.fd;
}

static void introduce(int fd, uint16_t ros)
{
        static struct message m;
        uint8_t bytes[256];
        struct iovec iov = {.iov_base = bytes};

        m.header = (struct message_header){.cookie = SAMPLE_COOKIE,
                                           .sender_role = ROLE_ROS,
                                           .sender_index = ros,
                                           .type = MESSAGE_TOTALS};
        iov.iov_len = message_encode(&m, bytes, sizeof bytes);
        assert_int_equal(tcp_send(fd, &iov, 1), iov.iov_len);
}

static bool is_closed(struct bench *b, int fd)
{
        char byte;
        ssize_t n;

        turns(b);
        n = recv(fd, &byte, 1, MSG_DONTWAIT);
        return n == 0 || (n < 0 && errno != EAGAIN);
}

/* Requests a fragment from a ROS; true: the request reaches this connection. */
static bool gets_request(struct bench *b, uint16_t ros, int fd)
{
        static struct message m;
        struct pollfd p = {.fd = fd, .events = POLLIN};
        uint8_t bytes[256];

        m.header = (struct message_header){
                .cookie = SAMPLE_COOKIE, .sender_role = ROLE_SFI, .type = MESSAGE_REQUEST};
        m.n = 1;
        m.request.entries[0] = (struct request_entry){.event = 1, .l1_id = 1, .to_bytes = UINT32_MAX};
        b->receiver.ops->request(&b->receiver, (struct message_to){ROLE_ROS, ros}, &m);
        return poll(&p, 1, 200) == 1 && recv(fd, bytes, sizeof bytes, MSG_DONTWAIT) > 0;
}

TEST(an_introduction_is_final)
{
        _cleanup_(bench_close) struct bench b;
        _cleanup_close_ int fd;

        bench_open(&b);
        fd = dial(ROS1);
        introduce(fd, 0);
        assert_false(is_closed(&b, fd));
        assert_true(gets_request(&b, 0, fd));
        introduce(fd, 0); /* may be repeated */
        assert_false(is_closed(&b, fd));
        introduce(fd, 1);
        assert_true(is_closed(&b, fd));
        assert_false(gets_request(&b, 0, fd));
        assert_false(gets_request(&b, 1, fd));
}

TEST(a_ros_is_accepted_only_from_its_own_address)
{
        _cleanup_(bench_close) struct bench b;
        _cleanup_close_ int other, ros2, ros1;

        bench_open(&b);
        other = dial(sample_at(77));
        assert_true(is_closed(&b, other));
        assert_int_equal(stats_get(&b.sample.stats->packets_foreign), 1);
        ros1 = dial(ROS1);
        introduce(ros1, 0);
        assert_false(is_closed(&b, ros1));
        ros2 = dial(ROS2);
        introduce(ros2, 0);
        assert_true(is_closed(&b, ros2));
        assert_true(gets_request(&b, 0, ros1));
        assert_int_equal(stats_get(&b.sample.stats->packets_foreign), 2);
}

/* Idle connections, more than there are places, neither keep a ROS out nor displace one. */
TEST(idle_connections_do_not_keep_a_ros_out)
{
        enum { IDLE = 40 };
        _cleanup_(bench_close) struct bench b;
        int idle[IDLE], ros1, ros2;

        bench_open(&b);
        for (int i = 0; i < IDLE / 2; i++)
                idle[i] = dial(ROS2);
        ros1 = dial(ROS1);
        introduce(ros1, 0);
        for (int i = IDLE / 2; i < IDLE; i++)
                idle[i] = dial(ROS2);
        turns(&b);
        assert_true(gets_request(&b, 0, ros1));
        ros2 = dial(ROS2);
        introduce(ros2, 1);
        turns(&b);
        assert_true(gets_request(&b, 1, ros2));
        assert_true(gets_request(&b, 0, ros1));
        assert_true(is_closed(&b, idle[0]));
        for (int i = 0; i < IDLE; i++)
                close(idle[i]);
        close(ros1);
        close(ros2);
}

TEST(a_peer_that_stays_silent_is_closed)
{
        _cleanup_(bench_close) struct bench b;
        _cleanup_close_ int idle, ros1;

        bench_open(&b);
        idle = dial(ROS2);
        ros1 = dial(ROS1);
        introduce(ros1, 0);
        assert_false(is_closed(&b, idle));
        b.now_ns += 9 * NS_PER_S;
        assert_false(is_closed(&b, idle));
        b.now_ns += NS_PER_S;
        assert_true(is_closed(&b, idle));
        assert_false(is_closed(&b, ros1));
        assert_int_equal(watched, 2);
}

/* The head of a message of three fragments of 2 MiB, in `to`; returns its size. */
static size_t make_large_head(uint8_t *to, size_t size)
{
        static const uint8_t payload[2 << 20];
        struct message_header header = {
                .cookie = SAMPLE_COOKIE, .sender_role = ROLE_ROS, .type = MESSAGE_FRAGMENTS};
        struct chunk_job jobs[3];
        const struct chunk_datagram *d;
        struct chunk_packer *packer;
        size_t n;

        for (uint64_t event = 0; event < ARRAY_SIZE(jobs); event++)
                jobs[event] = (struct chunk_job){
                        .chunk = {.event = event, .l1_id = (uint32_t)event, .fragment_bytes = sizeof payload},
                        .to_bytes = sizeof payload,
                        .payload = payload,
                };
        assert_int_equal(chunk_packer_new(&packer, 8 << 20, 1), 0);
        chunk_packer_set_stream(packer);
        assert_int_equal(chunk_pack(packer, &header, jobs, ARRAY_SIZE(jobs), &d), 1);
        assert_int_equal(d->jobs_done, ARRAY_SIZE(jobs));
        n = d->iov[0].iov_len;
        assert_true(n <= size);
        memcpy(to, d->iov[0].iov_base, n);
        chunk_packer_free(packer);
        return n;
}

/* Other ROSs and requests have their turn, too. */
TEST(a_large_message_does_not_prolong_a_turn)
{
        _cleanup_(bench_close) struct bench b;
        _cleanup_close_ int fd;
        bool more;

        bench_open(&b);
        for (uint64_t event = 0; event < 3; event++)
                assert_true(sfi_receive(b.receiver.core, b.now_ns, sample_assign(event, 0)));
        fd = dial(ROS1);
        introduce(fd, 0);
        assert_false(is_closed(&b, fd));
        flood_bytes = make_large_head(flood, sizeof flood);
        flooded = 0;
        introduce(fd, 0); /* wakes the SFI, which gets the message instead */
        assert_int_equal(loop_wait(b.sample.loop, clock_now_ns() + NS_PER_S), 0);
        assert_int_equal(b.receiver.ops->turn(&b.receiver, b.now_ns, &more), 0);
        flood_bytes = 0;
        assert_true(more);
        assert_in_range(flooded, 4 << 20, 5 << 20);
}

/* A ROS; the test plays its SFI. */
struct ros_bench {
        struct sample sample;
        struct data_sender sender;
        uint64_t now_ns;
        int listener, fd;
};

static bool ros_turn(struct ros_bench *b)
{
        bool more = false;

        assert_int_equal(loop_wait(b->sample.loop, clock_now_ns() + NS_PER_MS), 0);
        assert_int_equal(b->sender.ops->turn(&b->sender, b->now_ns, &more), 0);
        return more;
}

static void ros_bench_open(struct ros_bench *b)
{
        struct ros_config config = {
                .member = {.incarnation = SAMPLE_INCARNATION},
                .n_sfi = 2,
                .entries = 16,
                .buffer_bytes = EVB_FRAGMENT_MAX_BYTES,
                .keep_alive_ns = NS_PER_S,
        };
        struct net_address local;

        *b = (struct ros_bench){.now_ns = NS_PER_S, .fd = -1};
        watched = 0;
        assert_int_equal(net_address_parse(&local, SFI1, 46911), 0);
        b->listener = tcp_listen(&local, 0);
        assert_true(b->listener >= 0);
        sample_open(&b->sample, "ros1", "tcp");
        b->sender = (struct data_sender){.ops = &data_send_tcp, .context = b->sample.context};
        assert_int_equal(ros_new(&b->sender.core, &config, b->now_ns), 0);
        assert_true(ros_receive(b->sender.core, b->now_ns, sample_welcome()));
        assert_int_equal(b->sender.ops->open(&b->sender), 0);
        for (int i = 0; i < 10000 && b->fd < 0; i++) {
                ros_turn(b);
                b->fd = tcp_accept(b->listener, 0, &local);
        }
        assert_true(b->fd >= 0);
        assert_int_equal(watched, 2); /* one per SFI */
        for (int i = 0; i < 20; i++)
                ros_turn(b);
}

static void ros_bench_close(struct ros_bench *b)
{
        flood_bytes = 0;
        b->sender.ops->close(&b->sender);
        chunk_packer_free(b->sender.packer);
        ros_free(b->sender.core);
        sample_close(&b->sample);
        close(b->listener);
        close(b->fd);
}

static size_t make_request(uint8_t *bytes, size_t size, uint8_t role, uint16_t sfi)
{
        static struct message m;

        m.header = (struct message_header){
                .cookie = SAMPLE_COOKIE, .sender_role = role, .sender_index = sfi, .type = MESSAGE_REQUEST};
        m.n = 1;
        m.request.entries[0] = (struct request_entry){.event = 1, .l1_id = 1, .to_bytes = UINT32_MAX};
        return message_encode(&m, bytes, size);
}

/* Sends bytes; true: the ROS closes the connection. */
static bool is_refused(struct ros_bench *b, const uint8_t *bytes, size_t n)
{
        uint8_t introduction[256];
        ssize_t got = 1;

        assert_int_equal(send(b->fd, bytes, n, 0), n);
        for (int i = 0; i < 100; i++) {
                ros_turn(b);
                got = recv(b->fd, introduction, sizeof introduction, MSG_DONTWAIT);
                if (got == 0 || (got < 0 && errno != EAGAIN))
                        return true;
        }
        return false;
}

/* The connection is for this SFI's requests, not for messages of the DFM or another SFI. */
TEST(a_ros_accepts_only_requests_of_the_connected_sfi)
{
        struct ros_bench b;
        static struct message m;
        uint8_t bytes[512];

        ros_bench_open(&b);
        assert_false(is_refused(&b, bytes, make_request(bytes, sizeof bytes, ROLE_SFI, 0)));
        assert_int_equal(ros_held(b.sender.core), 1);
        assert_true(is_refused(&b, bytes, make_request(bytes, sizeof bytes, ROLE_SFI, 1)));
        ros_bench_close(&b);
        ros_bench_open(&b);
        m.header = (struct message_header){
                .cookie = SAMPLE_COOKIE, .sender_role = ROLE_DFM, .type = MESSAGE_KEEP_ALIVE};
        m.keep_alive.state = RUN_ENDED;
        assert_true(is_refused(&b, bytes, message_encode(&m, bytes, sizeof bytes)));
        assert_int_equal(ros_run_state(b.sender.core), RUN_STARTING);
        ros_bench_close(&b);
}

TEST(a_flood_of_requests_does_not_prolong_a_turn)
{
        _cleanup_(ros_bench_close) struct ros_bench b;
        uint8_t byte = 0;

        ros_bench_open(&b);
        flood_bytes = make_request(flood, sizeof flood, ROLE_SFI, 0);
        flooded = 0;
        assert_int_equal(send(b.fd, &byte, 1, 0), 1);
        assert_true(ros_turn(&b));
        assert_in_range(flooded, 1, 2 << 20);
        assert_int_equal(ros_held(b.sender.core), 1);
}

/* An SFI that no ROS can reach must not look as if it were ready. */
TEST(a_closed_port_is_an_error)
{
        _cleanup_(bench_close) struct bench b;
        bool more;

        bench_open(&b);
        turns(&b);
        assert_return_code(shutdown(sample_find_listener(), SHUT_RDWR), 0);
        assert_int_equal(loop_wait(b.sample.loop, clock_now_ns() + NS_PER_S), 0);
        assert_int_equal(b.receiver.ops->turn(&b.receiver, b.now_ns, &more), -ECONNABORTED);
}
