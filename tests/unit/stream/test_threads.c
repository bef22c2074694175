/* A whole stream within one process, over a UDP socket of this machine: the threads of both ends, with faults
 * between them. Also runs under the thread sanitizer. */
#include "../test.h"

#include <errno.h>
#include <linux/net_tstamp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sys/loop.h"
#include "stream/end_figures.h"
#include "stream/receive_threads.h"
#include "stream/send_threads.h"
#include "stream/stream.h"
#include "vdif_sample.h"

#define KEY UINT64_C(99)
/* The begin of the epoch of sample frames. */
#define SAMPLE_UNIX_S INT64_C(1388534400)

static struct {
        struct stream_options options;
        struct send_threads send;
        struct receive_threads receive;
        struct faults *faults;
        struct endpoint *from, *to;
        struct stream_source *source;
        struct sink *sink;
} t;

/* The clock of the threads of both ends, which may stop, or leap by a time at each look. */
static struct {
        pthread_t test;
        _Atomic bool held;
        _Atomic uint64_t leap_ns, leapt_ns;
} of_threads;
static __thread bool is_main; /* of another end; its clock does not stop */

int __real_clock_gettime(clockid_t clock, struct timespec *ret);

int __wrap_clock_gettime(clockid_t clock, struct timespec *ret)
{
        uint64_t leapt_ns;
        int r;

        while (of_threads.held && !is_main && !pthread_equal(pthread_self(), of_threads.test))
                poll(NULL, 0, 1);
        r = __real_clock_gettime(clock, ret);
        leapt_ns = (of_threads.leapt_ns += of_threads.leap_ns) + (uint64_t)ret->tv_nsec;
        ret->tv_sec += (time_t)(leapt_ns / NS_PER_S);
        ret->tv_nsec = (long)(leapt_ns % NS_PER_S);
        return r;
}

static struct endpoint *open_endpoint(const struct net_address *connect)
{
        struct udp_config config = {.connect = connect, .receive_buffer_bytes = 8 << 20, .timestamps = true};
        struct endpoint *e = NULL;

        assert_int_equal(net_address_parse(&config.local, "127.0.0.1", 0), 0);
        assert_int_equal(endpoint_new_udp(&e, &config), 0);
        return e;
}

static int begin(void **state)
{
        struct error e = {};

        memset(&t, 0, sizeof t);
        of_threads.test = pthread_self();
        of_threads.leap_ns = of_threads.leapt_ns = 0;
        t.options = (struct stream_options){.wake = {WAKE_FUTEX, 0}, .ring_bytes = 1 << 20};
        t.to = open_endpoint(NULL);
        t.from = open_endpoint(&t.to->local);
        assert_int_equal(stream_source_open(&t.source, "pattern:4000001", KEY, &e), 0);
        assert_int_equal(sink_open(&t.sink, "pattern", false, &e), 0);
        sink_set_key(t.sink, KEY);
        t.send.rule = (struct packet_rule){STREAM_PLAIN, 1456, 4711};
        spacing_init(&t.send.spacing, 0, 1, 0, 256);
        return 0;
}

static int end(void **state)
{
        send_threads_fini(&t.send);
        receive_threads_fini(&t.receive);
        endpoint_free(t.from);
        endpoint_free(t.to);
        stream_source_free(t.source);
        sink_free(t.sink);
        faults_free(t.faults);
        return 0;
}

static void wait_done(int fd)
{
        struct pollfd p = {.fd = fd, .events = POLLIN};

        assert_int_equal(poll(&p, 1, 60000), 1);
}

static void start_receiver(void)
{
        t.receive.options = &t.options;
        t.receive.endpoint = t.to;
        t.receive.faults = t.faults;
        t.receive.sink = t.sink;
        t.receive.from = t.from->local;
        t.receive.rule = t.send.rule;
        t.receive.window_packets = 64;
        t.receive.drop_packets = 1;
        assert_int_equal(receive_threads_start(&t.receive), 0);
}

static void start(void)
{
        t.send.options = &t.options;
        t.send.source = t.source;
        t.send.endpoint = t.from;
        start_receiver();
        assert_int_equal(send_threads_start(&t.send), 0);
}

static void finish(void)
{
        wait_done(t.send.done_fd);
        send_threads_join(&t.send);
        receive_threads_end(&t.receive, atomic_load(&t.send.packets), atomic_load(&t.send.bytes));
        wait_done(t.receive.done_fd);
        receive_threads_join(&t.receive);
}

/* What is sent is received, or lost, and at its place in the output. */
static void check_accounts(void)
{
        const struct account *a = &t.receive.account;

        assert_int_equal(a->received + a->given_up, atomic_load(&t.send.packets));
        assert_int_equal(sink_bytes(t.sink), atomic_load(&t.send.bytes));
        assert_int_equal(sink_corrupt(t.sink), 0);
        /* Each packet counts once; the last one may be shorter. */
        assert_in_range(t.receive.taken_bytes, a->received * 1456 - MIN(a->received, UINT64_C(1)) * 1455,
                        a->received * 1456);
        assert_int_equal(t.receive.output_error.code, 0);
}

static void move_all(void)
{
        /* Slow enough for any machine: the socket's buffer holds what comes in 10 ms and more. */
        spacing_init(&t.send.spacing, 20000, 1, 100000, 64);
        start();
        finish();
        check_accounts();
        assert_int_equal(atomic_load(&t.send.packets), 2748);
        assert_int_equal(atomic_load(&t.send.bytes), 4000001);
}

TEST_WITH(each_way_of_waking_moves_a_stream, begin, end)
{
        static const struct wake wakes[] = {{WAKE_FUTEX, 0}, {WAKE_SIGNAL, 200}, {WAKE_YIELD, 0}};

        for (size_t i = 0; i < ARRAY_SIZE(wakes); i++) {
                end(state);
                begin(state);
                t.options.wake = wakes[i];
                move_all();
        }
}

/* The qdisc is to send the packets in time; the loopback device has none, and takes them early. */
TEST_WITH(packets_are_handed_over_early, begin, end)
{
        const struct sock_txtime txtime = {.clockid = CLOCK_TAI};
        uint64_t early_ns;

        if (setsockopt(t.from->fd, SOL_SOCKET, SO_TXTIME, &txtime, sizeof txtime) < 0)
                skip(); /* only root may use this clock */
        t.send.lead_ns = 2 * NS_PER_MS;
        t.send.leave_clock = CLOCK_TAI;
        spacing_init(&t.send.spacing, 20000, 1, 100000, 64);
        start();
        wait_done(t.send.done_fd);
        early_ns = clock_now_ns() + t.send.lead_ns;
        finish();
        check_accounts();
        /* Their times are as spaced as they were to be, and none was sent before its time less the lead. */
        assert_true(atomic_load(&t.send.last_ns) - t.send.begin_ns >= UINT64_C(2747) * 20000 / 11 * 10);
        assert_true(atomic_load(&t.send.last_ns) <= early_ns);
}

TEST_WITH(faults_are_accounted_for, begin, end)
{
        const struct fault_config faults = {.loss = 0.05, .reorder = 0.05, .duplicate = 0.05, .seed = 3};

        assert_int_equal(faults_new(&t.faults, &faults), 0);
        move_all();
        /* 0.95^2748 = 6e-62. */
        assert_true(t.receive.account.given_up > 0);
        assert_true(t.receive.account.duplicate > 0);
        assert_true(t.receive.account.out_of_order > 0);
        assert_int_equal(t.receive.foreign, 0);
}

TEST_WITH(foreign_senders_change_nothing, begin, end)
{
        struct endpoint *foreign_sender = open_endpoint(&t.to->local);
        uint8_t bytes[2000] = {};
        struct iovec iov = {bytes, 100};
        struct outgoing out = {.iov = &iov, .n_iov = 1, .size_bytes = 100};

        packet_write(&t.send.rule, bytes, 0);
        assert_int_equal(endpoint_send(foreign_sender, &out, 1), 1);
        /* From the right place: short ones, one of another stream, and one far beyond. */
        out.size_bytes = (uint32_t)(iov.iov_len = 5);
        assert_int_equal(endpoint_send(t.from, &out, 1), 1);
        out.size_bytes = (uint32_t)(iov.iov_len = 16);
        assert_int_equal(endpoint_send(t.from, &out, 1), 1);
        out.size_bytes = (uint32_t)(iov.iov_len = 1472);
        bytes[8] ^= 1;
        assert_int_equal(endpoint_send(t.from, &out, 1), 1);
        packet_write(&t.send.rule, bytes, UINT64_MAX - 5);
        assert_int_equal(endpoint_send(t.from, &out, 1), 1);
        move_all();
        assert_fields(&t.receive, foreign, 3, short_ones, 2);
        assert_int_equal(t.receive.account.given_up, 0);
        endpoint_free(foreign_sender);
}

static void send_packet(uint64_t sequence)
{
        uint8_t bytes[1472] = {};
        uint32_t size = packet_header_bytes(&t.send.rule) + t.send.rule.payload_bytes;
        struct iovec iov = {bytes, size};
        const struct outgoing out = {.iov = &iov, .n_iov = 1, .size_bytes = size};

        if (t.send.rule.format != STREAM_RAW)
                packet_write(&t.send.rule, bytes, sequence);
        assert_int_equal(endpoint_send(t.from, &out, 1), 1);
}

/* A slow stream: what follows a lost packet does not wait for a whole window. */
TEST_WITH(a_gap_is_given_up_in_time, begin, end)
{
        start_receiver();
        for (uint64_t sequence = 0; sequence < 6; sequence += 2)
                send_packet(sequence);
        /* Both gaps. */
        while (atomic_load(&t.receive.lost) < 2)
                poll(NULL, 0, 1);
        receive_threads_end(&t.receive, 5, UINT64_C(5) * 1456);
        wait_done(t.receive.done_fd);
        receive_threads_join(&t.receive);
        assert_fields(&t.receive.account, received, 3, given_up, 2);
}

static const struct vdif_plan *sample_plan(void)
{
        static struct vdif_plan plan;
        uint8_t frame[SAMPLE_FRAME_BYTES];

        sample_frame(frame, 100, 0, 0, 0);
        assert_int_equal(vdif_plan_begin(&plan, frame, sizeof frame), 0);
        return &plan;
}

/* Sends the first bytes of a frame of this size as a packet. */
static void send_frame(uint64_t sequence, uint32_t seconds, uint32_t frame_bytes)
{
        const uint32_t length = frame_bytes / 8, size = 8 + t.send.rule.payload_bytes;
        uint8_t bytes[8 + SAMPLE_FRAME_BYTES];
        struct iovec iov = {bytes, size};
        const struct outgoing out = {.iov = &iov, .n_iov = 1, .size_bytes = size};

        packet_write(&t.send.rule, bytes, sequence);
        sample_frame(bytes + 8, seconds, 0, 0, 0);
        memcpy(bytes + 16, &length, sizeof length);
        assert_int_equal(endpoint_send(t.from, &out, 1), 1);
}

/* Frames come one at a time, so the output has none after each. */
TEST_WITH(a_jump_in_time_waits_for_the_next_frame, begin, end)
{
        enum { FRAMES = 6 };
        static const struct {
                uint32_t seconds[FRAMES];
                unsigned frames_of_first, unconfirmed;
        } cases[] = {{{100, 101, 3700, 3700, 3701, 3701}, 2, 0}, /* a pause */
                     {{100, 101, 3700, 101, 102, 102}, FRAMES, 1},
                     {{100, 101, 3700, 110, 111, 3700}, FRAMES, 2}}; /* nothing follows the last one */
        char folder[] = "/tmp/evb-test-threads-XXXXXX", path[64];
        struct error e = {};
        struct stat st;

        assert_non_null(mkdtemp(folder));
        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                end(state);
                begin(state);
                t.sink = sink_free(t.sink);
                snprintf(path, sizeof path, "%s/out", folder);
                assert_int_equal(sink_open_scans(&t.sink, path, false, &e), 0);
                t.send.rule = (struct packet_rule){STREAM_VDIF, SAMPLE_FRAME_BYTES};
                t.receive.plan = sample_plan();
                t.receive.scan.each_s = 60;
                t.receive.sink = t.sink;
                assert_int_equal(receive_threads_begin_file(&t.receive, SAMPLE_UNIX_S + 100), 0);
                start_receiver();
                for (unsigned k = 0; k < FRAMES; k++) {
                        send_frame(k, cases[i].seconds[k], SAMPLE_FRAME_BYTES);
                        while (atomic_load(&t.receive.packets) <= k)
                                poll(NULL, 0, 1);
                        poll(NULL, 0, 30);
                }
                receive_threads_end(&t.receive, FRAMES, FRAMES * SAMPLE_FRAME_BYTES);
                wait_done(t.receive.done_fd);
                receive_threads_join(&t.receive);
                assert_int_equal(t.receive.scan.unconfirmed, cases[i].unconfirmed);
                assert_int_equal(sink_bytes(t.sink), FRAMES * SAMPLE_FRAME_BYTES);
                assert_int_equal(sink_files(t.sink), 1 + (cases[i].frames_of_first < FRAMES));
                snprintf(path, sizeof path, "%s/out-20140101T000140", folder);
                assert_int_equal(stat(path, &st), 0);
                assert_int_equal(st.st_size, cases[i].frames_of_first * SAMPLE_FRAME_BYTES);
                unlink(path);
        }
        snprintf(path, sizeof path, "%s/out-20140101T010140", folder);
        unlink(path);
        assert_int_equal(rmdir(folder), 0);
}

/* A frame at its begin starts a recording, but not a wrong time in one before it. Frames have one part or
 * four; a part may look like a frame of any time. */
TEST_WITH(a_wrong_time_starts_no_recording, begin, end)
{
        static const struct {
                int64_t begin_s;
                uint32_t seen, first, next;
                bool early;
        } cases[] = {
                {200, 199, 200, 100, false}, /* it follows the frames before it */
                {200, 100, 200, 101, true},
                {200, 100, 200, 200, false},
                {200, 100, 200, 199, false},
                {200, 100, 9000, 201, false}, /* late anyway */
                {200, 100, 9000, 101, true},
                {200, 0, 9000, 101, true},
                {200, 0, 300, 300, false},
                {200, 100, 199, 200, true},
                {STREAM_NEXT_SECOND, 100, 101, 90, false},
                {STREAM_NEXT_SECOND, 100, 9000, 100, true},
                {STREAM_NEXT_SECOND, 100, 9000, 9000, false},
                {STREAM_NEXT_SECOND, 0, 9000, 100, true},
        };
        static struct stream_offer offer;

        t.receive.endpoint = t.to;
        t.receive.from = t.from->local;
        for (size_t i = 0; i < 2 * ARRAY_SIZE(cases); i++) {
                const unsigned at = i / 2, parts = i % 2 ? 4 : 1;
                const uint32_t frame_bytes = parts * SAMPLE_FRAME_BYTES;
                const struct stream_receive_config c = {.without_control = true,
                                                        .format = STREAM_VDIF,
                                                        .begin_s = cases[at].begin_s +
                                                                   (cases[at].begin_s > 0) * SAMPLE_UNIX_S};
                int64_t seen_s = cases[at].seen > 0 ? SAMPLE_UNIX_S + cases[at].seen : 0;
                uint8_t bytes[200];

                t.send.rule =
                        (struct packet_rule){STREAM_VDIF, SAMPLE_FRAME_BYTES, .first = 5, .parts = parts};
                send_frame(0, cases[at].first, frame_bytes);
                for (unsigned k = 1; k < parts; k++)
                        send_frame(k, 100, frame_bytes);
                send_frame(parts, cases[at].next, frame_bytes);
                wait_done(t.to->fd);
                assert_in_range(recv(t.to->fd, bytes, sizeof bytes, MSG_PEEK), 8 + SAMPLE_FRAME_BYTES,
                                sizeof bytes);
                assert_true(setup_of_packet(&offer, STREAM_VDIF, bytes, 8 + SAMPLE_FRAME_BYTES));
                assert_int_equal(receive_setup_is_early(&c, &offer, &t.receive, &seen_s), cases[at].early);
                assert_int_equal(seen_s, SAMPLE_UNIX_S + cases[at].first);
                /* All packets are still there. */
                for (unsigned k = 0; k <= parts; k++) {
                        wait_done(t.to->fd);
                        assert_int_equal(recv(t.to->fd, bytes, sizeof bytes, 0), 8 + SAMPLE_FRAME_BYTES);
                        assert_int_equal(bytes[0], 5 + k);
                }
        }
}

/* The first frame has a time an hour ahead. */
TEST_WITH(the_first_scan_has_the_time_of_the_second_frame, begin, end)
{
        static struct stream_offer offer;
        const struct stream_receive_config c = {.without_control = true, .format = STREAM_VDIF, .scan_s = 60};
        char folder[] = "/tmp/evb-test-threads-XXXXXX", path[64];
        uint8_t bytes[8 + SAMPLE_FRAME_BYTES];
        struct error e = {};
        uint16_t port;

        assert_non_null(mkdtemp(folder));
        snprintf(path, sizeof path, "%s/out", folder);
        t.sink = sink_free(t.sink);
        assert_int_equal(sink_open_scans(&t.sink, path, false, &e), 0);
        t.send.rule = (struct packet_rule){STREAM_VDIF, SAMPLE_FRAME_BYTES};
        t.receive.sink = t.sink;
        t.receive.endpoint = t.to;
        t.receive.from = t.from->local;
        send_frame(0, 3700, SAMPLE_FRAME_BYTES);
        send_frame(1, 101, SAMPLE_FRAME_BYTES);
        wait_done(t.to->fd);
        assert_int_equal(recv(t.to->fd, bytes, sizeof bytes, MSG_PEEK), sizeof bytes);
        assert_true(setup_of_packet(&offer, STREAM_VDIF, bytes, sizeof bytes));
        assert_int_equal(receive_setup_threads(&c, &offer, &t.to->local, &t.receive, &port), 0);
        assert_int_equal(t.receive.scan.last_s, SAMPLE_UNIX_S + 101);
        snprintf(path, sizeof path, "%s/out-20140101T000141", folder);
        assert_int_equal(unlink(path), 0);
        assert_int_equal(rmdir(folder), 0);
}

TEST_WITH(a_lost_tail_is_lost, begin, end)
{
        spacing_init(&t.send.spacing, 20000, 1, 100000, 64);
        start();
        wait_done(t.send.done_fd);
        send_threads_join(&t.send);
        receive_threads_end(&t.receive, atomic_load(&t.send.packets) + 10,
                            atomic_load(&t.send.bytes) + 9 * UINT64_C(1456) + 1448);
        wait_done(t.receive.done_fd);
        receive_threads_join(&t.receive);
        assert_fields(&t.receive.account, given_up, 10, received, 2748);
}

/* A receiver that gets no processor for longer than the silence that ends a stream, after each look at the
 * clock. */
static void receive_late(enum stream_format format)
{
        /* More than one look at the socket takes, and small, so that an ordinary user's socket has room. */
        enum { PACKETS = 300, SIZE = 100 };
        static const struct stream_raw raw = {};

        t.send.rule.format = format;
        t.send.rule.payload_bytes = SIZE;
        t.receive.raw.rule = &raw;
        of_threads.held = true;
        start_receiver();
        for (uint64_t sequence = 0; sequence < PACKETS; sequence++)
                send_packet(sequence);
        receive_threads_end(&t.receive, PACKETS, (uint64_t)PACKETS * SIZE);
        of_threads.leap_ns = 400 * NS_PER_MS;
        of_threads.held = false;
        wait_done(t.receive.done_fd);
        receive_threads_join(&t.receive);
        assert_fields(&t.receive.account, received, PACKETS, given_up, 0);
}

TEST_WITH(packets_that_wait_in_the_socket_are_not_lost, begin, end)
{
        receive_late(STREAM_PLAIN);
}

TEST_WITH(raw_packets_that_wait_in_the_socket_are_not_lost, begin, end)
{
        receive_late(STREAM_RAW);
}

/* The kernel begins to stamp packets only some time after a socket has asked for it. Until then, a packet has
 * the time at which it is read. */
static void wait_for_stamps(void)
{
        struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t size = sizeof at;
        int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), tries = 0;
        uint64_t stamp_ns, now_ns;

        assert_return_code(bind(fd, (struct sockaddr *)&at, size), errno);
        assert_return_code(getsockname(fd, (struct sockaddr *)&at, &size), errno);
        assert_return_code(setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &(int){1}, sizeof(int)), errno);
        do {
                uint8_t control[CMSG_SPACE(sizeof(struct timespec))] __attribute__((aligned(8)));
                struct msghdr m = {.msg_control = control, .msg_controllen = sizeof control};
                struct timespec stamp;

                assert_true(tries++ < 3000);
                assert_int_equal(sendto(fd, "", 0, 0, (struct sockaddr *)&at, size), 0);
                poll(NULL, 0, 20);
                now_ns = clock_utc_ns();
                assert_int_equal(recvmsg(fd, &m, 0), 0);
                assert_non_null(CMSG_FIRSTHDR(&m));
                memcpy(&stamp, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof stamp);
                stamp_ns = (uint64_t)stamp.tv_sec * NS_PER_S + (uint64_t)stamp.tv_nsec;
        } while (stamp_ns >= now_ns);
        close(fd);
}

/* The stream lasts as long as its packets took to arrive, however soon the receiver then reads them. */
TEST_WITH(a_late_receiver_reports_the_time_of_the_stream, begin, end)
{
        enum { PACKETS = 3, GAP_MS = 150 };
        struct figures_begin before;
        json_t *figures;

        wait_for_stamps();
        figures_start(&before, t.to, &t.to->local);
        of_threads.held = true;
        start_receiver();
        for (uint64_t sequence = 0; sequence < PACKETS; sequence++) {
                send_packet(sequence);
                poll(NULL, 0, GAP_MS);
        }
        receive_threads_end(&t.receive, PACKETS, (uint64_t)PACKETS * t.send.rule.payload_bytes);
        of_threads.held = false;
        wait_done(t.receive.done_fd);
        receive_threads_join(&t.receive);
        figures = figures_of_receiver(&t.receive, &before, false, "");
        assert_true(json_number_value(json_object_get(figures, "seconds")) >= (PACKETS - 1) * GAP_MS / 1e3);
        json_decref(figures);
}

static struct stream_receive_config counting;

static void *receive_all(void *ctx)
{
        is_main = true;
        stream_receive(&counting, ctx);
        return NULL;
}

static void *release_late(void *ctx)
{
        poll(NULL, 0, 300);
        of_threads.held = false;
        return NULL;
}

/* The threads get no processor for longer than the stream lasts. */
TEST_WITH(a_raw_stream_lasts_as_long_as_it_should, begin, end)
{
        static struct stream_send_config c = {
                .n_receivers = 1,
                .format = STREAM_RAW,
                .rate_bps = 1000000,
                .packet_bytes = 100,
                .duration_ns = 100 * NS_PER_MS,
                .wait_ns = 60 * NS_PER_S,
        };
        const struct stream_options common = {.wake = {WAKE_FUTEX, 0}, .ring_bytes = 1 << 20};
        json_t *sent = NULL, *received = NULL;
        pthread_t receiver, releaser;
        char address[32];

        c.common = counting.common = common;
        counting.output = "null";
        snprintf(address, sizeof address, "127.254.%d.%d", getpid() / 256 % 256, getpid() % 256);
        assert_int_equal(net_address_parse(&counting.at, address, 26900), 0);
        c.at[0] = counting.at;
        of_threads.held = true;
        assert_int_equal(pthread_create(&receiver, NULL, receive_all, &received), 0);
        assert_int_equal(pthread_create(&releaser, NULL, release_late, NULL), 0);
        stream_send(&c, &sent);
        pthread_join(releaser, NULL);
        pthread_join(receiver, NULL);
        assert_non_null(sent);
        assert_true(json_number_value(json_object_get(json_object_get(sent, "measured"), "seconds")) >= 0.09);
        json_decref(sent);
        json_decref(received);
}

TEST_WITH(a_stopped_sender_says_what_it_sent, begin, end)
{
        struct error e = {};

        stream_source_free(t.source);
        assert_int_equal(stream_source_open(&t.source, "pattern:1TB", KEY, &e), 0);
        spacing_init(&t.send.spacing, 20000, 1, 100000, 64);
        start();
        while (atomic_load(&t.receive.packets) == 0)
                poll(NULL, 0, 1);
        send_threads_abort(&t.send);
        finish();
        check_accounts();
}

/* Frames of four packets. */
TEST_WITH(a_stopped_sender_ends_with_a_frame, begin, end)
{
        enum { FRAMES = 1000, SIZE = 4 * VDIF_HEADER_BYTES };
        static uint8_t frames[FRAMES][SIZE];
        static struct vdif_plan plan;
        FILE *f = tmpfile();
        char path[64];
        struct error e = {};

        assert_non_null(f);
        for (uint32_t i = 0; i < FRAMES; i++) {
                const uint32_t length = SIZE / 8;

                sample_frame(frames[i], 7, i, 0, 5);
                memcpy(frames[i] + 8, &length, sizeof length);
        }
        assert_int_equal(fwrite(frames, SIZE, FRAMES, f), FRAMES);
        assert_int_equal(fflush(f), 0);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fileno(f));
        stream_source_free(t.source);
        sink_free(t.sink);
        assert_int_equal(stream_source_open(&t.source, path, KEY, &e), 0);
        assert_int_equal(stream_source_plan(t.source, &plan, &e), 0);
        assert_int_equal(sink_open(&t.sink, "null", false, &e), 0);
        t.send.rule = (struct packet_rule){STREAM_VDIF, SIZE / 4, .parts = 4};
        t.send.plan = t.receive.plan = &plan;
        spacing_init(&t.send.spacing, 10 * NS_PER_MS, 1, 0, 1);
        start();
        /* In the middle of a frame, unless this machine is busy. */
        while (atomic_load(&t.receive.packets) % 4 != 2)
                poll(NULL, 0, 1);
        send_threads_abort(&t.send);
        finish();
        assert_int_equal(atomic_load(&t.send.packets) % 4, 0);
        assert_in_range(atomic_load(&t.send.packets), 4, 4 * FRAMES - 1);
        assert_int_equal(t.receive.account.received + t.receive.account.given_up,
                         atomic_load(&t.send.packets));
        assert_int_equal(sink_bytes(t.sink), atomic_load(&t.send.bytes));
        fclose(f);
}

TEST_WITH(an_aborted_stream_ends_at_once, begin, end)
{
        struct error e = {};

        stream_source_free(t.source);
        assert_int_equal(stream_source_open(&t.source, "pattern:1TB", KEY, &e), 0);
        spacing_init(&t.send.spacing, NS_PER_S, 1, 0, 1);
        start();
        send_threads_abort(&t.send);
        wait_done(t.send.done_fd);
        receive_threads_abort(&t.receive);
        wait_done(t.receive.done_fd);
}

TEST_WITH(a_receiver_with_gaps_ends_at_any_time, begin, end)
{
        const struct fault_config faults = {.loss = 0.05, .seed = 3};
        struct error e = {};

        stream_source_free(t.source);
        assert_int_equal(stream_source_open(&t.source, "pattern:1TB", KEY, &e), 0);
        assert_int_equal(faults_new(&t.faults, &faults), 0);
        t.receive.repairs = true;
        start();
        while (atomic_load(&t.receive.lost) == 0)
                poll(NULL, 0, 1);
        receive_threads_fini(&t.receive);
        send_threads_abort(&t.send);
        wait_done(t.send.done_fd);
}

TEST_WITH(a_full_disk_ends_the_output, begin, end)
{
        struct error e = {};

        sink_free(t.sink);
        assert_int_equal(sink_open(&t.sink, "/dev/full", false, &e), 0);
        start();
        wait_done(t.receive.done_fd);
        assert_int_equal(receive_threads_look(&t.receive), RECEIVE_THREADS_FAILED);
        assert_string_equal(t.receive.output_error.location, "/dev/full");
        send_threads_abort(&t.send);
        finish();
        assert_int_equal(receive_threads_missing(&t.receive),
                         atomic_load(&t.send.packets) - t.receive.taken.received);
}

/* What arrives after the output has failed was not lost on its way; what does not arrive was, before and
 * after. */
TEST_WITH(a_failed_output_tells_what_still_arrives, begin, end)
{
        /* The last one needs more room than the ring ever had. */
        static const uint64_t later[] = {102, 103, 103, 5000, 4999};
        struct error e = {};

        sink_free(t.sink);
        assert_int_equal(sink_open(&t.sink, "/dev/full", false, &e), 0);
        start_receiver();
        /* The first of those before it are given up, and are the first output. */
        send_packet(100);
        wait_done(t.receive.done_fd);
        assert_int_equal(receive_threads_look(&t.receive), RECEIVE_THREADS_FAILED);
        for (size_t i = 0; i < ARRAY_SIZE(later); i++)
                send_packet(later[i]);
        receive_threads_end(&t.receive, 5001, UINT64_C(5001) * 1456);
        wait_done(t.receive.done_fd);
        assert_int_equal(receive_threads_look(&t.receive), RECEIVE_THREADS_ENDED);
        receive_threads_join(&t.receive);
        assert_int_equal(receive_threads_taken(&t.receive)->received, 1);
        assert_int_equal(receive_threads_untaken(&t.receive), 4);
        assert_int_equal(receive_threads_missing(&t.receive), 5000);
        assert_int_equal(t.receive.taken_bytes, 1456);
}

/* Nobody has looked at what comes after the end. */
TEST_WITH(what_an_aborted_receiver_misses_is_not_taken, begin, end)
{
        start_receiver();
        send_packet(3);
        while (atomic_load(&t.receive.packets) == 0)
                poll(NULL, 0, 1);
        receive_threads_abort(&t.receive);
        receive_threads_end(&t.receive, 10, UINT64_C(10) * 1456);
        receive_threads_join(&t.receive);
        assert_int_equal(receive_threads_missing(&t.receive), 9);
        assert_int_equal(receive_threads_untaken(&t.receive), 6);
}

/* Main also has the control connection, so a turn ends although more packets may leave. */
TEST_WITH(packets_are_sent_again_in_short_turns, begin, end)
{
        json_auto_t *message = json_pack("{s:[[i, i]]}", "ranges", 0, 2748);
        struct send_again again = {};
        uint64_t at_ns;
        int turns = 1, r;

        move_all();
        spacing_init(&t.send.spacing, 0, 1, 0, 256);
        assert_int_equal(send_again_begin(&again, &t.send, message), 0);
        of_threads.leap_ns = 5 * NS_PER_MS;
        while ((r = send_again_turn(&again, &t.send, &at_ns)) == 0)
                turns++;
        assert_int_equal(r, 1);
        assert_int_equal(again.packets, 2748);
        /* A turn reads the clock at least once per 64 packets, and ends after 10 ms. */
        assert_true(turns >= 2748 / 64 / 3);
}
