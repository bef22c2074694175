/* An SFI with sfi.receive-threads: which thread has which ROS, what reaches the core and the counters, and
 * who else may have the address. */
#include "fragment_sender.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "data/data_receive.h"
#include "sys/thread.h"
#define SAMPLE_MORE "[node ros3]\nrole = ros\naddress = " SAMPLE_NET ".6\n"
#include "data_sample.h"

#define ROSS 3
#define EVENTS 50
#define WAITS 60000
#define DATA_PORT 46911

/* The socket that received the last datagram of each ROS; datagrams in all. */
static _Atomic int socket_of[ROSS];
static _Atomic unsigned datagrams;
static _Atomic bool fail_start, changed;
static unsigned started;

int __real_recvmmsg(int fd, struct mmsghdr *m, unsigned n, int flags, struct timespec *timeout);
int __wrap_recvmmsg(int fd, struct mmsghdr *m, unsigned n, int flags, struct timespec *timeout);
int __real_thread_start(pthread_t *ret, const char *name, const unsigned *cpus, size_t n_cpus,
                        void *(*run)(void *), void *ctx);
int __wrap_thread_start(pthread_t *ret, const char *name, const unsigned *cpus, size_t n_cpus,
                        void *(*run)(void *), void *ctx);

int __wrap_recvmmsg(int fd, struct mmsghdr *m, unsigned n, int flags, struct timespec *timeout)
{
        int k = __real_recvmmsg(fd, m, n, flags, timeout);

        for (int i = 0; i < k; i++) {
                const uint8_t *bytes = m[i].msg_hdr.msg_iov->iov_base;
                unsigned ros = bytes[FRAGMENTS_SENDER_AT];

                if (m[i].msg_len >= FRAGMENTS_HEADER_BYTES && ros < ROSS) {
                        int before = atomic_exchange(&socket_of[ros], fd);

                        if (before >= 0 && before != fd)
                                atomic_store(&changed, true);
                }
                atomic_fetch_add(&datagrams, 1);
        }
        return k;
}

int __wrap_thread_start(pthread_t *ret, const char *name, const unsigned *cpus, size_t n_cpus,
                        void *(*run)(void *), void *ctx)
{
        started++;
        return atomic_load(&fail_start) ? -EAGAIN : __real_thread_start(ret, name, cpus, n_cpus, run, ctx);
}

struct bench {
        struct sample sample;
        struct data_receiver receiver;
        struct fragment_sender ros[ROSS];
};

static const char *const hosts[ROSS] = {SAMPLE_NET ".2", SAMPLE_NET ".3", SAMPLE_NET ".6"};

static struct sfi *new_core(uint64_t cookie)
{
        struct sfi_config config = sample_sfi();
        struct message *m = (struct message *)sample_welcome();
        struct sfi *core;

        config.n_ros = ROSS;
        m->header.cookie = cookie;
        assert_int_equal(sfi_new(&core, &config, NS_PER_S), 0);
        assert_true(sfi_receive(core, NS_PER_S, m));
        return core;
}

static void bench_prepare(struct bench *b, uint64_t threads)
{
        struct sfi_config config = sample_sfi();
        struct net_address to = fragment_address(SAMPLE_NET ".4", DATA_PORT);

        memset(b, 0, sizeof *b);
        atomic_store(&changed, false);
        atomic_store(&datagrams, 0);
        for (uint16_t i = 0; i < ROSS; i++) {
                atomic_store(&socket_of[i], -1);
                fragment_sender_open(&b->ros[i], i, hosts[i], &to, SAMPLE_COOKIE);
        }
        sample_open(&b->sample, "sfi1", "udp");
        b->sample.scenario->sfi.receive_threads = threads;
        b->receiver = (struct data_receiver){
                .ops = threads > 0 ? &data_receive_threads : &data_receive_udp,
                .context = b->sample.context,
                .buffer = calloc(1, config.buffer_bytes),
        };
        b->receiver.core = new_core(SAMPLE_COOKIE);
}

static void turn(struct bench *b)
{
        bool more;

        assert_int_equal(b->receiver.ops->turn(&b->receiver, NS_PER_S, &more), 0);
        assert_int_equal(loop_wait(b->sample.loop, more ? 0 : clock_now_ns() + NS_PER_MS), 0);
}

static void bench_open(struct bench *b, uint64_t threads)
{
        bench_prepare(b, threads);
        assert_int_equal(b->receiver.ops->open(&b->receiver), 0);
        turn(b); /* the threads learn the run, as before an SFI's first message to the DFM */
}

static void bench_close(struct bench *b)
{
        b->receiver.ops->close(&b->receiver);
        sfi_free(b->receiver.core);
        free(b->receiver.buffer);
        for (int i = 0; i < ROSS; i++)
                fragment_sender_close(&b->ros[i]);
        sample_close(&b->sample);
}

static void check_event(struct bench *b, uint32_t slot, uint64_t event, uint32_t bytes)
{
        struct sfi_built built;

        sfi_built_event(b->receiver.core, slot, &built);
        assert_fields(&built, event, event, end, EVENT_COMPLETE);
        for (uint32_t ros = 0; ros < ROSS; ros++) {
                const struct sfi_fragment *f = &built.fragments[ros];

                assert_int_equal(f->bytes, bytes);
                assert_int_equal(pattern_check(pattern_key(FRAGMENT_SEED, ros, event),
                                               b->receiver.buffer + f->at, 0, bytes),
                                 bytes);
        }
        sfi_written(b->receiver.core, NS_PER_S, slot, false);
}

static void build_event(struct bench *b, uint64_t event, uint32_t bytes)
{
        uint32_t slot;
        int i = 0;

        assert_true(sfi_receive(b->receiver.core, NS_PER_S, sample_assign(event, 0)));
        for (int ros = 0; ros < ROSS; ros++)
                fragment_send(&b->ros[ros], event, 1, bytes);
        while (sfi_take_built(b->receiver.core, &slot, 1) == 0 && i++ < WAITS)
                turn(b);
        assert_true(i < WAITS);
        check_event(b, slot, event, bytes);
}

/* Three ROSs and two threads: the first and the third ROS share one. */
TEST(each_ros_belongs_to_one_thread)
{
        _cleanup_(bench_close) struct bench b;

        bench_open(&b, 2);
        for (uint64_t event = 0; event < EVENTS; event++)
                build_event(&b, event, event % 2 ? 20 : 5000);
        assert_false(atomic_load(&changed));
        assert_int_equal(atomic_load(&socket_of[0]), atomic_load(&socket_of[2]));
        assert_int_not_equal(atomic_load(&socket_of[0]), atomic_load(&socket_of[1]));
        assert_int_equal(sfi_counts(b.receiver.core)->datagrams_received, b.ros[0].header.transaction * ROSS);
        assert_int_equal(sfi_counts(b.receiver.core)->datagrams_lost, 0);
}

/* A thread without a ROS would have nothing to do. */
TEST(there_are_as_many_threads_as_ross)
{
        struct bench b;

        started = 0;
        bench_open(&b, 16);
        assert_int_equal(started, ROSS);
        build_event(&b, 0, 100);
        assert_int_not_equal(atomic_load(&socket_of[0]), atomic_load(&socket_of[1]));
        assert_int_not_equal(atomic_load(&socket_of[0]), atomic_load(&socket_of[2]));
        assert_int_not_equal(atomic_load(&socket_of[1]), atomic_load(&socket_of[2]));
        bench_close(&b);
        bench_open(&b, 1);
        build_event(&b, 0, 100);
        assert_int_equal(atomic_load(&socket_of[0]), atomic_load(&socket_of[1]));
        assert_int_equal(atomic_load(&socket_of[0]), atomic_load(&socket_of[2]));
        bench_close(&b);
}

static void wait_for_datagrams(unsigned n)
{
        for (int i = 0; i < WAITS && atomic_load(&datagrams) < n; i++)
                usleep(1000);
        assert_true(atomic_load(&datagrams) >= n);
}

/* Two were checked for the run that the SFI leaves before it stores them, and one is not valid in any run. */
TEST(the_next_run_does_not_get_fragments_of_the_last_one)
{
        uint8_t begun[] = {FRAGMENTS_MAGIC, MESSAGE_VERSION};
        struct node_stats *stats;
        struct sfi *last;
        _cleanup_(bench_close) struct bench b;

        bench_open(&b, 2);
        stats = b.sample.stats;
        build_event(&b, 0, 100);
        fragment_send(&b.ros[0], 1, 1, 8);
        fragment_send(&b.ros[1], 1, 1, 8);
        fragment_send_bytes(&b.ros[0], &(struct iovec){begun, sizeof begun}, 1, sizeof begun);
        wait_for_datagrams(ROSS + 3);
        last = b.receiver.core;
        b.receiver.core = new_core(SAMPLE_COOKIE + 1);
        for (int i = 0;
             i < WAITS && stats_get(&stats->packets_foreign) + stats_get(&stats->packets_malformed) < 3; i++)
                turn(&b);
        assert_int_equal(stats_get(&stats->packets_foreign), 2);
        assert_int_equal(stats_get(&stats->packets_malformed), 1);
        assert_int_equal(sfi_counts(b.receiver.core)->datagrams_received, 0);
        for (int i = 0; i < ROSS; i++)
                b.ros[i].header.cookie = SAMPLE_COOKIE + 1;
        ((struct message *)sample_assign(0, 0))->header.cookie = SAMPLE_COOKIE + 1;
        fragment_send(&b.ros[0], 1, 1, 8);
        for (int i = 0; i < WAITS && sfi_counts(b.receiver.core)->datagrams_received == 0; i++)
                turn(&b);
        assert_int_equal(sfi_counts(b.receiver.core)->datagrams_received, 1);
        sfi_free(last);
}

/* The threads hold no more than their rings, and the kernel counts what a socket does not. */
TEST(what_the_kernel_drops_is_counted)
{
        const uint64_t all = 20000;
        const struct sfi_counts *counts;
        uint64_t dropped = 0;
        _cleanup_(bench_close) struct bench b;

        bench_prepare(&b, 2);
        b.sample.scenario->network.receive_buffer_bytes = 64 << 10;
        assert_int_equal(b.receiver.ops->open(&b.receiver), 0);
        assert_in_range(b.receiver.ops->room_bytes(&b.receiver), 1, 64 << 10);
        turn(&b);
        for (uint64_t event = 0; event < all; event++)
                fragment_send(&b.ros[event % 2], 0, 1, 8);
        counts = sfi_counts(b.receiver.core);
        for (int i = 0; i < WAITS && counts->datagrams_received + dropped < all; i++) {
                turn(&b);
                b.receiver.ops->account(&b.receiver);
                dropped = stats_get(&b.sample.stats->packets_socket_dropped);
        }
        assert_int_equal(counts->datagrams_received + dropped, all);
        assert_true(dropped > 0);
        /* The first datagrams of both ROSs arrived, and the last ones need not. */
        assert_true(sfi_counts(b.receiver.core)->datagrams_lost <= dropped);
        b.receiver.ops->account(&b.receiver);
        assert_int_equal(stats_get(&b.sample.stats->packets_socket_dropped), dropped);
}

/* The threads of an SFI share its address with nobody, in whichever order two processes start. */
TEST(another_sfi_cannot_have_the_address)
{
        static const uint64_t threads[][2] = {{2, 2}, {2, 0}, {0, 2}, {1, 2}};
        struct bench first, second;

        for (size_t i = 0; i < ARRAY_SIZE(threads); i++) {
                bench_open(&first, threads[i][0]);
                bench_prepare(&second, threads[i][1]);
                assert_int_equal(second.receiver.ops->open(&second.receiver), -EADDRINUSE);
                bench_close(&second);
                build_event(&first, 0, 100);
                bench_close(&first);
        }
}

TEST(a_thread_that_cannot_start_ends_the_node)
{
        struct bench b;

        bench_prepare(&b, 2);
        atomic_store(&fail_start, true);
        assert_int_equal(b.receiver.ops->open(&b.receiver), -EAGAIN);
        atomic_store(&fail_start, false);
        bench_close(&b);
        bench_open(&b, 2); /* the address is free again */
        build_event(&b, 0, 100);
        bench_close(&b);
}
