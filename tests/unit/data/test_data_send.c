/* A ROS sends over UDP: pacing, full buffers and refused datagrams. The test controls the clock and
 * sendmmsg(). */
#include "../test.h"

#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "data/data_send.h"
#include "data_sample.h"
#include "log_lines.h"

#define MTU 1500
#define FRAGMENT_BYTES 300u

static uint64_t clock_ns = NS_PER_S;
static int send_errno;      /* 0: datagrams are sent */
static unsigned send_calls; /* failed calls */
static size_t jobs_made;
static int unsent_bytes; /* that the kernel reports */

int __real_sendmmsg(int fd, struct mmsghdr *messages, unsigned n, int flags);
size_t __real_ros_jobs(struct ros *r, uint32_t sfi, struct ros_job *jobs, size_t n);

int __real_ioctl(int fd, unsigned long request, ...);

int __wrap_ioctl(int fd, unsigned long request, ...)
{
        va_list args;
        void *argument;

        va_start(args, request);
        argument = va_arg(args, void *);
        va_end(args);
        if (request != SIOCOUTQ)
                return __real_ioctl(fd, request, argument);
        *(int *)argument = unsent_bytes;
        return 0;
}

uint64_t __wrap_clock_now_ns(void)
{
        return clock_ns;
}

int __wrap_sendmmsg(int fd, struct mmsghdr *messages, unsigned n, int flags)
{
        if (send_errno == 0)
                return __real_sendmmsg(fd, messages, n, flags);
        send_calls++;
        errno = send_errno;
        return -1;
}

size_t __wrap_ros_jobs(struct ros *r, uint32_t sfi, struct ros_job *jobs, size_t n)
{
        size_t made = __real_ros_jobs(r, sfi, jobs, n);

        jobs_made += made;
        return made;
}

static void describe(void *ctx, uint64_t event, uint32_t l1_id, struct ros_fragment *ret)
{
        (void)ctx, (void)event, (void)l1_id;
        *ret = (struct ros_fragment){.bytes = FRAGMENT_BYTES};
}

static struct bench {
        struct sample sample;
        struct data_sender sender;
        uint8_t *buffer;
        struct source *source;
} b;

static void bench_open(uint64_t pacing_bps)
{
        struct pattern_sizes sizes = {.bytes = FRAGMENT_BYTES};
        struct ros_config config = {
                .member = {.incarnation = SAMPLE_INCARNATION},
                .n_sfi = 2,
                .entries = 1024,
                .buffer_bytes = 4 << 20,
                .keep_alive_ns = NS_PER_S,
                .describe = describe,
        };

        b = (struct bench){.buffer = calloc(1, config.buffer_bytes)};
        sample_open(&b.sample, "ros1", "udp");
        b.sample.scenario->ros.pacing_bps = pacing_bps;
        assert_int_equal(source_new_pattern(&b.source, 0, 1, &sizes), 0);
        b.sender = (struct data_sender){
                .ops = &data_send_udp, .context = b.sample.context, .source = b.source, .buffer = b.buffer};
        assert_int_equal(ros_new(&b.sender.core, &config, clock_ns), 0);
        assert_true(ros_receive(b.sender.core, clock_ns, sample_welcome()));
        assert_int_equal(b.sender.ops->open(&b.sender), 0);
        send_errno = 0;
        send_calls = 0;
        jobs_made = 0;
        unsent_bytes = 0;
}

static int bench_close(void **state)
{
        b.sender.ops->close(&b.sender);
        chunk_packer_free(b.sender.packer);
        ros_free(b.sender.core);
        source_free(b.source);
        sample_close(&b.sample);
        free(b.buffer);
        return 0;
}

static void assign(uint16_t sfi, uint64_t first, size_t n)
{
        for (size_t i = 0; i < n; i++)
                assert_true(ros_receive(b.sender.core, clock_ns, sample_announce(first + i, sfi)));
}

static bool turn(void)
{
        bool more = true;

        assert_int_equal(b.sender.ops->turn(&b.sender, clock_ns, &more), 0);
        return more;
}

static uint64_t deadline(void)
{
        return b.sender.ops->deadline_ns(&b.sender);
}

/* 600 fragments wait, but pacing permits 4 frames: jobs are prepared for these alone, and the rate is kept.
 */
TEST_WITH(pacing_prepares_only_what_it_sends, NULL, bench_close)
{
        uint64_t begin_ns;

        bench_open(100000000);
        clock_ns += NS_PER_S; /* fills the bucket */
        begin_ns = clock_ns;
        assign(0, 0, 600);
        while (turn())
                ;
        assert_in_range(stats_get(&b.sample.stats->packets_sent), 4, 6);
        assert_in_range(jobs_made, 16, 100);
        while (ros_next_with_jobs(b.sender.core, 0) == 0) {
                assert_true(deadline() > clock_ns && deadline() < clock_ns + NS_PER_MS);
                clock_ns = deadline();
                while (turn())
                        ;
        }
        assert_int_equal(ros_counts(b.sender.core)->fragments_sent, 600);
        assert_in_range(jobs_made, 600, 600 * 12);
        /* 600 fragments fill some 127 frames of 1514 bytes at 80 ns a byte; the first frames go at once. */
        assert_in_range(clock_ns - begin_ns, 120 * 1514 * 80, 130 * 1514 * 80);
        assert_int_equal(deadline(), NEVER_NS);
}

/* The end of a batch does not cut a datagram short. */
TEST_WITH(datagrams_are_full_while_more_is_queued, NULL, bench_close)
{
        uint64_t sent;

        bench_open(0);
        assign(0, 0, 1000);
        while (turn())
                ;
        assert_int_equal(ros_counts(b.sender.core)->fragments_sent, 1000);
        sent = stats_get(&b.sample.stats->packets_sent);
        assert_in_range(sent, 1000 * FRAGMENT_BYTES / 1440, 1000 * FRAGMENT_BYTES / 1380);
        /* All but the last one. */
        assert_int_equal(stats_get(&b.sample.stats->packets_full), sent - 1);
}

/* While the qdisc has much to send before it, a datagram waits for more fragments; otherwise it leaves at
 * once. */
TEST_WITH(a_datagram_waits_behind_a_backlog, NULL, bench_close)
{
        uint64_t begin_ns;
        size_t made;

        bench_open(0);
        assign(0, 0, 2);
        (void)turn();
        assert_int_equal(stats_get(&b.sample.stats->packets_sent), 1); /* not shaped */
        stats_set(&b.sample.stats->qos_backend, 1);
        stats_set(&b.sample.stats->qos_rate_bps, 100000000);
        assign(0, 10, 2);
        (void)turn();
        assert_int_equal(stats_get(&b.sample.stats->packets_sent), 2); /* no backlog */
        unsent_bytes = 1 << 20;
        assign(0, 20, 4);
        assert_false(turn());
        assert_int_equal(stats_get(&b.sample.stats->packets_sent), 2);
        begin_ns = clock_ns;
        assert_in_range(deadline(), begin_ns + NS_PER_MS, begin_ns + 10 * NS_PER_MS);
        made = jobs_made;
        assert_false(turn());
        assert_int_equal(jobs_made, made); /* waiting costs nothing */
        assign(0, 30, 1);
        assert_false(turn());
        assert_stats(b.sample.stats, packets_sent, 3, packets_full, 1);
        assert_int_equal(ros_queued(b.sender.core, 0).jobs, 1);
        /* At the deadline it leaves, although the backlog is still there, and the next one waits again. */
        clock_ns = deadline();
        (void)turn();
        assert_int_equal(stats_get(&b.sample.stats->packets_sent), 4);
        assert_int_equal(deadline(), NEVER_NS);
        assign(0, 40, 1);
        assert_false(turn());
        assert_int_equal(stats_get(&b.sample.stats->packets_sent), 4);
        assert_in_range(deadline(), clock_ns + NS_PER_MS, clock_ns + 10 * NS_PER_MS);
}

/* A paced SFI whose socket is full waits for EPOLLOUT; its deadline has passed and must not wake the loop. */
TEST_WITH(a_blocked_sfi_has_no_deadline, NULL, bench_close)
{
        bench_open(100000000);
        clock_ns += NS_PER_S;
        assign(0, 0, 100);
        while (turn())
                ;
        assert_true(deadline() != NEVER_NS);
        clock_ns = deadline() + NS_PER_US;
        send_errno = EAGAIN;
        assert_false(turn());
        assert_int_equal(send_calls, 1);
        clock_ns += NS_PER_S;
        assert_false(turn());
        assert_int_equal(deadline(), NEVER_NS);
        assert_int_equal(send_calls, 1);
        send_errno = 0;
        assert_int_equal(loop_wait(b.sample.loop, clock_ns), 0);
        while (turn())
                ;
        assert_true(stats_get(&b.sample.stats->packets_sent) > 6);
        /* An SFI with nothing to send has no deadline either. */
        assert_true(deadline() != NEVER_NS);
        ros_forget_sfi(b.sender.core, 0);
        clock_ns += NS_PER_S;
        assert_false(turn());
        assert_int_equal(deadline(), NEVER_NS);
}

/* A datagram that the kernel refuses counts as lost, not as sent, and the ROS continues. */
TEST_WITH(a_refused_datagram_is_not_counted_as_sent, NULL, bench_close)
{
        uint64_t sent;

        bench_open(0);
        assign(0, 0, 40);
        send_errno = EHOSTDOWN;
        assert_false(turn() && turn() && turn());
        assert_stats(b.sample.stats, packets_sent, 0, bytes_sent, 0);
        assert_in_range(stats_get(&b.sample.stats->packets_send_failed), 8, 10);
        send_errno = 0;
        assign(0, 100, 40);
        while (turn())
                ;
        sent = stats_get(&b.sample.stats->packets_sent);
        assert_in_range(sent, 8, 10);
        assert_in_range(stats_get(&b.sample.stats->packets_send_failed), 8, 10);
        assert_true(stats_get(&b.sample.stats->bytes_sent) > 40 * FRAGMENT_BYTES);
        /* The SFI detects the loss by the sequence numbers. */
        assert_int_equal(ros_transaction(b.sender.core, 0),
                         sent + stats_get(&b.sample.stats->packets_send_failed));
}

/* The first refusal has a line, and another one that follows a pause. */
TEST_WITH(each_fault_is_logged, NULL, bench_close)
{
        static const struct {
                unsigned after_s, lines;
        } refusals[] = {{0, 1}, {5, 1}, {9, 1}, {10, 2}, {1, 2}};

        bench_open(0);
        log_lines = 0;
        send_errno = EHOSTDOWN;
        for (unsigned i = 0; i < ARRAY_SIZE(refusals); i++) {
                clock_ns += refusals[i].after_s * NS_PER_S;
                assign(0, i, 1);
                while (turn())
                        ;
                assert_int_equal(stats_get(&b.sample.stats->packets_send_failed), i + 1);
                assert_int_equal(log_lines, refusals[i].lines);
        }
}

/* Nobody listens: the ICMP error must not wake the loop again and again. */
TEST_WITH(an_icmp_error_does_not_keep_the_loop_awake, NULL, bench_close)
{
        int wakes = 0;

        bench_open(0);
        assign(0, 0, 4);
        while (turn())
                ;
        for (int i = 0; i < 10; i++) {
                struct pollfd p = {.fd = -1};

                poll(&p, 1, 5);
                assert_int_equal(loop_wait(b.sample.loop, clock_ns), 0);
        }
        for (int fd = 3; fd < 64; fd++) {
                struct pollfd p = {.fd = fd, .events = 0};

                wakes += poll(&p, 1, 0) > 0 && (p.revents & POLLERR);
        }
        assert_int_equal(wakes, 0);
}
