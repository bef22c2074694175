/* Threads that receive fragments: what they pass on, in which order, and how they wait, fail and end. */
#include "fragment_sender.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "sys/thread.h"
#include "data/receive/fragment_threads.h"
#define SAMPLE_MORE "[node ros3]\nrole = ros\naddress = " SAMPLE_NET ".6\n"
#include "data_sample.h"

#define ROSS 3
#define SOCKETS 2
#define WAIT_MS 60000
/* Batches of a thread. */
#define BATCHES 16

/* What the threads may do in a system call, and what they did. */
static _Atomic unsigned messages_max;
static _Atomic int fail_fd, fail_start;
static _Atomic unsigned receives;

int __real_recvmmsg(int fd, struct mmsghdr *m, unsigned n, int flags, struct timespec *timeout);
int __wrap_recvmmsg(int fd, struct mmsghdr *m, unsigned n, int flags, struct timespec *timeout);
int __real_thread_start(pthread_t *ret, const char *name, const unsigned *cpus, size_t n_cpus,
                        void *(*run)(void *), void *ctx);
int __wrap_thread_start(pthread_t *ret, const char *name, const unsigned *cpus, size_t n_cpus,
                        void *(*run)(void *), void *ctx);

int __wrap_recvmmsg(int fd, struct mmsghdr *m, unsigned n, int flags, struct timespec *timeout)
{
        unsigned most = atomic_load(&messages_max);
        int k;

        if (fd == atomic_load(&fail_fd)) {
                errno = EBADF;
                return -1;
        }
        k = __real_recvmmsg(fd, m, most > 0 ? MIN(most, n) : n, flags, timeout);
        if (k > 0)
                atomic_fetch_add(&receives, 1);
        return k;
}

int __wrap_thread_start(pthread_t *ret, const char *name, const unsigned *cpus, size_t n_cpus,
                        void *(*run)(void *), void *ctx)
{
        if (atomic_load(&fail_start) > 0 && atomic_fetch_sub(&fail_start, 1) == 1)
                return -EAGAIN;
        return __real_thread_start(ret, name, cpus, n_cpus, run, ctx);
}

/* ROSs 1 and 3 send to the first socket, ROS 2 to the second one. */
static struct bench {
        struct sample sample;
        struct endpoint *endpoints[SOCKETS];
        struct faults *faults[SOCKETS];
        struct fragment_sender ros[ROSS];
        struct fragment_threads *threads;
        /* What arrived: the next sequence number and event of each ROS, and the bytes of that fragment. */
        uint32_t datagrams[ROSS], refused[RECEIVED_VERDICTS];
        uint64_t events[ROSS];
        uint32_t bytes[ROSS];
} b;

static const char *const hosts[ROSS] = {SAMPLE_NET ".2", SAMPLE_NET ".3", SAMPLE_NET ".6"};

static int start(void)
{
        struct fragment_threads_config config = {
                .nodes = &b.sample.nodes, .endpoints = b.endpoints, .faults = b.faults, .n = SOCKETS};
        int k = fragment_threads_new(&b.threads, &config);

        if (k >= 0)
                fragment_threads_set_cookie(b.threads, SAMPLE_COOKIE);
        return k;
}

static void bench_prepare(void)
{
        struct udp_config config = {.receive_buffer_bytes = 4u << 20};

        memset(&b, 0, sizeof b);
        atomic_store(&fail_fd, -1);
        atomic_store(&messages_max, 0);
        atomic_store(&receives, 0);
        sample_open(&b.sample, "sfi1", "udp");
        for (int i = 0; i < SOCKETS; i++) {
                config.local = fragment_address(i == 0 ? SAMPLE_NET ".4" : SAMPLE_NET ".5", 0);
                assert_int_equal(endpoint_new_udp(&b.endpoints[i], &config), 0);
        }
        for (uint16_t i = 0; i < ROSS; i++)
                fragment_sender_open(&b.ros[i], i, hosts[i], &b.endpoints[i % SOCKETS]->local, SAMPLE_COOKIE);
}

static void bench_open(void)
{
        bench_prepare();
        assert_int_equal(start(), 0);
}

static int bench_close(void **state)
{
        fragment_threads_free(b.threads);
        for (int i = 0; i < ROSS; i++)
                fragment_sender_close(&b.ros[i]);
        for (int i = 0; i < SOCKETS; i++) {
                endpoint_free(b.endpoints[i]);
                faults_free(b.faults[i]);
        }
        sample_close(&b.sample);
        return 0;
}

/* Waits for a batch or an error as an event loop does. A wake-up that is lost fails the test. */
static void wait_for_threads(void)
{
        struct pollfd p = {.fd = fragment_threads_fd(b.threads), .events = POLLIN};

        if (!fragment_threads_prepare_wait(b.threads))
                assert_int_equal(poll(&p, 1, WAIT_MS), 1);
        fragment_threads_woken(b.threads);
}

static unsigned wait_for_receives(unsigned n)
{
        for (int i = 0; i < WAIT_MS && atomic_load(&receives) < n; i++)
                usleep(1000);
        return atomic_load(&receives);
}

static void check_chunk(const struct sfi_chunk *c, const uint8_t *payload)
{
        uint64_t key = pattern_key(FRAGMENT_SEED, c->source, c->chunk.event);

        assert_true(c->source < ROSS);
        assert_fields(&c->chunk, event, b.events[c->source], offset, b.bytes[c->source]);
        assert_int_equal(pattern_check(key, payload, c->chunk.offset, c->chunk.length), c->chunk.length);
        b.bytes[c->source] += c->chunk.length;
        if (b.bytes[c->source] < c->chunk.fragment_bytes)
                return;
        b.events[c->source]++;
        b.bytes[c->source] = 0;
}

static void check(const struct received *r)
{
        for (uint32_t i = 0; i < r->n_heads; i++)
                assert_int_equal(r->heads[i].transaction, b.datagrams[r->heads[i].source]++);
        for (uint32_t i = 0; i < r->n_chunks; i++)
                check_chunk(&r->chunks[i], r->payload[i]);
        for (int v = 0; v < RECEIVED_VERDICTS; v++)
                b.refused[v] += r->refused[v];
}

/* True: there was a batch. */
static bool take(void)
{
        struct received *r = fragment_threads_take(b.threads);

        if (!r)
                return false;
        check(r);
        fragment_threads_return(r);
        return true;
}

static void take_until(uint16_t ros, uint64_t events)
{
        while (b.events[ros] < events) {
                wait_for_threads();
                while (take())
                        ;
        }
        assert_int_equal(b.events[ros], events);
}

/* Fragments without bytes, of several chunks in a datagram, and of several datagrams. */
TEST_WITH(fragments_arrive_complete_and_in_order, NULL, bench_close)
{
        static const uint32_t sizes[] = {8, 0, 200, 1024, 9000, 1};
        uint64_t event = 0;

        bench_open();
        for (int round = 0; round < 60; round++, event += 7) {
                for (int i = 0; i < ROSS; i++)
                        fragment_send(&b.ros[i], event, 7, sizes[(unsigned)(round + i) % ARRAY_SIZE(sizes)]);
                if (round % 4 == 3) {
                        for (uint16_t i = 0; i < ROSS; i++)
                                take_until(i, event + 7);
                }
        }
        for (int i = 0; i < ROSS; i++)
                assert_int_equal(b.datagrams[i], b.ros[i].header.transaction);
        assert_int_equal(fragment_threads_error(b.threads), 0);
}

/* With one datagram in each: all batches are full. Each one that comes back lets one datagram in. */
TEST_WITH(full_rings_hold_back_and_go_on, NULL, bench_close)
{
        const uint64_t all = 3 * BATCHES;
        int waiting;

        bench_open();
        atomic_store(&messages_max, 1);
        for (uint64_t event = 0; event < all; event++)
                fragment_send(&b.ros[0], event, 1, 8);
        for (unsigned i = 0; i < BATCHES; i++) {
                assert_int_equal(wait_for_receives(BATCHES + i), BATCHES + i);
                assert_int_equal(ioctl(b.endpoints[0]->fd, FIONREAD, &waiting), 0);
                assert_true(waiting > 0);
                assert_true(take());
        }
        take_until(0, all);
        assert_int_equal(b.datagrams[0], all);
        /* The thread that waited for batches waits for datagrams again. */
        fragment_send(&b.ros[2], 0, 1, 8);
        take_until(2, 1);
}

/* One datagram has 256 chunks, and all of them more than fit into the batches of a thread. */
TEST_WITH(datagrams_continue_in_the_next_batch, NULL, bench_close)
{
        const uint64_t all = 80 * CHUNKS_MAX;

        bench_open();
        for (uint64_t event = 0; event < all; event += CHUNKS_MAX)
                assert_in_range(fragment_send(&b.ros[1], event, CHUNKS_MAX, 1), 1, 2);
        take_until(1, all);
        assert_int_equal(b.datagrams[1], b.ros[1].header.transaction);
}

static void send_changed(uint32_t size_bytes, uint32_t at, uint8_t change)
{
        uint8_t bytes[1472];
        uint32_t n = fragment_make(&b.ros[0], 0, bytes);

        bytes[at] = (uint8_t)(bytes[at] ^ change);
        fragment_send_bytes(&b.ros[0], &(struct iovec){bytes, MIN(n, size_bytes)}, 1, MIN(n, size_bytes));
}

/* The sequence number of what is refused comes again, as the sender would have it. */
TEST_WITH(refused_datagrams_are_counted_by_verdict, NULL, bench_close)
{
        static struct fragment_sender stranger, late;
        uint8_t text[] = "GET / HTTP/1.1\r\nHost: another.program.example\r\nAccept: */*\r\n\r\n";

        bench_open();
        fragment_sender_open(&stranger, 0, SAMPLE_NET ".77", &b.endpoints[0]->local, SAMPLE_COOKIE);
        fragment_sender_open(&late, 0, hosts[0], &b.endpoints[0]->local, SAMPLE_COOKIE + 1);
        send_changed(1472, 0, 0); /* whole */
        b.ros[0].header.transaction++;
        send_changed(7, 0, 0);
        fragment_send_bytes(&b.ros[0], &(struct iovec){text, 0}, 1, 0);
        fragment_send_bytes(&b.ros[0], &(struct iovec){text, sizeof text}, 1, sizeof text);
        fragment_send(&stranger, 0, 1, 8);
        send_changed(1472, 1, 0x40);                          /* version */
        send_changed(1472, FRAGMENTS_SENDER_AT, 1);           /* another ROS, and so a wrong check word */
        send_changed(1472, FRAGMENTS_SENDER_AT + 1, 1);       /* one that cannot exist */
        send_changed(1472, FRAGMENTS_HEADER_BYTES - 1, 0x80); /* check word */
        for (int i = 0; i < 4; i++)
                fragment_send(&late, 0, 1, 8);
        /* Each batch comes back often enough that it counts nothing twice. */
        for (uint64_t event = 1; event < 3 * BATCHES; event++) {
                fragment_send(&b.ros[0], event, 1, 8);
                take_until(0, event + 1);
        }
        assert_int_equal(b.refused[MESSAGE_SHORT], 2);
        assert_int_equal(b.refused[MESSAGE_FOREIGN], 2);
        assert_int_equal(b.refused[MESSAGE_OTHER_VERSION], 1);
        assert_int_equal(b.refused[MESSAGE_MALFORMED], 3);
        assert_int_equal(b.refused[MESSAGE_OTHER_RUN], 4);
        /* The next run. */
        fragment_threads_set_cookie(b.threads, SAMPLE_COOKIE + 1);
        b.datagrams[0] = late.header.transaction;
        b.events[0] = 0;
        fragment_send(&late, 0, 1, 8);
        take_until(0, 1);
        fragment_sender_close(&stranger);
        fragment_sender_close(&late);
}

TEST_WITH(injected_faults_lose_no_datagram_but_by_loss, NULL, bench_close)
{
        static const struct fault_config faults = {.reorder = 0.3, .duplicate = 0.2, .seed = 11};
        bool seen[100] = {};
        uint32_t n = 0, all = 0;
        struct received *r;

        bench_prepare();
        assert_int_equal(faults_new(&b.faults[0], &faults), 0);
        assert_int_equal(start(), 0);
        for (uint64_t event = 0; event < ARRAY_SIZE(seen); event++)
                fragment_send(&b.ros[2], event, 1, 700);
        while (n < ARRAY_SIZE(seen)) {
                wait_for_threads();
                while ((r = fragment_threads_take(b.threads))) {
                        for (uint32_t i = 0; i < r->n_chunks; i++, all++) {
                                uint64_t event = r->chunks[i].chunk.event;

                                assert_int_equal(pattern_check(pattern_key(FRAGMENT_SEED, 2, event),
                                                               r->payload[i], 0, 700),
                                                 700);
                                n += !seen[event];
                                seen[event] = true;
                        }
                        fragment_threads_return(r);
                }
        }
        assert_true(all > n);
}

TEST_WITH(threads_end_while_they_wait_for_batches, NULL, bench_close)
{
        bench_open();
        atomic_store(&messages_max, 1);
        for (uint64_t event = 0; event < 3 * BATCHES; event++)
                fragment_send(&b.ros[0], event, 1, 8);
        assert_int_equal(wait_for_receives(BATCHES), BATCHES);
        /* The other one waits amid the datagrams of a system call. */
        atomic_store(&messages_max, 0);
        for (uint64_t event = 0; event < 80 * CHUNKS_MAX; event += CHUNKS_MAX)
                fragment_send(&b.ros[1], event, CHUNKS_MAX, 1);
        assert_in_range(wait_for_receives(BATCHES + 4), BATCHES + 4, 2 * BATCHES);
}

struct flood {
        struct fragment_sender *ros;
        _Atomic bool stop;
};

static void *flood(void *ctx)
{
        struct flood *f = ctx;

        for (uint64_t event = 0; !atomic_load(&f->stop); event += 64)
                fragment_send(f->ros, event, 64, 100);
        return NULL;
}

TEST_WITH(threads_end_during_a_flood, NULL, bench_close)
{
        struct flood floods[SOCKETS];
        pthread_t senders[SOCKETS];
        int batches = 0;

        bench_open();
        for (int i = 0; i < SOCKETS; i++) {
                floods[i].ros = &b.ros[i];
                atomic_init(&floods[i].stop, false);
                assert_int_equal(pthread_create(&senders[i], NULL, flood, &floods[i]), 0);
        }
        while (batches < 200) {
                struct received *r;

                wait_for_threads();
                while ((r = fragment_threads_take(b.threads))) {
                        batches++;
                        fragment_threads_return(r);
                }
        }
        b.threads = fragment_threads_free(b.threads);
        for (int i = 0; i < SOCKETS; i++) {
                atomic_store(&floods[i].stop, true);
                pthread_join(senders[i], NULL);
        }
}

TEST_WITH(a_thread_that_cannot_start_is_an_error, NULL, bench_close)
{
        bench_prepare();
        for (int failing = 1; failing <= SOCKETS; failing++) {
                atomic_store(&fail_start, failing);
                assert_int_equal(start(), -EAGAIN);
                assert_null(b.threads);
        }
        /* The threads before it have ended: these sockets serve others. */
        assert_int_equal(start(), 0);
        fragment_send(&b.ros[0], 0, 1, 8);
        take_until(0, 1);
}

TEST_WITH(a_socket_that_fails_is_an_error, NULL, bench_close)
{
        struct pollfd p = {.events = POLLIN};

        bench_open();
        fragment_send(&b.ros[1], 0, 1, 8);
        take_until(1, 1);
        assert_int_equal(fragment_threads_error(b.threads), 0);
        assert_false(fragment_threads_prepare_wait(b.threads));
        atomic_store(&fail_fd, b.endpoints[1]->fd);
        fragment_send(&b.ros[1], 1, 1, 8);
        p.fd = fragment_threads_fd(b.threads);
        assert_int_equal(poll(&p, 1, WAIT_MS), 1);
        fragment_threads_woken(b.threads);
        assert_int_equal(fragment_threads_error(b.threads), -EBADF);
        assert_true(fragment_threads_prepare_wait(b.threads));
        fragment_threads_woken(b.threads);
}
